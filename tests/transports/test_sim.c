/* test_sim.c - the sim transport's misbehaviour: what a wrong protocol would suffer from must
 * really happen there. The promises that all transports share are in tests/contract. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "transports/sim.h"

enum { BYTES = 4096, OPS = 4 };

struct side {
    struct wf_loop *loop;
    struct wf_transport *transport;
};

struct rig {
    struct wf_sim *sim;
    struct side source, reader;
    struct wf_actor actor;
    uint8_t memory[BYTES], target[BYTES];
    struct wf_remote *remote;
    struct wf_op ops[OPS];
    struct wf_read_source src;
    struct wf_read_target dst;
    struct wf_read read;
    unsigned done;
    bool imported, source_gone, reader_gone;
};

static enum wf_verdict handle(struct wf_actor *self, struct wf_msg *msg)
{
    struct rig *rig = WF_CONTAINER(self, struct rig, actor);
    if (msg->kind == WF_IMPORT_DONE) {
        rig->imported = true;
    } else {
        cr_assert_eq(msg->kind, WF_READ_DONE);
        rig->done++;
    }
    return WF_KEEP;
}

static void source_teardown(void *user, struct wf_loop *loop)
{
    struct rig *rig = user;
    (void)loop;
    rig->source.transport->ops->close(rig->source.transport);
    memset(rig->memory, 0xdd, BYTES);
    rig->source_gone = true;
}

/* Without a drain: open reads vanish with their rank. */
static void reader_teardown(void *user, struct wf_loop *loop)
{
    struct rig *rig = user;
    (void)loop;
    rig->reader.transport->ops->release_region(rig->reader.transport, rig->remote);
    rig->reader.transport->ops->close(rig->reader.transport);
    wf_actor_close(&rig->actor);
    wf_actor_fini(&rig->actor);
    rig->reader_gone = true;
}

static bool is_imported(void *user)
{
    return ((struct rig *)user)->imported;
}

static struct wf_import import(struct rig *rig, const struct wf_handle *handle_bytes,
                               uint64_t len_bytes)
{
    struct wf_import import = {.done = {.kind = WF_IMPORT_DONE},
                               .owner = &rig->actor,
                               .handle = *handle_bytes,
                               .len_bytes = len_bytes};
    rig->imported = false;
    rig->reader.transport->ops->import_region(rig->reader.transport, &import);
    cr_assert(wf_sim_run(rig->sim, is_imported, rig, WF_NEVER_NS));
    return import;
}

static struct rig *rig_new(uint64_t seed, const struct wf_sim_link_options *options)
{
    struct rig *rig = calloc(1, sizeof *rig);
    struct wf_handle handle_bytes;
    rig->sim = wf_sim_new(seed, NULL);
    rig->source.loop = wf_sim_rank_new(rig->sim, "source", source_teardown, rig);
    rig->reader.loop = wf_sim_rank_new(rig->sim, "reader", reader_teardown, rig);
    cr_assert_eq(wf_transport_sim_new(rig->source.loop, NULL, &rig->source.transport, NULL), WF_OK);
    cr_assert_eq(wf_transport_sim_new(rig->reader.loop, options, &rig->reader.transport, NULL),
                 WF_OK);
    wf_actor_init(&rig->actor, rig->reader.loop, "reader", handle);
    const struct wf_region region = {.address = rig->memory, .len_bytes = BYTES, .fd = -1};
    cr_assert_eq(rig->source.transport->ops->export_region(rig->source.transport, &region,
                                                           &handle_bytes, NULL),
                 WF_OK);
    struct wf_import got = import(rig, &handle_bytes, BYTES);
    cr_assert_eq(got.status, WF_OK);
    rig->remote = got.remote;
    memset(rig->memory, 1, BYTES);
    for (unsigned i = 0; i < OPS; i++) {
        uint64_t at = (uint64_t)i * (BYTES / OPS);
        rig->ops[i].box = (struct wf_box){.src_offset = at,
                                          .dst_offset = at,
                                          .elements = BYTES / OPS,
                                          .axis_count = 1,
                                          .axes = {{BYTES / OPS, 1, 1}}};
    }
    rig->src = (struct wf_read_source){rig->remote, 0, BYTES, WF_DTYPE_U8};
    rig->dst = (struct wf_read_target){rig->target, BYTES, WF_DTYPE_U8};
    rig->read =
        (struct wf_read){.done = {.kind = WF_READ_DONE},
                         .owner = &rig->actor,
                         .ops = rig->ops,
                         .op_count = OPS,
                         .src_count = 1,
                         .dst_count = 1,
                         .src = &rig->src,
                         .dst = &rig->dst,
                         .deadline_ns = wf_loop_now_ns(rig->reader.loop) + UINT64_C(10000000000)};
    return rig;
}

