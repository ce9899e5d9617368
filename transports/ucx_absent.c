/* ucx_absent.c - the UCX transport of a build without UCX's headers: a sentence. */
#include "transports/ucx.h"

enum wf_status wf_transport_ucx_new(struct wf_loop *loop,
                                    const struct wf_transport_ucx_options *options,
                                    struct wf_transport **transport_out, struct wf_error *error)
{
    (void)loop;
    (void)options;
    (void)transport_out;
    return wf_error_set(error, WF_UNSUPPORTED,
                        "this weft was built without UCX; install its headers (Debian: libucx-dev) "
                        "and build with -Ducx=enabled, or prefer other transports");
}
