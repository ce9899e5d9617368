/* expect.c - the engines' weight loaders, retold: stages, vocabulary, and what layers need.
 *
 * Sources of the rules (vLLM 0.33.0): distributed/utils.py get_pp_indices (layers of a stage);
 * layers/vocab_parallel_embedding.py (padding to 64, rows of a rank; SGLang 0.5.23 alike);
 * models/llama.py, qwen2.py, qwen3.py (which stage has what).
 */
#include "tools/check/expect.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/families/family.h"

enum { VOCAB_MULTIPLE = 64 };

/* --- what loaders do ------------------------------------------------------------------------- */

uint32_t wf_expect_find(struct wf_expect_builder *b, const char *layer, const char *name)
{
    char whole[2 * WF_NAME_MAX];
    snprintf(whole, sizeof whole, "%s%s", layer, name);
    uint32_t param = wf_model_find(b->model, whole, strlen(whole));
    if (param != WF_NONE) {
        b->asked[param] = true;
    }
    return param;
}

uint64_t wf_expect_rows(const struct wf_expect_builder *b, uint32_t param)
{
    return b->model->params[param].shape[0];
}

uint64_t wf_expect_columns(const struct wf_expect_builder *b, uint32_t param)
{
    const struct wf_param *p = &b->model->params[param];
    return p->shape[0] > 0 ? p->elements / p->shape[0] : 1;
}

enum wf_status wf_expect_add(struct wf_expect_builder *b, const char *layer, const char *name,
                             uint64_t columns, uint32_t *tensor_out)
{
    struct wf_expect *expect = b->expect;
    if (expect->tensor_count == expect->capacity) {
        uint32_t capacity = expect->capacity == 0 ? 64 : expect->capacity * 2;
        void *grown = realloc(expect->tensors, capacity * sizeof *expect->tensors);
        if (grown == NULL) {
            return wf_error_set(b->error, WF_NO_MEMORY, "no memory for %u tensors", capacity);
        }
        expect->tensors = grown;
        expect->capacity = capacity;
    }
    *tensor_out = expect->tensor_count++;
    struct wf_expect_tensor *tensor = &expect->tensors[*tensor_out];
    memset(tensor, 0, sizeof *tensor);
    snprintf(tensor->name, sizeof tensor->name, "%s%s", layer, name);
    tensor->columns = columns;
    return WF_OK;
}

enum wf_status wf_expect_put(struct wf_expect_builder *b, uint32_t index, uint32_t param,
                             uint64_t row, uint64_t rows, uint64_t column)
{
    struct wf_expect_tensor *tensor = &b->expect->tensors[index];
    uint64_t columns = wf_expect_columns(b, param);
    if (row + rows > wf_expect_rows(b, param) || column + tensor->columns > columns) {
        return wf_error_set(b->error, WF_MISMATCH,
                            "\"%s\" is too small for the part of %s that the engine would take of "
                            "it",
                            b->model->params[param].name, tensor->name);
    }
    if (tensor->rect_count == tensor->rect_capacity) {
        uint32_t capacity = tensor->rect_capacity == 0 ? 4 : tensor->rect_capacity * 2;
        void *grown = realloc(tensor->rects, capacity * sizeof *tensor->rects);
        if (grown == NULL) {
            return wf_error_set(b->error, WF_NO_MEMORY, "no memory for %s", tensor->name);
        }
        tensor->rects = grown;
        tensor->rect_capacity = capacity;
    }
    if (rows > 0) {
        tensor->rects[tensor->rect_count++] = (struct wf_expect_rect){
            .param = param,
            .row = row,
            .column = column,
            .rows = rows,
            .columns = tensor->columns,
            .param_columns = columns,
            .live_row = tensor->rows,
        };
    }
    tensor->rows += rows;
    return WF_OK;
}

/* --- outside the layers ---------------------------------------------------------------------- */

/* VocabParallelEmbedding and ParallelLMHead. */
static enum wf_status add_vocabulary(struct wf_expect_builder *b, const char *name)
{
    uint32_t param = wf_expect_find(b, "", name), tensor = 0;
    if (param == WF_NONE) {
        return wf_error_set(b->error, WF_UNSUPPORTED, "the model has no \"%s\"", name);
    }
    uint64_t vocab = wf_expect_rows(b, param);
    uint64_t padded = (vocab + VOCAB_MULTIPLE - 1) / VOCAB_MULTIPLE * VOCAB_MULTIPLE;
    if (padded % b->place.tp != 0) {
        return wf_error_set(b->error, WF_INVALID,
                            "the padded vocabulary is %" PRIu64 ", which tp=%u does not divide",
                            padded, b->place.tp);
    }
    uint64_t part = padded / b->place.tp, first = b->place.tp_rank * part;
    uint64_t left = first < vocab ? vocab - first : 0;
    enum wf_status status = wf_expect_add(b, "", name, wf_expect_columns(b, param), &tensor);
    if (status == WF_OK) {
        status =
            wf_expect_put(b, tensor, param, left > 0 ? first : 0, left < part ? left : part, 0);
    }
    if (status == WF_OK) {
        b->expect->tensors[tensor].rows = part; /* the rest is padding */
    }
    return status;
}

