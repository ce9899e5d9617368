/* test_pair.c - one pair of processes over loopback: the bytes arrive, by either way, and a sender
 * that ends is noticed. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tools/measure/pair.h"

enum { BYTES = 8 << 20, PASS = 4 << 20 };

static const struct row {
    const char *name;
    double (*pass)(struct wf_pair *pair, uint64_t bytes);
} rows[] = {{"a plain socket", wf_pair_socket}, {"plain ucx", wf_pair_ucx}};

struct world {
    uint8_t *memory;
    struct wf_pair *pair;
};

static void make(struct world *world)
{
    struct wf_error error;
    world->memory =
        mmap(NULL, 2 * BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(world->memory, MAP_FAILED);
    for (uint32_t i = 0; i < BYTES; i++) {
        world->memory[i] = (uint8_t)(i * 2654435761u >> 24);
    }
    const struct wf_pair_options options = {
        .from = world->memory, .to = world->memory + BYTES, .bytes = BYTES, .tls = "tcp"};
    cr_assert_eq(wf_pair_open(&options, &world->pair, &error), WF_OK, "%s", error.text);
}

static void end(struct world *world)
{
    wf_pair_close(world->pair);
    munmap(world->memory, 2 * BYTES);
}

Test(pair, moves_all_its_memory_in_turn)
{
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct world world;
        make(&world);
        double rate = rows[i].pass(world.pair, PASS);
        if (rate == 0 && rows[i].pass == wf_pair_ucx) {
            end(&world); /* no UCX here */
            continue;
        }
        cr_assert_gt(rate, 0, "%s", rows[i].name);
        cr_assert_eq(memcmp(world.memory, world.memory + BYTES, PASS), 0, "%s", rows[i].name);
        cr_assert_eq(world.memory[2 * BYTES - 1], 0, "%s: only the first half", rows[i].name);
        cr_assert_gt(rows[i].pass(world.pair, PASS), 0, "%s", rows[i].name);
        cr_assert_eq(memcmp(world.memory, world.memory + BYTES, BYTES), 0, "%s", rows[i].name);
        end(&world);
    }
}

Test(pair, notices_that_its_sender_is_gone)
{
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct world world;
        make(&world);
        if (rows[i].pass(world.pair, PASS) > 0) {
            cr_assert_eq(kill(wf_pair_sender(world.pair), SIGKILL), 0);
            cr_assert_lt(rows[i].pass(world.pair, PASS), 0, "%s", rows[i].name);
        }
        end(&world);
    }
}
