/* layout_match.c - compares a rank's real tensors with its derived layout, for registration.
 *
 * The sentences are the point: a mismatch here is where a wrong SPEC, a wrong config or a rewritten
 * parameter first shows, so each names the tensor, both sides, and the likeliest cause.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/layout.h"
#include "runtime/nearest.h"

enum { SHAPE_TEXT_MAX = 96, NEAREST_NAMES_MAX = 4096 };

static void format_shape(uint32_t ndim, const uint64_t *shape, char out[SHAPE_TEXT_MAX])
{
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t axis = 0; axis < ndim && axis < WF_SHAPE_MAX; axis++) {
        used += (size_t)snprintf(out + used, SHAPE_TEXT_MAX - used, "%s%" PRIu64, axis ? "x" : "",
                                 shape[axis]);
    }
    if (ndim == 0) {
        snprintf(out, SHAPE_TEXT_MAX, "a scalar");
    }
}

static bool ends_with(const char *name, const char *end)
{
    size_t len = strlen(name), end_len = strlen(end);
    return len >= end_len && strcmp(name + len - end_len, end) == 0;
}

static bool is_head(const char *name)
{
    return ends_with(name, "lm_head.weight") || ends_with(name, "output_layer.weight");
}

/* Why a rank may have a tensor that its layout does not. */
static const char *guess_unknown(const struct wf_layout *layout, const char *name)
{
    const char *plain = name;
    while (strncmp(plain, "module.", 7) == 0) {
        plain += 7;
    }
    if (plain != name && wf_layout_find(layout, plain, strlen(plain)) != UINT32_MAX) {
        return "wrappers put \"module.\" before the name: give it without";
    }
    if (is_head(name)) {
        return "the config says that the head is tied, or the rank is not the last stage";
    }
    if (ends_with(name, ".bias")) {
        return "the config's flags for biases do not say so";
    }
    if (ends_with(name, "_extra_state") || ends_with(name, "inv_freq")) {
        return "it is no weight: list it in `ignore`";
    }
    if (ends_with(name, "_scale") || ends_with(name, "_scale_inv") || ends_with(name, ".qweight")) {
        return "the engine holds quantised weights, the recipe says plain ones";
    }
    if (strstr(name, "layernorm") || strstr(name, "layer_norm")) {
        return "another set of names (names=te or names=local) or norms that the config does not "
               "switch on";
    }
    return "another model, stage or framework version than the recipe says, or something to list "
           "in `ignore`";
}

static enum wf_status refuse_unknown(const struct wf_layout *layout, const char *name,
                                     struct wf_error *error)
{
    const char *names[NEAREST_NAMES_MAX];
    size_t count = 0;
    for (; count < layout->tensor_count && count < NEAREST_NAMES_MAX; count++) {
        names[count] = layout->tensors[count].name;
    }
    const char *nearest = wf_nearest(name, strnlen(name, WF_NAME_MAX), names, count);
    return wf_error_set(error, WF_MISMATCH,
                        "tensor \"%.200s\" is not in the derived layout of this rank%s%s%s; likely "
                        "cause: %s",
                        name, nearest ? " (nearest: " : "", nearest ? nearest : "",
                        nearest ? ")" : "", guess_unknown(layout, name));
}

static const char *guess_missing(const struct wf_tensor *tensor)
{
    if (is_head(tensor->name)) {
        return "the model ties its head, and the config does not say so";
    }
    if (ends_with(tensor->name, ".bias")) {
        return "the model was built without biases that the config switches on";
    }
    return "another stage, another set of names, or a tensor that was not listed";
}

static const char *guess_shape(const struct wf_tensor *tensor, const struct wf_live_tensor *live)
{
    if (live->ndim != tensor->ndim) {
        return "the engine rewrote the parameter after loading";
    }
    if (tensor->ndim == 2 && live->shape[0] == tensor->shape[1] &&
        live->shape[1] == tensor->shape[0]) {
        return "it is transposed: the engine rewrote the parameter after loading";
    }
    if (strstr(tensor->name, "embed") || is_head(tensor->name)) {
        return "the vocabulary is padded to another multiple (vocab_div), or tp differs";
    }
    for (uint32_t axis = 0; axis < tensor->ndim; axis++) {
        uint64_t a = tensor->shape[axis], b = live->shape[axis];
        if (a != b && b != 0 && (a % b == 0 || b % a == 0)) {
            return "tp differs from the recipe's";
        }
    }
    return "the config's sizes differ from the model's";
}

static bool is_row_major(const struct wf_tensor *tensor)
{
    int64_t step = 1;
    for (uint32_t axis = tensor->ndim; axis-- > 0;) {
        if (tensor->shape[axis] > 1 && tensor->strides[axis] != step) {
            return false;
        }
        step *= (int64_t)tensor->shape[axis];
    }
    return true;
}

static const char *guess_stride(const struct wf_tensor *tensor, const struct wf_live_tensor *live)
{
    uint64_t elements = 1;
    int64_t reach = 0;
    for (uint32_t axis = 0; axis < tensor->ndim; axis++) {
        elements *= tensor->shape[axis];
        reach += (int64_t)(tensor->shape[axis] - 1) * live->strides[axis];
    }
    if (reach + 1 == (int64_t)elements) {
        return "it is stored transposed: the engine rewrote the parameter after loading, or keeps "
               "it so for its kernels";
    }
    return reach > (int64_t)elements ? "a view into a larger tensor: register that one"
                                     : "a view, or the engine rewrote the parameter";
}

