/* variables.h - an environment as a row of a test's table states it. */
#ifndef WEFT_TESTS_CONFIG_VARIABLES_H
#define WEFT_TESTS_CONFIG_VARIABLES_H

#include <string.h>

enum { VARIABLES_MAX = 12 };

/* wf_variable_lookup_t; `user` is the first of up to VARIABLES_MAX "NAME=VALUE". */
static inline const char *look_up(void *user, const char *name)
{
    const char *const *set = user;
    size_t len = strlen(name);
    for (int i = 0; i < VARIABLES_MAX && set[i] != NULL; i++) {
        if (strncmp(set[i], name, len) == 0 && set[i][len] == '=') {
            return set[i] + len + 1;
        }
    }
    return NULL;
}

#endif
