/* expect.c - vLLM's weight loaders, retold: which rectangle of which tensor goes where.
 *
 * Sources of the rules (vLLM 0.33.0): distributed/utils.py get_pp_indices (layers of a stage);
 * layers/vocab_parallel_embedding.py (padding to 64, rows of a rank); layers/linear.py
 * QKVParallelLinear, MergedColumnParallelLinear, RowParallelLinear (rows and columns of a rank, a
 * KV head kept by several ranks); models/llama.py, qwen2.py, qwen3.py (which stage has what).
 */
#include "tools/check/expect.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB_MULTIPLE = 64, NAME_ROOM = WF_NAME_MAX };

struct builder {
    struct wf_expect *expect;
    const struct wf_model *model;
    struct wf_verify_place place;
    struct wf_error *error;
};

/* The parameter's index, or UINT32_MAX: some models have it and some have not. */
static uint32_t find(const struct builder *b, const char *name)
{
    return wf_model_find(b->model, name, strlen(name));
}

static uint64_t rows_of(const struct builder *b, uint32_t param)
{
    return b->model->params[param].shape[0];
}

static uint64_t columns_of(const struct builder *b, uint32_t param)
{
    const struct wf_param *p = &b->model->params[param];
    return p->ndim == 2 ? p->shape[1] : 1;
}

/* A new live tensor, of which rectangles are then put. */
static enum wf_status add_tensor(struct builder *b, const char *name, uint64_t columns,
                                 struct wf_expect_tensor **out)
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
    struct wf_expect_tensor *tensor = &expect->tensors[expect->tensor_count++];
    memset(tensor, 0, sizeof *tensor);
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    tensor->columns = columns;
    *out = tensor;
    return WF_OK;
}

