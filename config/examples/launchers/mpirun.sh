#!/bin/sh
# A job under Open MPI's mpirun: one process a rank, train ranks first, then inference ranks.
#
#   RANKS=8 config/examples/launchers/mpirun.sh JOB.yaml [MORE OPTIONS OF mpirun]
#
# On several hosts (for example --host node1:4,node2:4) the job file needs `server: {listen: "node1:PORT",
# token_file: F}` with the host of rank 0, which mpirun does not tell, and a file of mode 0600 that all hosts
# have (docs/watching.md). MPI itself is not used: any build of it will do.
set -eu
job=${1:?which job file?}
shift
exec mpirun -n "${RANKS:?the number of ranks of the job}" "$@" "${WEFT:-weft}" run "$job" --launcher openmpi
