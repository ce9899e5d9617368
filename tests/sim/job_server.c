/* job_server.c - the job's MetaServers: one at a time, or one beside a frozen one that has lost its
 * address; their journals, their deaths, and what follows.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/job_internal.h"

enum { RESTART_MIN_MS = 2, RESTART_MAX_MS = 1500, FROZEN_MIN_LEASES = 3, FROZEN_MAX_LEASES = 8 };

static struct wf_sim *sim_of(struct job_server *s)
{
    return s->job->sim;
}

static bool is_current(const struct job_server *s)
{
    return s == s->job->current;
}

static enum wf_status append(void *user, const struct wf_journal_record *record,
                             struct wf_error *error)
{
    struct job_server *s = user;
    s->record = record->kind;
    bool recovers = s->server == NULL || s->server->state == WF_SERVER_RECOVER;
    if (record->kind == WF_JOURNAL_OPEN && !record->fill && !recovers) {
        job_check_opened(s->job, record->round.version);
    }
    if (record->kind == WF_JOURNAL_DECIDE) {
        job_check_decided(s->job, record);
    }
    return s->journal != NULL ? wf_journal_file_append(s->journal, record, error) : WF_OK;
}

static void on_ended(void *user, const struct wf_error *why)
{
    struct job_server *s = user;
    if (!wf_sim_rank_is_alive(sim_of(s), wf_sim_rank_id(s->loop))) {
        return; /* what a dead process does reaches nobody */
    }
    s->ended = true;
    s->why = *why;
    if (is_current(s) && why->status == WF_CLOSED) {
        s->job->server_ended = true;
        return;
    }
    /* The clock of the lost server's host was ahead, and nobody who was heard at the start knew its
     * term: whoever watches over this server starts it again, and it goes above. */
    bool was_behind = why->status == WF_STALE && s->job->journal_was_lost;
    if (is_current(s) && why->status != WF_IO && !was_behind) {
        job_fail(s->job, "the server stopped: %s", why->text);
    }
    if (!is_current(s) && why->status == WF_CLOSED) {
        job_fail(s->job, "a server that was replaced ended the job: %s", why->text);
    }
    wf_sim_crash(sim_of(s), s->loop); /* its process ends; torn down after this turn */
}

static void teardown(void *user, struct wf_loop *loop)
{
    struct job_server *s = user;
    struct job *job = s->job;
    (void)loop;
    wf_meta_server_free(s->server);
    wf_journal_file_close(s->journal);
    s->server = NULL;
    s->journal = NULL;
    s->alive = s->frozen = false;
    if (is_current(s)) {
        job->server = NULL;
        job->server_restart_ns = wf_sim_now_ns(job->sim) +
                                 wf_sim_range(job->sim, RESTART_MIN_MS * MS, RESTART_MAX_MS * MS);
    }
}

static void must(enum wf_status status, const struct wf_error *error)
{
    if (status != WF_OK) {
        fprintf(stderr, "a server cannot start: %s\n", error->text);
        abort();
    }
}

void job_server_start(struct job *job)
{
    static const uint32_t engine_of[JOB_INFER] = {0, 0, 1, 1};
    static const uint32_t fills[] = {WF_FILL_ANY, WF_FILL_ANY | WF_FILL_STORE, WF_FILL_STORE};
    struct wf_error error = {0};
    WF_ASSERT(job->server_count < JOB_SERVERS_MAX);
    job->hurt_ns = wf_sim_now_ns(job->sim); /* what it decides is not what was recorded */
    struct job_server *s = &job->servers[job->server_count++];
    bool recover = job->server_recovers;
    *s = (struct job_server){.job = job, .alive = true};
    job->current = s;
    job->server = NULL;
    job->server_recovers = false;
    s->loop = wf_sim_rank_new(job->sim, "server", teardown, s);
    struct wf_server_options options = {.job = "simulated",
                                        .token = &job->token,
                                        .listen = "server",
                                        .train_ranks = JOB_TRAIN,
                                        .infer_ranks = JOB_INFER,
                                        .engines = JOB_ENGINES,
                                        .engine_of = engine_of,
                                        .policy = job->options.policy,
                                        .every = job->options.every,
                                        .drop_to_latest = job->options.drop_to_latest,
                                        .fill =
                                            job->options.no_fill ? 0 : fills[job->options.store],
                                        .timeouts = job_timeouts(),
                                        .validate_every = job->options.validate_every,
                                        .attempts_max = job->options.attempts_max,
                                        .journal = append, /* without a file: it looks only */
                                        .user = s,
                                        .ended = on_ended};
    if (job->options.server_faults) {
        char folder[24];
        snprintf(folder, sizeof folder, "disk %u", job->server_disk);
        must(wf_journal_file_open(wf_loop_env(s->loop), folder, "simulated", recover, &s->journal,
                                  &error),
             &error);
        options.found = wf_journal_file_state(s->journal);
        options.recover = recover;
    }
    must(wf_meta_server_new(s->loop, &options, job->address, &s->server, &error), &error);
    job->server = s->server;
}

