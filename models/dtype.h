/* dtype.h - element types: names, sizes. Pure. */
#ifndef WEFT_MODELS_DTYPE_H
#define WEFT_MODELS_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(enum, name in SPECs and reports, safetensors name, torch name, bytes of one element).
 * Numbers travel in frames: only append. Integer and byte types are moved, never cast. */
#define WF_DTYPE_MAP(X)                                  \
    X(F32, "f32", "F32", "float32", 4)                   \
    X(F16, "f16", "F16", "float16", 2)                   \
    X(BF16, "bf16", "BF16", "bfloat16", 2)               \
    X(F8_E4M3, "f8_e4m3", "F8_E4M3", "float8_e4m3fn", 1) \
    X(F8_E5M2, "f8_e5m2", "F8_E5M2", "float8_e5m2", 1)   \
    X(F64, "f64", "F64", "float64", 8)                   \
    X(I64, "i64", "I64", "int64", 8)                     \
    X(I32, "i32", "I32", "int32", 4)                     \
    X(I16, "i16", "I16", "int16", 2)                     \
    X(I8, "i8", "I8", "int8", 1)                         \
    X(U8, "u8", "U8", "uint8", 1)                        \
    X(BOOL, "bool", "BOOL", "bool", 1)

enum wf_dtype {
    WF_DTYPE_NONE = 0,
#define WF_DTYPE_ENUM(name, spec, safetensors, torch, bytes) WF_DTYPE_##name,
    WF_DTYPE_MAP(WF_DTYPE_ENUM)
#undef WF_DTYPE_ENUM
        WF_DTYPE_COUNT
};

size_t wf_dtype_bytes(enum wf_dtype dtype);     /* 0 for NONE or out of range */
const char *wf_dtype_name(enum wf_dtype dtype); /* "bf16"; "none" */
/* NONE when unknown. `len` is given because names come from files. */
enum wf_dtype wf_dtype_from_name(const char *text, size_t len);        /* "bf16" */
enum wf_dtype wf_dtype_from_safetensors(const char *text, size_t len); /* "BF16" */
enum wf_dtype wf_dtype_from_torch(const char *text, size_t len);       /* "bfloat16" */
const char *wf_dtype_safetensors(enum wf_dtype dtype);
const char *wf_dtype_torch(enum wf_dtype dtype);
/* True if a parameter of `from` may be given as `to` by a cast: f32, f16 and bf16 among themselves,
 * and any type into itself. Not fp8, whose codes need their scales (quant.h). */
bool wf_dtype_castable(enum wf_dtype from, enum wf_dtype to);

#endif
