/* client_world.c - the world of test_meta_client.c, and the parts that stand in for the data path.
 */
#include "tests/actors/client_world.h"

#include <criterion/criterion.h>
#include <string.h>

static const struct wf_timeouts timeouts = {.connect_ns = 3000 * CLIENT_MS,
                                            .reconnect_ns = 3000 * CLIENT_MS,
                                            .lease_ns = 600 * CLIENT_MS,
                                            .heartbeat_ns = 100 * CLIENT_MS,
                                            .join_ns = 5000 * CLIENT_MS};

/* --- parts: what actors/local.h declares, for this executable -------------------------------- */
static enum wf_verdict keep_request(struct wf_actor *self, struct wf_msg *msg)
{
    struct wf_part_fake *part = (struct wf_part_fake *)self;
    cr_assert_lt(part->asked_count, CLIENT_LOCALS_MAX);
    part->asked[part->asked_count++] = (struct wf_local_msg *)msg;
    return WF_KEEP;
}

static enum wf_verdict keep_senders(struct wf_actor *self, struct wf_msg *msg)
{
    struct client_world *w = WF_CONTAINER(self, struct client_world, sender.actor);
    keep_request(self, msg);
    if (msg->kind == WF_LOCAL_REVOKE && !w->keeps_revokes) {
        client_answer(w, &w->sender, WF_LOCAL_REVOKED, (const struct wf_local_msg *)msg, WF_OK);
    }
    return WF_KEEP;
}

#define FAKE_PART(name)                                        \
    struct wf_actor *wf_##name##_actor(struct wf_##name *part) \
    {                                                          \
        return &((struct wf_part_fake *)part)->actor;          \
    }
FAKE_PART(converter)
FAKE_PART(sender)
FAKE_PART(receiver)

/* --- the server's end ---------------------------------------------------------------------------
 */
void client_send(struct client_world *w, enum wf_frame_type type, const void *fields)
{
    cr_assert_eq(wf_frame_send(wf_loop_env(w->server_loop), w->conn, type, fields, -1), WF_OK);
}

static void on_proof(struct client_world *w, const struct wf_wire_msg *wire)
{
    struct wf_error error = {0};
    struct wf_env *env = wf_loop_env(w->server_loop);
    if (w->lies) {
        const struct wf_frame_proven proven = {.proof_len = WF_TOKEN_BYTES};
        client_send(w, WF_FRAME_proven, &proven);
    } else if (wf_handshake_check(&w->handshake, env, wire->conn, &w->token, "world",
                                  WF_CHANNEL_SERVER, wire->bytes, wire->len_bytes,
                                  &error) != WF_OK) {
        struct wf_frame_refused refused = {.status = error.status};
        memcpy(refused.text, error.text, sizeof refused.text);
        client_send(w, WF_FRAME_refused, &refused);
        env->ops->close(env, wire->conn);
    }
}

static void on_server_frame(struct client_world *w, const struct wf_wire_msg *wire)
{
    struct wf_error error = {0};
    if (!w->handshake.done) {
        on_proof(w, wire);
        return;
    }
    cr_assert_lt(w->frame_count, CLIENT_FRAMES_MAX);
    struct wf_frame *frame = &w->frames[w->frame_count];
    cr_assert_eq(wf_frame_decode(wire->bytes, wire->len_bytes, frame, &error), WF_OK, "%s",
                 error.text);
    w->frame_count++;
    if (frame->type == WF_FRAME_heartbeat && !w->no_leases) {
        const struct wf_frame_lease lease = {.term = w->term,
                                             .sequence = frame->heartbeat.sequence,
                                             .sent_ns = frame->heartbeat.sent_ns};
        client_send(w, WF_FRAME_lease, &lease);
    }
}

