/* test_ucx_again.c - readers that connect again, ask again, or were made anew: nobody waits for
 * ever. */
#include <signal.h>
#include <stdlib.h>

#include "tests/transports/job_env.h"
#include "tests/transports/ucx_own.h"
#include "tests/within.h"

/* Every second byte: the source has to pack it. */
static void start_packed(struct own_source *own, uint64_t deadline_ns)
{
    start(&own->world, &own->reading, own->remote, own->target, 0, 1);
    own->world.transport->ops->cancel(own->world.transport, &own->reading.read);
    cr_assert(own->world.kind->run(&own->world, one_done));
    own->reading.op.box = (struct wf_box){0, 0, 0, OWN_BYTES / 2, 1, {{OWN_BYTES / 2, 2, 1}}};
    own->reading.src.len_bytes = OWN_BYTES;
    own->reading.dst.len_bytes = OWN_BYTES;
    own->reading.read.deadline_ns = deadline_ns;
    own->world.done_count = 0;
    own->world.transport->ops->read(own->world.transport, &own->reading.read);
}

static bool one_waits(struct world *world)
{
    return inside(world)->source.waiting.count == 1;
}

static bool none_waits(struct world *world)
{
    return inside(world)->source.waiting.count == 0;
}

static void check_packed(struct own_source *own, const char *why)
{
    cr_assert(own->world.kind->run(&own->world, one_done), "%s: never answered", why);
    cr_assert_eq(own->reading.read.status, WF_OK, "%s: %s", why, own->reading.read.text);
    for (uint64_t i = 0; i < OWN_BYTES / 2; i++) {
        cr_assert_eq(own->target[i], world_byte(2 * i), "%s: byte %llu", why,
                     (unsigned long long)i);
    }
}

Test(ucx_again, a_request_that_waited_too_long_is_asked_again, .init = within_minutes)
{
    struct own_source own;
    open_own(&own);
    struct ucx_source *source = &inside(&own.world)->source;
    uint32_t limit = source->buffer_limit;
    source->buffer_limit = 0;
    start_packed(&own, WF_NEVER_NS);
    cr_assert(own.world.kind->run(&own.world, one_waits));
    source->waiting.first->deadline_ns = 1;
    turn_for(&own.world, 20 * MS);
    source->buffer_limit = limit;
    check_packed(&own, "asked again");
    close_own(&own);
}

Test(ucx_again, a_reader_that_connects_again_leaves_nothing_behind, .init = within_minutes)
{
    struct own_source own;
    open_own(&own);
    struct ucx_source *source = &inside(&own.world)->source;
    uint32_t limit = source->buffer_limit;
    source->buffer_limit = 0;
    start_packed(&own, WF_NEVER_NS);
    cr_assert(own.world.kind->run(&own.world, one_waits));
    struct ucx_peer *peer = ((struct ucx_remote *)own.remote)->peer;
    ucx_peer_lose(peer);
    cr_assert(own.world.kind->run(&own.world, one_done));
    cr_assert_eq(own.reading.read.status, WF_PEER_LOST);
    source->buffer_limit = limit;
    start_packed(&own, WF_NEVER_NS);
    check_packed(&own, "connected again");
    cr_assert(own.world.kind->run(&own.world, none_waits));
    uint32_t heard = 0;
    for (const struct ucx_client *client = source->clients; client != NULL; client = client->next) {
        cr_assert_eq(client->waiting, 0, "%u wait", client->waiting);
        heard += !client->dead;
    }
    cr_assert_eq(heard, 1);
    close_own(&own);
}

/* The farewell of an earlier connection is overtaken by the greeting of this one. */
Test(ucx_again, a_late_farewell_ends_only_its_own_connection, .init = within_minutes)
{
    struct own_source own;
    open_own(&own);
    struct ucx *ucx = inside(&own.world);
    struct ucx_peer *peer = ((struct ucx_remote *)own.remote)->peer;
    struct ucx_head head = {.kind = UCX_BYE, .lane = 2, .tag = peer->connection - 1};
    memcpy(head.source, peer->handle.life, UCX_LIFE_BYTES);
    memcpy(head.reader, ucx->reader.life, UCX_LIFE_BYTES);
    ucx_say(&ucx->reader.worker, peer->eps[0], UCX_AM_TO_SOURCE, &head, NULL, 0);
    turn_for(&own.world, 20 * MS);
    start_packed(&own, WF_NEVER_NS);
    check_packed(&own, "after a late farewell");
    close_own(&own);
}

