/* fuzz.h - what one fuzz target gives to its two drivers: libFuzzer's, or fuzz_main.c, which needs
 * no more than a C compiler and is the same on every run. */
#ifndef WEFT_TESTS_FUZZ_FUZZ_H
#define WEFT_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Takes any bytes; crashes or aborts on a finding. Gives 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* For fuzz_main.c: writes valid input number `index` to `out` (at most `cap` bytes), from which it
 * makes others; gives its length, 0 when there are no more. */
size_t fuzz_example(uint32_t index, uint8_t *out, size_t cap);

#endif
