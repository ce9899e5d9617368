/* meta_client.c - the rank's side of the protocol: WELCOME, lease, plan, dispatch, end. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/meta_client_internal.h"

uint64_t wf_client_now(const struct wf_meta_client *client)
{
    return wf_loop_now_ns(client->loop);
}

bool wf_client_has_lease(const struct wf_meta_client *client)
{
    return wf_client_now(client) < client->lease_until_ns;
}

void wf_client_send_now(struct wf_meta_client *client, enum wf_frame_type type, const void *fields)
{
    enum wf_status status = wf_frame_send(client->env, client->conn, type, fields, -1);
    WF_ASSERT(status != WF_INVALID);
    client->unsent = client->unsent || status == WF_NO_RESOURCE;
}

void wf_client_send(struct wf_meta_client *client, enum wf_frame_type type, const void *fields)
{
    if (client->link == WF_LINK_UP) {
        wf_client_send_now(client, type, fields);
    }
}

void wf_client_answer(struct wf_meta_client *client, enum wf_frame_type type,
                      const struct wf_round_key *round)
{
    /* All of these are structs of one round key. */
    _Static_assert(sizeof(struct wf_frame_quiesced) == sizeof(struct wf_round_key), "only a key");
    _Static_assert(sizeof(struct wf_frame_told) == sizeof(struct wf_round_key), "only a key");
    wf_client_send(client, type, round);
}

void wf_client_local(struct wf_meta_client *client, struct wf_actor *to, enum wf_local_kind kind,
                     const struct wf_round_key *round, uint64_t slot, uint64_t deadline_ns)
{
    struct wf_local_msg *local = wf_local_msg_new(kind, &client->actor);
    local->round = *round;
    local->slot = slot;
    local->deadline_ns = deadline_ns;
    wf_send(to, &local->msg);
}

void wf_client_remember_round(struct wf_meta_client *client, const struct wf_frame_open *open)
{
    free(client->round_members);
    client->round_members = NULL;
    client->round_member_count = open->members_count;
    client->round = open->round;
    memcpy(client->round_label, open->label, sizeof client->round_label);
    if (open->members_count > 0) {
        size_t bytes = open->members_count * sizeof open->members[0];
        client->round_members = malloc(bytes);
        WF_ASSERT(client->round_members != NULL);
        memcpy(client->round_members, open->members, bytes);
    }
}

/* --- the end -----------------------------------------------------------------------------------
 */
static bool is_infer(const struct wf_meta_client *client)
{
    return client->rank->options.side == WF_INFER;
}

static void finish_if_quiet(struct wf_meta_client *client)
{
    if (!client->closing || client->ended || (is_infer(client) && !wf_client_infer_stop(client))) {
        return;
    }
    client->ended = true;
    const struct wf_rank_options *o = &client->rank->options;
    if (o->hooks.ended != NULL) {
        o->hooks.ended(o->host, client->rank, &client->why);
    }
}

void wf_client_end(struct wf_meta_client *client, enum wf_status status, const char *text)
{
    if (client->closing) {
        return;
    }
    client->closing = true;
    wf_error_set(&client->why, status, "%s", text);
    wf_client_fill_drop(client);
    wf_client_revoke(client);
    wf_timer_cancel(client->loop, &client->retry);
    finish_if_quiet(client);
}

/* --- membership ---------------------------------------------------------------------------------
 */
/* Not while a clean WELCOME is carried out: until then the rank may be reading what is not promised
 * to it any more. */
static void renew(struct wf_meta_client *client, uint64_t sent_ns)
{
    if (client->welcome_waits) {
        return;
    }
    uint64_t until = sent_ns + client->lease_ns;
    if (until > client->lease_until_ns && sent_ns <= wf_client_now(client)) {
        client->lease_until_ns = until;
    }
}

/* Once on each connection: one that broke may have lost it, and the server knows what it has. */
static void send_note(struct wf_meta_client *client)
{
    if (client->has_note && client->link == WF_LINK_UP && client->note_term != client->term) {
        client->note_term = client->term;
        wf_client_send_now(client, WF_FRAME_note, &client->note);
    }
}

