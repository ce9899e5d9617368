/* job_faults.c - crashes, freezes, broken and slow connections, at drawn times and states. */
#include "tests/sim/job_internal.h"

enum { FAULTS_UNTIL_S = 6, FAULTS_WAIT_S = 4 };

const char *const job_point_names[JOB_POINT_COUNT] = {
#define POINT_NAME(name) #name,
    JOB_POINT_MAP(POINT_NAME)
#undef POINT_NAME
};
const char *const job_fault_names[JOB_FAULT_COUNT] = {
#define FAULT_NAME(name) #name,
    JOB_FAULT_MAP(FAULT_NAME)
#undef FAULT_NAME
};

/* Some points belong to train ranks, some to infer ranks, some to the server. */
static uint32_t draw_target(struct job *job, enum job_point point)
{
    switch (point) {
    case JOB_AT_HOLD:
    case JOB_AT_GRANTED:
    case JOB_AT_PREPARING:
        return (uint32_t)wf_sim_choose(job->sim, JOB_TRAIN);
    case JOB_AT_QUANTISING:
    case JOB_AT_READ:
    case JOB_AT_DOUBT:
    case JOB_AT_QUIESCING:
    case JOB_AT_TOLD:
    case JOB_AT_FLIPPING:
    case JOB_AT_QUIET:
    case JOB_AT_WRITING:
    case JOB_AT_SOURCE:
    case JOB_AT_FLIPPED:
    case JOB_AT_DROPPING:
        return JOB_TRAIN + (uint32_t)wf_sim_choose(job->sim, JOB_INFER);
    default:
        return (uint32_t)wf_sim_choose(job->sim, JOB_RANKS + 1);
    }
}

void job_faults_draw(struct job *job)
{
    job->fault_count = 1 + (uint32_t)wf_sim_choose(job->sim, JOB_FAULTS_MAX - 2);
    for (uint32_t i = 0; i < job->fault_count; i++) {
        struct job_fault *fault = &job->faults[i];
        fault->kind = (enum job_fault_kind)wf_sim_choose(job->sim, JOB_LOSE);
        if (i == 0) { /* each seed has a crash or a delay */
            static const enum job_fault_kind first[] = {JOB_CRASH, JOB_FREEZE_LONG, JOB_STALL};
            fault->kind = first[wf_sim_choose(job->sim, 3)];
        }
        fault->point = (enum job_point)wf_sim_choose(job->sim, JOB_AT_PREPARING);
        bool makes = job->options.prepared || job->options.casts;
        if (makes && wf_sim_choose(job->sim, 3) == 0) {
            fault->point = job->options.cut ? JOB_AT_QUANTISING : JOB_AT_PREPARING;
        }
        fault->target = draw_target(job, fault->point);
        fault->skip = (uint32_t)wf_sim_choose(job->sim, 3);
        fault->after_ns = wf_sim_choose(job->sim, 4) == 0 ? wf_sim_range(job->sim, 0, 30 * MS) : 0;
        if (fault->point == JOB_AT_TIME) {
            fault->after_ns = wf_sim_range(job->sim, 0, 3 * SEC);
        }
        fault->at_server = fault->target == JOB_RANKS;
        if (job->options.server_faults && (i == 0 || wf_sim_choose(job->sim, 3) == 0)) {
            static const enum job_fault_kind kinds[] = {JOB_CRASH, JOB_CRASH,    JOB_LOSE,
                                                        JOB_WRITE, JOB_TAKEOVER, JOB_FREEZE_LONG};
            fault->at_server = true;
            fault->kind = kinds[wf_sim_choose(job->sim, 6)];
        }
    }
}

