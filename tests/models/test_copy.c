/* test_copy.c - boxes copied, digested and filled against one element at a time; bounds of boxes
 * that a stranger may have sent. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "models/casts.h"
#include "models/copy.h"
#include "runtime/splitmix.h"

enum { ROOM = 1 << 21, RANDOM_BOXES = 3000 };

/* --- the slow way ---------------------------------------------------------------------------- */

static uint64_t offset_at(const struct wf_box *box, uint64_t element, bool dst)
{
    uint64_t offset = dst ? box->dst_offset : box->src_offset;
    for (uint32_t a = box->axis_count; a-- > 0;) {
        uint64_t i = element % box->axes[a].count;
        element /= box->axes[a].count;
        offset += i * (uint64_t)(dst ? box->axes[a].dst_step : box->axes[a].src_step);
    }
    return offset;
}

static void copy_slowly(const struct wf_box *box, const char *src, enum wf_dtype src_dtype,
                        char *dst, enum wf_dtype dst_dtype, struct wf_copy_part part)
{
    wf_cast_t *cast = wf_cast_for(src_dtype, dst_dtype, true);
    for (uint64_t i = part.first; i < part.first + part.count; i++) {
        cast(dst + offset_at(box, i, true), src + offset_at(box, i, false), 1);
    }
}

static uint64_t digest_slowly(const struct wf_box *box, bool side_dst, const char *base,
                              enum wf_dtype dtype, enum wf_dtype as_dtype, struct wf_copy_part part)
{
    wf_cast_t *cast = wf_cast_for(dtype, as_dtype, true);
    size_t bytes = wf_dtype_bytes(as_dtype);
    char *row = malloc(part.count * bytes + 1);
    for (uint64_t i = 0; i < part.count; i++) {
        cast(row + i * bytes, base + offset_at(box, part.first + i, side_dst), 1);
    }
    uint64_t digest = XXH3_64bits(row, part.count * bytes);
    free(row);
    return digest;
}

/* --- random boxes ---------------------------------------------------------------------------- */

struct rooms {
    char *src, *dst, *expected;
};

static struct rooms make_rooms(uint64_t *state)
{
    struct rooms rooms = {malloc(ROOM), malloc(ROOM), malloc(ROOM)};
    for (size_t i = 0; i < ROOM; i += 8) {
        uint64_t value = wf_splitmix64(state) * 0x9e3779b97f4a7c15u;
        memcpy(rooms.src + i, &value, 8);
    }
    return rooms;
}

static void free_rooms(struct rooms *rooms)
{
    free(rooms->src);
    free(rooms->dst);
    free(rooms->expected);
}

/* Steps that place the axes in a random order, with gaps; `repeats` may put 0. */
static void random_steps(uint64_t *state, struct wf_box *box, size_t elem_bytes, bool dst)
{
    int64_t step = (int64_t)elem_bytes;
    uint32_t order[WF_AXES_MAX];
    uint64_t offset = wf_splitmix64(state) % 70;
    for (uint32_t a = 0; a < box->axis_count; a++) {
        order[a] = box->axis_count - 1 - a;
    }
    for (uint32_t a = 0; a + 1 < box->axis_count; a++) {
        if (wf_splitmix64(state) % 3 == 0) {
            uint32_t swapped = order[a];
            order[a] = order[a + 1];
            order[a + 1] = swapped;
        }
    }
    for (uint32_t k = 0; k < box->axis_count; k++) {
        uint32_t a = order[k];
        int64_t signed_step = step;
        if (wf_splitmix64(state) % 16 == 0) {
            signed_step = -step;
            offset += (box->axes[a].count - 1) * (uint64_t)step;
        } else if (!dst && wf_splitmix64(state) % 16 == 0) {
            signed_step = 0;
        }
        *(dst ? &box->axes[a].dst_step : &box->axes[a].src_step) = signed_step;
        step *= (int64_t)box->axes[a].count;
        step += wf_splitmix64(state) % 3 == 0 ? (int64_t)(wf_splitmix64(state) % 40) : 0;
    }
    *(dst ? &box->dst_offset : &box->src_offset) = offset;
}

