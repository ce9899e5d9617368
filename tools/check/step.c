/* step.c - the deterministic optimizer step, over arrays and on one element. */
#include "tools/check/step.h"

#include <stddef.h>

#include "runtime/status.h"

/* Where the 7 bits are, and the exponent whose bits are all set in infinities and NaNs; 0: none. */
struct field {
    uint32_t shift, exponent;
};

static bool find_field(enum wf_dtype dtype, struct field *field_out)
{
    switch (dtype) {
    case WF_DTYPE_BF16:
        *field_out = (struct field){0, 0x7f80};
        return true;
    case WF_DTYPE_F16:
        *field_out = (struct field){3, 0x7c00};
        return true;
    case WF_DTYPE_F32:
        *field_out = (struct field){16, 0x7f800000};
        return true;
    case WF_DTYPE_U8:
    case WF_DTYPE_I32:
        *field_out = (struct field){0, 0};
        return true;
    default:
        return false;
    }
}

bool wf_step_supports(enum wf_dtype dtype)
{
    struct field field;
    return find_field(dtype, &field);
}

/* Adding to the field alone: lower bits are zero in `add`, a carry out is masked away. */
static inline uint32_t step_bits(uint32_t bits, uint32_t mask, uint32_t exponent, uint32_t add)
{
    uint32_t stepped = (bits & ~mask) | ((bits + add) & mask);
    return exponent != 0 && (bits & exponent) == exponent ? bits : stepped;
}

static void apply_8(uint8_t *elements, uint64_t count, struct field field, uint32_t add)
{
    uint8_t mask = (uint8_t)((WF_STEP_PERIOD - 1) << field.shift);
    for (uint64_t i = 0; i < count; i++) {
        elements[i] = (uint8_t)step_bits(elements[i], mask, field.exponent, add);
    }
}

static void apply_16(uint16_t *elements, uint64_t count, struct field field, uint32_t add)
{
    uint16_t mask = (uint16_t)((WF_STEP_PERIOD - 1) << field.shift);
    uint16_t exponent = (uint16_t)field.exponent, add16 = (uint16_t)add;
    for (uint64_t i = 0; i < count; i++) {
        elements[i] = (uint16_t)step_bits(elements[i], mask, exponent, add16);
    }
}

static void apply_32(uint32_t *elements, uint64_t count, struct field field, uint32_t add)
{
    uint32_t mask = (uint32_t)(WF_STEP_PERIOD - 1) << field.shift;
    for (uint64_t i = 0; i < count; i++) {
        elements[i] = step_bits(elements[i], mask, field.exponent, add);
    }
}

static uint32_t addend(struct field field, uint64_t steps)
{
    return (uint32_t)(steps % WF_STEP_PERIOD * WF_STEP_ADD % WF_STEP_PERIOD) << field.shift;
}

void wf_step_apply(void *buffer, enum wf_dtype dtype, uint64_t elements, uint64_t steps)
{
    struct field field = {0, 0};
    WF_ASSERT(find_field(dtype, &field));
    uint32_t add = addend(field, steps);
    if (add == 0) {
        return;
    }
    if (dtype == WF_DTYPE_U8) {
        apply_8(buffer, elements, field, add);
    } else if (dtype == WF_DTYPE_F32 || dtype == WF_DTYPE_I32) {
        apply_32(buffer, elements, field, add);
    } else {
        apply_16(buffer, elements, field, add);
    }
}

uint32_t wf_step_value(uint32_t bits, enum wf_dtype dtype, uint64_t steps)
{
    struct field field = {0, 0};
    WF_ASSERT(find_field(dtype, &field));
    return step_bits(bits, (uint32_t)(WF_STEP_PERIOD - 1) << field.shift, field.exponent,
                     addend(field, steps));
}
