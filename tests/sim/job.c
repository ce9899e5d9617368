/* job.c - builds the world of one seed and runs it to its end. */
#include "tests/sim/job.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/job_internal.h"

enum { CALM_LIMIT_S = 120, EVENTS_LIMIT = 3000000 };

static const char model_text[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 16, \"num_hidden_layers\": 2, "
    "\"vocab_size\": 28, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"head_dim\": 4, \"intermediate_size\": 24, \"tie_word_embeddings\": false, "
    "\"torch_dtype\": \"bfloat16\"}";
static const char experts_text[] =
    "{\"model_type\": \"qwen3_moe\", \"hidden_size\": 16, \"num_hidden_layers\": 2, "
    "\"vocab_size\": 28, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"head_dim\": 4, \"intermediate_size\": 24, \"num_experts\": 4, "
    "\"moe_intermediate_size\": 8, \"tie_word_embeddings\": false, "
    "\"torch_dtype\": \"bfloat16\"}";

static const char prepared_text[] =
    "{\"model_type\": \"qwen3_next\", \"hidden_size\": 128, \"num_hidden_layers\": 2, "
    "\"vocab_size\": 28, \"num_attention_heads\": 2, \"num_key_value_heads\": 2, "
    "\"head_dim\": 128, \"intermediate_size\": 256, \"num_experts\": 2, "
    "\"num_experts_per_tok\": 1, \"moe_intermediate_size\": 256, "
    "\"shared_expert_intermediate_size\": 256, \"decoder_sparse_step\": 1, "
    "\"mlp_only_layers\": [], \"full_attention_interval\": 2, \"linear_num_key_heads\": 2, "
    "\"linear_num_value_heads\": 2, \"linear_key_head_dim\": 128, "
    "\"linear_value_head_dim\": 128, \"linear_conv_kernel_dim\": 4, "
    "\"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"}";

void job_fail(struct job *job, const char *format, ...)
{
    if (job->result->failure[0] != '\0') {
        return; /* the first is the cause */
    }
    va_list args;
    va_start(args, format);
    vsnprintf(job->result->failure, sizeof job->result->failure, format, args);
    va_end(args);
}

struct wf_timeouts job_timeouts(void)
{
    return (struct wf_timeouts){.connect_ns = 30 * SEC,
                                .reconnect_ns = 60 * SEC,
                                .lease_ns = 600 * MS,
                                .heartbeat_ns = 100 * MS,
                                .join_ns = 20 * SEC,
                                .plan_ns = 20 * SEC,
                                .round_ns = 2 * SEC,
                                .quiesce_ns = 1 * SEC,
                                .flip_ns = 1 * SEC,
                                .repeat_ns = 200 * MS};
}

static void check(enum wf_status status, const struct wf_error *error)
{
    if (status != WF_OK) {
        fprintf(stderr, "the world cannot be built: %s\n", error->text);
        abort();
    }
}

/* Models and recipes vary with what the job is for. */
static void make_model(struct job *job)
{
    struct wf_error error = {0};
    const struct job_options *o = &job->options;
    const char *text = o->prepared ? prepared_text : o->experts ? experts_text : model_text;
    const char *specs[2] = {o->cut     ? "fsdp:dp=4"
                            : o->casts ? "megatron:tp=2,pp=2,vocab_div=8,dtype=f32"
                                       : "megatron:tp=2,pp=2,vocab_div=8",
                            o->quant     ? "vllm:tp=2,engines=2,quant=vllm"
                            : o->experts ? "sglang:tp=2,ep=2,redundant=2,engines=2"
                                         : "vllm:tp=2,engines=2"};
    const struct wf_recipe *both[2] = {&job->recipes[0], &job->recipes[1]};
    struct wf_model *config = NULL;
    check(wf_model_parse(text, strlen(text), NULL, &config, &error), &error);
    for (int side = 0; side < 2; side++) {
        check(wf_recipe_parse(specs[side], NULL, &job->recipes[side], &error), &error);
    }
    check(wf_model_for_job(config, both, 2, &job->model, &error), &error);
    for (int side = 0; side < 2; side++) {
        check(wf_recipe_parse(specs[side], job->model, &job->recipes[side], &error), &error);
    }
    wf_model_free(config);
}

