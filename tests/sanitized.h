/* sanitized.h - whether a test is built with a sanitizer.
 *
 * Sanitizers make it up to ten times slower. They look at each path, and the plain build at each
 * value: a test of many seeds, pairs or rows takes a part of them when sanitized, where
 * the count depends on SANITIZED.
 */
#ifndef WEFT_TESTS_SANITIZED_H
#define WEFT_TESTS_SANITIZED_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

#endif