static enum wf_status add_final_norm(struct wf_expect_builder *b)
{
    uint32_t param = wf_expect_find(b, "", "model.norm.weight"), tensor = 0;
    if (param == WF_NONE) {
        return wf_error_set(b->error, WF_UNSUPPORTED, "the model has no \"model.norm.weight\"");
    }
    enum wf_status status = wf_expect_add(b, "", "model.norm.weight", 1, &tensor);
    return status == WF_OK ? wf_expect_put(b, tensor, param, 0, wf_expect_rows(b, param), 0)
                           : status;
}

/* get_pp_indices: what is left over goes to the stages before the last, the later the sooner. */
static void stage_layers(uint64_t layers, uint32_t pp, uint32_t rank, uint64_t *first_out,
                         uint64_t *count_out)
{
    uint64_t each = layers / pp, rest = layers % pp, first = 0;
    for (uint32_t stage = 0; stage <= rank; stage++) {
        uint64_t count = each + (stage + 1 < pp && stage + 1 + rest >= pp ? 1 : 0);
        if (stage == rank) {
            *first_out = first;
            *count_out = count;
        }
        first += count;
    }
}

/* --- the whole ------------------------------------------------------------------------------- */

static enum wf_status check_place(const struct wf_expect_builder *b)
{
    const struct wf_verify_place *place = &b->place;
    if (place->tp == 0 || place->pp == 0 || place->tp_rank >= place->tp ||
        place->pp_rank >= place->pp || place->pp > b->model->layers) {
        return wf_error_set(b->error, WF_INVALID,
                            "no such place: tp %u of %u, pp %u of %u, %" PRIu64 " layers",
                            place->tp_rank, place->tp, place->pp_rank, place->pp, b->model->layers);
    }
    bool experts = wf_model_size(b->model, "E") > 0;
    if (place->pp > 1 && (b->place.sglang || experts)) {
        return wf_error_set(b->error, WF_UNSUPPORTED,
                            "the element check knows stages (pp=%u) of vllm's dense models only",
                            place->pp);
    }
    return WF_OK;
}

/* No loader may have passed over a parameter of the layers that are here. */
static enum wf_status check_asked(const struct wf_expect_builder *b, uint64_t first, uint64_t count)
{
    const struct wf_model *model = b->model;
    for (uint32_t p = 0; p < model->param_count; p++) {
        const struct wf_param *param = &model->params[p];
        bool layer = param->stack != WF_NONE &&
                     strcmp(model->family->stacks[param->stack].name, "layer") == 0;
        if (layer && param->index >= first && param->index < first + count && !b->asked[p]) {
            return wf_error_set(b->error, WF_UNSUPPORTED,
                                "the element check does not know what the engine does with %s",
                                param->name);
        }
    }
    return WF_OK;
}

static enum wf_status add_all(struct wf_expect_builder *b)
{
    const struct wf_model *model = b->model;
    bool is_first = b->place.pp_rank == 0, is_last = b->place.pp_rank + 1 == b->place.pp;
    uint64_t first = 0, count = 0;
    stage_layers(model->layers, b->place.pp, b->place.pp_rank, &first, &count);
    enum wf_status status = WF_OK;
    if (is_first || (is_last && model->tied)) {
        status = add_vocabulary(b, "model.embed_tokens.weight");
    }
    for (uint64_t i = 0; status == WF_OK && i < count; i++) {
        char layer[64];
        snprintf(layer, sizeof layer, "model.layers.%" PRIu64 ".", first + i);
        status = wf_expect_layer(b, layer);
    }
    if (status == WF_OK && is_last) {
        status = add_final_norm(b);
    }
    if (status == WF_OK && is_last && !model->tied) {
        status = add_vocabulary(b, "lm_head.weight");
    }
    return status == WF_OK ? check_asked(b, first, count) : status;
}

enum wf_status wf_expect_init(struct wf_expect *expect, const struct wf_model *model,
                              const struct wf_verify_place *place, struct wf_error *error)
{
    struct wf_expect_builder b = {
        .expect = expect, .model = model, .place = *place, .error = error};
    enum wf_status status = check_place(&b);
    if (status != WF_OK) {
        return status;
    }
    b.asked = calloc(model->param_count + 1, sizeof *b.asked);
    status = b.asked != NULL ? add_all(&b)
                             : wf_error_set(error, WF_NO_MEMORY, "no memory for the check");
    free(b.asked);
    return status;
}

void wf_expect_fini(struct wf_expect *expect)
{
    for (uint32_t t = 0; t < expect->tensor_count; t++) {
        free(expect->tensors[t].rects);
    }
    free(expect->tensors);
    *expect = (struct wf_expect){0};
}
