/* ask.c - connect, prove, ask, and wait for one answer. */
#include "tools/watch/ask.h"

#include <stddef.h>
#include <string.h>

#include "actors/handshake.h"

struct asker {
    struct wf_actor actor;
    struct wf_loop *loop;
    struct wf_env *env;
    struct wf_timer timer;
    const char *address, *job;
    const struct wf_token *token;
    uint64_t conn;
    struct wf_handshake handshake;
    struct wf_frame *answer;
    struct wf_error error; /* OK while it waits */
    bool done;
};

static void finish(struct asker *asker)
{
    asker->done = true;
    wf_loop_stop(asker->loop);
}

static void take_frame(struct asker *asker, const struct wf_wire_msg *wire)
{
    struct wf_frame frame;
    if (wf_frame_decode(wire->bytes, wire->len_bytes, &frame, &asker->error) != WF_OK) {
        finish(asker);
        return;
    }
    if (!asker->handshake.done) {
        if (wf_handshake_observe(&asker->handshake, asker->env, asker->conn, asker->token,
                                 asker->job, &frame, &asker->error) != WF_OK) {
            finish(asker);
        } else if (asker->handshake.done) {
            const struct wf_frame_status_request request = {.ranks = WF_RANKS_MAX};
            wf_frame_send(asker->env, asker->conn, WF_FRAME_status_request, &request, -1);
        }
    } else if (frame.type == WF_FRAME_status) {
        *asker->answer = frame;
        finish(asker);
        return;
    } else if (frame.type == WF_FRAME_refused || frame.type == WF_FRAME_leave) {
        wf_error_set(&asker->error, WF_REFUSED, "%s",
                     frame.type == WF_FRAME_refused ? frame.refused.text : frame.leave.reason);
        finish(asker);
    }
    wf_frame_fini(&frame);
}

static enum wf_verdict on_message(struct wf_actor *self, struct wf_msg *msg)
{
    struct asker *asker = (struct asker *)self;
    const struct wf_wire_msg *wire = (const struct wf_wire_msg *)msg;
    if (asker->done || wire->conn != asker->conn) {
        return WF_FREE;
    }
    if (msg->kind == WF_WIRE_FRAME) {
        take_frame(asker, wire);
    } else if (msg->kind == WF_WIRE_CLOSED) {
        wf_error_set(&asker->error, WF_CONNECTION, "%s", wire->text);
        finish(asker);
    }
    return WF_FREE;
}

static void on_timer(struct wf_timer *timer)
{
    struct asker *asker = WF_CONTAINER(timer, struct asker, timer);
    wf_error_set(&asker->error, WF_TIMED_OUT, "%s does not answer", asker->address);
    finish(asker);
}

enum wf_status wf_ask_status(struct wf_loop *loop, const char *address, const char *job,
                             const struct wf_token *token, uint64_t timeout_ns,
                             struct wf_frame *status_out, struct wf_error *error)
{
    struct asker asker = {.loop = loop,
                          .env = wf_loop_env(loop),
                          .address = address,
                          .job = job,
                          .token = token,
                          .answer = status_out,
                          .timer = {.fire = on_timer, .name = "a status"}};
    wf_actor_init(&asker.actor, loop, "asker", on_message);
    enum wf_status status =
        asker.env->ops->connect(asker.env, &asker.actor, address, &asker.conn, &asker.error);
    if (status == WF_OK) {
        wf_timer_arm(loop, &asker.timer, wf_loop_now_ns(loop) + timeout_ns);
        wf_loop_run(loop);
        status = asker.error.status;
        wf_timer_cancel(loop, &asker.timer);
        asker.env->ops->close(asker.env, asker.conn);
    }
    if (status != WF_OK) {
        *error = asker.error;
    }
    wf_actor_close(&asker.actor);
    wf_actor_fini(&asker.actor);
    return status;
}
