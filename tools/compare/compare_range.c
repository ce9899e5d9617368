/* compare_range.c - a range of two parameters: what both are read as, and what differs. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/compare/compare.h"

enum { BLOCK = 128 /* of fp8 weights */ };
/* A code may be off by half a step, and a little more: producers divide or multiply. */
#define HALF_STEP 0.501F

/* How two parameters are read. */
struct reading {
    enum wf_dtype as;
    bool decode[WF_SIDES]; /* codes times scales, in f32 */
    double tolerance;
    bool slack; /* half a step of the codes is allowed */
};

static const struct wf_side_param *param_of(const struct wf_compare *compare,
                                            struct wf_compare_operand operand)
{
    return &compare->side[operand.side].params[operand.param];
}

/* Half a place of a number near 1, by which a value minus 1 may be off. */
static double half_place(enum wf_dtype dtype)
{
    return dtype == WF_DTYPE_BF16 ? 0x1p-8 : dtype == WF_DTYPE_F16 ? 0x1p-11 : 0x1p-23;
}

static enum wf_status choose(const struct wf_compare *compare, const struct wf_side_param *a,
                             const struct wf_side_param *b, struct reading *out,
                             struct wf_error *error)
{
    *out = (struct reading){0};
    size_t a_bytes = wf_dtype_bytes(a->dtype), b_bytes = wf_dtype_bytes(b->dtype);
    bool codes_a = a->scales != WF_NONE && b->scales == WF_NONE;
    bool codes_b = b->scales != WF_NONE && a->scales == WF_NONE;
    bool known = a->dtype != WF_DTYPE_NONE && b->dtype != WF_DTYPE_NONE && !a->dtypes_differ &&
                 !b->dtypes_differ;
    enum wf_dtype other = codes_a ? b->dtype : a->dtype;
    if (known && (codes_a || codes_b) && wf_dtype_castable(other, WF_DTYPE_F32)) {
        out->as = WF_DTYPE_F32;
        out->decode[WF_A] = codes_a;
        out->decode[WF_B] = codes_b;
        out->slack = !compare->options.tolerance_given[WF_DTYPE_F8_E4M3];
        out->tolerance = compare->options.tolerance[WF_DTYPE_F8_E4M3];
        return WF_OK;
    }
    out->as = a->dtype == b->dtype || a_bytes < b_bytes ? a->dtype : b->dtype;
    out->tolerance = compare->options.tolerance[out->as];
    if (known && wf_dtype_castable(a->dtype, out->as) && wf_dtype_castable(b->dtype, out->as)) {
        if (a->less_one || b->less_one) {
            double least = a->less_one == b->less_one ? 0 : half_place(out->as);
            out->as = WF_DTYPE_F32;
            out->tolerance = out->tolerance > least ? out->tolerance : least;
        }
        return WF_OK;
    }
    if (a->dtypes_differ || b->dtypes_differ) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "%s: the ranks of one side hold it in different dtypes", a->name);
    }
    return wf_error_set(error, WF_UNSUPPORTED,
                        "%s: %s and %s cannot be compared: expected the same dtype, or two of f32, "
                        "f16, bf16, or e4m3 codes with their weight_scale_inv or "
                        "weight_scale",
                        a->name, wf_dtype_name(a->dtype), wf_dtype_name(b->dtype));
}

/* --- memory ---------------------------------------------------------------------------------- */

static bool grow(void *pointer, uint64_t *have, uint64_t want)
{
    void **memory = pointer;
    if (*have < want) {
        free(*memory);
        *memory = malloc(want);
        *have = *memory != NULL ? want : 0;
    }
    return *memory != NULL;
}

static enum wf_status need_buffers(struct wf_compare *compare, uint64_t count, size_t bytes,
                                   bool seen, struct wf_error *error)
{
    bool enough = true;
    for (int s = 0; s < WF_SIDES; s++) {
        uint64_t have = compare->seen_count;
        enough = grow(&compare->buffer[s], &compare->buffer_bytes[s], count * bytes) && enough;
        if (seen) {
            enough = grow(&compare->seen[s], &have, count) && enough;
        }
    }
    if (seen && compare->seen_count < count) {
        compare->seen_count = count;
    }
    return enough ? WF_OK
                  : wf_error_set(error, WF_NO_MEMORY, "no memory for %" PRIu64 " elements", count);
}

/* --- codes ----------------------------------------------------------------------------------- */

/* Rows that one scale is for, from the sizes of both; 0 if they do not fit. */
static uint64_t block_of(uint64_t size, uint64_t scales)
{
    return scales == (size + BLOCK - 1) / BLOCK ? BLOCK
           : scales == size                     ? 1
           : scales == 1                        ? size
                                                : 0;
}

