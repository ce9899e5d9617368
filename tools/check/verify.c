/* verify.c - reads what a live tensor must hold from the checkpoint, steps it, and compares. */
#include "tools/check/verify.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/check/step.h"
#include "tools/check/verify_run.h"

enum { NARROW_BYTES = 1024 }; /* shorter pieces of rows are cut out of whole rows, read at once */

/* --- single values ---------------------------------------------------------------------------- */

/* The compiler's own conversions: this file must not use the casts that it checks. */
float wf_verify_to_float(uint32_t bits, enum wf_dtype dtype)
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

uint32_t wf_verify_from_float(float value, enum wf_dtype dtype)
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
    return from == to ? stepped : wf_verify_from_float(wf_verify_to_float(stepped, from), to);
}

uint32_t wf_verify_load(const void *at, enum wf_dtype dtype)
{
    uint32_t bits = 0;
    memcpy(&bits, at, wf_dtype_bytes(dtype)); /* little-endian, as the file format is */
    return bits;
}

static bool is_nan(uint32_t bits, enum wf_dtype dtype)
{
    float value = wf_verify_to_float(bits, dtype);
    return value != value;
}

/* --- tensors ---------------------------------------------------------------------------------- */

void wf_verify_wrong(struct wf_verify_run *run, uint64_t index, uint32_t expected, uint32_t found)
{
    struct wf_verify_result *result = run->result;
    if (result->elements_wrong++ == 0) {
        memcpy(result->first_wrong.tensor, run->tensor->name, sizeof result->first_wrong.tensor);
        result->first_wrong.index = index;
        result->first_wrong.expected = expected;
        result->first_wrong.found = found;
    }
}

void wf_verify_compare(struct wf_verify_run *run, uint64_t index, const uint8_t *expected,
                       uint64_t count, bool any_nan)
{
    const uint8_t *live = (const uint8_t *)run->live->address + index * run->live_bytes;
    run->result->elements_checked += count;
    if (memcmp(live, expected, count * run->live_bytes) == 0) {
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        uint32_t want = wf_verify_load(expected + i * run->live_bytes, run->live->dtype);
        uint32_t got = wf_verify_load(live + i * run->live_bytes, run->live->dtype);
        if (want != got &&
            !(any_nan && is_nan(want, run->live->dtype) && is_nan(got, run->live->dtype))) {
            wf_verify_wrong(run, index + i, want, got);
        }
    }
}

