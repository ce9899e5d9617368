/* ucx_own.h - a source in the reader's own transport: what it has and does is the test's to change.
 */
#ifndef WEFT_TESTS_TRANSPORTS_UCX_OWN_H
#define WEFT_TESTS_TRANSPORTS_UCX_OWN_H

#include <stdlib.h>

#include "tests/transports/ucx_reading.h"

struct own_source {
    struct world world;
    uint8_t *memory, *target;
    struct wf_handle handle;
    struct wf_remote *remote;
    struct reading reading;
};
enum { OWN_BYTES = 64000 };

static inline void open_own(struct own_source *own)
{
    struct wf_error error;
    struct wf_import got;
    open_world(&own->world, &world_ucx_tcp);
    own->memory = malloc(OWN_BYTES);
    own->target = malloc(OWN_BYTES);
    for (uint64_t i = 0; i < OWN_BYTES; i++) {
        own->memory[i] = world_byte(i);
    }
    const struct wf_region region = {
        .memory = WF_MEMORY_HOST, .address = own->memory, .len_bytes = OWN_BYTES};
    struct wf_transport *t = own->world.transport;
    cr_assert_eq(t->ops->export_region(t, &region, &own->handle, &error), WF_OK, "%s", error.text);
    cr_assert_eq(import(&own->world, &own->handle, OWN_BYTES, &got), WF_OK, "%s", got.error.text);
    own->remote = got.remote;
}

static inline void close_own(struct own_source *own)
{
    struct wf_transport *t = own->world.transport;
    t->ops->release_region(t, own->remote);
    t->ops->withdraw_region(t, &own->handle);
    close_world(&own->world);
    free(own->memory);
    free(own->target);
}

#endif
