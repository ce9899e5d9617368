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
#include "models/variant.h"
#include "tools/check/quantised.h"
#include "tools/check/verify_run.h"

enum {
    VOCAB_MULTIPLE = 64,
    FINEST_UNIT = 32, /* of a scale */
};

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

enum wf_status wf_expect_need(struct wf_expect_builder *b, const char *layer, const char *name,
                              uint32_t *param_out)
{
    *param_out = wf_expect_find(b, layer, name);
    if (*param_out == WF_NONE) {
        return wf_error_set(b->error, WF_UNSUPPORTED,
                            "the element check does not know how the engine makes %s%s of this "
                            "model's parameters: there is none of that name",
                            layer, name);
    }
    return WF_OK;
}

enum wf_status wf_expect_divide(struct wf_expect_builder *b, uint64_t size, const char *what,
                                uint64_t *part_out)
{
    if (size % b->place.tp != 0) {
        return wf_error_set(b->error, WF_INVALID, "%s is %" PRIu64 ", which tp=%u does not divide",
                            what, size, b->place.tp);
    }
    *part_out = size / b->place.tp;
    return WF_OK;
}

void wf_expect_live(const struct wf_expect_builder *b, const char *layer,
                    char live_out[WF_NAME_MAX])
{
    static const char visual[] = "model.visual.";
    const struct wf_expect_class *class = b->class;
    const char *from = class->text, *to = class->live;
    if (class->live_visual != NULL && strncmp(layer, visual, strlen(visual)) == 0) {
        from = visual;
        to = class->live_visual;
    }
    bool begins = strncmp(layer, from, strlen(from)) == 0;
    snprintf(live_out, WF_NAME_MAX, "%s%s", begins ? to : "", layer + (begins ? strlen(from) : 0));
}

enum wf_status wf_expect_add(struct wf_expect_builder *b, const char *layer, const char *name,
                             uint64_t columns, uint32_t *tensor_out)
{
    char live[WF_NAME_MAX];
    wf_expect_live(b, layer, live);
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
    snprintf(tensor->name, sizeof tensor->name, "%.128s%.127s", live, name);
    tensor->columns = columns;
    return WF_OK;
}