enum wf_status wf_verify_read(struct wf_verify_run *run, const struct wf_expect_rect *rect,
                              uint64_t row, uint64_t rows, uint64_t column, uint64_t columns,
                              struct wf_error *error)
{
    const struct wf_checkpoint *checkpoint = run->verify->checkpoint;
    size_t bytes = wf_dtype_bytes(checkpoint->entries[rect->param].dtype);
    uint64_t first = (rect->row + row) * rect->param_columns + rect->column + column;
    if (columns == rect->param_columns) {
        return wf_checkpoint_read(checkpoint, rect->param, first, rows * columns, run->packed,
                                  error);
    }
    if (columns * bytes >= NARROW_BYTES || rect->param_columns > WF_VERIFY_CHUNK) {
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
    uint64_t at_once = WF_VERIFY_CHUNK / rect->param_columns;
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

/* An engine adds to what it holds, after the cast. */
static uint32_t one_more(uint32_t bits, enum wf_dtype live)
{
    return wf_verify_from_float(wf_verify_to_float(bits, live) + 1, live);
}

/* What an element of the checkpoint has become on its way. */
static uint32_t arrived(const struct wf_expect_tensor *tensor, uint32_t bits, enum wf_dtype dtype,
                        enum wf_dtype live)
{
    float value = wf_verify_to_float(bits, dtype);
    if (tensor->kind == WF_EXPECT_LESS_ONE) {
        uint32_t held = wf_verify_from_float(value - 1, tensor->less_one);
        value = wf_verify_to_float(held, tensor->less_one) + 1;
    }
    uint32_t cast = wf_verify_from_float(value, live);
    return tensor->kind == WF_EXPECT_PLUS_ONE ? one_more(cast, live) : cast;
}

/* Compares `rows` rows of what was made with those from live row `row` on, `step` apart. */
static void compare_rows(struct wf_verify_run *run, const uint8_t *made, uint64_t row,
                         uint64_t step, uint64_t rows, uint64_t column, uint64_t columns,
                         bool any_nan)
{
    uint64_t width = run->tensor->columns, at_once = step > 1 ? 1 : rows;
    for (uint64_t r = 0; r < rows; r += at_once) {
        wf_verify_compare(run, (row + r * step) * width + column,
                          made + r * columns * run->live_bytes, at_once * columns, any_nan);
    }
}

/* Steps and casts what was read, for comparing. True if it was cast. */
static bool make_packed(struct wf_verify_run *run, enum wf_dtype dtype, uint64_t count,
                        const uint8_t **made_out)
{
    enum wf_dtype live = run->live->dtype;
    wf_step_apply(run->packed, dtype, count, run->steps);
    *made_out = run->packed;
    if (dtype == live && run->tensor->kind == WF_EXPECT_VALUES) {
        return false;
    }
    size_t bytes = wf_dtype_bytes(dtype);
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bits = wf_verify_load(run->packed + i * bytes, dtype);
        uint32_t cast = arrived(run->tensor, bits, dtype, live);
        memcpy(run->wide + i * run->live_bytes, &cast, run->live_bytes);
    }
    *made_out = run->wide;
    return true;
}

/* All of a transposed rectangle at once. */
static enum wf_status check_transposed(struct wf_verify_run *run, const struct wf_expect_rect *rect,
                                       struct wf_error *error)
{
    enum wf_dtype dtype = run->verify->checkpoint->entries[rect->param].dtype;
    size_t bytes = wf_dtype_bytes(dtype);
    enum wf_status status = wf_verify_read(run, rect, 0, rect->columns, 0, rect->rows, error);
    if (status != WF_OK) {
        return status;
    }
    for (uint64_t r = 0; r < rect->rows; r++) {
        for (uint64_t c = 0; c < rect->columns; c++) {
            memcpy(run->wide + (r * rect->columns + c) * bytes,
                   run->packed + (c * rect->rows + r) * bytes, bytes);
        }
    }
    memcpy(run->packed, run->wide, rect->rows * rect->columns * bytes);
    const uint8_t *made = NULL;
    bool cast = make_packed(run, dtype, rect->rows * rect->columns, &made);
    compare_rows(run, made, rect->live_row, 1, rect->rows, 0, rect->columns, cast);
    return WF_OK;
}

/* Rows are taken in blocks of a chunk; a row longer than a chunk is taken in parts. */
static enum wf_status check_rect(struct wf_verify_run *run, const struct wf_expect_rect *rect,
                                 struct wf_error *error)
{
    enum wf_dtype dtype = run->verify->checkpoint->entries[rect->param].dtype;
    if (rect->transposed) {
        return check_transposed(run, rect, error);
    }
    uint64_t step = rect->live_step > 1 ? rect->live_step : 1;
    uint64_t width = rect->columns < WF_VERIFY_CHUNK ? rect->columns : WF_VERIFY_CHUNK;
    uint64_t height = WF_VERIFY_CHUNK / width;
    for (uint64_t row = 0; row < rect->rows; row += height) {
        uint64_t rows = rect->rows - row < height ? rect->rows - row : height;
        for (uint64_t column = 0; column < rect->columns; column += width) {
            uint64_t left = rect->columns - column, columns = left < width ? left : width;
            enum wf_status status = wf_verify_read(run, rect, row, rows, column, columns, error);
            if (status != WF_OK) {
                return status;
            }
            const uint8_t *made = NULL;
            bool cast = make_packed(run, dtype, rows * columns, &made);
            compare_rows(run, made, rect->live_row + row * step, step, rows, column, columns, cast);
        }
    }
    return WF_OK;
}

static void check_padding(struct wf_verify_run *run, uint64_t from, uint64_t to)
{
    memset(run->packed, 0, WF_VERIFY_CHUNK * sizeof(uint32_t));
    while (from < to) {
        uint64_t count = to - from < WF_VERIFY_CHUNK ? to - from : WF_VERIFY_CHUNK;
        wf_verify_compare(run, from, run->packed, count, false);
        from += count;
    }
}

static enum wf_status check_live(const struct wf_verify *verify,
                                 const struct wf_expect_tensor *tensor,
                                 const struct wf_verify_live *live, struct wf_error *error)
{
    uint64_t elements = tensor->rows * tensor->columns;
    bool typed = tensor->kind == WF_EXPECT_CODES    ? live->dtype == WF_DTYPE_F8_E4M3
                 : tensor->kind == WF_EXPECT_SCALES ? live->dtype == WF_DTYPE_F32
                                                    : wf_step_supports(live->dtype);
    if (!typed || live->bytes != elements * wf_dtype_bytes(live->dtype)) {
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

/* Not of codes and scales. */
static bool is_of_values(const struct wf_expect_tensor *tensor)
{
    return tensor->kind == WF_EXPECT_VALUES || tensor->kind == WF_EXPECT_PLUS_ONE ||
           tensor->kind == WF_EXPECT_LESS_ONE;
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
    struct wf_verify_run run = {
        .verify = verify,
        .tensor = tensor,
        .live = live,
        .result = result,
        .steps = steps,
        .live_bytes = wf_dtype_bytes(live->dtype),
        .packed = malloc(2 * WF_VERIFY_CHUNK * sizeof(uint32_t)),
    };
    if (run.packed == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory to check %s", tensor->name);
    }
    run.wide = run.packed + WF_VERIFY_CHUNK * sizeof(uint32_t);
    uint64_t filled = 0;
    for (uint32_t i = 0; status == WF_OK && i < tensor->rect_count; i++) {
        status = is_of_values(tensor) ? check_rect(&run, &tensor->rects[i], error)
                                      : wf_verify_quantised(&run, &tensor->rects[i], error);
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

static void note_less_one(struct wf_expect *expect, const enum wf_dtype *less_one)
{
    for (uint32_t t = 0; less_one != NULL && t < expect->tensor_count; t++) {
        struct wf_expect_tensor *tensor = &expect->tensors[t];
        bool values = tensor->kind == WF_EXPECT_VALUES && tensor->rect_count > 0;
        enum wf_dtype held = values ? less_one[tensor->rects[0].param] : WF_DTYPE_NONE;
        if (held != WF_DTYPE_NONE) {
            tensor->kind = WF_EXPECT_LESS_ONE;
            tensor->less_one = held;
        }
    }
}

enum wf_status wf_verify_open(const struct wf_checkpoint *checkpoint, const struct wf_model *model,
                              const struct wf_verify_place *place, struct wf_verify **out,
                              struct wf_error *error)
{
    WF_ASSERT(checkpoint == NULL || checkpoint->entry_count <= model->param_count);
    for (uint32_t i = 0; checkpoint != NULL && i < checkpoint->entry_count; i++) {
        if (!wf_step_supports(checkpoint->entries[i].dtype)) {
            return wf_error_set(
                error, WF_UNSUPPORTED,
                "parameter \"%s\" is %s; only f32, f16, bf16, u8 and i32 can be checked",
                model->params[i].name, wf_dtype_name(checkpoint->entries[i].dtype));
        }
    }
    struct wf_verify *verify = calloc(1, sizeof *verify);
    if (verify == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for the element check");
    }
    verify->checkpoint = checkpoint;
    verify->quant = place->quant;
    enum wf_status status = WF_OK;
    if (place->recipe != NULL && !wf_verify_is_retold(model, place->recipe)) {
        status = wf_expect_layout(&verify->expect, model, place->recipe, place->rank, error);
    } else {
        status = place->recipe != NULL ? wf_expect_options(place->recipe, error) : WF_OK;
        status = status == WF_OK ? wf_expect_init(&verify->expect, model, place, error) : status;
    }
    if (status != WF_OK) {
        wf_verify_free(verify);
        return status;
    }
    note_less_one(&verify->expect, place->less_one);
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

/* The rectangle that a row of a live tensor is in, and which of its rows that is; or NULL: padding.
 */
static const struct wf_expect_rect *find_rect(const struct wf_expect_tensor *tensor, uint64_t row,
                                              uint64_t *down_out)
{
    for (uint32_t i = 0; i < tensor->rect_count; i++) {
        const struct wf_expect_rect *rect = &tensor->rects[i];
        uint64_t step = rect->live_step > 1 ? rect->live_step : 1;
        if (row >= rect->live_row && (row - rect->live_row) % step == 0 &&
            (row - rect->live_row) / step < rect->rows) {
            *down_out = (row - rect->live_row) / step;
            return rect;
        }
    }
    return NULL;
}

bool wf_verify_locate(const struct wf_verify *verify, uint32_t index, uint64_t element,
                      uint32_t *param_out, uint64_t *flat_out)
{
    WF_ASSERT(index < verify->expect.tensor_count);
    const struct wf_expect_tensor *tensor = &verify->expect.tensors[index];
    uint64_t row = element / tensor->columns, column = element % tensor->columns;
    uint64_t down = 0, across = column;
    const struct wf_expect_rect *rect = find_rect(tensor, row, &down);
    if (rect == NULL || tensor->kind != WF_EXPECT_VALUES) {
        return false;
    }
    *param_out = rect->param;
    *flat_out = (rect->row + (rect->transposed ? across : down)) * rect->param_columns +
                rect->column + (rect->transposed ? down : across);
    return true;
}

bool wf_verify_is_made(const struct wf_verify *verify, uint32_t index)
{
    WF_ASSERT(index < verify->expect.tensor_count);
    return verify->expect.tensors[index].kind != WF_EXPECT_VALUES;
}

static enum wf_status value_versions(const struct wf_verify *verify,
                                     const struct wf_expect_tensor *tensor, uint32_t param,
                                     uint64_t flat, enum wf_dtype live,
                                     uint32_t bits_out[WF_STEP_PERIOD], struct wf_error *error)
{
    enum wf_dtype dtype = verify->checkpoint->entries[param].dtype;
    uint32_t base = 0;
    enum wf_status status = wf_checkpoint_read(verify->checkpoint, param, flat, 1, &base, error);
    for (uint32_t v = 0; status == WF_OK && v < WF_STEP_PERIOD; v++) {
        bits_out[v] = arrived(tensor, wf_step_value(base, dtype, v), dtype, live);
    }
    return status;
}

enum wf_status wf_verify_versions(const struct wf_verify *verify, uint32_t index, uint64_t element,
                                  enum wf_dtype live, uint32_t bits_out[WF_STEP_PERIOD],
                                  struct wf_error *error)
{
    WF_ASSERT(wf_verify_is_made(verify, index));
    const struct wf_expect_tensor *tensor = &verify->expect.tensors[index];
    uint64_t row = element / tensor->columns, column = element % tensor->columns;
    const struct wf_expect_rect *rect = find_rect(tensor, row, &row);
    WF_ASSERT(rect != NULL); /* no such tensor has padding */
    if (is_of_values(tensor)) {
        uint64_t flat = (rect->row + row) * rect->param_columns + rect->column + column;
        return value_versions(verify, tensor, rect->param, flat, live, bits_out, error);
    }
    return wf_verify_quantised_versions(verify, tensor, rect, row, column, live, bits_out, error);
}
