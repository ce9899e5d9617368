/* side_index.c - matches files with layouts: which tensors hold which parameter, and what is odd.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/families/family.h"
#include "tools/compare/side_private.h"

/* Visits every place of every parameter; twice: to count, and to write down. */
struct indexer {
    struct wf_compare_side *side;
    bool counting;
    uint32_t *next; /* of each parameter: its next free source */
    bool **known;   /* of each rank: tensors of the file that somebody knows */
    struct wf_error *error;
    enum wf_status status;
};

/* --- matching -------------------------------------------------------------------------------- */

static void note_shape(struct wf_compare_side *side, const char *name, uint32_t rank, uint32_t ndim,
                       const uint64_t *shape, const struct wf_dump_tensor *found)
{
    if (side->shape_count == side->shape_capacity) {
        uint32_t capacity = side->shape_capacity == 0 ? 16 : 2 * side->shape_capacity;
        void *grown = realloc(side->shapes, capacity * sizeof *side->shapes);
        if (grown == NULL) {
            return;
        }
        side->shapes = grown;
        side->shape_capacity = capacity;
    }
    struct wf_side_shape *out = &side->shapes[side->shape_count++];
    *out = (struct wf_side_shape){
        .name = strdup(name), .rank = rank, .expected_ndim = ndim, .found_ndim = found->ndim};
    memcpy(out->expected, shape, ndim * sizeof *shape);
    memcpy(out->found, found->shape, found->ndim * sizeof *shape);
}

/* Equal, or shorter or longer in the first dimension alone: rows that are there can be compared. */
static bool usable(uint32_t ndim, const uint64_t *shape, const struct wf_dump_tensor *found,
                   bool *equal_out)
{
    bool rest = ndim == found->ndim &&
                (ndim < 2 || memcmp(shape + 1, found->shape + 1, (ndim - 1) * sizeof *shape) == 0);
    *equal_out = rest && (ndim == 0 || shape[0] == found->shape[0]);
    return rest;
}

/* A layout's name without its mark of a buffer or an attribute. */
static const struct wf_dump_tensor *find_live(const struct wf_dump_rank *files, const char *name)
{
    static const char *const marks[] = {"buffer:", "attr:"};
    const struct wf_dump_tensor *found = wf_dump_rank_find(files, name);
    for (size_t i = 0; found == NULL && i < sizeof marks / sizeof marks[0]; i++) {
        size_t len = strlen(marks[i]);
        found = strncmp(name, marks[i], len) == 0 ? wf_dump_rank_find(files, name + len) : NULL;
    }
    return found;
}

/* The parameter that alone makes up a tensor, for a name in reports; else the tensor's. */
static const char *name_of(const struct wf_compare_side *side, const struct wf_layout *layout,
                           uint32_t tensor)
{
    uint32_t first, end;
    wf_layout_pieces(layout, tensor, &first, &end);
    uint32_t param = WF_NONE, others = 0;
    for (uint32_t i = first; i < end; i++) {
        if (layout->pieces[i].kind == WF_PIECE_DATA) {
            others += param != WF_NONE && layout->pieces[i].param != param;
            param = layout->pieces[i].param;
        }
    }
    return param != WF_NONE && others == 0 ? side->model->params[param].name
                                           : layout->tensors[tensor].name;
}

static enum wf_status match_rank(struct wf_compare_side *side, uint32_t rank, bool *known,
                                 struct wf_error *error)
{
    struct wf_side_rank *r = &side->ranks[rank];
    const struct wf_layout *layout = r->layout;
    uint32_t count = layout->tensor_count + layout->alias_count;
    r->live = malloc((count + 1) * sizeof *r->live);
    if (r->live == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for %u tensors", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        bool alias = i >= layout->tensor_count, equal = true;
        uint32_t tensor = alias ? layout->aliases[i - layout->tensor_count].tensor : i;
        const struct wf_tensor *wanted = &layout->tensors[tensor];
        const char *name = alias ? layout->aliases[i - layout->tensor_count].name : wanted->name;
        const struct wf_dump_tensor *live = find_live(&r->files, name);
        r->live[i] = WF_NONE;
        if (live == NULL) {
            continue;
        }
        known[live - r->files.tensors] = true;
        if (wanted->kind != WF_TENSOR_WEIGHTS || live->dtype == WF_DTYPE_NONE) {
            continue;
        }
        if (usable(wanted->ndim, wanted->shape, live, &equal)) {
            r->live[i] = (uint32_t)(live - r->files.tensors);
        }
        if (!equal) {
            note_shape(side, name_of(side, layout, tensor), rank, wanted->ndim, wanted->shape,
                       live);
        }
    }
    return WF_OK;
}

