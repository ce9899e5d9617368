/* job_observer.c - listens to the server's reports, as `weft run` does. */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/job_internal.h"

static struct job *job_of(struct wf_actor *self)
{
    return WF_CONTAINER(self, struct job, observer.actor);
}

static void connect_server(struct job *job)
{
    struct wf_env *env = wf_loop_env(job->observer_loop);
    struct wf_error error = {0};
    job->observer.handshake = (struct wf_handshake){0};
    if (env->ops->connect(env, &job->observer.actor, job->address, &job->observer.conn, &error) !=
        WF_OK) {
        job_fail(job, "the observer cannot connect: %s", error.text);
    }
}

static void on_retry(struct wf_timer *timer)
{
    connect_server(WF_CONTAINER(timer, struct job, observer.retry));
}

static void on_report(struct job *job, const struct wf_frame_round_report *report)
{
    struct job_result *result = job->result;
    result->digest_mismatches += report->digest_mismatches;
    if (report->digest_mismatches > 0 && !job->options.corrupt) {
        job_fail(job, "a reader of round %llu saw bytes change under it",
                 (unsigned long long)report->round.version.step);
    }
    job_check_replicas(job, report);
    if (report->decide_ns > report->total_ns || report->flip_ns > report->total_ns) {
        job_fail(job, "a phase of step %llu took longer than its round: decide %llu ns of %llu ns",
                 (unsigned long long)report->round.version.step,
                 (unsigned long long)report->decide_ns, (unsigned long long)report->total_ns);
    }
    if (report->state == WF_REPORT_COMMITTED) {
        result->commits++;
        result->fills += report->fill != 0;
        result->replica_fills += report->source > 0 && report->source != WF_SOURCE_STORE;
        result->store_fills += report->source == WF_SOURCE_STORE;
    } else {
        result->aborts++;
        wf_culprit_format(&report->culprit, result->culprit);
        if (wf_culprit_is_none(&report->culprit)) {
            job_fail(job, "a round was aborted and nobody is named");
        }
        if (getenv("WEFT_SIM_VERBOSE") != NULL) {
            fprintf(stderr, "  aborted step %llu attempt %llu fill %llu: %s\n",
                    (unsigned long long)report->round.version.step,
                    (unsigned long long)report->round.attempt, (unsigned long long)report->fill,
                    result->culprit);
        }
    }
}

static void on_frame(struct job *job, const struct wf_wire_msg *wire)
{
    struct wf_frame frame;
    struct wf_error error = {0};
    struct wf_env *env = wf_loop_env(job->observer_loop);
    if (wf_frame_decode(wire->bytes, wire->len_bytes, &frame, &error) != WF_OK) {
        job_fail(job, "the observer got: %s", error.text);
        return;
    }
    if (!job->observer.handshake.done) {
        if (wf_handshake_observe(&job->observer.handshake, env, wire->conn, &job->token,
                                 "simulated", &frame, &error) != WF_OK) {
            job_fail(job, "the observer was refused: %s", error.text);
        }
    } else if (frame.type == WF_FRAME_round_report) {
        on_report(job, &frame.round_report);
    }
    wf_frame_fini(&frame);
}

static enum wf_verdict on_message(struct wf_actor *self, struct wf_msg *msg)
{
    struct job *job = job_of(self);
    if (((struct wf_wire_msg *)msg)->conn != job->observer.conn) {
        return WF_FREE; /* of the server before */
    }
    if (msg->kind == WF_WIRE_FRAME) {
        on_frame(job, (struct wf_wire_msg *)msg);
    } else if (msg->kind == WF_WIRE_CLOSED && !job->server_ended) {
        wf_timer_arm(job->observer_loop, &job->observer.retry,
                     wf_loop_now_ns(job->observer_loop) + 5 * MS);
    }
    return WF_FREE;
}

static void teardown(void *user, struct wf_loop *loop)
{
    struct job *job = user;
    (void)loop;
    wf_timer_cancel(job->observer_loop, &job->observer.retry);
    wf_actor_close(&job->observer.actor);
    wf_actor_fini(&job->observer.actor);
}

void job_observer_again(struct job *job)
{
    struct wf_env *env = wf_loop_env(job->observer_loop);
    wf_timer_cancel(job->observer_loop, &job->observer.retry);
    env->ops->close(env, job->observer.conn);
    connect_server(job);
}

void job_observer_start(struct job *job)
{
    job->observer_loop = wf_sim_rank_new(job->sim, "observer", teardown, job);
    wf_actor_init(&job->observer.actor, job->observer_loop, "observer", on_message);
    job->observer.retry = (struct wf_timer){.fire = on_retry, .name = "observer"};
    connect_server(job);
}