/* Puts rows [row, row + rows) and the columns from `column` of a parameter below what is there. */
static enum wf_status put(struct builder *b, struct wf_expect_tensor *tensor, uint32_t param,
                          uint64_t row, uint64_t rows, uint64_t column)
{
    uint64_t columns = columns_of(b, param);
    if (tensor->rect_count == WF_EXPECT_RECTS_MAX || row + rows > rows_of(b, param) ||
        column + tensor->columns > columns) {
        return wf_error_set(b->error, WF_MISMATCH,
                            "\"%s\" is too small for the part of %s that vLLM would take of it",
                            b->model->params[param].name, tensor->name);
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

static enum wf_status divide(struct builder *b, uint64_t size, const char *what, uint64_t *part_out)
{
    if (size % b->place.tp != 0) {
        return wf_error_set(b->error, WF_INVALID, "%s is %" PRIu64 ", which tp=%u does not divide",
                            what, size, b->place.tp);
    }
    *part_out = size / b->place.tp;
    return WF_OK;
}

/* A tensor that every rank has whole, under its own name. Absent ones are no error. */
static enum wf_status add_whole(struct builder *b, const char *name)
{
    uint32_t param = find(b, name);
    struct wf_expect_tensor *tensor = NULL;
    if (param == UINT32_MAX) {
        return WF_OK;
    }
    enum wf_status status = add_tensor(b, name, columns_of(b, param), &tensor);
    return status != WF_OK ? status : put(b, tensor, param, 0, rows_of(b, param), 0);
}

static enum wf_status need(struct builder *b, const char *name, uint32_t *param_out)
{
    *param_out = find(b, name);
    if (*param_out == UINT32_MAX) {
        return wf_error_set(b->error, WF_UNSUPPORTED, "the model has no \"%s\"", name);
    }
    return WF_OK;
}

/* VocabParallelEmbedding and ParallelLMHead. */
static enum wf_status add_vocabulary(struct builder *b, const char *name)
{
    uint32_t param = 0;
    struct wf_expect_tensor *tensor = NULL;
    uint64_t part = 0;
    enum wf_status status = need(b, name, &param);
    if (status != WF_OK) {
        return status;
    }
    uint64_t vocab = rows_of(b, param);
    uint64_t padded = (vocab + VOCAB_MULTIPLE - 1) / VOCAB_MULTIPLE * VOCAB_MULTIPLE;
    status = divide(b, padded, "the padded vocabulary", &part);
    if (status == WF_OK) {
        status = add_tensor(b, name, columns_of(b, param), &tensor);
    }
    if (status != WF_OK) {
        return status;
    }
    uint64_t first = b->place.tp_rank * part;
    uint64_t left = first < vocab ? vocab - first : 0;
    status = put(b, tensor, param, left > 0 ? first : 0, left < part ? left : part, 0);
    tensor->rows = part;
    return status;
}

/* QKVParallelLinear: a rank's query heads, then its key heads, then its value heads. `what` is
 * "weight" or "bias". */
static enum wf_status add_qkv(struct builder *b, const char *layer, const char *what)
{
    static const char *const parts[] = {"q", "k", "v"};
    const struct wf_model *m = b->model;
    char name[NAME_ROOM];
    uint64_t q_heads = 0, kv_heads = 1, kv_first = 0;
    uint32_t param = 0;
    struct wf_expect_tensor *tensor = NULL;
    snprintf(name, sizeof name, "%sself_attn.q_proj.%s", layer, what);
    if (find(b, name) == UINT32_MAX && strcmp(what, "bias") == 0) {
        return WF_OK;
    }
    enum wf_status status = divide(b, m->query_heads, "the number of query heads", &q_heads);
    if (status == WF_OK && m->kv_heads >= b->place.tp) {
        status = divide(b, m->kv_heads, "the number of KV heads", &kv_heads);
        kv_first = b->place.tp_rank * kv_heads;
    } else if (status == WF_OK && b->place.tp % m->kv_heads != 0) {
        status =
            wf_error_set(b->error, WF_INVALID, "tp=%u is no multiple of the %" PRIu64 " KV heads",
                         b->place.tp, m->kv_heads);
    } else {
        kv_first = b->place.tp_rank / (b->place.tp / m->kv_heads);
    }
    for (int i = 0; status == WF_OK && i < 3; i++) {
        snprintf(name, sizeof name, "%sself_attn.%s_proj.%s", layer, parts[i], what);
        status = need(b, name, &param);
        if (status == WF_OK && tensor == NULL) {
            snprintf(name, sizeof name, "%sself_attn.qkv_proj.%s", layer, what);
            status = add_tensor(b, name, columns_of(b, param), &tensor);
        }
        uint64_t first = i == 0 ? b->place.tp_rank * q_heads : kv_first;
        uint64_t heads = i == 0 ? q_heads : kv_heads;
        if (status == WF_OK) {
            status = put(b, tensor, param, first * m->head_dim, heads * m->head_dim, 0);
        }
    }
    return status;
}

/* MergedColumnParallelLinear: a rank's rows of gate, then the same rows of up. */
static enum wf_status add_gate_up(struct builder *b, const char *layer, const char *what)
{
    char name[NAME_ROOM];
    uint32_t gate, up = 0;
    uint64_t part = 0;
    struct wf_expect_tensor *tensor = NULL;
    snprintf(name, sizeof name, "%smlp.gate_proj.%s", layer, what);
    gate = find(b, name);
    if (gate == UINT32_MAX && strcmp(what, "bias") == 0) {
        return WF_OK;
    }
    enum wf_status status = need(b, name, &gate);
    if (status == WF_OK) {
        snprintf(name, sizeof name, "%smlp.up_proj.%s", layer, what);
        status = need(b, name, &up);
    }
    if (status == WF_OK) {
        status = divide(b, rows_of(b, gate), "the intermediate size", &part);
    }
    if (status == WF_OK) {
        snprintf(name, sizeof name, "%smlp.gate_up_proj.%s", layer, what);
        status = add_tensor(b, name, columns_of(b, gate), &tensor);
    }
    if (status == WF_OK) {
        status = put(b, tensor, gate, b->place.tp_rank * part, part, 0);
    }
    return status != WF_OK ? status : put(b, tensor, up, b->place.tp_rank * part, part, 0);
}

/* RowParallelLinear: all rows, a rank's columns. Its bias is whole on every rank. */
static enum wf_status add_row_parallel(struct builder *b, const char *layer, const char *module)
{
    char name[NAME_ROOM];
    uint32_t param = 0;
    uint64_t part = 0;
    struct wf_expect_tensor *tensor = NULL;
    snprintf(name, sizeof name, "%s%s.weight", layer, module);
    enum wf_status status = need(b, name, &param);
    if (status == WF_OK) {
        status = divide(b, columns_of(b, param), module, &part);
    }
    if (status == WF_OK) {
        status = add_tensor(b, name, part, &tensor);
    }
    if (status == WF_OK) {
        status = put(b, tensor, param, 0, rows_of(b, param), b->place.tp_rank * part);
    }
    if (status != WF_OK) {
        return status;
    }
    snprintf(name, sizeof name, "%s%s.bias", layer, module);
    return add_whole(b, name);
}

static enum wf_status add_layer(struct builder *b, uint64_t index)
{
    static const char *const whole[] = {"self_attn.q_norm.weight", "self_attn.k_norm.weight",
                                        "input_layernorm.weight",
                                        "post_attention_layernorm.weight"};
    char layer[64], name[NAME_ROOM];
    snprintf(layer, sizeof layer, "model.layers.%" PRIu64 ".", index);
    enum wf_status status = add_qkv(b, layer, "weight");
    status = status != WF_OK ? status : add_qkv(b, layer, "bias");
    status = status != WF_OK ? status : add_row_parallel(b, layer, "self_attn.o_proj");
    status = status != WF_OK ? status : add_gate_up(b, layer, "weight");
    status = status != WF_OK ? status : add_gate_up(b, layer, "bias");
    status = status != WF_OK ? status : add_row_parallel(b, layer, "mlp.down_proj");
    for (size_t i = 0; status == WF_OK && i < sizeof whole / sizeof whole[0]; i++) {
        snprintf(name, sizeof name, "%s%s", layer, whole[i]);
        status = add_whole(b, name);
    }
    return status;
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

enum wf_status wf_expect_init(struct wf_expect *expect, const struct wf_model *model,
                              const struct wf_verify_place *place, struct wf_error *error)
{
    struct builder b = {.expect = expect, .model = model, .place = *place, .error = error};
    bool is_first = place->pp_rank == 0, is_last = place->pp_rank + 1 == place->pp;
    if (place->tp == 0 || place->pp == 0 || place->tp_rank >= place->tp ||
        place->pp_rank >= place->pp || place->pp > model->layers) {
        return wf_error_set(error, WF_INVALID,
                            "no such place: tp %u of %u, pp %u of %u, %" PRIu64 " layers",
                            place->tp_rank, place->tp, place->pp_rank, place->pp, model->layers);
    }
    uint64_t first = 0, count = 0;
    stage_layers(model->layers, place->pp, place->pp_rank, &first, &count);
    enum wf_status status = WF_OK;
    if (is_first || (is_last && model->tied)) {
        status = add_vocabulary(&b, "model.embed_tokens.weight");
    }
    for (uint64_t i = 0; status == WF_OK && i < count; i++) {
        status = add_layer(&b, first + i);
    }
    if (status == WF_OK && is_last) {
        status = add_whole(&b, "model.norm.weight");
    }
    if (status == WF_OK && is_last && !model->tied) {
        status = add_vocabulary(&b, "lm_head.weight");
    }
    return status;
}

void wf_expect_fini(struct wf_expect *expect)
{
    free(expect->tensors);
    *expect = (struct wf_expect){0};
}
