/* report.h - what a comparison found, as a table for people and JSON for scripts. */
#ifndef WEFT_TOOLS_COMPARE_REPORT_H
#define WEFT_TOOLS_COMPARE_REPORT_H

#include <json-c/json.h>
#include <stdio.h>

#include "tools/compare/compare.h"

enum { WF_REPORT_LINES_MAX = 40 /* of one kind in the table; JSON has all */ };

void wf_compare_print(FILE *out, const struct wf_compare *compare);
/* The caller puts it; NULL without memory. */
struct json_object *wf_compare_to_json(const struct wf_compare *compare);

#endif
