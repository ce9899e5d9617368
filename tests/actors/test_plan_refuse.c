/* test_plan_refuse.c - layouts made by hand: what the planner refuses, and sources that overlap. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "actors/planned.h"
#include "plan_world.h"
#include "runtime/splitmix.h"

#define F32 WF_DTYPE_F32
#define BF16 WF_DTYPE_BF16
#define I32 WF_DTYPE_I32

enum { PIECES_MAX = 8, RANKS_MAX = 6 };

/* Whole tensor `t` of type `d` = rows [r, r + h) of parameter `p`, `w` columns wide. */
#define ROWS(t, d, p, r, h, w)          \
    {                                   \
        t, d, h, w, p, r, 0, 0, 0, h, w \
    }

struct hand_rank {
    bool infer;
    struct hand_piece pieces[PIECES_MAX];
};

struct refuse_row {
    const char *name;
    struct hand_rank ranks[RANKS_MAX];
    enum wf_status status;
    const char *says[5];
};

static const struct hand_param params[] = {{"alpha", 8, 4}, {"beta", 4, 4}};

static const struct refuse_row refuse_rows[] = {
    {"rows that nobody holds",
     {{false, {ROWS(0, F32, 0, 0, 4, 4), ROWS(1, F32, 0, 6, 2, 4)}},
      {true, {ROWS(0, F32, 0, 0, 8, 4)}}},
     WF_INVALID,
     {"parameter alpha", "rows 4..5 of [8, 4]", "infer rank 0", "tensor0", "none of the 1 train"}},
    {"columns that nobody holds",
     {{false, {{0, F32, 8, 3, 0, 0, 0, 0, 0, 8, 3}}}, {true, {ROWS(0, F32, 0, 0, 8, 4)}}},
     WF_INVALID,
     {"parameter alpha", "rows 0..7, columns 3..3", "infer rank 0"}},
    {"a parameter that nobody holds",
     {{false, {ROWS(0, F32, 0, 0, 8, 4)}}, {true, {ROWS(0, F32, 1, 0, 4, 4)}}},
     WF_INVALID,
     {"parameter beta", "infer rank 0", "any of this parameter"}},
    {"copies of two types",
     {{false, {ROWS(0, F32, 0, 0, 8, 4)}},
      {false, {ROWS(0, BF16, 0, 0, 8, 4)}},
      {true, {ROWS(0, F32, 0, 0, 8, 4)}}},
     WF_INVALID,
     {"parameter alpha", "train rank 0", "f32", "train rank 1", "bf16"}},
    {"a cast that does not exist",
     {{false, {ROWS(0, I32, 1, 0, 4, 4)}}, {true, {ROWS(0, BF16, 1, 0, 4, 4)}}},
     WF_UNSUPPORTED,
     {"parameter beta", "train rank 0", "i32", "infer rank 0", "bf16"}},
    {"no infer ranks", {{false, {ROWS(0, F32, 0, 0, 8, 4)}}}, WF_INVALID, {"both sides"}},
    {"no train ranks", {{true, {ROWS(0, F32, 0, 0, 8, 4)}}}, WF_INVALID, {"both sides"}},
};

static struct world made;

static void make_ranks(const struct hand_rank *ranks)
{
    hand_model(&made, params, sizeof params / sizeof params[0]);
    for (uint32_t r = 0; r < RANKS_MAX && ranks[r].pieces[0].wide > 0; r++) {
        hand_rank(&made, ranks[r].infer ? WF_INFER : WF_TRAIN, 0, ranks[r].pieces);
    }
}

