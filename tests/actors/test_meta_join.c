/* test_meta_join.c - who may join, what must be agreed, and what is refused by name. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/actors/puppets.h"

static struct world w;

static void close_world(void)
{
    world_close(&w);
}

TestSuite(meta_join, .fini = close_world);

static void expect_refused(struct puppet *puppet, const char *sentence)
{
    const struct wf_frame *frame = puppet_expect(puppet, WF_FRAME_refused);
    cr_expect(strstr(frame->refused.text, sentence) != NULL, "got \"%s\"", frame->refused.text);
}

static void other_job(struct wf_frame_hello *hello)
{
    strcpy(hello->job, "another");
}
static void other_protocol(struct wf_frame_hello *hello)
{
    hello->proto_min = hello->proto_max = 9;
}
static void no_such_rank(struct wf_frame_hello *hello)
{
    hello->rank = 7;
}
static void last_term(struct wf_frame_hello *hello)
{
    hello->term = WF_TERM_MAX;
}
static void round_of_the_last_term(struct wf_frame_hello *hello)
{
    hello->round.term = WF_TERM_MAX;
}
static void wrong_engine(struct wf_frame_hello *hello)
{
    hello->engine = 1;
}

static const struct {
    const char *name;
    void (*change)(struct wf_frame_hello *hello);
    const char *sentence;
} refused_rows[] = {
    {"another job", other_job, "this MetaServer serves job \"world\", not \"another\""},
    {"another protocol", other_protocol, "protocol versions 9 to 9 are spoken there, 1 to 1 here"},
    {"the last term", last_term, "it remembers term 9223372036854775807, the last that there is"},
    {"a round of the last term", round_of_the_last_term, "the last that there is"},
    {"no such rank", no_such_rank, "infer rank 7 was refused: this job has infer ranks 0 to 1"},
    {"wrong engine", wrong_engine,
     "infer rank 0 says it is in engine 1, this job has it in "
     "engine 0"},
};

Test(meta_join, strangers_are_refused_with_a_sentence)
{
    world_open(&w, 2, 1, NULL);
    for (size_t i = 0; i < sizeof refused_rows / sizeof refused_rows[0]; i++) {
        struct puppet *guest = world_guest(&w, world_infer(&w, 0));
        refused_rows[i].change(&guest->hello);
        puppet_connect(guest);
        const struct wf_frame *frame = puppet_expect(guest, WF_FRAME_refused);
        cr_expect(strstr(frame->refused.text, refused_rows[i].sentence) != NULL, "%s: got \"%s\"",
                  refused_rows[i].name, frame->refused.text);
        world_run(&w, 20 * PUPPET_MS);
        cr_expect(guest->closed, "%s", refused_rows[i].name);
    }
}

Test(meta_join, the_second_process_with_one_identity_is_refused_while_the_first_lives)
{
    world_open(&w, 1, 1, NULL);
    world_start(&w);
    struct puppet *second = world_guest(&w, world_infer(&w, 0));
    puppet_connect(second);
    expect_refused(second, "infer rank 0 (host here, engine 0) is already served by pid");
    world_commit(&w, 1);
}

Test(meta_join, a_restarted_process_takes_the_place_of_the_dead_one_for_good)
{
    world_open(&w, 1, 1, NULL);
    world_start(&w);
    struct puppet *first = world_infer(&w, 0), *second = world_guest(&w, first);
    puppet_drop(first);
    puppet_connect(second);
    const struct wf_frame *frame = puppet_expect(second, WF_FRAME_welcome);
    cr_assert_eq(frame->welcome.clean, 1);
    puppet_expect(second, WF_FRAME_members);
    puppet_connect(first); /* it was only slow: too late */
    expect_refused(first, "this process was replaced as infer rank 0 by pid");
}