static enum wf_status load_scales(struct wf_compare *compare, struct wf_compare_operand operand,
                                  struct wf_error *error)
{
    struct wf_compare_scales *scales = &compare->scales[operand.side];
    struct wf_compare_side *side = &compare->side[operand.side];
    const struct wf_side_param *p = &side->params[operand.param];
    if (scales->values != NULL && scales->param == p->scales) {
        return WF_OK;
    }
    const struct wf_side_param *s = &side->params[p->scales];
    free(scales->values);
    *scales = (struct wf_compare_scales){.param = p->scales};
    if (s->ndim == 2) {
        scales->block_rows = block_of(p->shape[0], s->shape[0]);
        scales->block_columns = block_of(p->shape[1], s->shape[1]);
        scales->columns = s->shape[1];
    }
    if (scales->block_rows == 0 || scales->block_columns == 0 || s->held < s->elements) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "%s: expected one scale for each %d x %d block or each row; the "
                            "scales are not there or have another shape",
                            p->name, BLOCK, BLOCK);
    }
    scales->values = malloc(s->elements * sizeof *scales->values);
    if (scales->values == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for scales");
    }
    return wf_side_read(side, p->scales, 0, s->elements, WF_DTYPE_F32, scales->values, NULL, error);
}

/* `codes` lie at the end of `out`'s memory: turned into values front to back. */
static void decode(const struct wf_compare_scales *scales, const struct wf_side_param *p,
                   uint64_t first, uint64_t count, const uint8_t *codes, float *out, float *slack)
{
    float values[256], steps[256];
    for (int i = 0; i < 256; i++) {
        uint8_t code = (uint8_t)i;
        wf_values_to_f32(WF_DTYPE_F8_E4M3, &code, &values[i], 1);
        steps[i] = HALF_STEP * wf_values_e4m3_step(code);
    }
    uint64_t width = p->shape[1];
    for (uint64_t i = 0; i < count; i++) {
        uint64_t row = (first + i) / width, column = (first + i) % width;
        float scale = scales->values[row / scales->block_rows * scales->columns +
                                     column / scales->block_columns];
        uint8_t code = codes[i];
        out[i] = values[code] * scale;
        if (slack != NULL) {
            slack[i] = steps[code] * scale;
        }
    }
}

static enum wf_status read_codes(struct wf_compare *compare, struct wf_compare_operand operand,
                                 uint64_t first, uint64_t count, float *out, float *slack,
                                 uint8_t *seen, struct wf_error *error)
{
    enum wf_status status = load_scales(compare, operand, error);
    uint8_t *codes = status == WF_OK ? malloc(count) : NULL;
    if (status == WF_OK && codes == NULL) {
        status = wf_error_set(error, WF_NO_MEMORY, "no memory for %" PRIu64 " codes", count);
    }
    if (status == WF_OK) {
        memset(codes, 0, count);
        status = wf_side_read(&compare->side[operand.side], operand.param, first, count,
                              WF_DTYPE_F8_E4M3, codes, seen, error);
    }
    if (status == WF_OK) {
        decode(&compare->scales[operand.side], param_of(compare, operand), first, count, codes, out,
               slack);
    }
    free(codes);
    return status;
}

/* --- a range --------------------------------------------------------------------------------- */

static enum wf_status read_operand(struct wf_compare *compare, struct wf_compare_operand operand,
                                   const struct reading *reading, int slot, uint64_t first,
                                   uint64_t count, bool marked, struct wf_error *error)
{
    const struct wf_side_param *p = param_of(compare, operand);
    uint8_t *seen = marked ? compare->seen[slot] : NULL;
    if (marked) {
        memset(seen, p->marked ? 0 : 1, count);
    }
    seen = p->marked ? seen : NULL;
    if (reading->decode[slot]) {
        return read_codes(compare, operand, first, count, compare->buffer[slot],
                          reading->slack ? compare->codes_slack : NULL, seen, error);
    }
    return wf_side_read(&compare->side[operand.side], operand.param, first, count, reading->as,
                        compare->buffer[slot], seen, error);
}

/* What one side has and the other has not. */
static void count_missing(struct wf_compare *compare, uint64_t count, uint64_t *missing)
{
    for (uint64_t i = 0; i < count; i++) {
        bool a = compare->seen[WF_A][i] != 0, b = compare->seen[WF_B][i] != 0;
        missing[WF_A] += b && !a;
        missing[WF_B] += a && !b;
        compare->seen[WF_A][i] = a && b;
    }
}

