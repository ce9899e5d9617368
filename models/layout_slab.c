/* layout_slab.c - one slot of one tensor: parts, fused, cut; and the view over all slots. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/config_private.h"
#include "models/expr.h"
#include "models/layout_rows.h"

void wf_slab_free(struct wf_slab *slab)
{
    free(slab->nests);
    *slab = (struct wf_slab){0};
}

/* --- parts ----------------------------------------------------------------------------------- */

/* A part of the row at hand. Its elements, in order, are a tensor of `padded` rows of
 * `padded_columns`, of which `rows` and `columns` hold data. */
struct part {
    const struct wf_param *param;
    struct wf_nest data; /* parameter -> that tensor */
    uint64_t rows, columns, padded, padded_columns;
    uint64_t units;    /* indivisible; 0: rows */
    uint32_t row_axes; /* of data; the others are the columns' */
};

struct maker {
    const struct wf_row_at *at;
    const struct wf_bound *bound;
    struct wf_slab *slab;
    struct part parts[WF_PARTS_MAX];
    uint32_t part_count, first_part;
    uint64_t groups, group_rows, whole_rows, whole_columns;
    uint64_t row_first, row_count, column_first, column_count; /* the cut */
    uint64_t row_room, column_room;                            /* with what is padded behind it */
    uint64_t pad, local_pad;
    uint32_t elem_bytes;
    /* While one part's nests are composed. */
    struct wf_nest chain[2];
    enum wf_status chain_status;
    uint32_t part;
    enum wf_piece_kind kind;
    struct wf_error *error;
};

struct factor {
    uint64_t size, low, count;
    bool repeats;
};

/* "EXPR", "EXPR@N", "EXPR@LO:HI" or "*EXPR". */
static enum wf_status read_factor(struct maker *m, const char *text, size_t len, struct factor *out)
{
    struct wf_row_at at = *m->at;
    out->repeats = len > 0 && *text == '*';
    text += out->repeats;
    len -= out->repeats;
    const char *mark = memchr(text, '@', len);
    size_t size_len = mark ? (size_t)(mark - text) : len;
    enum wf_status status = wf_expr_eval(text, size_len, wf_row_lookup, &at, &out->size, m->error);
    out->low = 0;
    out->count = out->size;
    if (status == WF_OK && out->size == 0) {
        return wf_error_set(m->error, WF_INVALID, "%s: the factor %s%.*s is 0", m->bound->name,
                            out->repeats ? "*" : "", (int)len, text);
    }
    if (status != WF_OK || !mark) {
        return status;
    }
    const char *range = mark + 1, *colon = memchr(range, ':', len - size_len - 1);
    size_t low_len = colon ? (size_t)(colon - range) : len - size_len - 1;
    uint64_t high = 0;
    status = wf_expr_eval(range, low_len, wf_row_lookup, &at, &out->low, m->error);
    if (status == WF_OK && colon) {
        status = wf_expr_eval(colon + 1, len - size_len - 2 - low_len, wf_row_lookup, &at, &high,
                              m->error);
    } else {
        high = out->low + 1;
    }
    if (status == WF_OK && (out->low >= high || high > out->size || out->repeats)) {
        return wf_error_set(m->error, WF_INVALID,
                            "%s: the share %.*s takes %" PRIu64 " to %" PRIu64 " of %" PRIu64,
                            m->bound->name, (int)len, text, out->low, high, out->size);
    }
    out->count = high - out->low;
    return status;
}

static enum wf_status refuse_size(struct maker *m)
{
    return wf_error_set(m->error, WF_INVALID, "%s has more than 2^56 elements", m->bound->name);
}

static bool is_too_large(uint64_t rows, uint64_t columns)
{
    uint64_t elements = 0;
    return __builtin_mul_overflow(rows, columns, &elements) || elements > WF_MODEL_ELEMENTS_MAX;
}

/* Factors one dimension of the part's parameter, of `size` steps of `step` elements, and adds the
 * share's axes. Gives how many there are then. */
