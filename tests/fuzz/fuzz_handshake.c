/* fuzz_handshake.c - throws bytes at both ends of the handshake. Whatever is accepted must say
 * exactly what was proven: with the numbers that the ends drew there is one right answer.
 *
 * The first byte picks the end: even, an acceptor gets the rest as its one frame; odd, an observer
 * gets it as frames, each behind its length in two bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/handshake.h"
#include "fuzz.h"

enum { FRAME_MAX = 4096 };

/* An env whose numbers are always the same and which keeps what is sent last. */
struct ends {
    struct wf_env env;
    uint8_t sent[FRAME_MAX];
    size_t sent_len;
    bool trusted;
};

static void fake_random(struct wf_env *env, void *bytes, size_t len)
{
    (void)env;
    memset(bytes, 0x5a, len);
}

static void fake_trust(struct wf_env *env, uint64_t conn)
{
    (void)conn;
    ((struct ends *)env)->trusted = true;
}

static enum wf_status fake_send(struct wf_env *env, uint64_t conn, const void *bytes, size_t len,
                                int fd)
{
    struct ends *ends = (struct ends *)env;
    (void)conn;
    (void)fd;
    WF_ASSERT(len <= sizeof ends->sent);
    memcpy(ends->sent, bytes, len);
    ends->sent_len = len;
    return WF_OK;
}

static const struct wf_env_ops ops = {
    .random = fake_random, .send = fake_send, .trust = fake_trust};
static const struct wf_token token = {.is_set = true, .bytes = "what the fuzzer does not know"};

static void start(struct ends *ends, struct wf_handshake *acceptor)
{
    *ends = (struct ends){.env = {.ops = &ops}};
    wf_handshake_open(acceptor, &ends->env, 1, &token, 7);
}

/* The frames of an observer that is right; gives its handshake before PROVEN. */
static struct wf_frame_prove right_prove(struct ends *ends, struct wf_handshake *connector)
{
    struct wf_handshake acceptor;
    struct wf_error error;
    const struct wf_frame_prove who = {.job = "j", .role = WF_ROLE_OBSERVER};
    start(ends, &acceptor);
    WF_ASSERT(wf_handshake_answer(connector, &ends->env, 2, &token, &acceptor.challenge, &who,
                                  &error) == WF_OK);
    return connector->prove;
}

static bool same_prove(const struct wf_frame_prove *a, const struct wf_frame_prove *b)
{
    return a->proto_min == b->proto_min && a->proto_max == b->proto_max &&
           strcmp(a->job, b->job) == 0 && a->channel == b->channel && a->role == b->role &&
           a->side == b->side && a->rank == b->rank && a->incarnation == b->incarnation &&
           a->nonce_len == b->nonce_len && memcmp(a->nonce, b->nonce, a->nonce_len) == 0 &&
           a->proof_len == b->proof_len && memcmp(a->proof, b->proof, a->proof_len) == 0;
}

static void feed_acceptor(const uint8_t *data, size_t size)
{
    struct ends ends, other;
    struct wf_handshake acceptor, connector;
    struct wf_error error = {0};
    const struct wf_frame_prove right = right_prove(&other, &connector);
    start(&ends, &acceptor);
    size = size > FRAME_MAX ? FRAME_MAX : size;
    enum wf_status status = wf_handshake_check(&acceptor, &ends.env, 1, &token, "j",
                                               WF_CHANNEL_SERVER, data, size, &error);
    WF_ASSERT(acceptor.done == (status == WF_OK) && ends.trusted == acceptor.done);
    WF_ASSERT(status != WF_OK || same_prove(&acceptor.prove, &right));
    WF_ASSERT(status == WF_OK || (error.text[0] != '\0' && error.status == status));
}

static void feed_observer(const uint8_t *data, size_t size)
{
    struct ends ends, other;
    struct wf_handshake observer = {0}, acceptor, connector;
    struct wf_error error = {0};
    const struct wf_frame_prove right = right_prove(&other, &connector);
    uint8_t proof[FRAME_MAX];
    start(&ends, &acceptor);
    ends.sent_len = 0;
    while (size >= 2 && !observer.done) {
        size_t len = (size_t)data[0] | (size_t)data[1] << 8;
        len = len > size - 2 ? size - 2 : len;
        struct wf_frame frame;
        if (wf_frame_decode(data + 2, len, &frame, &error) != WF_OK) {
            break;
        }
        enum wf_status status =
            wf_handshake_observe(&observer, &ends.env, 2, &token, "j", &frame, &error);
        wf_frame_fini(&frame);
        if (status != WF_OK) {
            WF_ASSERT(!observer.done && error.text[0] != '\0');
            break;
        }
        data += 2 + len;
        size -= 2 + len;
    }
    if (observer.done) { /* only the one CHALLENGE and the one PROVEN give that */
        struct wf_handshake check = {.challenge = observer.challenge};
        WF_ASSERT(wf_frame_send(&other.env, 1, WF_FRAME_prove, &observer.prove, -1) == WF_OK);
        memcpy(proof, other.sent, other.sent_len);
        WF_ASSERT(wf_handshake_check(&check, &other.env, 1, &token, "j", WF_CHANNEL_SERVER, proof,
                                     other.sent_len, &error) == WF_OK);
        WF_ASSERT(observer.challenge.nonce_len == WF_NONCE_MAX &&
                  strcmp(observer.prove.job, right.job) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0) {
        (data[0] % 2 == 0 ? feed_acceptor : feed_observer)(data + 1, size - 1);
    }
    return 0;
}

static size_t put_frame(uint8_t *out, const struct ends *ends)
{
    out[0] = (uint8_t)ends->sent_len;
    out[1] = (uint8_t)(ends->sent_len >> 8);
    memcpy(out + 2, ends->sent, ends->sent_len);
    return 2 + ends->sent_len;
}

size_t fuzz_example(uint32_t index, uint8_t *out, size_t cap)
{
    struct ends ends;
    struct wf_handshake acceptor, connector;
    struct wf_error error;
    WF_ASSERT(cap >= 3 * FRAME_MAX);
    right_prove(&ends, &connector);
    uint8_t prove[FRAME_MAX];
    size_t prove_len = ends.sent_len;
    memcpy(prove, ends.sent, prove_len);
    if (index == 0) {
        out[0] = 0;
        memcpy(out + 1, prove, prove_len);
        return 1 + prove_len;
    }
    if (index == 1) {
        out[0] = 1;
        start(&ends, &acceptor);
        size_t len = 1 + put_frame(out + 1, &ends);
        WF_ASSERT(wf_handshake_check(&acceptor, &ends.env, 1, &token, "j", WF_CHANNEL_SERVER, prove,
                                     prove_len, &error) == WF_OK);
        return len + put_frame(out + len, &ends);
    }
    return 0;
}
