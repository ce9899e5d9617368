/* limit.c - memcpy with 1..nproc threads over warm pages, and one pair of processes over TCP. */
#include "tools/run/limit.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    PASSES = 5,
    LINK_BYTES = 128 << 20, /* of a pass between processes */
    LINK_UNIT = 1 << 20,
};

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

static double memory_pass(struct wf_limit *limit, uint32_t workers)
{
    pthread_t threads[WF_LIMIT_WAYS_MAX];
    struct slice slices[WF_LIMIT_WAYS_MAX];
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

static enum wf_status init_kind(struct wf_limit_kind *kind, uint32_t ways, struct wf_error *error)
{
    kind->ways = ways;
    kind->samples = calloc(ways, sizeof *kind->samples);
    return kind->samples != NULL ? WF_OK
                                 : wf_error_set(error, WF_NO_MEMORY, "no memory for samples");
}

/* What it sends stays here, and what it receives into is none of the other process's. */
static enum wf_status init_link(struct wf_limit *limit, const char *tls, struct wf_error *error)
{
    const struct wf_pair_options options = {.from = limit->from,
                                            .to = limit->to,
                                            .bytes = limit->bytes / LINK_UNIT * LINK_UNIT,
                                            .tls = tls};
    madvise(limit->to, limit->bytes, MADV_DONTFORK); /* refused: the passes are a little slower */
    enum wf_status status = init_kind(&limit->link, WF_LINK_WAYS, error);
    return status == WF_OK ? wf_pair_open(&options, &limit->pair, error) : status;
}

enum wf_status wf_limit_init(struct wf_limit *limit, const struct wf_limit_options *options,
                             struct wf_error *error)
{
    memset(limit, 0, sizeof *limit);
    uint64_t bytes = options->bytes;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t ways = cores < 1 ? 1 : cores > WF_LIMIT_WAYS_MAX ? WF_LIMIT_WAYS_MAX : (uint32_t)cores;
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
    enum wf_status status = init_kind(&limit->memory, ways, error);
    return status == WF_OK && options->link ? init_link(limit, options->tls, error) : status;
}

/* Passes in which the ways take turns; then the best of them. */
static void measure(struct wf_limit *limit, struct wf_limit_kind *kind,
                    double (*pass)(struct wf_limit *limit, uint32_t way))
{
    for (uint32_t i = 0; i < PASSES * kind->ways; i++) {
        double rate = pass(limit, 1 + i % kind->ways);
        if (rate > 0) {
            wf_samples_add(&kind->samples[i % kind->ways], rate);
        }
    }
    double best = 0;
    kind->bytes_per_s = 0;
    for (uint32_t way = 0; way < kind->ways; way++) {
        double all = wf_samples_quantile(&kind->samples[way], 0, 0.5);
        double now = wf_samples_quantile(&kind->samples[way], PASSES, 0.5);
        if (all > best) {
            best = all;
            kind->best = way;
        }
        kind->bytes_per_s = now > kind->bytes_per_s ? now : kind->bytes_per_s;
    }
}

static double link_pass(struct wf_limit *limit, uint32_t number)
{
    uint64_t bytes = limit->bytes < LINK_BYTES ? limit->bytes / LINK_UNIT * LINK_UNIT : LINK_BYTES;
    return number - 1 == WF_LINK_SOCKET ? wf_pair_socket(limit->pair, bytes)
                                        : wf_pair_ucx(limit->pair, bytes);
}

static double median_gb(const struct wf_limit_kind *kind, uint32_t way)
{
    return wf_samples_quantile(&kind->samples[way], 0, 0.5) * 1e-9;
}

static void describe_link(struct wf_limit_kind *link)
{
    static const char *const ways[] = {"a plain TCP socket", "UCX's own active messages"};
    int len = snprintf(link->how, sizeof link->how,
                       "%s over loopback between one pair of processes, fresh buffers, beside the "
                       "job: %.2f GB/s",
                       ways[link->best], median_gb(link, link->best));
    if (link->samples[WF_LINK_UCX].count > 0 && link->samples[WF_LINK_SOCKET].count > 0) {
        snprintf(link->how + len, sizeof link->how - (size_t)len, " (%s %.2f)",
                 link->best == WF_LINK_UCX ? "a plain socket" : "UCX",
                 median_gb(link, link->best == WF_LINK_UCX ? WF_LINK_SOCKET : WF_LINK_UCX));
    }
}

void wf_limit_measure(struct wf_limit *limit)
{
    struct wf_limit_kind *memory = &limit->memory, *link = &limit->link;
    measure(limit, memory, memory_pass);
    snprintf(memory->how, sizeof memory->how,
             "memcpy of %llu MiB of warm pages beside the job, %u thread%s: %.1f GB/s",
             (unsigned long long)(limit->bytes >> 20), memory->best + 1,
             memory->best == 0 ? "" : "s", median_gb(memory, memory->best));
    if (link->ways > 0) {
        measure(limit, link, link_pass);
        describe_link(link);
    }
}

void wf_limit_fini(struct wf_limit *limit)
{
    wf_pair_close(limit->pair);
    if (limit->from != NULL) {
        munmap(limit->from, 2 * limit->bytes);
    }
    free(limit->memory.samples);
    free(limit->link.samples);
    memset(limit, 0, sizeof *limit);
}
