/* layout_derive.c - one rank's layout from (model, recipe, rank): walks chunks, stacks and rows. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "models/config_private.h"
#include "models/expr.h"
#include "models/layout_rows.h"
#include "models/variant.h"

struct deriver {
    struct wf_row_at at;
    struct wf_coordinates rank;
    struct wf_binding binding;
    struct wf_slab *slabs;       /* of each bound row */
    struct wf_verdict *verdicts; /* likewise */
    struct wf_slab extra;
    struct wf_build build;
    /* In the member of a stack at hand: which of the family's rows a bound row has taken. */
    bool taken[WF_FAMILY_ROWS_MAX];
    uint32_t *slots; /* experts of the slots here */
    uint32_t slot_count;
    struct wf_error *error;
    /* While one piece goes through a view. */
    uint32_t param;
    enum wf_piece_kind kind;
    uint8_t fill;
    enum wf_value_rule value;
};

/* --- pieces ---------------------------------------------------------------------------------- */

static bool add_nest(void *user, const struct wf_nest *nest)
{
    struct deriver *d = user;
    if (d->kind == WF_PIECE_DATA) {
        wf_build_piece(&d->build, d->param, nest, d->value);
    } else {
        wf_build_fill(&d->build, nest, d->fill);
    }
    return true;
}

/* The nests of one slot, which begins `slot` slabs into the tensor. */
static enum wf_status add_slot(struct deriver *d, const struct wf_slab *slab,
                               const uint32_t *params, uint64_t slot, const struct wf_nest *view)
{
    enum wf_status status = WF_OK;
    for (uint32_t i = 0; i < slab->nest_count && status == WF_OK; i++) {
        struct wf_nest nest = slab->nests[i].nest;
        nest.tensor_offset += slot * slab->rows * slab->columns * slab->elem_bytes;
        d->kind = slab->nests[i].kind;
        d->param = params[slab->nests[i].part];
        if (view) {
            status = wf_nest_compose(&nest, view, add_nest, d, d->error);
        } else {
            add_nest(d, &nest);
        }
    }
    return status;
}

static enum wf_status fill_all(struct deriver *d, uint64_t elements, uint32_t elem_bytes)
{
    struct wf_nest nest = {
        .elem_bytes = elem_bytes, .axis_count = 1, .axes = {{elements, 1, elem_bytes}}};
    d->kind = WF_PIECE_FILL;
    if (elements > 0) {
        add_nest(d, &nest);
    }
    return WF_OK;
}

/* --- headers --------------------------------------------------------------------------------- */

static enum wf_status read_shape(struct deriver *d, const char *text, const char *name,
                                 uint32_t *ndim, uint64_t *shape)
{
    const char *item;
    size_t len;
    struct wf_row_at at = d->at;
    *ndim = 0;
    while (wf_expr_next(&text, ',', &item, &len)) {
        if (*ndim == WF_SHAPE_MAX) {
            return wf_error_set(d->error, WF_INVALID, "%s: a shape of more than %d dimensions",
                                name, WF_SHAPE_MAX);
        }
        enum wf_status status =
            wf_expr_eval(item, len, wf_row_lookup, &at, &shape[(*ndim)++], d->error);
        if (status != WF_OK) {
            return status;
        }
    }
    return WF_OK;
}

/* Slots if there are any, rows, and the first parameter's further dimensions, the first of which is
 * what a cut of columns divides. */
static enum wf_status plain_shape(struct deriver *d, const struct wf_param *param, bool stacked,
                                  const char *name, uint32_t *ndim, uint64_t *shape)
{
    *ndim = 0;
    if (param->ndim + stacked > WF_SHAPE_MAX) {
        return wf_error_set(d->error, WF_INVALID, "%s: more than %d dimensions", name,
                            WF_SHAPE_MAX);
    }
    if (stacked) {
        shape[(*ndim)++] = d->at.slots;
    }
    uint64_t rest = 1;
    for (uint32_t axis = 2; axis < param->ndim; axis++) {
        rest *= param->shape[axis];
    }
    for (uint32_t axis = 0; axis < param->ndim; axis++) {
        shape[(*ndim)++] = axis == 0   ? d->at.rows
                           : axis == 1 ? d->at.columns / (rest ? rest : 1)
                                       : param->shape[axis];
    }
    return WF_OK;
}

