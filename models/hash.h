/* hash.h - 128-bit hashes of structured things, equal on every machine. Pure.
 *
 * XXH3-128 over a canonical byte string: integers little-endian, strings with their length first.
 * Nothing is hashed as a C struct, so padding and byte order cannot matter.
 */
#ifndef WEFT_MODELS_HASH_H
#define WEFT_MODELS_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wf_hash {
    uint64_t high, low;
};

struct wf_hasher {
    void *state; /* XXH3 state; owned */
};

void wf_hasher_init(struct wf_hasher *hasher);
void wf_hasher_u64(struct wf_hasher *hasher, uint64_t value);
void wf_hasher_text(struct wf_hasher *hasher, const char *text, size_t len);
struct wf_hash wf_hasher_end(struct wf_hasher *hasher); /* and frees it */

/* For tables in memory only. */
uint64_t wf_hash_bytes(const void *bytes, size_t len);
bool wf_hash_equal(struct wf_hash a, struct wf_hash b);
struct wf_hash wf_hash_add(struct wf_hash a, struct wf_hash b); /* each half modulo 2^64 */
enum { WF_HASH_BYTES = 16, WF_HASH_TEXT = 33 };
void wf_hash_format(struct wf_hash hash, char text_out[WF_HASH_TEXT]); /* 32 hex digits */

#endif
