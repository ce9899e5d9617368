/* registry.c - the engines that this build knows, and the checks that follow from any table. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "models/engines/engine.h"
#include "models/expr.h"
#include "models/layout.h"
#include "models/layout_rows.h"

const struct wf_engine *const wf_engines[] = {
    &wf_engine_fsdp, &wf_engine_hf, &wf_engine_manifest, &wf_engine_megatron, &wf_engine_sglang,
    &wf_engine_vllm, NULL,
};

const char *const wf_groups[WF_GROUP_COUNT] = {
    [WF_GROUP_TP] = "tp",         [WF_GROUP_ETP] = "etp",   [WF_GROUP_EP] = "ep",
    [WF_GROUP_DP] = "dp",         [WF_GROUP_ATTN] = "attn", [WF_GROUP_DENSE] = "dense",
    [WF_GROUP_EMBED] = "embed",   [WF_GROUP_HEAD] = "head", [WF_GROUP_SHARED] = "shared",
    [WF_GROUP_VISION] = "vision",
};

/* One rank of each pipeline stage has every kind of tensor that any rank has. */
enum wf_status wf_engine_check(const struct wf_model *model, const struct wf_recipe *recipe,
                               struct wf_error *error)
{
    uint32_t ranks = wf_recipe_ranks_per_engine(recipe), next = 0;
    enum wf_status status = WF_OK;
    if (recipe->engine->layout) {
        return recipe->engine->check(model, recipe, error); /* each was checked when it was made */
    }
    for (uint32_t rank = 0; rank < ranks && next < recipe->pp && status == WF_OK; rank++) {
        if (wf_recipe_coordinates(recipe, rank).pp != next) {
            continue;
        }
        struct wf_layout *layout = NULL;
        status = wf_layout_derive(model, recipe, rank, &layout, error);
        if (status == WF_OK) {
            wf_layout_free(layout);
        }
        next++;
    }
    return status;
}

const struct wf_param *wf_engine_find_param(const struct wf_model *model, const char *role)
{
    for (uint32_t s = 0; s <= model->family->stack_count; s++) {
        uint32_t stack = s == model->family->stack_count ? WF_NONE : s;
        uint32_t row = wf_family_find_row(model->family, stack, role, strlen(role));
        uint32_t members = stack == WF_NONE ? 1 : wf_model_stack_count(model, stack);
        for (uint32_t i = 0; i < members && row != WF_NONE; i++) {
            uint32_t param = wf_model_param(model, stack, stack == WF_NONE ? WF_NONE : i, row, 0);
            if (param != WF_NONE) {
                return &model->params[param];
            }
        }
    }
    return NULL;
}

const char *wf_engine_find_role(const struct wf_model *model, const char *role)
{
    const struct wf_param *param = wf_engine_find_param(model, role);
    return param ? param->name : NULL;
}

uint32_t wf_engine_axes(const char *order, const char *const *names, uint32_t count,
                        uint32_t *axes_out)
{
    uint32_t found = 0;
    for (const char *at = order; *at;) {
        size_t len = strcspn(at, "-");
        for (uint32_t i = 0; i < count; i++) {
            if (strlen(names[i]) == len && memcmp(names[i], at, len) == 0) {
                axes_out[found++] = i;
            }
        }
        at += len + (at[len] == '-');
    }
    return found;
}

enum wf_status wf_engine_refuse_quantised(const struct wf_model *model, struct wf_error *error)
{
    static const char *const sizes[] = {"fp8", "fp8_rows", "mxfp4", "int4", "nvfp4", "packed"};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (wf_model_size(model, sizes[i]) != 0) {
            return wf_error_set(error, WF_UNSUPPORTED,
                                "the config has a quantization_config (%s), but a trainer's "
                                "tensors are not quantised; give the config without it",
                                sizes[i]);
        }
    }
    return WF_OK;
}

static bool ends_with(const char *text, const char *end)
{
    size_t len = strlen(text), end_len = strlen(end);
    return len >= end_len && strcmp(text + len - end_len, end) == 0;
}

/* The first packed linear that is no routed expert's, or NULL. */
static const char *find_int4_linear(const struct wf_model *model)
{
    bool int4 = wf_model_size(model, "int4") != 0;
    for (uint32_t i = 0; int4 && i < model->param_count; i++) {
        const struct wf_param *param = &model->params[i];
        if (param->expert == WF_NONE && ends_with(model->family->rows[param->row].role, "_int4")) {
            return param->name;
        }
    }
    return NULL;
}

