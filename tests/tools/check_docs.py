#!/usr/bin/env python3
"""check_docs.py WEFT - what the pages show is what the program does.

Blocks that begin with "$ weft" are run, and their lines have to be in what comes out, one after the other; lines
"weft ..." and "build/weft ..." of sh blocks that move nothing have to succeed; files that pages name have to be
there; and every example job has to be one that would run.
"""
import glob
import os
import re
import shlex
import subprocess
import sys

WEFT = os.path.abspath(sys.argv[1])
PAGES = ["README.md", "CONTRIBUTING.md", *sorted(glob.glob("docs/*.md"))]
# What a reader puts in for the pages' own names.
READERS = {"/models/Qwen3-8B": "tests/golden/configs/Qwen3-8B.json", "CONFIG.json": "tests/golden/configs/Qwen3-8B.json"}
HARMLESS = ("plan", "layout")  # the others move, measure or wait
failed = []


def weft(words):
    words = [READERS.get(word, word) for word in words]
    return subprocess.run([WEFT, *words], capture_output=True, text=True, timeout=60, check=False)


def fail(page, what, detail=""):
    failed.append(page)
    print(f"FAILED: {page}: {what} {detail}")


def blocks(page):
    """(language, lines) of each fenced block."""
    with open(page, encoding="utf-8") as text:
        for match in re.finditer(r"^```(\w*)\n(.*?)^```", text.read(), re.DOTALL | re.MULTILINE):
            yield match.group(1), match.group(2).replace("\\\n", " ").splitlines()


def variables(page):
    found = {}
    for language, lines in blocks(page):
        for line in lines if language == "sh" else ():
            match = re.fullmatch(r'(\w+)="(.*)"', line)
            if match:
                found[match.group(1)] = match.group(2)
    return found


def words_of(command, known):
    for name, value in known.items():
        command = command.replace("$" + name, value)
    return shlex.split(command, comments=True)


def check_shown(page, command, lines, known):
    done = weft(words_of(command, known)[1:])
    printed, expected = done.stdout.splitlines(), [line for line in lines if line]
    places = [i for i, line in enumerate(printed) if expected and line == expected[0]]
    if done.returncode != 0 or not any(printed[i:i + len(expected)] == expected for i in places):
        fail(page, command, "does not print " + "\n".join(expected) + "\n" + done.stderr)


def check_page(page):
    known, count = variables(page), 0
    for language, lines in blocks(page):
        if lines and lines[0].startswith("$ weft "):
            check_shown(page, lines[0][2:], lines[1:], known)
            count += 1
        for line in lines if language == "sh" else ():
            words = words_of(line, known) if re.match(r"(build/)?weft ", line) else []
            if len(words) > 1 and words[1] in HARMLESS:
                done = weft(words[1:])
                count += 1
                if done.returncode != 0:
                    fail(page, line, done.stderr)
    return count


def check_names(page):
    with open(page, encoding="utf-8") as text:
        for name in set(re.findall(r"`((?:tools|tests|config|docs|models|actors|runtime|transports)/[\w./*{},-]*)", text.read())):
            names = [name.replace(group, "{" + one + "}").replace("{" + one + "}", one)
                     for group in re.findall(r"\{[^}]*\}", name)[:1] for one in group[1:-1].split(",")] or [name]
            for one in names:
                if not glob.glob(one.rstrip(".,")) and not glob.glob(one.rstrip(".,") + ".*"):
                    fail(page, "names a file that is not there:", one)


def check_example(path):
    done = weft(["run", path, "--rank", "train:999", "--server", "localhost:1"])
    fetched = "weft-demo/" in done.stderr  # by tools/demo.sh, or by hand
    if "--rank train:999: the job has" not in done.stderr and not fetched:
        fail(path, "would not run:", done.stderr)


def main():
    commands = sum(check_page(page) for page in PAGES)
    for page in PAGES:
        check_names(page)
    examples = sorted(glob.glob("config/examples/*.yaml"))
    for path in examples:
        check_example(path)
    print(f"{commands} commands of {len(PAGES)} pages, {len(examples)} jobs, {len(failed)} failed")
    return bool(failed) or commands < 8 or len(examples) < 10


if __name__ == "__main__":
    sys.exit(main())
