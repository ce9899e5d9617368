/* expect.h - the recipe that verify.c executes: what each live tensor of a vLLM rank is made of.
 *
 * A live tensor is a matrix (a vector is one column). vLLM's loaders put rectangles of checkpoint
 * tensors into it, one below the other and each as wide as it; rows that no rectangle fills are
 * padding and zero.
 */
#ifndef WEFT_TOOLS_CHECK_EXPECT_H
#define WEFT_TOOLS_CHECK_EXPECT_H

#include <stdint.h>

#include "models/config.h"
#include "runtime/status.h"
#include "tools/check/verify.h"

enum { WF_EXPECT_RECTS_MAX = 3 };

struct wf_expect_rect {
    uint32_t param;
    uint64_t row, column;   /* of its first element in the parameter, as a matrix */
    uint64_t rows, columns; /* its size; columns are the live tensor's */
    uint64_t param_columns;
    uint64_t live_row; /* where it goes */
};

struct wf_expect_tensor {
    char name[WF_NAME_MAX];
    uint64_t rows, columns;
    struct wf_expect_rect rects[WF_EXPECT_RECTS_MAX]; /* by live_row */
    uint32_t rect_count;
};

struct wf_expect {
    struct wf_expect_tensor *tensors; /* owned */
    uint32_t tensor_count, capacity;
};

/* `expect` is zeroed memory; free with wf_expect_fini, also after a failure. */
enum wf_status wf_expect_init(struct wf_expect *expect, const struct wf_model *model,
                              const struct wf_verify_place *place, struct wf_error *error);
void wf_expect_fini(struct wf_expect *expect);

#endif
