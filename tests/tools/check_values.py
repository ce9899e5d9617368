"""check_values.py WEFT - the Python lines of docs/checkpoint-values.md recompute what make-checkpoint wrote.

Runs the program for three dtypes and compares every element of every tensor with the function of the
documentation. Standard library only.
"""
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

MANTISSA = {"bf16": 7, "f16": 10, "f32": 23}


def documented_function():
    with open("docs/checkpoint-values.md", encoding="utf-8") as page:
        source = re.search(r"```python\n(.*?)```", page.read(), re.S).group(1)
    names = {}
    exec(source, names)  # the lines that are tested
    return names["value"]


def numbers(data, dtype):
    if dtype == "bf16":
        words = struct.unpack(f"<{len(data) // 2}H", data)
        return struct.unpack(f"<{len(words)}f", struct.pack(f"<{len(words)}I", *(w << 16 for w in words)))
    return struct.unpack(f"<{len(data) // (2 if dtype == 'f16' else 4)}{'e' if dtype == 'f16' else 'f'}", data)


def check(weft, value, dtype):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([weft, "make-checkpoint", "--model", "tests/golden/models/tiny-llama.json",
                        "--layers", "1", "--dtype", dtype, "--out", folder], check=True, stdout=subprocess.DEVNULL)
        with open(os.path.join(folder, "model.safetensors"), "rb") as file:
            length, = struct.unpack("<Q", file.read(8))
            header, data = json.loads(file.read(length)), file.read()
    if header.pop("__metadata__")["weft_values"] != "1":
        sys.exit("the page describes version 1 of the values, the file has another")
    count = 0
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        for i, found in enumerate(numbers(data[begin:end], dtype)):
            expected = value(name, i, MANTISSA[dtype])
            if found != expected:
                sys.exit(f"{dtype} {name}[{i}]: the page says {expected}, the file has {found}")
            count += 1
    print(f"{dtype}: {count} elements of {len(header)} tensors agree")


def main():
    value = documented_function()
    for dtype in MANTISSA:
        check(sys.argv[1], value, dtype)


main()