static void rig_free(struct rig *rig)
{
    wf_sim_free(rig->sim);
    free(rig);
}

static void start(struct rig *rig)
{
    rig->reader.transport->ops->read(rig->reader.transport, &rig->read);
}

static bool is_done(void *user)
{
    return ((struct rig *)user)->done > 0;
}

static bool run(struct rig *rig)
{
    return wf_sim_run(rig->sim, is_done, rig, wf_sim_now_ns(rig->sim) + UINT64_C(20000000000));
}

/* Until some of the read has landed, but not all. */
static bool is_half(void *user)
{
    return ((struct rig *)user)->read.bytes > 0;
}

static size_t count_of(const struct rig *rig, uint8_t value)
{
    size_t count = 0;
    for (size_t i = 0; i < BYTES; i++) {
        count += rig->target[i] == value;
    }
    return count;
}

Test(sim_transport, a_source_that_changes_during_a_read_tears_it)
{
    unsigned torn_inside_an_op = 0;
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct rig *rig = rig_new(seed, NULL);
        start(rig);
        wf_sim_run(rig->sim, is_half, rig, WF_NEVER_NS);
        memset(rig->memory, 2, BYTES);
        cr_assert(run(rig));
        cr_assert_eq(rig->read.status, WF_OK);
        cr_assert_eq(rig->read.bytes, BYTES);
        size_t old = count_of(rig, 1);
        cr_assert(old > 0 && old < BYTES && old + count_of(rig, 2) == BYTES, "seed %lu: %zu old",
                  (unsigned long)seed, old);
        torn_inside_an_op += memchr(rig->target, 1, BYTES / OPS) != NULL &&
                             memchr(rig->target, 2, BYTES / OPS) != NULL;
        rig_free(rig);
    }
    cr_assert_eq(torn_inside_an_op, 100);
}

Test(sim_transport, a_source_that_dies_during_a_read_ends_it)
{
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct rig *rig = rig_new(seed, NULL);
        start(rig);
        wf_sim_run(rig->sim, is_half, rig, WF_NEVER_NS);
        wf_sim_crash(rig->sim, rig->source.loop);
        cr_assert(rig->source_gone);
        cr_assert(run(rig));
        cr_assert_eq(rig->read.status, WF_PEER_LOST, "%s", rig->read.text);
        cr_assert_eq(count_of(rig, 0xdd), 0, "it read memory that is gone");
        rig_free(rig);
    }
}

Test(sim_transport, a_frozen_source_can_be_read)
{
    struct rig *rig = rig_new(1, NULL);
    wf_sim_freeze(rig->sim, rig->source.loop);
    start(rig);
    cr_assert(run(rig));
    cr_assert_eq(rig->read.status, WF_OK);
    cr_assert_eq(count_of(rig, 1), BYTES);
    rig_free(rig);
}

