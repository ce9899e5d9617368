/* transport_world_kinds.h - the transports that the contract suite runs on. */
#ifndef WEFT_TESTS_CONTRACT_TRANSPORT_WORLD_KINDS_H
#define WEFT_TESTS_CONTRACT_TRANSPORT_WORLD_KINDS_H

#include "tests/contract/transport_world.h"

extern const struct world_kind world_shm_memfd, world_shm_process, world_fault, world_sim;
/* Only in builds with UCX. */
extern const struct world_kind world_ucx_tcp, world_ucx_rendezvous, world_ucx_posix, world_ucx_get;

#endif
