/* verify.c - reads what a live tensor must hold from the checkpoint, steps it, and compares. */
#include "tools/check/verify.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/check/expect.h"
#include "tools/check/step.h"

enum {
    CHUNK_ELEMENTS = 256 << 10, /* compared at a time: fits a second-level cache */
    NARROW_BYTES = 1024,        /* shorter pieces of rows are cut out of whole rows, read at once */
};

struct wf_verify {
    const struct wf_checkpoint *checkpoint;
    const struct wf_model *model;
    struct wf_expect expect;
};

/* --- single values ---------------------------------------------------------------------------- */

/* The compiler's own conversions: this file must not use the casts that it checks. */
static float to_float(uint32_t bits, enum wf_dtype dtype)
{
    float value;
    if (dtype == WF_DTYPE_F16) {
        uint16_t half = (uint16_t)bits;
        _Float16 f16;
        memcpy(&f16, &half, sizeof f16);
        return (float)f16;
    }
    if (dtype == WF_DTYPE_BF16) {
        bits <<= 16;
    }
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t from_float(float value, enum wf_dtype dtype)
{
    uint32_t bits;
    if (dtype == WF_DTYPE_F16) {
        _Float16 f16 = (_Float16)value;
        uint16_t half;
        memcpy(&half, &f16, sizeof half);
        return half;
    }
    memcpy(&bits, &value, sizeof bits);
    if (dtype == WF_DTYPE_F32) {
        return bits;
    }
    if (value != value) {
        return 0x7fc0;
    }
    /* bf16: the neighbour below in magnitude, one up if the rest is over half, or half and odd. */
    uint32_t below = bits >> 16, rest = bits & 0xffff;
    return below + (rest > 0x8000 || (rest == 0x8000 && (below & 1) == 1));
}

uint32_t wf_verify_value(uint32_t base_bits, enum wf_dtype from, enum wf_dtype to, uint64_t steps)
{
    uint32_t stepped = wf_step_value(base_bits, from, steps);
    return from == to ? stepped : from_float(to_float(stepped, from), to);
}

static uint32_t load_bits(const void *at, enum wf_dtype dtype)
{
    uint32_t bits = 0;
    memcpy(&bits, at, wf_dtype_bytes(dtype)); /* little-endian, as the file format is */
    return bits;
}

static bool is_nan(uint32_t bits, enum wf_dtype dtype)
{
    float value = to_float(bits, dtype);
    return value != value;
}

/* --- tensors ---------------------------------------------------------------------------------- */

/* One comparison in progress. */
struct run {
    const struct wf_verify *verify;
    const struct wf_expect_tensor *tensor;
    const struct wf_verify_live *live;
    struct wf_verify_result *result;
    uint64_t steps;
    size_t live_bytes; /* of an element */
    uint8_t *packed;   /* elements of the checkpoint, packed and stepped */
    uint8_t *wide;     /* whole rows, or the result of a cast */
};

static void count_wrong(struct run *run, uint64_t index, uint32_t expected, uint32_t found)
{
    struct wf_verify_result *result = run->result;
    if (result->elements_wrong++ == 0) {
        memcpy(result->first_wrong.tensor, run->tensor->name, sizeof result->first_wrong.tensor);
        result->first_wrong.index = index;
        result->first_wrong.expected = expected;
        result->first_wrong.found = found;
    }
}

/* Compares `count` expected elements with the live ones from `index`. After a cast any NaN is as
 * good as any other: which one it is differs between the paths of one framework. */
static void compare(struct run *run, uint64_t index, const uint8_t *expected, uint64_t count,
                    bool any_nan)
{
    const uint8_t *live = (const uint8_t *)run->live->address + index * run->live_bytes;
    run->result->elements_checked += count;
    if (memcmp(live, expected, count * run->live_bytes) == 0) {
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        uint32_t want = load_bits(expected + i * run->live_bytes, run->live->dtype);
        uint32_t got = load_bits(live + i * run->live_bytes, run->live->dtype);
        if (want != got &&
            !(any_nan && is_nan(want, run->live->dtype) && is_nan(got, run->live->dtype))) {
            count_wrong(run, index + i, want, got);
        }
    }
}

/* Reads `rows` rows of a rectangle from row `row`, columns [column, column + columns) of it,
 * packed. */
static enum wf_status read_rows(struct run *run, const struct wf_expect_rect *rect, uint64_t row,
                                uint64_t rows, uint64_t column, uint64_t columns,
                                struct wf_error *error)
{
    const struct wf_checkpoint *checkpoint = run->verify->checkpoint;
    size_t bytes = wf_dtype_bytes(checkpoint->entries[rect->param].dtype);
    uint64_t first = (rect->row + row) * rect->param_columns + rect->column + column;
    if (columns == rect->param_columns) {
        return wf_checkpoint_read(checkpoint, rect->param, first, rows * columns, run->packed,
                                  error);
    }
    if (columns * bytes >= NARROW_BYTES || rect->param_columns > CHUNK_ELEMENTS) {
        for (uint64_t r = 0; r < rows; r++) {
            enum wf_status status =
                wf_checkpoint_read(checkpoint, rect->param, first + r * rect->param_columns,
                                   columns, run->packed + r * columns * bytes, error);
            if (status != WF_OK) {
                return status;
            }
        }
        return WF_OK;
    }
    uint64_t at_once = CHUNK_ELEMENTS / rect->param_columns;
    for (uint64_t r = 0; r < rows; r += at_once) {
        uint64_t part = rows - r < at_once ? rows - r : at_once;
        enum wf_status status =
            wf_checkpoint_read(checkpoint, rect->param, (rect->row + row + r) * rect->param_columns,
                               part * rect->param_columns, run->wide, error);
        if (status != WF_OK) {
            return status;
        }
        for (uint64_t i = 0; i < part; i++) {
            memcpy(run->packed + (r + i) * columns * bytes,
                   run->wide + (i * rect->param_columns + rect->column + column) * bytes,
                   columns * bytes);
        }
    }
    return WF_OK;
}

/* Steps and casts what was read, and compares it. */
static void compare_packed(struct run *run, enum wf_dtype dtype, uint64_t index, uint64_t count)
{
    enum wf_dtype live = run->live->dtype;
    wf_step_apply(run->packed, dtype, count, run->steps);
    if (dtype == live) {
        compare(run, index, run->packed, count, false);
        return;
    }
    size_t bytes = wf_dtype_bytes(dtype);
    for (uint64_t i = 0; i < count; i++) {
        uint32_t cast =
            from_float(to_float(load_bits(run->packed + i * bytes, dtype), dtype), live);
        memcpy(run->wide + i * run->live_bytes, &cast, run->live_bytes);
    }
    compare(run, index, run->wide, count, true);
}

/* Rows are taken in blocks of a chunk; a row longer than a chunk is taken in parts. */
static enum wf_status check_rect(struct run *run, const struct wf_expect_rect *rect,
                                 struct wf_error *error)
{
    enum wf_dtype dtype = run->verify->checkpoint->entries[rect->param].dtype;
    uint64_t width = rect->columns < CHUNK_ELEMENTS ? rect->columns : CHUNK_ELEMENTS;
    uint64_t height = CHUNK_ELEMENTS / width;
    for (uint64_t row = 0; row < rect->rows; row += height) {
        uint64_t rows = rect->rows - row < height ? rect->rows - row : height;
        for (uint64_t column = 0; column < rect->columns; column += width) {
            uint64_t left = rect->columns - column, columns = left < width ? left : width;
            enum wf_status status = read_rows(run, rect, row, rows, column, columns, error);
            if (status != WF_OK) {
                return status;
            }
            compare_packed(run, dtype, (rect->live_row + row) * rect->columns + column,
                           rows * columns);
        }
    }
    return WF_OK;
}

static void check_padding(struct run *run, uint64_t from, uint64_t to)
{
    memset(run->packed, 0, CHUNK_ELEMENTS * sizeof(uint32_t));
    while (from < to) {
        uint64_t count = to - from < CHUNK_ELEMENTS ? to - from : CHUNK_ELEMENTS;
        compare(run, from, run->packed, count, false);
        from += count;
    }
}

static enum wf_status check_live(const struct wf_verify *verify,
                                 const struct wf_expect_tensor *tensor,
                                 const struct wf_verify_live *live, struct wf_error *error)
{
    uint64_t elements = tensor->rows * tensor->columns;
    if (!wf_step_supports(live->dtype) || live->bytes != elements * wf_dtype_bytes(live->dtype)) {
        return wf_error_set(
            error, WF_MISMATCH,
            "tensor %s has %" PRIu64 " bytes of %s; the engine's loaders would make it "
            "%" PRIu64 " x %" PRIu64,
            tensor->name, live->bytes, wf_dtype_name(live->dtype), tensor->rows, tensor->columns);
    }
    for (uint32_t i = 0; i < tensor->rect_count; i++) {
        enum wf_dtype dtype = verify->checkpoint->entries[tensor->rects[i].param].dtype;
        WF_ASSERT(wf_step_supports(dtype)); /* checked at open */
    }
    return WF_OK;
}

enum wf_status wf_verify_tensor(const struct wf_verify *verify, uint32_t index, uint64_t steps,
                                const struct wf_verify_live *live, struct wf_verify_result *result,
                                struct wf_error *error)
{
    WF_ASSERT(index < verify->expect.tensor_count);
    const struct wf_expect_tensor *tensor = &verify->expect.tensors[index];
    enum wf_status status = check_live(verify, tensor, live, error);
    if (status != WF_OK) {
        return status;
    }
    struct run run = {
        .verify = verify,
        .tensor = tensor,
        .live = live,
        .result = result,
        .steps = steps,
        .live_bytes = wf_dtype_bytes(live->dtype),
        .packed = malloc(2 * CHUNK_ELEMENTS * sizeof(uint32_t)),
    };
    if (run.packed == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory to check %s", tensor->name);
    }
    run.wide = run.packed + CHUNK_ELEMENTS * sizeof(uint32_t);
    uint64_t filled = 0;
    for (uint32_t i = 0; status == WF_OK && i < tensor->rect_count; i++) {
        status = check_rect(&run, &tensor->rects[i], error);
        filled += tensor->rects[i].rows * tensor->columns;
    }
    if (status == WF_OK) {
        check_padding(&run, filled, tensor->rows * tensor->columns);
    }
    free(run.packed);
    return status;
}

enum wf_status wf_verify_rank(const struct wf_verify *verify, uint64_t steps,
                              wf_verify_lookup_t *lookup, void *user,
                              struct wf_verify_result *result, struct wf_error *error)
{
    for (uint32_t i = 0; i < verify->expect.tensor_count; i++) {
        struct wf_verify_live live;
        const char *name = verify->expect.tensors[i].name;
        if (!lookup(user, name, &live)) {
            return wf_error_set(error, WF_MISMATCH, "the rank has no tensor %s", name);
        }
        enum wf_status status = wf_verify_tensor(verify, i, steps, &live, result, error);
        if (status != WF_OK) {
            return status;
        }
    }
    return WF_OK;
}

/* --- opening and asking ------------------------------------------------------------------------
 */

enum wf_status wf_verify_open(const struct wf_checkpoint *checkpoint, const struct wf_model *model,
                              const struct wf_verify_place *place, struct wf_verify **out,
                              struct wf_error *error)
{
    WF_ASSERT(checkpoint->entry_count == model->param_count);
    for (uint32_t i = 0; i < model->param_count; i++) {
        if (!wf_step_supports(checkpoint->entries[i].dtype)) {
            return wf_error_set(error, WF_UNSUPPORTED,
                                "parameter \"%s\" is %s; only f32, f16 and bf16 can be checked",
                                model->params[i].name, wf_dtype_name(checkpoint->entries[i].dtype));
        }
    }
    struct wf_verify *verify = calloc(1, sizeof *verify);
    if (verify == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for the element check");
    }
    verify->checkpoint = checkpoint;
    verify->model = model;
    enum wf_status status =
        place->recipe && !wf_expect_knows(model)
            ? wf_expect_layout(&verify->expect, model, place->recipe, place->rank, error)
            : wf_expect_init(&verify->expect, model, place, error);
    if (status != WF_OK) {
        wf_error_prefix(error, "element check");
        wf_verify_free(verify);
        return status;
    }
    *out = verify;
    return WF_OK;
}

void wf_verify_free(struct wf_verify *verify)
{
    if (verify != NULL) {
        wf_expect_fini(&verify->expect);
        free(verify);
    }
}

uint32_t wf_verify_tensor_count(const struct wf_verify *verify)
{
    return verify->expect.tensor_count;
}

const char *wf_verify_tensor_name(const struct wf_verify *verify, uint32_t tensor)
{
    WF_ASSERT(tensor < verify->expect.tensor_count);
    return verify->expect.tensors[tensor].name;
}

uint64_t wf_verify_tensor_elements(const struct wf_verify *verify, uint32_t tensor)
{
    WF_ASSERT(tensor < verify->expect.tensor_count);
    return verify->expect.tensors[tensor].rows * verify->expect.tensors[tensor].columns;
}

bool wf_verify_locate(const struct wf_verify *verify, uint32_t index, uint64_t element,
                      uint32_t *param_out, uint64_t *flat_out)
{
    WF_ASSERT(index < verify->expect.tensor_count);
    const struct wf_expect_tensor *tensor = &verify->expect.tensors[index];
    uint64_t row = element / tensor->columns, column = element % tensor->columns;
    for (uint32_t i = 0; i < tensor->rect_count; i++) {
        const struct wf_expect_rect *rect = &tensor->rects[i];
        if (row >= rect->live_row && row < rect->live_row + rect->rows) {
            *param_out = rect->param;
            *flat_out =
                (rect->row + row - rect->live_row) * rect->param_columns + rect->column + column;
            return true;
        }
    }
    return false;
}