static enum wf_verdict on_server_message(struct wf_actor *self, struct wf_msg *msg)
{
    struct client_world *w = WF_CONTAINER(self, struct client_world, server);
    const struct wf_wire_msg *wire = (const struct wf_wire_msg *)msg;
    if (msg->kind == WF_WIRE_OPENED) {
        w->conn = wire->conn;
        w->connections++;
        if (w->refuses) {
            wf_loop_env(w->server_loop)->ops->close(wf_loop_env(w->server_loop), wire->conn);
            return WF_FREE;
        }
        wf_handshake_open(&w->handshake, wf_loop_env(w->server_loop), wire->conn, &w->token,
                          w->term);
    } else if (msg->kind == WF_WIRE_FRAME && wire->conn == w->conn) {
        on_server_frame(w, wire);
    }
    return WF_FREE;
}

/* --- the host ------------------------------------------------------------------------------------
 */
static void on_quiesce(void *user, struct wf_rank *rank)
{
    (void)rank;
    ((struct client_world *)user)->quiesces++;
}
static void on_resume(void *user, struct wf_rank *rank, struct wf_version version)
{
    struct client_world *w = user;
    (void)rank;
    w->resumes++;
    w->resumed = version;
}
static void on_ready(void *user, struct wf_rank *rank, bool restarted, uint64_t step)
{
    struct client_world *w = user;
    (void)rank;
    w->readies++;
    w->restarted = restarted;
    w->ready_step = step;
}
static void on_copied(void *user, struct wf_rank *rank, struct wf_version version,
                      const struct wf_error *why)
{
    struct client_world *w = user;
    (void)rank;
    (void)version;
    w->copies++;
    w->copy_error = why != NULL ? *why : (struct wf_error){0};
}
static void on_released(void *user, struct wf_rank *rank, struct wf_version version,
                        uint32_t engines)
{
    struct client_world *w = user;
    (void)rank;
    (void)version;
    w->releases++;
    w->released_engines = engines;
}
static void on_in_doubt(void *user, struct wf_rank *rank, struct wf_version version)
{
    struct client_world *w = user;
    (void)rank;
    w->doubts++;
    w->doubted = version;
}

static void on_aborted(void *user, struct wf_rank *rank, struct wf_version version,
                       uint64_t attempt, bool again, const struct wf_culprit *culprit)
{
    struct client_world *w = user;
    (void)rank;
    (void)version;
    (void)attempt;
    (void)culprit;
    w->aborts++;
    w->aborted_again = again;
}
static void on_ended(void *user, struct wf_rank *rank, const struct wf_error *why)
{
    struct client_world *w = user;
    (void)rank;
    w->ends++;
    w->ended = *why;
}

/* --- the world
 * ------------------------------------------------------------------------------------- */
static void close_part(struct wf_part_fake *part)
{
    wf_actor_close(&part->actor);
    wf_actor_fini(&part->actor);
    for (uint32_t i = 0; i < part->asked_count; i++) {
        part->asked[i]->msg.release(&part->asked[i]->msg);
    }
}

static void rank_teardown(void *user, struct wf_loop *loop)
{
    struct client_world *w = user;
    (void)loop;
    wf_meta_client_close(w->client);
    close_part(&w->converter);
    close_part(&w->sender);
    close_part(&w->receiver);
    wf_meta_client_free(w->client);
}

static void server_teardown(void *user, struct wf_loop *loop)
{
    struct client_world *w = user;
    (void)loop;
    wf_actor_close(&w->server);
    wf_actor_fini(&w->server);
    for (uint32_t i = 0; i < w->frame_count; i++) {
        wf_frame_fini(&w->frames[i]);
    }
}

