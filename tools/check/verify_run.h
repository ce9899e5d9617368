/* verify_run.h - what the files of the element check share; nobody else includes it. */
#ifndef WEFT_TOOLS_CHECK_VERIFY_RUN_H
#define WEFT_TOOLS_CHECK_VERIFY_RUN_H

#include "tools/check/expect.h"
#include "tools/check/step.h"
#include "tools/check/verify.h"

enum { WF_VERIFY_CHUNK = 256 << 10 }; /* elements at a time: they fit a second-level cache */

struct wf_verify {
    const struct wf_checkpoint *checkpoint;
    enum wf_quant quant;
    struct wf_expect expect;
};

/* One comparison in progress. */
struct wf_verify_run {
    const struct wf_verify *verify;
    const struct wf_expect_tensor *tensor;
    const struct wf_verify_live *live;
    struct wf_verify_result *result;
    uint64_t steps;
    size_t live_bytes; /* of an element */
    uint8_t *packed;   /* WF_VERIFY_CHUNK elements of the checkpoint, packed and stepped */
    uint8_t *wide;     /* as many: whole rows, or the result of a cast */
};

/* An element's bits, and their value. The compiler's own conversions. */
uint32_t wf_verify_load(const void *at, enum wf_dtype dtype);
float wf_verify_to_float(uint32_t bits, enum wf_dtype dtype);
uint32_t wf_verify_from_float(float value, enum wf_dtype dtype);
/* Reads `rows` rows of a rectangle from row `row`, columns [column, column + columns) of it, into
 * `packed`; a chunk at most. */
enum wf_status wf_verify_read(struct wf_verify_run *run, const struct wf_expect_rect *rect,
                              uint64_t row, uint64_t rows, uint64_t column, uint64_t columns,
                              struct wf_error *error);
/* Compares `count` expected elements with the live ones from `index`. After a cast any NaN is as
 * good as any other: which one it is differs between the paths of one framework. */
void wf_verify_compare(struct wf_verify_run *run, uint64_t index, const uint8_t *expected,
                       uint64_t count, bool any_nan);
void wf_verify_wrong(struct wf_verify_run *run, uint64_t index, uint32_t expected, uint32_t found);

/* --- verify_quantised.c ---------------------------------------------------------------------- */

/* One rectangle of codes, of scales, or of what these say. */
enum wf_status wf_verify_quantised(struct wf_verify_run *run, const struct wf_expect_rect *rect,
                                   struct wf_error *error);
/* What element (row, column) of such a rectangle is after each number of steps. */
enum wf_status wf_verify_quantised_versions(const struct wf_verify *verify,
                                            const struct wf_expect_tensor *tensor,
                                            const struct wf_expect_rect *rect, uint64_t row,
                                            uint64_t column, enum wf_dtype live,
                                            uint32_t bits_out[WF_STEP_PERIOD],
                                            struct wf_error *error);

#endif