void wf_client_joined(struct wf_meta_client *client)
{
    const struct wf_frame_joined joined = {.epoch = client->epoch,
                                           .state = client->state,
                                           .round = client->round,
                                           .live = client->live,
                                           .committed = client->committed,
                                           .serving = client->host == WF_HOST_SERVING};
    wf_client_place_tell(client); /* before: who has joined is planned with */
    wf_client_send(client, WF_FRAME_joined, &joined);
    if (!is_infer(client)) {
        wf_client_train_joined(client);
    }
    send_note(client);
    if (client->stores) {
        wf_client_send(client, WF_FRAME_stored, &client->stored);
    }
}

static void on_welcome(struct wf_meta_client *client, const struct wf_frame_welcome *welcome)
{
    if (welcome->term != client->term) {
        return;
    }
    client->link = WF_LINK_UP;
    client->was_up = true;
    /* At once: a server that comes before this is carried out must hear of it. */
    if (wf_version_compare(welcome->committed, client->committed) > 0) {
        client->committed = welcome->committed;
    }
    client->epoch = welcome->epoch;
    client->lease_ns = welcome->lease_ns;
    client->drop_to_latest = welcome->drop_to_latest;
    if (welcome->clean) {
        client->welcome_waits = true;
        client->welcome = *welcome;
        wf_client_continue(client);
    } else if (!client->welcome_waits) {
        renew(client, client->hello_ns);
        wf_client_joined(client);
    }
}

void wf_client_continue(struct wf_meta_client *client)
{
    if (client->closing) {
        finish_if_quiet(client);
        return;
    }
    if (client->hello_waits && client->busy != WF_RECEIVER_READING &&
        client->busy != WF_RECEIVER_STOPPING) {
        client->hello_waits = false;
        wf_client_send_hello(client);
    }
    /* A train rank has nothing to undo: its weights and what it published stay. */
    if (client->welcome_waits && (!is_infer(client) || wf_client_infer_clean(client))) {
        uint64_t sent_ns = client->welcome.sent_ns;
        client->welcome_waits = false;
        renew(client, sent_ns > client->hello_ns ? sent_ns : client->hello_ns);
        wf_client_joined(client);
    }
}

static void on_lease(struct wf_meta_client *client, const struct wf_frame_lease *lease)
{
    if (lease->term == client->term) {
        renew(client, lease->sent_ns);
    }
}

static void on_refused(struct wf_meta_client *client, const struct wf_frame_refused *refused)
{
    wf_client_end(client, (enum wf_status)refused->status, refused->text);
}

/* --- the plan ------------------------------------------------------------------------------------
 */
static void start_planning(struct wf_meta_client *client)
{
    if (!client->members_wait || client->planning || client->fill_planning) {
        return;
    }
    struct wf_local_msg *local = wf_local_msg_new(WF_LOCAL_PLAN, &client->actor);
    client->planning = true;
    client->planning_epoch = client->members.members.epoch;
    client->planning_term = client->members.members.term;
    client->members_wait = false;
    local->members = client->members;
    local->tables = client->members_tables;
    client->members_tables = (struct wf_tables){0};
    client->members = (struct wf_frame){0};
    wf_send(wf_converter_actor(client->rank->converter), &local->msg);
}

static void on_members(struct wf_meta_client *client, struct wf_frame *frame)
{
    uint64_t epoch = frame->members.epoch;
    if (frame->members.term != client->term || !wf_client_place_is_known(client, &frame->members)) {
        return;
    }
    if (!client->planning && client->planned_epoch == epoch) {
        wf_client_send(client, WF_FRAME_planned, &client->planned);
        return;
    }
    bool same = client->planning && client->planning_term == client->term;
    if ((same && client->planning_epoch == epoch) || epoch < client->planned_epoch) {
        return;
    }
    wf_frame_fini(&client->members);
    client->members = *frame;
    *frame = (struct wf_frame){0};
    wf_tables_fini(&client->members_tables);
    client->members_tables = wf_tables_copy(&client->tables);
    client->members_wait = true;
    start_planning(client);
}

