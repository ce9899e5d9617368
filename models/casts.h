/* casts.h - f32, f16 and bf16 into each other, and into fp8 and back, over arrays. Pure; any
 * thread.
 *
 * Narrowing rounds to nearest, ties to even; overflow gives infinity; subnormal numbers are kept on
 * both sides. `n` is elements; the arrays do not overlap and need no alignment. The portable C path
 * is the reference; wider ones are chosen at run time by what the processor has and must be equal
 * to it bit for bit (tested over all patterns of 16 bits and millions of 32).
 *
 * NaN: into bf16 every NaN becomes ffff, as torch's vector paths do (tests/golden/torch-casts,
 * where NaNs of other torch paths count as equal). Into f16, and out of f16, sign and the top ten
 * bits of the payload stay and the quiet bit is set, as the processors' own conversion does. bf16
 * into f32 is exact for every pattern. NaN into fp8 keeps its sign and becomes 7f or ff; e4m3's NaN
 * becomes f32's 7ff00000, and e5m2's is treated as f16's with the same top byte.
 */
#ifndef WEFT_MODELS_CASTS_H
#define WEFT_MODELS_CASTS_H

#include <stddef.h>

#include "models/dtype.h"

typedef void wf_cast_t(void *dst, const void *src, size_t n);

/* The cast for a pair, or NULL if the pair is not castable. A type into itself copies bytes.
 * `portable` picks the reference. */
wf_cast_t *wf_cast_for(enum wf_dtype from, enum wf_dtype to, bool portable);

/* What e4m3, which ends at 448 and has no infinity, makes of infinities and of what would round to
 * more. (e5m2 has an infinity and uses it, with either, as torch does.) */
enum wf_cast_above {
    WF_CAST_SATURATE,  /* 448, as torch does since 2.14 */
    WF_CAST_NAN_ABOVE, /* NaN, as older torch and ml_dtypes do */
};

/* Every cast that wf_cast_for gives, and those between e4m3 or e5m2 and f32, f16 or bf16. Not for
 * moving parameters: a tensor of a model in fp8 is codes, which mean nothing without their scales
 * (quant.h), so wf_dtype_castable and with it planner, wire and transports refuse to change them.
 * For who knows that bare values are meant: comparing, loading, files. */
wf_cast_t *wf_cast_bare_for(enum wf_dtype from, enum wf_dtype to, enum wf_cast_above above,
                            bool portable);

/* The same values by stores that go past the caches, for results that are larger than those and
 * are not read soon. Before another thread may read them, call wf_cast_fence once on this one. */
wf_cast_t *wf_cast_streaming_for(enum wf_dtype from, enum wf_dtype to);
wf_cast_t *wf_cast_bare_streaming_for(enum wf_dtype from, enum wf_dtype to,
                                      enum wf_cast_above above);
void wf_cast_fence(void);

#endif
