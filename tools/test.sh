#!/bin/bash
# test.sh - installs what is missing, builds and runs the tests.
#
#   tools/test.sh             the suite, warnings as errors
#   tools/test.sh --sanitize  the suite under AddressSanitizer and UndefinedBehaviorSanitizer
#   tools/test.sh --minimal   a build with every optional library off, and what shows that it runs
#   tools/test.sh --ci        all three, one after the other
#
# Ends with the names of tests that this machine cannot run, if any, and "N passed, N failed"; exits 0
# only if none failed.
set -u
cd "$(dirname "$0")/.." || exit 1
. tools/lib.sh

passed=0 failed=0 skipped=

# Adds the counts of the meson run in folder $1, and the names of what was skipped.
count() {
    local good bad names
    read -r good bad names < <(python3 - "$1/meson-logs/testlog.json" <<'PY'
import json, sys
good = bad = 0
skipped = []
try:
    for line in open(sys.argv[1]):
        test = json.loads(line)
        if test["result"] in ("OK", "EXPECTEDFAIL"):
            good += 1
        elif test["result"] == "SKIP":
            skipped.append(test["name"].split(" / ")[-1])
        else:
            bad += 1
except OSError:
    bad += 1
print(good, bad, *skipped)
PY
)
    passed=$((passed + good))
    failed=$((failed + bad))
    [ -z "$names" ] || skipped="$skipped${skipped:+$'\n'}skipped in $1: ${names// /, }"
}

# build FOLDER [meson option...]: a build that fails counts as one failure.
build() {
    local folder=$1
    shift
    say "building $folder ($*)"
    weft_build "$folder" all -Dtests=enabled -Dwerror=true "$@" && return 0
    failed=$((failed + 1))
    return 1
}

# check FOLDER [meson test argument...]: the timeouts in the meson files, 150 s at most, are for a machine with
# nothing else to do; what hangs is ended within 10 minutes, and named.
check() {
    local folder=$1
    shift
    say "tests in $folder ($*)"
    rm -f "$folder/meson-logs/testlog.json"
    meson test -C "$folder" --no-rebuild --print-errorlogs --timeout-multiplier 4 "$@" </dev/null
    count "$folder"
}

run_plain() {
    build build-test -Dbuildtype=release && check build-test
}

# The sources are those of the plain build, so what can differ is whether they build, link and start: what has to do
# with no optional library is not run again.
# Built without optimisation: that is another compiler run for the warnings, and a quick one.
run_minimal() {
    build build-minimal -Doptimization=0 -Ddebug=false -Dhttp=disabled -Ducx=disabled -Dnccl=disabled -Dcuda=disabled &&
        check build-minimal --suite unit --no-suite pure && check build-minimal e2e/commit
}

# Criterion's process ends with status 0 when LeakSanitizer reports, so the reports go to files and
# any file fails the run. A program that leaks on purpose proves that the files are written. Of debugging
# information only lines are made (-g1), which is what a report shows: the rest is a quarter of the time.
run_sanitized() {
    local logs=$PWD/build-asan/sanitizer-logs
    build build-asan -Doptimization=1 -Ddebug=false -Dc_args=-g1 -Db_sanitize=address,undefined -Db_lundef=false || return
    rm -rf "$logs" && mkdir -p "$logs"
    # The style does not depend on the build. Fuzz targets run half a minute each, as findings are
    # seen here best.
    ASAN_OPTIONS=log_path=$logs/report:detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1:log_path=$logs/report \
        WEFT_FUZZ_SECONDS=30 check build-asan --no-suite style
    ASAN_OPTIONS=log_path=$logs/proof:detect_leaks=1 build-asan/tests/runtime/leak_on_purpose >/dev/null 2>&1
    if ls "$logs"/proof* >/dev/null 2>&1; then
        passed=$((passed + 1))
    else
        echo "the deliberate leak was not reported: sanitizer reports are not seen" >&2
        failed=$((failed + 1))
    fi
    rm -f "$logs"/proof*
    if ls "$logs"/report* >/dev/null 2>&1; then
        head -n 60 "$logs"/report*
        echo "sanitizer reports: $logs" >&2
        failed=$((failed + 1))
    fi
}

case "${1:-}" in
'') runs=run_plain ;;
--sanitize) runs=run_sanitized ;;
--minimal) runs=run_minimal ;;
--ci) runs="run_plain run_minimal run_sanitized" ;;
*)
    sed -n '2,10p' "$0" | sed 's/^# \{0,1\}//' >&2
    exit 2
    ;;
esac
weft_install $WEFT_TEST_PACKAGES || exit 1
for each in $runs; do
    $each
done
echo
[ -z "$skipped" ] || echo "$skipped"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
