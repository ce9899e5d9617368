/* limit.c - memcpy with 1..nproc threads over warm pages. */
#include "tools/run/limit.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PASSES = 5, WORKERS_MAX = 64 };

struct slice {
    const uint8_t *from;
    uint8_t *to;
    uint64_t bytes;
};

static void *copy_slice(void *user)
{
    struct slice *slice = user;
    memcpy(slice->to, slice->from, slice->bytes);
    return NULL;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static double one_pass(struct wf_limit *limit, uint32_t workers)
{
    pthread_t threads[WORKERS_MAX];
    struct slice slices[WORKERS_MAX];
    uint64_t start = now_ns(), each = limit->bytes / workers;
    for (uint32_t i = 0; i < workers; i++) {
        slices[i] = (struct slice){limit->from + i * each, limit->to + i * each, each};
        if (i > 0 && pthread_create(&threads[i], NULL, copy_slice, &slices[i]) != 0) {
            copy_slice(&slices[i]);
            threads[i] = 0;
        }
    }
    copy_slice(&slices[0]);
    for (uint32_t i = 1; i < workers; i++) {
        if (threads[i] != 0) {
            pthread_join(threads[i], NULL);
        }
    }
    return (double)(each * workers) / ((double)(now_ns() - start) * 1e-9);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum wf_status wf_limit_init(struct wf_limit *limit, uint64_t bytes, struct wf_error *error)
{
    memset(limit, 0, sizeof *limit);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    limit->workers_max = cores < 1 ? 1 : cores > WORKERS_MAX ? WORKERS_MAX : (uint32_t)cores;
    void *memory = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) {
        return wf_error_set(error, WF_NO_MEMORY,
                            "no memory for the %llu MiB with which the host's limit is measured: "
                            "%s",
                            (unsigned long long)(2 * bytes >> 20), strerror(errno));
    }
    limit->from = memory;
    limit->to = limit->from + bytes;
    limit->bytes = bytes;
    memset(memory, 1, 2 * bytes);
    return WF_OK;
}

void wf_limit_measure(struct wf_limit *limit)
{
    limit->bytes_per_s = 0;
    for (uint32_t workers = 1; workers <= limit->workers_max; workers++) {
        double rates[PASSES];
        for (int i = 0; i < PASSES; i++) {
            rates[i] = one_pass(limit, workers);
        }
        qsort(rates, PASSES, sizeof rates[0], by_value);
        if (rates[PASSES / 2] > limit->bytes_per_s) {
            limit->bytes_per_s = rates[PASSES / 2];
            limit->workers = workers;
        }
    }
    snprintf(limit->how, sizeof limit->how,
             "memcpy of %llu MiB of warm pages beside the job, %u thread%s: %.1f GB/s",
             (unsigned long long)(limit->bytes >> 20), limit->workers,
             limit->workers == 1 ? "" : "s", limit->bytes_per_s * 1e-9);
}

void wf_limit_fini(struct wf_limit *limit)
{
    if (limit->from != NULL) {
        munmap(limit->from, 2 * limit->bytes);
    }
    memset(limit, 0, sizeof *limit);
}
