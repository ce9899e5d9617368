/* check_params.c - the tensors of a case's checkpoint as canonical parameters.
 *
 * A checkpoint may hold all experts of a layer in one tensor, in one of several forms. Which one a
 * case has is seen from names and shapes, among the forms that the family says: its files' (engine
 * "hf") and its state dict's in memory (engine "fsdp", unsharded).
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "models/engines/engine.h"
#include "tools/layout/check_private.h"

bool wf_check_same_shape(const struct wf_case_line *line, uint32_t ndim, const uint64_t *shape)
{
    return line->ndim == ndim && memcmp(line->shape, shape, ndim * sizeof *shape) == 0;
}

/* A form that the family does not have, or that cannot be said, is no candidate. */
static struct wf_layout *derive_stored(const struct wf_checker *c, const char *spec)
{
    struct wf_recipe recipe;
    struct wf_layout *layout = NULL;
    struct wf_error ignored = {0};
    bool good = wf_recipe_parse(spec, c->it.model, &recipe, &ignored) == WF_OK &&
                wf_layout_derive(c->it.model, &recipe, 0, &layout, &ignored) == WF_OK;
    return good ? layout : NULL;
}

/* Trainers that shard the state dict number its tensors, everything else a checkpoint's. */
static void derive_forms(struct wf_checker *c)
{
    bool memory = strcmp(c->it.recipe.engine->name, "fsdp") == 0;
    c->stored[0] = derive_stored(c, memory ? "fsdp:" : "hf:");
    c->stored[1] = derive_stored(c, memory ? "hf:" : "fsdp:");
}

static bool find_source(const struct wf_checker *c, const struct wf_case_line *line,
                        struct wf_check_source *out)
{
    const struct wf_model *model = c->it.model;
    size_t len = strlen(line->name);
    uint32_t index = wf_model_find(model, line->name, len);
    if (index != WF_NONE &&
        wf_check_same_shape(line, model->params[index].ndim, model->params[index].shape)) {
        *out = (struct wf_check_source){NULL, index};
        return true;
    }
    for (size_t i = 0; i < WF_CHECK_STORED_MAX; i++) {
        const struct wf_layout *stored = c->stored[i];
        uint32_t tensor = stored ? wf_layout_find(stored, line->name, len) : UINT32_MAX;
        if (tensor != UINT32_MAX && strcmp(stored->tensors[tensor].name, line->name) == 0 &&
            wf_check_same_shape(line, stored->tensors[tensor].ndim,
                                stored->tensors[tensor].shape)) {
            *out = (struct wf_check_source){stored, tensor};
            return true;
        }
    }
    return false;
}

static enum wf_status refuse_line(const struct wf_checker *c, const struct wf_case_line *line)
{
    size_t len = strlen(line->name);
    bool known = wf_model_find(c->it.model, line->name, len) != WF_NONE;
    for (size_t i = 0; i < WF_CHECK_STORED_MAX; i++) {
        known =
            known || (c->stored[i] && wf_layout_find(c->stored[i], line->name, len) != UINT32_MAX);
    }
    return wf_error_set(c->error, WF_MISMATCH, "parameter %.200s %s", line->name,
                        known ? "has another shape than the derived inventory"
                              : "is not in the derived inventory");
}

/* Counts what a line holds of each parameter. */
static void count_source(const struct wf_checker *c, const struct wf_check_source *source,
                         uint64_t *held)
{
    if (!source->stored) {
        held[source->index] += c->it.model->params[source->index].elements;
        return;
    }
    for (uint32_t i = 0; i < source->stored->piece_count; i++) {
        const struct wf_piece *piece = &source->stored->pieces[i];
        if (piece->tensor == source->index && piece->kind == WF_PIECE_DATA) {
            struct wf_nest nest = wf_layout_nest(source->stored, i);
            held[piece->param] += wf_nest_elements(&nest);
        }
    }
}

static bool predicts_further(const struct wf_model *model, const struct wf_param *param)
{
    return param->stack != WF_NONE && strcmp(model->family->stacks[param->stack].name, "mtp") == 0;
}

/* Every parameter once: not left out, not twice in two forms. Programs that know no layers for
 * further tokens save none, whatever the config says of them: all of those may be missing. */
static enum wf_status check_whole(const struct wf_checker *c, const uint64_t *held)
{
    uint64_t further = 0;
    for (uint32_t i = 0; i < c->it.model->param_count; i++) {
        further += predicts_further(c->it.model, &c->it.model->params[i]) ? held[i] : 0;
    }
    for (uint32_t i = 0; i < c->it.model->param_count; i++) {
        const struct wf_param *param = &c->it.model->params[i];
        if (held[i] != param->elements && !(further == 0 && predicts_further(c->it.model, param))) {
            return wf_error_set(c->error, WF_MISMATCH,
                                "of the derived parameter %s %" PRIu64 " elements are there, "
                                "expected %" PRIu64 " (%zu parameters in the file)",
                                param->name, held[i], param->elements, c->params.count);
        }
    }
    return WF_OK;
}

enum wf_status wf_check_params(struct wf_checker *c)
{
    derive_forms(c);
    uint64_t *held = calloc(c->it.model->param_count + 1, sizeof *held);
    c->sources = calloc(c->params.count + 1, sizeof *c->sources);
    enum wf_status status =
        held && c->sources ? WF_OK : wf_error_set(c->error, WF_NO_MEMORY, "no memory for a case");
    for (size_t i = 0; i < c->params.count && status == WF_OK; i++) {
        const struct wf_case_line *line = &c->params.lines[i];
        if (line->index != i) {
            status =
                wf_error_set(c->error, WF_INVALID, "line %u: expected index %zu", line->number, i);
        } else if (!find_source(c, line, &c->sources[i])) {
            status = refuse_line(c, line);
        } else {
            count_source(c, &c->sources[i], held);
        }
    }
    if (status == WF_OK) {
        status = check_whole(c, held);
    }
    free(held);
    return status;
}

bool wf_check_source_at(const struct wf_checker *c, uint64_t line, uint64_t element,
                        struct wf_look *look_out)
{
    const struct wf_check_source *source = &c->sources[line];
    if (element >= c->params.lines[line].elements) {
        return false;
    }
    if (source->stored) {
        return wf_layout_look(source->stored, source->index, element, look_out) && !look_out->fill;
    }
    *look_out = (struct wf_look){.param = source->index,
                                 .element = element,
                                 .run = c->params.lines[line].elements - element};
    return true;
}
