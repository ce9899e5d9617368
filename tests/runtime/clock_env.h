/* clock_env.h - the smallest env that a loop under test needs: a clock, real or set by hand. */
#ifndef WEFT_TESTS_RUNTIME_CLOCK_ENV_H
#define WEFT_TESTS_RUNTIME_CLOCK_ENV_H

#include <time.h>

#include "runtime/env.h"

struct clock_env {
    struct wf_env env;
    uint64_t set_ns; /* the time, for clock_env_by_hand */
};

static inline uint64_t clock_env_real_now(struct wf_env *env)
{
    (void)env;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static inline uint64_t clock_env_set_now(struct wf_env *env)
{
    return ((struct clock_env *)env)->set_ns;
}

static inline uint64_t clock_env_choose_first(struct wf_env *env, uint64_t n)
{
    (void)env;
    (void)n;
    return 0;
}

static inline uint64_t clock_env_choose_last(struct wf_env *env, uint64_t n)
{
    (void)env;
    return n - 1;
}

static const struct wf_env_ops clock_env_real = {.now_ns = clock_env_real_now};
static const struct wf_env_ops clock_env_by_hand = {.now_ns = clock_env_set_now,
                                                    .choose = clock_env_choose_last};
static const struct wf_env_ops clock_env_choosing_first = {.now_ns = clock_env_set_now,
                                                           .choose = clock_env_choose_first};

#endif
