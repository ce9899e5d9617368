/* within.h - a test that hangs is ended, and its name told.
 *
 * `Test(suite, name, .init = within_minutes)`: the alarm ends the test's own process and Criterion
 * reports a crash of that test. Its `.timeout` is not used: it has a thread of the library (BoxFort
 * 0.1.2, src/timeout-posix.c) free what it allocated, which the end of the process may overtake,
 * and LeakSanitizer then reports 48 bytes.
 */
#ifndef WEFT_TESTS_WITHIN_H
#define WEFT_TESTS_WITHIN_H

#include <unistd.h>

static inline void within_minutes(void)
{
    alarm(100); /* it takes a second; tools/test.sh gives a program 120 */
}

#endif