static struct wf_box random_box(uint64_t *state, enum wf_dtype src_dtype, enum wf_dtype dst_dtype)
{
    static const uint64_t large[] = {200, 700, 70, 20, 9, 5};
    for (;;) {
        struct wf_box box = {.elements = 1};
        box.axis_count = (uint32_t)(wf_splitmix64(state) % 6);
        uint64_t max = large[box.axis_count];
        for (uint32_t a = 0; a < box.axis_count; a++) {
            box.axes[a].count =
                1 + wf_splitmix64(state) % (wf_splitmix64(state) % 2 == 0 ? max : 8);
            box.elements *= box.axes[a].count;
        }
        random_steps(state, &box, wf_dtype_bytes(src_dtype), false);
        random_steps(state, &box, wf_dtype_bytes(dst_dtype), true);
        if (wf_box_within(&box, (uint32_t)wf_dtype_bytes(src_dtype), ROOM,
                          (uint32_t)wf_dtype_bytes(dst_dtype), ROOM)) {
            return box;
        }
    }
}

static const enum wf_dtype dtype_rows[][2] = {
    {WF_DTYPE_BF16, WF_DTYPE_BF16}, {WF_DTYPE_F32, WF_DTYPE_F32},  {WF_DTYPE_BF16, WF_DTYPE_F32},
    {WF_DTYPE_F32, WF_DTYPE_BF16},  {WF_DTYPE_F16, WF_DTYPE_BF16}, {WF_DTYPE_U8, WF_DTYPE_U8},
    {WF_DTYPE_I64, WF_DTYPE_I64},
};
enum { DTYPE_ROWS = sizeof dtype_rows / sizeof dtype_rows[0] };

static void check_box(struct rooms *rooms, const struct wf_box *box, const enum wf_dtype dtypes[2],
                      struct wf_copy_part part, size_t room, const char *name)
{
    memset(rooms->dst, 0x5a, room);
    memset(rooms->expected, 0x5a, room);
    copy_slowly(box, rooms->src, dtypes[0], rooms->expected, dtypes[1], part);
    wf_copy_box(box, rooms->src, dtypes[0], rooms->dst, dtypes[1], part);
    cr_expect(memcmp(rooms->dst, rooms->expected, room) == 0,
              "%s: %s to %s, part %" PRIu64 "+%" PRIu64, name, wf_dtype_name(dtypes[0]),
              wf_dtype_name(dtypes[1]), part.first, part.count);
    uint64_t of_src = wf_box_digest(box, false, rooms->src, dtypes[0], dtypes[1], part);
    uint64_t of_dst = wf_box_digest(box, true, rooms->dst, dtypes[1], dtypes[1], part);
    cr_expect_eq(of_src, digest_slowly(box, false, rooms->src, dtypes[0], dtypes[1], part),
                 "%s: digest of src", name);
    cr_expect_eq(of_src, of_dst, "%s: digests of both sides", name);
}

Test(copy, random_boxes_and_parts)
{
    uint64_t state = 6364136223846793005u;
    struct rooms rooms = make_rooms(&state);
    for (uint32_t i = 0; i < RANDOM_BOXES; i++) {
        const enum wf_dtype *dtypes = dtype_rows[i % DTYPE_ROWS];
        struct wf_box box = random_box(&state, dtypes[0], dtypes[1]);
        struct wf_copy_part part = {0, box.elements};
        if (i % 2 == 0) {
            part.first = wf_splitmix64(&state) % (box.elements + 1);
            part.count = wf_splitmix64(&state) % (box.elements - part.first + 1);
        }
        char name[40];
        snprintf(name, sizeof name, "random box %u", i);
        check_box(&rooms, &box, dtypes, part, 1 << 18, name);
    }
    free_rooms(&rooms);
}

