/* expect_layout.c - what a user's family or manifest lets one expect: the layout's own word.
 *
 * expect.c retells from the engines' loaders what a rank holds, apart from the tables that moved
 * it; it knows the built-in families and engines. Of a family from a file, and of a manifest,
 * nobody else knows anything: here the check still finds elements that are wrong, missing or of
 * another version, but not a wrong table.
 */
#include <stdlib.h>
#include <string.h>

#include "models/engines/engine.h"
#include "models/families/family.h"
#include "models/layout.h"
#include "models/variant.h"
#include "tools/check/expect.h"
#include "tools/check/quantised.h"
#include "tools/check/verify_run.h"

enum { RECTS_MAX = 1 << 18 }; /* of a piece */

bool wf_verify_is_packed(const struct wf_model *model)
{
    return wf_model_size(model, "int4") || wf_model_size(model, "mxfp4") ||
           wf_model_size(model, "nvfp4");
}

bool wf_verify_is_retold(const struct wf_model *model, const struct wf_recipe *recipe)
{
    const struct wf_family *const *family = wf_families;
    if (recipe->engine->layout != NULL || wf_verify_is_packed(model)) {
        return false;
    }
    while (*family && *family != model->family) {
        family++;
    }
    return *family != NULL;
}

static uint64_t columns_of(uint32_t ndim, const uint64_t *shape)
{
    return ndim < 2 ? 1 : shape[ndim - 1];
}

/* Rows of the parameter are columns of the tensor. */
static bool is_transposed(const struct wf_nest *nest, uint64_t width, uint64_t row_bytes)
{
    const struct wf_axis *axes = nest->axes;
    return nest->axis_count == 2 && axes[0].param_step == width && axes[1].param_step == 1 &&
           axes[0].tensor_step == (int64_t)nest->elem_bytes &&
           axes[1].tensor_step == (int64_t)row_bytes;
}

/* A nest of two axes at most as a rectangle: whole rows, or the same columns of each of several
 * rows; or some of both, transposed. Of plain values any run is one: the parameter is read as rows
 * of the tensor's width. */
static bool rect_of(const struct wf_nest *nest, const struct wf_param *param, bool values,
                    uint64_t columns, struct wf_expect_rect *out)
{
    uint64_t width = columns_of(param->ndim, param->shape), bytes = nest->elem_bytes, count = 0;
    bool run = wf_nest_is_run(nest, &count);
    if (nest->tensor_offset % (columns * bytes) != 0) {
        return false;
    }
    width = run && values && count % columns == 0 ? columns : width;
    out->param_columns = width;
    out->columns = columns;
    out->row = nest->param_first / width;
    out->column = nest->param_first % width;
    out->live_row = nest->tensor_offset / (columns * bytes);
    if (run) {
        out->rows = count / columns;
        return count % columns == 0 &&
               (values || (out->rows == 1 && out->column + columns <= width) ||
                (width == columns && out->column == 0));
    }
    const struct wf_axis *axes = nest->axes;
    if (is_transposed(nest, width, columns * bytes)) {
        out->transposed = true;
        out->rows = axes[1].count;
        return axes[0].count == columns && columns * out->rows <= WF_VERIFY_CHUNK;
    }
    out->rows = nest->axis_count > 0 ? axes[0].count : 1;
    return nest->axis_count == 2 && axes[0].param_step == width &&
           axes[0].tensor_step == (int64_t)(columns * bytes) && axes[1].count == columns &&
           axes[1].param_step == 1 && axes[1].tensor_step == (int64_t)bytes;
}

/* Codes and scales (models/variant.h) are checked by the matrix that they are made of. */
static enum wf_expect_kind kind_of(const struct wf_model *model, struct wf_expect_rect *rect)
{
    const struct wf_variants *variants = model->variants;
    if (variants == NULL || rect->param < variants->plain_count) {
        return WF_EXPECT_VALUES;
    }
    const struct wf_variant_pair *pair = wf_model_pair(model, rect->param);
    bool codes = rect->param == pair->codes;
    const struct wf_param *matrix = &model->params[pair->matrix];
    rect->param = pair->matrix;
    rect->param_columns = columns_of(matrix->ndim, matrix->shape);
    return codes ? WF_EXPECT_CODES : WF_EXPECT_SCALES;
}