static void build(struct job *job)
{
    struct wf_sim_options options = wf_sim_options_swarm(job->options.seed);
    options.trace = job->options.trace;
    if (job->options.faults && job->options.seed % 4 == 0) {
        options.break_per_million = 300;
    }
    if (job->options.slow_links) {
        job->links.latency_max_ns = 40 * MS;
    }
    if (job->options.bad_links) {
        job->links.stall_per_million = 2000;
        job->links.stall_max_ns = 3 * SEC;
        job->links.fail_per_million = 4000;
    }
    if (job->options.corrupt) {
        job->links.corrupt_per_million = 4000;
    }
    job->store = (struct wf_store){&job_store_ops, job->options.seed % 2 == 0 ? 64 : 1 << 20};
    job->sim = wf_sim_new(job->options.seed, &options);
    make_model(job);
    job_server_start(job);
    job_observer_start(job);
    for (uint32_t i = 0; i < JOB_RANKS; i++) {
        job_rank_start(job, i);
    }
    if (job->options.faults) {
        job_faults_draw(job);
    }
}

static void describe_rank(const struct job_rank *host, char *text, size_t bytes)
{
    const struct wf_meta_client *client = host->rank != NULL ? host->rank->client : NULL;
    const char *side = wf_side_name(host->side);
    if (client == NULL || host->job->server == NULL) {
        snprintf(text, bytes, "%s %u gone", side, host->index);
        return;
    }
    const struct wf_server_rank *known =
        &host->job->server->ranks[host->side == WF_TRAIN ? host->index : JOB_TRAIN + host->index];
    snprintf(text, bytes,
             "%s %u: link %d state %d busy %d host %d welcome %d step %" PRIu64 " live %" PRIu64
             " presence %d planned %d told %d%d pub %u idle %d",
             side, host->index, client->link, (int)client->state, client->busy, client->host,
             client->welcome_waits, host->step, client->live.step, known->presence,
             known->planned_epoch == host->job->server->members_epoch, known->generation_told,
             known->notice_told, known->published_count, known->idle);
}

/* Where everybody stands, for a person who looks into a stuck seed. */
static void describe_stuck(struct job *job)
{
    const struct wf_meta_server *server = job->server;
    if (getenv("WEFT_SIM_VERBOSE") == NULL || server == NULL) {
        return;
    }
    fprintf(stderr,
            "seed %" PRIu64 ": server state %d, round step %" PRIu64 " attempt %" PRIu64
            " fill %d members due %d generation %" PRIu64 " due %d end: %s\n",
            job->options.seed, server->state, server->round.key.version.step,
            server->round.key.attempt, server->round.fill, server->members_due, server->generation,
            server->generation_due, server->end.text);
    for (uint32_t i = 0; i < JOB_RANKS; i++) {
        char text[300];
        describe_rank(&job->ranks[i], text, sizeof text);
        fprintf(stderr, "  %s\n", text);
    }
}

/* One event and what belongs to it. False: the job is over, or has failed. */
static bool step(struct job *job, bool *end_checked, uint64_t *limit_ns)
{
    if (!wf_sim_step(job->sim)) {
        job_fail(job, "nothing is left that could happen");
        return false;
    }
    if (!*end_checked && job->server != NULL && job->server->state >= WF_SERVER_ENDING &&
        !job->server->stops) {
        *end_checked = true;
        if (!job_check_end(job)) {
            return false;
        }
    }
    if (!job_check(job)) {
        return false;
    }
    if (!*end_checked) {
        job_faults_step(job);
    }
    if (!job->calm && job_faults_over(job)) {
        job_faults_stop(job);
        *limit_ns = wf_sim_now_ns(job->sim) + CALM_LIMIT_S * SEC;
    }
    for (uint32_t i = 0; i < JOB_RANKS; i++) {
        struct job_rank *host = &job->ranks[i];
        if (host->ended && host->rank != NULL) {
            if (host->why.status != WF_CLOSED) {
                job_fail(job, "%s rank %u ended: %s", wf_side_name(host->side), host->index,
                         host->why.text);
                return false;
            }
            job_rank_release_ended(host);
        }
    }
    if (job->calm && wf_sim_now_ns(job->sim) > *limit_ns) {
        job_fail(job, "stuck: the job is not over %d s after the last fault", CALM_LIMIT_S);
        return false;
    }
    if (wf_sim_events(job->sim) > EVENTS_LIMIT) {
        job_fail(job, "stuck: more than %d events", EVENTS_LIMIT);
        return false;
    }
    return !job->server_ended;
}