static enum wf_status factor_dimension(struct maker *m, struct part *part, const char *text,
                                       uint64_t size, uint64_t step, uint64_t *count_out)
{
    const char *at = text, *item;
    size_t len;
    uint64_t product = 1;
    struct factor factors[WF_FACTORS_MAX];
    uint32_t count = 0;
    enum wf_status status = WF_OK;
    while (status == WF_OK && count < WF_FACTORS_MAX && wf_expr_next(&at, ',', &item, &len)) {
        status = read_factor(m, item, len, &factors[count]);
        uint64_t own = factors[count].repeats ? 1 : factors[count].size;
        if (status == WF_OK && __builtin_mul_overflow(product, own, &product)) {
            product = 0;
        }
        count++;
    }
    if (status != WF_OK) {
        return status;
    }
    if (product != size || count == 0 || part->data.axis_count + count > WF_AXES_MAX) {
        return wf_error_set(m->error, WF_INVALID,
                            "%s: the factors (%s) of %s make %" PRIu64 ", it has %" PRIu64,
                            m->bound->name, text, part->param->name, product, size);
    }
    uint64_t rest = size;
    *count_out = 1;
    for (uint32_t i = 0; i < count; i++) {
        rest /= factors[i].repeats ? 1 : factors[i].size;
        if (__builtin_mul_overflow(*count_out, factors[i].count, count_out)) {
            return refuse_size(m);
        }
        part->data.param_first += factors[i].low * rest * step;
        part->data.axes[part->data.axis_count++] =
            (struct wf_axis){factors[i].count, factors[i].repeats ? 0 : rest * step, 0};
    }
    return WF_OK;
}

/* Takes the share that the part's text says of its parameter: factors of rows; of columns. */
static enum wf_status take_share(struct maker *m, const struct wf_row_part *text, struct part *part)
{
    char *copy = strndup(text->share, text->share_len);
    if (!copy) {
        return wf_error_set(m->error, WF_NO_MEMORY, "no memory for a layout");
    }
    uint64_t columns = part->columns;
    char *behind = strchr(copy, ';');
    if (behind) {
        *behind++ = '\0';
    }
    part->data.axis_count = 0;
    enum wf_status status =
        factor_dimension(m, part, copy, part->param->shape[0], columns, &part->rows);
    part->row_axes = part->data.axis_count;
    part->units = part->data.axes[0].count;
    for (uint32_t axis = 0; axis < part->row_axes; axis++) {
        part->units = part->data.axes[axis].param_step == 0 ? 0 : part->units;
    }
    if (status == WF_OK && behind) {
        status = factor_dimension(m, part, behind, columns, 1, &part->columns);
    } else if (status == WF_OK) {
        part->data.axes[part->data.axis_count++] = (struct wf_axis){columns, 1, 0};
    }
    free(copy);
    return status;
}

/* UINT64_MAX, which no size may be, where the multiple is beyond that. */
static uint64_t round_up(uint64_t value, uint64_t multiple)
{
    uint64_t rest = multiple <= 1 ? 0 : value % multiple, sum = value;
    return rest > 0 && __builtin_add_overflow(value, multiple - rest, &sum) ? UINT64_MAX : sum;
}

/* "E1" or "E1;E2". */
static enum wf_status read_pad(struct maker *m)
{
    uint64_t *const pads[] = {&m->pad, &m->local_pad};
    const char *text = m->bound->row->pad, *item;
    size_t len;
    m->pad = m->local_pad = 1;
    enum wf_status status = WF_OK;
    for (unsigned i = 0; text && i < 2 && status == WF_OK && wf_expr_next(&text, ';', &item, &len);
         i++) {
        struct wf_row_at at = *m->at;
        status = wf_expr_eval(item, len, wf_row_lookup, &at, pads[i], m->error);
    }
    return status;
}

static bool pads_columns(const struct maker *m)
{
    return m->bound->row->cuts && m->bound->row->cuts[0] == '1';
}

