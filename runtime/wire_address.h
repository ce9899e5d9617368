/* wire_address.h - address strings of the real wire and what the kernel calls them.
 *
 * Pure text work and name look-up; no descriptor is made here. Any thread.
 */
#ifndef WEFT_RUNTIME_WIRE_ADDRESS_H
#define WEFT_RUNTIME_WIRE_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "runtime/env.h"
#include "runtime/status.h"

enum { WF_WIRE_HOST_MAX = 256, WF_WIRE_TRIES_MAX = 8 /* addresses of one name that are tried */ };

struct wf_wire_address {
    bool is_unix;
    bool is_wildcard; /* unix: the name ended in '*', which is cut off */
    /* tcp */
    char host[WF_WIRE_HOST_MAX]; /* without brackets */
    unsigned short port;
    /* unix: without the '@' of an abstract name */
    bool is_abstract;
    char path[sizeof((struct sockaddr_un *)0)->sun_path];
};

/* What to hand to bind or connect. */
struct wf_wire_target {
    socklen_t len;
    union {
        struct sockaddr any;
        struct sockaddr_un un;
        struct sockaddr_storage storage;
    };
};
struct wf_wire_targets {
    unsigned count;
    struct wf_wire_target target[WF_WIRE_TRIES_MAX];
};

/* INVALID with a sentence: unknown scheme, empty or too long name, bad port, a name that looks like
 * a number ("10.1", "010.0.0.1": resolvers read those in different ways). */
enum wf_status wf_wire_address_parse(const char *text, struct wf_wire_address *address_out,
                                     struct wf_error *error);
/* The targets that need no look-up: unix, numeric hosts, "localhost", and for listening "*" (all
 * interfaces). NOT_FOUND: the host is a name to be resolved. */
enum wf_status wf_wire_address_inline(const struct wf_wire_address *address, bool listening,
                                      struct wf_wire_targets *targets_out);
/* Blocks: asks the system's resolver. */
enum wf_status wf_wire_address_resolve(const struct wf_wire_address *address,
                                       struct wf_wire_targets *targets_out, struct wf_error *error);
/* The address string of a target: "tcp:[::1]:80", "unix:/run/x", "unix:@x", "unix:" if unnamed. */
void wf_wire_address_format(const struct sockaddr *any, socklen_t len, char out[WF_ADDRESS_MAX]);

#endif
