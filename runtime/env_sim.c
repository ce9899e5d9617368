/* env_sim.c - the simulated world: ranks and their turns, crashes and freezes, the order of steps.
 */
#include "runtime/env_sim.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/sim_internal.h"
#include "runtime/splitmix.h"

enum {
    SIM_CLOCK_OFFSET_MAX_S = 100000, /* how far monotonic clocks of ranks lie apart */
    SIM_WALL_SKEW_MAX_S = 3,
    SIM_DRAIN_PASSES_MAX = 1 << 20, /* a rank that never runs dry is a bug of its actors */
};
#define SIM_WALL_START_S UINT64_C(1700000000)
#define SIM_MILLION UINT64_C(1000000)

/* --- turns ------------------------------------------------------------------------------------ */
static void turn_schedule(struct wf_sim *sim, struct sim_rank *rank, uint64_t time_ns)
{
    if (rank->turn_pending && rank->turn_time_ns <= time_ns) {
        return;
    }
    struct wf_sim_event *event = sim_event_new(sim, SIM_TURN, rank->id);
    event->turn = ++rank->turn; /* an earlier one of this rank is stale from now on */
    rank->turn_pending = true;
    rank->turn_time_ns = time_ns;
    sim_event_push(sim, event, time_ns);
}

/* Draws nothing when a turn is due soon enough: asking twice changes nothing. */
void sim_rank_wake(struct wf_sim *sim, struct sim_rank *rank)
{
    if (!rank->alive || rank->frozen || rank->in_turn) {
        return;
    }
    if (wf_loop_has_work(rank->loop)) {
        if (!rank->turn_pending || rank->turn_time_ns > sim->now_ns + sim->options.turn_max_ns) {
            turn_schedule(sim, rank, sim->now_ns + wf_sim_range(sim, 0, sim->options.turn_max_ns));
        }
        return;
    }
    uint64_t due = wf_loop_next_timer_ns(rank->loop);
    if (due == WF_NEVER_NS) {
        return;
    }
    due = due < rank->clock_offset_ns ? 0 : due - rank->clock_offset_ns;
    if (due < sim->now_ns) {
        due = sim->now_ns;
    }
    if (rank->turn_pending && rank->turn_time_ns <= due + sim->options.timer_late_max_ns) {
        return;
    }
    uint64_t time = due + wf_sim_range(sim, 0, sim->options.timer_late_max_ns);
    if (wf_sim_chance(sim, sim->options.spurious_per_million)) {
        time = wf_sim_range(sim, sim->now_ns, time);
    }
    turn_schedule(sim, rank, time);
}

static void wake_all(struct wf_sim *sim)
{
    for (uint32_t i = 0; i < sim->rank_count; i++) {
        sim_rank_wake(sim, sim->ranks[i]);
    }
}

/* --- the env's table -------------------------------------------------------------------------- */
struct sim_rank *sim_rank_of_env(struct wf_env *env)
{
    return (struct sim_rank *)env;
}

static uint64_t env_now_ns(struct wf_env *env)
{
    struct sim_rank *rank = sim_rank_of_env(env);
    return rank->sim->now_ns + rank->clock_offset_ns;
}

static uint64_t env_wall_s(struct wf_env *env)
{
    struct sim_rank *rank = sim_rank_of_env(env);
    return SIM_WALL_START_S + rank->wall_offset_s + rank->sim->now_ns / (1000 * SIM_MILLION);
}

static uint64_t env_choose(struct wf_env *env, uint64_t n)
{
    return wf_sim_choose(sim_rank_of_env(env)->sim, n);
}

static void env_random(struct wf_env *env, void *bytes, size_t len_bytes)
{
    struct sim_rank *rank = sim_rank_of_env(env);
    for (uint8_t *to = bytes; len_bytes > 0;) {
        uint64_t word = sim_draw(rank->sim);
        size_t part = len_bytes < sizeof word ? len_bytes : sizeof word;
        memcpy(to, &word, part);
        to += part;
        len_bytes -= part;
    }
}