static void make_rank(struct client_world *w, enum wf_side side, enum wf_publish_mode publish,
                      const char *address)
{
    static const char model[] = "{\"model_type\": \"llama\", \"hidden_size\": 16, "
                                "\"num_hidden_layers\": 1, \"vocab_size\": 8, "
                                "\"num_attention_heads\": 1, \"intermediate_size\": 8, "
                                "\"torch_dtype\": \"bfloat16\"}";
    struct wf_model *parsed = NULL;
    struct wf_error error = {0};
    cr_assert_eq(wf_model_parse(model, strlen(model), NULL, &parsed, &error), WF_OK, "%s",
                 error.text);
    cr_assert_eq(wf_recipe_parse("vllm:tp=1", parsed, &w->rank.recipe, &error), WF_OK, "%s",
                 error.text);
    wf_model_free(parsed);
    w->rank.loop = w->loop;
    w->rank.layout = &w->layout;
    w->rank.incarnation = 42;
    w->rank.converter = (struct wf_converter *)&w->converter;
    w->rank.sender = (struct wf_sender *)&w->sender;
    w->rank.receiver = (struct wf_receiver *)&w->receiver;
    w->rank.options = (struct wf_rank_options){.job = "world",
                                               .server = address,
                                               .listen = "",
                                               .host_name = "here",
                                               .side = side,
                                               .group = "group",
                                               .model = &w->model,
                                               .publish = publish,
                                               .timeouts = timeouts,
                                               .hooks = {.quiesce = on_quiesce,
                                                         .resume = on_resume,
                                                         .ready = on_ready,
                                                         .copied = on_copied,
                                                         .released = on_released,
                                                         .in_doubt = on_in_doubt,
                                                         .aborted = on_aborted,
                                                         .ended = on_ended},
                                               .host = w};
}

void client_open(struct client_world *w, enum wf_side side, enum wf_publish_mode publish)
{
    static char address[WF_ADDRESS_MAX];
    struct wf_error error = {0};
    uint64_t listener = 0;
    *w = (struct client_world){.term = 7};
    const struct wf_sim_options links = {.latency_max_ns = CLIENT_MS};
    w->sim = wf_sim_new(1, &links);
    w->server_loop = wf_sim_rank_new(w->sim, "server", server_teardown, w);
    wf_actor_init(&w->server, w->server_loop, "server", on_server_message);
    struct wf_env *env = wf_loop_env(w->server_loop);
    cr_assert_eq(env->ops->listen(env, &w->server, "server", address, &listener, &error), WF_OK);
    w->loop = wf_sim_rank_new(w->sim, "rank", rank_teardown, w);
    wf_actor_init(&w->converter.actor, w->loop, "converter", keep_request);
    wf_actor_init(&w->sender.actor, w->loop, "sender", keep_senders);
    wf_actor_init(&w->receiver.actor, w->loop, "receiver", keep_request);
    make_rank(w, side, publish, address);
    cr_assert_eq(wf_meta_client_new(&w->rank, &w->client, &error), WF_OK);
    w->rank.client = w->client;
}

void client_close(struct client_world *w)
{
    wf_sim_free(w->sim);
}

void client_run(struct client_world *w, uint64_t ns)
{
    wf_sim_run(w->sim, NULL, NULL, wf_sim_now_ns(w->sim) + ns);
}

struct wait {
    struct client_world *w;
    enum wf_frame_type type;
    struct wf_part_fake *part;
    enum wf_local_kind kind;
};

static bool frame_came(void *user)
{
    struct wait *wait = user;
    for (; wait->w->seen < wait->w->frame_count; wait->w->seen++) {
        if (wait->w->frames[wait->w->seen].type == wait->type) {
            return true;
        }
    }
    return false;
}

const struct wf_frame *client_expect(struct client_world *w, enum wf_frame_type type)
{
    struct wait wait = {.w = w, .type = type};
    bool came = frame_came(&wait) ||
                wf_sim_run(w->sim, frame_came, &wait, wf_sim_now_ns(w->sim) + 5000 * CLIENT_MS);
    cr_assert(came, "the server waits for %s", wf_frame_name(type));
    return &w->frames[w->seen++];
}

static uint32_t count_frames(const struct client_world *w, enum wf_frame_type type)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < w->frame_count; i++) {
        count += w->frames[i].type == type;
    }
    return count;
}

void client_silent(struct client_world *w, enum wf_frame_type type, uint64_t ns)
{
    uint32_t before = count_frames(w, type);
    client_run(w, ns);
    cr_assert_eq(count_frames(w, type), before, "the rank said %s", wf_frame_name(type));
}

