/* test_handshake.c - who gets in: rows of what an acceptor, or a connector, is shown. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/handshake.h"

/* An env that keeps the last frame sent, and draws what was never drawn before. */
struct ends {
    struct wf_env env;
    uint8_t drawn;
    uint64_t trusted;
    uint8_t sent[4096];
    size_t sent_len;
    struct wf_frame frame; /* decoded */
};

static void fake_random(struct wf_env *env, void *bytes, size_t len)
{
    memset(bytes, ++((struct ends *)env)->drawn, len);
}

static void fake_trust(struct wf_env *env, uint64_t conn)
{
    ((struct ends *)env)->trusted = conn;
}

static enum wf_status fake_send(struct wf_env *env, uint64_t conn, const void *bytes, size_t len,
                                int fd)
{
    struct ends *ends = (struct ends *)env;
    struct wf_error error;
    (void)conn;
    (void)fd;
    cr_assert_leq(len, sizeof ends->sent);
    memcpy(ends->sent, bytes, len);
    ends->sent_len = len;
    wf_frame_fini(&ends->frame);
    cr_assert_eq(wf_frame_decode(bytes, len, &ends->frame, &error), WF_OK, "%s", error.text);
    return WF_OK;
}

static const struct wf_env_ops ops = {
    .random = fake_random, .send = fake_send, .trust = fake_trust};
static const struct wf_token ours = {.is_set = true, .bytes = "this is the token of our job"},
                             theirs = {.is_set = true, .bytes = "and this one is of another"},
                             none = {.is_set = false};

/* One end of each kind, up to the PROVE that was sent (in ends.sent). */
struct meeting {
    struct ends ends;
    struct wf_handshake acceptor, connector;
    struct wf_frame_challenge challenge;
    struct wf_error error;
};

static enum wf_status connect_as(struct meeting *m, const struct wf_token *token,
                                 const struct wf_frame_prove *who)
{
    return wf_handshake_answer(&m->connector, &m->ends.env, 2, token, &m->challenge, who,
                               &m->error);
}

static void challenge(struct meeting *m, const struct wf_token *token)
{
    memset(m, 0, sizeof *m);
    m->ends.env.ops = &ops;
    wf_handshake_open(&m->acceptor, &m->ends.env, 1, token, 77);
    cr_assert_eq(m->ends.frame.type, WF_FRAME_challenge);
    m->challenge = m->ends.frame.challenge;
}

static const struct wf_frame_prove rank3 = {.job = "ours",
                                            .channel = WF_CHANNEL_SERVER,
                                            .role = WF_ROLE_RANK,
                                            .side = WF_INFER,
                                            .rank = 3,
                                            .incarnation = 99};

static enum wf_status check(struct meeting *m, enum wf_channel channel)
{
    uint8_t bytes[4096];
    size_t len = m->ends.sent_len;
    memcpy(bytes, m->ends.sent, len);
    return wf_handshake_check(&m->acceptor, &m->ends.env, 1, &ours, "ours", channel, bytes, len,
                              &m->error);
}

Test(handshake, lets_in_who_has_the_token)
{
    struct meeting *m = malloc(sizeof *m);
    challenge(m, &ours);
    cr_assert_eq(m->challenge.nonce_len, 32);
    cr_assert_eq(m->challenge.term, 77);
    cr_assert_eq(connect_as(m, &ours, &rank3), WF_OK);
    cr_assert(!m->acceptor.done && !m->connector.done && m->ends.trusted == 0);
    cr_assert_eq(check(m, WF_CHANNEL_SERVER), WF_OK, "%s", m->error.text);
    cr_assert(m->acceptor.done && m->ends.trusted == 1);
    cr_assert_eq(m->acceptor.prove.rank, 3);
    cr_assert_eq(m->ends.frame.type, WF_FRAME_proven);
    cr_assert(!m->connector.done);
    cr_assert_eq(wf_handshake_confirm(&m->connector, &ours, &m->ends.frame.proven, &m->error),
                 WF_OK);
    cr_assert(m->connector.done);
    free(m);
}

Test(handshake, is_over_at_once_where_nobody_has_a_token)
{
    struct meeting *m = malloc(sizeof *m);
    challenge(m, &none);
    cr_assert(m->acceptor.done && m->ends.trusted == 1 && m->challenge.nonce_len == 0);
    cr_assert_eq(connect_as(m, &none, &rank3), WF_OK);
    cr_assert(m->connector.done && m->ends.frame.type == WF_FRAME_challenge);
    free(m);
}

