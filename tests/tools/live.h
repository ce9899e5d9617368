/* live.h - a rank's memory as a correct engine would have it, for the check and the reader. */
#ifndef WEFT_TESTS_TOOLS_LIVE_H
#define WEFT_TESTS_TOOLS_LIVE_H

#include "tests/tools/fixture.h"
#include "tools/check/verify.h"

/* Writes the fixture's model with known values into `folder` and opens it. */
struct wf_checkpoint *live_checkpoint(const struct fixture *fixture, const char *folder);

/* The rank's tensors, filled from the fixture's own description: not by the code under test. */
struct live_rank {
    struct fixture_rank described;
    enum wf_dtype dtype;
    uint8_t *memory[256]; /* one for each tensor; owned */
    uint8_t *derived[64]; /* what live_lookup made of them; owned */
    uint32_t derived_count;
};
void live_rank_open(struct live_rank *live, const struct fixture *fixture, uint32_t rank,
                    enum wf_dtype dtype, uint64_t steps);
/* Fills one tensor again, with another version. */
void live_rank_step(struct live_rank *live, const struct fixture *fixture, uint32_t tensor,
                    uint64_t steps);
void live_rank_close(struct live_rank *live);

uint8_t *live_memory(struct live_rank *live, const char *name, uint64_t *bytes_out);
wf_verify_lookup_t live_lookup; /* user is a struct live_rank */

struct wf_verify_place live_place(const struct fixture *fixture, uint32_t rank);

#endif