static enum wf_status make_part(struct maker *m, uint32_t index, const struct wf_param *param)
{
    struct part *part = &m->parts[index];
    const struct wf_row_part *text = &m->bound->parts[m->first_part + index];
    const char *unit = m->at->at.model->family->rows[text->family_row].unit;
    *part = (struct part){.param = param, .rows = param->ndim ? param->shape[0] : 1};
    part->columns = part->rows ? param->elements / part->rows : 0;
    part->data.elem_bytes = m->elem_bytes;
    enum wf_status status = WF_OK;
    if (text->share) {
        status = take_share(m, text, part);
    } else {
        part->data.axis_count = 2;
        part->row_axes = 1;
        part->data.axes[0] = (struct wf_axis){part->rows, part->columns, 0};
        part->data.axes[1] = (struct wf_axis){part->columns, 1, 0};
        status = wf_row_eval(m->at, unit, 0, &part->units, m->error);
    }
    part->padded = pads_columns(m) ? part->rows : round_up(part->rows, m->pad);
    part->padded_columns = pads_columns(m) ? round_up(part->columns, m->pad) : part->columns;
    if (status == WF_OK && is_too_large(part->padded, part->padded_columns)) {
        status = refuse_size(m);
    }
    if (status == WF_OK && index > 0 && part->columns != m->parts[0].columns) {
        status = wf_error_set(m->error, WF_INVALID,
                              "%s: %s has %" PRIu64 " columns and %s has %" PRIu64
                              "; they cannot be fused",
                              m->bound->name, m->parts[0].param->name, m->parts[0].columns,
                              param->name, part->columns);
    }
    if (status != WF_OK) {
        return status;
    }
    /* Steps on the side of the part's own tensor: its rows one after the other. */
    int64_t step = m->elem_bytes;
    for (uint32_t axis = part->data.axis_count; axis-- > 0;) {
        if (axis + 1 == part->row_axes) {
            step = (int64_t)(part->padded_columns * m->elem_bytes);
        }
        part->data.axes[axis].tensor_step = step;
        step *= (int64_t)part->data.axes[axis].count;
    }
    return status;
}

/* --- fuse and cut ---------------------------------------------------------------------------- */

/* Units per group, or groups per unit. */
static enum wf_status count_shares(struct maker *m, const struct part *part, uint64_t *shares_out)
{
    uint64_t units = part->units ? part->units : part->padded;
    *shares_out = units < m->groups ? units : m->groups;
    if (units > 0 && (units < m->groups ? m->groups % units : units % m->groups) == 0 &&
        part->padded % *shares_out == 0) {
        return WF_OK;
    }
    return wf_error_set(m->error, WF_INVALID,
                        "%s: %" PRIu64 " units of %s cannot be divided into %" PRIu64
                        " equal shares%s",
                        m->bound->name, units, part->param->name, m->groups,
                        units < m->groups ? " (neither divides the other)" : "");
}

static enum wf_status measure(struct maker *m)
{
    enum wf_status status = wf_row_eval(m->at, m->bound->row->groups, 1, &m->groups, m->error);
    if (status == WF_OK && m->groups == 0) {
        status = wf_error_set(m->error, WF_INVALID, "%s: no groups", m->bound->name);
    }
    m->group_rows = 0;
    for (uint32_t i = 0; i < m->part_count && status == WF_OK; i++) {
        uint64_t shares = 1;
        status = count_shares(m, &m->parts[i], &shares);
        m->group_rows += status == WF_OK ? m->parts[i].padded / shares : 0;
    }
    m->whole_columns = m->parts[0].padded_columns;
    if (status == WF_OK && (__builtin_mul_overflow(m->groups, m->group_rows, &m->whole_rows) ||
                            is_too_large(m->whole_rows, m->whole_columns))) {
        status = refuse_size(m);
    }
    m->row_count = m->whole_rows;
    m->column_count = m->whole_columns;
    return status;
}

static enum wf_status refuse_cut(struct maker *m, uint64_t units, const char *what, uint32_t size,
                                 const char *group)
{
    return wf_error_set(m->error, WF_INVALID,
                        "%" PRIu64 " %s of %s cannot be divided over %" PRIu32
                        " ranks: expected a size of group %s that divides them",
                        units, what, m->parts[0].param->name, size, group);
}