enum wf_status wf_compare_range(struct wf_compare *compare, struct wf_compare_operand a,
                                struct wf_compare_operand b, uint64_t first, uint64_t count,
                                struct wf_compare_result *result, struct wf_error *error)
{
    const struct wf_side_param *p[WF_SIDES] = {param_of(compare, a), param_of(compare, b)};
    struct reading reading;
    enum wf_status status = choose(compare, p[WF_A], p[WF_B], &reading, error);
    if (status != WF_OK) {
        return status;
    }
    bool marked = p[WF_A]->marked || p[WF_B]->marked;
    size_t bytes = wf_dtype_bytes(reading.as);
    uint64_t tile = wf_side_tile(&compare->side[a.side], a.param, WF_COMPARE_TILE_BYTES / bytes);
    uint64_t other = wf_side_tile(&compare->side[b.side], b.param, WF_COMPARE_TILE_BYTES / bytes);
    tile = other > tile ? other : tile;
    tile = tile < count ? tile : count;
    uint64_t slack_bytes = compare->slack_count * sizeof(float);
    status = need_buffers(compare, tile, bytes, marked, error);
    if (status == WF_OK && reading.slack) {
        if (!grow(&compare->codes_slack, &slack_bytes, tile * sizeof(float))) {
            status = wf_error_set(error, WF_NO_MEMORY, "no memory for %" PRIu64 " codes", tile);
        }
        compare->slack_count = slack_bytes / sizeof(float);
    }
    result->as = reading.as;
    for (uint64_t done = 0; done < count && status == WF_OK; done += tile) {
        uint64_t n = count - done < tile ? count - done : tile;
        status = read_operand(compare, a, &reading, WF_A, first + done, n, marked, error);
        status = status == WF_OK
                     ? read_operand(compare, b, &reading, WF_B, first + done, n, marked, error)
                     : status;
        if (status != WF_OK) {
            break;
        }
        if (marked) {
            count_missing(compare, n, result->missing);
        }
        wf_values_add(&result->values, &(struct wf_values_block){
                                           .dtype = reading.as,
                                           .a = compare->buffer[WF_A],
                                           .b = compare->buffer[WF_B],
                                           .slack = reading.slack ? compare->codes_slack : NULL,
                                           .seen = marked ? compare->seen[WF_A] : NULL,
                                           .index = first + done,
                                           .count = n,
                                           .tolerance = reading.tolerance});
    }
    return status;
}

enum wf_status wf_compare_copy_range(struct wf_compare *compare, struct wf_compare_operand operand,
                                     uint32_t source, struct wf_values *values,
                                     struct wf_error *error)
{
    struct wf_compare_side *side = &compare->side[operand.side];
    const struct wf_side_param *p = &side->params[operand.param];
    enum wf_dtype as = p->less_one ? WF_DTYPE_F32 : p->dtype;
    size_t bytes = wf_dtype_bytes(as);
    uint64_t tile = wf_side_tile(side, operand.param, WF_COMPARE_TILE_BYTES / bytes);
    enum wf_status status = need_buffers(compare, tile, bytes, true, error);
    for (uint64_t first = 0; first < p->elements && status == WF_OK; first += tile) {
        uint64_t n = p->elements - first < tile ? p->elements - first : tile;
        if (!wf_side_source_in(side, operand.param, source, first, n)) {
            continue;
        }
        memset(compare->seen[WF_B], 0, n);
        status =
            wf_side_read(side, operand.param, first, n, as, compare->buffer[WF_A], NULL, error);
        status = status == WF_OK
                     ? wf_side_read_source(side, operand.param, source, first, n, as,
                                           compare->buffer[WF_B], compare->seen[WF_B], error)
                     : status;
        if (status == WF_OK) {
            wf_values_add(values, &(struct wf_values_block){.dtype = as,
                                                            .a = compare->buffer[WF_A],
                                                            .b = compare->buffer[WF_B],
                                                            .seen = compare->seen[WF_B],
                                                            .index = first,
                                                            .count = n});
        }
    }
    return status;
}

enum wf_status wf_compare_read_f32(struct wf_compare *compare, struct wf_compare_operand operand,
                                   uint64_t first, uint64_t count, float *out,
                                   struct wf_error *error)
{
    struct wf_compare_side *side = &compare->side[operand.side];
    const struct wf_side_param *p = &side->params[operand.param];
    memset(out, 0, count * sizeof *out);
    if (p->scales != WF_NONE) {
        return read_codes(compare, operand, first, count, out, NULL, NULL, error);
    }
    if (wf_dtype_castable(p->dtype, WF_DTYPE_F32) && !p->dtypes_differ) {
        return wf_side_read(side, operand.param, first, count, WF_DTYPE_F32, out, NULL, error);
    }
    size_t bytes = wf_dtype_bytes(p->dtype);
    void *raw = bytes > 0 && !p->dtypes_differ ? calloc(count, bytes) : NULL;
    enum wf_status status =
        raw != NULL ? wf_side_read(side, operand.param, first, count, p->dtype, raw, NULL, error)
                    : wf_error_set(error, WF_UNSUPPORTED, "%s cannot be read", p->name);
    if (status == WF_OK) {
        wf_values_to_f32(p->dtype, raw, out, count);
    }
    free(raw);
    return status;
}
