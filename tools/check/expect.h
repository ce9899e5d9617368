/* expect.h - the recipe that verify.c executes: what each live tensor of an engine's rank is made
 * of.
 *
 * A live tensor is a matrix (a vector is one column; of more dimensions the last is the columns).
 * The engines' loaders put rectangles of checkpoint tensors into it, one below the other and each
 * as wide as it; rows that no rectangle fills are padding and zero.
 *
 * A quantised matrix is two live tensors: codes, which stand where the values would, and scales,
 * whose rectangles count in units: blocks (tools/check/quantised.h), or smaller ones that repeat a
 * block's scale.
 */
#ifndef WEFT_TOOLS_CHECK_EXPECT_H
#define WEFT_TOOLS_CHECK_EXPECT_H

#include <stdbool.h>
#include <stdint.h>

#include "models/config.h"
#include "models/recipe.h"
#include "runtime/status.h"
#include "tools/check/verify.h"

enum wf_expect_kind {
    WF_EXPECT_VALUES,
    WF_EXPECT_CODES,
    WF_EXPECT_SCALES,
    WF_EXPECT_DEQUANTISED, /* what codes and scales of the matrix say */
    WF_EXPECT_PLUS_ONE,    /* values plus 1 */
    WF_EXPECT_LESS_ONE,    /* values that trainers hold less 1, and so rounded */
};

struct wf_expect_rect {
    uint32_t param;         /* of codes and scales: the matrix that they are made of */
    uint64_t row, column;   /* of its first element in the parameter, as a matrix */
    uint64_t rows, columns; /* its size; columns are the live tensor's */
    uint64_t param_columns;
    uint64_t live_row; /* where it goes */
    /* Rows of the parameter are columns of the live tensor: row and column are the parameter's,
     * rows and columns the live tensor's. Of a chunk of elements at most. */
    bool transposed;
};

struct wf_expect_tensor {
    char name[WF_NAME_MAX];
    enum wf_expect_kind kind;
    enum wf_dtype less_one; /* of that kind: the type in which they hold it */
    uint32_t unit;          /* of scales: rows and columns of the matrix for each; a power of two */
    uint64_t rows, columns;
    struct wf_expect_rect *rects; /* by live_row; owned */
    uint32_t rect_count, rect_capacity;
};

struct wf_expect {
    struct wf_expect_tensor *tensors; /* owned */
    uint32_t tensor_count, capacity;
};

/* Of a job's model the parameters are those of its plain view (models/variant.h).
 * `expect` is zeroed memory; free with wf_expect_fini, also after a failure. */
enum wf_status wf_expect_init(struct wf_expect *expect, const struct wf_model *model,
                              const struct wf_verify_place *place, struct wf_error *error);
void wf_expect_fini(struct wf_expect *expect);
/* Whether the retelling knows the model's family: the built-in ones. */
bool wf_expect_knows(const struct wf_model *model);
/* The same from a rank's layout, for families of users' files. */
enum wf_status wf_expect_layout(struct wf_expect *expect, const struct wf_model *model,
                                const struct wf_recipe *recipe, uint32_t rank,
                                struct wf_error *error);

/* --- for expect_layer.c ---------------------------------------------------------------------- */

struct wf_expect_builder {
    struct wf_expect *expect;
    const struct wf_model *job;   /* the job's, for pairs */
    const struct wf_model *model; /* its plain view */
    struct wf_verify_place place;
    bool *asked; /* which parameters a loader has asked for */
    struct wf_error *error;
};

/* The parameter's index, or UINT32_MAX: some models have it and some have not. */
uint32_t wf_expect_find(struct wf_expect_builder *b, const char *layer, const char *name);
uint64_t wf_expect_rows(const struct wf_expect_builder *b, uint32_t param);
uint64_t wf_expect_columns(const struct wf_expect_builder *b, uint32_t param);
/* A new live tensor, of which rectangles are then put. Gives its number. */
enum wf_status wf_expect_add(struct wf_expect_builder *b, const char *layer, const char *name,
                             uint64_t columns, uint32_t *tensor_out);
/* Puts rows [row, row + rows) and the columns from `column` of a parameter below what is there. */
enum wf_status wf_expect_put(struct wf_expect_builder *b, uint32_t tensor, uint32_t param,
                             uint64_t row, uint64_t rows, uint64_t column);
/* Puts columns [column, column + rows) and the rows from `row` of a parameter, transposed. */
enum wf_status wf_expect_put_transposed(struct wf_expect_builder *b, uint32_t tensor,
                                        uint32_t param, uint64_t row, uint64_t column,
                                        uint64_t rows);
/* What SGLang's GemmaRMSNorm keeps beside a norm, in the classes that have it (delta nets). */
enum wf_status wf_expect_add_gemma(struct wf_expect_builder *b, const char *layer, const char *name,
                                   const char *live_name);
/* Everything of one layer, whose names begin with `layer` ("model.layers.3."). */
enum wf_status wf_expect_layer(struct wf_expect_builder *b, const char *layer);

#endif