/* --- visiting -------------------------------------------------------------------------------- */

static void emit(struct indexer *x, uint32_t param, struct wf_side_source source)
{
    struct wf_side_param *p = &x->side->params[param];
    if (x->counting) {
        p->source_count++;
    } else {
        x->side->sources[x->next[param]++] = source;
    }
}

static void visit_layout(struct indexer *x, uint32_t rank)
{
    const struct wf_side_rank *r = &x->side->ranks[rank];
    const struct wf_layout *layout = r->layout;
    uint32_t first, end;
    for (uint32_t p = 0; p < layout->piece_count; p++) {
        if (layout->pieces[p].kind == WF_PIECE_DATA) {
            x->side->params[layout->pieces[p].param].planned = true;
        }
    }
    for (uint32_t i = 0; i < layout->tensor_count + layout->alias_count; i++) {
        uint32_t tensor =
            i < layout->tensor_count ? i : layout->aliases[i - layout->tensor_count].tensor;
        if (r->live[i] == WF_NONE) {
            continue;
        }
        wf_layout_pieces(layout, tensor, &first, &end);
        for (uint32_t p = first; p < end; p++) {
            const struct wf_piece *piece = &layout->pieces[p];
            const struct wf_tensor *wanted = &layout->tensors[tensor];
            const struct wf_dump_tensor *live = &r->files.tensors[r->live[i]];
            /* Of a tensor with fewer rows only what is one run can be cut short. */
            bool shorter = wanted->ndim > 0 && live->shape[0] != wanted->shape[0];
            uint64_t begins = piece->tensor_offset / wf_dtype_bytes(wanted->dtype);
            if (piece->kind == WF_PIECE_DATA &&
                (!shorter || (piece->form == 0 && begins < live->elements))) {
                emit(
                    x, piece->param,
                    (struct wf_side_source){rank, r->live[i], p, WF_SOURCE_NEW, piece->value_rule});
            }
        }
    }
}

static const char *tied_head(const struct wf_model *model)
{
    uint32_t row = wf_family_find_row(model->family, WF_NONE, "head", strlen("head"));
    return model->tied && row != WF_NONE ? model->family->rows[row].name : NULL;
}

/* Tensors of a checkpoint that are parameters one by one, and the head that a tied one may have. */
static void visit_own_names(struct indexer *x)
{
    struct wf_compare_side *side = x->side;
    const struct wf_dump_rank *files = &side->ranks[0].files;
    const char *head = tied_head(side->model);
    for (uint32_t t = 0; t < files->count; t++) {
        const struct wf_dump_tensor *live = &files->tensors[t];
        uint32_t param = WF_NONE;
        bool equal = true;
        if (!x->known[0][t]) {
            param = wf_model_find(side->model, live->name, strlen(live->name));
        }
        if (!x->known[0][t] && param == WF_NONE && head != NULL && strcmp(live->name, head) == 0) {
            uint32_t row =
                wf_family_find_row(side->model->family, WF_NONE, "embedding", strlen("embedding"));
            param = wf_model_param(side->model, WF_NONE, WF_NONE, row, 0);
        }
        if (param == WF_NONE || live->dtype == WF_DTYPE_NONE) {
            continue;
        }
        const struct wf_param *wanted = &side->model->params[param];
        if (usable(wanted->ndim, wanted->shape, live, &equal)) {
            emit(x, param, (struct wf_side_source){0, t, WF_NONE, WF_SOURCE_NEW, WF_VALUE_COPY});
        }
        if (!equal && x->counting) {
            note_shape(side, wanted->name, 0, wanted->ndim, wanted->shape, live);
        }
        if (!x->counting) {
            x->known[0][t] = true;
        }
    }
}

