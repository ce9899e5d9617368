/* nearest.c - Levenshtein's distance over short words, two rows at a time. */
#include "runtime/nearest.h"

#include <stdint.h>
#include <string.h>

enum { WORD_MAX = 64 };

static size_t least(size_t a, size_t b, size_t c)
{
    size_t m = a < b ? a : b;
    return m < c ? m : c;
}

static size_t distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
    size_t row[WORD_MAX + 1];
    for (size_t j = 0; j <= b_len; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= a_len; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_len; j++) {
            size_t above = row[j];
            row[j] = least(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[b_len];
}

const char *wf_nearest(const char *text, size_t len, const char *const *words, size_t count)
{
    const char *best = NULL;
    size_t best_distance = SIZE_MAX;
    if (len == 0 || len > WORD_MAX) { /* nothing is like every short word */
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        size_t word_len = strlen(words[i]);
        if (word_len > WORD_MAX) {
            continue;
        }
        size_t d = distance(text, len, words[i], word_len);
        if (d < best_distance && d <= word_len / 2 + 1) {
            best = words[i];
            best_distance = d;
        }
    }
    return best;
}
