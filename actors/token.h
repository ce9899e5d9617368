/* token.h - the secret of a job, and what is made from it: proofs, and secrets for other uses.
 *
 * A token is 32 random bytes that only the processes of one job know. It never travels: who has it
 * shows so by a keyed hash over numbers that both ends of a connection have drawn (handshake.h).
 * Keyed hashes are BLAKE2b of 32 bytes (libsodium's crypto_generichash). Pure functions, any
 * thread.
 */
#ifndef WEFT_ACTORS_TOKEN_H
#define WEFT_ACTORS_TOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/status.h"

enum {
    WF_TOKEN_BYTES = 32,
    WF_TOKEN_TEXT = 2 * WF_TOKEN_BYTES + 1, /* hex digits and a NUL */
    WF_TOKEN_FILE_MAX = 256,                /* bytes of a text that may hold one */
};

struct wf_token {
    bool is_set; /* false: none, and the rest means nothing */
    uint8_t bytes[WF_TOKEN_BYTES];
};

/* From 64 hex digits or the base64 of 32 bytes, with white space around. INVALID says what was
 * expected, and never repeats the text. */
enum wf_status wf_token_parse(const char *text, size_t len, struct wf_token *token_out,
                              struct wf_error *error);
/* As hex digits. */
void wf_token_format(const struct wf_token *token, char text_out[WF_TOKEN_TEXT]);
/* A secret for one purpose, from which the token cannot be found. */
void wf_token_derive(const struct wf_token *token, const char *purpose,
                     struct wf_token *secret_out);
/* The keyed hash of a message. */
void wf_token_hash(const struct wf_token *token, const void *bytes, size_t len,
                   uint8_t hash_out[WF_TOKEN_BYTES]);
/* In constant time. */
bool wf_token_equal(const uint8_t a[WF_TOKEN_BYTES], const uint8_t b[WF_TOKEN_BYTES]);
/* A base64 text (of anything) into text; false: it is none, is too long, or holds a zero byte. */
bool wf_token_base64(const char *base64, char *text_out, size_t size);
/* Whoever reads freed memory later does not find it. */
void wf_token_wipe(struct wf_token *token);

/* What HTTP clients show to watch a job: derived, because it travels in the clear. */
#define WF_TOKEN_FOR_WATCHING "weft: watch over http, 1"

#endif
