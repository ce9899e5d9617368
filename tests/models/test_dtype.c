/* test_dtype.c - names of element types in both directions, and numbers out of range. */
#include <criterion/criterion.h>
#include <string.h>

#include "models/dtype.h"

Test(dtype, names_go_both_ways)
{
    for (unsigned i = WF_DTYPE_NONE + 1; i < WF_DTYPE_COUNT; i++) {
        enum wf_dtype dtype = (enum wf_dtype)i;
        const char *name = wf_dtype_name(dtype), *file = wf_dtype_safetensors(dtype),
                   *torch = wf_dtype_torch(dtype);
        cr_expect_eq(wf_dtype_from_name(name, strlen(name)), dtype, "%s", name);
        cr_expect_eq(wf_dtype_from_safetensors(file, strlen(file)), dtype, "%s", name);
        cr_expect_eq(wf_dtype_from_torch(torch, strlen(torch)), dtype, "%s", name);
        cr_expect_gt(wf_dtype_bytes(dtype), 0, "%s", name);
    }
}

Test(dtype, unknown_names_and_numbers_are_none)
{
    cr_expect_eq(wf_dtype_from_name("bf16x", 5), WF_DTYPE_NONE);
    cr_expect_eq(wf_dtype_from_name("bf16x", 4), WF_DTYPE_BF16);
    cr_expect_eq(wf_dtype_from_name("bf16\0", 5), WF_DTYPE_NONE);
    cr_expect_eq(wf_dtype_from_name("none", 4), WF_DTYPE_NONE);
    cr_expect_eq(wf_dtype_from_name("", 0), WF_DTYPE_NONE);
    cr_expect_eq(wf_dtype_from_safetensors("bf16", 4), WF_DTYPE_NONE);
    cr_expect_eq(wf_dtype_from_torch("half", 4), WF_DTYPE_NONE);
    cr_expect_eq(wf_dtype_bytes((enum wf_dtype)WF_DTYPE_COUNT), 0);
    cr_expect_str_eq(wf_dtype_name((enum wf_dtype) - 1), "none");
}

Test(dtype, only_floats_of_16_and_32_bits_are_cast)
{
    cr_expect(wf_dtype_castable(WF_DTYPE_F32, WF_DTYPE_BF16));
    cr_expect(wf_dtype_castable(WF_DTYPE_F16, WF_DTYPE_BF16));
    cr_expect(wf_dtype_castable(WF_DTYPE_I64, WF_DTYPE_I64));
    cr_expect_not(wf_dtype_castable(WF_DTYPE_I16, WF_DTYPE_F32));
    cr_expect_not(wf_dtype_castable(WF_DTYPE_F32, WF_DTYPE_F8_E4M3));
    cr_expect_not(wf_dtype_castable(WF_DTYPE_F64, WF_DTYPE_F32));
    cr_expect_not(wf_dtype_castable(WF_DTYPE_NONE, WF_DTYPE_NONE));
    cr_expect_not(wf_dtype_castable((enum wf_dtype)99, (enum wf_dtype)99));
}
