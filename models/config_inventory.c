/* config_inventory.c - the list of parameters that follows from a model's family and sizes.
 *
 * First the runs: a row in one place, with its shape and how many experts it is repeated for; then
 * the parameters, run after run, or, where neighbouring rows have experts, expert after expert.
 */
#include <stdlib.h>
#include <string.h>

#include "models/config.h"
#include "models/config_private.h"
#include "models/expr.h"
#include "models/manifest_set.h"
#include "models/variant.h"
#include "runtime/pages.h"

#define EXPERT_MARK "{expert}"
#define LAYERS_MARK "{layers}"
#define NUMBER_MARK "{i}"

enum { DIGITS_MAX = 10 };

/* A row in one place. */
struct run {
    uint32_t row, stack, index;
    uint32_t experts; /* 0: the row has none */
    /* Its name: the place's prefix if it has one, `before`, the expert's number, `after`. */
    const char *before, *after;
    size_t before_len, after_len;
    bool prefixed;
    struct wf_param shape;
};

/* Where a row's expressions are read: `excluded` is the row's module's. */
struct place {
    struct wf_model_at at;
    struct builder *builder;
    uint32_t row, experts;
    bool mixed; /* `excluded` was asked for, and experts differ */
};

struct builder {
    struct wf_model *model;
    struct run *runs;
    size_t run_count, run_room;
    uint64_t elements, params, text_bytes;
    uint64_t *hashes;               /* of the names */
    bool never[WF_FAMILY_ROWS_MAX]; /* rows that no place of this model has */
    /* The module that was asked about last: rows of one linear stand together. */
    char module[2 * WF_NAME_MAX + DIGITS_MAX];
    bool excluded, mixed;
    /* The name's beginning in this place, up to and with the number. */
    char prefix[WF_NAME_MAX];
    size_t prefix_len;
};

static bool has_experts(const struct wf_family_row *row)
{
    return strstr(row->name, EXPERT_MARK) != NULL;
}

static bool has_prefix(const struct wf_family_row *row)
{
    return strncmp(row->name, LAYERS_MARK, strlen(LAYERS_MARK)) == 0;
}

static bool is_stacked(const struct wf_family_row *row)
{
    return row->stacks || has_prefix(row);
}

