/* layout_derive.c - one rank's layout from (model, recipe, rank), by the engine's table. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/engines/engine.h"
#include "models/layout_private.h"

struct deriver {
    const struct wf_model *model;
    const struct wf_recipe *recipe;
    struct wf_coordinates at;
    struct wf_build build;
    /* Parameter index by (layer + 1, role), layer + 1 = 0 outside the layers; UINT32_MAX: none. */
    uint32_t *by_role;
    enum wf_dtype dtype;
    /* While the pieces of one part are composed. */
    uint32_t param;
    enum wf_piece_kind kind;
};

static uint32_t *role_slot(struct deriver *d, uint32_t layer, uint32_t role)
{
    size_t row = layer == WF_NO_LAYER ? 0 : (size_t)layer + 1;
    return &d->by_role[row * WF_ROLE_COUNT + role];
}

static bool index_roles(struct deriver *d)
{
    size_t slots = (d->model->layers + 1) * WF_ROLE_COUNT;
    d->by_role = malloc(slots * sizeof *d->by_role);
    if (!d->by_role) {
        return false;
    }
    memset(d->by_role, 0xff, slots * sizeof *d->by_role);
    for (uint32_t i = 0; i < d->model->param_count; i++) {
        *role_slot(d, d->model->params[i].layer, d->model->params[i].role) = i;
    }
    return true;
}

/* The parameter of a role; a tied head is the embedding. */
static uint32_t find_param(struct deriver *d, uint32_t layer, enum wf_role role)
{
    uint32_t param = *role_slot(d, layer, role);
    if (param == UINT32_MAX && role == WF_ROLE_HEAD && d->model->tied) {
        param = *role_slot(d, layer, WF_ROLE_EMBEDDING);
    }
    return param;
}

/* --- one tensor ------------------------------------------------------------------------------ */

/* The whole tensor before its cut, and the cut. Counts are elements, steps bytes. */
struct whole {
    uint64_t groups, group_rows, rows, padded_rows, columns;
    uint32_t elem_bytes;
    struct wf_nest cut;
};

