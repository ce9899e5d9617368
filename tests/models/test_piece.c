/* test_piece.c - nests one by one: checks, the normal form, and boxes and compositions whose shape
 * is known from a real layout. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "models/piece.h"

#define NEST(first, offset, bytes, count, ...) \
    {                                          \
        first, offset, bytes, count,           \
        {                                      \
            __VA_ARGS__                        \
        }                                      \
    }

struct check_row {
    const char *name;
    struct wf_nest nest;
    uint64_t param_elements, tensor_bytes;
    enum wf_status status;
    const char *says;
};

static const struct check_row check_rows[] = {
    {"one element", NEST(5, 10, 2, 0, {0, 0, 0}), 6, 12, WF_OK, ""},
    {"rows and columns", NEST(4, 0, 2, 2, {3, 8, 8}, {4, 1, 2}), 24, 24, WF_OK, ""},
    {"a repeat", NEST(0, 0, 4, 2, {2, 0, 4}, {3, 1, 8}), 3, 24, WF_OK, ""},
    {"backwards", NEST(0, 8, 4, 1, {3, 1, -4}), 3, 12, WF_OK, ""},
    {"axis of one with any step", NEST(0, 0, 4, 1, {1, 7, INT64_MIN}), 1, 4, WF_OK, ""},
    {"swapped axes", NEST(0, 0, 2, 2, {4, 1, 2}, {3, 8, 8}), 20, 24, WF_OK, ""},
    {"empty axis", NEST(0, 0, 2, 1, {0, 1, 2}), 8, 8, WF_INVALID, "is empty"},
    {"no element size", NEST(0, 0, 0, 0, {0, 0, 0}), 8, 8, WF_INVALID, "at least 1 byte"},
    {"too many axes", NEST(0, 0, 2, 9, {1, 1, 2}), 8, 8, WF_INVALID, "9 axes"},
    {"no chain", NEST(0, 0, 1, 2, {2, 6, 8}, {2, 4, 4}), 99, 99, WF_INVALID, "4 does not divide 6"},
    {"digit overflow", NEST(0, 0, 1, 2, {2, 8, 9}, {9, 1, 1}), 99, 99, WF_INVALID, "runs into"},
    {"elements overlap", NEST(0, 0, 4, 1, {2, 1, 2}), 99, 99, WF_INVALID, "2 bytes apart"},
    {"past the parameter", NEST(1, 0, 1, 1, {8, 1, 1}), 8, 99, WF_INVALID, "8 elements"},
    {"past the tensor", NEST(0, 1, 2, 1, {4, 1, 2}), 99, 8, WF_INVALID, "8 bytes"},
    {"before the tensor", NEST(0, 3, 2, 1, {3, 1, -2}), 99, 99, WF_INVALID, "outside its tensor"},
    {"product wraps", NEST(0, 0, 1, 2, {UINT64_C(1) << 40, 0, 1}, {UINT64_C(1) << 40, 1, 1}),
     UINT64_MAX, UINT64_MAX, WF_INVALID, "2^64 elements"},
    {"parameter wraps", NEST(0, 0, 1, 1, {UINT64_C(1) << 33, UINT64_C(1) << 33, 1}), UINT64_MAX,
     UINT64_MAX, WF_INVALID, "passes 2^64"},
    {"parameter sum wraps", NEST(UINT64_MAX, 0, 1, 1, {2, 1, 1}), UINT64_MAX, 99, WF_INVALID,
     "reaches past"},
    {"tensor wraps", NEST(0, 0, 1, 1, {4, 1, INT64_MAX}), 99, UINT64_MAX, WF_INVALID, "2^64"},
    {"tensor wraps back", NEST(0, 0, 1, 1, {3, 1, INT64_MIN}), 99, UINT64_MAX, WF_INVALID, "2^64"},
};

Test(piece, check_refuses_with_a_sentence)
{
    for (size_t i = 0; i < sizeof check_rows / sizeof check_rows[0]; i++) {
        const struct check_row *row = &check_rows[i];
        struct wf_error error = {0};
        enum wf_status status =
            wf_nest_check(&row->nest, row->param_elements, row->tensor_bytes, &error);
        cr_expect_eq(status, row->status, "%s: %s", row->name, wf_status_name(status));
        cr_expect(strstr(error.text, row->says) != NULL, "%s: \"%s\"", row->name, error.text);
    }
}

struct normal_row {
    const char *name;
    struct wf_nest nest, normal;
    uint64_t run; /* 0: not a run */
};

