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

/* Tables that stand before the built-in ones of their names (a user's family; a test's changed
 * copies). NULL-terminated lists or NULL; they outlive the case. */
struct wf_case_tables {
    const struct wf_family *const *families;
    const struct wf_engine *const *engines;
};

/* `text` is the content of case.json; `tables` may be NULL. After OK end with wf_case_fini. */
enum wf_status wf_case_parse(const char *text, size_t len, const struct wf_case_tables *tables,
                             struct wf_case *case_out, struct wf_error *error);
void wf_case_fini(struct wf_case *it);

#endif