static void env_job(struct wf_env *env, struct wf_job *job)
{
    if (job->owner == NULL) {
        job->work(job);
        return;
    }
    struct sim_rank *rank = sim_rank_of_env(env);
    struct wf_sim *sim = rank->sim;
    struct wf_sim_event *event = sim_event_new(sim, SIM_JOB, rank->id);
    event->job = job;
    if (!rank->alive) {
        event->is_held = true; /* for wf_sim_drain */
        sim_list_append(&rank->held, event);
        return;
    }
    sim_list_append(&rank->pending, event);
    sim_event_push(sim, event,
                   sim->now_ns +
                       wf_sim_range(sim, sim->options.job_min_ns, sim->options.job_max_ns));
}

static const struct wf_env_ops sim_ops = {
    .now_ns = env_now_ns,
    .wall_s = env_wall_s,
    .choose = env_choose,
    .random = env_random,
    .listen = sim_wire_listen,
    .connect = sim_wire_connect,
    .guard = sim_wire_guard,
    .trust = sim_wire_trust,
    .send = sim_wire_send,
    .send_shared = sim_wire_send_shared,
    .close = sim_wire_close,
    .folder_open = sim_files_open,
    .file_read = sim_files_read,
    .file_append = sim_files_append,
    .file_replace = sim_files_replace,
    .folder_close = sim_files_close,
    .job = env_job,
};

/* --- delivery --------------------------------------------------------------------------------- */
static void rank_teardown(struct sim_rank *rank);

static void turn_run(struct sim_rank *rank)
{
    rank->turn_pending = false;
    rank->in_turn = true;
    wf_loop_turn(rank->loop);
    rank->in_turn = false;
    if (!rank->alive) {
        rank_teardown(rank); /* it was crashed from its own turn */
    }
}

/* An event whose time has come, of a rank that is alive or of nobody. Takes it. */
static void deliver(struct wf_sim *sim, struct wf_sim_event *event)
{
    struct sim_rank *rank = event->rank == WF_SIM_HOST ? NULL : sim->ranks[event->rank];
    if (rank != NULL && rank->frozen) {
        if (event->kind == SIM_TURN) {
            rank->turn_pending = false;
            sim_event_free(sim, event);
            return;
        }
        if (event->job != NULL || event->call != NULL) {
            sim_list_remove(&rank->pending, event);
        }
        event->is_held = true;
        sim_list_append(&rank->held, event);
        return;
    }
    event->is_held = false;
    sim_trace_event(sim, event);
    struct wf_job *job = event->job;
    struct wf_sim_call *call = event->call;
    switch (event->kind) {
    case SIM_TURN:
        turn_run(rank);
        break;
    case SIM_JOB:
        sim_list_remove(&rank->pending, event);
        job->work(job);
        wf_send(job->owner, &job->done);
        break;
    case SIM_CALL:
        if (rank != NULL) {
            sim_list_remove(&rank->pending, event);
        }
        call->event = NULL;
        call->run(call);
        break;
    default:
        sim_wire_deliver(sim, event);
        break;
    }
    sim_event_free(sim, event);
    if (rank != NULL) {
        sim_rank_wake(sim, rank);
    } else if (call != NULL) {
        wake_all(sim);
    }
}

/* --- ranks ------------------------------------------------------------------------------------ */
static struct sim_rank *rank_of_loop(struct wf_loop *loop)
{
    struct wf_env *env = wf_loop_env(loop);
    return env == NULL || env->ops != &sim_ops ? NULL : sim_rank_of_env(env);
}

static struct sim_rank *rank_of(const struct wf_sim *sim, struct wf_loop *loop)
{
    struct sim_rank *rank = rank_of_loop(loop);
    WF_ASSERT(rank != NULL && rank->sim == sim);
    return rank;
}

