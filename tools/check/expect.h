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
#include "tools/check/expect_class.h"
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
    uint64_t live_row;  /* where its first row goes */
    uint64_t live_step; /* from one row to the next; 0: 1 */
    /* Rows of the parameter are columns of the live tensor: row and column are the parameter's,
     * rows and columns the live tensor's. Of a chunk of elements at most. */
    bool transposed;
};

struct wf_expect_tensor {
    char name[WF_NAME_MAX];
    enum wf_expect_kind kind;
    enum wf_dtype less_one; /* of that kind: the type in which they hold it */
    uint32_t unit; /* of scales: rows and columns of the matrix for each, a power of two; 1: a whole
                      row */
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
/* Refuses options of an engine whose effect nobody retells. */
enum wf_status wf_expect_options(const struct wf_recipe *recipe, struct wf_error *error);
/* The same from a rank's layout, for families of users' files and for manifests. */
enum wf_status wf_expect_layout(struct wf_expect *expect, const struct wf_model *model,
                                const struct wf_recipe *recipe, uint32_t rank,
                                struct wf_error *error);

/* --- for expect_*.c -------------------------------------------------------------------------- */

struct wf_expect_builder {
    struct wf_expect *expect;
    const struct wf_model *job;   /* the job's, for pairs */
    const struct wf_model *model; /* its plain view */
    const struct wf_expect_class *class;
    struct wf_verify_place place;
    uint64_t layer; /* the number of the one that is made */
    bool *asked;    /* which parameters a loader has asked for */
    struct wf_error *error;
};

/* The parameter's index, or UINT32_MAX: some models have it and some have not. `layer` is what the
 * checkpoint's names begin with here ("model.layers.3."), or "". */
uint32_t wf_expect_find(struct wf_expect_builder *b, const char *layer, const char *name);
/* The same of one that cannot be absent. */
enum wf_status wf_expect_need(struct wf_expect_builder *b, const char *layer, const char *name,
                              uint32_t *param_out);
uint64_t wf_expect_rows(const struct wf_expect_builder *b, uint32_t param);
uint64_t wf_expect_columns(const struct wf_expect_builder *b, uint32_t param);
/* A rank's share of what all TP ranks divide. */
enum wf_status wf_expect_divide(struct wf_expect_builder *b, uint64_t size, const char *what,
                                uint64_t *part_out);
/* What the engine's names begin with where the checkpoint's do with `layer`. */
void wf_expect_live(const struct wf_expect_builder *b, const char *layer,
                    char live_out[WF_NAME_MAX]);
/* A new live tensor, of which rectangles are then put; the engine's name is `name` behind
 * wf_expect_live. Gives its number. */
enum wf_status wf_expect_add(struct wf_expect_builder *b, const char *layer, const char *name,
                             uint64_t columns, uint32_t *tensor_out);
/* Puts rows [row, row + rows) and the columns from `column` of a parameter below what is there. */
enum wf_status wf_expect_put(struct wf_expect_builder *b, uint32_t tensor, uint32_t param,
                             uint64_t row, uint64_t rows, uint64_t column);
/* The same rows of two, all columns: one of the first, one of the second, and so on. */
enum wf_status wf_expect_put_alternating(struct wf_expect_builder *b, uint32_t tensor,
                                         const uint32_t params[2], uint64_t row, uint64_t rows);
/* Puts columns [column, column + rows) and the rows from `row` of a parameter, transposed. */
enum wf_status wf_expect_put_transposed(struct wf_expect_builder *b, uint32_t tensor,
                                        uint32_t param, uint64_t row, uint64_t column,
                                        uint64_t rows);
/* What SGLang's GemmaRMSNorm keeps beside a norm, in the classes that have it (delta nets). */
enum wf_status wf_expect_add_gemma(struct wf_expect_builder *b, const char *layer, const char *name,
                                   const char *live_name);
/* VocabParallelEmbedding: a rank's rows of a parameter padded to 64, zeros below; `tp` 1: all. */
enum wf_status wf_expect_add_vocabulary(struct wf_expect_builder *b, uint32_t param,
                                        const char *layer, const char *live_name, uint32_t tp,
                                        uint32_t tp_rank);

/* Linears, in expect_layer.c: whole on every rank (an absent one is no error); a rank's rows of
 * each of up to three, one below the other; all rows of a rank's columns, with its bias whole. */
enum wf_status wf_expect_add_whole(struct wf_expect_builder *b, const char *layer, const char *name,
                                   const char *live_name);
enum wf_status wf_expect_add_rows(struct wf_expect_builder *b, const char *layer,
                                  const char *const *names, const char *live_name);
enum wf_status wf_expect_add_columns(struct wf_expect_builder *b, const char *layer,
                                     const char *module, const char *live_module);

/* Everything of one layer, whose names begin with `layer` ("model.layers.3."). */
enum wf_status wf_expect_layer(struct wf_expect_builder *b, const char *layer);
/* expect_experts.c: experts, their router and those that are shared. */
enum wf_status wf_expect_moe(struct wf_expect_builder *b, const char *layer);
/* An MLP with a gate; `dir` is "mlp.", or "mlp.shared_experts." or "mlp.shared_expert.". */
enum wf_status wf_expect_mlp(struct wf_expect_builder *b, const char *layer, const char *dir);
/* expect_vision.c: the tower, if the model has one. */
enum wf_status wf_expect_vision(struct wf_expect_builder *b);

#endif
