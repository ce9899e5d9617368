/* host_name.h - the name under which a host is known in a job. Pure.
 *
 * Ranks with equal names may share memory and meet at abstract unix sockets, so the name must be
 * equal exactly where that works: one kernel, one network namespace. Host names alone are not:
 * containers of two machines are called alike, two namespaces of one machine too. So by default a
 * short hash of the kernel's boot id and the network namespace's number follows the host's name
 * ("node1~3f09ac"); a name that is given (--host-name, WEFT_HOST_NAME) is taken as it is.
 */
#ifndef WEFT_CONFIG_HOST_NAME_H
#define WEFT_CONFIG_HOST_NAME_H

#include "actors/round.h"
#include "runtime/status.h"

/* `boot_id`, `net_namespace`: any text, "" if it cannot be read. Long names are cut. */
void wf_host_name_make(const char *host_name, const char *boot_id, const char *net_namespace,
                       char out[WF_HOST_MAX]);
/* INVALID: empty, too long, or with something else than letters, digits and "._~:-" in it. */
enum wf_status wf_host_name_check(const char *name, struct wf_error *error);

#endif
