/* job_host.c - what surrounds a rank: memory, training, pausing, serving. */
#include <stdlib.h>
#include <string.h>

#include "models/casts.h"
#include "tests/sim/job_internal.h"

enum { TENSOR_ALIGN = 64 };

uint32_t job_arrived(const struct job_rank *host, uint64_t tensor, uint16_t content)
{
    const struct wf_tensor *to = &host->layout->tensors[tensor];
    uint32_t bits = (uint32_t)content << 16;
    float value, scale;
    uint8_t code;
    memcpy(&value, &bits, sizeof value);
    if (to->dtype == WF_DTYPE_F8_E4M3 || strstr(to->name, "scale_inv") != NULL) {
        const struct wf_quant_matrix one = {&content, WF_DTYPE_BF16, 1, 1, sizeof content};
        wf_quantise(host->job->model->variants->rule, &one, &code, 1, &scale, 1, true);
        memcpy(&bits, &scale, sizeof bits);
        return to->dtype == WF_DTYPE_F8_E4M3 ? code : bits;
    }
    if (strstr(to->name, "linear_attn.norm.weight") != NULL && !host->job->options.cut) {
        uint16_t more;
        value += 1;
        wf_cast_for(WF_DTYPE_F32, WF_DTYPE_BF16, true)(&more, &value, 1);
        return more;
    }
    if (host->job->options.casts) {
        uint16_t narrow;
        bits |= content; /* as all of the trainers' memory is */
        memcpy(&value, &bits, sizeof value);
        wf_cast_for(WF_DTYPE_F32, WF_DTYPE_BF16, true)(&narrow, &value, 1);
        return narrow;
    }
    return to->dtype == WF_DTYPE_F32 ? bits : content;
}

static void check(enum wf_status status, const struct wf_error *error)
{
    if (status != WF_OK) {
        fprintf(stderr, "the world cannot be built: %s\n", error->text);
        abort();
    }
}

static void write_weights(struct job_rank *host, struct wf_version version)
{
    if (host->job->options.publish == WF_PUBLISH_HOLD) {
        job_check_unread(host);
    }
    job_rank_write(host, version);
    job_alter(host, version);
}

/* --- train ------------------------------------------------------------------------------------ */
static void arm(struct job_rank *host, uint64_t min_ns, uint64_t max_ns)
{
    wf_timer_arm(host->loop, &host->timer,
                 wf_loop_now_ns(host->loop) + wf_sim_range(host->job->sim, min_ns, max_ns));
}

static struct wf_version own_version(const struct job_rank *host)
{
    const struct wf_meta_client *client = host->rank->client;
    return (struct wf_version){client->generation_term, client->generation_counter, host->step};
}

static bool wants_more(const struct job_rank *host)
{
    return !host->job->calm || host->step < host->job->final_step;
}

/* The buffers are the host's: it trains, which spoils them at once, and publishes later. */
static void train_on(struct job_rank *host)
{
    host->step++;
    host->must_publish = true;
    write_weights(host, own_version(host));
    bool slow = host->step > host->job->options.versions && !host->job->calm;
    arm(host, 1 * MS, slow ? 300 * MS : 40 * MS);
}

static void publish(struct job_rank *host)
{
    struct wf_error error = {0};
    write_weights(host, own_version(host)); /* a new generation has other content */
    enum wf_status status = wf_rank_publish_within(host->rank, host->step, "step",
                                                   host->job->options.deadline_ns, &error);
    if (status == WF_AGAIN) {
        arm(host, 5 * MS, 20 * MS);
    } else if (status != WF_OK && status != WF_CLOSED) {
        job_fail(host->job, "train rank %u cannot publish step %llu: %s", host->index,
                 (unsigned long long)host->step, error.text);
    } else {
        host->must_publish = false;
        host->waits_outcome = host->job->options.publish == WF_PUBLISH_HOLD;
    }
}

