/* test_trace.c - the ring keeps the newest spans, in order. */
#include <criterion/criterion.h>

#include "runtime/trace.h"

static const struct trace_row {
    const char *name;
    size_t capacity, added, count;
    uint64_t first;
} trace_rows[] = {
    {"empty", 4, 0, 0, 0},          {"part full", 4, 3, 3, 0}, {"just full", 4, 4, 4, 0},
    {"the oldest go", 4, 11, 4, 7}, {"one slot", 1, 3, 1, 2},
};

Test(trace, keeps_the_newest)
{
    for (size_t i = 0; i < sizeof trace_rows / sizeof trace_rows[0]; i++) {
        const struct trace_row *row = &trace_rows[i];
        struct wf_trace trace;
        cr_assert_eq(wf_trace_init(&trace, row->capacity, NULL), WF_OK);
        for (uint64_t n = 0; n < row->added; n++) {
            wf_trace_add(&trace, (struct wf_trace_span){
                                     .name = "x", .start_ns = n, .end_ns = n + 5, .object = n});
        }
        cr_assert_eq(wf_trace_count(&trace), row->count, "%s", row->name);
        cr_assert_eq(trace.written, row->added, "%s", row->name);
        for (size_t n = 0; n < row->count; n++) {
            cr_assert_eq(wf_trace_get(&trace, n)->object, row->first + n, "%s", row->name);
        }
        wf_trace_fini(&trace);
    }
}

Test(trace, no_trace_is_fine)
{
    wf_trace_add(NULL, (struct wf_trace_span){.name = "x"});
    cr_assert_eq(wf_trace_count(NULL), 0);
}