static const struct normal_row normal_rows[] = {
    {"three into a run", NEST(3, 0, 2, 3, {2, 12, 24}, {3, 4, 8}, {4, 1, 2}),
     NEST(3, 0, 2, 1, {24, 1, 2}), 24},
    {"a cut of columns", NEST(0, 0, 2, 2, {3, 8, 8}, {4, 1, 2}),
     NEST(0, 0, 2, 2, {3, 8, 8}, {4, 1, 2}), 0},
    {"axes of one vanish", NEST(9, 4, 4, 3, {1, 5, 3}, {6, 1, 4}, {1, 0, 0}),
     NEST(9, 4, 4, 1, {6, 1, 4}), 6},
    {"one element", NEST(9, 4, 4, 1, {1, 5, 3}), NEST(9, 4, 4, 0, {0, 0, 0}), 1},
    {"repeats fuse", NEST(0, 0, 2, 2, {3, 0, 4}, {2, 0, 2}), NEST(0, 0, 2, 1, {6, 0, 2}), 0},
    {"a wider element is no run", NEST(0, 0, 2, 1, {6, 1, 4}), NEST(0, 0, 2, 1, {6, 1, 4}), 0},
    {"outer two fuse", NEST(0, 0, 2, 3, {2, 12, 60}, {3, 4, 20}, {3, 1, 2}),
     NEST(0, 0, 2, 2, {6, 4, 20}, {3, 1, 2}), 0},
};

Test(piece, normal_form)
{
    for (size_t i = 0; i < sizeof normal_rows / sizeof normal_rows[0]; i++) {
        const struct normal_row *row = &normal_rows[i];
        struct wf_nest nest = row->nest;
        uint64_t run = 0;
        cr_expect_eq(wf_nest_is_run(&nest, &run), row->run != 0, "%s", row->name);
        cr_expect_eq(run, row->run, "%s: %" PRIu64, row->name, run);
        wf_nest_normalise(&nest);
        cr_expect_eq(memcmp(&nest, &row->normal, sizeof nest), 0, "%s", row->name);
        cr_expect_eq(wf_nest_elements(&nest), wf_nest_elements(&row->nest), "%s", row->name);
    }
}

/* --- boxes ----------------------------------------------------------------------------------- */

struct boxes {
    uint32_t count, stop_after;
    struct wf_box first, last;
    uint64_t elements;
};

static bool keep_box(void *user, const struct wf_box *box)
{
    struct boxes *boxes = user;
    if (boxes->count++ == 0) {
        boxes->first = *box;
    }
    boxes->last = *box;
    boxes->elements += box->elements;
    return boxes->count != boxes->stop_after;
}

struct meet_row {
    const char *name;
    struct wf_nest src, dst;
    uint32_t boxes;
    uint64_t elements, axes_of_first;
};

/* Qwen3-8B sizes where real: hidden 4096, 32 query heads, 8 KV heads, head 128. */
static const struct meet_row meet_rows[] = {
    {"two runs", NEST(100, 0, 2, 1, {50, 1, 2}), NEST(120, 8, 4, 1, {80, 1, 4}), 1, 30, 1},
    {"runs apart", NEST(100, 0, 2, 1, {20, 1, 2}), NEST(120, 8, 4, 1, {80, 1, 4}), 0, 0, 0},
    {"runs of one", NEST(100, 0, 2, 0, {0, 0, 0}), NEST(100, 8, 4, 1, {80, 1, 4}), 1, 1, 0},
    /* Megatron TP2 linear_qkv keeps 4 query heads, a key and a value head a group; vLLM TP4 wants
     * the query heads of two groups in a row. */
    {"q heads, Megatron TP2 to vLLM TP4",
     NEST(0, 0, 2, 2, {4, 4 * 128 * 4096, 6 * 128 * 4096 * 2}, {4 * 128 * 4096, 1, 2}),
     NEST(8 * 128 * 4096, 0, 2, 1, {8 * 128 * 4096, 1, 2}), 1, 8 * 128 * 4096, 2},
    {"o_proj, columns of TP4 to TP8", NEST(1024, 0, 2, 2, {4096, 4096, 2048}, {1024, 1, 2}),
     NEST(1536, 0, 2, 2, {4096, 4096, 1024}, {512, 1, 2}), 1, 4096 * 512, 2},
    {"a flat range over a cut of columns: head, body, tail",
     NEST(4096 + 100, 0, 2, 1, {40960, 1, 2}), NEST(0, 0, 2, 2, {4096, 4096, 2048}, {1024, 1, 2}),
     3, 924 + 9 * 1024 + 100, 1},
    /* FlashInfer TRT-LLM bf16 w13, I 32 and H 128: up row j at 32*(j/16)+16*(j%2)+(j%16)/2. */
    {"TRT-LLM up rows from a plain matrix", NEST(0, 0, 2, 1, {32 * 128, 1, 2}),
     NEST(0, 0, 2, 5, {2, 16 * 128, 32 * 128}, {8, 2 * 128, 128}, {2, 128, 16 * 128},
          {2, 64, 64 * 128}, {64, 1, 2}),
     1, 32 * 128, 5},
    {"refined fp8 scale: rows repeat twice", NEST(0, 0, 4, 1, {12, 1, 4}),
     NEST(0, 0, 4, 3, {3, 4, 32}, {2, 0, 16}, {4, 1, 4}), 1, 24, 3},
    {"a source repeat: first copy", NEST(0, 0, 4, 3, {3, 4, 32}, {2, 0, 16}, {4, 1, 4}),
     NEST(0, 0, 4, 1, {12, 1, 4}), 1, 12, 2},
    {"no common chain: heads of 192 in tiles of 128", NEST(0, 0, 2, 2, {4, 192, 1024}, {192, 1, 2}),
     NEST(0, 0, 2, 2, {6, 128, 1024}, {128, 1, 2}), 8, 768, 1},
    {"swapped order on the target: a transpose", NEST(0, 0, 2, 1, {64 * 32, 1, 2}),
     NEST(0, 0, 2, 2, {64, 32, 2}, {32, 1, 128}), 1, 64 * 32, 2},
};

