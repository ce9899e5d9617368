/* load.c - windows of parameters, intersected with the layout's pieces. */
#include "tools/run/load.h"

#include <stdlib.h>
#include <string.h>

#include "models/copy.h"
#include "models/piece.h"
#include "tools/check/step.h"

struct loading {
    const struct wf_checkpoint *checkpoint;
    uint8_t *window;
    enum wf_dtype from, to;
    uint8_t *tensor;
    uint64_t tensor_bytes, window_bytes;
    bool outside;
};

static bool place_box(void *user, const struct wf_box *box)
{
    struct loading *loading = user;
    if (!wf_box_within(box, (uint32_t)wf_dtype_bytes(loading->from), loading->window_bytes,
                       (uint32_t)wf_dtype_bytes(loading->to), loading->tensor_bytes)) {
        loading->outside = true;
        return false;
    }
    struct wf_copy_part whole = {0, box->elements};
    wf_copy_box(box, loading->window, loading->from, loading->tensor, loading->to, whole);
    return true;
}

/* The range of parameter elements that a nest shows: [first, end). */
static void range_of(const struct wf_nest *nest, uint64_t *first, uint64_t *end)
{
    uint64_t last = nest->param_first;
    for (uint32_t a = 0; a < nest->axis_count; a++) {
        last += (nest->axes[a].count - 1) * nest->axes[a].param_step;
    }
    *first = nest->param_first;
    *end = last + 1;
}

static enum wf_status load_piece(struct loading *loading, const struct wf_nest *nest,
                                 uint32_t param, uint64_t step, struct wf_error *error)
{
    uint64_t first, end;
    uint32_t elem_bytes = (uint32_t)wf_dtype_bytes(loading->from);
    uint64_t window = WF_LOAD_WINDOW_BYTES / elem_bytes;
    range_of(nest, &first, &end);
    while (first < end) {
        uint64_t count = end - first < window ? end - first : window;
        enum wf_status status =
            wf_checkpoint_read(loading->checkpoint, param, first, count, loading->window, error);
        if (status != WF_OK) {
            return status;
        }
        wf_step_apply(loading->window, loading->from, count, step);
        struct wf_nest source = {.param_first = first,
                                 .elem_bytes = elem_bytes,
                                 .axis_count = 1,
                                 .axes = {{count, 1, (int64_t)elem_bytes}}};
        loading->window_bytes = count * elem_bytes;
        status = wf_nest_intersect(&source, nest, place_box, loading, error);
        if (status != WF_OK) {
            return status;
        }
        WF_ASSERT(!loading->outside);
        first += count;
    }
    return WF_OK;
}

enum wf_status wf_run_load(const struct wf_checkpoint *checkpoint, const struct wf_model *model,
                           const struct wf_layout *layout, const struct wf_run_memory *memory,
                           uint64_t step, struct wf_error *error)
{
    struct loading loading = {.checkpoint = checkpoint, .window = malloc(WF_LOAD_WINDOW_BYTES)};
    if (loading.window == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory to load the checkpoint through");
    }
    memset(memory->region.address, 0, memory->region.len_bytes);
    enum wf_status status = WF_OK;
    for (uint32_t i = 0; i < layout->piece_count && status == WF_OK; i++) {
        const struct wf_piece *piece = &layout->pieces[i];
        if (piece->kind != WF_PIECE_DATA) {
            continue;
        }
        const struct wf_tensor *tensor = &layout->tensors[piece->tensor];
        struct wf_nest nest = wf_layout_nest(layout, i);
        loading.from = checkpoint->entries[piece->param].dtype;
        loading.to = tensor->dtype;
        loading.tensor = memory->tensors[piece->tensor].address;
        loading.tensor_bytes = tensor->bytes;
        if (!wf_dtype_castable(loading.from, loading.to)) {
            status = wf_error_set(error, WF_UNSUPPORTED, "%s: no cast from %s to %s",
                                  model->params[piece->param].name, wf_dtype_name(loading.from),
                                  wf_dtype_name(loading.to));
            break;
        }
        status = load_piece(&loading, &nest, piece->param, step, error);
    }
    free(loading.window);
    return status;
}
