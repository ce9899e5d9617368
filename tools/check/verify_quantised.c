/* verify_quantised.c - codes and scales as the rule makes them of the checkpoint's whole blocks. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/check/quantised.h"
#include "tools/check/verify_run.h"

enum {
    STRIP_COLUMNS = WF_VERIFY_CHUNK / WF_CHECK_BLOCK, /* of a row of blocks at a time */
    BLOCKS = STRIP_COLUMNS / WF_CHECK_BLOCK
};

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Some blocks of one row of blocks, or some rows, whole, as numbers. */
struct strip {
    uint64_t row, column, rows, columns; /* of the matrix */
    float *values;
};

static enum wf_status read_strip(struct wf_verify_run *run, uint32_t param, uint64_t param_columns,
                                 const struct strip *strip, struct wf_error *error)
{
    const struct wf_expect_rect whole = {.param = param, .param_columns = param_columns};
    enum wf_dtype dtype = run->verify->checkpoint->entries[param].dtype;
    size_t bytes = wf_dtype_bytes(dtype);
    uint64_t count = strip->rows * strip->columns;
    enum wf_status status =
        wf_verify_read(run, &whole, strip->row, strip->rows, strip->column, strip->columns, error);
    if (status != WF_OK) {
        return status;
    }
    wf_step_apply(run->packed, dtype, count, run->steps);
    if (dtype == WF_DTYPE_BF16) { /* what models are in: as fast as it can be said */
        const uint16_t *halves = (const uint16_t *)(const void *)run->packed;
        for (uint64_t i = 0; i < count; i++) {
            uint32_t wide = (uint32_t)halves[i] << 16;
            memcpy(&strip->values[i], &wide, sizeof wide);
        }
        return WF_OK;
    }
    for (uint64_t i = 0; i < count; i++) {
        strip->values[i] =
            wf_verify_to_float(wf_verify_load(run->packed + i * bytes, dtype), dtype);
    }
    return WF_OK;
}

/* NaNs do not count. Bits of numbers without their signs are ordered as the numbers are. */
static float amax_of(const struct strip *strip, uint64_t column, uint64_t columns)
{
    uint32_t most = 0;
    for (uint64_t r = 0; r < strip->rows; r++) {
        const float *row = strip->values + r * strip->columns + column;
        for (uint64_t c = 0; c < columns; c++) {
            uint32_t bits;
            memcpy(&bits, &row[c], sizeof bits);
            bits &= 0x7fffffff;
            bits = bits > 0x7f800000 ? 0 : bits;
            most = bits > most ? bits : most;
        }
    }
    float amax;
    memcpy(&amax, &most, sizeof amax);
    return amax;
}

static bool is_by_row(const struct wf_verify_run *run)
{
    return wf_quant_is_by_row(run->verify->quant);
}

static void blocks_of(const struct wf_verify_run *run, const struct strip *strip,
                      struct wf_check_block blocks_out[BLOCKS])
{
    for (uint64_t r = 0; r < strip->rows && is_by_row(run); r++) {
        struct strip row = *strip;
        row.rows = 1;
        row.values += r * strip->columns;
        blocks_out[r] = wf_check_block(run->verify->quant, amax_of(&row, 0, row.columns));
    }
    if (is_by_row(run)) {
        return;
    }
    for (uint64_t c = 0; c < strip->columns; c += WF_CHECK_BLOCK) {
        blocks_out[c / WF_CHECK_BLOCK] = wf_check_block(
            run->verify->quant, amax_of(strip, c, least(WF_CHECK_BLOCK, strip->columns - c)));
    }
}

/* What of the parameter a rectangle shows. */
static struct strip shown(const struct wf_expect_rect *rect)
{
    return (struct strip){.row = rect->row,
                          .column = rect->column,
                          .rows = rect->transposed ? rect->columns : rect->rows,
                          .columns = rect->transposed ? rect->rows : rect->columns};
}

/* The elements [column, column + count) of a row of the strip as the live tensor should have them.
 */
static void make_row(const struct wf_verify_run *run, const struct wf_check_block *blocks,
                     const struct strip *strip, uint64_t row, uint64_t column, uint64_t count,
                     uint8_t *out)
{
    const float *values = strip->values + row * strip->columns;
    uint8_t codes[WF_CHECK_BLOCK];
    for (uint64_t at = column, next; at < column + count; at = next) {
        const struct wf_check_block *block = &blocks[is_by_row(run) ? row : at / WF_CHECK_BLOCK];
        next = least((at / WF_CHECK_BLOCK + 1) * WF_CHECK_BLOCK, column + count);
        if (run->tensor->kind == WF_EXPECT_CODES) {
            wf_check_codes(block, values + at, next - at, out + (at - column));
            continue;
        }
        wf_check_codes(block, values + at, next - at, codes);
        for (uint64_t c = at; c < next; c++) {
            float value = wf_check_decode(block, codes[c - at]);
            uint32_t bits = wf_verify_from_float(value, run->live->dtype);
            memcpy(out + (c - column) * run->live_bytes, &bits, run->live_bytes);
        }
    }
}

