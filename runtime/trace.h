/* trace.h - what a rank did when: a ring of spans, read for the timeline.
 *
 * Fixed size; when it is full the oldest span goes. One trace per loop, on the loop's thread; all
 * functions take NULL for "no trace". Times are the env's, so simulated ranks have them too.
 */
#ifndef WEFT_RUNTIME_TRACE_H
#define WEFT_RUNTIME_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/status.h"

enum { WF_TRACE_SPANS = 4096 }; /* a usual capacity: some hundred rounds of one rank */

struct wf_trace_span {
    const char *name;          /* borrows; a literal: "transfer" */
    uint64_t start_ns, end_ns; /* equal: an event */
    uint64_t object, detail;   /* what it was about; their meaning goes with the name */
};

struct wf_trace {
    struct wf_trace_span *spans; /* owns */
    size_t capacity;
    uint64_t written; /* ever; spans[written % capacity] is next */
};

enum wf_status wf_trace_init(struct wf_trace *trace, size_t capacity, struct wf_error *error);
void wf_trace_fini(struct wf_trace *trace); /* zeroed memory is fine */

void wf_trace_add(struct wf_trace *trace, struct wf_trace_span span);
/* How many spans can be read; `written` minus this were lost. */
size_t wf_trace_count(const struct wf_trace *trace);
/* Span `index` < count in the order of adding (a span is added when it ends). The pointer is good
 * until the next add. */
const struct wf_trace_span *wf_trace_get(const struct wf_trace *trace, size_t index);

#endif