/* Nothing outside it is read, and it is never more than the box. */
Test(copy, the_span_of_a_part_holds_all_that_it_reads)
{
    uint64_t state = 88172645463325252u;
    for (uint32_t i = 0; i < RANDOM_BOXES; i++) {
        struct wf_box box = random_box(&state, WF_DTYPE_F32, WF_DTYPE_F32);
        struct wf_copy_part part = {wf_splitmix64(&state) % box.elements, 1};
        part.count += wf_splitmix64(&state) % (box.elements - part.first);
        uint64_t first, end, box_first, box_end, least = UINT64_MAX, most = 0;
        wf_box_source_span(&box, 4, part, &first, &end);
        wf_box_source_span(&box, 4, (struct wf_copy_part){0, box.elements}, &box_first, &box_end);
        for (uint64_t e = part.first; e < part.first + part.count; e++) {
            uint64_t at = offset_at(&box, e, false);
            least = at < least ? at : least;
            most = at > most ? at : most;
        }
        cr_expect(first <= least && most + 4 <= end, "box %u: reads outside its span", i);
        cr_expect(box_first <= first && end <= box_end, "box %u: a span beyond the box", i);
        if (part.count == box.elements || part.count == 1) {
            cr_expect(first == least && end == most + 4, "box %u: it could be less", i);
        }
    }
}

struct big_row {
    const char *name;
    uint32_t axis_count;
    struct {
        uint64_t count;
        int64_t src_elements, dst_elements; /* steps in elements */
    } axes[3];
};

/* Large enough for streaming stores and for several tiles. */
static const struct big_row big_rows[] = {
    {"one run", 1, {{120000, 1, 1}}},
    {"long runs", 2, {{100, 1200, 1300}, {1200, 1, 1}}},
    {"short runs", 2, {{2000, 64, 70}, {60, 1, 1}}},
    {"a transpose", 2, {{300, 401, 1}, {401, 1, 303}}},
    {"transposes in a row", 3, {{3, 41000, 40000}, {200, 200, 1}, {200, 1, 200}}},
    {"outer axis turned", 3, {{130, 1, 300}, {2, 130, 150}, {150, 260, 1}}},
    {"interleaved columns", 2, {{300, 300, 600}, {300, 1, 2}}},
};

Test(copy, large_boxes_whole_and_in_parts)
{
    uint64_t state = 1181783497276652981u;
    struct rooms rooms = make_rooms(&state);
    for (size_t r = 0; r < DTYPE_ROWS * sizeof big_rows / sizeof big_rows[0]; r++) {
        const struct big_row *row = &big_rows[r / DTYPE_ROWS];
        const enum wf_dtype *dtypes = dtype_rows[r % DTYPE_ROWS];
        struct wf_box box = {.elements = 1, .axis_count = row->axis_count};
        for (uint32_t a = 0; a < row->axis_count; a++) {
            box.axes[a].count = row->axes[a].count;
            box.axes[a].src_step = row->axes[a].src_elements * (int64_t)wf_dtype_bytes(dtypes[0]);
            box.axes[a].dst_step = row->axes[a].dst_elements * (int64_t)wf_dtype_bytes(dtypes[1]);
            box.elements *= box.axes[a].count;
        }
        cr_assert(wf_box_within(&box, (uint32_t)wf_dtype_bytes(dtypes[0]), ROOM,
                                (uint32_t)wf_dtype_bytes(dtypes[1]), ROOM),
                  "%s", row->name);
        check_box(&rooms, &box, dtypes, (struct wf_copy_part){0, box.elements}, ROOM, row->name);
        struct wf_copy_part middle = {box.elements / 7, box.elements / 3};
        check_box(&rooms, &box, dtypes, middle, ROOM, row->name);
    }
    free_rooms(&rooms);
}

Test(copy, an_empty_part_touches_nothing)
{
    struct wf_box box = {.elements = 6, .axis_count = 1, .axes = {{6, 2, 2}}};
    struct wf_copy_part none = {6, 0};
    wf_copy_box(&box, NULL, WF_DTYPE_BF16, NULL, WF_DTYPE_BF16, none);
    cr_assert_eq(wf_box_digest(&box, true, NULL, WF_DTYPE_BF16, WF_DTYPE_BF16, none),
                 XXH3_64bits(NULL, 0));
}