struct wf_loop *wf_sim_rank_new(struct wf_sim *sim, const char *name, wf_sim_teardown_t *teardown,
                                void *user)
{
    struct sim_rank *rank = sim_alloc(sizeof *rank);
    rank->env.ops = &sim_ops;
    rank->sim = sim;
    rank->name = sim_copy_text(name);
    rank->teardown = teardown;
    rank->user = user;
    rank->id = sim->rank_count;
    rank->alive = true;
    rank->clock_offset_ns = wf_sim_choose(sim, SIM_CLOCK_OFFSET_MAX_S * 1000 * SIM_MILLION);
    rank->wall_offset_s = wf_sim_choose(sim, SIM_WALL_SKEW_MAX_S + 1);
    enum wf_status status = wf_loop_new(
        &(struct wf_loop_options){.poller = WF_POLLER_NONE, .spin_ns = 0}, &rank->loop, NULL);
    WF_ASSERT(status == WF_OK);
    wf_loop_set_env(rank->loop, &rank->env);
    uint64_t cap = sim->rank_cap;
    sim_grow(&sim->ranks, sim->rank_count, &cap, sizeof *sim->ranks);
    sim->rank_cap = (uint32_t)cap;
    sim->ranks[sim->rank_count++] = rank;
    return rank->loop;
}

static void rank_teardown(struct sim_rank *rank)
{
    if (rank->loop == NULL) {
        return;
    }
    if (rank->teardown != NULL) {
        rank->teardown(rank->user, rank->loop);
    }
    struct wf_loop *loop = rank->loop;
    rank->loop = NULL;
    for (struct wf_sim_event *event; (event = rank->held.first) != NULL;) {
        sim_list_remove(&rank->held, event);
        sim_event_free(rank->sim, event);
    }
    wf_loop_free(loop);
}

static void rank_kill(struct wf_sim *sim, struct sim_rank *rank)
{
    rank->alive = rank->frozen = rank->turn_pending = false;
    sim_trace_mix(sim, rank->id);
    for (struct wf_sim_event *event = rank->held.first, *next; event != NULL; event = next) {
        next = event->next;
        if (event->wire != NULL) {
            sim_list_remove(&rank->held, event);
            sim_event_free(sim, event);
        }
    }
    /* What is pending stays in the heap as an empty shell; its content waits for wf_sim_drain. */
    for (struct wf_sim_event *event; (event = rank->pending.first) != NULL;) {
        sim_list_remove(&rank->pending, event);
        struct wf_sim_event *lost = sim_event_new(sim, event->kind, rank->id);
        lost->job = event->job;
        lost->call = event->call;
        if (lost->call != NULL) {
            lost->call->event = lost;
        }
        event->kind = SIM_NONE;
        event->job = NULL;
        event->call = NULL;
        lost->is_held = true;
        sim_list_append(&rank->held, lost);
    }
    sim_wire_crash(sim, rank->id);
}

void wf_sim_crash(struct wf_sim *sim, struct wf_loop *loop)
{
    struct sim_rank *rank = rank_of(sim, loop);
    if (rank->alive) {
        rank_kill(sim, rank);
        if (!rank->in_turn) {
            rank_teardown(rank);
        }
    }
}

void wf_sim_drain(struct wf_sim *sim, struct wf_loop *loop)
{
    struct sim_rank *rank = rank_of(sim, loop);
    WF_ASSERT(!rank->alive && !rank->in_turn);
    sim_wire_drain(sim, rank->id);
    for (uint32_t passes = 0; rank->held.first != NULL || wf_loop_has_work(loop); passes++) {
        WF_ASSERT(passes < SIM_DRAIN_PASSES_MAX);
        for (struct wf_sim_event *event; (event = rank->held.first) != NULL;) {
            sim_list_remove(&rank->held, event);
            if (event->job != NULL) {
                wf_send(event->job->owner, &event->job->done);
            } else if (event->call != NULL) {
                event->call->event = NULL;
                if (event->call->lost != NULL) {
                    event->call->lost(event->call);
                }
            }
            sim_event_free(sim, event);
        }
        wf_loop_turn(loop);
    }
}

void wf_sim_freeze(struct wf_sim *sim, struct wf_loop *loop)
{
    struct sim_rank *rank = rank_of(sim, loop);
    rank->frozen = rank->alive;
}

