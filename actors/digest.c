/* digest.c - chunk digests of an edge and their sum. */
#include "actors/digest.h"

#include <stdlib.h>
#include <xxhash.h>

#include "models/copy.h"

static uint64_t chunk_elements(const struct wf_digests *digests, uint32_t op)
{
    return WF_DIGEST_CHUNK_BYTES / wf_dtype_bytes(digests->boxes[op].dst_dtype);
}

static enum wf_status no_memory(struct wf_error *error, uint32_t count)
{
    return wf_error_set(error, WF_NO_MEMORY, "no memory for the digests of %u boxes", count);
}

enum wf_status wf_digests_new_boxes(struct wf_digest_box *boxes, uint32_t count,
                                    struct wf_digests **digests_out, struct wf_error *error)
{
    struct wf_digests *digests = calloc(1, sizeof *digests);
    uint64_t *first_chunk = calloc((size_t)count + 1, sizeof *first_chunk);
    if (digests == NULL || first_chunk == NULL || boxes == NULL) {
        free(digests);
        free(first_chunk);
        free(boxes);
        return no_memory(error, count);
    }
    *digests = (struct wf_digests){.boxes = boxes, .op_count = count, .first_chunk = first_chunk};
    for (uint32_t i = 0; i < count; i++) {
        uint64_t each = chunk_elements(digests, i), elements = boxes[i].box->elements;
        first_chunk[i + 1] = first_chunk[i] + elements / each + (elements % each != 0);
    }
    digests->chunks = calloc(first_chunk[count] + 1, sizeof *digests->chunks);
    if (digests->chunks == NULL) {
        wf_digests_free(digests);
        return no_memory(error, count);
    }
    *digests_out = digests;
    return WF_OK;
}

enum wf_status wf_digests_new(const struct wf_op *ops, uint32_t op_count,
                              const struct wf_layout *src, const struct wf_layout *dst,
                              struct wf_digests **digests_out, struct wf_error *error)
{
    struct wf_digest_box *boxes = calloc((size_t)op_count + 1, sizeof *boxes);
    for (uint32_t i = 0; i < op_count && boxes != NULL; i++) {
        boxes[i] = (struct wf_digest_box){.box = &ops[i].box,
                                          .src_tensor = ops[i].src_tensor,
                                          .dst_tensor = ops[i].dst_tensor,
                                          .src_dtype = src->tensors[ops[i].src_tensor].dtype,
                                          .dst_dtype = dst->tensors[ops[i].dst_tensor].dtype};
    }
    return wf_digests_new_boxes(boxes, op_count, digests_out, error);
}

void wf_digests_free(struct wf_digests *digests)
{
    if (digests != NULL) {
        free(digests->boxes);
        free(digests->first_chunk);
        free(digests->chunks);
        free(digests);
    }
}

uint64_t wf_digests_count(const struct wf_digests *digests)
{
    return digests->first_chunk[digests->op_count];
}

uint32_t wf_digests_op(const struct wf_digests *digests, uint64_t index, uint64_t *chunk_out)
{
    WF_ASSERT(index < wf_digests_count(digests));
    uint32_t low = 0, high = digests->op_count; /* first_chunk[low] <= index < first_chunk[high] */
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (digests->first_chunk[middle] <= index) {
            low = middle;
        } else {
            high = middle;
        }
    }
    *chunk_out = index - digests->first_chunk[low];
    return low;
}

void wf_digests_compute(struct wf_digests *digests, bool side_dst, void *const *tensors,
                        uint64_t first, uint64_t count)
{
    if (count == 0) {
        return;
    }
    uint64_t chunk;
    uint32_t at = wf_digests_op(digests, first, &chunk);
    for (uint64_t index = first; index < first + count; index++, chunk++) {
        while (index == digests->first_chunk[at + 1]) {
            at++;
            chunk = 0;
        }
        const struct wf_digest_box *box = &digests->boxes[at];
        uint64_t each = chunk_elements(digests, at), begin = chunk * each;
        uint64_t left = box->box->elements - begin;
        digests->chunks[index] =
            wf_box_digest(box->box, side_dst, tensors[side_dst ? box->dst_tensor : box->src_tensor],
                          side_dst ? box->dst_dtype : box->src_dtype, box->dst_dtype,
                          (struct wf_copy_part){begin, left < each ? left : each});
    }
}

static struct wf_hash hash_chunk(uint64_t op, uint64_t chunk, uint64_t digest)
{
    uint64_t fields[3] = {op, chunk, digest};
    uint8_t bytes[24];
    for (int i = 0; i < 24; i++) {
        bytes[i] = (uint8_t)(fields[i / 8] >> (8 * (i % 8)));
    }
    XXH128_hash_t hash = XXH3_128bits(bytes, sizeof bytes);
    return (struct wf_hash){hash.high64, hash.low64};
}

struct wf_hash wf_digests_sum(const struct wf_digests *digests)
{
    struct wf_hash sum = {0, 0};
    for (uint32_t op = 0; op < digests->op_count; op++) {
        uint64_t first = digests->first_chunk[op], end = digests->first_chunk[op + 1];
        for (uint64_t index = first; index < end; index++) {
            struct wf_hash hash = hash_chunk(op, index - first, digests->chunks[index]);
            sum.high += hash.high;
            sum.low += hash.low;
        }
    }
    return sum;
}