Test(plan_refuse, names_parameter_ranks_and_box)
{
    for (size_t i = 0; i < sizeof refuse_rows / sizeof refuse_rows[0]; i++) {
        const struct refuse_row *row = &refuse_rows[i];
        struct wf_plan *plan = NULL;
        struct wf_error error = {0};
        make_ranks(row->ranks);
        enum wf_status status = wf_plan_build(&made.input, &plan, &error);
        cr_expect_eq(status, row->status, "%s: %s", row->name, wf_status_name(status));
        cr_expect_eq(error.status, row->status, "%s", row->name);
        cr_expect_null(plan, "%s", row->name);
        for (size_t s = 0; s < 5 && row->says[s] != NULL; s++) {
            cr_expect(strstr(error.text, row->says[s]) != NULL, "%s: no \"%s\" in \"%s\"",
                      row->name, row->says[s], error.text);
        }
        world_free(&made);
    }
}

static const struct hand_rank simple_ranks[RANKS_MAX] = {
    {false, {ROWS(0, F32, 0, 0, 8, 4), ROWS(1, F32, 1, 0, 4, 4)}},
    {true, {ROWS(0, F32, 0, 0, 8, 4), ROWS(1, F32, 1, 0, 4, 4)}}};

struct broken_row {
    const char *name;
    void (*breaks)(void);
    const char *says;
};

static void swap_sides(void)
{
    made.members[0].side = WF_INFER;
    made.members[1].side = WF_TRAIN;
}

static void skip_rank(void)
{
    made.members[1].rank = 1;
}

static void smaller_model(void)
{
    made.model->param_count = 1;
}

static void smaller_param(void)
{
    made.model->params[0].elements = 31;
}

static const struct broken_row broken_rows[] = {
    {"infer before train", swap_sides, "must be infer rank 1, but is train rank 0"},
    {"a rank is missing", skip_rank, "must be infer rank 0, but is infer rank 1"},
    {"a layout of a model with more parameters", smaller_model, "made for another model"},
    {"a layout of a model with larger parameters", smaller_param, "tensor0, parameter alpha"},
};

Test(plan_refuse, checks_its_input)
{
    for (size_t i = 0; i < sizeof broken_rows / sizeof broken_rows[0]; i++) {
        struct wf_plan *plan = NULL;
        struct wf_error error = {0};
        make_ranks(simple_ranks);
        broken_rows[i].breaks();
        cr_expect_eq(wf_plan_build(&made.input, &plan, &error), WF_INVALID, "%s",
                     broken_rows[i].name);
        cr_expect(strstr(error.text, broken_rows[i].says) != NULL, "%s: \"%s\"",
                  broken_rows[i].name, error.text);
        cr_expect_eq(wf_plan_build(&made.input, &plan, NULL), WF_INVALID, "%s: without an error",
                     broken_rows[i].name);
        wf_plan_free(plan);
        world_free(&made);
    }
}

/* --- sources that overlap in part ---------------------------------------------------------------
 */

/* A rectangle of a matrix, as one tensor of its own. */
static struct hand_piece random_rectangle(uint64_t *state, uint32_t tensor)
{
    const struct hand_param *param = &params[0];
    uint64_t row = wf_splitmix64(state) % param->rows,
             column = wf_splitmix64(state) % param->columns;
    uint64_t high = 1 + wf_splitmix64(state) % (param->rows - row);
    uint64_t wide = 1 + wf_splitmix64(state) % (param->columns - column);
    return (struct hand_piece){tensor, F32, high, wide, 0, row, column, 0, 0, high, wide};
}

/* Each rank shows two rectangles; the last train rank shows everything, or the target is refused.
 */
static bool make_overlap(uint64_t *state)
{
    uint32_t train = 1 + (uint32_t)(wf_splitmix64(state) % 4),
             infer = 1 + (uint32_t)(wf_splitmix64(state) % 2);
    bool complete = wf_splitmix64(state) % 4 > 0;
    hand_model(&made, params, 2);
    for (uint32_t r = 0; r < train + infer; r++) {
        struct hand_piece pieces[3] = {random_rectangle(state, 0), random_rectangle(state, 1)};
        if (complete && r + 1 == train) {
            pieces[0] = (struct hand_piece)ROWS(0, F32, 0, 0, 8, 4);
        }
        hand_rank(&made, r < train ? WF_TRAIN : WF_INFER, r % 3, pieces);
    }
    return complete;
}

