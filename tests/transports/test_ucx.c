/* test_ucx.c - what the UCX transport adds to the contract: signals, sleeping, credits, sources
 * that freeze, and requests that a source must not believe. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/transports/job_env.h"
#include "tests/transports/ucx_reading.h"
#include "tests/within.h"

static const struct world_kind *const kinds[] = {&world_ucx_tcp, &world_ucx_rendezvous,
                                                 &world_ucx_posix};
#define FOR_EACH_KIND(world)                                           \
    for (size_t k_ = 0; k_ < sizeof kinds / sizeof kinds[0]; k_++)     \
        for (bool once_ = (open_world(world, kinds[k_]), true); once_; \
             once_ = false, close_world(world))

/* --- the library -------------------------------------------------------------------------------
 */

static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTERM, SIGCHLD, SIGPIPE};
enum { SIGNALS = sizeof signals / sizeof signals[0] };

static void note_signals(struct sigaction *actions)
{
    for (int i = 0; i < SIGNALS; i++) {
        memset(&actions[i], 0, sizeof actions[i]);
        sigaction(signals[i], NULL, &actions[i]);
    }
}

Test(ucx, the_process_keeps_its_signals)
{
    struct sigaction before[SIGNALS], after[SIGNALS];
    struct world world;
    signal(SIGPIPE, SIG_IGN); /* as the world does */
    note_signals(before);
    open_world(&world, &world_ucx_tcp);
    check_alive(&world);
    note_signals(after);
    for (int i = 0; i < SIGNALS; i++) {
        cr_assert_eq(before[i].sa_handler, after[i].sa_handler, "signal %d", signals[i]);
        cr_assert_eq(before[i].sa_flags, after[i].sa_flags, "signal %d", signals[i]);
    }
    cr_assert_null(getenv("UCX_HANDLE_ERRORS"), "the environment is as it was");
    close_world(&world);
}

Test(ucx, what_it_selected_is_told)
{
    struct world world;
    open_world(&world, &world_ucx_tcp);
    const char *said = world.transport->ops->describe(world.transport);
    cr_assert_not_null(strstr(said, "tcp/"), "%s", said);
    cr_assert_null(strstr(said, "one-sided"), "%s", said);
    close_world(&world);
}

/* --- sleeping ----------------------------------------------------------------------------------
 */

static struct wf_loop *timed_loop;

static void stop_on_time(struct wf_timer *timer)
{
    (void)timer;
    wf_loop_stop(timed_loop);
}

/* No timer is armed while reads go on, so one wake-up lost would be a test that never ends. */
Test(ucx, a_loop_sleeps_and_is_woken, .init = within_minutes)
{
    struct world world;
    FOR_EACH_KIND(&world)
    {
        enum { READS = 100, BYTES = 300000 };
        uint8_t *target = malloc(BYTES);
        stops_loop = true;
        for (int i = 0; i < READS; i++) {
            struct reading reading;
            start(&world, &reading, world.remote, target, (uint64_t)i * 1000, BYTES);
            wf_timer_cancel(world.loop, &inside(&world)->reader.look);
            while (world.done_count == 0) {
                wf_loop_run(world.loop);
            }
            cr_assert_eq(reading.read.status, WF_OK, "%s", reading.read.text);
            cr_assert_eq(target[BYTES - 1], world_byte((uint64_t)i * 1000 + BYTES - 1));
        }
        stops_loop = false;
        struct wf_loop_stats before = wf_loop_stats(world.loop);
        struct wf_timer timer = {.fire = stop_on_time, .name = "the test"};
        timed_loop = world.loop;
        wf_timer_arm(world.loop, &timer, wf_loop_now_ns(world.loop) + 300 * MS);
        wf_loop_run(world.loop);
        struct wf_loop_stats stats = wf_loop_stats(world.loop);
        cr_assert_gt(before.sleeps, 0, "%s", world.kind->name);
        cr_assert_leq(stats.sleeps - before.sleeps, 8, "%s: %llu sleeps of an idle loop",
                      world.kind->name, (unsigned long long)(stats.sleeps - before.sleeps));
        free(target);
    }
}

/* --- credits -----------------------------------------------------------------------------------
 */

