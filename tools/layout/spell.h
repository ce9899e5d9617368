/* spell.h - writes what a recipe says of its ranks as manifests (models/manifest.h). */
#ifndef WEFT_TOOLS_LAYOUT_SPELL_H
#define WEFT_TOOLS_LAYOUT_SPELL_H

#include <stdint.h>

#include "models/config.h"
#include "models/recipe.h"
#include "runtime/status.h"

struct wf_spelt {
    uint32_t manifests;
    uint64_t tensors, bytes;
};

/* Ranks [first, end) of an engine, each to `pattern` with its number for %d. `model` is the job's.
 * INVALID: several ranks and no %d. Files that were written before a failure stay. */
enum wf_status wf_layout_spell(const struct wf_model *model, const struct wf_recipe *recipe,
                               uint32_t first, uint32_t end, const char *pattern,
                               struct wf_spelt *spelt_out, struct wf_error *error);

#endif
