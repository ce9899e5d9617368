/* expect_layout.c - what a user's family lets one expect: the layout's own word.
 *
 * expect.c retells from the engines' loaders what a rank holds, apart from the tables that moved
 * it; it knows the built-in families. Of a family from a file nobody else knows anything: here the
 * check still finds elements that are wrong, missing or of another version, but not a wrong table.
 */
#include <stdlib.h>
#include <string.h>

#include "models/families/family.h"
#include "models/layout.h"
#include "tools/check/expect.h"

bool wf_expect_knows(const struct wf_model *model)
{
    const struct wf_family *const *family = wf_families;
    while (*family && *family != model->family) {
        family++;
    }
    return *family != NULL;
}

static uint64_t columns_of(uint32_t ndim, const uint64_t *shape)
{
    return ndim < 2 ? 1 : shape[ndim - 1];
}

/* A piece as a rectangle: whole rows, or the same columns of each of several rows. */
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
    wf_nest_normalise(&normal);
    if (wf_nest_is_run(&normal, &count)) {
        out->rows = count / columns;
        return width == columns && out->column == 0 && count % columns == 0;
    }
    const struct wf_axis *axes = normal.axes;
    out->rows = axes[0].count;
    return normal.axis_count == 2 && axes[0].param_step == width &&
           axes[0].tensor_step == (int64_t)(columns * bytes) && axes[1].count == columns &&
           axes[1].param_step == 1 && axes[1].tensor_step == (int64_t)bytes;
}

static enum wf_status expect_tensor(struct wf_expect_tensor *out, const struct wf_model *model,
                                    const struct wf_layout *layout, uint32_t index, uint32_t *piece,
                                    struct wf_error *error)
{
    const struct wf_tensor *tensor = &layout->tensors[index];
    uint32_t end = *piece;
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
        if (p->kind == WF_PIECE_FILL) {
            continue;
        }
        if (p->value_rule != WF_VALUE_COPY ||
            !rect_of(&nest, &model->params[p->param], out->columns, &rect)) {
            return wf_error_set(error, WF_UNSUPPORTED,
                                "how %s lies in %s is no rectangle, which is all that is checked "
                                "of a family from a file",
                                model->params[p->param].name, tensor->name);
        }
        out->rects[out->rect_count++] = rect;
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
