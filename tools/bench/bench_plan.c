/* bench_plan.c - how long a plan and its proof take, against one pass over their inputs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench/bench.h"
#include "tools/plan_job.h"

struct plan_case {
    const char *name, *params, *config, *train, *infer;
};

#define CASE_QWEN3_8B                                                                   \
    "{\"model_type\": \"qwen3\", \"hidden_size\": 4096, \"num_hidden_layers\": 36, "    \
    "\"vocab_size\": 151936, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, " \
    "\"head_dim\": 128, \"intermediate_size\": 12288, \"tie_word_embeddings\": false, " \
    "\"torch_dtype\": \"bfloat16\"}"
#define CASE_LLAMA_70B                                                                  \
    "{\"model_type\": \"llama\", \"hidden_size\": 8192, \"num_hidden_layers\": 80, "    \
    "\"vocab_size\": 128256, \"num_attention_heads\": 64, \"num_key_value_heads\": 8, " \
    "\"head_dim\": 128, \"intermediate_size\": 28672, \"tie_word_embeddings\": false, " \
    "\"torch_dtype\": \"bfloat16\"}"

static const struct plan_case cases[] = {
    {"8b", "model=Qwen3-8B,train=megatron:tp=4;pp=2;dp=2,infer=vllm:tp=2;engines=4", CASE_QWEN3_8B,
     "megatron:tp=4,pp=2,dp=2", "vllm:tp=2,engines=4"},
    {"70b", "model=Llama-3.1-70B,train=megatron:tp=8;pp=4;dp=8,infer=vllm:tp=8;engines=32",
     CASE_LLAMA_70B, "megatron:tp=8,pp=4,dp=8", "vllm:tp=8,engines=32"},
};

struct context {
    struct wf_plan_job job;
    struct wf_plan *plan;
};

static double measure_build(void *user)
{
    struct context *context = user;
    struct wf_plan *plan = NULL;
    uint64_t start = wf_bench_now_ns();
    enum wf_status status = wf_plan_build(&context->job.input, &plan, NULL);
    double ms = (double)(wf_bench_now_ns() - start) / 1e6;
    wf_plan_free(plan);
    return status == WF_OK ? ms : -1;
}

static double measure_proof(void *user)
{
    struct context *context = user;
    uint64_t start = wf_bench_now_ns();
    enum wf_status status = wf_plan_prove(&context->job.input, context->plan, NULL);
    return status == WF_OK ? (double)(wf_bench_now_ns() - start) / 1e6 : -1;
}

/* Every piece of every rank is expanded and hashed once: what nobody can do without who reads its
 * inputs. */
static double measure_pass(void *user)
{
    const struct wf_plan_input *input = &((struct context *)user)->job.input;
    uint64_t start = wf_bench_now_ns();
    struct wf_hasher hasher;
    wf_hasher_init(&hasher);
    for (uint32_t m = 0; m < input->member_count; m++) {
        const struct wf_layout *layout = input->members[m].layout;
        for (uint32_t i = 0; i < layout->piece_count; i++) {
            struct wf_nest nest = wf_layout_nest(layout, i);
            wf_hasher_u64(&hasher, nest.param_first);
            wf_hasher_u64(&hasher, nest.tensor_offset);
            for (uint32_t a = 0; a < nest.axis_count; a++) {
                wf_hasher_u64(&hasher, nest.axes[a].count);
            }
        }
    }
    struct wf_hash hash = wf_hasher_end(&hasher);
    double ms = (double)(wf_bench_now_ns() - start) / 1e6;
    return hash.high != 0 || hash.low != 0 ? ms : -1;
}

/* --- experts that move ------------------------------------------------------------------------ */

/* Two experts change places, in every layer of one engine of four. */
static const struct plan_case placed = {
    "30b_experts",
    "model=Qwen3-30B-A3B,train=megatron:tp=2;ep=8;etp=1;dp=4,infer=sglang:tp=8;ep=8;engines=4",
    "{\"model_type\": \"qwen3_moe\", \"hidden_size\": 2048, \"num_hidden_layers\": 48, "
    "\"vocab_size\": 151936, \"num_attention_heads\": 32, \"num_key_value_heads\": 4, "
    "\"head_dim\": 128, \"intermediate_size\": 6144, \"num_experts\": 128, "
    "\"num_experts_per_tok\": 8, \"moe_intermediate_size\": 768, "
    "\"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"}",
    "megatron:tp=2,ep=8,etp=1,dp=4", "sglang:tp=8,ep=8,engines=4"};
enum { PLACED_LAYERS = 48, PLACED_SLOTS = 128, PLACED_RANKS = 8, PLACED_SHARE = 16 };

struct placed_context {
    struct wf_plan_input rule, moved;
    struct wf_plan *base;
};

static double measure_rule(void *user)
{
    struct placed_context *context = user;
    struct wf_plan *plan = NULL;
    uint64_t start = wf_bench_now_ns();
    enum wf_status status = wf_plan_build(&context->rule, &plan, NULL);
    double ms = (double)(wf_bench_now_ns() - start) / 1e6;
    wf_plan_free(plan);
    return status == WF_OK ? ms : -1;
}

