/* ucx_devices.h - which network devices UCX is given on a host that has bridges of its own. Private
 * to transports/ucx*.c and its tests.
 *
 * A bridge none of whose ports leads out of this host (docker0, virbr0, those of network
 * namespaces) comes and goes with the containers behind it, takes its connections along in silence,
 * and has the same address on every host. It claims 10 Gbit/s, so UCX before 1.16 prefers it over
 * what really joins two processes. Newer ones use no bridge at all unless told to.
 */
#ifndef WEFT_TRANSPORTS_UCX_DEVICES_H
#define WEFT_TRANSPORTS_UCX_DEVICES_H

#include <stdbool.h>
#include <stdint.h>

enum {
    UCX_DEVICES_MAX = 64, /* UCX's own limit of such a list */
    UCX_DEVICES_TEXT = 4096,
};

/* True: `out` names all devices but such bridges, as UCX's NET_DEVICES takes them: "lo,eth0" and
 * "mlx5_0:1". False: there is no such bridge, or the rest is too much for a list; UCX may choose
 * among all. `folder` is /sys/class; `interfaces` are those that have an address. */
bool ucx_devices_list(const char *folder, const char *const *interfaces, uint32_t count,
                      char out[static UCX_DEVICES_TEXT]);
/* Of this host, now. */
bool ucx_devices_now(char out[static UCX_DEVICES_TEXT]);
/* Of this host's interfaces and their addresses, now; another number when they changed; 0: there
 * are none, or they cannot be told. */
uint64_t ucx_devices_stamp(void);

#endif