/* By hand: is every element that an infer rank needs on some train rank? */
static bool all_held(void)
{
    bool held[64] = {false}, all = true;
    for (unsigned pass = 0; pass < 2; pass++) {
        for (uint32_t m = 0; m < made.input.member_count; m++) {
            const struct wf_layout *layout = made.members[m].layout;
            for (uint32_t i = 0; i < layout->piece_count; i++) {
                struct wf_nest nest = wf_layout_nest(layout, i);
                for (uint64_t e = 0; e < wf_nest_elements(&nest); e++) {
                    uint64_t element = nest.param_first, rest = e;
                    for (uint32_t a = nest.axis_count; a-- > 0;) {
                        element += rest % nest.axes[a].count * nest.axes[a].param_step;
                        rest /= nest.axes[a].count;
                    }
                    if (pass == 0 && made.members[m].side == WF_TRAIN) {
                        held[element] = true;
                    } else if (pass == 1 && made.members[m].side == WF_INFER) {
                        all = all && held[element];
                    }
                }
            }
        }
    }
    return all;
}

Test(plan_refuse, overlapping_sources_are_cut)
{
    uint64_t state = 0x5eed0001;
    unsigned planned = 0, refused = 0;
    for (unsigned i = 0; i < 3000; i++) {
        char wrong[256];
        struct wf_plan *plan = NULL;
        struct wf_error error = {0};
        make_overlap(&state);
        bool held = all_held();
        enum wf_status status = wf_plan_build(&made.input, &plan, &error);
        cr_assert_eq(status, held ? WF_OK : WF_INVALID, "case %u: %s %s", i, wf_status_name(status),
                     error.text);
        if (status == WF_OK) {
            cr_assert_eq(world_move(&made, plan, wrong, sizeof wrong), 0, "case %u: %s", i, wrong);
            cr_assert_eq(wf_plan_prove(&made.input, plan, &error), WF_OK, "case %u: %s", i,
                         error.text);
        }
        planned += held;
        refused += !held;
        wf_plan_free(plan);
        world_free(&made);
    }
    cr_expect_gt(planned, 1000);
    cr_expect_gt(refused, 100);
}

/* --- a fill from a replica: what the trainers would give, or nothing
 * ---------------------------------------------------
 */
static const struct {
    const char *name;
    struct hand_rank ranks[RANKS_MAX];
    const char *says; /* NULL: it may be filled so */
} fill_rows[] = {
    {"the same types",
     {{false, {ROWS(0, BF16, 0, 0, 8, 4), ROWS(1, F32, 1, 0, 4, 4)}},
      {true, {ROWS(0, BF16, 0, 0, 8, 4), ROWS(1, F32, 1, 0, 4, 4)}}},
     NULL},
    {"it would be rounded twice",
     {{false, {ROWS(0, F32, 0, 0, 8, 4)}}, {true, {ROWS(0, BF16, 0, 0, 8, 4)}}},
     "infer rank 4 (host b, engine 2) holds alpha as f32, bf16 is needed: rounded twice"},
    {"it was rounded already",
     {{false, {ROWS(0, BF16, 0, 0, 8, 4)}}, {true, {ROWS(0, F32, 0, 0, 8, 4)}}},
     "infer rank 4 (host b, engine 2) holds alpha as bf16, f32 is needed"},
    {"the second parameter, of the second source",
     {{false, {ROWS(0, BF16, 0, 0, 8, 4)}},
      {false, {ROWS(0, F32, 1, 0, 4, 4)}},
      {true, {ROWS(0, BF16, 0, 0, 8, 4), ROWS(1, BF16, 1, 0, 4, 4)}}},
     "infer rank 5 (host b, engine 2) holds beta as f32, bf16 is needed"},
};

