#!/bin/bash
# check_get_smollm2.sh - tools/get_smollm2.sh says in one line and by exit status 3 that it cannot,
# whatever is missing, and does nothing when the folder is complete. Runs against stubs: no network.
set -u
script=$PWD/tools/get_smollm2.sh
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
failed=0

# expect NAME STATUS LINES-ON-STDERR: runs the script with the stubs.
expect() {
    PATH="$work/bin:$PATH" "$script" "$work/model" "$work/build" >"$work/out" 2>"$work/err"
    local status=$? lines
    lines=$(wc -l <"$work/err")
    if [ $status -ne "$2" ] || [ "$lines" -ne "$3" ]; then
        echo "$1: status $status (expected $2), $lines lines (expected $3):"
        cat "$work/err"
        failed=1
    fi
}

printf '#!/bin/sh\nexit 1\n' >"$work/bin/python3"
chmod +x "$work/bin/python3"
expect "python without venv" 3 1

# A python3 whose venv has a pip that cannot reach anything.
cat >"$work/bin/python3" <<'STUB'
#!/bin/sh
mkdir -p "$4/bin"
printf '#!/bin/sh\nexit 1\n' >"$4/bin/pip"
cp "$4/bin/pip" "$4/bin/python"
chmod +x "$4/bin/pip" "$4/bin/python"
STUB
expect "pip offline" 3 1

mkdir "$work/model"
touch "$work/model/config.json" "$work/model/model.safetensors"
expect "complete folder" 0 0

"$script" 2>/dev/null
[ $? -eq 2 ] || { echo "no arguments: expected status 2"; failed=1; }
exit $failed
