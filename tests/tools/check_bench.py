#!/usr/bin/env python3
"""check_bench - `weft bench` keeps its contract: exit statuses, and the JSON report's shape."""
import json
import os
import subprocess
import sys
import tempfile

weft = sys.argv[1]
KEYS = {"name", "params", "machine", "unit", "samples", "median", "limit", "ratio"}


def run(*arguments):
    return subprocess.run([weft, "bench", *arguments], capture_output=True, text=True, check=False, timeout=120)


REFUSED = [
    # what is wrong, arguments, exit status, part of the message
    ("no name", [], 2, "which benchmark?"),
    ("unknown name", ["runtme"], 2, 'did you mean "runtime"?'),
    ("two names", ["runtime", "casts"], 2, "one too many"),
    ("unknown option", ["runtime", "--what"], 2, "--what"),
    ("pairs of zero", ["runtime", "--pairs", "0"], 2, "from 1 to 1000"),
    ("pairs with a suffix", ["runtime", "--pairs", "5k"], 2, "from 1 to 1000"),
    ("a folder that is not there", ["runtime", "--pairs", "1", "--json", "/nonexistent/x.json"], 1, "/nonexistent"),
    ("a full device", ["runtime", "--pairs", "1", "--json", "/dev/full"], 1, "/dev/full"),
]

failures = []
for name, arguments, status, text in REFUSED:
    done = run(*arguments)
    if done.returncode != status or text not in done.stderr:
        failures.append(f"{name}: exit {done.returncode}, expected {status}; stderr {done.stderr!r} lacks {text!r}")

with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "bench.json")
    done = run("runtime", "--pairs", "2", "--json", path)
    rows = json.load(open(path, encoding="utf-8")) if done.returncode == 0 else []
    if os.listdir(folder) != ["bench.json"]:
        failures.append(f"beside the report lies {os.listdir(folder)}")
    if len(json.loads(run("runtime", "--pairs", "1", "--json", "-").stdout)) != len(rows):
        failures.append("--json - is not the same list, alone, on standard output")
if not rows:
    failures.append(f"bench runtime ended with {done.returncode}: {done.stderr}")
for row in rows:
    if set(row) != KEYS or len(row["samples"]) != 2 or not row["median"] > 0:
        failures.append(f"wrong row: {row}")
    elif (row["limit"] is None) != (row["ratio"] is None):
        failures.append(f"limit and ratio go together: {row}")
    elif row["limit"] is not None and (not row["limit"]["how"] or not row["limit"]["median"] > 0):
        failures.append(f"a limit says how and how much: {row}")

print("\n".join(failures) if failures else f"{len(REFUSED)} refusals and {len(rows)} rows are as they should be")
sys.exit(1 if failures else 0)
