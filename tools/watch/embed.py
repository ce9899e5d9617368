#!/usr/bin/env python3
"""embed.py FILE OUT.c NAME HEADER - writes a file as the C array NAME, which HEADER declares."""
import sys

source, target, name, header = sys.argv[1:]
with open(source, "rb") as file:
    data = file.read()
with open(target, "w", encoding="ascii") as out:
    out.write(f'/* {target.rsplit("/", 1)[-1]} - made by embed.py; not to be edited. */\n#include "{header}"\n\n')
    out.write(f"const size_t {name}_len = {len(data)};\nconst char {name}[] = {{\n")
    for start in range(0, len(data), 20):
        out.write("    " + "".join(f"{byte if byte < 128 else byte - 256}," for byte in data[start:start + 20]) + "\n")
    out.write("    0};\n")
