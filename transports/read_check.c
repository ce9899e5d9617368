/* read_check.c - the checks of a read's ops, and how a read's failure is written down. */
#include "transports/read_check.h"

#include <stdio.h>

#include "models/copy.h"

void wf_read_fail(struct wf_read *read, enum wf_status status, uint32_t op, const char *text)
{
    if (read->status == WF_OK) {
        read->status = status;
        read->failed_op = op;
        snprintf(read->text, sizeof read->text, "%.*s", (int)sizeof read->text - 1, text);
    }
}

/* The tensor lies in a region of this transport. */
static bool source_fits(const struct wf_transport *transport, const struct wf_read_source *src)
{
    const struct wf_remote *remote = src->remote;
    return remote != NULL && remote->transport == transport && src->offset <= remote->len_bytes &&
           src->len_bytes <= remote->len_bytes - src->offset;
}

static enum wf_status check_op(const struct wf_transport *transport, const struct wf_read *read,
                               uint32_t index, struct wf_error *error)
{
    const struct wf_op *op = &read->ops[index];
    if (op->kind != WF_OP_MOVE || op->value_rule != 0) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "op kind %u with value rule %u; this build moves and casts only",
                            op->kind, op->value_rule);
    }
    if (op->src_tensor >= read->src_count || op->dst_tensor >= read->dst_count) {
        return wf_error_set(error, WF_INVALID, "tensors %u and %u of %u and %u", op->src_tensor,
                            op->dst_tensor, read->src_count, read->dst_count);
    }
    const struct wf_read_source *src = &read->src[op->src_tensor];
    const struct wf_read_target *dst = &read->dst[op->dst_tensor];
    if (!source_fits(transport, src)) {
        return wf_error_set(error, WF_INVALID, "source tensor %u is outside its region or has none",
                            op->src_tensor);
    }
    if (!wf_dtype_castable(src->dtype, dst->dtype)) {
        return wf_error_set(error, WF_INVALID, "no cast from %s to %s", wf_dtype_name(src->dtype),
                            wf_dtype_name(dst->dtype));
    }
    if (!wf_box_within(&op->box, (uint32_t)wf_dtype_bytes(src->dtype), src->len_bytes,
                       (uint32_t)wf_dtype_bytes(dst->dtype), dst->len_bytes)) {
        return wf_error_set(error, WF_INVALID,
                            "its box reaches outside source tensor %u (%llu bytes) or target "
                            "tensor %u (%llu bytes)",
                            op->src_tensor, (unsigned long long)src->len_bytes, op->dst_tensor,
                            (unsigned long long)dst->len_bytes);
    }
    return WF_OK;
}

bool wf_read_begin(const struct wf_transport *transport, struct wf_read *read, uint64_t now_ns)
{
    struct wf_error error;
    read->status = WF_OK;
    read->failed_op = UINT32_MAX;
    read->bytes = 0;
    read->text[0] = '\0';
    read->transport_data = NULL;
    for (uint32_t i = 0; i < read->op_count; i++) {
        enum wf_status status = check_op(transport, read, i, &error);
        if (status != WF_OK) {
            wf_read_fail(read, status, i, error.text);
            return false;
        }
    }
    if (read->deadline_ns <= now_ns) {
        wf_read_fail(read, WF_TIMED_OUT, read->op_count > 0 ? 0 : UINT32_MAX,
                     "the deadline passed");
    }
    return read->status == WF_OK && read->op_count > 0;
}
