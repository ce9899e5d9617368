/* case.h - case.json of an executed fixture, turned into a model and a recipe.
 *
 * The keys are those of tests/golden/real/README.md. Everything a layout follows from is read from
 * case.json alone; what this build does not know is refused with one sentence (UNSUPPORTED), never
 * skipped.
 */
#ifndef WEFT_TOOLS_LAYOUT_CASE_H
#define WEFT_TOOLS_LAYOUT_CASE_H

#include <stddef.h>

#include "models/config.h"
#include "models/recipe.h"
#include "runtime/status.h"

struct wf_case {
    struct wf_model *model;
    struct wf_recipe recipe;
};

/* `text` is the content of case.json. After OK end with wf_case_fini. */
enum wf_status wf_case_parse(const char *text, size_t len, struct wf_case *case_out,
                             struct wf_error *error);
void wf_case_fini(struct wf_case *it);

#endif