/* --- fill ------------------------------------------------------------------------------------ */

Test(copy, fill_writes_its_nest_and_nothing_else)
{
    uint64_t state = 42;
    struct rooms rooms = make_rooms(&state);
    for (uint32_t i = 0; i < 300; i++) {
        static const enum wf_dtype units[] = {WF_DTYPE_U8, WF_DTYPE_BF16, WF_DTYPE_F32};
        enum wf_dtype unit = units[i % 3];
        uint32_t bytes = (uint32_t)wf_dtype_bytes(unit);
        struct wf_box box = random_box(&state, unit, unit);
        memset(rooms.dst, 0x5a, ROOM);
        memset(rooms.expected, 0x5a, ROOM);
        for (uint64_t e = 0; e < box.elements; e++) {
            memset(rooms.expected + offset_at(&box, e, true), 127, bytes);
        }
        struct wf_nest nest = {
            .tensor_offset = box.dst_offset, .elem_bytes = bytes, .axis_count = box.axis_count};
        for (uint32_t a = 0; a < box.axis_count; a++) {
            nest.axes[a] = (struct wf_axis){box.axes[a].count, 0, box.axes[a].dst_step};
        }
        wf_fill_nest(&nest, rooms.dst, 127);
        cr_expect(memcmp(rooms.dst, rooms.expected, ROOM) == 0, "box %u", i);
    }
    free_rooms(&rooms);
}

/* --- bounds ---------------------------------------------------------------------------------- */

struct within_row {
    const char *name;
    struct wf_box box;
    uint64_t src_bytes, dst_bytes;
    bool within;
};

static const struct within_row within_rows[] = {
    {"exact", {0, 4, 8, 3, 1, {{3, 2, -4}}}, 10, 10, true},
    {"source one short", {0, 4, 8, 3, 1, {{3, 2, -4}}}, 9, 10, false},
    {"target one short", {0, 4, 8, 3, 1, {{3, 2, -4}}}, 10, 9, false},
    {"before the target", {0, 4, 7, 3, 1, {{3, 2, -4}}}, 10, 10, false},
    {"no axes", {0, 8, 8, 1, 0, {{0}}}, 10, 10, true},
    {"offset at the end", {0, 10, 8, 1, 0, {{0}}}, 10, 10, false},
    {"offset wraps", {0, UINT64_MAX, 8, 1, 0, {{0}}}, UINT64_MAX, 10, false},
    {"empty axis", {0, 0, 0, 0, 1, {{0, 2, 2}}}, 10, 10, false},
    {"other number of elements", {0, 0, 0, 4, 1, {{3, 2, 2}}}, 10, 10, false},
    {"too many axes", {0, 0, 0, 1, WF_AXES_MAX + 1, {{1, 2, 2}}}, 10, 10, false},
    {"product wraps to the number given",
     {0, 0, 0, 0, 2, {{UINT64_C(1) << 32, 0, 0}, {UINT64_C(1) << 32, 0, 0}}},
     10,
     10,
     false},
    {"extent wraps",
     {0, 0, 0, (UINT64_C(1) << 62) + 1, 1, {{(UINT64_C(1) << 62) + 1, 4, 0}}},
     10,
     10,
     false},
    {"extents cancel but the corner is outside",
     {0, 0, 0, 4, 2, {{2, 1 << 20, 0}, {2, -(1 << 20), 0}}},
     10,
     10,
     false},
    {"lowest step", {0, 0, 0, 2, 1, {{2, INT64_MIN, 2}}}, 10, 10, false},
};

Test(copy, boxes_from_strangers)
{
    for (size_t i = 0; i < sizeof within_rows / sizeof within_rows[0]; i++) {
        const struct within_row *row = &within_rows[i];
        cr_expect_eq(wf_box_within(&row->box, 2, row->src_bytes, 2, row->dst_bytes), row->within,
                     "%s", row->name);
    }
    cr_expect_not(wf_box_within(&within_rows[0].box, 0, 100, 2, 100), "no element size");
}
