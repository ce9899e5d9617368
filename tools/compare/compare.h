/* compare.h - two sets of files, parameter by parameter.
 *
 * What is the same on both sides is read tile by tile, once; nothing larger than a tile (or one
 * transposed matrix) is in memory, and nothing stops the rest: what is absent, has another shape,
 * cannot be compared or is refused is listed.
 *
 * Two values of different dtypes are compared in the narrower one, into which the other is cast:
 * that is what a receiver holds. Codes of fp8 beside plain values are multiplied by their
 * scales and may be off by half a step of the code. Where one side stores a value minus 1, half a
 * place of that is allowed. docs/compare.md says it for users.
 */
#ifndef WEFT_TOOLS_COMPARE_COMPARE_H
#define WEFT_TOOLS_COMPARE_COMPARE_H

#include "tools/compare/side.h"
#include "tools/compare/values.h"

enum {
    WF_COMPARE_TILE_BYTES = 512 << 10, /* of one side: both, and what is read, stay in the caches */
};

enum { WF_A, WF_B, WF_SIDES };

struct wf_compare_options {
    uint32_t max_layers;              /* WF_NONE: all */
    double tolerance[WF_DTYPE_COUNT]; /* |a - b| at most; 0 unless given */
    bool tolerance_given[WF_DTYPE_COUNT];
    const struct wf_family *const *families;
    /* B is what running ranks hold; its path is not looked at. `live->config` may be NULL: A's. */
    const struct wf_side_live *live;
    /* Called with shares of the work done; may be NULL. */
    void (*progress)(void *user, uint64_t elements_done, uint64_t elements_total);
    void *user;
};

enum wf_compare_kind {
    WF_PAIR_MISSING_A, /* b alone has it, or some of it */
    WF_PAIR_MISSING_B,
    WF_PAIR_MISSING_BOTH, /* the model has it and no file */
    WF_PAIR_SHAPE,
    WF_PAIR_REFUSED,  /* dtypes that cannot be compared */
    WF_PAIR_LEFT_OUT, /* one side's framework has no place for it, or it says how codes scale */
    WF_PAIR_COMPARED,
};

struct wf_compare_result {
    enum wf_dtype as;           /* in which they were compared */
    uint64_t missing[WF_SIDES]; /* elements that the other one has and this one has not */
    struct wf_values values;
};

/* One parameter of either side. */
struct wf_compare_pair {
    const char *name;
    uint32_t param[WF_SIDES]; /* or WF_NONE */
    enum wf_compare_kind kind;
    bool skipped; /* beyond max_layers */
    struct wf_compare_result result;
};

/* A replica, or a tied tensor that is there twice, which differs from the first one. */
struct wf_compare_copy {
    uint32_t side, param, source, first_source;
    struct wf_values values;
};

struct wf_compare_padding {
    uint32_t side;
    struct wf_side_padding padding;
};

struct wf_compare {
    struct wf_compare_side side[WF_SIDES];
    struct wf_compare_options options;
    struct wf_compare_pair *pairs;
    uint32_t pair_count;
    struct wf_compare_copy *copies;
    uint32_t copy_count, copy_capacity;
    struct wf_compare_padding *paddings;
    uint32_t padding_count, padding_capacity;
    struct wf_texts refused;    /* sentences of what could not be compared */
    struct wf_texts diagnosis;  /* sentences (diagnose.h) */
    uint64_t tensors, elements; /* compared */
    bool ok;
    void *buffer[WF_SIDES]; /* tiles */
    uint64_t buffer_bytes[WF_SIDES];
    uint8_t *seen[WF_SIDES]; /* of a tile's elements */
    uint64_t seen_count;
    struct wf_compare_scales {
        uint32_t param; /* whose scales these are; WF_NONE: nobody's */
        float *values;  /* owned */
        uint64_t block_rows, block_columns, columns;
    } scales[WF_SIDES];
    float *codes_slack; /* of a tile */
    uint64_t slack_count;
};

/* Opens both sides and compares. IO and NO_MEMORY fail, and STALE: ranks that were looked at have
 * another version by now; everything else is in *compare. End with
 * wf_compare_fini, also after a failure. */
enum wf_status wf_compare_run(const char *a, const char *b,
                              const struct wf_compare_options *options, struct wf_compare *compare,
                              struct wf_error *error);
/* Anything about it that makes `ok` false. */
bool wf_compare_pair_differs(const struct wf_compare_pair *pair);
/* The other side has it, or some of it, and this one has not. */
bool wf_compare_is_missing(const struct wf_compare_pair *pair, uint32_t side);
void wf_compare_fini(struct wf_compare *compare);

/* Two parameters (of either side, also both of one), elements [first, first + count) of both. What
 * they are compared in is chosen by their dtypes; UNSUPPORTED if nothing fits. Adds to *result,
 * which is zeroed before the first call. */
struct wf_compare_operand {
    uint32_t side, param;
};
enum wf_status wf_compare_range(struct wf_compare *compare, struct wf_compare_operand a,
                                struct wf_compare_operand b, uint64_t first, uint64_t count,
                                struct wf_compare_result *result, struct wf_error *error);
/* A source that is a copy of others, with these. */
enum wf_status wf_compare_copy_range(struct wf_compare *compare, struct wf_compare_operand operand,
                                     uint32_t source, struct wf_values *values,
                                     struct wf_error *error);

/* Values of a parameter in f32 (codes times scales), for hypotheses. Row-major. */
enum wf_status wf_compare_read_f32(struct wf_compare *compare, struct wf_compare_operand operand,
                                   uint64_t first, uint64_t count, float *out,
                                   struct wf_error *error);

#endif