static bool infer_is_at(const struct job_rank *host, enum job_point point)
{
    const struct wf_meta_client *client = host->rank->client;
    switch (point) {
    case JOB_AT_READ:
        return client->state == WF_RANK_READ;
    case JOB_AT_DOUBT:
        return client->state == WF_RANK_DOUBT;
    case JOB_AT_QUIESCING:
        return client->host == WF_HOST_QUIESCING;
    case JOB_AT_TOLD:
        return client->state == WF_RANK_TOLD && client->host == WF_HOST_PAUSED &&
               client->busy == WF_RECEIVER_FREE;
    case JOB_AT_FLIPPING:
        return client->busy == WF_RECEIVER_FLIPPING;
    case JOB_AT_QUIET:
        return client->state == WF_RANK_QUIET;
    case JOB_AT_WRITING: /* some bytes of a version are in live memory, others are not */
        return client->writing && host->rank->receiver->open_reads > 0;
    case JOB_AT_SOURCE: /* another engine is filled from it */
        return client->fill.granted;
    case JOB_AT_FLIPPED:
        return client->state == WF_RANK_FLIPPED && client->host == WF_HOST_PAUSED;
    case JOB_AT_DROPPING:
        return client->busy == WF_RECEIVER_STOPPING;
    default:
        return false;
    }
}

static bool is_at(const struct job *job, const struct job_fault *fault)
{
    const struct job_rank *host = &job->ranks[fault->target % JOB_RANKS];
    switch (fault->point) {
    case JOB_AT_TIME:
        return true;
    case JOB_AT_OPENED:
        return job->server != NULL && job->server->state == WF_SERVER_OPENED;
    case JOB_AT_CLOSING:
        return job->server != NULL && job->server->state == WF_SERVER_CLOSING;
    default:
        break;
    }
    if (fault->target == JOB_RANKS) {
        return job->server != NULL && job->server->members_epoch > 0 && !job->server->agreed;
    }
    if (!host->alive || host->rank == NULL) {
        return false;
    }
    switch (fault->point) {
    case JOB_AT_PLANNING:
        return host->rank->client->planning;
    case JOB_AT_PREPARING:
        return host->rank->sender->prepare_batch.active;
    case JOB_AT_QUANTISING:
        return host->rank->receiver->make.batch.active;
    case JOB_AT_HOLD:
        return host->rank->client->state == WF_TRAINER_HOLD && !host->rank->client->granted;
    case JOB_AT_GRANTED:
        return host->rank->client->granted;
    default:
        return infer_is_at(host, fault->point);
    }
}

static void freeze(struct job *job, struct job_rank *host, uint64_t min_ns, uint64_t max_ns)
{
    if (!host->frozen) {
        wf_sim_freeze(job->sim, host->loop);
        host->frozen = true;
        host->thaw_ns = wf_sim_now_ns(job->sim) + wf_sim_range(job->sim, min_ns, max_ns);
    }
}

static void strike_rank(struct job *job, uint32_t index, enum job_fault_kind kind)
{
    struct job_rank *host = &job->ranks[index];
    if (!host->alive || host->rank == NULL) {
        return;
    }
    const struct wf_timeouts t = job_timeouts();
    const uint64_t now = wf_sim_now_ns(job->sim);
    uint64_t until = now; /* the fault may show */
    job->result->struck++;
    job->result->struck_by[kind]++;
    switch (kind) {
    case JOB_CRASH: {
        uint64_t restart = now + wf_sim_range(job->sim, 5 * MS, 3 * SEC);
        wf_sim_crash(job->sim, host->loop);
        host->frozen = false;
        host->restart_ns = restart;
        break;
    }
    case JOB_FREEZE_SHORT:
        freeze(job, host, 1 * MS, t.lease_ns * 3 / 4);
        until = host->thaw_ns;
        break;
    case JOB_FREEZE_LONG:
        freeze(job, host, t.lease_ns, t.lease_ns * 5);
        until = host->thaw_ns;
        break;
    case JOB_BREAK:
        for (uint64_t n = wf_sim_choose(job->sim, 4); n < 4; n++) {
            wf_sim_break_one(job->sim);
        }
        job->hurt_ns = job->hurt_ns > now ? job->hurt_ns : now;
        break;
    default:
        until = now + wf_sim_range(job->sim, 1 * MS, 2 * t.lease_ns);
        wf_sim_stall(job->sim, host->loop, until - now);
        break;
    }
    if (job->rank_hurt_ns[index] < until) {
        job->rank_hurt_ns[index] = until;
    }
}

