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
PACKED = {"I32": ("I", 4, 0), "U8": ("B", 1, 24)}  # how to read one, bytes, what is cut off
OF_FILES = {"BF16": "bf16", "F16": "f16", "F32": "f32", "F8_E4M3": "e4m3"}
INT4 = {"quant_method": "compressed-tensors", "format": "pack-quantized",
        "weights": {"num_bits": 4, "group_size": 16, "symmetric": True}}
NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def documented_function():
    with open("docs/checkpoint-values.md", encoding="utf-8") as page:
        source = re.search(r"```python\n(.*?)```", page.read(), re.S).group(1)
    names = {}
    exec(source, names)  # the lines that are tested
    return names


def e4m3(code):
    exponent, mantissa = code >> 3 & 15, code & 7
    return (-1 if code >> 7 else 1) * (mantissa + 8) * 2.0 ** (exponent - 10)  # known values are normal


def numbers(data, dtype):
    if dtype == "e4m3":
        return [e4m3(code) for code in data]
    if dtype == "bf16":
        words = struct.unpack(f"<{len(data) // 2}H", data)
        return struct.unpack(f"<{len(words)}f", struct.pack(f"<{len(words)}I", *(w << 16 for w in words)))
    return struct.unpack(f"<{len(data) // (2 if dtype == 'f16' else 4)}{'e' if dtype == 'f16' else 'f'}", data)


def packed(data, bits, name, kind):
    """How many elements agree, or the first that does not."""
    code, size, cut = PACKED[kind]
    found = struct.unpack(f"<{len(data) // size}{code}", data)
    for i, word in enumerate(found):
        if word != bits(name, i) >> cut:
            sys.exit(f"{kind} {name}[{i}]: the page says {bits(name, i) >> cut}, the file has {word}")
    return len(found)


def check(weft, page, title, model, *options):
    value = page["value"]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([weft, "make-checkpoint", "--model", model, "--layers", "1", "--out", folder, *options],
                       check=True, stdout=subprocess.DEVNULL)
        with open(os.path.join(folder, "model.safetensors"), "rb") as file:
            length, = struct.unpack("<Q", file.read(8))
            header, data = json.loads(file.read(length)), file.read()
    if header.pop("__metadata__")["weft_values"] != "2":
        sys.exit("the page describes version 2 of the values, the file has another")
    count = 0
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        if entry["dtype"] in PACKED:
            count += packed(data[begin:end], page["bits"], name, entry["dtype"])
            continue
        dtype = OF_FILES[entry["dtype"]]
        for i, found in enumerate(numbers(data[begin:end], dtype)):
            expected = value(name, i, MANTISSA[dtype]) if dtype != "e4m3" else 512 * value(name, i, 3)
            if found != expected:
                sys.exit(f"{dtype} {name}[{i}]: the page says {expected}, the file has {found}")
            count += 1
    print(f"{title}: {count} elements of {len(header)} tensors agree")


def main():
    page = documented_function()
    for dtype in MANTISSA:
        check(sys.argv[1], page, dtype, "tests/golden/models/tiny-llama.json", "--dtype", dtype)
    with open("tests/golden/models/tiny-qwen3.json", encoding="utf-8") as file:
        config = json.load(file)
    for title, quantised in (("fp8", FP8), ("int4", INT4), ("nvfp4", NVFP4)):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({**config, "quantization_config": quantised}, file)
            file.flush()
            check(sys.argv[1], page, title, file.name)


main()
