/* stream_no_ucx.c - plain UCX in a build without it: nothing to compare with. */
#include "tools/bench/stream.h"

enum wf_status stream_ucx_new(uint8_t *memory, struct stream_ucx **ucx_out, struct wf_error *error)
{
    (void)memory;
    (void)ucx_out;
    return wf_error_set(error, WF_UNSUPPORTED, "this weft was built without UCX");
}

void stream_ucx_free(struct stream_ucx *ucx)
{
    (void)ucx;
}

const void *stream_ucx_address(const struct stream_ucx *ucx, size_t *len_out)
{
    *len_out = 0;
    return ucx;
}

enum wf_status stream_ucx_connect(struct stream_ucx *ucx, const void *address,
                                  struct wf_error *error)
{
    (void)ucx;
    (void)address;
    return wf_error_set(error, WF_UNSUPPORTED, "this weft was built without UCX");
}

bool stream_ucx_send(struct stream_ucx *ucx)
{
    (void)ucx;
    return false;
}

bool stream_ucx_receive(struct stream_ucx *ucx)
{
    (void)ucx;
    return false;
}