Test(meta_join, a_newcomer_waits_while_the_first_is_silent)
{
    world_open(&w, 1, 1, NULL);
    world_start(&w);
    struct puppet *first = world_infer(&w, 0), *second = world_guest(&w, first);
    first->silent = true; /* frozen: the connection stays open */
    puppet_connect(second);
    puppet_refuses(second, WF_FRAME_welcome, 300 * PUPPET_MS);
    puppet_expect(second, WF_FRAME_welcome);
    cr_assert_eq(puppet_count(second, WF_FRAME_refused), 0);
}

Test(meta_join, a_newcomer_takes_the_place_at_once_when_the_first_sends_nonsense)
{
    world_open(&w, 1, 1, NULL);
    world_start(&w);
    struct puppet *first = world_infer(&w, 0), *second = world_guest(&w, first);
    first->silent = true;
    puppet_connect(second);
    puppet_refuses(second, WF_FRAME_welcome, 50 * PUPPET_MS);
    struct wf_env *env = wf_loop_env(w.loop);
    env->ops->send(env, first->conn, "x", 1, -1);
    world_run(&w, 50 * PUPPET_MS); /* a lease takes longer */
    cr_assert_eq(puppet_count(second, WF_FRAME_welcome), 1);
    cr_assert(first->closed);
}

Test(meta_join, one_group_has_one_recipe)
{
    world_open(&w, 2, 1, NULL);
    struct puppet *odd = world_infer(&w, 1);
    strcpy(odd->hello.spec, "vllm:tp=1,version=9");
    puppet_connect(world_train(&w));
    puppet_connect(world_infer(&w, 0));
    puppet_expect(world_infer(&w, 0), WF_FRAME_welcome);
    puppet_connect(odd);
    expect_refused(odd, "group \"infer\": infer rank 1 (host here) brings recipe "
                        "vllm:tp=1,version=9");
}

Test(meta_join, a_rank_with_another_input_is_named)
{
    world_open(&w, 2, 1, NULL);
    world_infer(&w, 1)->input = (struct wf_hash){1, 2};
    for (uint32_t i = 0; i < w.puppet_count; i++) {
        puppet_connect(&w.puppets[i]);
    }
    for (uint32_t i = 0; i < w.puppet_count; i++) {
        expect_refused(&w.puppets[i], "the inputs of the plan differ: infer rank 1 (host here, "
                                      "engine 1) has 00000000000000010000000000000002; the "
                                      "others have 00000000000000000000000000000000");
    }
}

Test(meta_join, plans_with_other_edges_are_refused)
{
    world_open(&w, 1, 1, NULL);
    world_train(&w)->edge_sum = (struct wf_hash){0, 1};
    for (uint32_t i = 0; i < w.puppet_count; i++) {
        puppet_connect(&w.puppets[i]);
    }
    expect_refused(world_train(&w), "equal inputs gave different plans");
}

Test(meta_join, who_never_comes_is_named)
{
    world_open(&w, 2, 1, NULL);
    puppet_connect(world_train(&w));
    puppet_connect(world_infer(&w, 0));
    expect_refused(world_train(&w), "infer rank 1 (host unknown, engine 1) has not joined within "
                                    "5 s (2 of 3 ranks have)");
}

Test(meta_join, who_never_plans_is_named)
{
    world_open(&w, 1, 1, NULL);
    world_infer(&w, 0)->no_planned = true;
    puppet_connect(world_train(&w));
    puppet_connect(world_infer(&w, 0));
    expect_refused(world_train(&w), "infer rank 0 (host here, engine 0) has not planned within");
}

Test(meta_join, a_restarted_train_rank_begins_a_new_generation)
{
    world_open(&w, 1, 1, NULL);
    world_start(&w);
    world_commit(&w, 1);
    struct puppet *train = world_train(&w), *a = world_infer(&w, 0);
    puppet_publish(train, 2);
    struct wf_round_key key = puppet_open(a);
    puppet_drop(train);
    train->hello.incarnation++;
    puppet_connect(train);
    const struct wf_frame *frame = puppet_expect(a, WF_FRAME_abort);
    cr_assert(strstr(frame->abort.culprit.reason, "a new incarnation") != NULL, "%s",
              frame->abort.culprit.reason);
    puppet_key(a, WF_FRAME_aborted, key);
    frame = puppet_expect(train, WF_FRAME_generation);
    cr_assert_eq(frame->generation.counter, 2);
    cr_assert_eq(frame->generation.step, 2, "what it has to rebuild");
    world_commit(&w, 2);
    cr_assert_eq(world_infer(&w, 0)->live.counter, 2);
}