/* One cut, "0/tp": divides what the cuts before it left. */
static enum wf_status cut_once(struct maker *m, const char *text, size_t len, bool first)
{
    unsigned group = 0;
    while (group < WF_GROUP_COUNT && (len < 3 || strlen(wf_groups[group]) != len - 2 ||
                                      memcmp(text + 2, wf_groups[group], len - 2) != 0)) {
        group++;
    }
    if (group == WF_GROUP_COUNT || (text[0] != '0' && text[0] != '1') ||
        (text[1] != '/' && text[1] != '~')) {
        return wf_error_set(m->error, WF_INVALID,
                            "%s: cut \"%.*s\": expected 0 or 1, / or ~ and a group of ranks",
                            m->bound->name, (int)len, text);
    }
    uint32_t size = m->at->rank->group[group].size, rank = m->at->rank->group[group].rank;
    size = size ? size : 1;
    bool columns = text[0] == '1';
    uint64_t *begin = columns ? &m->column_first : &m->row_first;
    uint64_t *count = columns ? &m->column_count : &m->row_count;
    uint64_t share = (*count + size - 1) / size;
    if (text[1] == '/') {
        const struct part *part = &m->parts[0];
        bool whole_units = first && part->units && m->part_count == 1 && !m->bound->row->pad &&
                           (columns || m->groups == 1);
        if (whole_units && part->units % size != 0) {
            return refuse_cut(m, part->units, "units", size, wf_groups[group]);
        }
        if (*count % size != 0) {
            return refuse_cut(m, *count, columns ? "columns" : "rows", size, wf_groups[group]);
        }
    }
    uint64_t low = share * rank < *count ? share * rank : *count;
    uint64_t high = low + share < *count ? low + share : *count;
    *begin += low;
    *count = high - low;
    return WF_OK;
}

static enum wf_status cut(struct maker *m)
{
    enum wf_status status = WF_OK;
    const char *at = m->bound->row->cuts, *item;
    size_t len;
    bool first = true;
    while (at && status == WF_OK && wf_expr_next(&at, ' ', &item, &len)) {
        status = cut_once(m, item, len, first);
        first = false;
    }
    m->row_room = pads_columns(m) ? m->row_count : round_up(m->row_count, m->local_pad);
    m->column_room = pads_columns(m) ? round_up(m->column_count, m->local_pad) : m->column_count;
    return status == WF_OK && is_too_large(m->row_room, m->column_room) ? refuse_size(m) : status;
}

/* --- nests ----------------------------------------------------------------------------------- */

static bool keep_nest(void *user, const struct wf_nest *nest)
{
    struct maker *m = user;
    struct wf_slab *slab = m->slab;
    if (slab->nest_count == slab->nest_room) {
        uint32_t room = slab->nest_room ? slab->nest_room * 2 : 8;
        struct wf_slab_nest *grown = reallocarray(slab->nests, room, sizeof *grown);
        if (!grown) {
            m->chain_status = wf_error_set(m->error, WF_NO_MEMORY, "no memory for a layout");
            return false;
        }
        slab->nests = grown;
        slab->nest_room = room;
    }
    slab->nests[slab->nest_count++] =
        (struct wf_slab_nest){.part = m->part, .kind = m->kind, .nest = *nest};
    return true;
}

static bool compose_cut(void *user, const struct wf_nest *nest)
{
    struct maker *m = user;
    enum wf_status status = wf_nest_compose(nest, &m->chain[1], keep_nest, m, m->error);
    m->chain_status = m->chain_status == WF_OK ? status : m->chain_status;
    return m->chain_status == WF_OK;
}

/* The fuse rule of a part: its own tensor -> the whole one. */
static struct wf_nest fuse(const struct maker *m, const struct part *part, uint64_t rows_before)
{
    uint64_t units = part->units ? part->units : part->padded;
    uint64_t shares = units < m->groups ? units : m->groups;
    uint64_t share = part->padded / shares * part->padded_columns, repeats = m->groups / shares;
    int64_t elem = m->elem_bytes;
    int64_t group_step = (int64_t)(m->group_rows * m->whole_columns) * elem;
    return (struct wf_nest){
        .tensor_offset = rows_before * m->whole_columns * m->elem_bytes,
        .elem_bytes = m->elem_bytes,
        .axis_count = 3,
        .axes = {{shares, share, (int64_t)repeats * group_step},
                 {repeats, 0, group_step},
                 {share, 1, elem}},
    };
}