/* What is done to the PROVE that was sent, before it is checked. */
static void change_identity(struct wf_frame_prove *p)
{
    p->rank = 4;
}
static void change_incarnation(struct wf_frame_prove *p)
{
    p->incarnation++;
}
static void change_role(struct wf_frame_prove *p)
{
    p->role = WF_ROLE_OBSERVER;
}
static void change_side(struct wf_frame_prove *p)
{
    p->side = WF_TRAIN;
}
static void change_nonce(struct wf_frame_prove *p)
{
    p->nonce[31] ^= 1;
}
static void change_proof(struct wf_frame_prove *p)
{
    p->proof[31] ^= 128;
}
static void shorten_proof(struct wf_frame_prove *p)
{
    p->proof_len = 31;
}
static void drop_proof(struct wf_frame_prove *p)
{
    p->proof_len = 0;
}
static void lengthen_proof(struct wf_frame_prove *p)
{
    p->proof_len = 64;
}
static void drop_nonce(struct wf_frame_prove *p)
{
    p->nonce_len = 0;
}
static void change_job(struct wf_frame_prove *p)
{
    strcpy(p->job, "theirs");
}
static void raise_protocol(struct wf_frame_prove *p)
{
    p->proto_min = p->proto_max = 9;
}
static void widen_protocol(struct wf_frame_prove *p)
{
    p->proto_max = 9;
}
static void change_channel(struct wf_frame_prove *p)
{
    p->channel = WF_CHANNEL_PEER;
}

static const struct {
    const char *name;
    const struct wf_token *token;
    void (*change)(struct wf_frame_prove *prove);
    enum wf_channel channel;
    enum wf_status status;
    const char *sentence;
} refused[] = {
    {"wrong token", &theirs, NULL, WF_CHANNEL_SERVER, WF_REFUSED, "did not prove"},
    {"another rank", &ours, change_identity, WF_CHANNEL_SERVER, WF_REFUSED, "did not prove"},
    {"another life", &ours, change_incarnation, WF_CHANNEL_SERVER, WF_REFUSED, "did not prove"},
    {"another role", &ours, change_role, WF_CHANNEL_SERVER, WF_REFUSED, "did not prove"},
    {"another side", &ours, change_side, WF_CHANNEL_SERVER, WF_REFUSED, "did not prove"},
    {"another nonce", &ours, change_nonce, WF_CHANNEL_SERVER, WF_REFUSED, "did not prove"},
    {"another proof", &ours, change_proof, WF_CHANNEL_SERVER, WF_REFUSED, "did not prove"},
    {"short proof", &ours, shorten_proof, WF_CHANNEL_SERVER, WF_REFUSED, "did not prove"},
    {"no proof", &ours, drop_proof, WF_CHANNEL_SERVER, WF_REFUSED, "did not prove"},
    {"long proof", &ours, lengthen_proof, WF_CHANNEL_SERVER, WF_REFUSED, "did not prove"},
    {"no nonce", &ours, drop_nonce, WF_CHANNEL_SERVER, WF_REFUSED, "did not prove"},
    {"another job", &ours, change_job, WF_CHANNEL_SERVER, WF_REFUSED, "another job"},
    {"another protocol", &ours, raise_protocol, WF_CHANNEL_SERVER, WF_PROTOCOL, "versions 9 to 9"},
    {"a range changed", &ours, widen_protocol, WF_CHANNEL_SERVER, WF_REFUSED, "did not prove"},
    {"for the server, at a peer", &ours, NULL, WF_CHANNEL_PEER, WF_REFUSED, "did not prove"},
    {"the same, said so", &ours, change_channel, WF_CHANNEL_PEER, WF_REFUSED, "did not prove"},
};

Test(handshake, refuses_any_other_proof)
{
    struct meeting *m = malloc(sizeof *m);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        challenge(m, &ours);
        cr_assert_eq(connect_as(m, refused[i].token, &rank3), WF_OK, "%s", refused[i].name);
        if (refused[i].change != NULL) {
            struct wf_frame_prove prove = m->ends.frame.prove;
            refused[i].change(&prove);
            wf_frame_send(&m->ends.env, 2, WF_FRAME_prove, &prove, -1);
        }
        cr_expect_eq(check(m, refused[i].channel), refused[i].status, "%s", refused[i].name);
        cr_expect(strstr(m->error.text, refused[i].sentence) != NULL, "%s: got \"%s\"",
                  refused[i].name, m->error.text);
        cr_expect(!m->acceptor.done && m->ends.trusted == 0, "%s", refused[i].name);
    }
    free(m);
}

