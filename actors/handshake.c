/* handshake.c - what is hashed, and the checks of each side in their order. */
#include "actors/handshake.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/log.h"

enum { TRANSCRIPT_MAX = 512 };
static const char by_connector[] = "weft: handshake 1, connector to acceptor";
static const char by_acceptor[] = "weft: handshake 1, acceptor to connector";

/* --- the transcript ---------------------------------------------------------------------------
 * Numbers of fixed width and texts behind their length: two different contents never give the same
 * bytes. */
struct transcript {
    uint8_t bytes[TRANSCRIPT_MAX];
    size_t len;
};

static void put_bytes(struct transcript *t, const void *bytes, size_t len)
{
    WF_ASSERT(len <= sizeof t->bytes - t->len);
    memcpy(t->bytes + t->len, bytes, len);
    t->len += len;
}

static void put_number(struct transcript *t, uint64_t number)
{
    uint8_t bytes[8];
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)(number >> (8 * i));
    }
    put_bytes(t, bytes, sizeof bytes);
}

static void put_counted(struct transcript *t, const void *bytes, size_t len)
{
    put_number(t, len);
    put_bytes(t, bytes, len);
}

static void proof(const struct wf_handshake *h, const struct wf_token *token, const char *domain,
                  uint8_t out[WF_TOKEN_BYTES])
{
    const struct wf_frame_challenge *c = &h->challenge;
    const struct wf_frame_prove *p = &h->prove;
    const uint64_t numbers[] = {c->proto_min, c->proto_max, c->term, p->proto_min, p->proto_max,
                                p->channel,   p->role,      p->side, p->rank,      p->incarnation};
    struct transcript t = {.len = 0};
    put_counted(&t, domain, strlen(domain));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        put_number(&t, numbers[i]);
    }
    put_counted(&t, p->job, strlen(p->job));
    put_counted(&t, c->nonce, c->nonce_len);
    put_counted(&t, p->nonce, p->nonce_len);
    wf_token_hash(token, t.bytes, t.len, out);
}

enum wf_status wf_protocol_check(uint64_t min, uint64_t max, struct wf_error *error)
{
    if (min <= WF_PROTOCOL_MAX && max >= WF_PROTOCOL_MIN) {
        return WF_OK;
    }
    return wf_error_set(error, WF_PROTOCOL,
                        "protocol versions %" PRIu64 " to %" PRIu64
                        " are spoken there, %d to %d here: use the same Weft on both sides",
                        min, max, WF_PROTOCOL_MIN, WF_PROTOCOL_MAX);
}

/* --- the accepting side ----------------------------------------------------------------------- */
static void finish(struct wf_handshake *h, struct wf_env *env, uint64_t conn)
{
    h->done = true;
    env->ops->trust(env, conn);
}

void wf_handshake_open(struct wf_handshake *h, struct wf_env *env, uint64_t conn,
                       const struct wf_token *token, uint64_t term)
{
    *h = (struct wf_handshake){
        .challenge = {.proto_min = WF_PROTOCOL_MIN, .proto_max = WF_PROTOCOL_MAX, .term = term}};
    if (token->is_set) {
        h->challenge.nonce_len = WF_NONCE_MAX;
        env->ops->random(env, h->challenge.nonce, WF_NONCE_MAX);
    } else {
        finish(h, env, conn);
    }
    wf_frame_send(env, conn, WF_FRAME_challenge, &h->challenge, -1); /* gone: CLOSED says so */
}

static void name_of(const struct wf_frame_prove *prove, char name_out[48])
{
    if (prove->role == WF_ROLE_OBSERVER) {
        snprintf(name_out, 48, "an observer");
    } else {
        snprintf(name_out, 48, "%s rank %" PRIu64, wf_side_name(prove->side), prove->rank);
    }
}

static enum wf_status check_prove(struct wf_handshake *h, const struct wf_token *token,
                                  const char *job, enum wf_channel channel, struct wf_error *error)
{
    const struct wf_frame_prove *p = &h->prove;
    uint8_t expected[WF_TOKEN_BYTES];
    char name[48];
    name_of(p, name);
    enum wf_status status = wf_protocol_check(p->proto_min, p->proto_max, error);
    if (status != WF_OK) {
        return status;
    }
    bool any = p->role == WF_ROLE_OBSERVER && p->job[0] == '\0';
    if (!any && strcmp(p->job, job) != 0) {
        return wf_error_set(error, WF_REFUSED,
                            "%s of job \"%s\" came to another job: check the address", name,
                            p->job);
    }
    proof(h, token, by_connector, expected);
    if (p->channel != channel || p->nonce_len != WF_NONCE_MAX || p->proof_len != sizeof expected ||
        !wf_token_equal(p->proof, expected)) {
        return wf_error_set(error, WF_REFUSED,
                            "%s of job \"%s\" did not prove that it knows the job's token: give it "
                            "the same --token-file as the server",
                            name, p->job);
    }
    return WF_OK;
}