/* --- faults -------------------------------------------------------------------------------------
 */
static void freeze(struct job *job, uint64_t min_ns, uint64_t max_ns)
{
    struct job_server *s = job->current;
    if (!s->frozen) {
        s->frozen = true;
        s->thaw_ns = wf_sim_now_ns(job->sim) + wf_sim_range(job->sim, min_ns, max_ns);
        wf_sim_freeze(job->sim, s->loop);
    }
}

static void count_strike(struct job *job, enum job_fault_kind done, uint64_t until_ns)
{
    job->result->struck_server++;
    job->result->struck_server_by[done]++;
    job->hurt_ns = job->hurt_ns > until_ns ? job->hurt_ns : until_ns;
}

/* Another server, on another host, gets the address of one that does not answer. */
static void take_over(struct job *job)
{
    struct job_server *old = job->current;
    const uint64_t lease = job_timeouts().lease_ns;
    freeze(job, FROZEN_MIN_LEASES * lease, FROZEN_MAX_LEASES * lease);
    wf_sim_move_names(job->sim, old->loop);
    job->server_disk++;
    job->server_recovers = job->journal_was_lost = true;
    job_server_start(job);
    job_observer_again(job);
}

/* Not the first writes: the server exists before it can die. */
static enum wf_sim_write on_write(void *user, struct wf_loop *loop, const char *name,
                                  const void *bytes, size_t len)
{
    struct job *job = user;
    (void)name, (void)bytes, (void)len;
    if (!job->write_armed || job->server == NULL || loop != job->current->loop) {
        return WF_SIM_WRITE_DONE;
    }
    job->write_armed = false;
    job->result->struck_record[job->current->record]++;
    count_strike(job, JOB_WRITE, wf_sim_now_ns(job->sim));
    return job->write_what;
}

void job_server_strike(struct job *job, enum job_fault_kind kind)
{
    const struct wf_timeouts t = job_timeouts();
    const uint64_t now = wf_sim_now_ns(job->sim);
    bool can_die = job->options.server_faults && job->server_count < JOB_SERVERS_MAX - 1;
    if (job->server == NULL || job->current->frozen) {
        return;
    }
    switch (kind) {
    case JOB_LOSE:
    case JOB_CRASH:
        if (can_die) {
            if (kind == JOB_LOSE) {
                char folder[24];
                snprintf(folder, sizeof folder, "disk %u", job->server_disk);
                wf_sim_folder_erase(job->sim, folder);
                job->server_recovers = job->journal_was_lost = true;
            }
            count_strike(job, kind, now);
            wf_sim_crash(job->sim, job->current->loop);
            break;
        } /* fall through */
    case JOB_FREEZE_LONG:
        freeze(job, 1 * MS, 4 * t.lease_ns);
        count_strike(job, JOB_FREEZE_LONG, job->current->thaw_ns);
        break;
    case JOB_TAKEOVER:
        if (can_die) {
            count_strike(job, kind, now);
            take_over(job);
        }
        break;
    case JOB_WRITE:
        if (can_die && !job->write_armed) {
            static const enum wf_sim_write what[] = {WF_SIM_WRITE_DIES, WF_SIM_WRITE_TORN,
                                                     WF_SIM_WRITE_THEN_DIES, WF_SIM_WRITE_FAILS};
            job->write_armed = true;
            job->write_what = what[wf_sim_choose(job->sim, 4)];
            wf_sim_on_write(job->sim, on_write, job);
        }
        break;
    case JOB_FREEZE_SHORT:
        freeze(job, 1 * MS, t.lease_ns);
        count_strike(job, kind, job->current->thaw_ns);
        break;
    default: {
        uint64_t stall = wf_sim_range(job->sim, 1 * MS, 2 * t.lease_ns);
        wf_sim_stall(job->sim, job->current->loop, stall);
        count_strike(job, JOB_STALL, now + stall);
        break;
    }
    }
}

void job_server_step(struct job *job)
{
    uint64_t now = wf_sim_now_ns(job->sim);
    for (uint32_t i = 0; i < job->server_count; i++) {
        struct job_server *s = &job->servers[i];
        /* One that another took over from would not be missed if it came back at once: its ranks
         * would stay with it, and the other never hear of them. */
        if (s->frozen && ((job->calm && s == job->current) || now >= s->thaw_ns)) {
            s->frozen = false;
            wf_sim_thaw(job->sim, s->loop);
        }
    }
    if (job->calm) {
        job->write_armed = false;
    }
    if (job->server == NULL && (job->calm || now >= job->server_restart_ns)) {
        job_server_start(job);
    }
}
