/* interfaces.h - which network interfaces a job may use: "eth0, ib*, 10.1.0.0/16, fd00::/8". Pure.
 *
 * A rule is an interface's name, with `*` at its end for all that begin so, or a network in CIDR
 * notation. An address is allowed if one rule matches it.
 */
#ifndef WEFT_CONFIG_INTERFACES_H
#define WEFT_CONFIG_INTERFACES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "runtime/status.h"

enum { WF_INTERFACE_RULES_MAX = 16, WF_INTERFACE_NAME = 32, WF_INTERFACES_TEXT = 256 };

struct wf_interface_rule {
    int family;                   /* 0: by name */
    char name[WF_INTERFACE_NAME]; /* without the `*` */
    bool prefix;                  /* the name ended in `*` */
    uint8_t network[16];
    unsigned bits;
};

struct wf_interface_rules {
    struct wf_interface_rule rules[WF_INTERFACE_RULES_MAX];
    unsigned count;
};

/* INVALID with a sentence: empty or too many rules, a network with bits behind its prefix, ... */
enum wf_status wf_interfaces_parse(const char *text, struct wf_interface_rules *rules_out,
                                   struct wf_error *error);
/* No rules allow everything. */
bool wf_interfaces_allow(const struct wf_interface_rules *rules, const char *interface,
                         const struct sockaddr *address);

#endif