static enum wf_status add_part_nest(struct maker *m, const struct wf_nest *nest,
                                    enum wf_piece_kind kind)
{
    m->kind = kind;
    m->chain_status = WF_OK;
    enum wf_status status = wf_nest_compose(nest, &m->chain[0], compose_cut, m, m->error);
    return status == WF_OK ? m->chain_status : status;
}

/* What of a part's tensor is padding, as a parameter that does not exist. */
static enum wf_status add_padding(struct maker *m, const struct part *part)
{
    int64_t elem = m->elem_bytes;
    if (part->padded > part->rows) {
        uint64_t count = (part->padded - part->rows) * part->padded_columns;
        struct wf_nest nest = {.elem_bytes = m->elem_bytes,
                               .tensor_offset = part->rows * part->padded_columns * m->elem_bytes,
                               .axis_count = 1,
                               .axes = {{count, 1, elem}}};
        return add_part_nest(m, &nest, WF_PIECE_FILL);
    }
    uint64_t width = part->padded_columns - part->columns;
    if (width == 0) {
        return WF_OK;
    }
    struct wf_nest nest = {
        .elem_bytes = m->elem_bytes,
        .tensor_offset = part->columns * m->elem_bytes,
        .axis_count = 2,
        .axes = {{part->rows, width, (int64_t)part->padded_columns * elem}, {width, 1, elem}}};
    return add_part_nest(m, &nest, WF_PIECE_FILL);
}

/* What is padded behind the cut. */
static enum wf_status add_local_padding(struct maker *m)
{
    int64_t elem = m->elem_bytes, step = (int64_t)m->column_room * elem;
    uint64_t rows = m->row_room - m->row_count, columns = m->column_room - m->column_count;
    struct wf_nest nest = {.elem_bytes = m->elem_bytes, .axis_count = 2};
    if (rows > 0) {
        nest.tensor_offset = m->row_count * (uint64_t)step;
        nest.axes[0] = (struct wf_axis){rows, m->column_room, step};
        nest.axes[1] = (struct wf_axis){m->column_room, 1, elem};
    } else {
        nest.tensor_offset = m->column_count * m->elem_bytes;
        nest.axes[0] = (struct wf_axis){m->row_room, columns, step};
        nest.axes[1] = (struct wf_axis){columns, 1, elem};
    }
    m->kind = WF_PIECE_FILL;
    m->chain_status = WF_OK;
    wf_nest_normalise(&nest);
    return rows + columns > 0 && !keep_nest(m, &nest) ? m->chain_status : WF_OK;
}

static enum wf_status make_nests(struct maker *m)
{
    int64_t elem = m->elem_bytes;
    if (m->row_count == 0 || m->column_count == 0) {
        return WF_OK;
    }
    m->chain[1] = (struct wf_nest){
        .param_first = m->row_first * m->whole_columns + m->column_first,
        .elem_bytes = m->elem_bytes,
        .axis_count = 2,
        .axes = {{m->row_count, m->whole_columns, (int64_t)m->column_room * elem},
                 {m->column_count, 1, elem}},
    };
    uint64_t rows_before = 0;
    enum wf_status status = WF_OK;
    for (uint32_t i = 0; i < m->part_count && status == WF_OK; i++) {
        const struct part *part = &m->parts[i];
        uint64_t units = part->units ? part->units : part->padded;
        m->part = i;
        m->chain[0] = fuse(m, part, rows_before);
        rows_before += part->padded / (units < m->groups ? units : m->groups);
        if (part->rows > 0 && part->columns > 0) {
            struct wf_nest data = part->data;
            wf_nest_normalise(&data);
            status = add_part_nest(m, &data, WF_PIECE_DATA);
        }
        if (status == WF_OK) {
            status = add_padding(m, part);
        }
    }
    return status == WF_OK ? add_local_padding(m) : status;
}

