/* trace.c - the ring of spans. */
#include "runtime/trace.h"

#include <stdlib.h>

enum wf_status wf_trace_init(struct wf_trace *trace, size_t capacity, struct wf_error *error)
{
    WF_ASSERT(capacity > 0);
    struct wf_trace_span *spans = calloc(capacity, sizeof *spans);
    if (spans == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a trace of %zu spans", capacity);
    }
    *trace = (struct wf_trace){.spans = spans, .capacity = capacity};
    return WF_OK;
}

void wf_trace_fini(struct wf_trace *trace)
{
    free(trace->spans);
    *trace = (struct wf_trace){0};
}

void wf_trace_add(struct wf_trace *trace, struct wf_trace_span span)
{
    if (trace != NULL) {
        trace->spans[trace->written % trace->capacity] = span;
        trace->written++;
    }
}

size_t wf_trace_count(const struct wf_trace *trace)
{
    if (trace == NULL) {
        return 0;
    }
    return trace->written < trace->capacity ? (size_t)trace->written : trace->capacity;
}

const struct wf_trace_span *wf_trace_get(const struct wf_trace *trace, size_t index)
{
    size_t count = wf_trace_count(trace);
    WF_ASSERT(index < count);
    return &trace->spans[(trace->written - count + index) % trace->capacity];
}
