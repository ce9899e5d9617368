#!/bin/sh
# A job under torchrun: one process a rank, train ranks first, then inference ranks. Run it on every node:
#
#   NNODES=2 NPROC=4 NODE_RANK=0 MASTER_ADDR=node1 config/examples/launchers/torchrun.sh JOB.yaml
#
# NNODES x NPROC has to be the job's number of ranks. On one node nothing but NPROC is needed. On several
# the job file needs `server: {listen: "*:PORT", token_file: F}`: rank 0 listens there, the others reach it at
# MASTER_ADDR; F is a file of mode 0600 that all nodes have (docs/watching.md).
set -eu
job=${1:?which job file?}
exec torchrun --no-python --nnodes "${NNODES:-1}" --nproc-per-node "${NPROC:?ranks on each node}" \
    --node-rank "${NODE_RANK:-0}" --master-addr "${MASTER_ADDR:-127.0.0.1}" --master-port "${MASTER_PORT:-29500}" \
    "${WEFT:-weft}" run "$job" --launcher torchrun