static double measure_update(void *user)
{
    struct placed_context *context = user;
    struct wf_plan *plan = NULL;
    uint64_t start = wf_bench_now_ns();
    enum wf_status status = wf_plan_update(&context->moved, context->base, &plan, NULL);
    double ms = (double)(wf_bench_now_ns() - start) / 1e6;
    wf_plan_free(plan);
    return status == WF_OK ? ms : -1;
}

/* The first engine's ranks get layouts of their own by the table. */
static enum wf_status place(struct wf_plan_job *job, struct wf_plan_member *members,
                            struct wf_layout **layouts_out, struct wf_error *error)
{
    static uint32_t table[PLACED_LAYERS * PLACED_SLOTS];
    const struct wf_placement placement = {PLACED_LAYERS, PLACED_SLOTS, table};
    for (uint32_t i = 0; i < PLACED_LAYERS * PLACED_SLOTS; i++) {
        table[i] = i % PLACED_SLOTS;
    }
    for (uint32_t i = 0; i < PLACED_LAYERS; i++) {
        table[i * PLACED_SLOTS] = PLACED_SHARE;
        table[i * PLACED_SLOTS + PLACED_SHARE] = 0;
    }
    struct wf_recipe recipe = job->groups[1].recipe;
    recipe.placement = &placement;
    enum wf_status status = WF_OK;
    for (uint32_t i = 0; i < PLACED_RANKS && status == WF_OK; i++) {
        struct wf_plan_member *member = &members[job->train_ranks + i];
        status = wf_layout_derive(job->model, &recipe, i, &layouts_out[i], error);
        member->base = member->layout;
        member->layout = layouts_out[i];
    }
    return status;
}

static enum wf_status run_placed(struct wf_bench *bench, struct wf_plan_job *job,
                                 struct wf_error *error)
{
    struct placed_context context = {.rule = job->input, .moved = job->input};
    struct wf_layout *layouts[PLACED_RANKS] = {0};
    struct wf_plan_member *members = calloc(job->input.member_count, sizeof *members);
    struct wf_bench_case spec = {.name = "plan/update_30b_experts",
                                 .params = placed.params,
                                 .unit = "ms",
                                 .lower_is_better = true,
                                 .measure = measure_update,
                                 .limit_how = "the whole plan",
                                 .limit = measure_rule};
    WF_ASSERT(members != NULL);
    memcpy(members, job->input.members, job->input.member_count * sizeof *members);
    context.moved.members = members;
    enum wf_status status = place(job, members, layouts, error);
    if (status == WF_OK) {
        status = wf_plan_build(&context.rule, &context.base, error);
    }
    if (status == WF_OK) {
        status = wf_bench_case(bench, &spec, &context, error);
    }
    wf_plan_free(context.base);
    for (uint32_t i = 0; i < PLACED_RANKS; i++) {
        wf_layout_free(layouts[i]);
    }
    free(members);
    return status;
}

/* --- all of it -------------------------------------------------------------------------------- */

static enum wf_status run_case(struct wf_bench *bench, const struct plan_case *row,
                               struct context *context, struct wf_error *error)
{
    char name[64];
    struct wf_bench_case spec = {.name = name,
                                 .params = row->params,
                                 .unit = "ms",
                                 .lower_is_better = true,
                                 .measure = measure_build,
                                 .limit_how = "one pass over every piece of every rank",
                                 .limit = measure_pass};
    enum wf_status status = wf_plan_build(&context->job.input, &context->plan, error);
    if (status == WF_OK) {
        snprintf(name, sizeof name, "plan/build_%s", row->name);
        status = wf_bench_case(bench, &spec, context, error);
    }
    if (status == WF_OK) {
        snprintf(name, sizeof name, "plan/prove_%s", row->name);
        spec.measure = measure_proof;
        status = wf_bench_case(bench, &spec, context, error);
    }
    return status;
}

static enum wf_status run(struct wf_bench *bench, const struct plan_case *row,
                          struct wf_error *error)
{
    enum { PER_HOST = 8 };
    struct context context = {.plan = NULL};
    struct wf_model *model = NULL;
    enum wf_status status = wf_model_parse(row->config, strlen(row->config), NULL, &model, error);
    if (status == WF_OK) {
        const struct wf_plan_job_infer infer = {row->infer, NULL};
        status = wf_plan_job_init(&context.job, model, row->train, &infer, 1, PER_HOST, error);
    }
    if (status == WF_OK) {
        status = row == &placed ? run_placed(bench, &context.job, error)
                                : run_case(bench, row, &context, error);
    }
    wf_plan_free(context.plan);
    wf_plan_job_fini(&context.job);
    wf_model_free(model);
    return status;
}

enum wf_status wf_bench_plan(struct wf_bench *bench, struct wf_error *error)
{
    enum wf_status status = WF_OK;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0] && status == WF_OK; i++) {
        status = run(bench, &cases[i], error);
    }
    return status == WF_OK ? run(bench, &placed, error) : status;
}