struct job_options job_options_of_seed(uint64_t seed)
{
    struct job_options options = {.seed = seed, .faults = true};
    options.policy = seed % 2 == 0 ? WF_COMMIT_EACH : WF_COMMIT_ALL;
    options.publish = seed % 8 >= 6 ? WF_PUBLISH_SNAPSHOT : WF_PUBLISH_HOLD;
    options.drop_to_latest = seed % 8 == 7;
    options.slow_links = seed % 3 == 0;
    options.bad_links = seed % 5 == 0;
    options.corrupt = seed % 10 == 0;
    options.attempts_max = 1 + seed % 3;
    options.every = seed % 11 == 0 ? 2 : 1;
    options.no_fill = seed % 13 == 0;
    options.store = seed % 7 == 3 ? JOB_STORE_TOO : seed % 7 == 6 ? JOB_STORE_ALONE : JOB_NO_STORE;
    options.deadline_ns = seed % 17 / 4 == 1 ? 300 * MS : 0;
    options.in_place = seed % 4 == 1 ? 3 : seed % 4 == 2 ? 1 + seed / 4 % 2 : 0;
    return options;
}

struct job_options job_options_of_server_seed(uint64_t seed)
{
    struct job_options options = job_options_of_seed(seed);
    options.server_faults = true;
    return options;
}

struct job_options job_options_of_experts_seed(uint64_t seed)
{
    struct job_options options =
        seed % 2 == 0 ? job_options_of_server_seed(seed) : job_options_of_seed(seed);
    options.experts = true;
    options.versions = 5;
    return options;
}

struct job_options job_options_of_prepared_seed(uint64_t seed)
{
    struct job_options options =
        seed % 3 == 0 ? job_options_of_server_seed(seed) : job_options_of_seed(seed);
    options.prepared = true;
    options.quant = seed % 2 == 0;
    options.store = JOB_NO_STORE; /* a folder has nothing prepared */
    return options;
}

struct job_options job_options_of_replicas_seed(uint64_t seed)
{
    static struct job_options (*const kinds[])(uint64_t) = {
        job_options_of_server_seed, job_options_of_experts_seed, job_options_of_prepared_seed,
        job_options_of_seed,        job_options_of_server_seed,  job_options_of_experts_seed,
        job_options_of_cut_seed,    job_options_of_seed};
    struct job_options options = kinds[seed % 8](seed);
    options.validate_every = 1;
    options.altered = options.cut     ? JOB_UNALTERED /* no trainer has another's elements */
                      : seed % 5 == 3 ? JOB_ALTERED_TRAIN
                      : seed % 5 == 4 ? JOB_ALTERED_INFER
                                      : JOB_UNALTERED;
    if (options.altered != JOB_UNALTERED) {
        options.server_faults = false; /* a rebuilt journal may decide what was not compared */
        options.experts = false;       /* whose elements are checked one by one */
        options.no_fill = true;        /* from a copy that differs */
        options.store = JOB_NO_STORE;
    }
    return options;
}

struct job_options job_options_of_cut_seed(uint64_t seed)
{
    struct job_options options =
        seed % 3 == 0 ? job_options_of_server_seed(seed) : job_options_of_seed(seed);
    options.prepared = options.quant = options.cut = true;
    return options;
}

struct job_options job_options_of_casts_seed(uint64_t seed)
{
    struct job_options options =
        seed % 3 == 0 ? job_options_of_server_seed(seed) : job_options_of_seed(seed);
    options.casts = true;
    options.store = JOB_NO_STORE; /* a folder has what trainers hold: in f32 */
    return options;
}

void job_run(const struct job_options *options, struct job_result *result)
{
    struct job *job = calloc(1, sizeof *job);
    job->token = (struct wf_token){.is_set = true, .bytes = "only this job's ranks have this"};
    bool end_checked = false;
    uint64_t limit_ns = 0;
    memset(result, 0, sizeof *result);
    job->options = *options;
    job->result = result;
    if (job->options.versions == 0) {
        job->options.versions = 3;
    }
    build(job);
    while (step(job, &end_checked, &limit_ns)) {
    }
    if (result->failure[0] != '\0') {
        describe_stuck(job);
    }
    result->trace_hash = wf_sim_trace_hash(job->sim);
    result->events = wf_sim_events(job->sim);
    wf_sim_free(job->sim);
    wf_model_free(job->model);
    free(job);
}
