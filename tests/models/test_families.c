/* test_families.c - what every family's and every engine's table must fulfil. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "models/engines/engine.h"
#include "models/families/family.h"

Test(families, tables_are_well_formed)
{
    for (const struct wf_family *const *family = wf_families; *family; family++) {
        bool seen[WF_ROLE_COUNT] = {false};
        unsigned blocks = 0;
        for (size_t i = 0; i < (*family)->row_count; i++) {
            const struct wf_family_row *row = &(*family)->rows[i];
            cr_expect(row->role > WF_ROLE_NONE && row->role < WF_ROLE_COUNT, "%s", row->name);
            cr_expect(!seen[row->role], "%s: role of %s stands twice", (*family)->name, row->name);
            seen[row->role] = true;
            bool layered = strstr(row->name, "{layer}") != NULL;
            bool before = i > 0 && strstr((*family)->rows[i - 1].name, "{layer}") != NULL;
            blocks += layered && !before;
        }
        cr_expect_eq(blocks, 1, "%s: layered rows stand together", (*family)->name);
        cr_expect_eq(seen[WF_ROLE_Q_NORM], (*family)->qk_norm, "%s", (*family)->name);
    }
}

Test(families, model_types_are_unique)
{
    for (const struct wf_family *const *a = wf_families; *a; a++) {
        for (const struct wf_family *const *b = a + 1; *b; b++) {
            cr_expect_str_neq((*a)->model_type, (*b)->model_type);
        }
    }
}

/* Every role that some family has must have exactly one row in every engine's table. */
Test(families, engines_have_a_place_for_every_role)
{
    for (const struct wf_engine *const *engine = wf_engines; *engine; engine++) {
        for (size_t t = 0; t < 2; t++) {
            const struct wf_engine_rows *table = &(*engine)->tables[t];
            unsigned places[WF_ROLE_COUNT] = {0};
            for (size_t i = 0; i < table->count; i++) {
                for (size_t p = 0; p < WF_PARTS_MAX; p++) {
                    places[table->rows[i].parts[p]]++;
                }
            }
            for (unsigned role = WF_ROLE_NONE + 1; role < WF_ROLE_COUNT && table->count; role++) {
                cr_expect_eq(places[role], 1, "%s table %zu role %u", (*engine)->name, t, role);
            }
        }
    }
}
