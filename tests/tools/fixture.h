/* fixture.h - what real engines held: the executed layouts of tests/golden/real, filled with
 * values.
 *
 * A rank file says of each element which element of which checkpoint tensor it is. Here each
 * becomes a pair (param, flat index), from which tests build the memory that a correct rank has.
 */
#ifndef WEFT_TESTS_TOOLS_FIXTURE_H
#define WEFT_TESTS_TOOLS_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "models/config.h"

struct fixture {
    char folder[128];
    struct wf_model *model;
    uint32_t tp, pp, ep;
    bool sglang;
    uint32_t params[256]; /* of the fixture's numbers: index in the model */
};

#define FIXTURE_ZERO UINT32_MAX
struct fixture_element {
    uint32_t param; /* FIXTURE_ZERO: padding */
    uint64_t flat;
};

struct fixture_tensor {
    char name[WF_NAME_MAX];
    uint64_t elements;
    struct fixture_element *from; /* owned */
};

struct fixture_rank {
    struct fixture_tensor tensors[256];
    uint32_t count;
};

void fixture_open(struct fixture *fixture, const char *name);
void fixture_close(struct fixture *fixture);
void fixture_rank_open(const struct fixture *fixture, uint32_t rank, struct fixture_rank *out);
void fixture_rank_close(struct fixture_rank *rank);
struct fixture_tensor *fixture_find(struct fixture_rank *rank, const char *name); /* or NULL */

#endif
