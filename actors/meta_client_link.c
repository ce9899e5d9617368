/* meta_client_link.c - the connection to the server: trying again, who answers there, HELLO,
 * heartbeats. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

#include "actors/meta_client_internal.h"

enum {
    BACKOFF_FIRST_NS = 20 * 1000 * 1000,
    BACKOFF_MAX_NS = 2 * 1000 * 1000 * 1000u,
    ANSWER_PART = 4,      /* of the time for connecting: what one try may take */
    BEAT_JITTER_PART = 8, /* of a heartbeat's period: by so much it may come earlier */
};

static bool is_infer(const struct wf_meta_client *client)
{
    return client->rank->options.side == WF_INFER;
}

/* Ranks that lost their server together do not come back together. */
static void retry_later(struct wf_meta_client *client)
{
    uint64_t now = wf_client_now(client);
    uint64_t wait =
        client->backoff_ns / 2 + client->env->ops->choose(client->env, client->backoff_ns / 2 + 1);
    /* Heard within a lease of the next server's start, or it takes us for gone. */
    uint64_t half_lease = client->was_up ? client->lease_ns / 2 : BACKOFF_MAX_NS;
    uint64_t most = half_lease < BACKOFF_MAX_NS ? half_lease : BACKOFF_MAX_NS;
    client->backoff_ns *= 2;
    if (client->backoff_ns > most) {
        client->backoff_ns = most;
    }
    wf_timer_arm(client->loop, &client->retry, now + wait);
}

void wf_client_link_lost(struct wf_meta_client *client, const char *why)
{
    uint64_t now = wf_client_now(client);
    const struct wf_rank_options *o = &client->rank->options;
    client->conn = 0;
    client->hello_waits = false;
    client->note_term = 0; /* it may have gone with the connection */
    if (client->link == WF_LINK_UP) {
        client->down_ns = now;
        client->backoff_ns = BACKOFF_FIRST_NS;
    }
    client->link = WF_LINK_DOWN;
    if (client->closing) {
        return;
    }
    uint64_t limit_ns = client->was_up ? o->timeouts.reconnect_ns : o->timeouts.connect_ns;
    if (now - client->down_ns > limit_ns) {
        char text[WF_ERROR_TEXT_MAX];
        snprintf(text, sizeof text,
                 "no MetaServer at %.300s for %" PRIu64 " ms (%.300s): start it, or check `server`",
                 o->server, limit_ns / 1000000, why);
        wf_client_end(client, WF_CONNECTION, text);
        return;
    }
    retry_later(client);
}

void wf_client_drop_link(struct wf_meta_client *client, const char *why)
{
    client->env->ops->close(client->env, client->conn);
    wf_client_link_lost(client, why);
}

static void connect_now(struct wf_meta_client *client)
{
    struct wf_error error = {0};
    client->link = WF_LINK_CONNECTING;
    client->handshake = (struct wf_handshake){0};
    /* Where nothing answers, not even a refusal, the address may have moved. */
    wf_timer_arm(client->loop, &client->retry,
                 wf_client_now(client) + client->rank->options.timeouts.connect_ns / ANSWER_PART);
    enum wf_status status = client->env->ops->connect(
        client->env, &client->actor, client->rank->options.server, &client->conn, &error);
    if (status != WF_OK) {
        client->conn = 0;
        client->link = WF_LINK_DOWN;
        if (status == WF_INVALID) {
            wf_client_end(client, status, error.text); /* a bad address never gets better */
        } else {
            wf_client_link_lost(client, error.text);
        }
    }
}

static void on_retry(struct wf_timer *timer)
{
    struct wf_meta_client *client = WF_CONTAINER(timer, struct wf_meta_client, retry);
    if (client->link == WF_LINK_CONNECTING) {
        wf_client_drop_link(client, "it does not answer");
    } else if (client->link == WF_LINK_DOWN) {
        connect_now(client);
    }
}

/* Ranks that were started together, or came back together, do not beat together. */
static void arm_beat(struct wf_meta_client *client)
{
    uint64_t period = client->rank->options.timeouts.heartbeat_ns;
    uint64_t early = client->env->ops->choose(client->env, period / BEAT_JITTER_PART + 1);
    wf_timer_arm(client->loop, &client->beat, wf_client_now(client) + period - early);
}

static uint64_t newest_members(const struct wf_meta_client *client)
{
    if (client->members_wait) {
        return client->members.members.epoch;
    }
    return client->planning ? client->planning_epoch : client->planned_epoch;
}

static void on_beat(struct wf_timer *timer)
{
    struct wf_meta_client *client = WF_CONTAINER(timer, struct wf_meta_client, beat);
    if (client->link < WF_LINK_GREETING) {
        return;
    }
    if (client->link == WF_LINK_UP && !client->welcome_waits &&
        wf_client_now(client) > client->lease_until_ns + client->lease_ns) {
        wf_client_drop_link(client, "it has not renewed the lease"); /* gone, or fenced us: ask */
        return;
    }
    const struct wf_frame_heartbeat heartbeat = {.sequence = ++client->sequence,
                                                 .sent_ns = wf_client_now(client),
                                                 .members = newest_members(client),
                                                 .round = client->round};
    wf_client_send_now(client, WF_FRAME_heartbeat, &heartbeat);
    if (client->unsent && client->link == WF_LINK_UP &&
        client->rank->options.side == WF_TRAIN) { /* what an infer rank says is asked for again */
        client->unsent = false;
        wf_client_train_joined(client);
    }
    arm_beat(client);
}

