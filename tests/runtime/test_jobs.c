/* test_jobs.c - jobs run on other threads, their messages come back, and freeing drains. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "runtime/jobs.h"
#include "runtime/loop.h"
#include "tests/runtime/clock_env.h"
#include "tests/within.h"

enum { JOBS = 500 };

struct square {
    struct wf_job job;
    uint64_t input, output;
    pthread_t thread;
    bool signals_blocked;
};

struct owner {
    struct wf_actor actor;
    struct wf_loop *loop;
    unsigned done;
};

static void square_work(struct wf_job *job)
{
    struct square *square = WF_CONTAINER(job, struct square, job);
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    square->signals_blocked = sigismember(&blocked, SIGTERM) && sigismember(&blocked, SIGINT);
    square->output = square->input * square->input;
    square->thread = pthread_self();
}

static enum wf_verdict count_done(struct wf_actor *self, struct wf_msg *msg)
{
    struct owner *owner = (struct owner *)self;
    struct square *square = (struct square *)msg; /* done is first in job, job first in square */
    cr_assert_eq(square->output, square->input * square->input);
    cr_assert(!pthread_equal(square->thread, pthread_self()));
    cr_assert(square->signals_blocked);
    if (++owner->done == JOBS) {
        wf_loop_stop(owner->loop);
    }
    return WF_FREE;
}

static struct square *make_squares(struct owner *owner)
{
    struct square *squares = calloc(JOBS, sizeof *squares);
    for (unsigned i = 0; i < JOBS; i++) {
        squares[i].job = (struct wf_job){
            .owner = &owner->actor, .work = square_work, .name = "square", .done.kind = i};
        squares[i].input = i;
    }
    return squares;
}

Test(jobs, results_come_back_as_messages, .init = within_minutes)
{
    static const unsigned workers[] = {1, 2, 7};
    for (size_t i = 0; i < sizeof workers / sizeof workers[0]; i++) {
        struct clock_env env = {.env.ops = &clock_env_real};
        struct owner owner = {0};
        struct wf_jobs *jobs = NULL;
        cr_assert_eq(wf_loop_new(NULL, &owner.loop, NULL), WF_OK);
        wf_loop_set_env(owner.loop, &env.env);
        wf_actor_init(&owner.actor, owner.loop, "owner", count_done);
        cr_assert_eq(wf_jobs_new(workers[i], &jobs, NULL), WF_OK);
        struct square *squares = make_squares(&owner);
        for (unsigned n = 0; n < JOBS; n++) {
            wf_jobs_submit(jobs, &squares[n].job);
        }
        wf_loop_run(owner.loop);
        cr_assert_eq(owner.done, JOBS, "%u workers", workers[i]);
        wf_jobs_free(jobs);
        wf_actor_close(&owner.actor);
        wf_actor_fini(&owner.actor);
        wf_loop_free(owner.loop);
        free(squares);
    }
}

Test(jobs, freeing_does_what_was_submitted, .init = within_minutes)
{
    struct clock_env env = {.env.ops = &clock_env_real};
    struct owner owner = {0};
    struct wf_jobs *jobs = NULL;
    cr_assert_eq(wf_loop_new(NULL, &owner.loop, NULL), WF_OK);
    wf_loop_set_env(owner.loop, &env.env);
    wf_actor_init(&owner.actor, owner.loop, "owner", count_done);
    cr_assert_eq(wf_jobs_new(2, &jobs, NULL), WF_OK);
    struct square *squares = make_squares(&owner);
    for (unsigned n = 0; n < JOBS; n++) {
        wf_jobs_submit(jobs, &squares[n].job);
    }
    wf_jobs_free(jobs);
    for (unsigned n = 0; n < JOBS; n++) {
        cr_assert_eq(squares[n].output, (uint64_t)n * n);
    }
    wf_loop_run(owner.loop);
    cr_assert_eq(owner.done, JOBS);
    wf_actor_close(&owner.actor);
    wf_actor_fini(&owner.actor);
    wf_loop_free(owner.loop);
    free(squares);
}

Test(jobs, absurd_sizes_are_refused)
{
    static const unsigned workers[] = {0, WF_JOBS_WORKERS_MAX + 1};
    for (size_t i = 0; i < sizeof workers / sizeof workers[0]; i++) {
        struct wf_jobs *jobs = NULL;
        struct wf_error error;
        cr_assert_eq(wf_jobs_new(workers[i], &jobs, &error), WF_INVALID);
        cr_assert_null(jobs);
    }
    wf_jobs_free(NULL);
}