static enum wf_status set_order(struct deriver *d, const char *text, uint32_t ndim,
                                const char *name)
{
    uint32_t order[WF_SHAPE_MAX], count = 0, seen = 0;
    for (; *text; text++) {
        if (*text == ' ') {
            continue;
        }
        if (*text < '0' || (uint32_t)(*text - '0') >= ndim || count == ndim) {
            break;
        }
        order[count] = (uint32_t)(*text - '0');
        seen |= 1u << order[count++];
    }
    if (*text || count != ndim || seen != (1u << ndim) - 1) {
        return wf_error_set(d->error, WF_INVALID,
                            "%s: order: expected each of %" PRIu32 " dimensions once", name, ndim);
    }
    wf_build_order(&d->build, order);
    return WF_OK;
}

static enum wf_tensor_kind tensor_kind(enum wf_row_kind kind)
{
    switch (kind) {
    case WF_ROW_DERIVED:
        return WF_TENSOR_DERIVED;
    case WF_ROW_KEEP:
        return WF_TENSOR_KEEP;
    case WF_ROW_VIEW:
        return WF_TENSOR_VIEW;
    default:
        return WF_TENSOR_WEIGHTS;
    }
}

static enum wf_status add_header(struct deriver *d, const struct wf_bound *bound,
                                 const struct wf_slab *slab, const char *name, bool stacked,
                                 uint32_t first_param, uint64_t *elements_out)
{
    const struct wf_engine_row *row = bound->row;
    const struct wf_param *param = &d->at.at.model->params[first_param];
    uint64_t shape[WF_SHAPE_MAX];
    uint32_t ndim = 0;
    enum wf_status status = row->shape ? read_shape(d, row->shape, name, &ndim, shape)
                                       : plain_shape(d, param, stacked, name, &ndim, shape);
    if (status != WF_OK) {
        return status;
    }
    uint64_t wanted = 0;
    bool sane = !__builtin_mul_overflow(d->at.slots, slab->rows * slab->columns, &wanted);
    *elements_out = 1;
    for (uint32_t axis = 0; axis < ndim; axis++) {
        sane = sane && !__builtin_mul_overflow(*elements_out, shape[axis], elements_out);
    }
    if (!sane || *elements_out > WF_MODEL_ELEMENTS_MAX) {
        return wf_error_set(d->error, WF_INVALID, "%s has more than 2^56 elements", name);
    }
    if (row->kind == WF_ROW_WEIGHTS && *elements_out != wanted) {
        return wf_error_set(d->error, WF_INVALID,
                            "%s: its shape has %" PRIu64 " elements, its parts make %" PRIu64, name,
                            *elements_out, wanted);
    }
    wf_build_tensor(&d->build, name, slab->dtype, ndim, shape, tensor_kind(row->kind));
    return row->order ? set_order(d, row->order, ndim, name) : WF_OK;
}

/* --- one tensor ------------------------------------------------------------------------------ */

static bool is_of_role(const struct wf_engine_alias *alias, const struct wf_bound *bound)
{
    const struct wf_row_part *first = &bound->parts[0];
    return strlen(alias->role) == first->role_len &&
           memcmp(alias->role, first->role, first->role_len) == 0;
}

/* The family's exceptions may say that this engine has no second name of a role. */
static bool has_no_alias(const struct wf_family_engine *exceptions, const struct wf_bound *bound)
{
    for (size_t i = 0; exceptions && i < exceptions->alias_count; i++) {
        if (!exceptions->aliases[i].name && is_of_role(&exceptions->aliases[i], bound)) {
            return true;
        }
    }
    return false;
}

