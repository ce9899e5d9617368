/* live.c - asks the server who holds what, and waits for whatever comes. */
#include "tools/live/live.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/live/live_private.h"

/* --- waiting --------------------------------------------------------------------------------- */

static void on_timer(struct wf_timer *timer)
{
    struct wf_live *live = WF_CONTAINER(timer, struct wf_live, timer);
    live->late = true;
    wf_loop_stop(live->loop);
}

bool live_wait(struct wf_live *live, bool (*done)(void *user), void *user, uint64_t ns)
{
    live->late = false;
    if (ns > 0) {
        wf_timer_arm(live->loop, &live->timer, wf_loop_now_ns(live->loop) + ns);
    }
    while (!done(user) && !live->late) {
        wf_loop_run(live->loop);
    }
    wf_timer_cancel(live->loop, &live->timer);
    return done(user);
}

/* --- the server ------------------------------------------------------------------------------ */

static enum wf_status take_from_server(struct wf_live *live, struct wf_frame *frame,
                                       struct wf_error *error)
{
    if (!live->handshake.done) {
        enum wf_status status =
            wf_handshake_observe(&live->handshake, live->env, live->conn, live->options.token,
                                 live->options.job, frame, error);
        if (status == WF_OK && live->handshake.done) {
            const struct wf_frame_look look = {.proto_min = WF_PROTOCOL_MIN,
                                               .proto_max = WF_PROTOCOL_MAX};
            wf_frame_send(live->env, live->conn, WF_FRAME_look, &look, -1);
        }
        return status;
    }
    struct wf_table *table = NULL;
    enum wf_status status = WF_OK;
    switch (frame->type) {
    case WF_FRAME_placement:
        status = wf_table_of_frame(&frame->placement, &table, error);
        if (status == WF_OK) {
            wf_tables_put(&live->tables, frame->placement.engine, table);
        }
        return status;
    case WF_FRAME_members:
        live->members = *frame;
        *frame = (struct wf_frame){0};
        return WF_OK;
    case WF_FRAME_refused:
        return wf_error_set(error, frame->refused.status == WF_AGAIN ? WF_AGAIN : WF_REFUSED, "%s",
                            frame->refused.text);
    case WF_FRAME_leave:
        return wf_error_set(error, WF_REFUSED, "%s", frame->leave.reason);
    default: /* news for those who watch */
        return WF_OK;
    }
}

static void server_message(struct wf_live *live, const struct wf_wire_msg *msg)
{
    struct wf_frame frame;
    if (msg->msg.kind == WF_WIRE_CLOSED) {
        wf_error_set(&live->error, WF_CONNECTION, "%s", msg->text);
    } else if (msg->msg.kind == WF_WIRE_FRAME &&
               wf_frame_decode(msg->bytes, msg->len_bytes, &frame, &live->error) == WF_OK) {
        take_from_server(live, &frame, &live->error);
        wf_frame_fini(&frame);
    }
}

static enum wf_verdict on_message(struct wf_actor *self, struct wf_msg *msg)
{
    struct wf_live *live = WF_CONTAINER(self, struct wf_live, actor);
    struct wf_wire_msg *wire = (struct wf_wire_msg *)msg;
    wf_loop_stop(live->loop);
    switch (msg->kind) {
    case WF_IMPORT_DONE:
        live_rank_imported(msg);
        return WF_KEEP;
    case WF_READ_DONE:
        live->read_open = false;
        return WF_KEEP;
    case WF_WIRE_FRAME:
    case WF_WIRE_CLOSED:
        if (wire->conn == live->conn) {
            server_message(live, wire);
        }
        for (uint32_t i = 0; i < live->rank_count; i++) {
            if (live->ranks[i]->conn == wire->conn) {
                live_rank_message(live->ranks[i], wire);
                break;
            }
        }
        return WF_FREE;
    default:
        return WF_FREE;
    }
}

static bool has_members(void *user)
{
    const struct wf_live *live = user;
    return live->error.status != WF_OK || live->members.type == WF_FRAME_members;
}

static enum wf_status ask_server(struct wf_live *live, struct wf_error *error)
{
    const struct wf_live_options *o = &live->options;
    enum wf_status status =
        live->env->ops->connect(live->env, &live->actor, o->address, &live->conn, error);
    if (status != WF_OK) {
        live->conn = 0;
        return status;
    }
    if (!live_wait(live, has_members, live, o->timeout_ns)) {
        status = wf_error_set(error, WF_TIMED_OUT, "the server at %s does not answer", o->address);
    } else if (live->error.status != WF_OK) {
        status = live->error.status;
        *error = live->error;
    }
    /* What it says of rounds would only fill the queue. */
    live->env->ops->close(live->env, live->conn);
    live->conn = 0;
    return status;
}