static void on_train_timer(struct wf_timer *timer)
{
    struct job_rank *host = WF_CONTAINER(timer, struct job_rank, timer);
    if (host->must_publish) {
        publish(host);
    }
}

static void on_ready(void *user, struct wf_rank *rank, bool restarted, uint64_t step)
{
    struct job_rank *host = user;
    (void)rank;
    (void)restarted;
    host->step = step > 0 ? step : 1;
    host->must_publish = true;
    host->waits_outcome = host->finished = false;
    write_weights(host, own_version(host));
    arm(host, 1 * MS, 30 * MS);
}

static void outcome(struct job_rank *host, struct wf_version version, uint32_t engines)
{
    if (version.step != host->step) {
        return; /* of an earlier snapshot */
    }
    if (engines > 0 && !wants_more(host)) {
        host->finished = true;
        wf_rank_idle(host->rank);
    } else if (host->waits_outcome) {
        host->waits_outcome = false;
        train_on(host);
    }
}

static void on_released(void *user, struct wf_rank *rank, struct wf_version version,
                        uint32_t engines)
{
    struct job_rank *host = user;
    (void)rank;
    host->settled = version;
    if (engines > 0) {
        host->released = version;
        job_check_released(host->job, version);
    }
    outcome(user, version, engines);
}

/* Told of what it waits for, once, and before its end. */
static void on_in_doubt(void *user, struct wf_rank *rank, struct wf_version version)
{
    struct job_rank *host = user;
    (void)rank;
    host->job->result->doubts++;
    if (wf_version_compare(version, host->settled) <= 0 ||
        wf_version_compare(version, host->doubted) == 0) {
        job_fail(host->job, "train rank %u is told of doubt about step %llu, which is over",
                 host->index, (unsigned long long)version.step);
    }
    host->doubted = version;
}

static void on_copied(void *user, struct wf_rank *rank, struct wf_version version,
                      const struct wf_error *why)
{
    struct job_rank *host = user;
    (void)rank;
    if (version.step != host->step || version.counter != own_version(host).counter) {
        return;
    }
    if (why != NULL) {
        host->must_publish = true;
        arm(host, 1 * MS, 5 * MS);
    } else if (wants_more(host)) {
        train_on(host);
    } else {
        host->waits_outcome = true;
    }
}

static void on_aborted(void *user, struct wf_rank *rank, struct wf_version version,
                       uint64_t attempt, bool again, const struct wf_culprit *culprit)
{
    struct job_rank *host = user;
    (void)rank;
    (void)attempt;
    (void)culprit;
    if (host->side == WF_TRAIN && !again) {
        host->settled = version;
        /* After its release it was a fill that failed. */
        if (wf_version_compare(version, host->released) > 0) {
            job_check_abandoned(host->job, version);
        }
        outcome(host, version, 0);
    }
}

static void on_ended(void *user, struct wf_rank *rank, const struct wf_error *why)
{
    struct job_rank *host = user;
    (void)rank;
    host->ended = true;
    host->why = *why;
}

/* --- infer ------------------------------------------------------------------------------------ */
static void on_quiesce_timer(struct wf_timer *timer)
{
    struct job_rank *host = WF_CONTAINER(timer, struct job_rank, timer);
    host->serving = false;
    wf_rank_quiesced(host->rank);
}

static void on_quiesce(void *user, struct wf_rank *rank)
{
    (void)rank;
    arm(user, 0, 20 * MS); /* passes in flight end */
}

enum { TABLES = 3, TABLE_LAYERS = 2, TABLE_SLOTS = 6 };
static const uint32_t tables[TABLES - 1][TABLE_LAYERS * TABLE_SLOTS] = {
    {3, 2, 1, 0, 0, 0, 0, 1, 2, 3, 3, 3}, {1, 0, 3, 2, 2, 1, 3, 2, 1, 0, 3, 2}};

