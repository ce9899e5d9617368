/* job_env.h - the env that a transport under test needs: a real clock, a real pool, no wire. */
#ifndef WEFT_TESTS_TRANSPORTS_JOB_ENV_H
#define WEFT_TESTS_TRANSPORTS_JOB_ENV_H

#include <sys/random.h>
#include <time.h>

#include "runtime/env.h"
#include "runtime/jobs.h"

struct job_env {
    struct wf_env env;
    struct wf_jobs *jobs;
};

static inline uint64_t job_env_now_ns(struct wf_env *env)
{
    (void)env;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static inline uint64_t job_env_choose(struct wf_env *env, uint64_t n)
{
    (void)env;
    return n - 1;
}

static inline void job_env_random(struct wf_env *env, void *bytes, size_t len_bytes)
{
    (void)env;
    WF_ASSERT(getrandom(bytes, len_bytes, 0) == (ssize_t)len_bytes);
}

static inline void job_env_job(struct wf_env *env, struct wf_job *job)
{
    wf_jobs_submit(((struct job_env *)env)->jobs, job);
}

static const struct wf_env_ops job_env_ops = {.now_ns = job_env_now_ns,
                                              .choose = job_env_choose,
                                              .random = job_env_random,
                                              .job = job_env_job};

#endif