static enum wf_status add_alias(struct deriver *d, const struct wf_bound *bound,
                                const struct wf_engine_alias *alias, uint32_t slot, uint32_t expert)
{
    uint64_t holds = 1;
    char name[WF_NAME_MAX];
    if (!alias->name || !is_of_role(alias, bound)) {
        return WF_OK;
    }
    enum wf_status status = wf_row_eval(&d->at, alias->when, 1, &holds, d->error);
    if (status != WF_OK || !holds) {
        return status;
    }
    status = wf_row_name(&d->at, &d->binding, bound, alias->name, slot, expert, name, d->error);
    if (status == WF_OK && !d->build.failed) {
        wf_build_alias(&d->build, name, d->build.layout->tensor_count - 1);
    }
    return status;
}

static enum wf_status add_aliases(struct deriver *d, const struct wf_bound *bound, uint32_t slot,
                                  uint32_t expert)
{
    const struct wf_engine *engine = d->at.recipe->engine;
    const struct wf_family_engine *exceptions = d->binding.exceptions;
    enum wf_status status = WF_OK;
    if (bound->row->kind != WF_ROW_WEIGHTS) {
        return WF_OK;
    }
    size_t own = has_no_alias(exceptions, bound) ? 0 : engine->alias_count;
    for (size_t i = 0; i < own && status == WF_OK; i++) {
        status = add_alias(d, bound, &engine->aliases[i], slot, expert);
    }
    for (size_t i = 0; exceptions && i < exceptions->alias_count && status == WF_OK; i++) {
        status = add_alias(d, bound, &exceptions->aliases[i], slot, expert);
    }
    return status;
}

/* Slots behind the experts' own. */
static enum wf_status add_extra(struct deriver *d, const struct wf_bound *bound, uint64_t times,
                                const struct wf_slab *slab, const struct wf_nest *view)
{
    uint32_t params[WF_PARTS_MAX];
    enum wf_status status = WF_OK;
    for (uint64_t x = 0; x < times && status == WF_OK; x++) {
        d->at.extra = x;
        d->at.in_extra = true;
        if (!wf_bound_params(&d->at, bound, true, 0, params)) {
            return wf_error_set(d->error, WF_INVALID, "%s: the model has no shared expert to fuse",
                                bound->name);
        }
        status = wf_slab_make(&d->at, bound, true, params, &d->extra, d->error);
        if (status == WF_OK && (d->extra.rows != slab->rows || d->extra.columns != slab->columns)) {
            status =
                wf_error_set(d->error, WF_INVALID,
                             "%s: a fused shared expert is not of an expert's size", bound->name);
        }
        if (status == WF_OK) {
            status = add_slot(d, &d->extra, params, d->at.slots - times + x, view);
        }
    }
    d->at.in_extra = false;
    return status;
}

static enum wf_status add_data(struct deriver *d, const struct wf_bound *bound, bool stacked,
                               uint32_t expert, uint64_t extra, const struct wf_slab *slab)
{
    uint32_t params[WF_PARTS_MAX];
    struct wf_nest view_nest, *view = NULL;
    enum wf_status status = WF_OK;
    if (bound->row->view && d->at.slots * slab->rows * slab->columns > 0) {
        view = &view_nest;
        status = wf_view_make(&d->at, bound->row->view, stacked, slab->elem_bytes, view, d->error);
    }
    uint64_t own = stacked ? d->slot_count : 1;
    for (uint64_t slot = 0; slot < own && status == WF_OK; slot++) {
        bool whole =
            wf_bound_params(&d->at, bound, false, stacked ? d->slots[slot] : expert, params);
        WF_ASSERT(whole);
        status = add_slot(d, slab, params, slot, view);
    }
    return status == WF_OK && extra > 0 ? add_extra(d, bound, extra, slab, view) : status;
}