Test(meta_join, a_train_rank_that_never_comes_back_ends_the_job)
{
    world_open(&w, 1, 1, NULL);
    world_start(&w);
    puppet_drop(world_train(&w));
    expect_refused(world_infer(&w, 0), "train rank 0 (host here) was lost and has not come back "
                                       "within 5 s");
}

/* The server stops, and the rank is told nothing: it waits for a server that knows it. */
static void expect_stopped(const struct puppet *puppet, enum wf_status status, const char *text)
{
    world_run(&w, 100 * PUPPET_MS);
    cr_assert(w.ended && w.why.status == status && strstr(w.why.text, text) != NULL, "%s",
              w.why.text);
    cr_assert(puppet->closed);
    cr_assert_eq(puppet_count(puppet, WF_FRAME_refused), 0);
}

Test(meta_join, a_newer_term_ends_this_server)
{
    world_open(&w, 1, 1, NULL);
    world_train(&w)->hello.term = UINT64_C(1) << 40;
    puppet_connect(world_train(&w));
    expect_stopped(world_train(&w), WF_STALE,
                   "a newer MetaServer (term 1099511627776) serves this job");
}

Test(meta_join, a_rank_that_remembers_an_earlier_server_is_not_forgotten)
{
    world_open(&w, 1, 1, NULL);
    struct puppet *a = world_infer(&w, 0);
    a->hello.term = 5;
    a->hello.committed = (struct wf_version){5, 1, 3};
    puppet_connect(a);
    expect_stopped(a, WF_REFUSED,
                   "infer rank 0 (host here) remembers another MetaServer (term 5, version 5.1.3) "
                   "of which this one has no record: start the server with --recover");
}

static const struct {
    const char *name, *bytes;
    size_t len;
} garbage_rows[] = {
    {"text", "GET / HTTP/1.1", 14},
    {"an empty frame", "", 0},
    {"a vote before hello", "\x99\x0d", 2},
    {"an unknown type", "\x91\x63", 2},
};

Test(meta_join, garbage_is_refused_and_its_connection_closed)
{
    world_open(&w, 1, 1, NULL);
    for (size_t i = 0; i < sizeof garbage_rows / sizeof garbage_rows[0]; i++) {
        struct puppet *guest = world_guest(&w, NULL);
        strcpy(guest->hello.job, "another"); /* never gets that far */
        puppet_connect(guest);
        struct wf_env *env = wf_loop_env(w.loop);
        env->ops->send(env, guest->conn, garbage_rows[i].bytes, garbage_rows[i].len, -1);
        world_run(&w, 50 * PUPPET_MS);
        cr_expect(guest->closed, "%s", garbage_rows[i].name);
        cr_expect_geq(puppet_count(guest, WF_FRAME_refused), 1, "%s", garbage_rows[i].name);
    }
    for (uint32_t i = 0; i < 2; i++) {
        puppet_connect(&w.puppets[i]);
    }
    puppet_expect(world_train(&w), WF_FRAME_generation);
}

Test(meta_join, a_silent_stranger_is_dropped)
{
    world_open(&w, 1, 1, NULL);
    struct puppet *guest = world_guest(&w, NULL);
    struct wf_error error = {0};
    struct wf_env *env = wf_loop_env(w.loop);
    uint64_t conn = 0;
    cr_assert_eq(env->ops->connect(env, &guest->actor, w.address, &conn, &error), WF_OK);
    guest->conn = 0; /* its challenge is not answered */
    world_run(&w, 100 * PUPPET_MS);
    guest->conn = conn;
    world_run(&w, 3000 * PUPPET_MS);
    cr_assert(guest->closed);
}
