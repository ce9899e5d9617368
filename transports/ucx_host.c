/* ucx_host.c - reads when a process began. */
#include "transports/ucx_host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { START_FIELD = 22 /* of /proc/PID/stat, proc(5) */ };

uint64_t ucx_host_pid_start(pid_t pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return 0;
    }
    size_t len = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[len] = '\0';
    /* The second field is a name in parentheses that may hold anything. */
    const char *at = strrchr(text, ')');
    for (int field = 2; at != NULL && field < START_FIELD; field++) {
        at = strchr(at + 1, ' ');
    }
    return at != NULL ? strtoull(at + 1, NULL, 10) : 0;
}