/* The rows and columns of a rectangle that lie in the strip, row by row of the parameter. */
static void compare_strip(struct wf_verify_run *run, const struct wf_expect_rect *rect,
                          const struct strip *strip)
{
    struct wf_check_block blocks[BLOCKS];
    struct strip part = shown(rect);
    blocks_of(run, strip, blocks);
    uint64_t first = part.row > strip->row ? part.row : strip->row;
    uint64_t end = least(part.row + part.rows, strip->row + strip->rows);
    uint64_t left = part.column > strip->column ? part.column : strip->column;
    uint64_t right = least(part.column + part.columns, strip->column + strip->columns);
    for (uint64_t row = first; row < end; row++) {
        make_row(run, blocks, strip, row - strip->row, left - strip->column, right - left,
                 run->packed);
        uint64_t down = row - part.row, across = left - part.column;
        for (uint64_t c = 0; rect->transposed && c < right - left; c++) {
            wf_verify_compare(run, (rect->live_row + across + c) * rect->columns + down,
                              run->packed + c * run->live_bytes, 1, true);
        }
        if (!rect->transposed) {
            wf_verify_compare(run, (rect->live_row + down) * rect->columns + across, run->packed,
                              right - left, run->tensor->kind == WF_EXPECT_DEQUANTISED);
        }
    }
}

/* What of a rectangle of scales is of the strip's blocks: each stands in its units, all alike. */
static void compare_scales(struct wf_verify_run *run, const struct wf_expect_rect *rect,
                           const struct strip *strip)
{
    struct wf_check_block blocks[BLOCKS];
    float scales[BLOCKS * WF_CHECK_BLOCK];
    uint64_t unit = run->tensor->unit, times = WF_CHECK_BLOCK / unit;
    blocks_of(run, strip, blocks);
    uint64_t left = strip->column / unit, top = strip->row / unit;
    uint64_t begin = left > rect->column ? left : rect->column;
    uint64_t end = least(left + (strip->columns + unit - 1) / unit, rect->column + rect->columns);
    for (uint64_t c = begin; c < end; c++) {
        scales[c - begin] = blocks[(c - left) / times].scale;
    }
    uint64_t first = top > rect->row ? top : rect->row;
    uint64_t last = least(top + times, rect->row + rect->rows);
    for (uint64_t row = first; row < last && begin < end; row++) {
        wf_verify_compare(run,
                          (rect->live_row + row - rect->row) * rect->columns + begin - rect->column,
                          (const uint8_t *)scales, end - begin, false);
    }
}

/* The same of rows, which have one each. */
static void compare_row_scales(struct wf_verify_run *run, const struct wf_expect_rect *rect,
                               const struct strip *strip)
{
    struct wf_check_block blocks[BLOCKS];
    blocks_of(run, strip, blocks);
    for (uint64_t r = 0; r < strip->rows; r++) {
        wf_verify_compare(run, rect->live_row + strip->row + r - rect->row,
                          (const uint8_t *)&blocks[r].scale, 1, false);
    }
}

static enum wf_status check_row(uint64_t columns, struct wf_error *error)
{
    return columns <= WF_VERIFY_CHUNK
               ? WF_OK
               : wf_error_set(error, WF_UNSUPPORTED,
                              "the element check knows scales of rows of up to %d elements, and "
                              "found %" PRIu64 ": set policy.validate_every to 0",
                              WF_VERIFY_CHUNK, columns);
}

static enum wf_status verify_rows(struct wf_verify_run *run, const struct wf_expect_rect *rect,
                                  float *values, struct wf_error *error)
{
    struct strip part = shown(rect);
    enum wf_status status = check_row(rect->param_columns, error);
    for (uint64_t r = 0; r < part.rows && status == WF_OK;) {
        uint64_t rows = least(BLOCKS, WF_VERIFY_CHUNK / rect->param_columns);
        struct strip strip = {.row = part.row + r,
                              .rows = least(rows, part.rows - r),
                              .columns = rect->param_columns,
                              .values = values};
        status = read_strip(run, rect->param, rect->param_columns, &strip, error);
        if (status == WF_OK && run->tensor->kind == WF_EXPECT_SCALES) {
            compare_row_scales(run, rect, &strip);
        } else if (status == WF_OK) {
            compare_strip(run, rect, &strip);
        }
        r += strip.rows;
    }
    return status;
}

/* Blocks [*first, *end) that `count` units of a matrix from `at` on touch along one side. */
static void block_range(uint64_t at, uint64_t count, uint64_t unit, uint64_t *first, uint64_t *end)
{
    *first = at * unit / WF_CHECK_BLOCK;
    *end = ((at + count) * unit + WF_CHECK_BLOCK - 1) / WF_CHECK_BLOCK;
}

