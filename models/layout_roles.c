/* layout_roles.c - see layout_roles.h. */
#include "models/layout_roles.h"

#include <string.h>

static uint32_t mark_of(const char *role, size_t len)
{
    uint32_t mark = (uint32_t)len;
    for (size_t i = 0; i < len; i++) {
        mark = mark * 31 + (unsigned char)role[i];
    }
    return mark % WF_ROLE_MARKS;
}

void wf_roles_index(const struct wf_family *family, struct wf_roles *roles_out)
{
    *roles_out = (struct wf_roles){.first = {0}};
    for (size_t i = family->row_count; i > 0; i--) { /* a chain begins with the first row */
        uint32_t mark = mark_of(family->rows[i - 1].role, strlen(family->rows[i - 1].role));
        roles_out->next[i - 1] = roles_out->first[mark];
        roles_out->first[mark] = (uint16_t)i;
    }
}

uint32_t wf_roles_find(const struct wf_roles *roles, const struct wf_family *family, uint32_t stack,
                       const char *role, size_t len)
{
    for (uint32_t i = roles->first[mark_of(role, len)]; i > 0; i = roles->next[i - 1]) {
        const struct wf_family_row *row = &family->rows[i - 1];
        if (strlen(row->role) == len && memcmp(row->role, role, len) == 0 &&
            wf_family_row_in_stack(family, row, stack)) {
            return i - 1;
        }
    }
    return WF_NONE;
}
