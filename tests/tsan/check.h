/* check.h - the assertion of plain test programs: prints what was false and ends with status 1.
 * Criterion's processes do not live under the thread sanitizer. */
#ifndef WEFT_TESTS_TSAN_CHECK_H
#define WEFT_TESTS_TSAN_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                             \
    do {                                                                             \
        if (!(condition)) {                                                          \
            fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

#endif
