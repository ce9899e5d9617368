/* hash.c - XXH3-128 over canonical bytes: little-endian integers, strings with their length. */
#include "models/hash.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "runtime/status.h"

void wf_hasher_init(struct wf_hasher *hasher)
{
    XXH3_state_t *state = XXH3_createState();
    /* A hash that silently leaves something out would be worse than stopping. */
    WF_ASSERT(state != NULL);
    WF_ASSERT(XXH3_128bits_reset(state) == XXH_OK);
    hasher->state = state;
}

void wf_hasher_u64(struct wf_hasher *hasher, uint64_t value)
{
    uint8_t bytes[8];
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)(value >> (8 * i));
    }
    WF_ASSERT(XXH3_128bits_update(hasher->state, bytes, sizeof bytes) == XXH_OK);
}

void wf_hasher_text(struct wf_hasher *hasher, const char *text, size_t len)
{
    wf_hasher_u64(hasher, len);
    if (len > 0) {
        WF_ASSERT(XXH3_128bits_update(hasher->state, text, len) == XXH_OK);
    }
}

struct wf_hash wf_hasher_end(struct wf_hasher *hasher)
{
    XXH128_hash_t digest = XXH3_128bits_digest(hasher->state);
    XXH3_freeState(hasher->state);
    hasher->state = NULL;
    return (struct wf_hash){.high = digest.high64, .low = digest.low64};
}

uint64_t wf_hash_bytes(const void *bytes, size_t len)
{
    return XXH3_64bits(bytes, len);
}

bool wf_hash_equal(struct wf_hash a, struct wf_hash b)
{
    return a.high == b.high && a.low == b.low;
}

struct wf_hash wf_hash_add(struct wf_hash a, struct wf_hash b)
{
    return (struct wf_hash){.high = a.high + b.high, .low = a.low + b.low};
}

void wf_hash_format(struct wf_hash hash, char text_out[WF_HASH_TEXT])
{
    snprintf(text_out, WF_HASH_TEXT, "%016llx%016llx", (unsigned long long)hash.high,
             (unsigned long long)hash.low);
}
