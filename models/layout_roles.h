/* layout_roles.h - a family's rows by role, for a caller that asks for many: the same answers as
 * wf_family_find_row, without looking through all rows for each. Pure. */
#ifndef WEFT_MODELS_LAYOUT_ROLES_H
#define WEFT_MODELS_LAYOUT_ROLES_H

#include "models/families/family.h"

enum { WF_ROLE_MARKS = 256 };

/* Chains of rows whose roles have one mark: 1 + the row, 0 ends a chain. */
struct wf_roles {
    uint16_t first[WF_ROLE_MARKS], next[WF_FAMILY_ROWS_MAX];
};

void wf_roles_index(const struct wf_family *family, struct wf_roles *roles_out);
/* `family`: the one that was indexed. */
uint32_t wf_roles_find(const struct wf_roles *roles, const struct wf_family *family, uint32_t stack,
                       const char *role, size_t len);

#endif
