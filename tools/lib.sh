# lib.sh - what the scripts share: packages, builds. Sourced by bash, not run.

WEFT_PACKAGES="gcc libc6-dev meson ninja-build pkg-config clang-format python3 python3-venv
libevent-dev libmsgpack-dev libcriterion-dev libcyaml-dev libyaml-dev libjson-c-dev libxxhash-dev"

say() { printf '\n== %s\n' "$*"; }

# Installs what is missing. Without root it only says what is missing.
weft_install() {
    local missing=()
    for package in $WEFT_PACKAGES; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' ||
            missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return 0
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "missing packages: ${missing[*]}" >&2
        echo "install them as root, for example: apt-get install ${missing[*]}" >&2
        return 1
    fi
    say "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null 2>&1 && return 0
    apt-get update -q && apt-get install -y -q --no-install-recommends "${missing[@]}"
}

# weft_build FOLDER [meson option...]: configures once, then builds.
weft_build() {
    local folder=$1
    shift
    if [ -f "$folder/build.ninja" ]; then
        meson configure "$folder" "$@" >/dev/null
    else
        meson setup "$folder" "$@"
    fi
    ninja -C "$folder" -v >"$folder/build.log" 2>&1 || {
        grep -E 'error|warning|FAILED' "$folder/build.log" | head -40
        echo "the build failed; all of it is in $folder/build.log" >&2
        return 1
    }
}