enum wf_status wf_verify_quantised(struct wf_verify_run *run, const struct wf_expect_rect *rect,
                                   struct wf_error *error)
{
    bool scales = run->tensor->kind == WF_EXPECT_SCALES;
    uint64_t elements = run->verify->checkpoint->entries[rect->param].elements;
    uint64_t param_rows = elements / rect->param_columns, top, bottom, left, right;
    struct strip part = shown(rect);
    uint64_t unit = scales ? run->tensor->unit : 1;
    block_range(part.row, part.rows, unit, &top, &bottom);
    block_range(part.column, part.columns, unit, &left, &right);
    float *values = malloc(WF_VERIFY_CHUNK * sizeof *values);
    enum wf_status status =
        values != NULL ? WF_OK : wf_error_set(error, WF_NO_MEMORY, "no memory for a row of blocks");
    bool by_row = is_by_row(run);
    if (status == WF_OK && by_row) {
        status = verify_rows(run, rect, values, error);
    }
    for (uint64_t r = top; r < bottom && !by_row && status == WF_OK; r++) {
        for (uint64_t c = left; c < right && status == WF_OK; c += BLOCKS) {
            struct strip strip = {
                .row = r * WF_CHECK_BLOCK, .column = c * WF_CHECK_BLOCK, .values = values};
            strip.rows = least(WF_CHECK_BLOCK, param_rows - strip.row);
            strip.columns = least(least(right - c, BLOCKS) * WF_CHECK_BLOCK,
                                  rect->param_columns - strip.column);
            status = read_strip(run, rect->param, rect->param_columns, &strip, error);
            if (status == WF_OK && scales) {
                compare_scales(run, rect, &strip);
            } else if (status == WF_OK) {
                compare_strip(run, rect, &strip);
            }
        }
    }
    free(values);
    return status;
}

enum wf_status wf_verify_quantised_versions(const struct wf_verify *verify,
                                            const struct wf_expect_tensor *tensor,
                                            const struct wf_expect_rect *rect, uint64_t row,
                                            uint64_t column, enum wf_dtype live,
                                            uint32_t bits_out[WF_STEP_PERIOD],
                                            struct wf_error *error)
{
    enum { BLOCK_ELEMENTS = WF_CHECK_BLOCK * WF_CHECK_BLOCK };
    bool by_row = wf_quant_is_by_row(verify->quant);
    bool scales = tensor->kind == WF_EXPECT_SCALES;
    uint64_t elements = verify->checkpoint->entries[rect->param].elements;
    uint64_t unit = scales ? tensor->unit : 1;
    uint64_t down = rect->transposed ? column : row, across = rect->transposed ? row : column;
    uint64_t y = (rect->row + down) * unit, x = (rect->column + across) * unit;
    struct strip strip = {.row = y / WF_CHECK_BLOCK * WF_CHECK_BLOCK,
                          .column = x / WF_CHECK_BLOCK * WF_CHECK_BLOCK};
    strip.rows = least(WF_CHECK_BLOCK, elements / rect->param_columns - strip.row);
    strip.columns = least(WF_CHECK_BLOCK, rect->param_columns - strip.column);
    if (by_row) {
        strip = (struct strip){.row = y, .rows = 1, .columns = rect->param_columns};
    }
    /* Reading narrow rows takes whole ones, a chunk at a time. */
    uint8_t *memory = malloc(2 * WF_VERIFY_CHUNK * sizeof(uint32_t));
    strip.values = malloc((by_row ? strip.columns : BLOCK_ELEMENTS) * sizeof(float));
    const struct wf_verify_live typed = {.dtype = live};
    struct wf_verify_run run = {.verify = verify,
                                .tensor = tensor,
                                .live = &typed,
                                .live_bytes = wf_dtype_bytes(live),
                                .packed = memory,
                                .wide = memory + WF_VERIFY_CHUNK * sizeof(uint32_t)};
    enum wf_status status = memory != NULL && strip.values != NULL
                                ? WF_OK
                                : wf_error_set(error, WF_NO_MEMORY, "no memory for a block");
    status = status == WF_OK && by_row ? check_row(strip.columns, error) : status;
    for (; status == WF_OK && run.steps < WF_STEP_PERIOD; run.steps++) {
        status = read_strip(&run, rect->param, rect->param_columns, &strip, error);
        if (status == WF_OK) {
            struct wf_check_block block =
                wf_check_block(verify->quant, amax_of(&strip, 0, strip.columns));
            memcpy(&bits_out[run.steps], &block.scale, sizeof bits_out[0]);
            if (!scales) {
                bits_out[run.steps] = 0;
                make_row(&run, &block, &strip, y - strip.row, x - strip.column, 1,
                         (uint8_t *)&bits_out[run.steps]);
            }
        }
    }
    free(strip.values);
    free(memory);
    return status;
}
