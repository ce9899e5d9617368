#!/usr/bin/env python3
"""make.py - writes the .pt files of this folder with torch itself, and beside them what must be read from them.

Run by hand with PyTorch (the files here: 2.6.0) and numpy; the tests only read the result. Of each file NAME.pt, NAME.tsv has
a line a tensor: name, dtype, shape, strides, its bytes in row-major order in hexadecimal digits. A file without a
.tsv is refused; what its sentence must hold is in the test.
"""
import argparse
import collections
import io
import os
import pathlib

import torch

HERE = pathlib.Path(__file__).parent


def counted(shape, dtype, start=0):
    """Values that differ from element to element, in any dtype."""
    count = int(torch.tensor(shape).prod()) if shape else 1
    values = (torch.arange(count) * 7 + start) % 23
    return (values % 2 == 0 if dtype == torch.bool else (values - (0 if dtype == torch.uint8 else 11)).to(dtype)).reshape(shape)


def line(name, tensor):
    raw = tensor.detach().contiguous().clone().flatten().view(torch.uint8).numpy().tobytes().hex() if tensor.numel() else ""
    dims = "x".join(map(str, tensor.shape)) or "-"
    strides = "x".join(map(str, tensor.stride())) or "-"
    return f"{name}\t{str(tensor.dtype).removeprefix('torch.')}\t{dims}\t{strides}\t{raw}\n"


def save(name, value, tensors, **options):
    torch.save(value, HERE / f"{name}.pt", **options)
    if tensors is not None:
        (HERE / f"{name}.tsv").write_text("".join(line(key, tensors[key]) for key in sorted(tensors)))


class Evil:
    def __reduce__(self):
        return os.system, ("true",)


def main():
    dtypes = ["float32", "float16", "bfloat16", "float64", "float8_e4m3fn", "float8_e5m2", "int64", "int32", "int16", "int8",
              "uint8", "bool"]
    flat = {f"t.{name}": counted([2, 3], getattr(torch, name), start) for start, name in enumerate(dtypes)}
    flat["scalar"] = counted([], torch.float32, 5)
    flat["empty"] = torch.zeros(0, 4)
    flat["parameter"] = torch.nn.Parameter(counted([4], torch.float32, 9))
    save("flat", flat, flat)

    base = counted([6, 8], torch.float32)
    large = counted([40], torch.bfloat16, 3)
    strided = {"turned": base.t(), "cut": base[1:4, 2:7], "steps": base[::2, ::3], "spread": large[3:7].unsqueeze(1).expand(4, 3),
               "tied.a": large[8:24], "tied.b": large[8:24], "permuted": large[:24].view(2, 3, 4).permute(2, 0, 1)}
    save("strided", strided, strided)

    linear = torch.nn.Linear(3, 2)
    with torch.no_grad():
        linear.weight.copy_(counted([2, 3], torch.float32))
        linear.bias.copy_(counted([2], torch.float32))
    state = linear.state_dict()  # an OrderedDict with _metadata
    save("module", state, dict(state))
    inner = collections.OrderedDict(state)
    inner["self_attention._extra_state"] = io.BytesIO(b"\x00\x01\xff")
    inner["none"] = None
    save("nested", {"model": inner, "iteration": 3, "rate": 0.5, "optimizer": {"state": {0: {"exp_avg": torch.ones(2)}}}}, dict(state))
    save("stages", {"model0": state, "model1": {"a": state["bias"]}, "checkpoint_version": 3.0},
         {**{f"model0.{key}": value for key, value in state.items()}, "model1.a": state["bias"]})
    save("protocol4", {"deep": {"er": flat["t.bfloat16"]}, "list": [1, 2]}, {"deep.er": flat["t.bfloat16"]}, pickle_protocol=4)
    many = {f"layers.{i}.weight": counted([2], torch.float32, i) for i in range(60)}  # memo beyond a byte
    whole = torch.cat(list(many.values()))
    many = {key: whole[2 * i:2 * i + 2] for i, key in enumerate(many)}  # one storage, or the file has 60 entries
    save("many", many, many)

    save("namespace", {"model": dict(state), "args": argparse.Namespace(tp=2)}, None)
    save("call", {"weight": state["bias"], "x": Evil()}, None)
    save("legacy", dict(state), None, _use_new_zipfile_serialization=False)
    save("no_dict", state["bias"], None)
    save("list", [state["bias"]], None)


if __name__ == "__main__":
    main()