static bool request_came(void *user)
{
    struct wait *wait = user;
    for (; wait->part->seen < wait->part->asked_count; wait->part->seen++) {
        if (wait->part->asked[wait->part->seen]->msg.kind == (uint32_t)wait->kind) {
            return true;
        }
    }
    return false;
}

const struct wf_local_msg *client_asked(struct client_world *w, struct wf_part_fake *part,
                                        enum wf_local_kind kind)
{
    struct wait wait = {.w = w, .part = part, .kind = kind};
    bool came = request_came(&wait) ||
                wf_sim_run(w->sim, request_came, &wait, wf_sim_now_ns(w->sim) + 5000 * CLIENT_MS);
    cr_assert(came, "%s waits for request 0x%x", part->actor.name, (unsigned)kind);
    return part->asked[part->seen++];
}

void client_answer(struct client_world *w, struct wf_part_fake *part, enum wf_local_kind kind,
                   const struct wf_local_msg *asked, enum wf_status status)
{
    struct wf_local_msg *answer = wf_local_msg_new(kind, &part->actor);
    answer->round = asked->round;
    answer->slot = asked->slot;
    answer->wrote = asked->wrote;
    answer->status = status;
    if (status != WF_OK) {
        wf_error_set(&answer->error, status, "the part says so");
    }
    wf_send(wf_meta_client_actor(w->client), &answer->msg);
    client_run(w, 20 * CLIENT_MS);
}

/* --- the protocol
 * -------------------------------------------------------------------------------------- */
struct wf_version client_version(const struct client_world *w, uint64_t step)
{
    return (struct wf_version){w->term, 1, step};
}

struct wf_round_key client_key(const struct client_world *w, uint64_t step, uint64_t attempt)
{
    return (struct wf_round_key){w->term, 1, 1, client_version(w, step), attempt};
}

void client_welcome(struct client_world *w, bool clean, struct wf_version committed)
{
    const struct wf_frame_welcome welcome = {.term = w->term,
                                             .epoch = 1,
                                             .clean = clean,
                                             .committed = committed,
                                             .lease_ns = timeouts.lease_ns};
    client_send(w, WF_FRAME_welcome, &welcome);
}

void client_join(struct client_world *w)
{
    client_expect(w, WF_FRAME_hello);
    client_welcome(w, true, (struct wf_version){0});
    client_expect(w, WF_FRAME_joined);
}

void client_reach(struct client_world *w, enum wf_rank_state state, uint64_t step)
{
    struct wf_round_key key = client_key(w, step, 1);
    const struct wf_frame_open open = {.round = key, .deadline_ns = 1000 * CLIENT_MS};
    const struct wf_local_msg *asked;
    if (state == WF_RANK_NONE) {
        return;
    }
    client_send(w, WF_FRAME_open, &open);
    asked = client_asked(w, &w->receiver, WF_LOCAL_READ);
    if (state == WF_RANK_READ) {
        return;
    }
    client_answer(w, &w->receiver, WF_LOCAL_READ_DONE, asked, WF_OK);
    cr_assert_eq(client_expect(w, WF_FRAME_vote)->vote.yes, 1);
    if (state == WF_RANK_DOUBT) {
        return;
    }
    uint32_t quiesces = w->quiesces;
    const struct wf_frame_decide decide = {.round = key};
    client_send(w, WF_FRAME_decide, &decide);
    client_run(w, 20 * CLIENT_MS);
    if (w->quiesces > quiesces) {
        wf_client_quiesced(w->client);
    }
    client_expect(w, WF_FRAME_quiesced);
    if (state == WF_RANK_TOLD) {
        return;
    }
    client_send(w, WF_FRAME_flip, &key);
    asked = client_asked(w, &w->receiver, WF_LOCAL_FLIP);
    client_answer(w, &w->receiver, WF_LOCAL_FLIPPED, asked, WF_OK);
    client_expect(w, WF_FRAME_flipped);
}
