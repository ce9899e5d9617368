/* test_hooks.c - the host's own work on a version: before it is written, once it is, and after the
 * flip; what fails, what waits, what counts as written to. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <string.h>

#include "actors/receiver.h"
#include "tests/actors/stage.h"

enum which { BEFORE, AFTER, FLIP, HOOKS };
static const char *const names[HOOKS] = {"before_write", "after_write", "after_flip"};

/* A host of one infer rank. Its hooks run on the pool. */
struct host {
    struct stage stage;
    struct wf_round_key key;
    atomic_int calls[HOOKS];
    atomic_bool wait; /* the hook in question does not return while it is set */
    int bad;          /* the hook that fails; HOOKS: none */
    bool silent;      /* without a sentence */
    bool written_before, written_after;
};

static enum wf_status answer(struct host *host, enum which which, struct wf_error *error)
{
    atomic_fetch_add(&host->calls[which], 1);
    while (atomic_load(&host->wait)) {
    }
    if ((int)which != host->bad) {
        return WF_OK;
    }
    return host->silent ? WF_IO : wf_error_set(error, WF_IO, "the cache would not be built");
}

/* Whether the first tensor has its new bytes at `at`: never all zero after stage_step. */
static bool has_bytes(const struct wf_rank *rank, const void *at)
{
    const uint8_t *bytes = at;
    uint64_t count = rank->layout->tensors[0].bytes, set = 0;
    for (uint64_t i = 0; i < count; i++) {
        set += bytes[i] != 0;
    }
    return set > 0;
}

static enum wf_status on_before(void *user, struct wf_rank *rank, struct wf_version version,
                                struct wf_error *error)
{
    struct host *host = user;
    (void)version;
    host->written_before = has_bytes(rank, rank->options.tensors[rank->order[0]].address);
    return answer(host, BEFORE, error);
}

static enum wf_status on_after(void *user, struct wf_rank *rank, struct wf_version version,
                               void *const *written, struct wf_error *error)
{
    struct host *host = user;
    (void)version;
    host->written_after = has_bytes(rank, written[rank->order[0]]);
    return answer(host, AFTER, error);
}

static enum wf_status on_flip(void *user, struct wf_rank *rank, struct wf_version version,
                              struct wf_error *error)
{
    (void)rank;
    (void)version;
    return answer(user, FLIP, error);
}

static struct stage_rank *reader(struct host *host)
{
    return stage_infer(&host->stage, 0);
}

static void open_host(struct host *host, enum wf_update_mode mode, int bad)
{
    const struct stage_options options = {
        .train = "megatron:tp=1", .infer = "vllm:tp=1", .share_memory = true, .mode = mode};
    memset(host, 0, sizeof *host);
    host->bad = bad;
    stage_open(&host->stage, &options);
    struct stage_rank *rank = reader(host);
    rank->rank.options.hooks.before_write = on_before;
    rank->rank.options.hooks.after_write = on_after;
    rank->rank.options.hooks.after_flip = on_flip;
    rank->rank.options.host = host;
    memset(rank->memory.address, 0, rank->memory.len_bytes);
    stage_plan(&host->stage);
    stage_step(&host->stage, 1);
    host->key = stage_key(&host->stage, 1, 1);
}

static void grant_and_read(struct host *host, uint64_t within_ms)
{
    struct stage_rank *train = stage_train(&host->stage, 0);
    stage_send(train, wf_sender_actor(train->rank.sender), WF_LOCAL_GRANT, &host->key, 0);
    stage_send(reader(host), wf_receiver_actor(reader(host)->rank.receiver), WF_LOCAL_READ,
               &host->key, wf_loop_now_ns(reader(host)->rank.loop) + within_ms * 1000000);
}

static struct wf_local_msg *read_done(struct host *host)
{
    struct wf_local_msg *done = stage_wait(&host->stage, reader(host), WF_LOCAL_READ_DONE);
    cr_assert_not_null(done);
    return done;
}

Test(hooks, run_in_order_and_see_the_new_bytes)
{
    static const enum wf_update_mode modes[] = {WF_MODE_STAGED, WF_MODE_IN_PLACE};
    for (unsigned m = 0; m < 2; m++) {
        struct host host;
        open_host(&host, modes[m], HOOKS);
        grant_and_read(&host, 15000);
        struct wf_local_msg *done = read_done(&host);
        cr_assert_eq(done->status, WF_OK, "mode %u: %s", m, done->error.text);
        stage_drop(done);
        cr_assert_eq(host.calls[BEFORE], 1, "mode %u", m);
        cr_assert_eq(host.calls[AFTER], 1, "mode %u", m);
        cr_assert_eq(host.calls[FLIP], 0, "mode %u", m);
        cr_assert_not(host.written_before, "mode %u", m);
        cr_assert(host.written_after, "mode %u", m);
        stage_flip(&host.stage, &host.key);
        cr_assert_eq(host.calls[FLIP], 1, "mode %u", m);
        cr_assert(stage_live_is_right(&host.stage));
        stage_close(&host.stage);
    }
}

