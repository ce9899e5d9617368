/* tsan_jobs.c - jobs submitted from a handler and from another thread, results handled on the loop,
 * watched by the thread sanitizer: what a job wrote is seen by the owner without a lock.
 */
#include <pthread.h>
#include <time.h>

#include "runtime/jobs.h"
#include "runtime/loop.h"
#include "tests/tsan/check.h"

enum { WORKERS = 3, JOBS = 64, ROUNDS = 50 };

struct sum {
    struct wf_job job; /* first: its done message is the job */
    unsigned values[32], total, rounds;
};

struct owner {
    struct wf_actor actor;
    struct wf_loop *loop;
    struct wf_jobs *jobs;
    unsigned finished;
    struct sum sums[JOBS];
};

static uint64_t now_ns(struct wf_env *env)
{
    (void)env;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static const struct wf_env_ops ops = {.now_ns = now_ns};

static void add_up(struct wf_job *job)
{
    struct sum *sum = (struct sum *)job;
    sum->total = 0;
    for (unsigned i = 0; i < 32; i++) {
        sum->total += sum->values[i];
    }
}

static enum wf_verdict on_done(struct wf_actor *self, struct wf_msg *msg)
{
    struct owner *owner = (struct owner *)self;
    struct sum *sum = (struct sum *)msg;
    CHECK(sum->total == 32 * sum->rounds);
    if (++sum->rounds <= ROUNDS) {
        for (unsigned i = 0; i < 32; i++) {
            sum->values[i] = sum->rounds;
        }
        wf_jobs_submit(owner->jobs, &sum->job);
    } else if (++owner->finished == JOBS) {
        wf_loop_stop(owner->loop);
    }
    return WF_KEEP;
}

static void *submit_all(void *argument)
{
    struct owner *owner = argument;
    for (unsigned i = 0; i < JOBS; i++) {
        struct sum *sum = &owner->sums[i];
        *sum = (struct sum){.job = {.owner = &owner->actor, .work = add_up, .name = "sum"}};
        wf_jobs_submit(owner->jobs, &sum->job);
    }
    return NULL;
}

int main(void)
{
    struct wf_env env = {.ops = &ops};
    static struct owner owner;
    pthread_t thread;
    CHECK(wf_loop_new(NULL, &owner.loop, NULL) == WF_OK);
    wf_loop_set_env(owner.loop, &env);
    wf_actor_init(&owner.actor, owner.loop, "owner", on_done);
    CHECK(wf_jobs_new(WORKERS, &owner.jobs, NULL) == WF_OK);
    CHECK(pthread_create(&thread, NULL, submit_all, &owner) == 0);
    wf_loop_run(owner.loop);
    pthread_join(thread, NULL);
    wf_jobs_free(owner.jobs);
    wf_actor_close(&owner.actor);
    wf_actor_fini(&owner.actor);
    wf_loop_free(owner.loop);
    printf("%u jobs of %u rounds\n", owner.finished, ROUNDS);
    return 0;
}
