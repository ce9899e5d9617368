# lib.sh - what the scripts share: packages, builds. Sourced by bash, not run.

WEFT_BUILD_PACKAGES="gcc libc6-dev meson ninja-build pkg-config python3 python3-venv
libevent-dev libmsgpack-dev libcyaml-dev libyaml-dev libjson-c-dev libmicrohttpd-dev libsodium-dev libxxhash-dev libucx-dev"
WEFT_TEST_PACKAGES="$WEFT_BUILD_PACKAGES libcriterion-dev clang-format iproute2 nftables"

say() { printf '\n== %s\n' "$*"; }

# apt_get ARGUMENT...: quiet; its output goes to the file $log.
apt_get() {
    DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=120 "$@" </dev/null >>"$log" 2>&1
}

# weft_install PACKAGE...: installs what is missing. Without root it only says what is missing.
# Where there is no dpkg nothing is checked: the build says what it does not find.
weft_install() {
    local missing=() package log
    command -v dpkg-query >/dev/null || return 0
    for package in "$@"; do
        [[ "$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null)" == *"ok installed"* ]] ||
            missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return 0
    if [ "$(id -u)" != 0 ]; then
        echo "missing packages: ${missing[*]}" >&2
        echo "as root: apt-get install --no-install-recommends ${missing[*]}" >&2
        return 1
    fi
    say "installing ${missing[*]} (one to three minutes)"
    log=$(mktemp) || return 1
    # The lists may be there and new enough; if they are not, they are fetched first.
    if apt_get install --no-install-recommends "${missing[@]}" ||
        { apt_get update && apt_get install --no-install-recommends "${missing[@]}"; }; then
        rm -f "$log"
        return 0
    fi
    tail -n 20 "$log" >&2
    echo "apt-get failed; all it said is in $log" >&2
    return 1
}

# weft_build FOLDER TARGET [meson option...]: configures if need be, then builds TARGET. Ninja shows its
# progress on a terminal, and elsewhere only what the compiler says.
weft_build() {
    local folder=$1 target=$2 said quiet=--quiet
    shift 2
    [ -t 1 ] && quiet=
    if [ -f "$folder/build.ninja" ]; then
        said=$(meson configure "$folder" "$@" 2>&1)
    else
        said=$(meson setup "$folder" "$@" 2>&1)
    fi || {
        echo "$said" >&2
        return 1
    }
    ninja -C "$folder" $quiet "$target" || {
        echo "the build in $folder failed; if this tree was moved or copied, remove $folder and try again" >&2
        return 1
    }
}