/* A hook that fails votes no, by name; in place the weights count as written to from before_write
 * on. */
Test(hooks, a_failure_is_a_vote_against_the_version)
{
    static const struct {
        enum which bad;
        enum wf_update_mode mode;
        bool silent, wrote;
    } rows[] = {
        {BEFORE, WF_MODE_STAGED, false, false},
        {BEFORE, WF_MODE_IN_PLACE, false, true},
        {AFTER, WF_MODE_STAGED, false, true},
        {AFTER, WF_MODE_IN_PLACE, true, true},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct host host;
        open_host(&host, rows[i].mode, (int)rows[i].bad);
        host.silent = rows[i].silent;
        grant_and_read(&host, 15000);
        struct wf_local_msg *done = read_done(&host);
        cr_assert_eq(done->status, WF_IO, "row %u", i);
        cr_assert_not_null(strstr(done->error.text, names[rows[i].bad]), "row %u: %s", i,
                           done->error.text);
        cr_assert_not_null(
            strstr(done->error.text, rows[i].silent ? wf_status_text(WF_IO) : "would not be built"),
            "row %u: %s", i, done->error.text);
        cr_assert_eq(done->culprit.side, WF_INFER, "row %u", i);
        cr_assert_eq(done->wrote, rows[i].wrote, "row %u", i);
        cr_assert_eq(host.calls[AFTER], rows[i].bad == AFTER, "row %u", i);
        stage_drop(done);
        stage_close(&host.stage);
    }
}

Test(hooks, a_failure_after_the_flip_leaves_no_version)
{
    struct host host;
    open_host(&host, WF_MODE_STAGED, FLIP);
    grant_and_read(&host, 15000);
    stage_drop(read_done(&host));
    struct stage_rank *rank = reader(&host);
    stage_send(rank, wf_receiver_actor(rank->rank.receiver), WF_LOCAL_FLIP, &host.key, 0);
    struct wf_local_msg *flipped = stage_wait(&host.stage, rank, WF_LOCAL_FLIPPED);
    cr_assert_eq(flipped->status, WF_IO);
    cr_assert_not_null(strstr(flipped->error.text, "would not be built"), "%s",
                       flipped->error.text);
    stage_drop(flipped);
    stage_close(&host.stage);
}

static bool runs_hook(void *user)
{
    struct host *host = user;
    return atomic_load(&host->calls[BEFORE]) + atomic_load(&host->calls[AFTER]) ==
           (host->bad == BEFORE ? 1 : 2);
}

static void stop(struct host *host)
{
    stage_send(reader(host), wf_receiver_actor(reader(host)->rank.receiver), WF_LOCAL_STOP,
               &host->key, 0);
}

/* `bad` says which hook is caught in the act, and does not matter otherwise: the round is over. */
Test(hooks, an_abort_waits_for_their_return)
{
    for (int caught = BEFORE; caught <= AFTER; caught++) {
        struct host host;
        open_host(&host, WF_MODE_STAGED, caught);
        atomic_store(&host.wait, caught == BEFORE);
        grant_and_read(&host, 15000);
        if (caught == AFTER) {
            while (atomic_load(&host.calls[BEFORE]) == 0) {
                wf_loop_turn(reader(&host)->rank.loop);
            }
            atomic_store(&host.wait, true);
        }
        cr_assert(stage_run(&host.stage, runs_hook, &host), "%s", names[caught]);
        stop(&host);
        for (int i = 0; i < 200; i++) {
            wf_loop_turn(reader(&host)->rank.loop);
        }
        cr_assert_eq(reader(&host)->client.answer_count, 0, "%s", names[caught]);
        atomic_store(&host.wait, false);
        struct wf_local_msg *stopped = stage_wait(&host.stage, reader(&host), WF_LOCAL_STOPPED);
        cr_assert_not_null(stopped, "%s", names[caught]);
        stage_drop(stopped);
        stage_close(&host.stage);
    }
}

Test(hooks, one_that_does_not_return_is_named_when_time_is_up)
{
    struct host host;
    open_host(&host, WF_MODE_STAGED, HOOKS);
    atomic_store(&host.wait, true);
    grant_and_read(&host, 50);
    host.bad = BEFORE;
    cr_assert(stage_run(&host.stage, runs_hook, &host));
    while (reader(&host)->rank.receiver->phase != RECEIVER_DRAINING) {
        wf_loop_turn(reader(&host)->rank.loop);
    }
    cr_assert_eq(reader(&host)->client.answer_count, 0, "it still runs");
    atomic_store(&host.wait, false);
    struct wf_local_msg *done = read_done(&host);
    cr_assert_eq(done->status, WF_TIMED_OUT);
    cr_assert_not_null(strstr(done->error.text, "before_write"), "%s", done->error.text);
    stage_drop(done);
    stage_close(&host.stage);
}
