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

bool wf_verify_is_retold(const struct wf_model *model, const struct wf_recipe *recipe)
{
    const struct wf_family *const *family = wf_families;
    if (recipe->engine->layout != NULL) {
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

/* A piece as a rectangle: whole rows, or the same columns of each of several rows; or some of both,
 * transposed. */
static bool rect_of(const struct wf_nest *nest, const struct wf_param *param, uint64_t columns,
                    struct wf_expect_rect *out)
{
    uint64_t width = columns_of(param->ndim, param->shape), bytes = nest->elem_bytes, count = 0;
    struct wf_nest normal = *nest;
    out->param_columns = width;
    out->columns = columns;
    out->row = nest->param_first / width;
    out->column = nest->param_first % width;
    out->live_row = nest->tensor_offset / (columns * bytes);
    if (nest->tensor_offset % (columns * bytes) != 0) {
        return false;
    }
    wf_nest_normalise(&normal);
    if (wf_nest_is_run(&normal, &count)) {
        out->rows = count / columns;
        return width == columns && out->column == 0 && count % columns == 0;
    }
    const struct wf_axis *axes = normal.axes;
    if (is_transposed(&normal, width, columns * bytes)) {
        out->transposed = true;
        out->rows = axes[1].count;
        return axes[0].count == columns && columns * out->rows <= WF_VERIFY_CHUNK;
    }
    out->rows = axes[0].count;
    return normal.axis_count == 2 && axes[0].param_step == width &&
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

static enum wf_status add_rect(struct wf_expect_tensor *out, const struct wf_model *model,
                               struct wf_expect_rect *rect, struct wf_error *error)
{
    enum wf_expect_kind kind = kind_of(model, rect);
    if (kind != WF_EXPECT_VALUES && !wf_check_knows(model->variants->rule)) {
        return wf_error_set(error, WF_UNSUPPORTED, "the element check does not know quant=%s",
                            wf_quant_name(model->variants->rule));
    }
    if ((out->rect_count > 0 && out->kind != kind) ||
        (kind == WF_EXPECT_SCALES && rect->transposed)) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "%s is made of codes, scales or values, and not of one kind alone, "
                            "or of scales transposed: that is not checked",
                            out->name);
    }
    out->kind = kind;
    out->unit = kind == WF_EXPECT_SCALES ? WF_CHECK_BLOCK : 0;
    out->rects[out->rect_count++] = *rect;
    return WF_OK;
}

static enum wf_status expect_tensor(struct wf_expect_tensor *out, const struct wf_model *model,
                                    const struct wf_layout *layout, uint32_t index, uint32_t *piece,
                                    struct wf_error *error)
{
    const struct wf_tensor *tensor = &layout->tensors[index];
    uint32_t end = *piece;
    uint64_t rows = 0; /* that have their rectangle */
    while (end < layout->piece_count && layout->pieces[end].tensor == index) {
        end++;
    }
    strncpy(out->name, tensor->name, sizeof out->name - 1);
    out->columns = columns_of(tensor->ndim, tensor->shape);
    out->rows = tensor->bytes / wf_dtype_bytes(tensor->dtype) / out->columns;
    out->rects = calloc(end - *piece + 1, sizeof *out->rects);
    if (!out->rects) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for the element check");
    }
    for (; *piece < end; ++*piece) {
        const struct wf_piece *p = &layout->pieces[*piece];
        struct wf_nest nest = wf_layout_nest(layout, *piece);
        struct wf_expect_rect rect = {.param = p->param};
        if (p->kind == WF_PIECE_FILL && p->value_rule == 0) {
            continue;
        }
        /* Rows without a rectangle are zeros behind all others. */
        if (p->kind == WF_PIECE_FILL || p->value_rule != WF_VALUE_COPY ||
            !rect_of(&nest, &model->params[p->param], out->columns, &rect) ||
            rect.live_row != rows) {
            return wf_error_set(error, WF_UNSUPPORTED,
                                "how %s lies in %s is no rectangle below the one before, which is "
                                "all that is checked "
                                "of a family or a manifest from a file; set policy.validate_every "
                                "to 0 to run without",
                                p->kind == WF_PIECE_FILL ? "a fill that is not of zeros"
                                                         : model->params[p->param].name,
                                tensor->name);
        }
        rows += rect.rows;
        enum wf_status status = add_rect(out, model, &rect, error);
        if (status != WF_OK) {
            return status;
        }
    }
    return WF_OK;
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
