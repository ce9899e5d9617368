/* ucx_library.h - the UCX that was found at run time: its functions and its name. Private to
 * transports/ucx*.c.
 */
#ifndef WEFT_TRANSPORTS_UCX_LIBRARY_H
#define WEFT_TRANSPORTS_UCX_LIBRARY_H

#include <stdint.h>
#include <stdio.h>

#include <ucp/api/ucp.h>

#include "runtime/status.h"

/* Every function of UCX that is used; the types are those of the headers. */
#define UCX_FUNCTIONS(X)              \
    X(ucp_get_version)                \
    X(ucp_config_read)                \
    X(ucp_config_modify)              \
    X(ucp_config_print)               \
    X(ucp_config_release)             \
    X(ucp_init_version)               \
    X(ucp_cleanup)                    \
    X(ucp_context_query)              \
    X(ucp_worker_create)              \
    X(ucp_worker_destroy)             \
    X(ucp_worker_get_address)         \
    X(ucp_worker_release_address)     \
    X(ucp_worker_get_efd)             \
    X(ucp_worker_progress)            \
    X(ucp_worker_arm)                 \
    X(ucp_worker_set_am_recv_handler) \
    X(ucp_ep_create)                  \
    X(ucp_ep_close_nbx)               \
    X(ucp_ep_print_info)              \
    X(ucp_am_send_nbx)                \
    X(ucp_am_recv_data_nbx)           \
    X(ucp_mem_map)                    \
    X(ucp_mem_unmap)                  \
    X(ucp_rkey_pack)                  \
    X(ucp_rkey_buffer_release)        \
    X(ucp_ep_rkey_unpack)             \
    X(ucp_rkey_destroy)               \
    X(ucp_get_nbx)                    \
    X(ucp_am_data_release)            \
    X(ucp_request_free)               \
    X(ucs_status_string)

struct ucx_library {
#define UCX_POINTER(name) __typeof__(&name) name;
    UCX_FUNCTIONS(UCX_POINTER)
#undef UCX_POINTER
    /* Of libucs, no public API; NULL where there is none. Prints the options of all parts. */
    void (*print_all_options)(FILE *stream, const char *prefix, int flags, void *list,
                              const char *filter);
    void *options_list;
    unsigned major, minor, patch;
    char path[1024];    /* the file that is used */
    char warning[1400]; /* what a person should know about it; "" is nothing */
};

/* Options that UCX reads from the environment: there while a context or a worker is made, not
 * longer, so that nobody else in the process gets them. What was set before comes back. */
struct ucx_environment {
    struct ucx_variable {
        char *name, *value, *before; /* owned; `before` while it is entered */
    } * variables;
    uint32_t count;
};
enum wf_status ucx_environment_add(struct ucx_environment *environment, const char *plain_name,
                                   const char *value, struct wf_error *error);
void ucx_environment_enter(struct ucx_environment *environment);
void ucx_environment_leave(struct ucx_environment *environment);
void ucx_environment_free(struct ucx_environment *environment);

/* Loads UCX, or finds the copy that the process has already. `library` as in the options of the
 * transport. Never unloaded: UCX does not bear it. */
enum wf_status ucx_library_open(const char *library, struct ucx_library *library_out,
                                struct wf_error *error);

#endif