enum wf_status wf_engine_refuse_packed(const struct wf_model *model, const struct wf_engine *engine,
                                       struct wf_error *error)
{
    const char *linear = engine->view == WF_VIEW_SPEC ? find_int4_linear(model) : NULL;
    if (linear) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "%s: int4 (%s) is known of routed experts; other linears in %s are in "
                            "no table: list them in quantization_config's ignore",
                            linear, wf_model_packing(model), engine->name);
    }
    if (wf_model_size(model, "packed") != 0) {
        return wf_error_set(
            error, WF_UNSUPPORTED,
            "the config's quantization_config (%s) packs weights in a way that this "
            "build does not know; for tensors in %s give the config without it",
            wf_model_packing(model), wf_dtype_name(model->dtype));
    }
    if (wf_model_size(model, "nvfp4") != 0 && engine->view == WF_VIEW_SPEC) {
        return wf_error_set(
            error, WF_UNSUPPORTED,
            "nvfp4 weights (%s) are known in checkpoints only: how %s holds them is "
            "in no table; between files (hf:) they move as they are, and for "
            "tensors in %s give the config without quantization_config",
            wf_model_packing(model), engine->name, wf_dtype_name(model->dtype));
    }
    return WF_OK;
}

/* --- rows alone ------------------------------------------------------------------------------ */

struct rows_checker {
    const struct wf_engine *engine;
    const struct wf_family *family; /* or NULL: any built-in one */
    const struct wf_engine_row *row;
    struct wf_error *error;
};

static bool any_family_knows(const char *name, size_t len)
{
    for (const struct wf_family *const *family = wf_families; *family; family++) {
        if (wf_family_knows(*family, name, len)) {
            return true;
        }
    }
    return false;
}

/* Every name that could have a value in some place; the values do not matter. */
static bool lookup_any(void *user, const char *name, size_t len, uint64_t *value_out)
{
    const struct rows_checker *c = user;
    const struct wf_recipe recipe = {.engine = c->engine};
    const struct wf_chunk chunk = {.layer_count = 0};
    const struct wf_coordinates rank = {.tp = 0};
    const bool place =
        (len == 5 && memcmp(name, "layer", 5) == 0) || (len == 5 && memcmp(name, "index", 5) == 0);
    *value_out = 1;
    if (place ||
        (c->family ? wf_family_knows(c->family, name, len) : any_family_knows(name, len))) {
        return true;
    }
    struct wf_row_at at = {.recipe = &recipe,
                           .chunk = &chunk,
                           .rank = &rank,
                           .sized = true,
                           .in_extra = c->row->extra != NULL};
    return wf_row_lookup_own(&at, name, len, value_out);
}

const struct wf_engine *wf_engine_of_word(const char *name, size_t len)
{
    const struct wf_chunk chunk = {.layer_count = 0};
    const struct wf_coordinates rank = {.tp = 0};
    for (const struct wf_engine *const *engine = wf_engines; *engine; engine++) {
        const struct wf_recipe recipe = {.engine = *engine};
        const struct wf_row_at at = {
            .recipe = &recipe, .chunk = &chunk, .rank = &rank, .sized = true, .in_extra = true};
        uint64_t unused = 0;
        if (wf_row_lookup_own(&at, name, len, &unused)) {
            return *engine;
        }
    }
    return NULL;
}

static enum wf_status check_expression(struct rows_checker *c, const char *text)
{
    return text ? wf_expr_check(text, strlen(text), lookup_any, c, c->error) : WF_OK;
}

static enum wf_status check_list(struct rows_checker *c, const char *list, char mark)
{
    const char *item;
    size_t len;
    enum wf_status status = WF_OK;
    while (list && status == WF_OK && wf_expr_next(&list, mark, &item, &len)) {
        status = wf_expr_check(item, len, lookup_any, c, c->error);
    }
    return status;
}

static bool role_known(const struct wf_family *family, const char *role, size_t len)
{
    for (size_t i = 0; i < family->row_count; i++) {
        if (strlen(family->rows[i].role) == len && memcmp(family->rows[i].role, role, len) == 0) {
            return true;
        }
    }
    return len == 4 && memcmp(role, "head", 4) == 0;
}

static enum wf_status check_role(struct rows_checker *c, const struct wf_row_part *part)
{
    bool known = c->family && role_known(c->family, part->role, part->role_len);
    for (const struct wf_family *const *f = wf_families; !c->family && *f && !known; f++) {
        known = role_known(*f, part->role, part->role_len);
    }
    return known ? WF_OK
                 : wf_error_set(c->error, WF_INVALID, "%s: no family has the role \"%.*s\"",
                                c->row->name, (int)part->role_len, part->role);
}