static enum wf_status put(struct wf_expect_builder *b, uint32_t index,
                          const struct wf_expect_rect *rect)
{
    struct wf_expect_tensor *tensor = &b->expect->tensors[index];
    uint64_t rows = rect->transposed ? rect->columns : rect->rows;
    uint64_t columns = rect->transposed ? rect->rows : rect->columns;
    if (rect->row + rows > wf_expect_rows(b, rect->param) ||
        rect->column + columns > rect->param_columns) {
        return wf_error_set(b->error, WF_MISMATCH,
                            "\"%s\" is too small for the part of %s that the engine would take of "
                            "it",
                            b->model->params[rect->param].name, tensor->name);
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
    if (rect->rows > 0) {
        tensor->rects[tensor->rect_count] = *rect;
        tensor->rects[tensor->rect_count++].live_row = tensor->rows + rect->live_row;
    }
    tensor->rows += rect->rows;
    return WF_OK;
}

enum wf_status wf_expect_put(struct wf_expect_builder *b, uint32_t tensor, uint32_t param,
                             uint64_t row, uint64_t rows, uint64_t column)
{
    return put(b, tensor,
               &(struct wf_expect_rect){.param = param,
                                        .row = row,
                                        .column = column,
                                        .rows = rows,
                                        .columns = b->expect->tensors[tensor].columns,
                                        .param_columns = wf_expect_columns(b, param)});
}

enum wf_status wf_expect_put_alternating(struct wf_expect_builder *b, uint32_t tensor,
                                         const uint32_t params[2], uint64_t row, uint64_t rows)
{
    uint64_t before = b->expect->tensors[tensor].rows;
    enum wf_status status = WF_OK;
    for (uint64_t i = 0; i < 2 && status == WF_OK; i++) {
        struct wf_expect_rect rect = {.param = params[i],
                                      .row = row,
                                      .rows = rows,
                                      .columns = b->expect->tensors[tensor].columns,
                                      .param_columns = wf_expect_columns(b, params[i]),
                                      .live_row = i,
                                      .live_step = 2};
        b->expect->tensors[tensor].rows = before; /* the second stands between the first one's */
        status = put(b, tensor, &rect);
    }
    b->expect->tensors[tensor].rows = before + 2 * rows;
    return status;
}

enum wf_status wf_expect_put_transposed(struct wf_expect_builder *b, uint32_t tensor,
                                        uint32_t param, uint64_t row, uint64_t column,
                                        uint64_t rows)
{
    uint64_t columns = b->expect->tensors[tensor].columns;
    if (rows * columns > WF_VERIFY_CHUNK) {
        return wf_error_set(b->error, WF_UNSUPPORTED,
                            "the element check does not transpose %" PRIu64 " x %" PRIu64
                            " elements of %s at once",
                            rows, columns, b->model->params[param].name);
    }
    return put(b, tensor,
               &(struct wf_expect_rect){.param = param,
                                        .row = row,
                                        .column = column,
                                        .rows = rows,
                                        .columns = columns,
                                        .param_columns = wf_expect_columns(b, param),
                                        .transposed = true});
}

enum wf_status wf_expect_add_gemma(struct wf_expect_builder *b, const char *layer, const char *name,
                                   const char *live_name)
{
    char dir[WF_NAME_MAX], live[2 * WF_NAME_MAX];
    uint32_t param = wf_expect_find(b, layer, name), tensor = 0;
    if (!b->place.sglang || wf_model_size(b->model, "gk") == 0 || param == WF_NONE) {
        return WF_OK;
    }
    wf_expect_live(b, layer, dir);
    snprintf(live, sizeof live, "buffer:%s%.*sgemma_weight", dir,
             (int)(strlen(live_name) - strlen("weight")), live_name);
    enum wf_status status = wf_expect_add(b, "", live, 1, &tensor);
    if (status == WF_OK) {
        b->expect->tensors[tensor].kind = WF_EXPECT_PLUS_ONE;
        status = wf_expect_put(b, tensor, param, 0, wf_expect_rows(b, param), 0);
    }
    return status;
}

/* --- outside the layers ---------------------------------------------------------------------- */

enum wf_status wf_expect_add_vocabulary(struct wf_expect_builder *b, uint32_t param,
                                        const char *layer, const char *live_name, uint32_t tp,
                                        uint32_t tp_rank)
{
    uint64_t vocab = wf_expect_rows(b, param);
    uint64_t padded = (vocab + VOCAB_MULTIPLE - 1) / VOCAB_MULTIPLE * VOCAB_MULTIPLE;
    uint32_t tensor = 0;
    if (padded % tp != 0) {
        return wf_error_set(b->error, WF_INVALID,
                            "the padded vocabulary is %" PRIu64 ", which tp=%u does not divide",
                            padded, tp);
    }
    uint64_t part = padded / tp, first = tp_rank * part;
    uint64_t left = first < vocab ? vocab - first : 0;
    enum wf_status status =
        wf_expect_add(b, layer, live_name, wf_expect_columns(b, param), &tensor);
    if (status == WF_OK) {
        status =
            wf_expect_put(b, tensor, param, left > 0 ? first : 0, left < part ? left : part, 0);
    }
    if (status == WF_OK) {
        b->expect->tensors[tensor].rows = part; /* the rest is padding */
    }
    return status;
}

static const char *embedding_of(const struct wf_expect_class *class)
{
    return class->stored != NULL ? class->stored : "embed_tokens.weight";
}

static enum wf_status add_embedding(struct wf_expect_builder *b)
{
    const char *name = embedding_of(b->class);
    const char *live = b->class->embedding != NULL ? b->class->embedding : name;
    uint32_t param = 0;
    enum wf_status status = wf_expect_need(b, b->class->text, name, &param);
    if (status == WF_OK && b->class->plain_embedding) {
        return wf_expect_add_whole(b, b->class->text, name, live);
    }
    return status == WF_OK ? wf_expect_add_vocabulary(b, param, b->class->text, live, b->place.tp,
                                                      b->place.tp_rank)
                           : status;
}

/* ParallelLMHead, with values of its own or a copy of the embedding's. */
static enum wf_status add_head(struct wf_expect_builder *b)
{
    const struct wf_expect_class *class = b->class;
    char live[WF_NAME_MAX];
    uint32_t param = 0;
    snprintf(live, sizeof live, "%s%s", class->live_top ? class->live_top : "", class->head);
    enum wf_status status = b->model->tied
                                ? wf_expect_need(b, class->text, embedding_of(class), &param)
                                : wf_expect_need(b, "", class->head, &param);
    return status == WF_OK
               ? wf_expect_add_vocabulary(b, param, "", live, b->place.tp, b->place.tp_rank)
               : status;
}

/* Whether this stage has an embedding, and a head that is not that embedding. */
static void ends_of(const struct wf_expect_builder *b, bool *embeds_out, bool *heads_out)
{
    bool first = b->place.pp_rank == 0, last = b->place.pp_rank + 1 == b->place.pp;
    bool tied = b->model->tied;
    enum wf_expect_heads heads = b->class->heads;
    *embeds_out = first || (last && tied && heads == WF_EXPECT_HEAD_LAST);
    *heads_out = heads == WF_EXPECT_HEAD_NEVER_TIED               ? true
                 : heads == WF_EXPECT_HEAD_EVERYWHERE             ? !tied
                 : heads == WF_EXPECT_HEAD_OWN && b->place.pp > 1 ? last
                                                                  : last && !tied;
}

static enum wf_status add_final_norm(struct wf_expect_builder *b)
{
    static const char name[] = "norm.weight";
    uint32_t param = 0;
    enum wf_status status = wf_expect_need(b, b->class->text, name, &param);
    if (status == WF_OK) {
        status = wf_expect_add_whole(b, b->class->text, name, name);
    }
    return status == WF_OK ? wf_expect_add_gemma(b, b->class->text, name, name) : status;
}

/* The stand-in's packed copy of a tied head (tools/run/engine_work.h): groups of rows, transposed.
 */
static enum wf_status add_packed_head(struct wf_expect_builder *b)
{
    uint32_t param = wf_expect_find(b, b->class->text, embedding_of(b->class)), tensor = 0;
    uint64_t vocab = wf_expect_rows(b, param), group = b->place.packed_rows;
    uint64_t part = (vocab + VOCAB_MULTIPLE - 1) / VOCAB_MULTIPLE * VOCAB_MULTIPLE / b->place.tp;
    uint64_t first = b->place.tp_rank * part;
    if (vocab % group != 0 || part % group != 0) {
        return wf_error_set(
            b->error, WF_UNSUPPORTED,
            "the element check packs a vocabulary in whole groups of %" PRIu64 " rows only", group);
    }
    enum wf_status status = wf_expect_add(b, "", "packed:lm_head.weight", group, &tensor);
    for (uint64_t row = first; status == WF_OK && row < first + part && row < vocab; row += group) {
        status = wf_expect_put_transposed(b, tensor, param, row, 0, wf_expect_columns(b, param));
    }
    if (status == WF_OK) {
        b->expect->tensors[tensor].rows = part / group * wf_expect_columns(b, param);
    }
    return status;
}

/* get_pp_indices: what is left over goes one each to the last stages, of vLLM to those before the
 * last. */
static void stage_layers(const struct wf_expect_builder *b, uint64_t *first_out,
                         uint64_t *count_out)
{
    uint32_t pp = b->place.pp, longest = b->place.sglang ? pp : pp - 1; /* behind the longer */
    uint64_t each = b->model->layers / pp, rest = b->model->layers % pp, first = 0;
    for (uint32_t stage = 0; stage <= b->place.pp_rank; stage++) {
        uint64_t count = each + (stage < longest && stage + rest >= longest ? 1 : 0);
        if (stage == b->place.pp_rank) {
            *first_out = first;
            *count_out = count;
        }
        first += count;
    }
}

/* --- quantised matrices ---------------------------------------------------------------------- */

static uint64_t units_of(uint64_t size, uint32_t unit)
{
    return (size + unit - 1) / unit;
}

/* What a scale of a rectangle is for: a block; only a matrix' own edge may cut one. Where an
 * expert's share cuts others vLLM repeats scales for smaller squares, of the largest power of two
 * that divides all (layers/fused_moe/oracle/fp8.py: refine_fp8_moe_block_shape). 0: neither. */
static uint32_t unit_of(const struct wf_expect_builder *b, const struct wf_expect_rect *rect)
{
    uint64_t rows = wf_expect_rows(b, rect->param), columns = rect->param_columns;
    if (rect->row % WF_CHECK_BLOCK == 0 && rect->column % WF_CHECK_BLOCK == 0 &&
        (rect->rows % WF_CHECK_BLOCK == 0 || rect->row + rect->rows == rows) &&
        (rect->columns % WF_CHECK_BLOCK == 0 || rect->column + rect->columns == columns)) {
        return WF_CHECK_BLOCK;
    }
    uint64_t all = rect->row | rect->rows | rect->column | rect->columns;
    uint32_t unit = WF_CHECK_BLOCK;
    while (unit >= FINEST_UNIT && all % unit != 0) {
        unit /= 2;
    }
    return unit >= FINEST_UNIT && !b->place.sglang ? unit : 0;
}

static void put_scales(struct wf_expect_builder *b, uint32_t scales,
                       const struct wf_expect_rect *rect)
{
    struct wf_expect_tensor *tensor = &b->expect->tensors[scales];
    uint32_t unit = tensor->unit;
    tensor->rects[tensor->rect_count++] =
        (struct wf_expect_rect){.param = rect->param,
                                .row = rect->row / unit,
                                .column = unit == 1 ? 0 : rect->column / unit,
                                .rows = units_of(rect->rows, unit),
                                .columns = tensor->columns,
                                .param_columns = rect->param_columns,
                                .live_row = tensor->rows};
    tensor->rows += units_of(rect->rows, unit);
}

/* The unit of all rectangles of a tensor of codes. */
static enum wf_status find_unit(const struct wf_expect_builder *b,
                                const struct wf_expect_tensor *codes, uint32_t *unit_out)
{
    if (wf_quant_is_by_row(b->place.quant)) {
        *unit_out = 1;
        return WF_OK;
    }
    *unit_out = codes->rect_count > 0 ? unit_of(b, &codes->rects[0]) : WF_CHECK_BLOCK;
    for (uint32_t i = 0; i < codes->rect_count; i++) {
        const struct wf_expect_rect *rect = &codes->rects[i];
        if (*unit_out == 0 || unit_of(b, rect) != *unit_out) {
            return wf_error_set(b->error, WF_UNSUPPORTED,
                                "the element check knows whole blocks of %d, and squares of %d at "
                                "least that divide them, and %s has %" PRIu64 " rows and %" PRIu64
                                " columns of %s",
                                WF_CHECK_BLOCK, FINEST_UNIT, codes->name, rect->rows, rect->columns,
                                b->model->params[rect->param].name);
        }
    }
    return WF_OK;
}

/* Codes in place of values, and their scales beside them, if the matrices of a tensor are
 * quantised. */
static enum wf_status quantise(struct wf_expect_builder *b, uint32_t codes)
{
    uint32_t pairs = 0, scales = 0, unit = 0, rects = b->expect->tensors[codes].rect_count;
    char name[WF_NAME_MAX];
    bool stepped = false;
    if (b->expect->tensors[codes].kind != WF_EXPECT_VALUES) {
        return WF_OK;
    }
    for (uint32_t i = 0; i < rects; i++) {
        pairs += wf_model_pair(b->job, b->expect->tensors[codes].rects[i].param) != NULL;
        stepped = stepped || b->expect->tensors[codes].rects[i].live_step > 1;
    }
    if (pairs == 0) {
        return WF_OK;
    }
    if (stepped) {
        return wf_error_set(b->error, WF_UNSUPPORTED,
                            "the element check does not know scales of rows that alternate, as "
                            "those of %s do",
                            b->expect->tensors[codes].name);
    }
    snprintf(name, sizeof name, "%.*s_scale%s", (int)sizeof name - 16,
             b->expect->tensors[codes].name, wf_quant_is_by_row(b->place.quant) ? "" : "_inv");
    enum wf_status status =
        pairs == rects
            ? find_unit(b, &b->expect->tensors[codes], &unit)
            : wf_error_set(b->error, WF_UNSUPPORTED, "%s is made of quantised matrices and others",
                           b->expect->tensors[codes].name);
    if (status == WF_OK) {
        uint64_t columns = b->expect->tensors[codes].columns;
        status = wf_expect_add(b, "", name, unit == 1 ? 1 : units_of(columns, unit), &scales);
    }
    if (status != WF_OK) {
        return status;
    }
    struct wf_expect_tensor *tensor = &b->expect->tensors[scales];
    b->expect->tensors[codes].kind = WF_EXPECT_CODES;
    tensor->kind = WF_EXPECT_SCALES;
    tensor->unit = unit;
    tensor->rects = calloc(rects, sizeof *tensor->rects);
    tensor->rect_capacity = rects;
    if (tensor->rects == NULL) {
        return wf_error_set(b->error, WF_NO_MEMORY, "no memory for %s", name);
    }
    for (uint32_t i = 0; i < rects; i++) {
        put_scales(b, scales, &b->expect->tensors[codes].rects[i]);
    }
    return WF_OK;
}

static enum wf_status quantise_all(struct wf_expect_builder *b)
{
    enum wf_status status = WF_OK;
    uint32_t count = b->place.quant != WF_QUANT_NONE ? b->expect->tensor_count : 0;
    if (count > 0 && !wf_check_knows(b->place.quant)) {
        return wf_error_set(b->error, WF_UNSUPPORTED, "the element check does not know quant=%s",
                            wf_quant_name(b->place.quant));
    }
    for (uint32_t t = 0; status == WF_OK && t < count; t++) {
        status = quantise(b, t);
    }
    return status;
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
    if (place->pp > 1 && !b->class->stages) {
        return wf_error_set(b->error, WF_UNSUPPORTED,
                            "the element check does not know which of %u stages (pp) of %s's class "
                            "for %s have embedding, norm and head",
                            place->pp, place->sglang ? "sglang" : "vllm", b->model->model_type);
    }
    return WF_OK;
}

/* No loader may have passed over a parameter of the layers that are here; of a single stage, over
 * any but those of layers that predict further tokens, which are models of their own. */
static enum wf_status check_asked(const struct wf_expect_builder *b, uint64_t first, uint64_t count)
{
    const struct wf_model *model = b->model;
    for (uint32_t p = 0; p < model->param_count; p++) {
        const struct wf_param *param = &model->params[p];
        const char *stack = param->stack == WF_NONE ? "" : model->family->stacks[param->stack].name;
        bool here = strcmp(stack, "layer") == 0
                        ? param->index >= first && param->index < first + count
                        : b->place.pp == 1 && strcmp(stack, "mtp") != 0;
        if (here && !b->asked[p]) {
            return wf_error_set(b->error, WF_UNSUPPORTED,
                                "the element check does not know what the engine does with %s",
                                param->name);
        }
    }
    return WF_OK;
}

static enum wf_status add_all(struct wf_expect_builder *b)
{
    bool embeds = false, heads = false;
    uint64_t first = 0, count = 0;
    stage_layers(b, &first, &count);
    ends_of(b, &embeds, &heads);
    enum wf_status status = WF_OK;
    if (embeds) {
        status = add_embedding(b);
        if (status == WF_OK && b->place.packed_rows > 0) {
            status = add_packed_head(b);
        }
    }
    for (uint64_t i = 0; status == WF_OK && i < count; i++) {
        char layer[WF_NAME_MAX];
        b->layer = first + i;
        snprintf(layer, sizeof layer, "%slayers.%" PRIu64 ".", b->class->text, b->layer);
        status = wf_expect_layer(b, layer);
    }
    if (status == WF_OK && b->place.pp_rank + 1 == b->place.pp) {
        status = add_final_norm(b);
    }
    if (status == WF_OK && heads) {
        status = add_head(b);
    }
    if (status == WF_OK) {
        status = wf_expect_vision(b);
    }
    status = status == WF_OK ? check_asked(b, first, count) : status;
    return status == WF_OK ? quantise_all(b) : status;
}

enum wf_status wf_expect_init(struct wf_expect *expect, const struct wf_model *model,
                              const struct wf_verify_place *place, struct wf_error *error)
{
    struct wf_expect_builder b = {.expect = expect,
                                  .job = model,
                                  .model = model->variants ? model->variants->plain : model,
                                  .class = wf_expect_class(model->model_type, place->sglang),
                                  .place = *place,
                                  .error = error};
    model = b.model;
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
