/* bench_prepare.c - what a train rank makes before readers are answered, on one core: codes and
 * scales of its matrices, and tensors that are cast once; and how long finding out what to make
 * takes at start, against the rank's own layout.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/copy.h"
#include "models/prepare.h"
#include "models/variant.h"
#include "runtime/splitmix.h"
#include "tools/bench/bench.h"

enum { CAST_ELEMENTS = 1 << 20 /* an item of actors/sender_casts.c */, ALIGN = 64 };

/* A layer of Qwen3-30B-A3B with half its experts: 300 million elements, of which a rank has half.
 */
static const char layer[] =
    "{\"model_type\": \"qwen3_moe\", \"hidden_size\": 2048, \"num_hidden_layers\": 1, "
    "\"vocab_size\": 1024, \"num_attention_heads\": 32, \"num_key_value_heads\": 4, "
    "\"head_dim\": 128, \"intermediate_size\": 6144, \"num_experts\": 64, "
    "\"num_experts_per_tok\": 8, \"moe_intermediate_size\": 768, \"decoder_sparse_step\": 1, "
    "\"mlp_only_layers\": [], \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"}";
static const char whole[] =
    "{\"model_type\": \"qwen3_moe\", \"hidden_size\": 4096, \"num_hidden_layers\": 94, "
    "\"vocab_size\": 151936, \"num_attention_heads\": 64, \"num_key_value_heads\": 4, "
    "\"head_dim\": 128, \"intermediate_size\": 12288, \"num_experts\": 128, "
    "\"num_experts_per_tok\": 8, \"moe_intermediate_size\": 1536, \"decoder_sparse_step\": 1, "
    "\"mlp_only_layers\": [], \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"}";

#define QUANT "vllm:tp=1,quant=vllm"

static const struct prepare_row {
    const char *name, *config, *train, *infer;
    enum { CODES, CAST, DERIVE } kind;
} rows[] = {
    {"prepare/codes", layer, "megatron:tp=2,ep=2,etp=1", QUANT, CODES},
    {"prepare/codes", layer, "fsdp:dp=2", QUANT, CODES},
    {"prepare/cast", layer, "megatron:tp=2,ep=2,etp=1,dtype=f32", "vllm:engines=2", CAST},
    {"prepare/derive", whole, "megatron:tp=2,ep=8,dp=4,etp=1", QUANT, DERIVE},
    {"prepare/derive", whole, "fsdp:dp=8", QUANT, DERIVE},
};

struct preparing {
    const struct prepare_row *row;
    struct wf_model *model;
    struct wf_recipe recipe;
    struct wf_layout *own, *source;
    struct wf_prepare *prepare;
    char *memory, *copy; /* of the source layout's tensors; half_bytes */
    void **tensors, *scratch;
    size_t half_bytes; /* (bytes read + bytes written) / 2 */
};

/* --- the work ----------------------------------------------------------------------------------
 */

static double rate(size_t bytes, uint64_t start_ns)
{
    return (double)bytes / (double)(wf_bench_now_ns() - start_ns);
}

static double measure_codes(void *context)
{
    const struct preparing *p = context;
    uint64_t start_ns = wf_bench_now_ns();
    for (uint32_t i = 0; i < wf_prepare_item_count(p->prepare); i++) {
        wf_prepare_run(p->prepare, i, p->tensors, p->scratch);
    }
    return rate(p->half_bytes, start_ns);
}

/* The tensors behind the rank's own, one behind the other in `copy`. */
static double measure_cast(void *context)
{
    const struct preparing *p = context;
    char *to = p->copy;
    uint64_t start_ns = wf_bench_now_ns();
    for (uint32_t t = 0; t < p->own->tensor_count; t++) {
        uint64_t elements = p->own->tensors[t].bytes / sizeof(float);
        struct wf_box run = {
            .elements = elements, .axis_count = 1, .axes = {{elements, sizeof(float), 2}}};
        for (uint64_t at = 0; at < elements; at += CAST_ELEMENTS) {
            uint64_t left = elements - at;
            wf_copy_box(&run, p->tensors[t], WF_DTYPE_F32, to, WF_DTYPE_BF16,
                        (struct wf_copy_part){at, left < CAST_ELEMENTS ? left : CAST_ELEMENTS});
        }
        to += 2 * elements;
    }
    return rate(p->half_bytes, start_ns);
}

static double measure_memcpy(void *context)
{
    const struct preparing *p = context;
    uint64_t start_ns = wf_bench_now_ns();
    memcpy(p->copy, p->memory, p->half_bytes);
    return rate(p->half_bytes, start_ns);
}

static double milliseconds_since(uint64_t start_ns)
{
    return (double)(wf_bench_now_ns() - start_ns) / 1e6;
}

static double measure_derive(void *context)
{
    const struct preparing *p = context;
    struct wf_layout *source = NULL;
    struct wf_prepare *prepare = NULL;
    uint64_t start_ns = wf_bench_now_ns();
    enum wf_status status = wf_prepare_derive(p->model, p->own, &source, &prepare, NULL);
    double ms = milliseconds_since(start_ns);
    wf_layout_free(source);
    wf_prepare_free(prepare);
    return status == WF_OK ? ms : -1;
}

static double measure_own(void *context)
{
    const struct preparing *p = context;
    struct wf_layout *own = NULL;
    uint64_t start_ns = wf_bench_now_ns();
    enum wf_status status = wf_layout_derive(p->model, &p->recipe, 0, &own, NULL);
    double ms = milliseconds_since(start_ns);
    wf_layout_free(own);
    return status == WF_OK ? ms : -1;
}

