/* test_client_token.c - a rank with a token: which servers it believes, and what a stranger on its
 * server's address can do to it. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/actors/client_world.h"

static struct client_world w;
static const struct wf_token ours = {.is_set = true, .bytes = "the token of the rank's job"},
                             theirs = {.is_set = true, .bytes = "the token of another job"};

static void close_world(void)
{
    client_close(&w);
}

TestSuite(client_token, .fini = close_world);

static void open_world(const struct wf_token *rank, const struct wf_token *server)
{
    client_open(&w, WF_INFER, WF_PUBLISH_HOLD);
    w.rank.token = *rank;
    w.token = *server;
}

Test(client_token, joins_the_server_that_has_it)
{
    open_world(&ours, &ours);
    client_join(&w);
    cr_assert_eq(w.connections, 1);
    cr_assert_eq(w.handshake.prove.incarnation, 42);
    cr_assert_eq(w.client->term, w.term);
}

static const struct {
    const char *name;
    struct wf_token rank, server;
    bool lies;
    const char *sentence;
} strangers[] = {
    {"a server with another token", {true, "one"}, {true, "two"}, false, "did not prove"},
    {"a server that only says so", {true, "one"}, {true, "two"}, true, "does not know the job's"},
    {"a server without a token", {true, "one"}, {false, ""}, false, "asks for no proof"},
    {"a rank without a token", {false, ""}, {true, "two"}, false, "none was given"},
};

Test(client_token, ends_a_rank_that_was_started_with_another)
{
    for (size_t i = 0; i < sizeof strangers / sizeof strangers[0]; i++) {
        open_world(&strangers[i].rank, &strangers[i].server);
        w.lies = strangers[i].lies;
        client_run(&w, 200 * CLIENT_MS);
        cr_expect_eq(w.ends, 1, "%s", strangers[i].name);
        cr_expect_eq(w.ended.status, WF_REFUSED, "%s", strangers[i].name);
        cr_expect(strstr(w.ended.text, strangers[i].sentence) != NULL, "%s: %s", strangers[i].name,
                  w.ended.text);
        cr_expect_eq(w.frame_count, 0, "%s: it said who it is", strangers[i].name);
        if (i + 1 < sizeof strangers / sizeof strangers[0]) {
            client_close(&w);
        }
    }
}

/* The server's place is taken by a stranger while the rank serves; later it comes back. */
static void stranger_comes(const struct wf_token *token, bool lies)
{
    struct wf_env *env = wf_loop_env(w.server_loop);
    w.token = *token;
    w.lies = lies;
    w.term = 1000;
    env->ops->close(env, w.conn);
    uint32_t connections = w.connections;
    client_run(&w, 500 * CLIENT_MS);
    cr_expect_gt(w.connections, connections + 1, "it tries again");
    cr_expect_eq(w.ends, 0, "a stranger cannot end it: %s", w.ended.text);
    cr_expect_eq(w.client->term, 7, "nor raise its term");
    w.token = ours;
    w.lies = false;
    w.term = 8;
    client_join(&w);
    cr_expect_eq(w.client->term, 8);
}

Test(client_token, a_stranger_on_the_servers_address_cannot_end_it)
{
    open_world(&ours, &ours);
    client_join(&w);
    stranger_comes(&theirs, false);
}

Test(client_token, nor_one_that_claims_to_have_proven_it)
{
    open_world(&ours, &ours);
    client_join(&w);
    stranger_comes(&theirs, true);
}

Test(client_token, nor_one_that_has_none)
{
    open_world(&ours, &ours);
    client_join(&w);
    stranger_comes(&(struct wf_token){.is_set = false}, false);
}