/* Somebody whom the server has told something, or is about to, goes with it. */
static void strike_others(struct job *job, const struct job_fault *fault)
{
    static const enum job_fault_kind kinds[] = {JOB_CRASH, JOB_CRASH, JOB_FREEZE_LONG, JOB_STALL};
    enum job_fault_kind kind = kinds[wf_sim_choose(job->sim, 4)];
    switch (wf_sim_choose(job->sim, 6)) {
    case 0:
    case 1:
        if (fault->target < JOB_RANKS) {
            strike_rank(job, fault->target, kind);
        }
        break;
    case 2:
        for (uint32_t i = 0; i < JOB_TRAIN; i++) {
            strike_rank(job, i, JOB_CRASH);
        }
        break;
    case 3:
        for (uint32_t i = JOB_TRAIN; i < JOB_RANKS; i++) {
            if (wf_sim_choose(job->sim, 2) == 0) {
                strike_rank(job, i, kind);
            }
        }
        break;
    default:
        break;
    }
}

static void strike(struct job *job, struct job_fault *fault)
{
    const struct job_rank *host = &job->ranks[fault->target % JOB_RANKS];
    fault->struck = true;
    if (fault->at_server) {
        job_server_strike(job, fault->kind);
        if (job->options.server_faults) {
            strike_others(job, fault);
        }
    } else if (host->alive && host->rank != NULL) {
        job->result->struck_at[fault->point]++;
        strike_rank(job, fault->target, fault->kind);
    }
}

/* A fault strikes after its target has been at its point `skip` times, `after_ns` later. */
static void watch(struct job *job, struct job_fault *fault)
{
    uint64_t now = wf_sim_now_ns(job->sim);
    bool inside = is_at(job, fault);
    if (!fault->armed && inside && !fault->inside) {
        if (fault->skip > 0 && fault->point != JOB_AT_TIME) {
            fault->skip--;
        } else {
            fault->armed = true;
            fault->strike_ns = now + fault->after_ns;
        }
    }
    fault->inside = inside;
    if (fault->armed && now >= fault->strike_ns) {
        strike(job, fault);
    }
}

static void heal(struct job *job, uint32_t index)
{
    struct job_rank *host = &job->ranks[index];
    uint64_t now = wf_sim_now_ns(job->sim);
    if (host->frozen && (job->calm || now >= host->thaw_ns)) {
        host->frozen = false;
        wf_sim_thaw(job->sim, host->loop);
    }
    if (!host->alive && (job->calm || now >= host->restart_ns)) {
        job_rank_start(job, index);
    }
}

void job_faults_step(struct job *job)
{
    for (uint32_t i = 0; i < job->fault_count && !job->calm; i++) {
        if (!job->faults[i].struck) {
            watch(job, &job->faults[i]);
        }
    }
    for (uint32_t i = 0; i < JOB_RANKS; i++) {
        heal(job, i);
    }
    job_server_step(job);
}

bool job_faults_over(const struct job *job)
{
    uint64_t now = wf_sim_now_ns(job->sim);
    bool struck = true, whole = true;
    for (uint32_t i = 0; i < job->fault_count; i++) {
        struck = struck && job->faults[i].struck;
    }
    for (uint32_t i = 0; i < JOB_RANKS; i++) {
        whole = whole && job->ranks[i].alive && !job->ranks[i].frozen;
    }
    for (uint32_t i = 0; i < job->server_count; i++) {
        whole = whole && !job->servers[i].frozen;
    }
    whole = whole && job->server != NULL && !job->write_armed;
    return now > FAULTS_UNTIL_S * SEC || (struck && whole) || (!job->options.faults) ||
           (whole && now > FAULTS_WAIT_S * SEC);
}

void job_faults_stop(struct job *job)
{
    job->calm = true;
    wf_sim_set_faults(job->sim, false);
    uint64_t step = job->options.versions;
    for (uint32_t i = 0; i < JOB_TRAIN; i++) {
        step = job->ranks[i].step > step ? job->ranks[i].step : step;
    }
    job->final_step = step + 1;
}