/* --- a case ------------------------------------------------------------------------------------
 */

static enum wf_status make_rank(struct preparing *p, struct wf_error *error)
{
    const char *specs[] = {p->row->train, p->row->infer};
    struct wf_recipe recipes[2];
    const struct wf_recipe *both[] = {&recipes[0], &recipes[1]};
    struct wf_model *config = NULL;
    enum wf_status status =
        wf_model_parse(p->row->config, strlen(p->row->config), NULL, &config, error);
    for (int i = 0; i < 2 && status == WF_OK; i++) {
        status = wf_recipe_parse(specs[i], NULL, &recipes[i], error);
    }
    if (status == WF_OK) {
        status = wf_model_for_job(config, both, 2, &p->model, error);
    }
    wf_model_free(config);
    if (status == WF_OK) {
        status = wf_recipe_parse(p->row->train, p->model, &p->recipe, error);
    }
    if (status == WF_OK) {
        status = wf_layout_derive(p->model, &p->recipe, 0, &p->own, error);
    }
    return status == WF_OK ? wf_prepare_derive(p->model, p->own, &p->source, &p->prepare, error)
                           : status;
}

/* Weights of about 1/32 in the type of the trainer, of either sign; all else is touched. */
static void fill(char *memory, uint64_t own_bytes, uint64_t all_bytes, enum wf_dtype dtype)
{
    bool f32 = dtype == WF_DTYPE_F32;
    uint64_t keep = f32 ? 0x81ffffff81ffffffu : 0x81ff81ff81ff81ffu, state = 1;
    uint64_t exponent = f32 ? 0x3c0000003c000000u : 0x3c003c003c003c00u;
    for (uint64_t i = 0; i + sizeof keep <= own_bytes; i += sizeof keep) {
        uint64_t word = (wf_splitmix64(&state) & keep) | exponent;
        memcpy(memory + i, &word, sizeof word);
    }
    memset(memory + own_bytes, 0x3c, all_bytes - own_bytes);
}

static enum wf_status make_memory(struct preparing *p, struct wf_error *error)
{
    uint64_t own_bytes = 0, all_bytes = 0, moved = 0;
    p->tensors = calloc(p->source->tensor_count + 1ull, sizeof *p->tensors);
    for (uint32_t t = 0; t < p->source->tensor_count; t++) {
        own_bytes = t == p->own->tensor_count ? all_bytes : own_bytes;
        all_bytes += (p->source->tensors[t].bytes + ALIGN - 1) / ALIGN * ALIGN;
    }
    own_bytes = p->source->tensor_count == p->own->tensor_count ? all_bytes : own_bytes;
    for (uint32_t i = 0; p->prepare != NULL && i < wf_prepare_item_count(p->prepare); i++) {
        moved += wf_prepare_item_bytes(p->prepare, i);
    }
    moved = p->row->kind == CAST ? p->own->bytes + p->own->bytes / 2 : moved;
    p->half_bytes = (size_t)(moved / 2 < own_bytes ? moved / 2 : own_bytes);
    p->memory = aligned_alloc(ALIGN, all_bytes + ALIGN);
    p->copy = malloc(p->half_bytes);
    p->scratch = malloc((p->prepare != NULL ? wf_prepare_scratch_bytes(p->prepare) : 0) + 1);
    if (p->tensors == NULL || p->memory == NULL || p->copy == NULL || p->scratch == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "the benchmark needs 1.2 GB of memory");
    }
    char *at = p->memory;
    for (uint32_t t = 0; t < p->source->tensor_count; t++) {
        p->tensors[t] = at;
        at += (p->source->tensors[t].bytes + ALIGN - 1) / ALIGN * ALIGN;
    }
    fill(p->memory, own_bytes, all_bytes, p->own->tensors[0].dtype);
    memset(p->copy, 0x3c, p->half_bytes);
    return WF_OK;
}

static enum wf_status run_row(struct wf_bench *bench, struct preparing *p, struct wf_error *error)
{
    bool derive = p->row->kind == DERIVE;
    enum wf_status status = make_rank(p, error);
    if (status == WF_OK && !derive) {
        status = make_memory(p, error);
    }
    if (status != WF_OK) {
        return status;
    }
    char params[160];
    snprintf(params, sizeof params, "train=%s,threads=1", p->row->train);
    const struct wf_bench_case spec = {.name = p->row->name,
                                       .params = params,
                                       .unit = derive ? "ms" : "GB/s",
                                       .lower_is_better = derive,
                                       .measure = derive                 ? measure_derive
                                                  : p->row->kind == CAST ? measure_cast
                                                                         : measure_codes,
                                       .limit_how = derive ? "the rank's own layout"
                                                           : "memcpy of (bytes read + written) / 2",
                                       .limit = derive ? measure_own : measure_memcpy};
    return wf_bench_case(bench, &spec, p, error);
}

enum wf_status wf_bench_prepare(struct wf_bench *bench, struct wf_error *error)
{
    enum wf_status status = WF_OK;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && status == WF_OK; i++) {
        struct preparing p = {.row = &rows[i]};
        status = run_row(bench, &p, error);
        wf_prepare_free(p.prepare);
        wf_layout_free(p.source);
        wf_layout_free(p.own);
        wf_model_free(p.model);
        free(p.memory);
        free(p.copy);
        free(p.tensors);
        free(p.scratch);
    }
    return status;
}