void wf_sim_thaw(struct wf_sim *sim, struct wf_loop *loop)
{
    struct sim_rank *rank = rank_of(sim, loop);
    if (!rank->frozen) {
        return;
    }
    rank->frozen = false;
    /* Given now, in their order; what is still in the heap comes later than all of these. */
    for (struct wf_sim_event *event; rank->alive && (event = rank->held.first) != NULL;) {
        sim_list_remove(&rank->held, event);
        if (event->job != NULL || event->call != NULL) {
            sim_list_append(&rank->pending, event);
        }
        event->time_ns = sim->now_ns;
        deliver(sim, event);
    }
    sim_rank_wake(sim, rank);
}

void wf_sim_stall(struct wf_sim *sim, struct wf_loop *loop, uint64_t ns)
{
    struct sim_rank *rank = rank_of(sim, loop);
    uint64_t until = sim->now_ns + ns;
    rank->stalled_until_ns = rank->stalled_until_ns < until ? until : rank->stalled_until_ns;
}

void wf_sim_set_faults(struct wf_sim *sim, bool on)
{
    sim->faults_off = !on;
}

bool wf_sim_faults(const struct wf_sim *sim)
{
    return !sim->faults_off;
}

struct wf_sim *wf_sim_of(struct wf_loop *loop)
{
    struct sim_rank *rank = rank_of_loop(loop);
    return rank == NULL ? NULL : rank->sim;
}

uint32_t wf_sim_rank_id(struct wf_loop *loop)
{
    struct sim_rank *rank = rank_of_loop(loop);
    WF_ASSERT(rank != NULL);
    return rank->id;
}

bool wf_sim_rank_is_alive(const struct wf_sim *sim, uint32_t rank)
{
    return rank < sim->rank_count && sim->ranks[rank]->alive;
}

/* --- calls and regions ------------------------------------------------------------------------ */
void wf_sim_call_after(struct wf_sim *sim, uint32_t rank, uint64_t delay_ns,
                       struct wf_sim_call *call)
{
    WF_ASSERT(call->event == NULL);
    struct wf_sim_event *event = sim_event_new(sim, SIM_CALL, rank);
    event->call = call;
    call->event = event;
    if (rank != WF_SIM_HOST) {
        struct sim_rank *owner = sim->ranks[rank];
        if (!owner->alive) {
            event->is_held = true; /* for wf_sim_drain */
            sim_list_append(&owner->held, event);
            return;
        }
        sim_list_append(&owner->pending, event);
    }
    sim_event_push(sim, event, sim->now_ns + delay_ns);
}

void wf_sim_call_cancel(struct wf_sim *sim, struct wf_sim_call *call)
{
    struct wf_sim_event *event = call->event;
    if (event == NULL) {
        return;
    }
    call->event = NULL;
    event->call = NULL;
    event->kind = SIM_NONE;
    if (event->rank == WF_SIM_HOST) {
        return;
    }
    struct sim_rank *owner = sim->ranks[event->rank];
    if (event->is_held) {
        sim_list_remove(&owner->held, event);
        sim_event_free(sim, event);
    } else {
        sim_list_remove(&owner->pending, event);
    }
}

uint64_t wf_sim_region_add(struct wf_sim *sim, uint32_t rank, const void *address,
                           uint64_t len_bytes)
{
    sim_grow(&sim->regions, sim->region_count, &sim->region_cap, sizeof *sim->regions);
    sim->regions[sim->region_count] =
        (struct sim_region){.address = address, .len_bytes = len_bytes, .rank = rank};
    return sim->region_count++;
}

void wf_sim_region_remove(struct wf_sim *sim, uint64_t region)
{
    if (region > 0 && region < sim->region_count) {
        sim->regions[region].rank = WF_SIM_HOST; /* which is never alive */
    }
}

bool wf_sim_region_find(const struct wf_sim *sim, uint64_t region, const void **address_out,
                        uint64_t *len_bytes_out)
{
    if (region == 0 || region >= sim->region_count ||
        !wf_sim_rank_is_alive(sim, sim->regions[region].rank)) {
        return false;
    }
    *address_out = sim->regions[region].address;
    *len_bytes_out = sim->regions[region].len_bytes;
    return true;
}