Test(ucx, bytes_in_flight_stay_within_the_budget)
{
    struct world world;
    FOR_EACH_KIND(&world)
    {
        uint8_t *target = malloc(WORLD_BYTES);
        struct reading reading;
        struct ucx_reader *reader = &inside(&world)->reader;
        start(&world, &reading, world.remote, target, 0, WORLD_BYTES);
        wf_timer_cancel(world.loop,
                        &reader->look); /* this host's interfaces may change meanwhile */
        cr_assert(world.kind->run(&world, one_done));
        cr_assert_eq(reading.read.status, WF_OK, "%s", reading.read.text);
        cr_assert_leq(reader->flight_max, UCX_TEST_TRANSIT);
        cr_assert_geq(reader->flight_max, UCX_TEST_TRANSIT / 2, "the budget is used");
        cr_assert_eq(reader->flight_bytes, 0, "all credits came back");
        cr_assert_eq(reader->rebuilds, 0);
        check_bytes(target, 0, WORLD_BYTES);
        free(target);
    }
}

/* --- sources that freeze -----------------------------------------------------------------------
 */

static struct reading *watched;

static bool some_bytes(struct world *world)
{
    (void)world;
    return watched->read.bytes > 0;
}

/* Stopped in the middle of a transfer; the buffer is the caller's as soon as done is there, even
 * when the source goes on later. */
static void check_frozen(struct world *world, bool by_cancel)
{
    uint8_t *target = malloc(WORLD_BYTES);
    struct reading reading;
    start(world, &reading, world->remote, target, 0, WORLD_BYTES);
    if (!by_cancel) {
        world->transport->ops->cancel(world->transport, &reading.read);
        cr_assert(world->kind->run(world, one_done));
        reading.read.deadline_ns = wf_loop_now_ns(world->loop) + 1000 * (uint64_t)MS;
        world->done_count = 0;
        world->transport->ops->read(world->transport, &reading.read);
    }
    watched = &reading;
    cr_assert(world->kind->run(world, some_bytes));
    kill(world_ucx_source(world), SIGSTOP);
    if (by_cancel) {
        world->transport->ops->cancel(world->transport, &reading.read);
    }
    cr_assert(world->kind->run(world, one_done), "%s", world->kind->name);
    enum wf_status wanted = by_cancel ? WF_CANCELLED : WF_TIMED_OUT;
    cr_assert_eq(reading.read.status, wanted, "%s: %s", world->kind->name, reading.read.text);
    memset(target, 0xa5, WORLD_BYTES);
    kill(world_ucx_source(world), SIGCONT);
    turn_for(world, 300 * MS);
    check_untouched(target, WORLD_BYTES);
    start(world, &reading, world->remote, target, 0, WORLD_BYTES);
    cr_assert(world->kind->run(world, one_done), "%s: no answer after the freeze",
              world->kind->name);
    cr_assert_eq(reading.read.status, WF_OK, "%s: %s", world->kind->name, reading.read.text);
    check_bytes(target, 0, WORLD_BYTES);
    free(target);
}

Test(ucx, cancel_is_a_barrier_when_the_source_froze, .init = within_minutes)
{
    struct world world;
    FOR_EACH_KIND(&world)
    {
        check_frozen(&world, true);
    }
}

Test(ucx, a_deadline_is_a_barrier_when_the_source_froze, .init = within_minutes)
{
    struct world world;
    FOR_EACH_KIND(&world)
    {
        check_frozen(&world, false);
    }
}

Test(ucx, a_source_that_does_not_answer_times_out)
{
    struct world world;
    FOR_EACH_KIND(&world)
    {
        uint8_t target[1000];
        struct reading reading;
        kill(world_ucx_source(&world), SIGSTOP);
        start(&world, &reading, world.remote, target, 0, sizeof target);
        world.transport->ops->cancel(world.transport, &reading.read);
        cr_assert(world.kind->run(&world, one_done));
        reading.read.deadline_ns = wf_loop_now_ns(world.loop) + 50 * MS;
        world.done_count = 0;
        world.transport->ops->read(world.transport, &reading.read);
        cr_assert(world.kind->run(&world, one_done));
        cr_assert_eq(reading.read.status, WF_TIMED_OUT, "%s", reading.read.text);
        cr_assert_eq(reading.read.failed_op, 0);
        kill(world_ucx_source(&world), SIGCONT);
        check_alive(&world);
    }
}