/* NULL: by rule. */
static const struct wf_placement *placement_of(uint32_t table)
{
    static const struct wf_placement placements[TABLES - 1] = {
        {TABLE_LAYERS, TABLE_SLOTS, tables[0]}, {TABLE_LAYERS, TABLE_SLOTS, tables[1]}};
    return table == 0 ? NULL : &placements[table - 1];
}

/* Where the experts stand by the host's table; what they are moves with them, as engines do it. */
static void mark_by_table(struct job_rank *host)
{
    struct wf_recipe recipe = host->job->recipes[host->side];
    struct wf_layout *layout;
    struct wf_error error = {0};
    bool swapped = host->job->options.swapped && host->side == WF_INFER;
    recipe.placement = placement_of(swapped ? (host->table + 1) % TABLES : host->table);
    check(wf_layout_derive(host->job->model, &recipe, host->index, &layout, &error), &error);
    job_rank_mark(host, layout);
    wf_layout_free(layout);
    if (host->rank != NULL && !wf_version_is_none(host->rank->client->live)) {
        job_rank_write(host, host->rank->client->live);
    }
}

/* Each host of an engine learns some time later where its experts are to stand. */
static void on_placing(struct wf_timer *timer)
{
    struct job_rank *host = WF_CONTAINER(timer, struct job_rank, placing);
    struct wf_error error = {0};
    uint32_t due = host->job->engines[host->engine].table;
    uint32_t moves = host->job->engines[host->engine].moves;
    if (host->ended) {
        return;
    }
    if (host->moves == moves) {
        due = host->table; /* it knows of no other, whatever its engine has */
    }
    if (host->table == due) {
        host->moves = moves;
    } else {
        enum wf_status status = wf_rank_place(host->rank, placement_of(due), &error);
        if (status == WF_OK) {
            host->table = due;
            host->moves = moves;
            mark_by_table(host);
            host->job->result->placements++;
        } else if (status != WF_AGAIN && status != WF_CLOSED) {
            job_fail(host->job, "infer rank %u cannot place experts: %s", host->index, error.text);
        }
    }
    wf_timer_arm(host->loop, timer,
                 wf_loop_now_ns(host->loop) + wf_sim_range(host->job->sim, 1 * MS, 30 * MS));
}

/* A host that is started takes part in a move that is still under way in its engine. */
static uint32_t moves_known(const struct job_rank *host)
{
    uint32_t moves = host->job->engines[host->engine].moves;
    for (uint32_t i = JOB_TRAIN; i < JOB_RANKS; i++) {
        const struct job_rank *other = &host->job->ranks[i];
        if (other != host && other->alive && other->engine == host->engine &&
            other->moves < moves) {
            return moves - 1;
        }
    }
    return moves;
}

static enum wf_status on_take_table(void *user, struct wf_rank *rank,
                                    const struct wf_placement *placement, struct wf_error *error)
{
    struct job_rank *host = user;
    (void)rank;
    (void)error;
    uint32_t table = 0;
    while (placement != NULL && ++table < TABLES &&
           memcmp(placement->experts, tables[table - 1], sizeof tables[0]) != 0) {
    }
    WF_ASSERT(table < TABLES);
    host->table = table;
    mark_by_table(host);
    host->job->result->tables_taken++;
    return WF_OK;
}

/* Every second version its experts move. */
static void move_experts(struct job_rank *host, struct wf_version version)
{
    struct job *job = host->job;
    if (job->options.experts && !job->calm &&
        wf_version_compare(version, job->engines[host->engine].after) > 0) {
        job->engines[host->engine].after = version;
        job->engines[host->engine].moves++;
        job->engines[host->engine].table =
            (uint32_t)(version.step / 2 + host->engine + version.counter) % TABLES;
    }
}

static void on_resume(void *user, struct wf_rank *rank, struct wf_version version)
{
    struct job_rank *host = user;
    (void)rank;
    host->serving = true;
    host->version = version;
    job_alter(host, version);
    move_experts(host, version);
}

