/* test_plan_copies.c - one parameter under several names of a rank, or on several ranks: the
 * planner sees what is held, not who calls it what. Shards that hold the same are one source with
 * several holders, those that lie beside each other one op, and what stands twice is compared. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/replicas.h"
#include "plan_world.h"

enum { ROWS = 8, COLUMNS = 4, RANKS_MAX = 4, PIECES_MAX = 4 };

#define T(tensor, tensor_rows, first, high, at)                                        \
    {                                                                                  \
        tensor, WF_DTYPE_BF16, tensor_rows, COLUMNS, 0, first, 0, at, 0, high, COLUMNS \
    }

static const struct row {
    const char *name;
    struct hand_piece train[RANKS_MAX][PIECES_MAX]; /* rows without a piece: no such rank */
    uint64_t ops;
    uint32_t groups;   /* that rank 0 holds alike with others */
    const char *twice; /* what is said when the first element of rank 0's last tensor differs */
} rows[] = {
    {"one tensor", {{T(0, 8, 0, 8, 0)}}, 1, 0, NULL},
    {"two names of one rank for all of it",
     {{T(0, 8, 0, 8, 0), T(1, 8, 0, 8, 0)}},
     1,
     0,
     "alpha, elements 0..31, in tensor0 and in tensor1"},
    {"three names",
     {{T(0, 8, 0, 8, 0), T(1, 8, 0, 8, 0), T(2, 8, 0, 8, 0)}},
     1,
     0,
     "alpha, elements 0..31, in tensor0 and in tensor2"},
    {"two names that have some rows in common",
     {{T(0, 6, 0, 6, 0), T(1, 5, 3, 5, 0)}},
     2,
     0,
     "alpha, elements 12..23, in tensor0 and in tensor1"},
    {"each half has its name", {{T(0, 4, 0, 4, 0), T(1, 4, 4, 4, 0)}}, 2, 0, NULL},
    {"one name whose halves are listed apart", {{T(0, 8, 0, 4, 0), T(0, 8, 4, 4, 4)}}, 1, 0, NULL},
    {"one name, the second half first", {{T(0, 8, 4, 4, 0), T(0, 8, 0, 4, 4)}}, 2, 0, NULL},
    {"slices of two ranks under one name", {{T(0, 4, 0, 4, 0)}, {T(0, 4, 4, 4, 0)}}, 2, 0, NULL},
    {"the whole on four ranks",
     {{T(0, 8, 0, 8, 0)}, {T(0, 8, 0, 8, 0)}, {T(0, 8, 0, 8, 0)}, {T(0, 8, 0, 8, 0)}},
     1,
     1,
     NULL},
    {"slices of two ranks, and another that has all under another cut",
     {{T(0, 4, 0, 4, 0)}, {T(0, 4, 4, 4, 0)}, {T(0, 8, 4, 4, 0), T(0, 8, 0, 4, 4)}},
     2,
     1,
     NULL},
    {"twice on one rank, and on another",
     {{T(0, 8, 0, 8, 0), T(1, 8, 0, 8, 0)}, {T(0, 8, 0, 8, 0)}},
     1,
     1,
     "alpha, elements 0..31, in tensor0 and in tensor1"},
};
enum { ROW_COUNT = sizeof rows / sizeof rows[0] };

static uint32_t make(const struct row *row, struct world *world)
{
    static const struct hand_param param = {"alpha", ROWS, COLUMNS};
    static const struct hand_piece whole[2] = {T(0, 8, 0, 8, 0)};
    uint32_t ranks = 0;
    memset(world, 0, sizeof *world);
    hand_model(world, &param, 1);
    for (; ranks < RANKS_MAX && row->train[ranks][0].wide > 0; ranks++) {
        struct hand_piece pieces[PIECES_MAX + 1] = {0};
        memcpy(pieces, row->train[ranks], sizeof row->train[ranks]);
        hand_rank(world, WF_TRAIN, 0, pieces);
    }
    hand_rank(world, WF_INFER, 1, whole);
    return ranks;
}

Test(plan_copies, what_is_moved)
{
    for (size_t i = 0; i < ROW_COUNT; i++) {
        const struct row *row = &rows[i];
        struct world world;
        struct wf_plan *plan = NULL;
        struct wf_error error = {0};
        char wrong[256] = "";
        make(row, &world);
        cr_assert_eq(wf_plan_build(&world.input, &plan, &error), WF_OK, "%s: %s", row->name,
                     error.text);
        cr_expect_eq(plan->op_count, row->ops, "%s: %llu ops", row->name,
                     (unsigned long long)plan->op_count);
        cr_expect_eq(plan->bytes_moved, ROWS * COLUMNS * 2, "%s", row->name);
        cr_expect_eq(world_move(&world, plan, wrong, sizeof wrong), 0, "%s: %s", row->name, wrong);
        cr_expect_eq(wf_plan_prove(&world.input, plan, &error), WF_OK, "%s: %s", row->name,
                     error.text);
        wf_plan_free(plan);
        world_free(&world);
    }
}

/* The tensors of train rank 0, each element of the parameter with one value. */
static void fill(const struct wf_layout *layout, void **tensors)
{
    for (uint32_t t = 0; t < layout->tensor_count; t++) {
        tensors[t] = calloc(1, layout->tensors[t].bytes);
    }
    for (uint32_t p = 0; p < layout->piece_count; p++) {
        struct wf_nest nest = wf_layout_nest(layout, p);
        uint64_t elements = wf_nest_elements(&nest); /* rows of COLUMNS, without gaps */
        uint16_t *to = (uint16_t *)tensors[layout->pieces[p].tensor] + nest.tensor_offset / 2;
        for (uint64_t e = 0; e < elements; e++) {
            to[e] = (uint16_t)(100 + nest.param_first + e);
        }
    }
}

