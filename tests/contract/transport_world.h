/* transport_world.h - a source and a reader on one transport, the same for every transport.
 *
 * The source offers one region whose content is known: byte i is world_byte(i). Where the source is
 * another process it can be killed.
 */
#ifndef WEFT_TESTS_CONTRACT_TRANSPORT_WORLD_H
#define WEFT_TESTS_CONTRACT_TRANSPORT_WORLD_H

#include "runtime/loop.h"
#include "transports/transport.h"

enum {
    WORLD_BYTES = 24 << 20,
    WORLD_PATIENCE_S = 100 /* of what must happen: a machine may be very slow */
};

struct world;
struct world_kind {
    const char *name;
    /* Makes loop, transport and handle; false: this host cannot (the reason is printed). */
    bool (*open)(struct world *world);
    void (*close)(struct world *world);
    void (*kill_source)(struct world *world);
    /* Turns until done(world) or nothing can happen any more. */
    bool (*run)(struct world *world, bool (*done)(struct world *world));
    bool survives_source; /* memory stays readable when the source is dead */
};

struct world {
    const struct world_kind *kind;
    struct wf_loop *loop;
    struct wf_transport *transport; /* the reader's */
    struct wf_handle handle;        /* of the source's region; fresh_handle gives one to import */
    struct wf_remote *remote;       /* imported */
    struct wf_actor actor;          /* owns imports and reads */
    uint64_t done_count;            /* of read messages */
    uint64_t import_count;          /* of import messages */
    void *data;                     /* the kind's */
};

/* As f32 and bf16 these bytes hold numbers, infinities and NaNs of all kinds. */
static inline uint8_t world_byte(uint64_t i)
{
    return (uint8_t)((i * UINT64_C(0x9E3779B97F4A7C15)) >> 45);
}
/* A handle that import may take (its descriptor duplicated). */
struct wf_handle world_fresh_handle(const struct world *world);
extern const struct world_kind *const world_kinds[]; /* ends with NULL */

#endif