/* An engine's own work on a version fails now and then, until the faults end. */
static enum wf_status work_on_version(struct job_rank *host, struct wf_error *error)
{
    bool fails = host->alive && !host->job->calm && wf_sim_range(host->job->sim, 0, 99) < 2;
    return fails ? wf_error_set(error, WF_IO, "the engine cannot use it") : WF_OK;
}

static enum wf_status on_before_write(void *user, struct wf_rank *rank, struct wf_version version,
                                      struct wf_error *error)
{
    struct job_rank *host = user;
    (void)version;
    if (host->alive && host->serving && rank->options.mode == WF_MODE_IN_PLACE) {
        job_fail(host->job, "infer rank %u serves and is to be written to in place", host->index);
    }
    return work_on_version(host, error);
}

static enum wf_status on_after_write(void *user, struct wf_rank *rank, struct wf_version version,
                                     void *const *written, struct wf_error *error)
{
    (void)rank;
    (void)version;
    (void)written;
    return work_on_version(user, error);
}

static enum wf_status on_after_flip(void *user, struct wf_rank *rank, struct wf_version version,
                                    struct wf_error *error)
{
    struct job_rank *host = user;
    (void)rank;
    (void)error;
    if (!host->alive) {
        return WF_OK; /* torn down in the middle */
    }
    if (wf_version_compare(version, host->top) < 0) {
        job_fail(host->job, "infer rank %u flips back to step %llu", host->index,
                 (unsigned long long)version.step);
    }
    host->top = version;
    job_check_flipped(host->job, version);
    if (host->job->options.skip_quiesce && host->serving) {
        host->version = version; /* it never stopped */
    }
    return WF_OK;
}

/* --- life ------------------------------------------------------------------------------------- */
static void make_tensors(struct job_rank *host)
{
    uint64_t bytes = 0;
    struct wf_error error = {0};
    check(wf_layout_derive(host->job->model, &host->job->recipes[host->side], host->index,
                           &host->layout, &error),
          &error);
    const struct wf_layout *layout = host->layout;
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        bytes += (layout->tensors[i].bytes + TENSOR_ALIGN - 1) / TENSOR_ALIGN * TENSOR_ALIGN;
    }
    host->memory = (struct wf_region){.address = malloc(bytes), .len_bytes = bytes, .fd = -1};
    host->tensors = calloc(layout->tensor_count, sizeof host->tensors[0]);
    WF_ASSERT(host->memory.address != NULL && host->tensors != NULL);
    memset(host->memory.address, 0xff, bytes);
    uint64_t at = 0;
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        const struct wf_tensor *tensor = &layout->tensors[i];
        struct wf_rank_tensor *own = &host->tensors[i];
        own->live.name = tensor->name;
        own->live.dtype = tensor->dtype;
        own->live.ndim = tensor->ndim;
        int64_t stride = 1;
        for (uint32_t d = tensor->ndim; d-- > 0;) {
            own->live.shape[d] = tensor->shape[d];
            own->live.strides[d] = stride;
            stride *= (int64_t)tensor->shape[d];
        }
        own->address = (uint8_t *)host->memory.address + at;
        own->offset = at;
        at += (tensor->bytes + TENSOR_ALIGN - 1) / TENSOR_ALIGN * TENSOR_ALIGN;
    }
}

/* For all of the model, or for some of it. */
static uint64_t room_to_cast(const struct job *job)
{
    return !job->options.casts ? 0 : job->options.seed % 2 == 0 ? 1 << 20 : 8192;
}