/* Decimal digits; returns their number. */
static size_t write_number(uint64_t number, char *out)
{
    char digits[20];
    size_t count = 0;
    do {
        digits[count++] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    for (size_t i = 0; i < count; i++) {
        out[i] = digits[count - 1 - i];
    }
    return count;
}

/* Finds the parts of a run's name once for all its parameters. */
static void split_name(const struct wf_family_row *row, struct run *run)
{
    run->prefixed = has_prefix(row);
    run->before = row->name + (run->prefixed ? strlen(LAYERS_MARK) : 0);
    const char *mark = strstr(run->before, EXPERT_MARK);
    const char *end = run->before + strlen(run->before);
    run->before_len = (size_t)((mark ? mark : end) - run->before);
    run->after = mark ? mark + strlen(EXPERT_MARK) : end;
    run->after_len = (size_t)(end - run->after);
}

/* Writes the name of a run's parameter behind the prefix; returns its end, the NUL. */
static char *write_name(const struct builder *b, const struct run *run, uint32_t expert, char *out)
{
    if (run->prefixed) {
        memcpy(out, b->prefix, b->prefix_len);
        out += b->prefix_len;
    }
    memcpy(out, run->before, run->before_len);
    out += run->before_len;
    if (run->experts) {
        out += write_number(expert, out);
    }
    memcpy(out, run->after, run->after_len);
    out += run->after_len;
    *out = '\0';
    return out;
}

/* The module of a row here, of one expert where it has experts: "model.layers.0.mlp.gate_proj". */
static void name_module(const struct place *place, uint32_t expert,
                        char out[2 * WF_NAME_MAX + DIGITS_MAX])
{
    struct run run = {.row = place->row, .stack = place->at.stack, .experts = place->experts};
    split_name(&place->at.model->family->rows[place->row], &run);
    (void)write_name(place->builder, &run, expert, out);
    char *dot = strrchr(out, '.');
    if (dot) {
        *dot = '\0';
    }
}

/* Whether the row's module is excluded; notes where experts differ. */
static bool is_excluded(struct place *place)
{
    const struct wf_excluded *list = &wf_memory(place->at.model)->excluded;
    struct builder *b = place->builder;
    char name[2 * WF_NAME_MAX + DIGITS_MAX];
    name_module(place, 0, name);
    if (strcmp(name, b->module) != 0) {
        uint32_t experts = list->numbered ? wf_memory(place->at.model)->experts : 0;
        b->excluded = wf_excluded_has(list, name);
        b->mixed = false;
        memcpy(b->module, name, strlen(name) + 1);
        for (uint32_t i = 1; place->experts && i < experts && !b->mixed; i++) {
            name_module(place, i, name);
            b->mixed = wf_excluded_has(list, name) != b->excluded;
        }
    }
    place->mixed |= b->mixed;
    return b->excluded;
}

static bool lookup(void *user, const char *name, size_t len, uint64_t *value_out)
{
    struct place *place = user;
    if (len == strlen("excluded") && memcmp(name, "excluded", len) == 0) {
        *value_out = is_excluded(place);
        return true;
    }
    return wf_model_lookup(&place->at, name, len, value_out);
}

/* "f32", or "f32: EXPRESSION". */
static enum wf_status type_row(const struct wf_family_row *row, struct place *at,
                               struct wf_param *out, struct wf_error *error)
{
    const char *text = row->dtype, *name = NULL;
    size_t len = 0;
    uint64_t holds = 1;
    if (!text || !wf_expr_next(&text, ':', &name, &len)) {
        return WF_OK;
    }
    enum wf_status status =
        *text ? wf_expr_eval(text, strlen(text), lookup, at, &holds, error) : WF_OK;
    if (status == WF_OK && holds) {
        out->dtype = wf_dtype_from_name(name, len);
        out->own_dtype = true;
    }
    return status;
}

static enum wf_status shape_row(struct builder *b, struct run *run, struct place *at,
                                struct wf_error *error)
{
    const struct wf_family_row *row = &b->model->family->rows[run->row];
    struct wf_param *out = &run->shape;
    *out = (struct wf_param){.dtype = b->model->dtype, .elements = 1};
    const char *list = row->shape, *item = NULL;
    size_t len = 0;
    while (wf_expr_next(&list, ',', &item, &len)) {
        WF_ASSERT(out->ndim < WF_SHAPE_MAX); /* wf_family_check */
        uint64_t *size = &out->shape[out->ndim++];
        enum wf_status status = wf_expr_eval(item, len, lookup, at, size, error);
        if (status == WF_OK && *size == 0) {
            status = wf_error_set(error, WF_INVALID, "\"%.*s\" is 0", (int)len, item);
        }
        if (status != WF_OK) {
            wf_error_prefix(error, "shape of %s", row->name);
            return status;
        }
        if (__builtin_mul_overflow(out->elements, *size, &out->elements) ||
            out->elements > WF_MODEL_ELEMENTS_MAX) {
            return wf_error_set(error, WF_INVALID,
                                "the config's sizes make %s larger than 2^56 elements", row->name);
        }
    }
    return type_row(row, at, out, error);
}

/* What all of a run's experts take together. */
static enum wf_status count_run(struct builder *b, const struct run *run, struct wf_error *error)
{
    const struct wf_family_row *row = &b->model->family->rows[run->row];
    uint64_t times = run->experts ? run->experts : 1, all = 0;
    size_t prefix = has_prefix(row) ? b->prefix_len : 0;
    size_t suffix = strlen(row->name) - (has_prefix(row) ? strlen(LAYERS_MARK) : 0);
    size_t len = prefix + suffix + (run->experts ? DIGITS_MAX : 0) + 1;
    if (len >= WF_NAME_MAX) {
        return wf_error_set(error, WF_INVALID, "the name %s%s has more than %d bytes", b->prefix,
                            row->name, WF_NAME_MAX - 1);
    }
    b->params += times;
    b->text_bytes += times * len;
    if (b->params > WF_MODEL_PARAMS_MAX) {
        return wf_error_set(error, WF_INVALID,
                            "the config's sizes make the model larger than %u parameters",
                            WF_MODEL_PARAMS_MAX);
    }
    if (__builtin_mul_overflow(run->shape.elements, times, &all) ||
        (b->elements += all) > WF_MODEL_ELEMENTS_MAX) {
        return wf_error_set(error, WF_INVALID,
                            "the config's sizes make the model larger than 2^56 elements");
    }
    return WF_OK;
}

/* The experts of a run are of one shape and one dtype. */
static enum wf_status refuse_mixed(const struct place *place, struct wf_error *error)
{
    return place->mixed ? wf_error_set(error, WF_INVALID,
                                       "%s in %s: the config's quantization_config leaves some "
                                       "experts as they are and not others; expected all or none",
                                       place->at.model->family->rows[place->row].name,
                                       place->builder->prefix)
                        : WF_OK;
}

/* Whether a row's condition begins with a size that is 0 everywhere, and needs it: "fp8 && ...".
 * Most rows of packed weights do, and there are many. */
static bool is_never(const struct wf_model *model, const struct wf_family_row *row)
{
    const char *when = row->when ? row->when : "";
    size_t name = strspn(when, WF_EXCLUDED_LETTERS);
    uint32_t size = name > 0 ? wf_family_find_size(model->family, when, name) : WF_NONE;
    if (size == WF_NONE || strncmp(when + name, " && ", 4) != 0) {
        return false;
    }
    int depth = 0;
    for (const char *at = when + name; *at != '\0'; at++) {
        depth += (*at == '(') - (*at == ')');
        if (depth == 0 && (*at == '|' || *at == '?')) {
            return false;
        }
    }
    const struct wf_size_value *value = &wf_memory(model)->sizes[size];
    return !value->varies && value->value == 0;
}

static enum wf_status add_run(struct builder *b, uint32_t row, const struct wf_model_at *at,
                              struct wf_error *error)
{
    const struct wf_family_row *r = &b->model->family->rows[row];
    uint32_t experts = has_experts(r) ? wf_memory(b->model)->experts : 0;
    struct place place = {.at = *at, .builder = b, .row = row, .experts = has_experts(r)};
    uint64_t there = 1;
    if (r->when) {
        enum wf_status status =
            wf_expr_eval(r->when, strlen(r->when), lookup, &place, &there, error);
        if (status != WF_OK) {
            wf_error_prefix(error, "%s", r->name);
            return status;
        }
    }
    if (refuse_mixed(&place, error) != WF_OK) {
        return WF_INVALID;
    }
    if (!there || (has_experts(r) && experts == 0)) {
        return WF_OK;
    }
    if (b->run_count == b->run_room) {
        size_t room = b->run_room ? 2 * b->run_room : 1024;
        struct run *more =
            room > 2 * (size_t)WF_MODEL_PARAMS_MAX ? NULL : realloc(b->runs, room * sizeof *more);
        if (!more) {
            return wf_error_set(error, WF_NO_MEMORY, "no memory for an inventory");
        }
        b->runs = more;
        b->run_room = room;
    }
    struct run *run = &b->runs[b->run_count];
    *run = (struct run){.row = row, .stack = at->stack, .index = at->index, .experts = experts};
    split_name(r, run);
    enum wf_status status = shape_row(b, run, &place, error);
    if (status == WF_OK) {
        status = refuse_mixed(&place, error);
    }
    if (status == WF_OK) {
        status = count_run(b, run, error);
    }
    b->run_count += status == WF_OK;
    return status;
}

/* The prefix of a stack's member, "" outside. */
static enum wf_status write_prefix(struct builder *b, const struct wf_model_at *at,
                                   struct wf_error *error)
{
    b->prefix_len = 0;
    b->prefix[0] = '\0';
    if (at->stack == WF_NONE) {
        return WF_OK;
    }
    const char *text = b->model->family->stacks[at->stack].prefix;
    const char *mark = strstr(text, NUMBER_MARK);
    WF_ASSERT(mark); /* wf_family_check */
    size_t before = (size_t)(mark - text), after = strlen(mark + strlen(NUMBER_MARK));
    if (before + after + DIGITS_MAX >= sizeof b->prefix) {
        return wf_error_set(error, WF_INVALID, "the prefix %s is longer than %d bytes", text,
                            WF_NAME_MAX);
    }
    memcpy(b->prefix, text, before);
    size_t len = before;
    len += write_number(wf_memory(b->model)->stacks[at->stack].first + at->index, b->prefix + len);
    memcpy(b->prefix + len, mark + strlen(NUMBER_MARK), after + 1);
    b->prefix_len = len + after;
    return WF_OK;
}

/* One place's share of a block of rows. */
static enum wf_status add_place(struct builder *b, size_t first, size_t end, struct wf_model_at at,
                                struct wf_error *error)
{
    enum wf_status status = write_prefix(b, &at, error);
    for (size_t row = first; status == WF_OK && row < end; row++) {
        const struct wf_family_row *r = &b->model->family->rows[row];
        if (!b->never[row] &&
            (at.stack == WF_NONE || wf_family_row_in_stack(b->model->family, r, at.stack))) {
            status = add_run(b, (uint32_t)row, &at, error);
        }
    }
    return status;
}

/* Every row in the table's order, neighbouring rows with a stack once for each of its members. */
static enum wf_status add_rows(struct builder *b, struct wf_error *error)
{
    const struct wf_family *family = b->model->family;
    enum wf_status status = WF_OK;
    for (size_t first = 0, end; status == WF_OK && first < family->row_count; first = end) {
        bool stacked = is_stacked(&family->rows[first]);
        end = first + 1;
        while (end < family->row_count && is_stacked(&family->rows[end]) == stacked) {
            end++;
        }
        if (!stacked) {
            status =
                add_place(b, first, end, (struct wf_model_at){b->model, WF_NONE, WF_NONE}, error);
        }
        for (uint32_t stack = 0; stacked && stack < family->stack_count; stack++) {
            for (uint32_t i = 0; status == WF_OK && i < wf_model_stack_count(b->model, stack);
                 i++) {
                status = add_place(b, first, end, (struct wf_model_at){b->model, stack, i}, error);
            }
        }
    }
    return status;
}

static char *add_param(struct builder *b, const struct run *run, uint32_t expert, char *text)
{
    struct wf_model *model = b->model;
    uint32_t index = model->param_count++;
    struct wf_param *param = &model->params[index];
    *param = run->shape;
    param->name = text;
    param->row = run->row;
    param->stack = run->stack;
    param->index = run->index;
    param->expert = run->experts ? expert : WF_NONE;
    char *end = write_name(b, run, expert, text);
    b->hashes[index] = wf_hash_bytes(text, (size_t)(end - text));
    return end + 1;
}

static struct wf_param_entry *entry_of(const struct wf_model *model, uint32_t row, uint32_t stack,
                                       uint32_t index)
{
    const struct wf_model_memory *memory = wf_memory(model);
    size_t place = stack == WF_NONE ? 0 : 1 + (size_t)memory->stacks[stack].base + index;
    return &memory->entries[row * ((size_t)memory->places + 1) + place];
}

/* The parameters of all runs. Returns the end of their names. */
static const char *add_params(struct builder *b, struct wf_error *error)
{
    char *text = wf_memory(b->model)->names;
    for (size_t first = 0, end; first < b->run_count; first = end) {
        const struct run *run = &b->runs[first];
        const struct run *before = first > 0 ? run - 1 : NULL;
        if (!before || before->stack != run->stack || before->index != run->index) {
            (void)write_prefix(b, &(struct wf_model_at){b->model, run->stack, run->index}, error);
        }
        end = first + 1;
        while (run->experts && end < b->run_count && b->runs[end].experts &&
               b->runs[end].row == b->runs[end - 1].row + 1 && b->runs[end].stack == run->stack &&
               b->runs[end].index == run->index) {
            end++;
        }
        for (size_t i = first; i < end; i++) {
            *entry_of(b->model, b->runs[i].row, run->stack, run->index) = (struct wf_param_entry){
                b->model->param_count + (uint32_t)(i - first), (uint32_t)(end - first)};
        }
        for (uint32_t expert = 0; expert < (run->experts ? run->experts : 1); expert++) {
            for (size_t i = first; i < end; i++) {
                text = add_param(b, &b->runs[i], expert, text);
            }
        }
    }
    return text;
}

/* The family's name, its sizes, and every parameter: name, type, shape. */
static void hash_model(const struct builder *b, const char *names_end)
{
    struct wf_model *model = b->model;
    const struct wf_family *family = model->family;
    struct wf_hasher hasher;
    wf_hasher_init(&hasher);
    wf_hasher_text(&hasher, family->name, strlen(family->name));
    wf_hasher_text(&hasher, model->model_type, strlen(model->model_type));
    wf_hasher_u64(&hasher, model->dtype);
    for (size_t i = 0; i < family->size_count; i++) {
        const struct wf_size_value *size = &wf_memory(model)->sizes[i];
        wf_hasher_text(&hasher, family->sizes[i].name, strlen(family->sizes[i].name));
        wf_hasher_u64(&hasher, size->value);
        for (uint32_t place = 0; size->varies && place < wf_memory(model)->places; place++) {
            wf_hasher_u64(&hasher, size->at[place]);
        }
    }
    wf_hasher_u64(&hasher, model->param_count);
    wf_hasher_text(&hasher, wf_memory(model)->names, (size_t)(names_end - wf_memory(model)->names));
    for (size_t i = 0; i < b->run_count; i++) {
        const struct run *run = &b->runs[i];
        wf_hasher_u64(&hasher, run->experts);
        wf_hasher_u64(&hasher, run->shape.dtype);
        wf_hasher_u64(&hasher, run->shape.ndim);
        for (uint32_t axis = 0; axis < run->shape.ndim; axis++) {
            wf_hasher_u64(&hasher, run->shape.shape[axis]);
        }
    }
    model->hash = wf_hasher_end(&hasher);
}

static enum wf_status build(struct builder *b, struct wf_error *error)
{
    struct wf_model *model = b->model;
    struct wf_model_memory *memory = wf_memory(model);
    uint64_t experts = wf_model_size(model, "E");
    if (experts > WF_EXPERTS_MAX) {
        return wf_error_set(error, WF_INVALID, "size E: expected at most %d experts, found %llu",
                            WF_EXPERTS_MAX, (unsigned long long)experts);
    }
    memory->experts = (uint32_t)experts;
    for (size_t row = 0; row < model->family->row_count; row++) {
        b->never[row] = is_never(model, &model->family->rows[row]);
    }
    enum wf_status status = add_rows(b, error);
    if (status != WF_OK) {
        return status;
    }
    size_t entries = model->family->row_count * ((size_t)memory->places + 1);
    memory->names = wf_pages_alloc(b->text_bytes + 1);
    memory->entries = malloc(entries * sizeof *memory->entries);
    model->params = wf_pages_alloc((b->params + 1) * sizeof *model->params);
    b->hashes = malloc((b->params + 1) * sizeof *b->hashes);
    if (!b->hashes || !memory->names || !memory->entries || !model->params) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for an inventory");
    }
    memset(memory->entries, 0xff, entries * sizeof *memory->entries);
    model->param_count = 0;
    hash_model(b, add_params(b, error));
    return wf_model_index(model, b->hashes, error);
}

