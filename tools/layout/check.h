/* check.h - derived layouts held against executed fixtures.
 *
 * A fixture is a folder with case.json, params.tsv and rank_NN.tsv (tests/golden/real/README.md).
 * The layout of every rank is derived from case.json alone; then names, dtypes, shapes, strides,
 * views, aliases and the origin of every element are compared, both ways. Folders beside them that
 * hold values (oracles) or only names and shapes (inventories) are told apart by what is in them.
 * Reads files; changes nothing.
 */
#ifndef WEFT_TOOLS_LAYOUT_CHECK_H
#define WEFT_TOOLS_LAYOUT_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/status.h"
#include "tools/layout/case.h"

enum { WF_CASE_NAME_MAX = 256 };

enum wf_case_kind {
    WF_CASE_LAYOUT,
    WF_CASE_ORACLE,    /* values; nothing here follows from a layout */
    WF_CASE_INVENTORY, /* names and shapes of many models, without their configs */
};

struct wf_case_result {
    enum wf_case_kind kind;      /* of others than layouts nothing is compared, and they are ok */
    char name[WF_CASE_NAME_MAX]; /* of the folder */
    bool ok;
    bool refused; /* nothing was compared: not supported, or no such folder */
    uint32_t ranks;
    uint64_t tensors, elements; /* compared and equal */
    struct wf_error difference; /* the first one, or why it was refused; unused when ok */
};

/* `tables` as for wf_case_parse; may be NULL. */
void wf_case_check(const char *folder, const struct wf_case_tables *tables,
                   struct wf_case_result *result_out);

#endif
