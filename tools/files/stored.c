/* stored.c - see stored.h. */
#include "tools/files/stored.h"

#include <stdlib.h>
#include <string.h>

#include "tools/files/known_values.h"

/* Interleaved pieces are made together: an expert's matrices at most. */
#define SPAN_MAX ((uint64_t)1 << 30)

enum wf_status wf_stored_layout(const struct wf_model *model, struct wf_layout **layout_out,
                                struct wf_error *error)
{
    struct wf_recipe recipe;
    if (wf_model_size(model, "packed")) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "quantization_config says that the weights are packed in a way that "
                            "this build does not read; use the unquantised checkpoint");
    }
    enum wf_status status = wf_recipe_parse("hf", NULL, &recipe, error);
    return status == WF_OK ? wf_layout_derive(model, &recipe, 0, layout_out, error) : status;
}

uint64_t wf_stored_byte(const struct wf_nest *nest, uint64_t element)
{
    uint64_t rest = element - nest->param_first, byte = nest->tensor_offset;
    for (uint32_t i = 0; i < nest->axis_count; i++) {
        const struct wf_axis *axis = &nest->axes[i];
        byte += rest / axis->param_step * (uint64_t)axis->tensor_step;
        rest %= axis->param_step;
    }
    return byte;
}

uint64_t wf_stored_end(const struct wf_nest *nest)
{
    uint64_t end = nest->tensor_offset + nest->elem_bytes;
    for (uint32_t i = 0; i < nest->axis_count; i++) {
        end += (nest->axes[i].count - 1) * (uint64_t)nest->axes[i].tensor_step;
    }
    return end;
}

struct maker {
    const struct wf_model *model;
    const struct wf_layout *layout;
    uint8_t *block;
    size_t block_bytes;
    wf_stored_emit_t *emit;
    void *user;
    struct wf_error *error;
};

/* A piece that is one run, block by block. */
static enum wf_status emit_run(const struct maker *m, const struct wf_piece *piece)
{
    const struct wf_param *param = &m->model->params[piece->param];
    enum wf_dtype dtype = m->layout->tensors[piece->tensor].dtype;
    size_t bytes = wf_dtype_bytes(dtype);
    uint64_t at_once = m->block_bytes / bytes;
    enum wf_status status = WF_OK;
    for (uint64_t done = 0; done < piece->count && status == WF_OK; done += at_once) {
        uint64_t count = piece->count - done < at_once ? piece->count - done : at_once;
        wf_known_values_fill(param->name, piece->param_first + done, count, dtype, m->block);
        status = m->emit(m->user, m->block, count * bytes, m->error);
    }
    return status;
}

/* One piece into the span that begins at byte `from` of the tensor. */
static void scatter(const struct maker *m, const struct wf_piece *piece, const struct wf_nest *nest,
                    uint64_t from, uint8_t *span)
{
    const char *name = m->model->params[piece->param].name;
    enum wf_dtype dtype = m->layout->tensors[piece->tensor].dtype;
    size_t bytes = wf_dtype_bytes(dtype);
    uint64_t elements = wf_nest_elements(nest), at_once = m->block_bytes / bytes;
    for (uint64_t done = 0; done < elements; done += at_once) {
        uint64_t count = elements - done < at_once ? elements - done : at_once;
        uint64_t first = nest->param_first + done;
        wf_known_values_fill(name, first, count, dtype, m->block);
        for (uint64_t i = 0; i < count; i++) {
            memcpy(span + (wf_stored_byte(nest, first + i) - from), m->block + i * bytes, bytes);
        }
    }
}

/* Pieces [first, end) that lie inside each other. */
static enum wf_status emit_span(const struct maker *m, uint32_t first, uint32_t end, uint64_t from,
                                uint64_t to)
{
    uint8_t *span = to - from <= SPAN_MAX ? malloc(to - from) : NULL;
    if (!span) {
        return wf_error_set(m->error, WF_NO_MEMORY, "no memory for %llu bytes of a tensor",
                            (unsigned long long)(to - from));
    }
    for (uint32_t i = first; i < end; i++) {
        struct wf_nest nest = wf_layout_nest(m->layout, i);
        scatter(m, &m->layout->pieces[i], &nest, from, span);
    }
    enum wf_status status = m->emit(m->user, span, to - from, m->error);
    free(span);
    return status;
}

enum wf_status wf_stored_known(const struct wf_model *model, const struct wf_layout *layout,
                               uint32_t tensor, uint8_t *block, size_t block_bytes,
                               wf_stored_emit_t *emit, void *user, struct wf_error *error)
{
    struct maker m = {model, layout, block, block_bytes, emit, user, error};
    uint32_t first = 0, end = 0;
    uint64_t at = 0;
    enum wf_status status = WF_OK;
    wf_layout_pieces(layout, tensor, &first, &end);
    while (first < end && status == WF_OK) {
        struct wf_nest nest = wf_layout_nest(layout, first);
        uint64_t to = wf_stored_end(&nest);
        uint32_t next = first + 1;
        WF_ASSERT(nest.tensor_offset == at); /* files have neither gaps nor fills */
        if (layout->pieces[first].form == 0) {
            status = emit_run(&m, &layout->pieces[first]);
            to = at + layout->pieces[first].count * nest.elem_bytes;
        } else {
            for (; next < end && layout->pieces[next].tensor_offset < to; next++) {
                nest = wf_layout_nest(layout, next);
                uint64_t last = wf_stored_end(&nest);
                to = last > to ? last : to;
            }
            status = emit_span(&m, first, next, at, to);
        }
        at = to;
        first = next;
    }
    return status;
}