/* One source freezes in the middle of a chunk; what is read from another meanwhile is whole. */
Test(ucx, another_source_is_not_disturbed, .init = within_minutes)
{
    struct world world, other;
    open_world(&world, &world_ucx_rendezvous);
    memset(&other, 0, sizeof other);
    other.kind = &world_ucx_rendezvous;
    cr_assert(world_ucx_rendezvous.open(&other));
    struct wf_import second;
    cr_assert_eq(import(&world, &other.handle, WORLD_BYTES, &second), WF_OK, "%s",
                 second.error.text);
    uint8_t *frozen = malloc(WORLD_BYTES), *whole = malloc(WORLD_BYTES);
    struct reading slow, good;
    start(&world, &slow, world.remote, frozen, 0, WORLD_BYTES);
    watched = &slow;
    cr_assert(world.kind->run(&world, some_bytes));
    kill(world_ucx_source(&world), SIGSTOP);
    start(&world, &good, second.remote, whole, 0, WORLD_BYTES);
    world.transport->ops->cancel(world.transport, &slow.read);
    for (int rounds = 0; rounds < 20 && slow.read.transport_data != NULL; rounds++) {
        while (good.read.transport_data != NULL && slow.read.transport_data != NULL) {
            wf_loop_turn(world.loop);
        }
        if (good.read.transport_data == NULL) {
            cr_assert_eq(good.read.status, WF_OK, "%s", good.read.text);
            check_bytes(whole, 0, WORLD_BYTES);
            memset(whole, 0, WORLD_BYTES);
            turn_for(&world, 50 * MS);
            start(&world, &good, second.remote, whole, 0, WORLD_BYTES);
        }
    }
    while (good.read.transport_data != NULL) {
        wf_loop_turn(world.loop);
    }
    cr_assert_null(slow.read.transport_data);
    cr_assert_eq(good.read.status, WF_OK, "%s", good.read.text);
    check_bytes(whole, 0, WORLD_BYTES);
    turn_for(&world, MS);
    kill(world_ucx_source(&world), SIGCONT);
    world.transport->ops->release_region(world.transport, second.remote);
    world_ucx_rendezvous.close(&other);
    close_world(&world);
    free(frozen);
    free(whole);
}

/* --- readers that die ----------------------------------------------------------------------------
 */

/* Not over UCX's shared memory: a reader that ends between taking a place in the source's queue and
 * filling it leaves a gap there, at which the source waits for ever (UCX 1.13: its mm_ep.c). */
Test(ucx, a_source_outlives_its_readers, .init = within_minutes)
{
    static const struct {
        const struct world_kind *kind;
        const char *tls;
    } rows[] = {{&world_ucx_tcp, "tcp"}, {&world_ucx_rendezvous, "rndv:tcp"}};
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        struct world world;
        open_world(&world, rows[k].kind);
        for (int i = 0; i < 6; i++) {
            pid_t reader = start_reader(&world, rows[k].tls, "read");
            turn_for(&world, (uint64_t)i * 7 * MS);
            kill(reader, SIGKILL);
            waitpid(reader, NULL, 0);
        }
        check_alive(&world);
        cr_assert_eq(kill(world_ucx_source(&world), 0), 0);
        close_world(&world);
    }
}

/* --- one-sided reads -----------------------------------------------------------------------------
 */

Test(ucx, what_lies_in_one_piece_can_be_read_without_the_source)
{
    struct world world;
    open_world(&world, &world_ucx_get);
    const struct ucx_remote *remote = (const struct ucx_remote *)world.remote;
    cr_assert_not_null(remote->key, "the source gave a key");
    uint8_t *target = malloc(WORLD_BYTES);
    struct reading reading;
    start(&world, &reading, world.remote, target, 5, 1000000);
    const struct ucx_reader *reader = &inside(&world)->reader;
    cr_assert_gt(reader->receives, 0, "asked UCX, not the source");
    cr_assert(world.kind->run(&world, one_done));
    cr_assert_eq(reading.read.status, WF_OK, "%s", reading.read.text);
    check_bytes(target, 5, 1000000);
    free(target);
    close_world(&world);
}

Test(ucx, over_tcp_it_is_not_emulated_unasked)
{
    struct world world;
    open_world(&world, &world_ucx_tcp);
    cr_assert_null(((const struct ucx_remote *)world.remote)->key);
    close_world(&world);
}

