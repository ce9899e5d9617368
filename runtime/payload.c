/* payload.c - counted payloads of frames that go to many connections. */
#include <stdlib.h>

#include "runtime/env.h"

struct wf_payload *wf_payload_new(uint8_t *bytes, size_t len_bytes)
{
    struct wf_payload *payload = malloc(sizeof *payload);
    if (payload == NULL) {
        free(bytes);
        return NULL;
    }
    *payload = (struct wf_payload){.references = 1, .len_bytes = len_bytes, .bytes = bytes};
    return payload;
}

struct wf_payload *wf_payload_hold(struct wf_payload *payload)
{
    payload->references++;
    return payload;
}

void wf_payload_release(struct wf_payload *payload)
{
    if (payload != NULL && --payload->references == 0) {
        free(payload->bytes);
        free(payload);
    }
}