static void on_planned(struct wf_meta_client *client, const struct wf_local_msg *local)
{
    const struct wf_rank_options *o = &client->rank->options;
    struct wf_frame_planned *planned = &client->planned;
    client->planning = false;
    if (client->planning_term != client->term) {
        start_planning(client); /* the server that asked is no more */
        return;
    }
    wf_agreed_release(client->agreed);
    client->agreed = local->status == WF_OK ? wf_agreed_hold(local->agreed) : NULL;
    client->planned_epoch = client->planning_epoch;
    *planned = (struct wf_frame_planned){.epoch = client->planned_epoch, .status = local->status};
    if (local->status != WF_OK) {
        memcpy(planned->text, local->error.text, sizeof planned->text);
    } else {
        const struct wf_plan *plan = local->agreed->plan;
        wf_client_place_planned(client);
        planned->input = plan->input_hash;
        planned->edge_sum = wf_plan_edge_sum(plan, o->side, o->rank);
        planned->edges = plan->edge_count;
        planned->ops = plan->op_count;
        planned->bytes_unique = plan->bytes_unique;
        planned->bytes_moved = plan->bytes_moved;
        planned->egress_max = plan->egress_max;
        planned->egress_ranks = plan->egress_ranks;
        planned->ingress_max = plan->ingress_max;
        planned->build_ns = local->agreed->build_ns;
        planned->cast_made_bytes = plan->cast_made_bytes;
        planned->cast_once_bytes = plan->cast_once_bytes;
        planned->cast_moving_bytes = plan->cast_moving_bytes;
        planned->cut_matrices = local->agreed->cut_matrices;
    }
    wf_client_send(client, WF_FRAME_planned, planned);
    start_planning(client);
    wf_client_fill_plan(client);
}

/* --- dispatch ------------------------------------------------------------------------------------
 */
static void on_frame(struct wf_meta_client *client, const struct wf_wire_msg *wire)
{
    struct wf_frame frame;
    struct wf_error error = {0};
    if (wf_frame_decode(wire->bytes, wire->len_bytes, &frame, &error) != WF_OK) {
        wf_client_drop_link(client, error.text);
        return;
    }
    if (!client->handshake.done) {
        wf_client_first_frame(client, &frame);
        wf_frame_fini(&frame);
        return;
    }
    switch (frame.type) {
    case WF_FRAME_challenge:
        break; /* once is enough */
    case WF_FRAME_welcome:
        on_welcome(client, &frame.welcome);
        break;
    case WF_FRAME_lease:
        on_lease(client, &frame.lease);
        break;
    case WF_FRAME_refused:
        on_refused(client, &frame.refused);
        break;
    case WF_FRAME_leave:
        wf_client_end(client, WF_CLOSED, frame.leave.reason);
        break;
    case WF_FRAME_members:
        on_members(client, &frame);
        break;
    case WF_FRAME_replicas_request:
        wf_client_replicas_asked(client, &frame.replicas_request);
        break;
    case WF_FRAME_placement:
        wf_client_place_told(client, &frame.placement);
        break;
    default:
        if (client->link == WF_LINK_UP && !client->closing) {
            bool known = is_infer(client) ? wf_client_infer_frame(client, &frame)
                                          : wf_client_train_frame(client, &frame);
            if (!known) {
                wf_client_drop_link(client,
                                    "the MetaServer sent a frame that is not for this side");
            }
        }
        break;
    }
    wf_frame_fini(&frame);
}

static void on_local(struct wf_meta_client *client, struct wf_local_msg *local)
{
    if (local->msg.kind == WF_LOCAL_PLANNED) {
        on_planned(client, local);
    } else if (local->msg.kind == WF_LOCAL_REPLICAS_DONE) {
        wf_client_replicas_done(client, local);
    } else if (local->msg.kind == WF_LOCAL_FILL_PLANNED) {
        client->fill_planning = false;
        wf_client_fill_planned(client, local);
        start_planning(client);
        wf_client_fill_plan(client);
    } else if (is_infer(client)) {
        wf_client_infer_local(client, local);
    } else {
        wf_client_train_local(client, local);
    }
}