static void visit_names(struct indexer *x)
{
    uint32_t param = 0;
    for (uint32_t r = 0; r < x->side->rank_count; r++) {
        for (uint32_t t = 0; t < x->side->ranks[r].files.count; t++, param++) {
            x->known[r][t] = true;
            emit(x, param, (struct wf_side_source){r, t, WF_NONE, WF_SOURCE_NEW, WF_VALUE_COPY});
        }
    }
}

static void visit(struct indexer *x)
{
    if (x->side->by_names) {
        visit_names(x);
        return;
    }
    for (uint32_t r = 0; r < x->side->rank_count; r++) {
        if (x->side->ranks[r].layout != NULL) {
            visit_layout(x, r);
        }
    }
    if (strcmp(x->side->spec, "hf") == 0) {
        visit_own_names(x);
    }
}

bool wf_side_ends_with(const char *name, const char *end)
{
    size_t len = strlen(name), end_len = strlen(end);
    return len > end_len && strcmp(name + len - end_len, end) == 0;
}

size_t wf_side_scales_stem(const char *name)
{
    size_t end = wf_side_ends_with(name, WF_SIDE_SCALES)       ? strlen(WF_SIDE_SCALES)
                 : wf_side_ends_with(name, WF_SIDE_ROW_SCALES) ? strlen("_scale")
                                                               : 0;
    return end > 0 ? strlen(name) - end : 0;
}

/* --- parameters ------------------------------------------------------------------------------ */

/* Numbers between dots, at most two. */
void wf_side_numbers(const char *name, uint32_t *layer_out, uint32_t *expert_out)
{
    uint32_t found[2] = {WF_NONE, WF_NONE}, count = 0;
    for (const char *at = strchr(name, '.'); at != NULL && count < 2; at = strchr(at + 1, '.')) {
        size_t digits = strspn(at + 1, "0123456789");
        if (digits > 0 && digits < 8 && at[1 + digits] == '.') {
            found[count++] = (uint32_t)strtoul(at + 1, NULL, 10);
        }
    }
    *layer_out = found[0];
    *expert_out = found[1];
}

static enum wf_status make_params(struct wf_compare_side *side, struct wf_error *error)
{
    uint32_t count = side->by_names ? 0 : side->model->param_count;
    for (uint32_t r = 0; side->by_names && r < side->rank_count; r++) {
        count += side->ranks[r].files.count;
    }
    side->params = calloc(count + 1, sizeof *side->params);
    if (side->params == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for %u parameters", count);
    }
    uint32_t rank = 0, tensor = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct wf_side_param *p = &side->params[i];
        *p = (struct wf_side_param){.in_model = side->by_names ? WF_NONE : i,
                                    .scales = WF_NONE,
                                    .planned = side->by_names || strcmp(side->spec, "hf") == 0};
        side->param_count = i + 1;
        if (side->by_names) {
            for (; tensor == side->ranks[rank].files.count; rank++, tensor = 0) {
            }
            const struct wf_dump_tensor *t = &side->ranks[rank].files.tensors[tensor++];
            char *name = NULL;
            int len = side->rank_count > 1 ? asprintf(&name, "rank %u: %s", rank, t->name)
                                           : asprintf(&name, "%s", t->name);
            p->name = len < 0 ? NULL : name;
            if (p->name == NULL) {
                return wf_error_set(error, WF_NO_MEMORY, "no memory for a name");
            }
            p->ndim = t->ndim;
            p->elements = t->elements;
            memcpy(p->shape, t->shape, sizeof p->shape);
        } else {
            const struct wf_param *m = &side->model->params[i];
            p->name = m->name;
            p->ndim = m->ndim;
            p->elements = m->elements;
            memcpy(p->shape, m->shape, sizeof p->shape);
        }
        wf_side_numbers(p->name, &p->layer, &p->expert);
    }
    return WF_OK;
}

