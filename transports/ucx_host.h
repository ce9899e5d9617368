/* ucx_host.h - which process is meant by a pid. Private to transports/ucx*.c. */
#ifndef WEFT_TRANSPORTS_UCX_HOST_H
#define WEFT_TRANSPORTS_UCX_HOST_H

#include <stdint.h>
#include <sys/types.h>

/* When that process began, in the kernel's ticks since boot: with the pid it names one process. 0:
 * it cannot be seen. */
uint64_t ucx_host_pid_start(pid_t pid);

#endif