static bool nobody_reads(struct world *world)
{
    return inside(world)->source.clients == NULL;
}

/* The source has given its reader up, and what that one asks for is not heard: the first read takes
 * its whole time, the second is answered. */
Test(ucx_again, a_reader_that_is_not_heard_connects_again, .init = within_minutes)
{
    struct own_source own;
    open_own(&own);
    struct ucx *ucx = inside(&own.world);
    ucx->source.clients->dead = true;
    cr_assert(own.world.kind->run(&own.world, nobody_reads));
    start_packed(&own, wf_loop_now_ns(ucx->loop) + 200 * MS);
    cr_assert(own.world.kind->run(&own.world, one_done));
    cr_assert_eq(own.reading.read.status, WF_TIMED_OUT, "%s", own.reading.read.text);
    start_packed(&own, WF_NEVER_NS);
    check_packed(&own, "connected again");
    close_own(&own);
}

/* As above, but nothing ends the read. */
Test(ucx_again, a_reader_whose_interfaces_changed_is_made_anew, .init = within_minutes)
{
    struct own_source own;
    open_own(&own);
    struct ucx *ucx = inside(&own.world);
    ucx->source.clients->dead = true;
    cr_assert(own.world.kind->run(&own.world, nobody_reads));
    ucx->reader.devices++; /* as if the worker were of another moment */
    start_packed(&own, WF_NEVER_NS);
    check_packed(&own, "made anew");
    cr_assert_geq(ucx->reader.rebuilds, 1);
    close_own(&own);
}

/* --- the barrier -------------------------------------------------------------------------------
 */

static bool one_arrives(struct world *world)
{
    const struct ucx_reader *reader = &inside(world)->reader;
    for (uint32_t i = 0; i < reader->slot_count; i++) {
        if (reader->slots[i].state == UCX_SLOT_ARRIVING) {
            return true;
        }
    }
    return false;
}

static bool two_done(struct world *world)
{
    return world->done_count >= 2;
}

/* The frozen read holds all credits, so the other has nothing on its way when the reading side is
 * made anew. */
Test(ucx_again, a_read_without_credits_goes_on_after_the_barrier, .init = within_minutes)
{
    struct world world, other;
    struct wf_import second;
    struct reading slow, good;
    open_world(&world, &world_ucx_rendezvous);
    memset(&other, 0, sizeof other);
    other.kind = &world_ucx_rendezvous;
    cr_assert(world_ucx_rendezvous.open(&other));
    cr_assert_eq(import(&world, &other.handle, WORLD_BYTES, &second), WF_OK, "%s",
                 second.error.text);
    uint8_t *frozen = malloc(WORLD_BYTES), *whole = malloc(WORLD_BYTES);
    start(&world, &slow, world.remote, frozen, 0, WORLD_BYTES);
    for (bool stuck = false; !stuck; stuck = one_arrives(&world)) {
        kill(world_ucx_source(&world), SIGCONT);
        if (world.done_count > 0) {
            start(&world, &slow, world.remote, frozen, 0, WORLD_BYTES);
        }
        cr_assert(world.kind->run(&world, one_arrives));
        kill(world_ucx_source(&world), SIGSTOP);
        turn_for(&world, 20 * MS);
    }
    struct ucx *ucx = inside(&world);
    ucx->transit_bytes = ucx->edge_bytes = ucx->chunk_bytes;
    world.transport->ops->cancel(world.transport, &slow.read);
    cr_assert_gt(ucx->reader.flight_bytes, 0);
    start(&world, &good, second.remote, whole, 0, WORLD_BYTES);
    cr_assert_eq(((struct ucx_read *)good.read.transport_data)->slots, 0, "no credits are left");
    cr_assert(world.kind->run(&world, one_done), "the barrier");
    cr_assert_eq(slow.read.status, WF_CANCELLED);
    cr_assert_geq(ucx->reader.rebuilds, 1);
    cr_assert(world.kind->run(&world, two_done), "it never goes on");
    cr_assert_eq(good.read.status, WF_OK, "%s", good.read.text);
    check_bytes(whole, 0, WORLD_BYTES);
    kill(world_ucx_source(&world), SIGCONT);
    world.transport->ops->release_region(world.transport, second.remote);
    world_ucx_rendezvous.close(&other);
    close_world(&world);
    free(frozen);
    free(whole);
}