Test(piece, boxes_of_real_layouts)
{
    for (size_t i = 0; i < sizeof meet_rows / sizeof meet_rows[0]; i++) {
        const struct meet_row *row = &meet_rows[i];
        struct boxes boxes = {0};
        cr_expect_eq(wf_nest_intersect(&row->src, &row->dst, keep_box, &boxes, NULL), WF_OK, "%s",
                     row->name);
        cr_expect_eq(boxes.count, row->boxes, "%s: %u boxes", row->name, boxes.count);
        cr_expect_eq(boxes.elements, row->elements, "%s: %" PRIu64, row->name, boxes.elements);
        cr_expect_eq(boxes.first.axis_count, row->axes_of_first, "%s: %u axes", row->name,
                     boxes.first.axis_count);
    }
}

Test(piece, emit_can_stop)
{
    struct boxes boxes = {.stop_after = 2};
    const struct meet_row *row = &meet_rows[5];
    cr_assert_eq(wf_nest_intersect(&row->src, &row->dst, keep_box, &boxes, NULL), WF_OK);
    cr_assert_eq(boxes.count, 2);
}

Test(piece, endless_unrolling_is_refused)
{
    const struct wf_nest src = NEST(0, 0, 1, 2, {1 << 24, 1024, 1024}, {511, 2, 1});
    const struct wf_nest dst = NEST(0, 0, 1, 2, {1 << 24, 1023, 1024}, {341, 3, 1});
    struct boxes boxes = {0};
    struct wf_error error;
    cr_assert_eq(wf_nest_intersect(&src, &dst, keep_box, &boxes, &error), WF_UNSUPPORTED);
    cr_assert(strstr(error.text, "common factors") != NULL, "%s", error.text);
}

static bool stop_at_once(void *user, const struct wf_nest *nest)
{
    *(uint64_t *)user += wf_nest_elements(nest);
    return false;
}

/* Ten elements a row, of which a cut takes three of every four: the parameter has no digit of four,
 * so each group becomes a nest of its own. */
Test(piece, composition_can_stop)
{
    const struct wf_nest inner = NEST(0, 0, 2, 2, {5, 10, 24}, {10, 1, 2});
    const struct wf_nest outer = NEST(0, 0, 2, 3, {5, 12, 18}, {3, 4, 6}, {3, 1, 2});
    uint64_t elements = 0;
    cr_assert_eq(wf_nest_compose(&inner, &outer, stop_at_once, &elements, NULL), WF_OK);
    cr_assert_eq(elements, 5 * 3);
}

Test(piece, compose_refuses_what_it_cannot_read)
{
    const struct wf_nest plain = NEST(0, 0, 2, 1, {8, 1, 2}), wide = NEST(0, 0, 4, 1, {8, 1, 4}),
                         backwards = NEST(0, 14, 2, 1, {8, 1, -2}),
                         odd = NEST(0, 1, 2, 1, {8, 1, 2});
    struct wf_error error;
    cr_expect_eq(wf_nest_compose(&plain, &wide, NULL, NULL, &error), WF_INVALID);
    cr_expect_eq(wf_nest_compose(&backwards, &plain, NULL, NULL, &error), WF_UNSUPPORTED);
    cr_expect_eq(wf_nest_compose(&odd, &plain, NULL, NULL, &error), WF_UNSUPPORTED);
}