static enum wf_status check_one(const struct wf_tensor *tensor, const struct wf_live_tensor *live,
                                struct wf_error *error)
{
    char expected[SHAPE_TEXT_MAX], found[SHAPE_TEXT_MAX];
    bool same_shape = live->ndim == tensor->ndim;
    for (uint32_t axis = 0; axis < tensor->ndim && same_shape; axis++) {
        same_shape = live->shape[axis] == tensor->shape[axis];
    }
    if (!same_shape) {
        format_shape(tensor->ndim, tensor->shape, expected);
        format_shape(live->ndim, live->shape, found);
        return wf_error_set(error, WF_MISMATCH,
                            "tensor %s: expected shape %s, found %s; likely cause: %s",
                            tensor->name, expected, found, guess_shape(tensor, live));
    }
    if (live->dtype != tensor->dtype) {
        bool codes = live->dtype == WF_DTYPE_F8_E4M3 || tensor->dtype == WF_DTYPE_F8_E4M3;
        const char *dtype = wf_dtype_name(live->dtype);
        return wf_error_set(
            error, WF_MISMATCH,
            "tensor %s: expected dtype %s, found %s; likely cause: the SPEC's %s%s) "
            "or a converted tensor",
            tensor->name, wf_dtype_name(tensor->dtype), dtype,
            codes ? "quant (give quant=none or quant=RULE" : "dtype (give dtype=",
            codes ? "" : dtype);
    }
    bool empty = tensor->bytes == 0, looks_on = tensor->kind == WF_TENSOR_VIEW;
    for (uint32_t axis = tensor->ndim; axis-- > 0 && !empty && !looks_on;) {
        if (tensor->shape[axis] > 1 && live->strides[axis] != tensor->strides[axis]) {
            return wf_error_set(error, WF_MISMATCH,
                                "tensor %s: expected stride %" PRId64 " on axis %" PRIu32
                                " (%s), found stride %" PRId64 "; likely cause: %s",
                                tensor->name, tensor->strides[axis], axis,
                                is_row_major(tensor) ? "a contiguous tensor"
                                                     : "the engine keeps it transposed",
                                live->strides[axis], guess_stride(tensor, live));
        }
    }
    return WF_OK;
}

/* Marks that layouts put before the names of what is no parameter. */
static const char *const marks[] = {"", "buffer:", "attr:"};
enum { MARKS = sizeof marks / sizeof marks[0] };

static uint32_t find_tensor(const struct wf_layout *layout, const char *name)
{
    char marked[WF_NAME_MAX + 16];
    uint32_t index = UINT32_MAX;
    for (size_t i = 0; i < MARKS && index == UINT32_MAX; i++) {
        int len = snprintf(marked, sizeof marked, "%s%s", marks[i], name);
        if (len > 0 && (size_t)len < sizeof marked) {
            index = wf_layout_find(layout, marked, (size_t)len);
        }
    }
    return index;
}

/* The tensor's own name, not an alias. */
static bool is_named(const struct wf_tensor *tensor, const char *name)
{
    for (size_t i = 0; i < MARKS; i++) {
        size_t len = strlen(marks[i]);
        if (strncmp(tensor->name, marks[i], len) == 0 && strcmp(tensor->name + len, name) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_ignored(const char *name, const char *const *ignore, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(name, ignore[i]) == 0) {
            return true;
        }
    }
    return false;
}

enum wf_status wf_layout_match(const struct wf_layout *layout, const struct wf_live_tensor *live,
                               size_t live_count, const char *const *ignore, size_t ignore_count,
                               uint32_t *order_out, struct wf_error *error)
{
    memset(order_out, 0xff, layout->tensor_count * sizeof *order_out);
    for (size_t i = 0; i < live_count; i++) {
        const char *name = live[i].name;
        uint32_t index = find_tensor(layout, name);
        if (index == UINT32_MAX) {
            if (is_ignored(name, ignore, ignore_count)) {
                continue;
            }
            return refuse_unknown(layout, name, error);
        }
        const struct wf_tensor *tensor = &layout->tensors[index];
        enum wf_status status = check_one(tensor, &live[i], error);
        if (status != WF_OK) {
            return status;
        }
        bool own_name = is_named(tensor, name);
        uint32_t before = order_out[index];
        if (before != UINT32_MAX && strcmp(live[before].name, name) == 0) {
            return wf_error_set(error, WF_MISMATCH, "tensor \"%.200s\" is listed twice", name);
        }
        /* An alias stands for its tensor only where the tensor's own name is not listed. */
        if (before == UINT32_MAX || own_name) {
            order_out[index] = (uint32_t)i;
        }
    }
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        enum wf_tensor_kind kind = layout->tensors[i].kind;
        bool needed = kind != WF_TENSOR_VIEW && kind != WF_TENSOR_DERIVED;
        if (needed && order_out[i] == UINT32_MAX) {
            return wf_error_set(error, WF_MISMATCH,
                                "tensor %s of the derived layout is missing among the rank's %zu; "
                                "likely cause: %s",
                                layout->tensors[i].name, live_count,
                                live_count == 0 ? "nothing was registered"
                                                : guess_missing(&layout->tensors[i]));
        }
    }
    return WF_OK;
}