/* --- entrances ------------------------------------------------------------------------------- */

enum wf_status wf_live_open(const struct wf_live_options *options, struct wf_live **live_out,
                            struct wf_error *error)
{
    struct wf_live *live = calloc(1, sizeof *live);
    if (live == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for an observer");
    }
    live->options = *options;
    live->loop = options->loop;
    live->env = wf_loop_env(live->loop);
    live->timer = (struct wf_timer){.fire = on_timer, .name = "an answer"};
    wf_actor_init(&live->actor, live->loop, "live", on_message);
    enum wf_status status = ask_server(live, error);
    if (status != WF_OK) {
        wf_live_free(live);
        return status;
    }
    *live_out = live;
    return WF_OK;
}

static bool no_imports(void *user)
{
    const struct wf_live *live = user;
    uint32_t out = 0;
    for (uint32_t i = 0; i < live->rank_count; i++) {
        out += live->ranks[i]->imports;
    }
    return out == 0;
}

void wf_live_free(struct wf_live *live)
{
    if (live == NULL) {
        return;
    }
    live_wait(live, no_imports, live, 0); /* the transports' threads still point here */
    for (uint32_t i = 0; i < live->rank_count; i++) {
        live_rank_free(live->ranks[i]);
    }
    free(live->ranks);
    wf_frame_fini(&live->members);
    wf_tables_fini(&live->tables);
    wf_actor_close(&live->actor);
    wf_actor_fini(&live->actor);
    free(live);
}

const struct wf_frame_members *wf_live_members(const struct wf_live *live)
{
    return &live->members.members;
}

const struct wf_tables *wf_live_tables(const struct wf_live *live)
{
    return &live->tables;
}

/* --- one version ----------------------------------------------------------------------------- */

static bool never(void *user)
{
    (void)user;
    return false;
}

/* All ranks hold one version; otherwise STALE, and a sentence about two of them. */
static enum wf_status agree(struct wf_live *live, struct wf_error *error)
{
    const struct wf_live_rank *first = live->ranks[0];
    for (uint32_t i = 0; i < live->rank_count; i++) {
        const struct wf_live_rank *rank = live->ranks[i];
        char ours[WF_VERSION_TEXT], theirs[WF_VERSION_TEXT];
        wf_version_format(first->held.version, ours);
        wf_version_format(rank->held.version, theirs);
        if (wf_version_is_none(rank->held.version)) {
            return wf_error_set(error, WF_STALE, "%s %s", rank->who, rank->held.why);
        }
        if (wf_version_compare(rank->held.version, first->held.version) != 0) {
            return wf_error_set(error, WF_STALE, "%s holds version %s, and %s %s", first->who, ours,
                                rank->who, theirs);
        }
    }
    return WF_OK;
}

enum wf_status wf_live_begin(struct wf_live *live, struct wf_version *version_out,
                             struct wf_error *error)
{
    uint64_t until = wf_loop_now_ns(live->loop) + live->options.timeout_ns;
    enum wf_status status;
    WF_ASSERT(live->rank_count > 0);
    for (;;) {
        for (uint32_t i = 0; i < live->rank_count; i++) {
            status = live_rank_look(live->ranks[i], error);
            if (status != WF_OK) {
                return status;
            }
        }
        status = agree(live, error);
        if (status == WF_OK || wf_loop_now_ns(live->loop) >= until) {
            break;
        }
        live_wait(live, never, NULL, LIVE_AGAIN_NS);
    }
    for (uint32_t i = 0; i < live->rank_count && status == WF_OK; i++) {
        live->ranks[i]->first = live->ranks[i]->held;
        *version_out = live->ranks[i]->held.version;
    }
    return status;
}

enum wf_status wf_live_check(struct wf_live *live, struct wf_error *error)
{
    enum wf_status status = WF_OK;
    for (uint32_t i = 0; i < live->rank_count && status == WF_OK; i++) {
        status = live_rank_look(live->ranks[i], error);
        status = status == WF_OK ? live_rank_same(live->ranks[i], error) : status;
    }
    return status;
}
