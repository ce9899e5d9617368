/* detect_case.h - what `weft layout detect` answers about an executed layout, held against what its
 * case.json says. */
#ifndef WEFT_TESTS_TOOLS_DETECT_CASE_H
#define WEFT_TESTS_TOOLS_DETECT_CASE_H

#include "tools/layout/detect.h"

enum detect_class {
    DETECT_RIGHT,     /* one answer, the true one */
    DETECT_AMBIGUOUS, /* several that make the same names and shapes, the true one among them */
    DETECT_FALSE,     /* an answer that does not make the names and shapes */
    DETECT_WRONG,     /* answers, but not the true one */
    DETECT_NOTHING,   /* nothing fits */
    DETECT_UNREAD,    /* the folder is no layout */
};
extern const char *const detect_class_names[];

struct detect_case {
    enum detect_class class;
    uint32_t fits, place; /* how many; which of them is the true one, from 0 */
    bool more, gave_up;
    double seconds;                      /* of this process's time */
    char family[64], truth[WF_SPEC_MAX]; /* by case.json */
    char text[4096];                     /* the answer, or why there is none */
};

/* An answer is true if it names the family of case.json and its recipe, of the model of case.json,
 * makes every rank's layout: names, dtypes, shapes and the origin of every element. */
void detect_case_run(const char *folder, struct detect_case *out);

#endif