/* --- what a source does not believe ------------------------------------------------------------
 */

/* Reads 100 bytes with what the caller falsified in the remote; the source must say no, because of
 * `why`. */
static void expect_refusal(struct world *world, const char *name, const char *why)
{
    uint8_t target[100];
    struct reading reading;
    start(world, &reading, world->remote, target, 0, sizeof target);
    cr_assert(world->kind->run(world, one_done), "%s", name);
    cr_assert_eq(reading.read.status, WF_REFUSED, "%s: %s", name, reading.read.text);
    cr_assert_not_null(strstr(reading.read.text, why), "%s: %s", name, reading.read.text);
}

Test(ucx, a_source_checks_what_it_is_asked)
{
    struct world world;
    open_world(&world, &world_ucx_tcp);
    struct ucx_remote *remote = (struct ucx_remote *)world.remote;
    uint64_t region = remote->region;
    remote->region = 77;
    expect_refusal(&world, "another region", "a region that is not there");
    remote->region = region;

    uint8_t target[100];
    struct reading reading;
    remote->base.len_bytes = UINT64_C(1) << 40;
    start(&world, &reading, world.remote, target, 0, sizeof target);
    cr_assert(world.kind->run(&world, one_done));
    cr_assert_eq(reading.read.status, WF_OK);
    reading.src.len_bytes = UINT64_C(1) << 40;
    reading.op.box.src_offset = WORLD_BYTES - 50;
    world.done_count = 0;
    world.transport->ops->read(world.transport, &reading.read);
    cr_assert(world.kind->run(&world, one_done));
    cr_assert_eq(reading.read.status, WF_REFUSED, "%s", reading.read.text);
    cr_assert_not_null(strstr(reading.read.text, "outside its region"), "%s", reading.read.text);
    remote->base.len_bytes = WORLD_BYTES;
    check_alive(&world);
    close_world(&world);
}

Test(ucx, a_source_survives_nonsense)
{
    struct world world;
    open_world(&world, &world_ucx_tcp);
    struct ucx *ucx = inside(&world);
    struct ucx_peer *peer = ((struct ucx_remote *)world.remote)->peer;
    uint64_t seed = 1;
    for (int i = 0; i < 3000; i++) {
        uint8_t body[600];
        for (size_t b = 0; b < sizeof body; b++) {
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
            body[b] = (uint8_t)(seed >> 56);
        }
        struct ucx_head head = {.kind = (uint8_t)(1 + i % (UCX_KIND_LIMIT - 1)),
                                .lane = body[0],
                                .count = body[1],
                                .len_bytes = body[2],
                                .region = body[3] % 3,
                                .tag = UINT64_MAX - (uint64_t)i};
        memcpy(head.source, peer->handle.life, UCX_LIFE_BYTES);
        memcpy(head.reader, ucx->reader.life, UCX_LIFE_BYTES);
        head.reader[0] ^= i % 5 == 0;
        ucx_say(&ucx->reader.worker, peer->eps[0], UCX_AM_TO_SOURCE, &head, body, body[4] * 2u);
        wf_loop_turn(world.loop);
    }
    check_alive(&world);
    close_world(&world);
}

struct answers {
    unsigned good, refused;
};

static ucs_status_t count_answer(void *argument, const void *header, size_t header_len, void *data,
                                 size_t data_len, const ucp_am_recv_param_t *param)
{
    struct answers *answers = argument;
    struct ucx_head head;
    (void)data;
    (void)param;
    cr_assert(ucx_head_decode(header, header_len, &head));
    cr_assert_eq(head.kind, UCX_DATA);
    cr_assert(head.status != WF_OK || data_len == head.len_bytes, "%zu bytes", data_len);
    (*(head.status == WF_OK ? &answers->good : &answers->refused))++;
    return UCS_OK;
}

