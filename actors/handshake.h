/* handshake.h - the first three frames of every connection: both ends show that they know the
 * job's token before either believes the other anything.
 *
 *   acceptor -> connector  CHALLENGE  protocol range, term, nonce A
 *   connector -> acceptor  PROVE      protocol range, job, channel, who it is, nonce C,
 *                                     H("connector", A, C, all of both frames)
 *   acceptor -> connector  PROVEN     H("acceptor", A, C, all of both frames)
 *
 * then HELLO or PEER_HELLO. Why it is like this is in docs/protocol.md. Without a token on either
 * side the nonce is empty and CHALLENGE is followed by the hello. One without, one with: refused by
 * whoever has it.
 *
 * Part of the actor that owns the connection; loop thread. Nonces come from env->random. The
 * acceptor's listener is guarded (env.h), so that until PROVEN a stranger has bounded bytes, time
 * and number; `trust` is called here.
 */
#ifndef WEFT_ACTORS_HANDSHAKE_H
#define WEFT_ACTORS_HANDSHAKE_H

#include "actors/messages.h"
#include "actors/token.h"
#include "runtime/loop.h"

enum wf_channel { WF_CHANNEL_SERVER, WF_CHANNEL_PEER }; /* prove.channel: what was accepted */

/* One connection's, zeroed before use. */
struct wf_handshake {
    bool done; /* the other end is one of the job */
    struct wf_frame_challenge challenge;
    struct wf_frame_prove prove; /* when done with a token: who the connector has shown to be */
};

/* PROTOCOL unless the other end's range of protocol versions and this one's have one in common. */
enum wf_status wf_protocol_check(uint64_t min, uint64_t max, struct wf_error *error);

/* --- the accepting side: `job` and `token` are its own -----------------------------------------
 */
/* Sends CHALLENGE. Without a token it is done and the connection trusted. */
void wf_handshake_open(struct wf_handshake *handshake, struct wf_env *env, uint64_t conn,
                       const struct wf_token *token, uint64_t term);
/* The first frame of the connection. OK: PROVEN was sent, done. PROTOCOL: another protocol version;
 * REFUSED: another job, something else than PROVE, no proof, a wrong one. The caller tells the
 * other end and closes; nothing that an error says helps to guess a token. An observer may name no
 * job. */
enum wf_status wf_handshake_check(struct wf_handshake *handshake, struct wf_env *env, uint64_t conn,
                                  const struct wf_token *token, const char *job,
                                  enum wf_channel channel, const void *bytes, size_t len,
                                  struct wf_error *error);

/* Who was refused, in the log: WF_REFUSALS_LOGGED lines in WF_LOG_WINDOW_NS, then how many more. */
enum { WF_REFUSALS_LOGGED = 8 };
struct wf_refusals {
    uint64_t total; /* since the start */
    uint64_t window_ns, left_out;
    uint32_t logged;
};
void wf_refusals_log(struct wf_refusals *refusals, struct wf_loop *loop, const char *address,
                     const char *why);

/* --- the connecting side -----------------------------------------------------------------------
 */
/* CHALLENGE came. `who` has job, channel and identity; the rest is filled in and PROVE is sent, or
 * the handshake is done because neither side has a token. PROTOCOL: no common version; REFUSED: one
 * side alone has a token. */
enum wf_status wf_handshake_answer(struct wf_handshake *handshake, struct wf_env *env,
                                   uint64_t conn, const struct wf_token *token,
                                   const struct wf_frame_challenge *challenge,
                                   const struct wf_frame_prove *who, struct wf_error *error);
/* PROVEN came. REFUSED: who answers there does not know the token. */
enum wf_status wf_handshake_confirm(struct wf_handshake *handshake, const struct wf_token *token,
                                    const struct wf_frame_proven *proven, struct wf_error *error);

/* All of it for an observer of the server's: takes CHALLENGE and PROVEN and then says HELLO. Zero
 * the handshake for each connection. PROTOCOL for any other frame before it is done: whoever sends
 * it need not be believed. */
enum wf_status wf_handshake_observe(struct wf_handshake *handshake, struct wf_env *env,
                                    uint64_t conn, const struct wf_token *token, const char *job,
                                    const struct wf_frame *frame, struct wf_error *error);

#endif