/* One tensor: of all slots where `stacked`, else of one expert or of none. */
static enum wf_status add_tensor(struct deriver *d, const struct wf_bound *bound,
                                 struct wf_slab *slab, bool stacked, uint32_t slot, uint32_t expert)
{
    uint32_t params[WF_PARTS_MAX];
    char name[WF_NAME_MAX];
    const struct wf_engine_row *row = bound->row;
    uint64_t extra = 0, has_data = 1, fill = 0, elements = 0;
    if (!wf_bound_params(&d->at, bound, false, expert, params)) {
        return WF_OK;
    }
    enum wf_status status = wf_slab_make(&d->at, bound, false, params, slab, d->error);
    if (status == WF_OK && bound->extra_times) {
        struct wf_row_at at = d->at;
        status = wf_expr_eval(bound->extra_times, bound->extra_times_len, wf_row_lookup, &at,
                              &extra, d->error);
    }
    if (status == WF_OK && extra > (stacked ? WF_SLOTS_MAX - d->slot_count : 0)) {
        status = wf_error_set(d->error, WF_INVALID,
                              "%s: %" PRIu64 " extra slots beside %" PRIu32 " of experts; expected "
                              "at most %d together, in one tensor of all experts",
                              bound->name, extra, d->slot_count, WF_SLOTS_MAX);
    }
    d->at.slots = stacked ? d->slot_count + extra : 1;
    d->at.rows = slab->rows;
    d->at.columns = slab->columns;
    d->at.sized = true;
    if (status == WF_OK) {
        status = wf_row_name(&d->at, &d->binding, bound, bound->name, slot, expert, name, d->error);
    }
    if (status == WF_OK) {
        status = wf_row_eval(&d->at, row->data_when, 1, &has_data, d->error);
    }
    if (status == WF_OK) {
        status = wf_row_eval(&d->at, row->fill, 0, &fill, d->error);
    }
    if (status == WF_OK) {
        status = add_header(d, bound, slab, name, stacked, params[0], &elements);
    }
    d->fill = (uint8_t)fill;
    d->value = row->value;
    if (status == WF_OK && row->kind == WF_ROW_WEIGHTS && elements > 0) {
        status = has_data ? add_data(d, bound, stacked, expert, extra, slab)
                          : fill_all(d, elements, slab->elem_bytes);
    }
    d->at.sized = false;
    return status == WF_OK ? add_aliases(d, bound, slot, expert) : status;
}

/* --- rows and stacks ------------------------------------------------------------------------- */

/* A name that says which expert makes a tensor of each. */
static bool names_each_expert(const char *name)
{
    return strstr(name, "{slot}") || strstr(name, "{expert}") || strstr(name, "{name}");
}

static bool is_taken(const struct deriver *d, const struct wf_bound *bound)
{
    return bound->wildcard && d->taken[bound->parts[0].family_row];
}

static enum wf_status add_row(struct deriver *d, uint32_t index)
{
    const struct wf_bound *bound = &d->binding.rows[index];
    uint32_t params[WF_PARTS_MAX];
    bool holds = true;
    if (is_taken(d, bound) || !wf_bound_params(&d->at, bound, false, 0, params)) {
        return WF_OK;
    }
    d->at.dims = d->at.at.model->params[params[0]].ndim;
    enum wf_status status = wf_row_holds(&d->at, bound->row, &d->verdicts[index], &holds, d->error);
    if (status != WF_OK || !holds) {
        return status;
    }
    for (uint32_t i = 0; i < bound->part_count + bound->extra_count; i++) {
        d->taken[bound->parts[i].family_row] = true;
    }
    if (bound->row->kind == WF_ROW_ABSENT) {
        return WF_OK;
    }
    if (!bound->per_expert) {
        return add_tensor(d, bound, &d->slabs[index], false, 0, WF_NONE);
    }
    if (!names_each_expert(bound->name)) {
        return add_tensor(d, bound, &d->slabs[index], true, WF_NONE,
                          d->slot_count ? d->slots[0] : 0);
    }
    for (uint32_t slot = 0; slot < d->slot_count && status == WF_OK; slot++) {
        status = add_tensor(d, bound, &d->slabs[index], false, slot, d->slots[slot]);
    }
    return status;
}

/* All rows of one member of a stack, or of none; a wildcard's stand behind what they leave to. */
static enum wf_status add_member(struct deriver *d, uint32_t stack, uint32_t index)
{
    memset(d->taken, 0, sizeof d->taken);
    d->at.at.stack = stack;
    d->at.at.index = index;
    enum wf_status status = wf_slots_find(&d->at, &d->binding, d->slots, &d->slot_count, d->error);
    for (uint32_t i = 0; i < d->binding.count && status == WF_OK; i++) {
        if (d->binding.rows[i].stack == stack) {
            status = add_row(d, i);
        }
    }
    return status;
}

