/* detect.h - which model and which parallel sizes made a dump, from names and shapes alone.
 *
 * Nothing is known about any family or engine here: every family's sizes are solved for from the
 * shapes, by deriving layouts of trial sizes and seeing how each shape follows each size; a recipe
 * counts only if the layouts it derives are the dumps, tensor by tensor. What shapes cannot tell
 * apart (a half of a large model and the whole of a small one, a head size without norms) comes as
 * several fits.
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
    char spec[WF_SPEC_MAX];
    /* "num_hidden_layers=2, ...": the config's keys that shapes depend on. */
    char sizes[WF_DETECT_SIZES_TEXT];
    /* Keys of `sizes` of which only the product shows; "" for none. */
    char free[WF_DETECT_SIZES_TEXT];
};

struct wf_detected {
    struct wf_detect_fit *fits; /* owned */
    uint32_t fit_count;
    bool more;    /* fits beyond WF_DETECT_FITS_MAX were left out */
    bool gave_up; /* some recipes would have taken more work than is allowed for one */
    /* Without a fit: the family and engine whose names come nearest, and a name of the dump that
     * they do not have. */
    char nearest[512];
};

/* `dumps` are those of ranks 0, 1, ... of one group (sorted, wf_dump_rank_sort); a single one may
 * be any group's rank 0. `families` are further families (NULL-terminated) or NULL. INVALID if
 * there is nothing to detect in. Free with wf_detected_fini. */
enum wf_status wf_detect(const struct wf_dump_rank *dumps, uint32_t count,
                         const struct wf_family *const *families, struct wf_detected *out,
                         struct wf_error *error);
void wf_detected_fini(struct wf_detected *detected);

#endif
