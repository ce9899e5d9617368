/* diagnose_private.h - what the files of the diagnosis share; nobody else includes it. */
#ifndef WEFT_TOOLS_COMPARE_DIAGNOSE_PRIVATE_H
#define WEFT_TOOLS_COMPARE_DIAGNOSE_PRIVATE_H

#include "tools/compare/diagnose.h"

/* What explains that a parameter differs, in the order in which it is looked for: the first that
 * holds is told. */
enum wf_cause {
    WF_CAUSE_NONE,
    WF_CAUSE_NAN,
    WF_CAUSE_ROUNDING,  /* one place of the dtype, here and there */
    WF_CAUSE_TRUNCATED, /* the last rows are zero, or are not there */
    WF_CAUSE_SWAPPED,   /* gate holds up, or up gate */
    WF_CAUSE_QK_ORDER,  /* rows of q and k, and v, in each other's places */
    WF_CAUSE_RANKS,     /* its own rows in another order, in runs as long as a rank's share */
    WF_CAUSE_HEADS,     /* its own rows in another order */
    WF_CAUSE_EXPERT,    /* another expert's */
    WF_CAUSE_LAYER,     /* another layer's */
    WF_CAUSE_MTP, /* a layer that predicts further tokens stands for another, or the other way */
    WF_CAUSE_TRANSPOSED,
    WF_CAUSE_SCALE, /* blocks, or all of it, times a factor */
    WF_CAUSE_TIED,  /* of a tied pair one is another version */
    WF_CAUSE_BIAS,  /* a bias is not there */
    WF_CAUSE_COUNT,
};

/* One parameter under examination; both sides whole, in f32. */
struct wf_patient {
    struct wf_compare *compare;
    const struct wf_compare_pair *pair;
    uint64_t rows, columns;
    float *values[WF_SIDES];
};

/* A finding: the cause, and the rest of a sentence about this parameter. */
struct wf_finding {
    enum wf_cause cause;
    char text[256];
};

/* diagnose_values.c: what can be seen of the two alone. NONE if nothing explains it. */
struct wf_finding wf_diagnose_values(const struct wf_patient *patient);
/* diagnose_rows.c: where B's rows stand in A: in this parameter, in others of its layer, in those
 * of neighbouring experts and layers. */
enum wf_status wf_diagnose_rows(const struct wf_patient *patient, struct wf_finding *finding,
                                struct wf_error *error);
#endif