/* "EXPR", "EXPR@N", "EXPR@LO:HI" or "*EXPR". */
static enum wf_status check_factor(struct rows_checker *c, const char *text, size_t len)
{
    bool repeats = len > 0 && *text == '*';
    const char *mark = memchr(text, '@', len), *end = text + len;
    const char *colon = mark ? memchr(mark, ':', (size_t)(end - mark)) : NULL;
    const char *const parts[][2] = {{text + repeats, mark ? mark : end},
                                    {mark ? mark + 1 : NULL, colon ? colon : end},
                                    {colon ? colon + 1 : NULL, end}};
    enum wf_status status = WF_OK;
    for (size_t i = 0; i < 3 && status == WF_OK; i++) {
        status = parts[i][0] ? wf_expr_check(parts[i][0], (size_t)(parts[i][1] - parts[i][0]),
                                             lookup_any, c, c->error)
                             : WF_OK;
    }
    return status;
}

/* Factors of rows; of columns. */
static enum wf_status check_share(struct rows_checker *c, const struct wf_row_part *part)
{
    char *copy = strndup(part->share, part->share_len);
    enum wf_status status =
        copy ? WF_OK : wf_error_set(c->error, WF_NO_MEMORY, "no memory for a table");
    for (char *rest = copy; rest && status == WF_OK;) {
        const char *dimension = strsep(&rest, ";"), *item;
        size_t len;
        while (status == WF_OK && wf_expr_next(&dimension, ',', &item, &len)) {
            status = check_factor(c, item, len);
        }
    }
    free(copy);
    return status;
}

static enum wf_status check_parts(struct rows_checker *c, const char *text)
{
    enum wf_status status = WF_OK;
    for (bool more = true; more && status == WF_OK;) {
        struct wf_row_part part;
        status = wf_row_part_next(&text, &part, &more, c->error);
        if (status == WF_OK && more) {
            status = check_role(c, &part);
        }
        if (status == WF_OK && part.share) {
            status = check_share(c, &part);
        }
    }
    return status;
}

/* Alternatives one by one. */
static enum wf_status check_all_parts(struct rows_checker *c)
{
    if (strcmp(c->row->parts, "*") == 0) {
        return WF_OK;
    }
    char *copy = strdup(c->row->parts), *rest = copy;
    enum wf_status status =
        copy ? WF_OK : wf_error_set(c->error, WF_NO_MEMORY, "no memory for a table");
    while (rest && status == WF_OK) {
        status = check_parts(c, strsep(&rest, "|"));
    }
    free(copy);
    if (status == WF_OK && c->row->extra) {
        const char *colon = strchr(c->row->extra, ':');
        status = colon ? wf_expr_check(c->row->extra, (size_t)(colon - c->row->extra), lookup_any,
                                       c, c->error)
                       : wf_error_set(c->error, WF_INVALID, "%s: extra: expected COUNT: PARTS",
                                      c->row->name);
        status = status == WF_OK ? check_parts(c, colon + 1) : status;
    }
    return status;
}

static enum wf_status check_name(struct rows_checker *c)
{
    static const char *const known[] = {"{layers}", "{name}", "{dir}", "{leaf}", "{experts}",
                                        "{expert}", "{slot}", "{i}",   "{top}"};
    for (const char *at = strchr(c->row->name, '{'); at; at = strchr(at + 1, '{')) {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
            found = found || strncmp(at, known[i], strlen(known[i])) == 0;
        }
        if (!found) {
            return wf_error_set(c->error, WF_INVALID,
                                "name \"%s\": expected {layers}, {name}, {dir}, {leaf}, {experts}, "
                                "{expert}, {slot}, {i} or {top} in braces",
                                c->row->name);
        }
    }
    return WF_OK;
}

static enum wf_status check_cuts(struct rows_checker *c)
{
    const char *at = c->row->cuts, *item;
    size_t len;
    while (at && wf_expr_next(&at, ' ', &item, &len)) {
        unsigned group = 0;
        while (group < WF_GROUP_COUNT && (len < 3 || strlen(wf_groups[group]) != len - 2 ||
                                          memcmp(item + 2, wf_groups[group], len - 2) != 0)) {
            group++;
        }
        if (group == WF_GROUP_COUNT || (item[0] != '0' && item[0] != '1') ||
            (item[1] != '/' && item[1] != '~')) {
            return wf_error_set(c->error, WF_INVALID,
                                "%s: cut \"%.*s\": expected 0 or 1, / or ~ and a group of ranks",
                                c->row->name, (int)len, item);
        }
    }
    return WF_OK;
}

