/* test_batch.c - every item once, bounded jobs, stop as a barrier. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "actors/batch.h"

enum { ITEMS_MAX = 1000 };

struct bench {
    struct wf_loop *loop;
    struct wf_env *env;
    struct wf_actor actor;
    struct wf_batch batch;
    uint8_t done[ITEMS_MAX]; /* written by disjoint ranges */
    unsigned ended, stop_after;
};

static void work(struct wf_batch *batch, unsigned lane, uint64_t first, uint64_t count)
{
    struct bench *bench = WF_CONTAINER(batch, struct bench, batch);
    (void)lane;
    for (uint64_t i = first; i < first + count; i++) {
        bench->done[i]++;
    }
}

static enum wf_verdict handle(struct wf_actor *self, struct wf_msg *msg)
{
    struct bench *bench = WF_CONTAINER(self, struct bench, actor);
    if (bench->stop_after > 0 && --bench->stop_after == 0) {
        wf_batch_stop(&bench->batch);
    }
    if (wf_batch_step(msg) != NULL) {
        bench->ended++;
    }
    return WF_KEEP;
}

static void open_bench(struct bench *bench, unsigned parallel)
{
    const struct wf_loop_options loop = {.poller = WF_POLLER_EPOLL};
    const struct wf_env_real_options env = {.workers = 2};
    memset(bench, 0, sizeof *bench);
    cr_assert_eq(wf_loop_new(&loop, &bench->loop, NULL), WF_OK);
    cr_assert_eq(wf_env_real_new(bench->loop, &env, &bench->env, NULL), WF_OK);
    wf_loop_set_env(bench->loop, bench->env);
    wf_actor_init(&bench->actor, bench->loop, "bench", handle);
    wf_batch_init(&bench->batch, bench->loop, &bench->actor, parallel, "test", work);
}

static void close_bench(struct bench *bench)
{
    wf_actor_close(&bench->actor);
    wf_actor_fini(&bench->actor);
    wf_env_real_free(bench->env);
    wf_loop_free(bench->loop);
}

static void run_to_end(struct bench *bench, unsigned ended)
{
    while (bench->ended < ended) {
        wf_loop_turn(bench->loop);
    }
}

static const struct {
    const char *name;
    uint64_t items, grain;
    unsigned parallel;
} rows[] = {
    {"no items", 0, 8, 1},
    {"one", 1, 8, 1},
    {"less than a grain", 7, 8, 2},
    {"a whole number", 64, 8, 2},
    {"a rest", 65, 8, 2},
    {"one at a time", 1000, 1, 3},
    {"more jobs than items", 3, 1, 16},
    {"absurd threads", 100, 7, 10000},
};

Test(batch, does_every_item_once_and_ends_once)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct bench bench;
        open_bench(&bench, rows[i].parallel);
        wf_batch_start(&bench.batch, rows[i].items, rows[i].grain);
        run_to_end(&bench, 1);
        cr_assert_not(bench.batch.active, "%s", rows[i].name);
        for (uint64_t k = 0; k < ITEMS_MAX; k++) {
            cr_assert_eq(bench.done[k], k < rows[i].items, "%s: item %llu", rows[i].name,
                         (unsigned long long)k);
        }
        wf_batch_start(&bench.batch, rows[i].items, rows[i].grain); /* again */
        run_to_end(&bench, 2);
        cr_assert_eq(bench.ended, 2, "%s", rows[i].name);
        close_bench(&bench);
    }
}

Test(batch, stop_is_a_barrier)
{
    struct bench bench;
    open_bench(&bench, 2);
    bench.stop_after = 5;
    wf_batch_start(&bench.batch, ITEMS_MAX, 1);
    run_to_end(&bench, 1);
    uint8_t before[ITEMS_MAX];
    memcpy(before, bench.done, sizeof before);
    uint64_t done = 0;
    for (uint64_t i = 0; i < ITEMS_MAX; i++) {
        done += bench.done[i];
    }
    cr_assert_leq(done, 5 + 3, "only what ran already when it was stopped");
    while (wf_loop_turn(bench.loop)) {
    }
    cr_assert_eq(memcmp(before, bench.done, sizeof before), 0);
    cr_assert_eq(bench.ended, 1);
    wf_batch_stop(&bench.batch); /* nothing to stop is fine */
    cr_assert_not(bench.batch.active);
    close_bench(&bench);
}