static bool is_same(const struct wf_slab *slab, const struct wf_row_at *at, const uint32_t *params,
                    uint32_t count, enum wf_dtype dtype)
{
    const struct wf_model *model = at->at.model;
    if (slab->of_member && slab->index != at->at.index) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (memcmp(slab->shapes[i], model->params[params[i]].shape, sizeof slab->shapes[i]) != 0) {
            return false;
        }
    }
    return slab->known && slab->dtype == dtype;
}

static enum wf_status choose_dtype(const struct maker *m, const struct wf_param *param,
                                   enum wf_dtype *out)
{
    const struct wf_model *model = m->at->at.model;
    const char *text = m->bound->row->dtype, *colon = text ? strchr(text, ':') : NULL;
    enum wf_dtype wanted = m->at->recipe->dtype;
    *out = !param->own_dtype && wanted != WF_DTYPE_NONE ? wanted : param->dtype;
    uint64_t holds = 1;
    enum wf_status status = wf_row_eval(m->at, colon ? colon + 1 : NULL, 1, &holds, m->error);
    if (status != WF_OK || !text || !holds) {
        return status;
    }
    size_t len = strcspn(text, ":");
    if (len == 5 && memcmp(text, "model", 5) == 0) {
        *out = wanted != WF_DTYPE_NONE ? wanted : model->dtype;
        return WF_OK;
    }
    if (len == 6 && memcmp(text, "config", 6) == 0) {
        *out = param->dtype;
        return WF_OK;
    }
    *out = wf_dtype_from_name(text, len);
    return *out != WF_DTYPE_NONE ? WF_OK
                                 : wf_error_set(m->error, WF_INVALID, "%s: unknown dtype \"%s\"",
                                                m->bound->name, text);
}

/* Parts that are fused keep their bytes: a checkpoint that quantised some of them only has no such
 * tensor. */
static enum wf_status check_dtypes(const struct maker *m, const uint32_t *params)
{
    const struct wf_param *all = m->at->at.model->params, *first = &all[params[0]];
    for (uint32_t i = 1; i < m->part_count && !m->bound->row->dtype; i++) {
        if (all[params[i]].dtype != first->dtype) {
            return wf_error_set(m->error, WF_INVALID,
                                "%s: %s is %s and %s is %s; they cannot be fused", m->bound->name,
                                first->name, wf_dtype_name(first->dtype), all[params[i]].name,
                                wf_dtype_name(all[params[i]].dtype));
        }
    }
    return WF_OK;
}

enum wf_status wf_slab_make(const struct wf_row_at *at, const struct wf_bound *bound, bool extra,
                            const uint32_t *params, struct wf_slab *slab, struct wf_error *error)
{
    const struct wf_model *model = at->at.model;
    uint32_t count = extra ? bound->extra_count : bound->part_count;
    struct maker m = {.at = at,
                      .bound = bound,
                      .slab = slab,
                      .part_count = count,
                      .first_part = extra ? bound->part_count : 0,
                      .error = error};
    enum wf_dtype dtype = WF_DTYPE_NONE;
    enum wf_status status = check_dtypes(&m, params);
    if (status == WF_OK) {
        status = choose_dtype(&m, &model->params[params[0]], &dtype);
    }
    if (status != WF_OK || is_same(slab, at, params, count, dtype)) {
        return status;
    }
    struct wf_row_at here = *at;
    here.of_member_out = &slab->of_member;
    m.at = &here;
    slab->known = slab->of_member = false;
    slab->index = at->at.index;
    slab->nest_count = 0;
    slab->dtype = dtype;
    m.elem_bytes = slab->elem_bytes = (uint32_t)wf_dtype_bytes(dtype);
    status = read_pad(&m);
    for (uint32_t i = 0; i < count && status == WF_OK; i++) {
        memcpy(slab->shapes[i], model->params[params[i]].shape, sizeof slab->shapes[i]);
        status = make_part(&m, i, &model->params[params[i]]);
    }
    if (status == WF_OK) {
        status = measure(&m);
    }
    if (status == WF_OK) {
        status = cut(&m);
    }
    if (status == WF_OK) {
        status = make_nests(&m);
    }
    slab->rows = m.row_room;
    slab->columns = m.column_room;
    slab->known = status == WF_OK && !extra;
    return status;
}