enum wf_status wf_model_build(struct wf_model *model, struct wf_error *error)
{
    struct builder b = {.model = model};
    enum wf_status status = build(&b, error);
    free(b.runs);
    free(b.hashes);
    return status;
}

void wf_model_free(struct wf_model *model)
{
    struct wf_model_memory *memory = model ? wf_memory(model) : NULL;
    for (size_t i = 0; memory && i < WF_FAMILY_SIZES_MAX; i++) {
        free(memory->sizes[i].raw);
        free(memory->sizes[i].at);
    }
    if (memory) {
        free(memory->excluded.entries);
        free(memory->names);
        free(memory->variant_names);
        free(memory->slots);
        free(memory->entries);
        free(memory);
    }
    if (model) {
        wf_variants_free(model->variants);
        wf_manifest_set_free(model->manifests);
        free(model->params);
        free(model);
    }
}

uint32_t wf_model_param(const struct wf_model *model, uint32_t stack, uint32_t index, uint32_t row,
                        uint32_t expert)
{
    if (row >= model->family->row_count ||
        (stack != WF_NONE && index >= wf_model_stack_count(model, stack))) {
        return WF_NONE;
    }
    const struct wf_param_entry *entry = entry_of(model, row, stack, index);
    bool experts = entry->first != WF_NONE && model->params[entry->first].expert != WF_NONE;
    if (entry->first == WF_NONE || expert >= (experts ? wf_memory(model)->experts : 1)) {
        return WF_NONE;
    }
    return entry->first + expert * entry->step;
}
