/* reach.h - who this host is, and at which address ranks elsewhere reach this process.
 *
 * A rank advertises the address from which it reaches the MetaServer, because whoever reaches the
 * server is in the same network; transport.interfaces narrows the choice. What the host believes of
 * itself (its own name, often 127.0.1.1) is never advertised.
 */
#ifndef WEFT_TOOLS_RUN_REACH_H
#define WEFT_TOOLS_RUN_REACH_H

#include "actors/round.h"
#include "runtime/env.h"
#include "runtime/status.h"

enum { WF_DEVICES_TEXT = 512 };

/* The host's name in the job (config/host_name.h): `given`, else WEFT_HOST_NAME, else the host's
 * name with a hash. INVALID: the given one is none. */
enum wf_status wf_reach_host_name(const char *given, char out[WF_HOST_MAX], struct wf_error *error);

/* "tcp:HOST:0" to listen at. `server`: the MetaServer's address; a unix one means that everything
 * is on this host, which gives loopback. `interfaces`: rules, or "". Blocks while a name is looked
 * up. CONNECTION: the name is unknown, no route leads there, or it is a loopback address here
 * though it is a name that others may know differently; NOT_FOUND: no interface is allowed. */
enum wf_status wf_reach_listen(const char *server, const char *interfaces, char out[WF_ADDRESS_MAX],
                               struct wf_error *error);

/* The devices that UCX may use under these rules, as its NET_DEVICES takes them: allowed interfaces
 * that are up, and RDMA devices that a rule names ("mlx5_0:1", "mlx5_*") or that are behind an
 * allowed interface. NOT_FOUND: there are none. */
enum wf_status wf_reach_devices(const char *interfaces, char out[WF_DEVICES_TEXT],
                                struct wf_error *error);

/* Where this process can listen as `address`: a name of this host is looked up, since a listener
 * needs a number. The rest is given as it is. The same errors. */
enum wf_status wf_reach_own(const char *address, char out[WF_ADDRESS_MAX], struct wf_error *error);

#endif
