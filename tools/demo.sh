#!/bin/bash
# demo.sh - installs what is missing, builds Weft and moves the weights of real-sized models.
#
#   tools/demo.sh [FOLDER]      checkpoints, reports and pictures go to FOLDER (default weft-demo)
#
# First Qwen3-0.6B (1.2 GB of known values, made at the first run) from 4 Megatron ranks into two
# vLLM engines, 5 versions; then, if its Python package can be had, the real weights of
# SmolLM2-135M. Every element of every rank is checked after each version.
set -u
cd "$(dirname "$0")/.." || exit 1
. tools/lib.sh
folder=${1:-weft-demo}
failed=0

job() { # NAME JOB.yaml
    say "weft run $2"
    build/weft run "$2" --json "$folder/$1.json" --timeline "$folder/$1.svg" || failed=1
    echo "report   $folder/$1.json"
    echo "picture  $folder/$1.svg"
}

weft_install || exit 1
say "building"
weft_build build -Dbuildtype=release -Dtests=auto || exit 1
mkdir -p "$folder" || exit 1
job quickstart config/examples/quickstart.yaml
if tools/get_smollm2.sh weft-demo/smollm2-135m build; then
    job smollm2 config/examples/smollm2.yaml
else
    echo "going on without SmolLM2"
fi
[ "$failed" -eq 0 ] && say "all versions committed, every element right" || say "something failed, see above"
exit "$failed"