Test(plan_refuse, a_fill_does_not_cast_what_was_rounded)
{
    for (size_t i = 0; i < sizeof fill_rows / sizeof fill_rows[0]; i++) {
        struct wf_el_peer peers[RANKS_MAX] = {{0}};
        struct wf_agreed agreed = {.peers = peers, .layouts = made.layouts};
        struct wf_error error = {0};
        make_ranks(fill_rows[i].ranks);
        for (uint32_t r = 0; r < made.input.member_count; r++) {
            peers[r] = (struct wf_el_peer){
                .side = WF_INFER, .rank = 4 + r, .engine = 2, .host = "b"}; /* a replica's */
            agreed.train_ranks += made.members[r].side == WF_TRAIN;
        }
        cr_assert_eq(wf_plan_build(&made.input, &agreed.plan, &error), WF_OK, "%s: %s",
                     fill_rows[i].name, error.text);
        enum wf_status status = wf_fill_plan_check(&agreed, made.model, &error);
        bool refused = fill_rows[i].says != NULL;
        cr_expect_eq(status, refused ? WF_UNSUPPORTED : WF_OK, "%s", fill_rows[i].name);
        cr_expect(!refused || strstr(error.text, fill_rows[i].says) != NULL, "%s: %s",
                  fill_rows[i].name, error.text);
        wf_plan_free(agreed.plan);
        world_free(&made);
    }
}

/* The first parameter, by who holds it how. */
static const struct {
    enum wf_dtype trainer, source, target;
    bool good;
} cast_rows[] = {
    {WF_DTYPE_BF16, WF_DTYPE_BF16, WF_DTYPE_F32, true}, /* kept, then widened */
    {WF_DTYPE_F32, WF_DTYPE_F32, WF_DTYPE_BF16, true},  /* kept, then rounded once */
    {WF_DTYPE_BF16, WF_DTYPE_F32, WF_DTYPE_F16, true},
    {WF_DTYPE_F32, WF_DTYPE_BF16, WF_DTYPE_BF16, true}, /* nothing is cast */
    {WF_DTYPE_F32, WF_DTYPE_BF16, WF_DTYPE_F32, false},
    {WF_DTYPE_F16, WF_DTYPE_BF16, WF_DTYPE_F32, false},
};

Test(plan_refuse, a_fill_casts_what_the_source_has_kept)
{
    for (size_t i = 0; i < sizeof cast_rows / sizeof cast_rows[0]; i++) {
        struct wf_tensor held = {.dtype = cast_rows[i].trainer};
        struct wf_piece piece = {.param = 0, .kind = WF_PIECE_DATA};
        struct wf_layout trains = {
            .tensors = &held, .tensor_count = 1, .pieces = &piece, .piece_count = 1};
        struct wf_layout *layouts[] = {&trains, &trains};
        struct wf_agreed base = {.layouts = layouts, .train_ranks = 2};
        struct wf_el_peer peer = {.side = WF_INFER};
        struct wf_tensor from = {.dtype = cast_rows[i].source}, to = {.dtype = cast_rows[i].target};
        struct wf_layout source = {.tensors = &from}, target = {.tensors = &to};
        struct wf_layout *ends[] = {&source, &target};
        struct wf_op op = {.param = 0};
        struct wf_edge edge = {.op_count = 1, .ops = &op};
        struct wf_plan plan = {.edges = &edge, .edge_count = 1};
        struct wf_param param = {.name = "alpha"};
        const struct wf_model model = {.params = &param, .param_count = 1};
        const struct wf_agreed agreed = {
            .base = &base, .peers = &peer, .layouts = ends, .plan = &plan, .train_ranks = 1};
        struct wf_error error = {0};
        cr_expect_eq(wf_fill_plan_check(&agreed, &model, &error),
                     cast_rows[i].good ? WF_OK : WF_UNSUPPORTED, "row %zu: %s", i, error.text);
    }
}
