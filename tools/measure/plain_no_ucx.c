/* plain_no_ucx.c - plain UCX in a build without it: nothing to compare with. */
#include "tools/measure/plain_ucx.h"

enum wf_status wf_plain_ucx_new(uint8_t *memory, uint64_t bytes, const char *tls,
                                struct wf_plain_ucx **ucx_out, struct wf_error *error)
{
    (void)memory;
    (void)bytes;
    (void)tls;
    (void)ucx_out;
    return wf_error_set(error, WF_UNSUPPORTED, "this weft was built without UCX");
}

void wf_plain_ucx_free(struct wf_plain_ucx *ucx)
{
    (void)ucx;
}

const void *wf_plain_ucx_address(const struct wf_plain_ucx *ucx, size_t *len_out)
{
    *len_out = 0;
    return ucx;
}

enum wf_status wf_plain_ucx_connect(struct wf_plain_ucx *ucx, const void *address,
                                    struct wf_error *error)
{
    (void)ucx;
    (void)address;
    return wf_error_set(error, WF_UNSUPPORTED, "this weft was built without UCX");
}

bool wf_plain_ucx_send(struct wf_plain_ucx *ucx, uint64_t bytes, int control)
{
    (void)ucx;
    (void)bytes;
    (void)control;
    return false;
}

bool wf_plain_ucx_receive(struct wf_plain_ucx *ucx, uint64_t bytes, int control)
{
    (void)ucx;
    (void)bytes;
    (void)control;
    return false;
}
