#!/usr/bin/env python3
"""corpus.py FUZZER [CORPUS.txt] - runs a fuzz target over its kept inputs, then over changed ones.

A corpus is one text file: an input in hexadecimal digits on each line, kept because it reaches what no other one does
(tools/fuzz makes it) or because it once failed.
"""
import os
import subprocess
import sys
import tempfile


def inputs(path):
    with open(path, encoding="ascii") as lines:
        return [bytes.fromhex(line) for line in lines if line.strip()]


def unpack(path, folder):
    """Each input in a file of its own; the files."""
    files = []
    for number, data in enumerate(inputs(path)):
        files.append(os.path.join(folder, f"kept-{number}"))
        with open(files[-1], "wb") as out:
            out.write(data)
    return files


def run_kept(fuzzer, path):
    with tempfile.TemporaryDirectory() as folder:
        files = unpack(path, folder)
        if not files:
            sys.exit(f"{path} has no inputs; remove it until there is one")
        print(f"{len(files)} kept inputs", flush=True)
        return subprocess.run([fuzzer, *files], check=False).returncode


def main(fuzzer, path=None):
    status = run_kept(fuzzer, path) if path else 0
    return status or subprocess.run([fuzzer], check=False).returncode


if __name__ == "__main__":
    status = main(*sys.argv[1:])
    sys.exit(status if status >= 0 else 128 - status)  # ended by a signal: a finding