/* Where rectangles of a piece go. */
struct target {
    struct wf_expect_tensor *tensor;
    const struct wf_model *model;
    uint32_t param; /* the piece's */
    struct wf_error *error;
};

static enum wf_status add_rect(const struct target *t, struct wf_expect_rect rect)
{
    struct wf_expect_tensor *out = t->tensor;
    enum wf_expect_kind kind = kind_of(t->model, &rect);
    if (kind != WF_EXPECT_VALUES && !wf_check_knows(t->model->variants->rule)) {
        return wf_error_set(t->error, WF_UNSUPPORTED, "the element check does not know quant=%s",
                            wf_quant_name(t->model->variants->rule));
    }
    if ((out->rect_count > 0 && out->kind != kind) ||
        (kind == WF_EXPECT_SCALES && rect.transposed)) {
        return wf_error_set(t->error, WF_UNSUPPORTED,
                            "%s is made of codes, scales or values, and not of one kind alone, "
                            "or of scales transposed: that is not checked",
                            out->name);
    }
    if (out->rect_count == out->rect_capacity) {
        uint32_t wanted = out->rect_capacity ? 2 * out->rect_capacity : 8;
        struct wf_expect_rect *grown = reallocarray(out->rects, wanted, sizeof *grown);
        if (!grown) {
            return wf_error_set(t->error, WF_NO_MEMORY, "no memory for the element check");
        }
        out->rects = grown;
        out->rect_capacity = wanted;
    }
    out->kind = kind;
    bool by_row = kind == WF_EXPECT_SCALES && wf_quant_is_by_row(t->model->variants->rule);
    out->unit = by_row ? 1 : kind == WF_EXPECT_SCALES ? WF_CHECK_BLOCK : 0;
    out->rects[out->rect_count++] = rect;
    return WF_OK;
}

/* The nest's innermost axes at each place of the others, as rectangles. False in *fits_out, and
 * nothing added, where they are none. */
static enum wf_status add_inner(const struct target *t, const struct wf_nest *nest, uint32_t inner,
                                bool *fits_out)
{
    uint32_t outer = nest->axis_count - inner, before = t->tensor->rect_count;
    uint64_t places = 1;
    enum wf_status status = WF_OK;
    for (uint32_t a = 0; a < outer; a++) {
        places *= nest->axes[a].count;
    }
    *fits_out = places <= RECTS_MAX;
    for (uint64_t n = 0; n < places && *fits_out && status == WF_OK; n++) {
        struct wf_nest at = *nest;
        struct wf_expect_rect rect = {.param = t->param};
        uint64_t rest = n;
        at.axis_count = inner;
        memcpy(at.axes, nest->axes + outer, inner * sizeof at.axes[0]);
        for (uint32_t a = outer; a-- > 0; rest /= nest->axes[a].count) {
            uint64_t digit = rest % nest->axes[a].count;
            at.param_first += digit * nest->axes[a].param_step;
            at.tensor_offset += digit * (uint64_t)nest->axes[a].tensor_step;
        }
        bool values = t->model->variants == NULL || t->param < t->model->variants->plain_count;
        *fits_out = rect_of(&at, &t->model->params[t->param], values, t->tensor->columns, &rect);
        status = *fits_out ? add_rect(t, rect) : WF_OK;
    }
    t->tensor->rect_count = *fits_out ? t->tensor->rect_count : before;
    return status;
}