static enum wf_verdict on_message(struct wf_actor *self, struct wf_msg *msg)
{
    struct wf_meta_client *client = (struct wf_meta_client *)self;
    const struct wf_wire_msg *wire = (const struct wf_wire_msg *)msg;
    switch (msg->kind) {
    case WF_WIRE_OPENED:
        break; /* the server speaks first */
    case WF_WIRE_FRAME:
        if (wire->conn == client->conn) {
            on_frame(client, wire);
        }
        break;
    case WF_WIRE_CLOSED:
        if (wire->conn == client->conn) {
            wf_client_link_lost(client, wire->text);
        }
        break;
    default:
        if (!msg->returned) {
            on_local(client, (struct wf_local_msg *)msg);
        }
        break;
    }
    return WF_FREE;
}

/* --- life ----------------------------------------------------------------------------------------
 */
enum wf_status wf_meta_client_new(struct wf_rank *rank, struct wf_meta_client **part_out,
                                  struct wf_error *error)
{
    (void)error; /* what can go wrong comes later, by `ended` */
    struct wf_meta_client *client = calloc(1, sizeof *client);
    WF_ASSERT(client != NULL);
    client->rank = rank;
    client->loop = rank->loop;
    client->env = wf_loop_env(rank->loop);
    client->state = is_infer(client) ? (uint64_t)WF_RANK_NONE : (uint64_t)WF_TRAINER_REBORN;
    wf_actor_init(&client->actor, rank->loop, "meta_client", on_message);
    wf_client_link_init(client);
    *part_out = client;
    return WF_OK;
}

struct wf_actor *wf_meta_client_actor(struct wf_meta_client *client)
{
    return &client->actor;
}

void wf_client_note(struct wf_meta_client *client, const struct wf_frame_note *note)
{
    if (client->said_goodbye) {
        return;
    }
    free(client->note.spans);
    client->note = *note;
    client->note.spans = NULL;
    if (note->spans_count > 0) {
        size_t bytes = note->spans_count * sizeof note->spans[0];
        client->note.spans = malloc(bytes);
        WF_ASSERT(client->note.spans != NULL);
        memcpy(client->note.spans, note->spans, bytes);
    }
    client->has_note = true;
    client->note_term = 0;
    send_note(client);
}

void wf_client_stored(struct wf_meta_client *client, struct wf_version version, bool writing)
{
    client->stores = true;
    client->stored = (struct wf_frame_stored){.version = version, .writing = writing};
    wf_client_send(client, WF_FRAME_stored, &client->stored);
}

struct wf_version wf_client_live(const struct wf_meta_client *client)
{
    return client->live;
}

static void say_goodbye(struct wf_meta_client *client)
{
    if (client->link == WF_LINK_UP && !client->said_goodbye) {
        struct wf_frame_leave leave = {0};
        snprintf(leave.reason, sizeof leave.reason, "%.300s",
                 client->why.text[0] != '\0' ? client->why.text : "its host stopped it");
        wf_client_send_now(client, WF_FRAME_leave, &leave);
        client->said_goodbye = true;
    }
}

void wf_client_close_host(struct wf_meta_client *client)
{
    wf_client_end(client, WF_CLOSED, "its host closed it");
}

void wf_meta_client_close(struct wf_meta_client *client)
{
    say_goodbye(client);
    client->closing = client->ended = true;
    wf_client_doubt_end(client);
    wf_timer_cancel(client->loop, &client->retry);
    wf_timer_cancel(client->loop, &client->beat);
    if (client->conn != 0) {
        client->env->ops->close(client->env, client->conn);
        client->conn = 0;
    }
    client->link = WF_LINK_DOWN;
}

void wf_meta_client_free(struct wf_meta_client *client)
{
    if (client == NULL) {
        return;
    }
    wf_actor_close(&client->actor); /* not before: the other parts answer us while they end */
    wf_actor_fini(&client->actor);
    wf_frame_fini(&client->members);
    free(client->round_members);
    free(client->note.spans);
    free(client->fill.members);
    wf_agreed_release(client->fill.agreed);
    wf_agreed_release(client->agreed);
    wf_tables_fini(&client->tables);
    wf_tables_fini(&client->members_tables);
    free(client);
}
