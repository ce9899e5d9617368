/* family_option.c - takes the option --family. */
#include "tools/family_option.h"

void wf_family_option_take(const struct argp_state *state, const char *path,
                           struct wf_family_files *files)
{
    struct wf_error error = {0};
    if (wf_family_files_load(files, path, &error) != WF_OK) {
        argp_error(state, "--family: %s", error.text);
    }
}
