/* family_print.h - a family's table as a family file (config/family_file.h). */
#ifndef WEFT_TOOLS_LAYOUT_FAMILY_PRINT_H
#define WEFT_TOOLS_LAYOUT_FAMILY_PRINT_H

#include <stdio.h>

#include "models/families/family.h"

/* Reading it back gives an equal family. */
void wf_family_print(FILE *out, const struct wf_family *family);

#endif
