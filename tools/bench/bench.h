/* bench.h - how a benchmark is measured and reported.
 *
 * A benchmark is one function in WF_BENCH_MAP. It describes cases and gives each to wf_bench_case,
 * which measures the case and its physical limit in turn (pairs, so that both see the same
 * machine), after one unrecorded pair, prints a line with median and spread, and keeps all samples.
 * The JSON report is a list of {name, params, machine, unit, samples, median, limit: {how, samples,
 * median} or null, ratio or null}. A ratio of 1 is the limit, below 1 is slower than it.
 */
#ifndef WEFT_TOOLS_BENCH_BENCH_H
#define WEFT_TOOLS_BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/status.h"

struct wf_bench;

enum { WF_BENCH_PAIRS = 15 };

/* One sample in the case's unit; a negative one says that measuring failed. */
typedef double wf_bench_measure_t(void *context);

struct wf_bench_case {
    const char *name;   /* "runtime/ping_pong" */
    const char *params; /* "senders=20,poller=epoll": keys and values, or NULL */
    const char *unit;   /* "messages/s", "GB/s", "us" */
    bool lower_is_better;
    unsigned pairs; /* 0: as the command line says, WF_BENCH_PAIRS without it */
    wf_bench_measure_t *measure;
    const char *limit_how; /* what the limit is, in words; NULL without one */
    wf_bench_measure_t *limit;
};

/* Measures, prints and keeps one case; `context` goes to measure and limit. IO: one of them
 * failed, and the error names the case. */
enum wf_status wf_bench_case(struct wf_bench *bench, const struct wf_bench_case *spec,
                             void *context, struct wf_error *error);

/* For benchmarks between hosts: where this process serves, and who serves; NULL: not given. */
const char *wf_bench_address(const struct wf_bench *bench);
const char *wf_bench_peer(const struct wf_bench *bench);

/* CLOCK_MONOTONIC. */
uint64_t wf_bench_now_ns(void);

/* --- for cmd_bench.c ------------------------------------------------------------------------- */

/* pairs 0: WF_BENCH_PAIRS. NULL without memory. `quiet`: no lines on standard output. */
struct wf_bench *wf_bench_new(unsigned pairs, bool quiet);
void wf_bench_free(struct wf_bench *bench);
/* Borrows both. */
void wf_bench_set_hosts(struct wf_bench *bench, const char *address, const char *peer);
/* The JSON list, good until the next case; NULL without memory. */
const char *wf_bench_json(struct wf_bench *bench);

/* X(name on the command line, function, one line of help), one a line. */
/* clang-format off */
#define WF_BENCH_MAP(X) \
    X("casts", wf_bench_casts, "f32, f16, bf16 and fp8 into each other; fp8 with scales") \
    X("compare", wf_bench_compare, "two dumps of 29.5 GB compared, and the memory that it takes") \
    X("control", wf_bench_control, "a crowd of ranks registers, agrees and commits") \
    X("copy", wf_bench_copy, "strided boxes and their digests") \
    X("files", wf_bench_files, "a version written to a folder, and read from it") \
    X("layouts", wf_bench_layouts, "inventory, ranks and a whole job of a large model of experts") \
    X("plan", wf_bench_plan, "making a plan and proving it") \
    X("prepare", wf_bench_prepare, "codes and casts that a train rank makes, and finding them") \
    X("runtime", wf_bench_runtime, "messages between actors and wake-ups between threads") \
    X("shm", wf_bench_shm, "reads through shared memory and out of another process") \
    X("stream", wf_bench_stream, "reads over TCP, on this host or between two (--address, --peer)") \
    /* end */
/* clang-format on */

#define WF_BENCH_PROTO(name, function, help) \
    enum wf_status function(struct wf_bench *bench, struct wf_error *error);
WF_BENCH_MAP(WF_BENCH_PROTO)
#undef WF_BENCH_PROTO

#endif