void wf_client_send_hello(struct wf_meta_client *client)
{
    const struct wf_rank *rank = client->rank;
    const struct wf_rank_options *o = &rank->options;
    struct wf_frame_hello hello = {.proto_min = WF_PROTOCOL_MIN,
                                   .proto_max = WF_PROTOCOL_MAX,
                                   .role = WF_ROLE_RANK,
                                   .side = o->side,
                                   .rank = o->rank,
                                   .engine = o->engine,
                                   .incarnation = rank->incarnation,
                                   .pid = rank->pid,
                                   .group_rank = o->group_rank,
                                   .model = o->model->hash,
                                   .layout = wf_rank_source(rank)->hash,
                                   .term = client->term,
                                   .state = client->state,
                                   .round = client->round,
                                   .members = client->round_members,
                                   .members_count = client->round_member_count,
                                   .live = client->live,
                                   .committed = client->committed,
                                   .aborted = client->aborted,
                                   .mode = o->mode};
    snprintf(hello.job, sizeof hello.job, "%s", o->job);
    snprintf(hello.host, sizeof hello.host, "%s", o->host_name);
    snprintf(hello.address, sizeof hello.address, "%s", rank->address);
    snprintf(hello.group, sizeof hello.group, "%s", o->group);
    wf_recipe_format(&rank->recipe, hello.spec);
    client->hello_ns = wf_client_now(client);
    client->link = WF_LINK_GREETING;
    wf_client_send_now(client, WF_FRAME_hello, &hello);
    arm_beat(client); /* also while WELCOME waits for the end of a round */
}

/* Whoever answers is not this job's server, or does not want us. At first that is a mistake in how
 * this rank was started; later a stranger on the server's address, who may not end it. */
static void on_stranger(struct wf_meta_client *client, enum wf_status status, const char *text)
{
    if (client->term == 0) {
        char line[WF_ERROR_TEXT_MAX];
        snprintf(line, sizeof line, "%.200s: %.700s", client->rank->options.server, text);
        wf_client_end(client, status, line);
    } else {
        wf_client_drop_link(client, text);
    }
}

/* The server is the job's: what its CHALLENGE said is true. */
static void on_server(struct wf_meta_client *client)
{
    const struct wf_frame_challenge *challenge = &client->handshake.challenge;
    if (challenge->term <
        client->term) { /* nobody obeys a lower term; it hears of the higher one */
        wf_client_send_hello(client);
        wf_client_drop_link(client, "an older MetaServer answered");
        return;
    }
    client->down_ns = wf_client_now(client); /* a server is there */
    bool newer = challenge->term > client->term;
    client->term = challenge->term;
    if (newer) { /* epochs of another term mean nothing */
        client->planned_epoch = 0;
        client->members_wait = false;
        wf_tables_fini(&client->tables); /* it tells those that there are */
    }
    client->hello_waits = true;
    /* A report to a new term describes a rank that reads nothing. */
    bool may_read = is_infer(client) &&
                    (client->busy == WF_RECEIVER_READING || client->busy == WF_RECEIVER_STOPPING);
    if (!newer || !may_read || wf_client_infer_stop(client)) {
        client->hello_waits = false;
        wf_client_send_hello(client);
    }
}

static void on_challenge(struct wf_meta_client *client, const struct wf_frame_challenge *challenge)
{
    const struct wf_rank_options *o = &client->rank->options;
    struct wf_frame_prove who = {.channel = WF_CHANNEL_SERVER,
                                 .role = WF_ROLE_RANK,
                                 .side = o->side,
                                 .rank = o->rank,
                                 .incarnation = client->rank->incarnation};
    struct wf_error error = {0};
    if (client->link != WF_LINK_CONNECTING || client->handshake.prove.proto_max != 0) {
        return;
    }
    snprintf(who.job, sizeof who.job, "%s", o->job);
    enum wf_status status = wf_handshake_answer(&client->handshake, client->env, client->conn,
                                                &client->rank->token, challenge, &who, &error);
    if (status != WF_OK) {
        on_stranger(client, status, error.text);
    } else if (client->handshake.done) {
        on_server(client);
    }
}

static void on_proven(struct wf_meta_client *client, const struct wf_frame_proven *proven)
{
    struct wf_error error = {0};
    enum wf_status status =
        wf_handshake_confirm(&client->handshake, &client->rank->token, proven, &error);
    if (status != WF_OK) {
        on_stranger(client, status, error.text);
    } else {
        on_server(client);
    }
}

/* Before the server has shown that it is one, nothing else of it counts. */
void wf_client_first_frame(struct wf_meta_client *client, const struct wf_frame *frame)
{
    if (frame->type == WF_FRAME_challenge) {
        on_challenge(client, &frame->challenge);
    } else if (frame->type == WF_FRAME_proven) {
        on_proven(client, &frame->proven);
    } else if (frame->type == WF_FRAME_refused) {
        on_stranger(client, (enum wf_status)frame->refused.status, frame->refused.text);
    } else {
        wf_client_drop_link(client,
                            "it sent something else than proof that it is the job's server");
    }
}

void wf_client_link_init(struct wf_meta_client *client)
{
    client->backoff_ns = BACKOFF_FIRST_NS;
    client->down_ns = wf_client_now(client);
    client->retry = (struct wf_timer){.fire = on_retry, .name = "meta_client retry"};
    client->beat = (struct wf_timer){.fire = on_beat, .name = "meta_client heartbeat"};
    wf_timer_arm(client->loop, &client->retry, client->down_ns); /* in the first turn */
}
