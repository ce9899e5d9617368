/* fuzz.h - what one fuzz target gives to its two drivers: libFuzzer's, or fuzz_main.c, which needs
 * no more than a C compiler and is the same on every run. */
#ifndef WEFT_TESTS_FUZZ_FUZZ_H
#define WEFT_TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Whether one more input is run after `done` of `count`. WEFT_FUZZ_SECONDS in the environment says
 * for how long instead. */
static inline bool fuzz_goes_on(uint64_t done, uint64_t count)
{
    static time_t until;
    const char *seconds = getenv("WEFT_FUZZ_SECONDS");
    if (seconds == NULL) {
        return done < count;
    }
    if (until == 0) {
        until = time(NULL) + strtol(seconds, NULL, 10);
    }
    return time(NULL) < until;
}

/* Takes any bytes; crashes or aborts on a finding. Gives 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* For fuzz_main.c: writes valid input number `index` to `out` (at most `cap` bytes), from which it
 * makes others; gives its length, 0 when there are no more. */
size_t fuzz_example(uint32_t index, uint8_t *out, size_t cap);

/* For fuzz_main.c, of targets over text alone: words of what they read, which it puts into inputs;
 * NULL when there are no more. */
const char *fuzz_word(uint32_t index);

/* An example out of a table of texts. */
static inline size_t fuzz_text(const char *const *texts, size_t count, uint32_t index, uint8_t *out,
                               size_t cap)
{
    size_t len = index < count ? strlen(texts[index]) : 0;
    len = len <= cap ? len : cap;
    memcpy(out, index < count ? texts[index] : "", len);
    return len;
}

#endif
