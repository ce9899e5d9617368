/* nearest.h - "did you mean": the known word closest to a mistyped one. Pure.
 *
 * Used by everything that reads keys from people: SPECs, job files, command lines.
 */
#ifndef WEFT_RUNTIME_NEAREST_H
#define WEFT_RUNTIME_NEAREST_H

#include <stddef.h>

/* The word of `words` (count of them) with the smallest edit distance to `text` (len bytes; from
 * outside, any content), or NULL if none is nearer than half its own length plus one. Ties go to
 * the first. */
const char *wf_nearest(const char *text, size_t len, const char *const *words, size_t count);

#endif