/* Members of a stack in a chunk: [*first_out, *first_out + count). */
static uint32_t members_here(const struct deriver *d, uint32_t stack, uint32_t *first_out)
{
    const struct wf_chunk *chunk = d->at.chunk;
    const char *name = d->at.at.model->family->stacks[stack].name;
    if (strcmp(name, "layer") == 0) {
        *first_out = chunk->first_layer;
        return chunk->layer_count;
    }
    if (strcmp(name, "mtp") == 0) {
        *first_out = chunk->first_mtp;
        return chunk->mtp_count;
    }
    *first_out = 0;
    return chunk->others ? wf_model_stack_count(d->at.at.model, stack) : 0;
}

static enum wf_status add_chunk(struct deriver *d)
{
    uint32_t stacks = (uint32_t)d->at.at.model->family->stack_count;
    enum wf_status status = add_member(d, WF_NONE, WF_NONE);
    for (uint32_t stack = 0; stack < stacks && status == WF_OK; stack++) {
        uint32_t begin = 0, count = members_here(d, stack, &begin);
        for (uint32_t i = 0; i < count && status == WF_OK; i++) {
            status = add_member(d, stack, begin + i);
        }
    }
    return status;
}

static enum wf_status add_chunks(struct deriver *d)
{
    struct wf_chunk *chunks = calloc(WF_CHUNKS_MAX, sizeof *chunks);
    const struct wf_recipe *recipe = d->at.recipe;
    if (!chunks) {
        return wf_error_set(d->error, WF_NO_MEMORY, "no memory for a layout");
    }
    enum wf_status status = WF_OK;
    if (recipe->engine->chunks) {
        status = recipe->engine->chunks(d->at.at.model, recipe, d->rank.pp, chunks,
                                        &d->at.chunk_count, d->error);
    } else {
        const struct wf_family *family = d->at.at.model->family;
        chunks[0] = (struct wf_chunk){.layer_count = (uint32_t)d->at.at.model->layers,
                                      .embedding = true,
                                      .head = true,
                                      .final_norm = true,
                                      .others = true};
        for (uint32_t s = 0; s < family->stack_count; s++) {
            if (strcmp(family->stacks[s].name, "mtp") == 0) {
                chunks[0].mtp_count = wf_model_stack_count(d->at.at.model, s);
            }
        }
        d->at.chunk_count = 1;
    }
    d->at.chunk = &chunks[0];
    if (status == WF_OK) {
        status = wf_row_require(&d->at, recipe->engine->requires, d->error);
    }
    if (status == WF_OK && d->binding.exceptions) {
        status = wf_row_require(&d->at, d->binding.exceptions->requires, d->error);
    }
    for (uint32_t i = 0; i < d->at.chunk_count && status == WF_OK; i++) {
        d->at.chunk = &chunks[i];
        d->at.chunk_index = i;
        status = add_chunk(d);
    }
    free(chunks);
    return status;
}

/* In the recipe's view of the job's model. */
static enum wf_status derive(const struct wf_model *job, const struct wf_recipe *recipe,
                             uint32_t rank, struct wf_layout **layout_out, struct wf_error *error)
{
    const struct wf_model *model = wf_model_view(job, recipe);
    struct deriver *d = calloc(1, sizeof *d);
    if (!d) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a layout");
    }
    *d = (struct deriver){.error = error, .rank = wf_recipe_coordinates(recipe, rank)};
    d->at = (struct wf_row_at){.at = {model, WF_NONE, WF_NONE}, .recipe = recipe, .rank = &d->rank};
    wf_build_begin(&d->build);
    d->build.job = job;
    d->build.view = model;
    enum wf_status status = wf_binding_make(model, recipe->engine, &d->binding, error);
    if (status == WF_OK) {
        d->slabs = calloc(d->binding.count + 1, sizeof *d->slabs);
        d->verdicts = calloc(d->binding.count + 1, sizeof *d->verdicts);
        d->slots = calloc(WF_SLOTS_MAX, sizeof *d->slots);
        d->build.failed = d->build.failed || !d->slabs || !d->verdicts || !d->slots;
    }
    if (status == WF_OK && !d->build.failed) {
        status = add_chunks(d);
    }
    for (uint32_t i = 0; d->slabs && i < d->binding.count; i++) {
        wf_slab_free(&d->slabs[i]);
    }
    wf_slab_free(&d->extra);
    free(d->slabs);
    free(d->verdicts);
    free(d->slots);
    free(d->binding.rows);
    status = wf_build_end(&d->build, status, layout_out, error);
    free(d);
    return status;
}