/* Requests that were good, with bits of head and slices turned over. */
Test(ucx, a_source_answers_every_damaged_request, .init = within_minutes)
{
    enum { REQUESTS = 3000, BYTES = 300, AXES = 2 };
    struct world world;
    struct answers answers = {0, 0};
    open_world(&world, &world_ucx_tcp);
    struct ucx *ucx = inside(&world);
    struct ucx_worker *worker = &ucx->reader.worker;
    struct ucx_peer *peer = ((struct ucx_remote *)world.remote)->peer;
    const ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = UCX_AM_TO_READER,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb = count_answer,
        .arg = &answers,
    };
    cr_assert_eq(ucx->library.ucp_worker_set_am_recv_handler(worker->worker, &handler), UCS_OK);
    uint64_t seed = 7;
    for (int i = 0; i < REQUESTS; i++) {
        uint8_t body[2 * UCX_SLICE_MAX_BYTES];
        const struct ucx_slice slice = {.region = ((struct ucx_remote *)world.remote)->region,
                                        .offset = (uint64_t)i,
                                        .first = (uint64_t)i % 50,
                                        .count = BYTES / 2,
                                        .dtype = WF_DTYPE_U8,
                                        .wire_dtype = WF_DTYPE_U8,
                                        .axis_count = AXES,
                                        .axes = {{100, 4096}, {20, i % 2 + 1}}};
        size_t len = ucx_slice_encode(&slice, body);
        len += ucx_slice_encode(&slice, body + len);
        struct ucx_head head = {.kind = UCX_CHUNK,
                                .lane = (uint8_t)(i % 2),
                                .count = 2,
                                .in_parts = i / 2 % 2,
                                .timeout_ms = 60000,
                                .tag = UINT64_MAX,
                                .len_bytes = BYTES};
        memcpy(head.source, peer->handle.life, UCX_LIFE_BYTES);
        memcpy(head.reader, ucx->reader.life, UCX_LIFE_BYTES);
        for (int turned = i % 4; turned > 0; turned--) {
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
            body[(seed >> 32) % len] ^= (uint8_t)(1u << (seed >> 61));
        }
        head.lane ^= i % 97 == 0 ? 0x40 : 0;
        head.count += (uint32_t)(i % 89 == 0) + (i % 83 == 0 ? UINT32_MAX - 5 : 0);
        head.len_bytes += i % 79 == 0;
        ucx_say(worker, peer->eps[0], UCX_AM_TO_SOURCE, &head, body, i % 73 == 0 ? len - 1 : len);
        wf_loop_turn(world.loop);
    }
    for (int turns = 0; turns < 1000 && answers.good + answers.refused < REQUESTS; turns++) {
        turn_for(&world, MS);
    }
    cr_assert_eq(answers.good + answers.refused, REQUESTS, "%u good, %u refused", answers.good,
                 answers.refused);
    cr_assert_gt(answers.good, REQUESTS / 4, "%u good", answers.good);
    cr_assert_gt(answers.refused, REQUESTS / 4, "%u refused", answers.refused);
    cr_assert_eq(kill(world_ucx_source(&world), 0), 0);
    close_world(&world);
}

Test(ucx, a_handle_of_an_earlier_life_is_refused)
{
    struct world world;
    open_world(&world, &world_ucx_tcp);
    struct ucx_handle parts;
    struct wf_handle stale;
    struct wf_import got;
    cr_assert_eq(ucx_handle_decode(&world.handle, &parts, NULL), WF_OK);
    parts.life[3] ^= 1;
    cr_assert_eq(ucx_handle_encode(&parts, &stale, NULL), WF_OK);
    cr_assert_eq(import(&world, &stale, WORLD_BYTES, &got), WF_PEER_LOST);
    cr_assert_not_null(strstr(got.error.text, "earlier life"), "%s", got.error.text);
    check_alive(&world);
    close_world(&world);
}

Test(ucx, a_source_that_died_is_lost_in_the_middle, .init = within_minutes)
{
    struct world world;
    FOR_EACH_KIND(&world)
    {
        uint8_t *target = malloc(WORLD_BYTES);
        struct reading reading;
        start(&world, &reading, world.remote, target, 0, WORLD_BYTES);
        watched = &reading;
        cr_assert(world.kind->run(&world, some_bytes));
        world.kind->kill_source(&world);
        cr_assert(world.kind->run(&world, one_done), "%s", world.kind->name);
        cr_assert_eq(reading.read.status, WF_PEER_LOST, "%s: %s", world.kind->name,
                     reading.read.text);
        memset(target, 0xa5, WORLD_BYTES);
        turn_for(&world, 100 * MS);
        check_untouched(target, WORLD_BYTES);
        free(target);
    }
}