Test(handshake, refuses_a_proof_that_was_heard_elsewhere)
{
    struct meeting *first = malloc(sizeof *first), *second = malloc(sizeof *second);
    challenge(first, &ours);
    cr_assert_eq(connect_as(first, &ours, &rank3), WF_OK);
    struct wf_frame_prove heard = first->ends.frame.prove;
    struct wf_handshake before = first->acceptor;
    cr_assert_eq(check(first, WF_CHANNEL_SERVER), WF_OK);
    struct wf_frame_proven answer = first->ends.frame.proven;
    /* The same server draws another nonce for the next connection. */
    memset(second, 0, sizeof *second);
    second->ends = first->ends;
    second->ends.frame = (struct wf_frame){0};
    second->ends.trusted = 0;
    wf_handshake_open(&second->acceptor, &second->ends.env, 1, &ours, 77);
    wf_frame_send(&second->ends.env, 2, WF_FRAME_prove, &heard, -1);
    cr_expect_eq(check(second, WF_CHANNEL_SERVER), WF_REFUSED, "replayed");
    /* Reflected, with the very nonces: what an acceptor answers proves nothing of a connector. */
    memcpy(heard.proof, answer.proof, sizeof heard.proof);
    first->acceptor = before;
    first->ends.trusted = 0;
    wf_frame_send(&first->ends.env, 2, WF_FRAME_prove, &heard, -1);
    cr_expect_eq(check(first, WF_CHANNEL_SERVER), WF_REFUSED, "reflected");
    cr_expect_eq(first->ends.trusted, 0);
    free(first);
    free(second);
}

Test(handshake, looks_at_nothing_but_a_prove)
{
    static const struct {
        const char *name, *bytes;
        size_t len;
        enum wf_status status;
    } rows[] = {
        {"nothing", "", 0, WF_REFUSED},
        {"no frame", "GET / HTTP/1.1", 14, WF_REFUSED},
        {"another type", "\x92\x02\x01", 3, WF_REFUSED},
        {"an unknown type", "\x92\x7f\x01", 3, WF_REFUSED},
        {"its type alone", "\x9b\x1f", 2, WF_PROTOCOL},
        {"half of it", "\x9b\x1f\x01\x01\xa4ours", 9, WF_PROTOCOL},
    };
    struct meeting *m = malloc(sizeof *m);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        challenge(m, &ours);
        memcpy(m->ends.sent, rows[i].bytes, rows[i].len);
        m->ends.sent_len = rows[i].len;
        cr_expect_eq(check(m, WF_CHANNEL_SERVER), rows[i].status, "%s: %s", rows[i].name,
                     m->error.text);
        cr_expect(!m->acceptor.done, "%s", rows[i].name);
    }
    free(m);
}

Test(handshake, of_a_connector_refuses_who_cannot_prove_it)
{
    struct meeting *m = malloc(sizeof *m);
    challenge(m, &none);
    cr_expect_eq(connect_as(m, &ours, &rank3), WF_REFUSED, "an acceptor that asks for no proof");
    challenge(m, &ours);
    cr_expect_eq(connect_as(m, &none, &rank3), WF_REFUSED, "a connector without a token");
    cr_expect(strstr(m->error.text, "--token-file") != NULL, "%s", m->error.text);
    challenge(m, &ours);
    m->challenge.proto_min = m->challenge.proto_max = 9;
    cr_expect_eq(connect_as(m, &ours, &rank3), WF_PROTOCOL, "another protocol");

    challenge(m, &theirs);
    cr_assert_eq(connect_as(m, &ours, &rank3), WF_OK);
    struct wf_frame_proven proven = {.proof_len = 32};
    cr_expect_eq(wf_handshake_confirm(&m->connector, &ours, &proven, &m->error), WF_REFUSED,
                 "zeros");
    memcpy(proven.proof, m->ends.frame.prove.proof, 32);
    cr_expect_eq(wf_handshake_confirm(&m->connector, &ours, &proven, &m->error), WF_REFUSED,
                 "its own proof");
    cr_expect(!m->connector.done);
    free(m);
}
