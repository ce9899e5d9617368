/* test_own_bytes.c - what counts as memory that a rank has made. */
#include <criterion/criterion.h>
#include <sys/mman.h>

#include "tools/run/memory.h"
#include "transports/memory.h"

enum { BYTES = 32 << 20, SLACK = 4 << 20 };

static bool is_near(uint64_t bytes, uint64_t wanted)
{
    return bytes >= wanted && bytes < wanted + SLACK;
}

Test(own_bytes, counts_every_memfd_of_ones_own_and_no_peers)
{
    struct wf_region shared = {.fd = -1}, anonymous = {.fd = -1};
    struct wf_error error = {0};
    uint64_t before = wf_run_own_bytes();
    cr_assert_eq(wf_memory_new("weft-snapshot", BYTES, true, &shared, &error), WF_OK, "%s",
                 error.text);
    cr_expect(is_near(wf_run_own_bytes() - before, BYTES), "a memfd");
    void *map = wf_memory_map(shared.fd, 0, BYTES, PROT_READ, MAP_SHARED | MAP_POPULATE);
    cr_assert_neq(map, NULL);
    cr_expect(is_near(wf_run_own_bytes() - before, BYTES), "read-only, as peers map it");
    cr_assert_eq(wf_memory_new("weft-staging", BYTES, false, &anonymous, &error), WF_OK, "%s",
                 error.text);
    cr_expect(is_near(wf_run_own_bytes() - before, 2 * (uint64_t)BYTES), "anonymous memory");
    munmap(map, BYTES);
    wf_memory_free(&shared);
    wf_memory_free(&anonymous);
    cr_expect(wf_run_own_bytes() < before + SLACK, "all of it is given back");
}
