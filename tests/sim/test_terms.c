/* test_terms.c - terms: who remembers another server's rounds stops a server that has no record of
 * them, and a server of a lower term hears of the higher one from the ranks that will not obey it.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/job_internal.h"

enum { HELLOS_MAX = 4 };

/* One end of the protocol, spoken by the test. */
struct speaker {
    struct wf_actor actor;
    struct wf_loop *loop;
    uint64_t conn;
    /* as a rank: what it says; as a server: the terms of its challenges, one a connection */
    struct wf_frame_hello hello;
    uint64_t above, terms[HELLOS_MAX]; /* above: hello.term over the challenge's */
    uint32_t opened;
    struct wf_frame_hello heard[HELLOS_MAX];
    uint32_t heard_count;
};

static void send(struct speaker *speaker, uint64_t conn, enum wf_frame_type type,
                 const void *fields)
{
    wf_frame_send(wf_loop_env(speaker->loop), conn, type, fields, -1);
}

static void on_frame(struct speaker *speaker, const struct wf_wire_msg *wire)
{
    struct wf_frame frame;
    struct wf_error error = {0};
    cr_assert_eq(wf_frame_decode(wire->bytes, wire->len_bytes, &frame, &error), WF_OK, "%s",
                 error.text);
    if (frame.type == WF_FRAME_challenge) {
        speaker->hello.term = frame.challenge.term + speaker->above;
        send(speaker, wire->conn, WF_FRAME_hello, &speaker->hello);
    } else if (frame.type == WF_FRAME_hello && speaker->heard_count < HELLOS_MAX) {
        speaker->heard[speaker->heard_count] = frame.hello;
        speaker->heard[speaker->heard_count++].members = NULL;
        wf_loop_env(speaker->loop)->ops->close(wf_loop_env(speaker->loop), wire->conn);
    }
    wf_frame_fini(&frame);
}

static enum wf_verdict on_message(struct wf_actor *self, struct wf_msg *msg)
{
    struct speaker *speaker = (struct speaker *)self;
    const struct wf_wire_msg *wire = (const struct wf_wire_msg *)msg;
    if (msg->kind == WF_WIRE_FRAME) {
        on_frame(speaker, wire);
    } else if (msg->kind == WF_WIRE_OPENED && wire->listener != 0) {
        const struct wf_frame_challenge challenge = {
            .proto_min = WF_PROTOCOL_MIN,
            .proto_max = WF_PROTOCOL_MAX,
            .term = speaker->terms[speaker->opened < HELLOS_MAX ? speaker->opened : 0]};
        speaker->opened++;
        send(speaker, wire->conn, WF_FRAME_challenge, &challenge);
    }
    return WF_FREE;
}

static void speaker_teardown(void *user, struct wf_loop *loop)
{
    struct speaker *speaker = user;
    (void)loop;
    wf_actor_close(&speaker->actor);
    wf_actor_fini(&speaker->actor);
}

static void speaker_start(struct speaker *speaker, struct wf_sim *sim)
{
    speaker->loop = wf_sim_rank_new(sim, "speaker", speaker_teardown, speaker);
    wf_actor_init(&speaker->actor, speaker->loop, "speaker", on_message);
}

/* --- a server that hears of others --------------------------------------------------------------
 */

static const struct {
    const char *name;
    uint64_t above, round,
        committed; /* terms: over the server's; of its memory, 0 none, 1: its own */
    enum wf_status end;
} rows[] = {
    {"nothing is remembered", 0, 0, 0, WF_OK},
    {"a round of this very term, which no server has opened", 0, 1, 0, WF_REFUSED},
    {"a version of this very term", 0, 1, 1, WF_REFUSED},
    {"a higher term was adopted", 1, 0, 0, WF_STALE},
    {"a round of another term", 0, 7, 0, WF_REFUSED},
    {"a committed version of another term", 0, 0, 7, WF_REFUSED},
};