enum wf_status wf_handshake_check(struct wf_handshake *h, struct wf_env *env, uint64_t conn,
                                  const struct wf_token *token, const char *job,
                                  enum wf_channel channel, const void *bytes, size_t len,
                                  struct wf_error *error)
{
    struct wf_frame frame;
    WF_ASSERT(!h->done && token->is_set);
    if (wf_frame_peek(bytes, len) != WF_FRAME_prove) {
        return wf_error_set(error, WF_REFUSED,
                            "expected proof of the job's token, found %s: give every process of "
                            "job \"%s\" the same --token-file",
                            wf_frame_name(wf_frame_peek(bytes, len)), job);
    }
    enum wf_status status = wf_frame_decode(bytes, len, &frame, error);
    if (status != WF_OK) {
        return status;
    }
    h->prove = frame.prove;
    wf_frame_fini(&frame);
    status = check_prove(h, token, job, channel, error);
    if (status == WF_OK) {
        struct wf_frame_proven proven = {.proof_len = WF_TOKEN_BYTES};
        proof(h, token, by_acceptor, proven.proof);
        finish(h, env, conn);
        wf_frame_send(env, conn, WF_FRAME_proven, &proven, -1);
    }
    return status;
}

void wf_refusals_log(struct wf_refusals *r, struct wf_loop *loop, const char *address,
                     const char *why)
{
    uint64_t now = wf_loop_now_ns(loop);
    struct wf_log *log = wf_loop_log(loop);
    r->total++;
    if (r->logged == 0 || now - r->window_ns >= WF_LOG_WINDOW_NS) {
        if (r->left_out > 0) {
            wf_log(log, WF_LOG_WARN,
                   "refused %" PRIu64 " more connections, for which there was "
                   "no line",
                   r->left_out);
        }
        r->window_ns = now;
        r->logged = 0;
        r->left_out = 0;
    }
    if (r->logged < WF_REFUSALS_LOGGED) {
        r->logged++;
        wf_log(log, WF_LOG_WARN, "refused a connection from %s: %s", address, why);
    } else {
        r->left_out++;
    }
}

/* --- the connecting side ---------------------------------------------------------------------- */
enum wf_status wf_handshake_answer(struct wf_handshake *h, struct wf_env *env, uint64_t conn,
                                   const struct wf_token *token,
                                   const struct wf_frame_challenge *challenge,
                                   const struct wf_frame_prove *who, struct wf_error *error)
{
    enum wf_status status = wf_protocol_check(challenge->proto_min, challenge->proto_max, error);
    if (status != WF_OK) {
        return status;
    }
    *h = (struct wf_handshake){.challenge = *challenge, .prove = *who};
    h->prove.proto_min = WF_PROTOCOL_MIN;
    h->prove.proto_max = WF_PROTOCOL_MAX;
    if (!token->is_set && challenge->nonce_len == 0) {
        h->done = true;
        return WF_OK;
    }
    if (!token->is_set) {
        return wf_error_set(error, WF_REFUSED,
                            "the other side asks for the job's token and none was given: use the "
                            "server's --token-file");
    }
    if (challenge->nonce_len != WF_NONCE_MAX) {
        return wf_error_set(error, WF_REFUSED,
                            "the other side asks for no proof of the job's token: it is not of "
                            "this job, or was started without a token");
    }
    h->prove.nonce_len = WF_NONCE_MAX;
    env->ops->random(env, h->prove.nonce, WF_NONCE_MAX);
    h->prove.proof_len = WF_TOKEN_BYTES;
    proof(h, token, by_connector, h->prove.proof);
    wf_frame_send(env, conn, WF_FRAME_prove, &h->prove, -1);
    return WF_OK;
}

enum wf_status wf_handshake_confirm(struct wf_handshake *h, const struct wf_token *token,
                                    const struct wf_frame_proven *proven, struct wf_error *error)
{
    uint8_t expected[WF_TOKEN_BYTES];
    if (h->prove.nonce_len != WF_NONCE_MAX || h->done) {
        return wf_error_set(error, WF_PROTOCOL, "a proven frame was not expected here");
    }
    proof(h, token, by_acceptor, expected);
    if (proven->proof_len != sizeof expected || !wf_token_equal(proven->proof, expected)) {
        return wf_error_set(error, WF_REFUSED,
                            "who answers there does not know the job's token: check the "
                            "address, and that both have the same --token-file");
    }
    h->done = true;
    return WF_OK;
}

enum wf_status wf_handshake_observe(struct wf_handshake *h, struct wf_env *env, uint64_t conn,
                                    const struct wf_token *token, const char *job,
                                    const struct wf_frame *frame, struct wf_error *error)
{
    enum wf_status status;
    if (frame->type == WF_FRAME_challenge && h->prove.proto_max == 0) {
        struct wf_frame_prove who = {.channel = WF_CHANNEL_SERVER, .role = WF_ROLE_OBSERVER};
        snprintf(who.job, sizeof who.job, "%s", job);
        status = wf_handshake_answer(h, env, conn, token, &frame->challenge, &who, error);
    } else if (frame->type == WF_FRAME_proven) {
        status = wf_handshake_confirm(h, token, &frame->proven, error);
    } else if (frame->type == WF_FRAME_refused) {
        status = wf_error_set(error, WF_REFUSED, "%s", frame->refused.text);
    } else {
        status = wf_error_set(error, WF_PROTOCOL, "a %s frame was not expected here",
                              wf_frame_name(frame->type));
    }
    if (status == WF_OK && h->done) {
        struct wf_frame_hello hello = {
            .proto_min = WF_PROTOCOL_MIN, .proto_max = WF_PROTOCOL_MAX, .role = WF_ROLE_OBSERVER};
        snprintf(hello.job, sizeof hello.job, "%s", job);
        wf_frame_send(env, conn, WF_FRAME_hello, &hello, -1);
    }
    return status;
}
