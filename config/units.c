/* units.c - a number and a unit of time. */
#include "config/units.h"

#include <stddef.h>
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

bool wf_parse_duration(const char *text, uint64_t *ns_out)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 18 || (text[0] == '0' && digits > 1)) {
        return false;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < digits; i++) {
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    for (size_t i = 0; i < sizeof durations / sizeof durations[0]; i++) {
        if (strcmp(text + digits, durations[i].name) == 0) {
            uint64_t product;
            if (__builtin_mul_overflow(value, durations[i].factor, &product)) {
                return false;
            }
            *ns_out = product;
            return true;
        }
    }
    return false;
}
