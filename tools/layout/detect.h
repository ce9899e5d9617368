/* detect.h - which model and which parallel sizes made a dump, from names, shapes and types alone.
 *
 * Nothing is known about any family or engine here beyond the words that its SPEC has: every
 * family's sizes are solved for from the shapes, by deriving layouts of trial sizes and seeing how
 * each shape follows each size; an answer counts only if the layouts that it derives are the dumps,
 * tensor by tensor on every rank. What shapes cannot tell apart (a half of a large model and the
 * whole of a small one, a head size without norms, gate before up) comes as several answers.
 */
#ifndef WEFT_TOOLS_LAYOUT_DETECT_H
#define WEFT_TOOLS_LAYOUT_DETECT_H

#include <stdbool.h>
#include <stdint.h>

#include "models/families/family.h"
#include "models/recipe.h"
#include "runtime/status.h"
#include "tools/files/dump.h"

enum {
    WF_DETECT_FITS_MAX = 64,
    WF_DETECT_WORLD_MAX = 64, /* ranks of a trial recipe */
    WF_DETECT_SIZES_TEXT = 1024,
};

struct wf_detect_fit {
    const struct wf_family *family;
    char spec[WF_SPEC_MAX]; /* canonical: the line for a job file */
    /* A config of the model, as JSON: what shapes show, and any number where they show none. */
    char *config; /* owned */
    /* "num_hidden_layers=2, ...": the config's keys that shapes depend on. */
    char sizes[WF_DETECT_SIZES_TEXT];
    /* Keys of `sizes` of which only the product shows; "" for none. */
    char free[WF_DETECT_SIZES_TEXT];
    /* SPECs parted by spaces that make the same names and shapes of this model with other contents;
     * "" for none. */
    char also[4 * WF_SPEC_MAX];
    /* The dumps would look the same with fewer rows in the vocabulary: the last may be padding. */
    bool padded;
    const char *quant; /* "fp8", "fp8_rows", "mxfp4", "int4", "nvfp4"; NULL: none */
    /* A tensor whose type is another than the recipe's, where that is all that differs; "". */
    char dtype[WF_NAME_MAX + 64];
};

struct wf_detected {
    struct wf_detect_fit *fits; /* owned; the likeliest first */
    uint32_t fit_count;
    bool more;    /* fits beyond WF_DETECT_FITS_MAX were left out */
    bool gave_up; /* the work that is allowed was not enough to try everything */
    bool single;  /* one dump: over how many ranks it was divided does not show */
    /* Without a fit: the family and SPEC that come nearest, and the first tensor that speaks
     * against them: expected, found, and the likeliest cause. */
    char nearest[1536];
};

/* `dumps` are those of ranks 0, 1, ... of one group (sorted, wf_dump_rank_sort); a single one may
 * be any group's rank 0. `families` are further families (NULL-terminated) or NULL. INVALID if
 * there is nothing to detect in. Free with wf_detected_fini. */
enum wf_status wf_detect(const struct wf_dump_rank *dumps, uint32_t count,
                         const struct wf_family *const *families, struct wf_detected *out,
                         struct wf_error *error);
void wf_detected_fini(struct wf_detected *detected);

#endif