Test(sim_transport, a_frozen_reader_may_land_one_slice_late_but_none_after_done)
{
    unsigned landed = 0;
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct rig *rig = rig_new(seed, NULL);
        start(rig);
        wf_sim_freeze(rig->sim, rig->reader.loop);
        cr_assert_not(run(rig), "it moved while frozen");
        memset(rig->memory, 3, BYTES);
        wf_sim_thaw(rig->sim, rig->reader.loop);
        cr_assert(run(rig));
        cr_assert_eq(rig->read.status, WF_TIMED_OUT);
        landed += count_of(rig, 3) > 0;
        memset(rig->target, 0, BYTES);
        wf_sim_run(rig->sim, NULL, NULL, wf_sim_now_ns(rig->sim) + UINT64_C(1000000000));
        cr_assert(rig->done == 1 && count_of(rig, 0) == BYTES, "seed %lu", (unsigned long)seed);
        rig_free(rig);
    }
    cr_assert(landed > 10 && landed < 40, "%u of 50", landed);
}

Test(sim_transport, a_stall_meets_the_deadline)
{
    const struct wf_sim_link_options options = {.stall_per_million = 1000000,
                                                .stall_max_ns = UINT64_C(1000000000000)};
    struct rig *rig = rig_new(2, &options);
    start(rig);
    cr_assert(run(rig));
    cr_assert_eq(rig->read.status, WF_TIMED_OUT);
    rig_free(rig);
    rig = rig_new(2, &options);
    wf_sim_set_faults(rig->sim, false);
    start(rig);
    cr_assert(run(rig));
    cr_assert_eq(rig->read.status, WF_OK, "faults are off");
    rig_free(rig);
}

Test(sim_transport, a_link_can_fail_and_a_byte_can_arrive_wrong)
{
    struct rig *rig = rig_new(3, &(struct wf_sim_link_options){.fail_per_million = 1000000});
    start(rig);
    cr_assert(run(rig));
    cr_assert_eq(rig->read.status, WF_CONNECTION);
    rig_free(rig);
    rig = rig_new(3, &(struct wf_sim_link_options){.corrupt_per_million = 1000000});
    start(rig);
    cr_assert(run(rig));
    cr_assert_eq(rig->read.status, WF_OK, "nobody notices but a digest");
    cr_assert_lt(count_of(rig, 1), BYTES);
    rig_free(rig);
}

Test(sim_transport, reads_of_a_dead_reader_vanish)
{
    struct rig *rig = rig_new(4, NULL);
    start(rig);
    wf_sim_run(rig->sim, is_half, rig, WF_NEVER_NS);
    wf_sim_crash(rig->sim, rig->reader.loop);
    cr_assert(rig->reader_gone);
    memset(rig->target, 0, BYTES);
    wf_sim_run(rig->sim, NULL, NULL, wf_sim_now_ns(rig->sim) + UINT64_C(20000000000));
    cr_assert(rig->done == 0 && count_of(rig, 0) == BYTES);
    rig_free(rig);
}

Test(sim_transport, a_withdrawn_region_cannot_be_read_or_imported)
{
    struct rig *rig = rig_new(5, NULL);
    struct wf_handle handle_bytes;
    const struct wf_region region = {.address = rig->memory, .len_bytes = 10, .fd = -1};
    cr_assert_eq(rig->source.transport->ops->export_region(rig->source.transport, &region,
                                                           &handle_bytes, NULL),
                 WF_OK);
    rig->source.transport->ops->withdraw_region(rig->source.transport, &handle_bytes);
    cr_assert_eq(import(rig, &handle_bytes, 10).status, WF_PEER_LOST);
    rig_free(rig);
}

Test(sim_transport, it_is_for_simulated_ranks)
{
    struct wf_loop *loop = NULL;
    struct wf_transport *transport = NULL;
    struct wf_error error = {0};
    cr_assert_eq(wf_loop_new(NULL, &loop, NULL), WF_OK);
    cr_assert_eq(wf_transport_sim_new(loop, NULL, &transport, &error), WF_UNSUPPORTED);
    wf_loop_free(loop);
}