static int compare_names(const void *a, const void *b, void *side)
{
    const struct wf_side_param *params = ((const struct wf_compare_side *)side)->params;
    return strcmp(params[*(const uint32_t *)a].name, params[*(const uint32_t *)b].name);
}

static enum wf_status sort_names(struct wf_compare_side *side, struct wf_error *error)
{
    side->by_name = malloc((side->param_count + 1) * sizeof *side->by_name);
    if (side->by_name == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for %u names", side->param_count);
    }
    for (uint32_t i = 0; i < side->param_count; i++) {
        side->by_name[i] = i;
    }
    qsort_r(side->by_name, side->param_count, sizeof *side->by_name, compare_names, side);
    return WF_OK;
}

uint32_t wf_side_find(const struct wf_compare_side *side, const char *name)
{
    uint32_t low = 0, high = side->param_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2, index = side->by_name[middle];
        int order = strcmp(side->params[index].name, name);
        if (order == 0) {
            return index;
        }
        low = order < 0 ? middle + 1 : low;
        high = order < 0 ? high : middle;
    }
    return WF_NONE;
}

/* --- what overlaps --------------------------------------------------------------------------- */

static uint64_t last_of(const struct wf_nest *nest)
{
    uint64_t last = nest->param_first;
    for (uint32_t a = 0; a < nest->axis_count; a++) {
        last += (nest->axes[a].count - 1) * nest->axes[a].param_step;
    }
    return last;
}

static bool same_elements(const struct wf_nest *a, const struct wf_nest *b)
{
    bool same = a->param_first == b->param_first && a->axis_count == b->axis_count;
    for (uint32_t i = 0; i < a->axis_count && same; i++) {
        same =
            a->axes[i].count == b->axes[i].count && a->axes[i].param_step == b->axes[i].param_step;
    }
    return same;
}

static bool count_box(void *user, const struct wf_box *box)
{
    *(uint64_t *)user += box->elements;
    return true;
}

/* Without repeats. */
static uint64_t elements_of(struct wf_nest nest)
{
    uint64_t elements = 1;
    for (uint32_t a = 0; a < nest.axis_count; a++) {
        elements *= nest.axes[a].param_step > 0 ? nest.axes[a].count : 1;
    }
    return elements;
}

static enum wf_status classify(struct wf_compare_side *side, struct wf_side_param *p,
                               struct wf_error *error)
{
    for (uint32_t s = p->first_source; s < p->first_source + p->source_count; s++) {
        struct wf_side_source *source = &side->sources[s];
        struct wf_nest nest = wf_side_nest(side, p, source);
        uint64_t shared = 0, own = elements_of(nest), first = nest.param_first,
                 last = last_of(&nest);
        for (uint32_t o = p->first_source; o < s && shared < own; o++) {
            if (side->sources[o].part == WF_SOURCE_COPY) {
                continue;
            }
            struct wf_nest other = wf_side_nest(side, p, &side->sources[o]);
            if (same_elements(&nest, &other)) {
                shared = own;
            } else if (other.param_first <= last && last_of(&other) >= first) {
                enum wf_status status = wf_nest_intersect(&other, &nest, count_box, &shared, error);
                if (status != WF_OK) {
                    wf_error_prefix(error, "%s", p->name);
                    return status;
                }
            }
        }
        source->part = shared == 0     ? WF_SOURCE_NEW
                       : shared >= own ? WF_SOURCE_COPY
                                       : WF_SOURCE_BOTH;
        p->marked = p->marked || source->part == WF_SOURCE_BOTH;
        p->held += own - (shared < own ? shared : own);
        p->less_one = p->less_one || source->value_rule == WF_VALUE_LESS_ONE;
        enum wf_dtype dtype = wf_side_tensor(side, source)->dtype;
        p->dtypes_differ = p->dtypes_differ || (p->dtype != WF_DTYPE_NONE && p->dtype != dtype);
        p->dtype = p->dtype == WF_DTYPE_NONE ? dtype : p->dtype;
    }
    p->marked = p->marked || p->held < p->elements;
    return WF_OK;
}