Test(terms, a_server_without_record_stops)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        static const uint32_t engine_of[] = {0};
        struct wf_sim *sim = wf_sim_new(1 + i, NULL);
        struct wf_meta_server *server = NULL;
        struct wf_error error = {0};
        struct speaker rank = {.above = rows[i].above};
        char address[WF_ADDRESS_MAX];
        const struct wf_server_options options = {.job = "terms",
                                                  .listen = "server",
                                                  .train_ranks = 1,
                                                  .infer_ranks = 1,
                                                  .engines = 1,
                                                  .engine_of = engine_of,
                                                  .timeouts = job_timeouts()};
        struct wf_loop *loop = wf_sim_rank_new(sim, "server", NULL, NULL);
        cr_assert_eq(wf_meta_server_new(loop, &options, address, &server, &error), WF_OK, "%s",
                     error.text);
        speaker_start(&rank, sim);
        rank.hello = (struct wf_frame_hello){.proto_min = WF_PROTOCOL_MIN,
                                             .proto_max = WF_PROTOCOL_MAX,
                                             .job = "terms",
                                             .side = WF_INFER,
                                             .incarnation = 5,
                                             .host = "b"};
        rank.hello.round.term = rows[i].round == 1 ? server->term : rows[i].round;
        rank.hello.committed.term = rows[i].committed == 1 ? server->term : rows[i].committed;
        struct wf_env *env = wf_loop_env(rank.loop);
        env->ops->connect(env, &rank.actor, address, &rank.conn, &error);
        wf_sim_run(sim, NULL, NULL, SEC);
        cr_expect_eq(server->end.status, rows[i].end, "%s: %s", rows[i].name, server->end.text);
        if (rows[i].end == WF_REFUSED) {
            cr_expect_not_null(strstr(server->end.text, "infer rank 0 (host b) remembers"),
                               "%s: %s", rows[i].name, server->end.text);
        }
        wf_meta_server_free(server);
        wf_sim_free(sim);
    }
}

/* --- a rank that meets servers
 * --------------------------------------------------------------------
 */
static const char model_text[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 16, \"num_hidden_layers\": 2, "
    "\"vocab_size\": 28, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"head_dim\": 4, \"intermediate_size\": 24, \"tie_word_embeddings\": false, "
    "\"torch_dtype\": \"bfloat16\"}";

static bool heard_both(void *user)
{
    return ((struct speaker *)user)->heard_count >= 2;
}

Test(terms, a_lower_term_hears_of_the_higher)
{
    struct job *job = calloc(1, sizeof *job);
    struct job_result result = {.events = 0};
    struct wf_error error = {0};
    struct speaker server = {.terms = {10, 9}};
    uint64_t listener = 0;
    job->result = &result;
    job->sim = wf_sim_new(3, NULL);
    cr_assert_eq(wf_model_parse(model_text, strlen(model_text), NULL, &job->model, &error), WF_OK);
    cr_assert_eq(
        wf_recipe_parse("vllm:tp=2,engines=2", job->model, &job->recipes[WF_INFER], &error), WF_OK);
    speaker_start(&server, job->sim);
    struct wf_env *env = wf_loop_env(server.loop);
    cr_assert_eq(env->ops->listen(env, &server.actor, "server", job->address, &listener, &error),
                 WF_OK);
    job_rank_start(job, JOB_TRAIN);
    cr_assert(wf_sim_run(job->sim, heard_both, &server, 10 * SEC), "%u hellos", server.heard_count);
    cr_expect_eq(server.heard[0].term, 10);
    cr_expect_eq(server.heard[1].term, 10, "the server of term 9 was told of %llu",
                 (unsigned long long)server.heard[1].term);
    cr_expect_eq(job->ranks[JOB_TRAIN].rank->client->link, WF_LINK_DOWN);
    wf_sim_free(job->sim);
    wf_model_free(job->model);
    free(job);
}