/* --- the world -------------------------------------------------------------------------------- */
struct wf_sim *wf_sim_new(uint64_t seed, const struct wf_sim_options *options)
{
    struct wf_sim *sim = sim_alloc(sizeof *sim);
    sim->options = options == NULL ? (struct wf_sim_options){0} : *options;
    struct wf_sim_options *o = &sim->options;
    o->latency_max_ns = o->latency_max_ns == 0 ? 2 * SIM_MILLION : o->latency_max_ns;
    o->job_max_ns = o->job_max_ns == 0 ? SIM_MILLION : o->job_max_ns;
    o->turn_max_ns = o->turn_max_ns == 0 ? 5000 : o->turn_max_ns;
    o->timer_late_max_ns = o->timer_late_max_ns == 0 ? 20000 : o->timer_late_max_ns;
    for (size_t i = 0; i < sizeof sim->random / sizeof sim->random[0]; i++) {
        sim->random[i] = wf_splitmix64(&seed);
    }
    /* Number 0 of each is never given out. */
    sim_grow(&sim->ports, 0, &sim->port_cap, sizeof *sim->ports);
    sim->ports[0] = NULL;
    sim->port_count = 1;
    sim_grow(&sim->regions, 0, &sim->region_cap, sizeof *sim->regions);
    sim->regions[0] = (struct sim_region){.rank = WF_SIM_HOST};
    sim->region_count = 1;
    return sim;
}

void wf_sim_free(struct wf_sim *sim)
{
    if (sim == NULL) {
        return;
    }
    for (uint32_t i = sim->rank_count; i > 0; i--) {
        struct sim_rank *rank = sim->ranks[i - 1];
        WF_ASSERT(!rank->in_turn);
        if (rank->alive) {
            rank_kill(sim, rank);
        }
        rank_teardown(rank);
    }
    for (uint32_t i = 0; i < sim->heap_len; i++) {
        sim_event_free(sim, sim->heap[i]);
    }
    for (struct wf_sim_event *event; (event = sim->free_events) != NULL;) {
        sim->free_events = event->next;
        free(event);
    }
    for (uint32_t i = 0; i < sim->rank_count; i++) {
        free(sim->ranks[i]->name);
        free(sim->ranks[i]);
    }
    sim_wire_fini(sim);
    sim_files_fini(sim);
    free(sim->heap);
    free(sim->ranks);
    free(sim->regions);
    free(sim);
}

uint64_t wf_sim_now_ns(const struct wf_sim *sim)
{
    return sim->now_ns;
}

/* Skips what cannot happen any more, so that time does not move for it. */
static bool event_is_stale(const struct wf_sim *sim, const struct wf_sim_event *event)
{
    if (event->kind == SIM_NONE) {
        return true;
    }
    if (event->rank == WF_SIM_HOST) {
        return false;
    }
    const struct sim_rank *rank = sim->ranks[event->rank];
    return !rank->alive || (event->kind == SIM_TURN && event->turn != rank->turn);
}

static bool step(struct wf_sim *sim, uint64_t deadline_ns)
{
    while (sim->heap_len > 0) {
        struct wf_sim_event *event = sim->heap[0];
        if (event_is_stale(sim, event)) {
            sim_event_free(sim, sim_event_pop(sim));
            continue;
        }
        if (event->time_ns > deadline_ns) {
            return false;
        }
        sim_event_pop(sim);
        sim->now_ns = event->time_ns;
        deliver(sim, event);
        return true;
    }
    return false;
}

bool wf_sim_step(struct wf_sim *sim)
{
    wake_all(sim);
    return step(sim, WF_NEVER_NS);
}

bool wf_sim_run(struct wf_sim *sim, bool (*done)(void *user), void *user, uint64_t deadline_ns)
{
    wake_all(sim);
    while (done == NULL || !done(user)) {
        if (step(sim, deadline_ns)) {
            continue;
        }
        /* Something may have been touched from another rank's turn. */
        wake_all(sim);
        if (!step(sim, deadline_ns)) {
            if (sim->now_ns < deadline_ns && deadline_ns != WF_NEVER_NS) {
                sim->now_ns = deadline_ns;
            }
            return false;
        }
    }
    return true;
}
