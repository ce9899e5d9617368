#!/bin/sh
# A job under a PMIx launcher (PRRTE's prterun, srun --mpi=pmix): one process a rank, train ranks first.
#
#   RANKS=8 config/examples/launchers/pmix.sh JOB.yaml
#
# PMIx does not put the number of ranks into the environment; WEFT_WORLD_SIZE says it, so that a wrong one is
# refused at once instead of waited for. The job file needs `server: {listen: "HOST:PORT", token_file: F}`: the
# host of rank 0, and a file of mode 0600 that all hosts have (docs/watching.md).
set -eu
job=${1:?which job file?}
export WEFT_WORLD_SIZE="${RANKS:?the number of ranks of the job}"
exec prterun -x WEFT_WORLD_SIZE -n "$RANKS" "${WEFT:-weft}" run "$job" --launcher pmix
