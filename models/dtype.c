/* dtype.c - the table of element types, read in both directions. */
#include "models/dtype.h"

#include <string.h>

struct dtype_row {
    const char *spec, *safetensors, *torch;
    size_t bytes;
};

static const struct dtype_row rows[WF_DTYPE_COUNT] = {[WF_DTYPE_NONE] = {"none", "none", "none", 0},
#define DTYPE_ROW(name, spec, safetensors, torch, bytes) \
    [WF_DTYPE_##name] = {spec, safetensors, torch, bytes},
                                                      WF_DTYPE_MAP(DTYPE_ROW)
#undef DTYPE_ROW
};

/* Numbers come from peers too: one out of range is NONE. */
static const struct dtype_row *row_of(enum wf_dtype dtype)
{
    unsigned index = (unsigned)dtype;
    return &rows[index < WF_DTYPE_COUNT ? index : WF_DTYPE_NONE];
}

static bool text_is(const char *name, const char *text, size_t len)
{
    return strlen(name) == len && memcmp(name, text, len) == 0;
}

size_t wf_dtype_bytes(enum wf_dtype dtype)
{
    return row_of(dtype)->bytes;
}

const char *wf_dtype_name(enum wf_dtype dtype)
{
    return row_of(dtype)->spec;
}

const char *wf_dtype_safetensors(enum wf_dtype dtype)
{
    return row_of(dtype)->safetensors;
}

const char *wf_dtype_torch(enum wf_dtype dtype)
{
    return row_of(dtype)->torch;
}

enum wf_dtype wf_dtype_from_name(const char *text, size_t len)
{
    for (unsigned i = WF_DTYPE_NONE + 1; i < WF_DTYPE_COUNT; i++) {
        if (text_is(rows[i].spec, text, len)) {
            return (enum wf_dtype)i;
        }
    }
    return WF_DTYPE_NONE;
}

enum wf_dtype wf_dtype_from_safetensors(const char *text, size_t len)
{
    for (unsigned i = WF_DTYPE_NONE + 1; i < WF_DTYPE_COUNT; i++) {
        if (text_is(rows[i].safetensors, text, len)) {
            return (enum wf_dtype)i;
        }
    }
    return WF_DTYPE_NONE;
}

enum wf_dtype wf_dtype_from_torch(const char *text, size_t len)
{
    for (unsigned i = WF_DTYPE_NONE + 1; i < WF_DTYPE_COUNT; i++) {
        if (text_is(rows[i].torch, text, len)) {
            return (enum wf_dtype)i;
        }
    }
    return WF_DTYPE_NONE;
}

static bool is_float_16_or_32(enum wf_dtype dtype)
{
    return dtype == WF_DTYPE_F32 || dtype == WF_DTYPE_F16 || dtype == WF_DTYPE_BF16;
}

bool wf_dtype_castable(enum wf_dtype from, enum wf_dtype to)
{
    if (wf_dtype_bytes(from) == 0 || wf_dtype_bytes(to) == 0) {
        return false;
    }
    return from == to || (is_float_16_or_32(from) && is_float_16_or_32(to));
}