static uint64_t round_up(uint64_t value, uint64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* How often each share of a part stands in the tensor, and how many shares there are. */
static uint64_t shares_of(const struct deriver *d, const struct wf_engine_row *row,
                          enum wf_role role, uint64_t groups)
{
    if (row->groups == WF_GROUPS_ONE) {
        return 1;
    }
    const char *what = NULL;
    uint64_t units = wf_engine_units(d->model, role, &what);
    return units < groups ? units : groups;
}

static struct wf_nest make_cut(const struct deriver *d, const struct wf_engine_row *row,
                               const struct whole *whole)
{
    uint64_t tp = row->cut == WF_CUT_NONE ? 1 : d->recipe->tp;
    uint64_t rank = row->cut == WF_CUT_NONE ? 0 : d->at.tp;
    int64_t elem = whole->elem_bytes;
    struct wf_nest cut = {.elem_bytes = whole->elem_bytes};
    if (row->cut == WF_CUT_COLUMNS) {
        uint64_t local = whole->columns / tp;
        cut.param_first = rank * local;
        cut.axis_count = 2;
        cut.axes[0] = (struct wf_axis){whole->padded_rows, whole->columns, (int64_t)local * elem};
        cut.axes[1] = (struct wf_axis){local, 1, elem};
    } else {
        uint64_t local = whole->padded_rows / tp * whole->columns;
        cut.param_first = rank * local;
        cut.axis_count = 1;
        cut.axes[0] = (struct wf_axis){local, 1, elem};
    }
    return cut;
}

/* The sizes of a row's whole tensor. False if the model has no parameter for it. */
static bool measure(struct deriver *d, const struct wf_engine_row *row, uint32_t layer,
                    struct whole *out)
{
    *out = (struct whole){.groups = 1, .elem_bytes = (uint32_t)wf_dtype_bytes(d->dtype)};
    if (row->groups == WF_GROUPS_KV_HEADS) {
        out->groups = d->model->kv_heads;
    } else if (row->groups == WF_GROUPS_TP) {
        out->groups = d->recipe->tp;
    }
    for (size_t part = 0; part < WF_PARTS_MAX && row->parts[part] != WF_ROLE_NONE; part++) {
        uint32_t index = find_param(d, layer, row->parts[part]);
        if (index == UINT32_MAX) {
            return false;
        }
        const struct wf_param *param = &d->model->params[index];
        out->columns = param->elements / param->shape[0];
        out->group_rows += param->shape[0] / shares_of(d, row, row->parts[part], out->groups);
    }
    out->rows = out->groups * out->group_rows;
    out->padded_rows = row->padded ? round_up(out->rows, d->recipe->vocab_multiple) : out->rows;
    out->cut = make_cut(d, row, out);
    return true;
}

static bool add_nest(void *user, const struct wf_nest *nest)
{
    struct deriver *d = user;
    wf_build_piece(&d->build, d->param, nest, d->kind);
    return true;
}

/* The fuse rule of one part, as a nest from the parameter into the whole tensor. */
static struct wf_nest fuse(const struct whole *whole, uint64_t shares, uint64_t share_rows,
                           uint64_t rows_before)
{
    int64_t elem = whole->elem_bytes;
    int64_t group_step = (int64_t)(whole->group_rows * whole->columns) * elem;
    uint64_t repeats = whole->groups / shares, share = share_rows * whole->columns;
    return (struct wf_nest){
        .tensor_offset = rows_before * whole->columns * whole->elem_bytes,
        .elem_bytes = whole->elem_bytes,
        .axis_count = 3,
        .axes = {{shares, share, (int64_t)repeats * group_step},
                 {repeats, 0, group_step},
                 {share, 1, elem}},
    };
}

static void add_header(struct deriver *d, const struct wf_engine_row *row, const char *name,
                       uint32_t layer, const struct whole *whole)
{
    const struct wf_param *param = &d->model->params[find_param(d, layer, row->parts[0])];
    uint64_t shape[WF_SHAPE_MAX], tp = row->cut == WF_CUT_NONE ? 1 : d->recipe->tp;
    memcpy(shape, param->shape, sizeof shape);
    shape[0] = row->cut == WF_CUT_COLUMNS ? whole->padded_rows : whole->padded_rows / tp;
    if (row->cut == WF_CUT_COLUMNS) {
        WF_ASSERT(param->ndim == 2);
        shape[1] = whole->columns / tp;
    }
    wf_build_tensor(&d->build, name, d->dtype, param->ndim, shape);
}

static enum wf_status add_tensor(struct deriver *d, const struct wf_engine_row *row,
                                 const char *name, uint32_t layer, struct wf_error *error)
{
    struct whole whole;
    if (!measure(d, row, layer, &whole)) {
        return WF_OK;
    }
    add_header(d, row, name, layer, &whole);
    enum wf_status status = WF_OK;
    uint64_t rows_before = 0;
    d->kind = WF_PIECE_DATA;
    for (size_t part = 0; part < WF_PARTS_MAX && row->parts[part] != WF_ROLE_NONE; part++) {
        d->param = find_param(d, layer, row->parts[part]);
        uint64_t shares = shares_of(d, row, row->parts[part], whole.groups);
        uint64_t share_rows = d->model->params[d->param].shape[0] / shares;
        struct wf_nest inner = fuse(&whole, shares, share_rows, rows_before);
        status = wf_nest_compose(&inner, &whole.cut, add_nest, d, error);
        if (status != WF_OK) {
            return status;
        }
        rows_before += share_rows;
    }
    if (whole.padded_rows > whole.rows) {
        /* Padding is cut like a part that no parameter has. */
        d->kind = WF_PIECE_FILL;
        uint64_t count = (whole.padded_rows - whole.rows) * whole.columns;
        struct wf_nest inner = {.elem_bytes = whole.elem_bytes,
                                .tensor_offset = whole.rows * whole.columns * whole.elem_bytes,
                                .axis_count = 1,
                                .axes = {{count, 1, whole.elem_bytes}}};
        status = wf_nest_compose(&inner, &whole.cut, add_nest, d, error);
    }
    return status;
}

/* --- one chunk ------------------------------------------------------------------------------- */

static bool placed(const struct deriver *d, const struct wf_chunk *chunk, enum wf_place place)
{
    bool tied = d->model->tied;
    switch (place) {
    case WF_PLACE_EMBEDDING:
        return chunk->embedding;
    case WF_PLACE_EMBEDDING_OR_COPY:
        return chunk->embedding || (chunk->head && tied);
    case WF_PLACE_HEAD:
        return chunk->head;
    case WF_PLACE_HEAD_UNLESS_SHARED:
        return chunk->head && !(tied && chunk->embedding);
    case WF_PLACE_HEAD_UNTIED:
        return chunk->head && !tied;
    case WF_PLACE_HEAD_TIED:
        return chunk->head && tied;
    default:
        return true;
    }
}

static void make_name(const struct deriver *d, const struct wf_chunk *chunk, const char *pattern,
                      uint32_t layer, char out[WF_NAME_MAX])
{
    const char *mark = strstr(pattern, "{layer}");
    int n;
    if (mark) {
        uint32_t shown =
            d->recipe->engine->layers_count_from_chunk ? layer - chunk->first_layer : layer;
        n = snprintf(out, WF_NAME_MAX, "%s%.*s%" PRIu32 "%s", chunk->prefix, (int)(mark - pattern),
                     pattern, shown, mark + strlen("{layer}"));
    } else {
        n = snprintf(out, WF_NAME_MAX, "%s%s", chunk->prefix, pattern);
    }
    WF_ASSERT(n > 0 && n < WF_NAME_MAX);
}

static enum wf_status add_rows(struct deriver *d, const struct wf_chunk *chunk,
                               const struct wf_engine_row *rows, size_t count, uint32_t layer,
                               struct wf_error *error)
{
    char name[WF_NAME_MAX];
    for (size_t i = 0; i < count; i++) {
        if (!placed(d, chunk, rows[i].place)) {
            continue;
        }
        make_name(d, chunk, rows[i].name, layer, name);
        enum wf_status status = add_tensor(d, &rows[i], name, layer, error);
        if (status != WF_OK) {
            return status;
        }
    }
    return WF_OK;
}

static void add_aliases(struct deriver *d, const struct wf_chunk *chunk)
{
    const struct wf_engine *engine = d->recipe->engine;
    char name[WF_NAME_MAX], target[WF_NAME_MAX];
    for (size_t i = 0; i < engine->alias_count; i++) {
        if (!placed(d, chunk, engine->aliases[i].place)) {
            continue;
        }
        make_name(d, chunk, engine->aliases[i].name, 0, name);
        make_name(d, chunk, engine->aliases[i].target, 0, target);
        for (uint32_t t = d->build.layout->tensor_count; t-- > 0;) {
            const char *known = d->build.text + (size_t)d->build.layout->tensors[t].name;
            if (strcmp(known, target) == 0) {
                wf_build_alias(&d->build, name, t);
                break;
            }
        }
    }
}

/* Rows in the table's order, a block of layer rows once per layer. */
static enum wf_status add_chunk(struct deriver *d, const struct wf_chunk *chunk,
                                struct wf_error *error)
{
    const struct wf_engine_rows *table = wf_engine_table(d->recipe);
    for (size_t first = 0; first < table->count;) {
        size_t end = first + 1;
        bool layered = table->rows[first].place == WF_PLACE_LAYER;
        while (layered && end < table->count && table->rows[end].place == WF_PLACE_LAYER) {
            end++;
        }
        uint32_t times = layered ? chunk->layer_count : 1;
        for (uint32_t i = 0; i < times; i++) {
            enum wf_status status = add_rows(d, chunk, &table->rows[first], end - first,
                                             layered ? chunk->first_layer + i : WF_NO_LAYER, error);
            if (status != WF_OK) {
                return status;
            }
        }
        first = end;
    }
    if (!d->build.failed) {
        add_aliases(d, chunk);
    }
    return WF_OK;
}

static enum wf_status add_chunks(struct deriver *d, struct wf_error *error)
{
    struct wf_chunk chunks[WF_CHUNKS_MAX];
    uint32_t count = 0;
    enum wf_status status =
        d->recipe->engine->chunks(d->model, d->recipe, d->at.pp, chunks, &count, error);
    for (uint32_t i = 0; i < count && status == WF_OK; i++) {
        status = add_chunk(d, &chunks[i], error);
    }
    return status;
}

enum wf_status wf_layout_derive(const struct wf_model *model, const struct wf_recipe *recipe,
                                uint32_t rank, struct wf_layout **layout_out,
                                struct wf_error *error)
{
    uint32_t world = wf_recipe_world(recipe);
    if (rank >= world) {
        return wf_error_set(error, WF_INVALID, "rank %" PRIu32 " of %" PRIu32 " ranks", rank,
                            world);
    }
    if (!recipe->engine->chunks) {
        return wf_layout_hf(model, NULL, layout_out, error);
    }
    enum wf_status status = wf_engine_check(model, recipe, error);
    if (status != WF_OK) {
        return status;
    }
    struct deriver d = {.model = model,
                        .recipe = recipe,
                        .at = wf_recipe_coordinates(recipe, rank),
                        .dtype = recipe->dtype != WF_DTYPE_NONE ? recipe->dtype : model->dtype};
    wf_build_begin(&d.build);
    status = index_roles(&d) ? WF_OK : wf_error_set(error, WF_NO_MEMORY, "no memory for a layout");
    if (status == WF_OK && !d.build.failed) {
        status = add_chunks(&d, error);
    }
    free(d.by_role);
    return wf_build_end(&d.build, status, layout_out, error);
}

enum wf_status wf_layout_hf(const struct wf_model *model, const enum wf_dtype *dtypes,
                            struct wf_layout **layout_out, struct wf_error *error)
{
    struct wf_build build;
    wf_build_begin(&build);
    for (uint32_t i = 0; i < model->param_count && !build.failed; i++) {
        const struct wf_param *param = &model->params[i];
        enum wf_dtype dtype = dtypes ? dtypes[i] : param->dtype;
        uint32_t elem_bytes = (uint32_t)wf_dtype_bytes(dtype);
        struct wf_nest run = {
            .elem_bytes = elem_bytes, .axis_count = 1, .axes = {{param->elements, 1, elem_bytes}}};
        wf_build_tensor(&build, param->name, dtype, param->ndim, param->shape);
        wf_build_piece(&build, i, &run, WF_PIECE_DATA);
    }
    return wf_build_end(&build, WF_OK, layout_out, error);
}

struct wf_nest wf_layout_nest(const struct wf_layout *layout, uint32_t piece)
{
    WF_ASSERT(piece < layout->piece_count);
    const struct wf_piece *p = &layout->pieces[piece];
    struct wf_nest nest = {
        .param_first = p->param_first,
        .tensor_offset = p->tensor_offset,
        .elem_bytes = (uint32_t)wf_dtype_bytes(layout->tensors[p->tensor].dtype),
    };
    if (p->form == 0) {
        nest.axis_count = p->count > 1;
        nest.axes[0] = (struct wf_axis){p->count, 1, nest.elem_bytes};
        return nest;
    }
    const struct wf_form *form = &layout->forms[p->form];
    nest.axis_count = form->axis_count;
    memcpy(nest.axes, form->axes, sizeof nest.axes);
    return nest;
}
