#!/bin/bash
# test.sh - installs what is missing, builds and runs the tests.
#
#   tools/test.sh             the suite, warnings as errors
#   tools/test.sh --sanitize  the suite under AddressSanitizer and UndefinedBehaviorSanitizer
#   tools/test.sh --minimal   builds and runs with every optional library off
#   tools/test.sh --ci        all three, one after the other
#
# Ends with "N passed, N failed" and exits 0 only if none failed.
set -u
cd "$(dirname "$0")/.." || exit 1
. tools/lib.sh

passed=0 failed=0

# Adds the counts of the meson run in folder $1.
count() {
    local counts
    counts=$(python3 - "$1/meson-logs/testlog.json" <<'PY'
import json, sys
good = bad = 0
try:
    for line in open(sys.argv[1]):
        result = json.loads(line)["result"]
        if result in ("OK", "EXPECTEDFAIL"):
            good += 1
        elif result != "SKIP":
            bad += 1
except OSError:
    bad += 1
print(good, bad)
PY
)
    passed=$((passed + ${counts% *}))
    failed=$((failed + ${counts#* }))
}

# run FOLDER [meson option...]
run() {
    local folder=$1
    shift
    say "tests in $folder ($*)"
    if ! weft_build "$folder" -Dtests=enabled -Dwerror=true "$@"; then
        failed=$((failed + 1))
        return
    fi
    rm -f "$folder/meson-logs/testlog.json"
    meson test -C "$folder" --no-rebuild --print-errorlogs 2>&1 | tail -n 120
    count "$folder"
}

run_plain() { run build-test -Dbuildtype=release; }
run_minimal() { run build-minimal -Dbuildtype=release -Ducx=disabled -Dnccl=disabled -Dcuda=disabled; }

# Criterion's process ends with status 0 when LeakSanitizer reports, so the reports go to files and
# any file fails the run. A program that leaks on purpose proves that the files are written.
run_sanitized() {
    local logs=$PWD/build-asan/sanitizer-logs
    rm -rf "$logs" && mkdir -p "$logs"
    ASAN_OPTIONS=log_path=$logs/report:detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1:log_path=$logs/report \
        run build-asan -Dbuildtype=debugoptimized -Db_sanitize=address,undefined -Db_lundef=false
    if [ -x build-asan/tests/runtime/leak_on_purpose ]; then
        ASAN_OPTIONS=log_path=$logs/proof:detect_leaks=1 build-asan/tests/runtime/leak_on_purpose >/dev/null 2>&1
    fi
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

weft_install || exit 1
case "${1:-}" in
'') run_plain ;;
--sanitize) run_sanitized ;;
--minimal) run_minimal ;;
--ci)
    run_plain
    run_minimal
    run_sanitized
    ;;
*)
    sed -n '2,10p' "$0" | sed 's/^# \{0,1\}//' >&2
    exit 2
    ;;
esac
echo
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