static void find_scales(struct wf_compare_side *side)
{
    char name[WF_NAME_MAX + 16];
    for (uint32_t i = 0; i < side->param_count; i++) {
        struct wf_side_param *p = &side->params[i];
        if (p->dtype == WF_DTYPE_F8_E4M3 && p->ndim == 2) {
            snprintf(name, sizeof name, "%s_scale_inv", p->name);
            p->scales = wf_side_find(side, name);
            if (p->scales == WF_NONE) { /* one for each row */
                snprintf(name, sizeof name, "%s_scale", p->name);
                p->scales = wf_side_find(side, name);
            }
        }
    }
}

/* --- all of it ------------------------------------------------------------------------------- */

/* Names of what frameworks save beside weights. */
static bool is_harmless(const struct wf_dump_tensor *tensor)
{
    static const char *const parts[] = {"rotary_emb.inv_freq", "_extra_state", "rotary_emb.cos"};
    bool harmless = tensor->elements == 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        harmless = harmless || strstr(tensor->name, parts[i]) != NULL;
    }
    return harmless;
}

static enum wf_status list_unknown(struct indexer *x)
{
    struct wf_compare_side *side = x->side;
    for (uint32_t r = 0; r < side->rank_count; r++) {
        const struct wf_dump_rank *files = &side->ranks[r].files;
        for (uint32_t t = 0; t < files->count; t++) {
            if (x->known[r][t]) {
                continue;
            }
            struct wf_texts *list = is_harmless(&files->tensors[t]) ? &side->notes : &side->unknown;
            enum wf_status status =
                side->rank_count > 1
                    ? wf_texts_add(list, x->error, "rank %u: %s", r, files->tensors[t].name)
                    : wf_texts_add(list, x->error, "%s", files->tensors[t].name);
            if (status != WF_OK) {
                return status;
            }
        }
    }
    return WF_OK;
}

static enum wf_status make_sources(struct indexer *x)
{
    struct wf_compare_side *side = x->side;
    x->counting = true;
    visit(x);
    x->next = calloc(side->param_count + 1, sizeof *x->next);
    for (uint32_t i = 0; i < side->param_count && x->next != NULL; i++) {
        side->params[i].first_source = side->source_count;
        x->next[i] = side->source_count;
        side->source_count += side->params[i].source_count;
    }
    side->sources = calloc((size_t)side->source_count + 1, sizeof *side->sources);
    if (x->next == NULL || side->sources == NULL) {
        return wf_error_set(x->error, WF_NO_MEMORY, "no memory for %u places", side->source_count);
    }
    x->counting = false;
    visit(x);
    enum wf_status status = WF_OK;
    for (uint32_t i = 0; i < side->param_count && status == WF_OK; i++) {
        status = classify(side, &side->params[i], x->error);
    }
    return status;
}

enum wf_status wf_side_index(struct wf_compare_side *side, struct wf_error *error)
{
    struct indexer x = {.side = side, .error = error};
    x.known = calloc(side->rank_count + 1, sizeof *x.known);
    enum wf_status status =
        x.known != NULL ? WF_OK : wf_error_set(error, WF_NO_MEMORY, "no memory for an index");
    for (uint32_t r = 0; r < side->rank_count && status == WF_OK; r++) {
        x.known[r] = calloc(side->ranks[r].files.count + 1, sizeof **x.known);
        if (x.known[r] == NULL) {
            status = wf_error_set(error, WF_NO_MEMORY, "no memory for an index");
        } else if (!side->by_names && side->ranks[r].layout != NULL) {
            status = match_rank(side, r, x.known[r], error);
        }
    }
    status = status == WF_OK ? make_params(side, error) : status;
    status = status == WF_OK ? sort_names(side, error) : status;
    status = status == WF_OK ? make_sources(&x) : status;
    status = status == WF_OK ? list_unknown(&x) : status;
    if (status == WF_OK) {
        find_scales(side);
    }
    for (uint32_t r = 0; r < side->rank_count && x.known != NULL; r++) {
        free(x.known[r]);
    }
    free(x.known);
    free(x.next);
    return status;
}
