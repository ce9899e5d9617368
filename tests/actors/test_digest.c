/* test_digest.c - chunk digests: the same on both sides, and every byte counts. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "actors/digest.h"

enum { SIDE_BYTES = 6 << 20 };

struct edge {
    struct wf_tensor src_tensor, dst_tensor;
    struct wf_layout src, dst;
    struct wf_op ops[3];
    struct wf_digests *digests;
    uint8_t *memory[2];
    void *tensors[2][1]; /* by side */
};

/* A run of 2.5 chunks, a box of rows of less than one, one element. */
static void make_edge(struct edge *edge)
{
    memset(edge, 0, sizeof *edge);
    edge->src_tensor = edge->dst_tensor =
        (struct wf_tensor){.name = "t", .dtype = WF_DTYPE_BF16, .bytes = SIDE_BYTES};
    edge->src = (struct wf_layout){.tensors = &edge->src_tensor, .tensor_count = 1};
    edge->dst = (struct wf_layout){.tensors = &edge->dst_tensor, .tensor_count = 1};
    uint64_t run = 5 * (WF_DIGEST_CHUNK_BYTES / 4);
    edge->ops[0].box = (struct wf_box){0, 0, 64, run, 1, {{run, 2, 2}}};
    edge->ops[1].box =
        (struct wf_box){0, 3 << 20, 4 << 20, 100 * 50, 2, {{100, 200, 400}, {50, 2, 2}}};
    edge->ops[2].box = (struct wf_box){.src_offset = 6000000, .dst_offset = 6000002, .elements = 1};
    for (int side = 0; side < 2; side++) {
        edge->memory[side] = malloc(SIDE_BYTES);
        memset(edge->memory[side], 0x11, SIDE_BYTES);
        edge->tensors[side][0] = edge->memory[side];
    }
    for (uint32_t o = 0; o < 3; o++) { /* the move, one element after the other */
        const struct wf_box *box = &edge->ops[o].box;
        for (uint64_t e = 0; e < box->elements; e++) {
            uint64_t src = box->src_offset, dst = box->dst_offset, rest = e;
            for (uint32_t a = box->axis_count; a-- > 0;) {
                src += rest % box->axes[a].count * (uint64_t)box->axes[a].src_step;
                dst += rest % box->axes[a].count * (uint64_t)box->axes[a].dst_step;
                rest /= box->axes[a].count;
            }
            uint16_t value = (uint16_t)(e * 40503 + o);
            memcpy(edge->memory[0] + src, &value, 2);
            memcpy(edge->memory[1] + dst, &value, 2);
        }
    }
    cr_assert_eq(wf_digests_new(edge->ops, 3, &edge->src, &edge->dst, &edge->digests, NULL), WF_OK);
}

static void free_edge(struct edge *edge)
{
    wf_digests_free(edge->digests);
    free(edge->memory[0]);
    free(edge->memory[1]);
}

static struct wf_hash sum_of(struct edge *edge, bool side_dst)
{
    uint64_t count = wf_digests_count(edge->digests);
    memset(edge->digests->chunks, 0, count * sizeof *edge->digests->chunks);
    wf_digests_compute(edge->digests, side_dst, edge->tensors[side_dst], 0, count);
    return wf_digests_sum(edge->digests);
}

Test(digest, chunks_are_counted_through_the_ops)
{
    struct edge edge;
    make_edge(&edge);
    static const struct {
        uint64_t index;
        uint32_t op;
        uint64_t chunk;
    } rows[] = {{0, 0, 0}, {1, 0, 1}, {2, 0, 2}, {3, 1, 0}, {4, 2, 0}};
    cr_assert_eq(wf_digests_count(edge.digests), 5);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint64_t chunk;
        cr_assert_eq(wf_digests_op(edge.digests, rows[i].index, &chunk), rows[i].op, "%zu", i);
        cr_assert_eq(chunk, rows[i].chunk, "%zu", i);
    }
    free_edge(&edge);
}

Test(digest, both_sides_give_one_sum_in_any_order)
{
    struct edge edge;
    make_edge(&edge);
    struct wf_hash origin = sum_of(&edge, false);
    cr_assert(wf_hash_equal(origin, sum_of(&edge, true)));
    memset(edge.digests->chunks, 0, 5 * sizeof(uint64_t));
    wf_digests_compute(edge.digests, true, edge.tensors[1], 3, 2);
    wf_digests_compute(edge.digests, true, edge.tensors[1], 2, 1);
    wf_digests_compute(edge.digests, true, edge.tensors[1], 0, 2);
    wf_digests_compute(edge.digests, true, edge.tensors[1], 1, 0);
    cr_assert(wf_hash_equal(origin, wf_digests_sum(edge.digests)));
    free_edge(&edge);
}

Test(digest, one_bit_changes_its_chunk_and_the_sum)
{
    struct edge edge;
    make_edge(&edge);
    struct wf_hash origin = sum_of(&edge, false);
    uint64_t before[5];
    memcpy(before, edge.digests->chunks, sizeof before);
    static const struct {
        uint64_t byte, chunk;
    } rows[] = {{0, 0},
                {WF_DIGEST_CHUNK_BYTES, 1},
                {5 * (WF_DIGEST_CHUNK_BYTES / 2) - 1, 2},
                {(3 << 20) + 99 * 200 + 99, 3},
                {6000001, 4}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        edge.memory[0][rows[i].byte] ^= 4;
        cr_assert_not(wf_hash_equal(origin, sum_of(&edge, false)), "byte %llu",
                      (unsigned long long)rows[i].byte);
        for (uint64_t c = 0; c < 5; c++) {
            cr_assert_eq(before[c] != edge.digests->chunks[c], c == rows[i].chunk, "row %zu", i);
        }
        edge.memory[0][rows[i].byte] ^= 4;
    }
    edge.memory[0][SIDE_BYTES - 1] ^= 4; /* belongs to no box */
    cr_assert(wf_hash_equal(origin, sum_of(&edge, false)));
    free_edge(&edge);
}

Test(digest, the_sum_is_what_the_header_says)
{
    struct edge edge;
    make_edge(&edge);
    struct wf_hash sum = sum_of(&edge, false), wanted = {0, 0};
    for (uint64_t index = 0; index < 5; index++) {
        uint64_t chunk, op = wf_digests_op(edge.digests, index, &chunk);
        uint64_t fields[3] = {op, chunk, edge.digests->chunks[index]}; /* little-endian here */
        XXH128_hash_t hash = XXH3_128bits(fields, sizeof fields);
        wanted.high += hash.high64;
        wanted.low += hash.low64;
    }
    cr_assert(wf_hash_equal(sum, wanted));
    cr_assert_eq(edge.digests->chunks[0], XXH3_64bits(edge.memory[0], WF_DIGEST_CHUNK_BYTES));
    free_edge(&edge);
}