/* "DTYPE", "model" or "config", each with ": EXPR" where it does not always hold. */
static enum wf_status check_dtype(struct rows_checker *c)
{
    const char *text = c->row->dtype, *colon = text ? strchr(text, ':') : NULL;
    size_t len = text ? strcspn(text, ":") : 0;
    bool word =
        (len == 5 && memcmp(text, "model", 5) == 0) || (len == 6 && memcmp(text, "config", 6) == 0);
    if (text && !word && wf_dtype_from_name(text, len) == WF_DTYPE_NONE) {
        return wf_error_set(c->error, WF_INVALID,
                            "%s: dtype \"%.40s\": expected a dtype, model or config", c->row->name,
                            text);
    }
    return check_expression(c, colon ? colon + 1 : NULL);
}

/* "0 2 1": each dimension once, however many there are. */
static enum wf_status check_order(struct rows_checker *c)
{
    const char *text = c->row->order;
    unsigned seen = 0, bad = 0;
    for (; text && *text; text++) {
        unsigned axis = *text == ' ' ? 0 : 1u << (*text >= '0' && *text <= '9' ? *text - '0' : 31);
        bad |= seen & axis;
        seen |= axis;
    }
    if (bad || (seen & (seen + 1)) != 0 || seen >= 1u << WF_SHAPE_MAX) {
        return wf_error_set(c->error, WF_INVALID,
                            "%s: order \"%.40s\": expected each dimension once", c->row->name,
                            c->row->order);
    }
    return WF_OK;
}

static enum wf_status check_row(struct rows_checker *c)
{
    const struct wf_engine_row *row = c->row;
    if (!row->parts || (!row->name && row->kind != WF_ROW_ABSENT)) {
        return wf_error_set(c->error, WF_INVALID, "a row needs a name and parts");
    }
    enum wf_status status = row->name ? check_name(c) : WF_OK;
    if (status == WF_OK) {
        status = check_all_parts(c);
    }
    if (status == WF_OK) {
        status = check_cuts(c);
    }
    if (status == WF_OK) {
        status = check_dtype(c);
    }
    if (status == WF_OK) {
        status = check_order(c);
    }
    if (status == WF_OK && row->view) {
        status = wf_view_check(row->view, lookup_any, c, c->error);
    }
    const char *const expressions[] = {row->when, row->groups, row->fill, row->data_when};
    for (size_t i = 0; i < sizeof expressions / sizeof expressions[0] && status == WF_OK; i++) {
        status = check_expression(c, expressions[i]);
    }
    status = status == WF_OK ? check_list(c, row->shape, ',') : status;
    return status == WF_OK ? check_list(c, row->pad, ';') : status;
}

enum wf_status wf_engine_rows_check(const struct wf_engine *engine, const struct wf_family *family,
                                    const struct wf_engine_row *rows, size_t count,
                                    struct wf_error *error)
{
    struct rows_checker c = {.engine = engine, .family = family, .error = error};
    for (size_t i = 0; i < count; i++) {
        c.row = &rows[i];
        enum wf_status status = check_row(&c);
        if (status != WF_OK) {
            return status;
        }
    }
    return WF_OK;
}

enum wf_status wf_engine_check_placement(const struct wf_placement *placement, uint32_t layer,
                                         uint32_t slots, uint32_t experts, struct wf_error *error)
{
    bool held[WF_SLOTS_MAX] = {false};
    if (placement == NULL) {
        return WF_OK;
    }
    if (placement->slots != slots || layer >= placement->layers || slots > WF_SLOTS_MAX) {
        return wf_error_set(error, WF_INVALID,
                            "the placement of experts has %" PRIu32 " slots of %" PRIu32
                            " layers; expected %" PRIu32
                            " slots (experts and redundant ones), and layer %" PRIu32 " with them",
                            placement->slots, placement->layers, slots, layer);
    }
    for (uint32_t i = 0; i < slots; i++) {
        uint32_t expert = placement->experts[(size_t)layer * slots + i];
        if (expert >= experts) {
            return wf_error_set(error, WF_INVALID,
                                "the placement has expert %" PRIu32 " in slot %" PRIu32
                                " of layer %" PRIu32 ": experts are 0 to %" PRIu32,
                                expert, i, layer, experts - 1);
        }
        held[expert] = true;
    }
    for (uint32_t i = 0; i < experts; i++) {
        if (!held[i]) {
            return wf_error_set(error, WF_INVALID,
                                "the placement has expert %" PRIu32 " in no slot of layer %" PRIu32
                                ": each needs one",
                                i, layer);
        }
    }
    return WF_OK;
}
