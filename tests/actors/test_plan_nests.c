/* test_plan_nests.c - layouts that no recipe of this build makes: transposed, repeated, blocked,
 * interleaved and backwards pieces, on both sides. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "plan_world.h"
#include "runtime/splitmix.h"

enum { ELEM = 4, CASES = 1500 };

enum form { PLAIN, TRANSPOSED, REPEATED, BLOCKED, INTERLEAVED, BACKWARDS, HALVES, FORMS };

static const char *const form_names[FORMS] = {"plain",       "transposed", "repeated", "blocked",
                                              "interleaved", "backwards",  "halves"};

static struct world made;

/* The parameter's `rows` x `columns` in one tensor of the form. `k` is a divisor of columns and a
 * number of repeats. */
static void add_tensor(struct wf_build *build, enum form form, uint64_t rows, uint64_t columns,
                       uint64_t k)
{
    int64_t e = ELEM, r = (int64_t)rows, c = (int64_t)columns, b = (int64_t)k;
    const struct wf_nest nests[FORMS] = {
        [PLAIN] = {0, 0, ELEM, 1, {{rows * columns, 1, e}}},
        [TRANSPOSED] = {0, 0, ELEM, 2, {{rows, columns, e}, {columns, 1, r * e}}},
        [REPEATED] = {0, 0, ELEM, 3, {{rows, columns, b * c * e}, {k, 0, c * e}, {columns, 1, e}}},
        [BLOCKED] =
            {0, 0, ELEM, 3, {{columns / k, k, r * b * e}, {rows, columns, b * e}, {k, 1, e}}},
        [INTERLEAVED] = {0, 0, ELEM, 1, {{rows * columns, 1, 2 * e}}},
        [BACKWARDS] =
            {0, (rows - 1) * columns * ELEM, ELEM, 2, {{rows, columns, -c * e}, {columns, 1, e}}},
        [HALVES] = {0, 0, ELEM, 1, {{rows * columns / 2, 1, e}}},
    };
    uint64_t places = rows * columns * (form == REPEATED ? k : form == INTERLEAVED ? 2 : 1);
    struct wf_nest sorted = nests[form];
    if (form == BLOCKED) { /* pieces are written with falling parameter steps */
        sorted.axes[0] = nests[form].axes[1];
        sorted.axes[1] = nests[form].axes[0];
    }
    wf_build_tensor(build, form_names[form], WF_DTYPE_F32, 1, &places, WF_TENSOR_WEIGHTS);
    wf_build_piece(build, 0, &sorted, WF_VALUE_COPY);
    if (form == INTERLEAVED) {
        struct wf_nest fill = {0, ELEM, ELEM, 1, {{rows * columns, 1, 2 * e}}};
        wf_build_fill(build, &fill, 0);
    }
    if (form == HALVES) { /* the second half stands first */
        sorted.param_first = rows * columns / 2;
        sorted.tensor_offset = sorted.param_first * ELEM;
        sorted.axes[0].count = rows * columns - sorted.param_first;
        wf_build_piece(build, 0, &sorted, WF_VALUE_COPY);
    }
}

Test(plan_nests, any_form_to_any_form)
{
    uint64_t state = 0x5eed0003;
    for (unsigned i = 0; i < CASES; i++) {
        static const uint64_t sizes[] = {4, 6, 8, 12, 30};
        struct hand_param param = {"alpha", sizes[wf_splitmix64(&state) % 5],
                                   sizes[wf_splitmix64(&state) % 5]};
        char name[128], wrong[256];
        enum form src = i % FORMS, dst = i / FORMS % FORMS, second = wf_splitmix64(&state) % FORMS;
        hand_model(&made, &param, 1);
        for (unsigned rank = 0; rank < 3; rank++) {
            static const uint64_t divisors[] = {1, 2};
            struct wf_build build;
            wf_build_begin(&build);
            add_tensor(&build,
                       rank == 0   ? src
                       : rank == 1 ? second
                                   : dst,
                       param.rows, param.columns, divisors[wf_splitmix64(&state) % 2]);
            hand_layout(&made, rank < 2 ? WF_TRAIN : WF_INFER, 0, &build);
        }
        snprintf(name, sizeof name, "case %u: %s, %s -> %s of [%" PRIu64 ", %" PRIu64 "]", i,
                 form_names[src], form_names[second], form_names[dst], param.rows, param.columns);
        struct wf_plan *plan = NULL;
        struct wf_error error = {0};
        cr_assert_eq(wf_plan_build(&made.input, &plan, &error), WF_OK, "%s: %s", name, error.text);
        cr_assert_eq(world_move(&made, plan, wrong, sizeof wrong), 0, "%s: %s", name, wrong);
        cr_assert_eq(wf_plan_prove(&made.input, plan, &error), WF_OK, "%s: %s", name, error.text);
        wf_plan_free(plan);
        world_free(&made);
    }
}

/* Transposed blocks of 192 against ones of 128: no common chain, so boxes are written out; still
 * right. */
Test(plan_nests, steps_without_a_common_chain)
{
    struct hand_param param = {"alpha", 6, 192};
    char wrong[256];
    struct wf_error error = {0};
    struct wf_plan *plan = NULL;
    const struct wf_nest tiles[] = {
        {0, 0, ELEM, 2, {{6, 192, ELEM}, {192, 1, 6 * ELEM}}},
        {0, 0, ELEM, 2, {{9, 128, 128 * ELEM}, {128, 1, ELEM}}},
        {0, 0, ELEM, 2, {{9, 128, ELEM}, {128, 1, 9 * ELEM}}},
    };
    hand_model(&made, &param, 1);
    for (unsigned rank = 0; rank < 3; rank++) {
        uint64_t places = 6 * 192;
        struct wf_build build;
        wf_build_begin(&build);
        wf_build_tensor(&build, "tiles", WF_DTYPE_F32, 1, &places, WF_TENSOR_WEIGHTS);
        wf_build_piece(&build, 0, &tiles[rank], WF_VALUE_COPY);
        hand_layout(&made, rank < 1 ? WF_TRAIN : WF_INFER, 0, &build);
    }
    cr_assert_eq(wf_plan_build(&made.input, &plan, &error), WF_OK, "%s", error.text);
    cr_expect_eq(world_move(&made, plan, wrong, sizeof wrong), 0, "%s", wrong);
    cr_expect_eq(wf_plan_prove(&made.input, plan, &error), WF_OK, "%s", error.text);
    wf_plan_free(plan);
    world_free(&made);
}