void job_rank_start(struct job *job, uint32_t index)
{
    struct job_rank *host = &job->ranks[index];
    bool train = index < JOB_TRAIN;
    uint32_t per_engine = JOB_INFER / JOB_ENGINES;
    *host = (struct job_rank){.job = job,
                              .side = train ? WF_TRAIN : WF_INFER,
                              .index = train ? index : index - JOB_TRAIN,
                              .alive = true};
    host->engine = train ? 0 : host->index / per_engine;
    char name[32];
    snprintf(name, sizeof name, "%s %u", train ? "train" : "infer", host->index);
    host->loop = wf_sim_rank_new(job->sim, name, job_rank_teardown, host);
    host->timer.fire = train ? on_train_timer : on_quiesce_timer;
    host->timer.name = "host";
    host->moves = moves_known(host); /* and its table is the first: its engine tells a newcomer */
    host->placing.fire = on_placing;
    host->placing.name = "experts";
    struct wf_recipe recipe = job->recipes[host->side];
    recipe.placement = placement_of(host->table);
    if (job->options.experts && !train) {
        wf_timer_arm(host->loop, &host->placing, wf_loop_now_ns(host->loop) + 10 * MS);
    }
    make_tensors(host);
    mark_by_table(host);
    struct wf_error error = {0};
    check(wf_transport_sim_new(host->loop, &job->links, &host->transport, &error), &error);
    enum wf_update_mode mode =
        (job->options.in_place >> host->engine) & 1 ? WF_MODE_IN_PLACE : WF_MODE_STAGED;
    const struct wf_rank_options options = {
        .job = "simulated",
        .token = &job->token,
        .server = job->address,
        .listen = "peer-*",
        .host_name = train               ? "trainer"
                     : host->engine == 0 ? "a"
                                         : "b",
        .side = host->side,
        .rank = host->index,
        .engine = host->engine,
        .group = train ? "train" : "engines",
        .group_rank = host->index,
        .model = job->model,
        .recipe = &recipe,
        .regions = &host->memory,
        .region_count = 1,
        .tensors = host->tensors,
        .tensor_count = host->layout->tensor_count,
        .publish = job->options.publish,
        .policy = {.cast_bytes_max = room_to_cast(job)},
        .transports = &host->transport,
        .transport_count = 1,
        .mode = mode,
        .store = job->options.store != JOB_NO_STORE ? &job->store : NULL,
        .timeouts = job_timeouts(),
        .hooks = {.quiesce = on_quiesce,
                  .resume = on_resume,
                  .take_table = on_take_table,
                  .before_write = on_before_write,
                  .after_write = on_after_write,
                  .after_flip = on_after_flip,
                  .ready = on_ready,
                  .in_doubt = on_in_doubt,
                  .copied = on_copied,
                  .released = on_released,
                  .aborted = on_aborted,
                  .ended = on_ended},
        .host = host,
        .skip_quiesce = job->options.skip_quiesce};
    check(wf_rank_new(host->loop, &options, &host->rank, &error), &error);
}

static void free_memory(struct job_rank *host)
{
    host->transport->ops->close(host->transport);
    wf_timer_cancel(host->loop, &host->timer);
    wf_timer_cancel(host->loop, &host->placing);
    wf_layout_free(host->layout);
    free(host->memory.address);
    free(host->marks);
    free(host->tensors);
    host->rank = NULL;
    host->serving = false;
}

void job_rank_teardown(void *user, struct wf_loop *loop)
{
    struct job_rank *host = user;
    host->alive = false;
    if (host->rank != NULL) {
        wf_rank_close(host->rank);
        wf_converter_close(host->rank->converter); /* their jobs come back without having run */
        wf_planner_close(host->rank->planner);
        wf_sim_drain(host->job->sim, loop);
        wf_rank_free(host->rank);
        free_memory(host);
    }
}

/* The rank has ended: its host says goodbye, as a process that exits would. */
void job_rank_release_ended(struct job_rank *host)
{
    if (sender_is_working(host->rank->sender) ||
        (host->rank->receiver != NULL && host->rank->receiver->open_imports > 0)) {
        return; /* its jobs still run */
    }
    wf_rank_free(host->rank);
    free_memory(host);
}