/* As few rectangles as can be. */
static enum wf_status add_piece(const struct target *t, const struct wf_nest *nest)
{
    struct wf_nest normal = *nest;
    bool fits = false;
    enum wf_status status = WF_OK;
    wf_nest_normalise(&normal);
    uint32_t inner = normal.axis_count < 2 ? normal.axis_count : 2;
    for (uint32_t i = 0; i <= inner && !fits && status == WF_OK; i++) {
        status = add_inner(t, &normal, inner - i, &fits);
    }
    if (status == WF_OK && !fits) {
        return wf_error_set(t->error, WF_UNSUPPORTED,
                            "how %s lies in %s is not in rows, which is all that is checked of a "
                            "family or a manifest from a file",
                            t->model->params[t->param].name, t->tensor->name);
    }
    return status;
}

static int by_row(const void *a, const void *b)
{
    const struct wf_expect_rect *x = a, *y = b;
    return (x->live_row > y->live_row) - (x->live_row < y->live_row);
}

/* Rows without a rectangle are zeros behind all others. */
static enum wf_status order_rects(struct wf_expect_tensor *tensor, struct wf_error *error)
{
    uint64_t rows = 0;
    if (tensor->rect_count > 0) {
        qsort(tensor->rects, tensor->rect_count, sizeof *tensor->rects, by_row);
    }
    for (uint32_t i = 0; i < tensor->rect_count; i++) {
        if (tensor->rects[i].live_row != rows) {
            return wf_error_set(error, WF_UNSUPPORTED,
                                "the rows of %s that are parameters' are not together: that is "
                                "not checked",
                                tensor->name);
        }
        rows += tensor->rects[i].rows;
    }
    return WF_OK;
}

static enum wf_status expect_tensor(struct wf_expect_tensor *out, const struct wf_model *model,
                                    const struct wf_layout *layout, uint32_t index, uint32_t *piece,
                                    struct wf_error *error)
{
    const struct wf_tensor *tensor = &layout->tensors[index];
    struct target target = {.tensor = out, .model = model, .error = error};
    enum wf_status status = WF_OK;
    strncpy(out->name, tensor->name, sizeof out->name - 1);
    out->columns = columns_of(tensor->ndim, tensor->shape);
    out->rows = tensor->bytes / wf_dtype_bytes(tensor->dtype) / out->columns;
    for (; *piece < layout->piece_count && layout->pieces[*piece].tensor == index; ++*piece) {
        const struct wf_piece *p = &layout->pieces[*piece];
        struct wf_nest nest = wf_layout_nest(layout, *piece);
        bool fill = p->kind == WF_PIECE_FILL;
        target.param = p->param;
        if (p->value_rule != 0) {
            status =
                wf_error_set(error, WF_UNSUPPORTED,
                             "%s holds %s: that is not checked of a family or a manifest from "
                             "a file",
                             tensor->name, fill ? "a fill that is not of zeros" : "values less 1");
        } else if (!fill) {
            status = add_piece(&target, &nest);
        }
        if (status != WF_OK) {
            return status;
        }
    }
    return order_rects(out, error);
}

enum wf_status wf_expect_layout(struct wf_expect *expect, const struct wf_model *model,
                                const struct wf_recipe *recipe, uint32_t rank,
                                struct wf_error *error)
{
    struct wf_layout *layout = NULL;
    enum wf_status status = wf_layout_derive(model, recipe, rank, &layout, error);
    if (status != WF_OK) {
        return status;
    }
    uint32_t piece = 0;
    expect->tensors = calloc(layout->tensor_count + 1, sizeof *expect->tensors);
    if (!expect->tensors) {
        status = wf_error_set(error, WF_NO_MEMORY, "no memory for the element check");
    }
    expect->capacity = layout->tensor_count + 1;
    for (uint32_t i = 0; i < layout->tensor_count && status == WF_OK; i++) {
        if (layout->tensors[i].kind == WF_TENSOR_WEIGHTS && layout->tensors[i].bytes > 0) {
            status = expect_tensor(&expect->tensors[expect->tensor_count++], model, layout, i,
                                   &piece, error);
        }
    }
    wf_layout_free(layout);
    return status;
}