/* A SPEC may ask for what its job's model was not made for (models/variant.h). */
static enum wf_status check_view(const struct wf_model *job, const struct wf_model *view,
                                 const struct wf_recipe *recipe, struct wf_error *error)
{
    bool fp8 = wf_model_size(view, "fp8") != 0 || wf_model_size(view, "fp8_rows") != 0;
    enum wf_quant wanted = wf_recipe_rule(recipe);
    bool other = job->variants && wanted != WF_QUANT_NONE && wanted != job->variants->rule;
    if (recipe->engine->view != WF_VIEW_SPEC || recipe->quant == WF_RECIPE_QUANT_CONFIG ||
        (fp8 == (wanted != WF_QUANT_NONE) && !other)) {
        return WF_OK;
    }
    return wf_error_set(error, WF_INVALID,
                        "quant=%s: the job's weights are %s%s: expected a quant that the job was "
                        "made with",
                        wf_quant_name(wanted), fp8 ? "in fp8" : "not quantised",
                        other ? " by another rule" : "");
}

/* A table that nothing would read is somebody's mistake about the job. */
static enum wf_status check_placement(const struct wf_model *model, const struct wf_recipe *recipe,
                                      struct wf_error *error)
{
    const char *engine = recipe->engine->name;
    if (recipe->placement != NULL && recipe->engine->experts == NULL) {
        return wf_error_set(error, WF_INVALID,
                            "a placement of experts is for vllm and sglang; %s takes none", engine);
    }
    if (recipe->placement != NULL && wf_model_size(model, "E") == 0) {
        return wf_error_set(error, WF_INVALID,
                            "a placement of experts is given, but this model (%s) has none: leave "
                            "it out",
                            model->model_type);
    }
    return WF_OK;
}

enum wf_status wf_layout_derive(const struct wf_model *model, const struct wf_recipe *recipe,
                                uint32_t rank, struct wf_layout **layout_out,
                                struct wf_error *error)
{
    const struct wf_engine *engine = recipe->engine;
    uint32_t world = wf_recipe_world(recipe);
    if (rank >= world) {
        return wf_error_set(error, WF_INVALID, "rank %" PRIu32 " of %" PRIu32 " ranks", rank,
                            world);
    }
    const struct wf_model *view = wf_model_view(model, recipe);
    enum wf_status status = check_view(model, view, recipe, error);
    if (status == WF_OK) {
        status = wf_engine_refuse_packed(view, engine, error);
    }
    if (status == WF_OK) {
        status = wf_engine_refuse_unlisted(view, engine, error);
    }
    if (status == WF_OK) {
        status = check_placement(view, recipe, error);
    }
    if (status == WF_OK && engine->layout) {
        return engine->layout(model, recipe, rank, layout_out, error);
    }
    if (status == WF_OK && engine->check) {
        status = engine->check(view, recipe, error);
    }
    struct wf_layout *layout = NULL;
    if (status == WF_OK) {
        status = derive(model, recipe, rank, &layout, error);
    }
    if (status == WF_OK && engine->finish) {
        WF_ASSERT(!model->variants ||
                  view == model->variants->plain); /* its numbers are the job's */
        return engine->finish(view, recipe, rank, layout, layout_out, error);
    }
    if (status == WF_OK) {
        *layout_out = layout;
    }
    return status;
}
