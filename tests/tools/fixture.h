/* fixture.h - what real engines held: the executed layouts of tests/golden/real, filled with
 * values.
 *
 * A rank file says of each element which element of which checkpoint tensor it is. Here each
 * becomes a pair (param, flat index), from which tests build the memory that a correct rank has. A
 * checkpoint tensor that holds all experts is taken apart here, by the forms that transformers and
 * the engines' loaders read.
 */
#ifndef WEFT_TESTS_TOOLS_FIXTURE_H
#define WEFT_TESTS_TOOLS_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "models/config.h"

#define FIXTURE_ZERO UINT32_MAX
#define FIXTURE_FUSED (UINT32_MAX - 1)

/* A checkpoint tensor: a parameter, or all experts' in one. */
struct fixture_source {
    uint32_t param;         /* of all experts: FIXTURE_FUSED */
    uint32_t experts[3][8]; /* gate, up, down (or gate and up alone): each expert's parameter */
    uint64_t shape[3];
    bool down, transposed, alternates;
};

struct fixture {
    char folder[128];
    struct wf_model *model;
    uint32_t tp, pp, ep;
    bool sglang;
    bool vision_whole, shared_apart, round_robin;
    struct fixture_source sources[1024]; /* by the fixture's numbers */
};

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
