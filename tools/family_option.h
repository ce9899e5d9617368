/* family_option.h - the option --family of the commands that read a model. */
#ifndef WEFT_TOOLS_FAMILY_OPTION_H
#define WEFT_TOOLS_FAMILY_OPTION_H

#include <argp.h>

#include "config/family_file.h"

enum { WF_FAMILY_OPTION_KEY = 'f' };

/* An entry of a command's options. */
#define WF_FAMILY_OPTION                                                                       \
    {                                                                                          \
        "family", WF_FAMILY_OPTION_KEY, "FILE", 0,                                             \
            "a file that describes a model family (docs/add-a-model.md), beside the built-in " \
            "ones: what a job has under families; may be repeated",                            \
            0                                                                                  \
    }

/* Adds the family of a file; what is wrong with it ends the command, as argp_error does. */
void wf_family_option_take(const struct argp_state *state, const char *path,
                           struct wf_family_files *files);

#endif
