/* units.c - a number and a unit. */
#include "config/units.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit durations[] = {
    {"us", 1000},
    {"ms", 1000000},
    {"s", 1000000000},
    {"m", 60ULL * 1000000000},
    {"h", 3600ULL * 1000000000},
};

static const struct unit sizes[] = {
    {"B", 1}, {"KiB", 1ULL << 10}, {"MiB", 1ULL << 20}, {"GiB", 1ULL << 30}, {"TiB", 1ULL << 40},
};

static bool parse(const char *text, const struct unit *units, size_t count, uint64_t *value_out)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 18 || (text[0] == '0' && digits > 1)) {
        return false;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < digits; i++) {
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    for (size_t i = 0; i < count; i++) {
        if (strcmp(text + digits, units[i].name) == 0) {
            uint64_t product;
            if (__builtin_mul_overflow(value, units[i].factor, &product)) {
                return false;
            }
            *value_out = product;
            return true;
        }
    }
    return false;
}

bool wf_parse_duration(const char *text, uint64_t *ns_out)
{
    return parse(text, durations, sizeof durations / sizeof durations[0], ns_out);
}

bool wf_parse_bytes(const char *text, uint64_t *bytes_out)
{
    return parse(text, sizes, sizeof sizes / sizeof sizes[0], bytes_out);
}

const char *wf_bytes_format(uint64_t bytes, char text_out[WF_BYTES_TEXT])
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    double value = (double)bytes;
    unsigned unit = 0;
    /* Told with three digits, 999.6 kB would be 1e+03 kB. */
    for (; value >= (unit == 0 ? 1000 : 999.5) && unit < 5; unit++) {
        value /= 1000;
    }
    snprintf(text_out, WF_BYTES_TEXT, unit == 0 ? "%.0f %s" : "%.3g %s", value, units[unit]);
    return text_out;
}