Test(plan_copies, what_is_compared)
{
    for (size_t i = 0; i < ROW_COUNT; i++) {
        const struct row *row = &rows[i];
        struct world world;
        struct wf_replicas *replicas = NULL;
        struct wf_error error = {0};
        char text[400] = "";
        void *tensors[PIECES_MAX];
        uint32_t ranks = make(row, &world), groups;
        const struct wf_layout *own = world.layouts[0];
        const struct wf_replicas_input input = {.model = world.model,
                                                .layouts = world.layouts,
                                                .rank_count = ranks,
                                                .side = WF_TRAIN,
                                                .own = own};
        cr_assert_eq(wf_replicas_new(&input, &replicas, &error), WF_OK, "%s: %s", row->name,
                     error.text);
        fill(own, tensors);
        wf_replicas_compute(replicas, tensors, 0, wf_replicas_chunks(replicas));
        wf_replicas_groups(replicas, &groups);
        cr_expect_eq(groups, row->groups, "%s: %u groups", row->name, groups);
        cr_expect_eq(wf_replicas_unseen(replicas), 0, "%s", row->name);
        cr_expect_not(wf_replicas_own_differ(replicas, world.model, own, text, sizeof text),
                      "%s: %s", row->name, text);
        *(uint8_t *)tensors[own->tensor_count - 1] ^= 1;
        wf_replicas_compute(replicas, tensors, 0, wf_replicas_chunks(replicas));
        bool differ = wf_replicas_own_differ(replicas, world.model, own, text, sizeof text);
        cr_expect_eq(differ, row->twice != NULL, "%s: %s", row->name, text);
        if (differ) {
            cr_expect_str_eq(text, row->twice, "%s: %s", row->name, text);
        }
        for (uint32_t t = 0; t < own->tensor_count; t++) {
            free(tensors[t]);
        }
        wf_replicas_free(replicas);
        world_free(&world);
    }
}

/* Of a parameter of several chunks, in a tensor whose halves have changed places. */
Test(plan_copies, the_element_that_differs_is_found)
{
    enum { HIGH = 1024, WIDE = 1024, AT = 700123 };
    static const struct hand_param param = {"alpha", HIGH, WIDE};
    static const struct hand_piece whole[2] = {
        {0, WF_DTYPE_BF16, HIGH, WIDE, 0, 0, 0, 0, 0, HIGH, WIDE}};
    static const struct hand_piece halves[3] = {
        {0, WF_DTYPE_BF16, HIGH, WIDE, 0, 512, 0, 0, 0, 512, WIDE},
        {0, WF_DTYPE_BF16, HIGH, WIDE, 0, 0, 0, 512, 0, 512, WIDE}};
    struct world world = {0};
    struct wf_error error = {0};
    struct wf_replicas *replicas[2];
    void *tensors[2];
    char text[300];
    hand_model(&world, &param, 1);
    hand_rank(&world, WF_TRAIN, 0, whole);
    hand_rank(&world, WF_TRAIN, 0, halves);
    for (uint32_t r = 0; r < 2; r++) {
        const struct wf_replicas_input input = {.model = world.model,
                                                .layouts = world.layouts,
                                                .rank_count = 2,
                                                .rank = r,
                                                .side = WF_TRAIN,
                                                .own = world.layouts[r]};
        cr_assert_eq(wf_replicas_new(&input, &replicas[r], &error), WF_OK, "%s", error.text);
        fill(world.layouts[r], &tensors[r]);
        ((uint16_t *)tensors[0])[AT] ^= r == 0;
        wf_replicas_compute(replicas[r], &tensors[r], 0, wf_replicas_chunks(replicas[r]));
    }
    uint32_t groups;
    const struct wf_replicas_group *group = wf_replicas_groups(replicas[0], &groups);
    cr_assert(groups == 1 && group->chunks == 2, "%u groups, %u chunks", groups, group->chunks);
    struct wf_replicas_part part = {.group = group->id};
    struct wf_hash sums[2];
    for (part.chunk = 0; part.chunk < 2; part.chunk++) {
        for (uint32_t r = 0; r < 2; r++) {
            cr_assert(wf_replicas_sum(replicas[r], group->id, part.chunk, 1, &sums[r]));
        }
        if (!wf_hash_equal(sums[0], sums[1])) {
            break;
        }
    }
    cr_assert_eq(part.chunk, 1);
    uint64_t high = wf_replicas_elements(replicas[0], group->id, part.chunk);
    cr_assert_eq(high, HIGH * WIDE / 2);
    while (high - part.first > 1) {
        part.count = (high - part.first) / 2;
        for (uint32_t r = 0; r < 2; r++) {
            cr_assert(wf_replicas_part_sum(replicas[r], &tensors[r], part, &sums[r]));
        }
        if (wf_hash_equal(sums[0], sums[1])) {
            part.first += part.count;
        } else {
            high = part.first + part.count;
        }
    }
    part.count = 1;
    wf_replicas_describe(replicas[1], world.model, world.layouts[1], part, text, sizeof text);
    cr_expect_str_eq(text, "alpha, element 700123, in tensor0");
    part.first = HIGH * WIDE / 2;
    cr_expect_not(wf_replicas_part_sum(replicas[0], &tensors[0], part, &sums[0]));
    for (uint32_t r = 0; r < 2; r++) {
        wf_replicas_free(replicas[r]);
        free(tensors[r]);
    }
    world_free(&world);
}
