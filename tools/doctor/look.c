/* look.c - reads small files of /proc and /sys, names sizes. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/doctor/doctor.h"

bool wf_look_line(const char *path, char *out, size_t size)
{
    FILE *file = fopen(path, "re");
    bool good = file != NULL && fgets(out, (int)size, file) != NULL;
    if (file != NULL) {
        fclose(file);
    }
    if (!good) {
        out[0] = '\0';
    }
    out[strcspn(out, "\n")] = '\0';
    return good;
}

bool wf_look_number(const char *path, uint64_t *out)
{
    char line[80];
    if (!wf_look_line(path, line, sizeof line) || strspn(line, "0123456789") == 0) {
        return false;
    }
    *out = strtoull(line, NULL, 10);
    return true;
}

void wf_look_bytes(uint64_t bytes, char out[32])
{
    static const char *const units[] = {"bytes", "KB", "MB", "GB", "TB"};
    double value = (double)bytes;
    int unit = 0;
    while (value >= 1000 && unit < 4) {
        value /= 1000;
        unit++;
    }
    snprintf(out, 32, value < 10 && unit > 0 ? "%.1f %s" : "%.0f %s", value, units[unit]);
}

uint64_t wf_look_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
