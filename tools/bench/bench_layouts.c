/* bench_layouts.c - how long layouts of a large model of experts take, against what they may take.
 *
 * The limits are those of the design, not physical ones: a rank derives its own layout before it
 * joins, and every rank plans for all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/bench/bench.h"
#include "tools/plan_job.h"

enum { RANK_PAIRS = 9, JOB_PAIRS = 3, RANKS_PER_HOST = 8 };

static const char kimi_k2[] =
    "{\"model_type\": \"kimi_k2\", \"torch_dtype\": \"bfloat16\", \"hidden_size\": 7168, "
    "\"num_hidden_layers\": 61, \"num_attention_heads\": 64, \"num_key_value_heads\": 64, "
    "\"intermediate_size\": 18432, \"vocab_size\": 163840, \"tie_word_embeddings\": false, "
    "\"attention_bias\": false, \"n_routed_experts\": 384, \"num_experts_per_tok\": 8, "
    "\"moe_intermediate_size\": 2048, \"n_shared_experts\": 1, \"first_k_dense_replace\": 1, "
    "\"moe_layer_freq\": 1, \"n_group\": 1, \"topk_group\": 1, \"scoring_func\": \"sigmoid\", "
    "\"topk_method\": \"noaux_tc\", \"q_lora_rank\": 1536, \"kv_lora_rank\": 512, "
    "\"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64, \"v_head_dim\": 128, "
    "\"num_nextn_predict_layers\": 0}";

#define JOB_TRAIN "megatron:pp=8,dp=32,ep=32,etp=1,first=6,last=7"
#define JOB_INFER "vllm:tp=16,ep=16,engines=8"

struct context {
    struct wf_model *model;
    struct wf_recipe recipe;
    double limit;
};

static double milliseconds_since(uint64_t start_ns)
{
    return (double)(wf_bench_now_ns() - start_ns) / 1e6;
}

static double the_limit(void *user)
{
    return ((const struct context *)user)->limit;
}

static double measure_inventory(void *user)
{
    struct wf_model *model = NULL;
    (void)user;
    uint64_t start = wf_bench_now_ns();
    enum wf_status status = wf_model_parse(kimi_k2, sizeof kimi_k2 - 1, NULL, &model, NULL);
    double ms = milliseconds_since(start);
    wf_model_free(model);
    return status == WF_OK ? ms : -1;
}

/* A rank in the middle: of a pipeline it has whole layers of experts. */
static double measure_rank(void *user)
{
    struct context *context = user;
    struct wf_layout *layout = NULL;
    uint32_t rank = wf_recipe_world(&context->recipe) / 2;
    uint64_t start = wf_bench_now_ns();
    enum wf_status status = wf_layout_derive(context->model, &context->recipe, rank, &layout, NULL);
    double ms = milliseconds_since(start);
    wf_layout_free(layout);
    return status == WF_OK ? ms : -1;
}

/* --- a whole job ----------------------------------------------------------------------------- */

static enum wf_status plan_job(struct wf_model *model, double *ms_out, struct wf_error *error)
{
    static const struct wf_plan_job_infer infer[] = {{JOB_INFER, NULL}};
    struct wf_plan_job job = {0};
    struct wf_plan *plan = NULL;
    uint64_t start = wf_bench_now_ns();
    enum wf_status status =
        wf_plan_job_init(&job, model, JOB_TRAIN, infer, 1, RANKS_PER_HOST, error);
    if (status == WF_OK) {
        status = wf_plan_build(&job.input, &plan, error);
    }
    *ms_out = milliseconds_since(start);
    wf_plan_free(plan);
    wf_plan_job_fini(&job);
    return status;
}

static double measure_job(void *user)
{
    double ms = 0;
    return plan_job(((struct context *)user)->model, &ms, NULL) == WF_OK ? ms : -1;
}

/* In a process of its own, whose largest resident size the kernel tells. */
static double measure_memory(void *user)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        double ms = 0;
        _exit(plan_job(((struct context *)user)->model, &ms, NULL) == WF_OK ? 0 : 1);
    }
    int exited = 0;
    struct rusage usage;
    if (child < 0 || wait4(child, &exited, 0, &usage) != child || exited != 0) {
        return -1;
    }
    return (double)usage.ru_maxrss / 1e3; /* kB */
}

/* --- the cases ------------------------------------------------------------------------------- */

struct layout_case {
    const char *name, *params, *unit, *spec;
    wf_bench_measure_t *measure;
    double limit;
    unsigned pairs;
};

static const struct layout_case cases[] = {
    {"layouts/inventory", "model=Kimi-K2", "ms", NULL, measure_inventory, 20, RANK_PAIRS},
    {"layouts/rank_megatron", "model=Kimi-K2,spec=" JOB_TRAIN, "ms", JOB_TRAIN, measure_rank, 5,
     RANK_PAIRS},
    {"layouts/rank_megatron_all", "model=Kimi-K2,spec=megatron:dp=32,ep=32,etp=1", "ms",
     "megatron:dp=32,ep=32,etp=1", measure_rank, 5, RANK_PAIRS},
    {"layouts/rank_vllm", "model=Kimi-K2,spec=vllm:tp=32,ep=32", "ms", "vllm:tp=32,ep=32",
     measure_rank, 5, RANK_PAIRS},
    {"layouts/rank_sglang", "model=Kimi-K2,spec=sglang:tp=32,ep=32", "ms", "sglang:tp=32,ep=32",
     measure_rank, 5, RANK_PAIRS},
    {"layouts/job", "model=Kimi-K2,train=" JOB_TRAIN ",infer=" JOB_INFER, "ms", NULL, measure_job,
     1000, JOB_PAIRS},
    {"layouts/job_memory", "model=Kimi-K2,train=" JOB_TRAIN ",infer=" JOB_INFER, "MB", NULL,
     measure_memory, 500, JOB_PAIRS},
};

static enum wf_status run_case(struct wf_bench *bench, const struct layout_case *row,
                               struct context *context, struct wf_error *error)
{
    struct wf_layout *layout = NULL;
    struct wf_bench_case spec = {.name = row->name,
                                 .params = row->params,
                                 .unit = row->unit,
                                 .lower_is_better = true,
                                 .pairs = row->pairs,
                                 .measure = row->measure,
                                 .limit_how = "what it may take at most",
                                 .limit = the_limit};
    context->limit = row->limit;
    if (row->spec != NULL) {
        enum wf_status status = wf_recipe_parse(row->spec, context->model, &context->recipe, error);
        if (status == WF_OK) { /* says what is wrong, which a measurement cannot */
            status = wf_layout_derive(context->model, &context->recipe, 0, &layout, error);
        }
        wf_layout_free(layout);
        if (status != WF_OK) {
            return status;
        }
    }
    return wf_bench_case(bench, &spec, context, error);
}

enum wf_status wf_bench_layouts(struct wf_bench *bench, struct wf_error *error)
{
    struct context context = {0};
    double ms = 0;
    enum wf_status status =
        wf_model_parse(kimi_k2, sizeof kimi_k2 - 1, NULL, &context.model, error);
    if (status == WF_OK) {
        status = plan_job(context.model, &ms, error);
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0] && status == WF_OK; i++) {
        status = run_case(bench, &cases[i], &context, error);
    }
    wf_model_free(context.model);
    return status;
}
