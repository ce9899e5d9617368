#!/usr/bin/env python3
"""What `weft bench casts` measures, by eager torch on one core of the same machine.

    tools/bench/torch_casts.py build/weft [--pairs N]

Runs both, one after the other, and prints for each name the rate of each and their ratio; the rate is
(bytes read + bytes written) / 2 per second, as there. Block and row quantising are written as the
engines' own helpers do it: view, amax, scale, multiply or divide, cast. Without torch it says so and
ends well.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROWS = COLUMNS = 8192
BLOCK = 128
LARGEST = 448.0


def quantise(torch, x, rows, divide):
    """Codes and scales by blocks of rows x BLOCK."""
    view = x.view(ROWS // rows, rows, COLUMNS // BLOCK, BLOCK)
    scale = view.abs().float().amax(dim=(1, 3), keepdim=True).clamp(1e-4) / LARGEST
    scaled = view / scale if divide else view * (1.0 / scale)
    return scaled.to(torch.float8_e4m3fn).view(ROWS, COLUMNS), scale


def dequantise(torch, codes, scales):
    view = codes.view(ROWS // BLOCK, BLOCK, COLUMNS // BLOCK, BLOCK).float()
    return (view * scales).to(torch.bfloat16).view(ROWS, COLUMNS)


def jobs(torch):
    """Name, bytes read and written by an element, what is run."""
    wide = torch.randn(ROWS, COLUMNS) / 32
    half, f16 = wide.to(torch.bfloat16), wide.to(torch.float16)
    codes, scales = quantise(torch, half, BLOCK, False)
    e4m3, e5m2 = torch.float8_e4m3fn, torch.float8_e5m2
    return [
        ("bf16_to_f32", 6, lambda: half.to(torch.float32)),
        ("f32_to_bf16", 6, lambda: wide.to(torch.bfloat16)),
        ("f16_to_f32", 6, lambda: f16.to(torch.float32)),
        ("f32_to_f16", 6, lambda: wide.to(torch.float16)),
        ("bf16_to_e4m3", 3, lambda: half.to(e4m3)),
        ("f32_to_e4m3", 5, lambda: wide.to(e4m3)),
        ("bf16_to_e5m2", 3, lambda: half.to(e5m2)),
        ("e4m3_to_bf16", 3, lambda: codes.to(torch.bfloat16)),
        ("e4m3_to_f32", 5, lambda: codes.to(torch.float32)),
        ("fp8_block", 3, lambda: quantise(torch, half, BLOCK, False)),
        ("fp8_block_divide", 3, lambda: quantise(torch, half, BLOCK, True)),
        ("fp8_block_f32", 5, lambda: quantise(torch, wide, BLOCK, False)),
        ("fp8_row", 3, lambda: quantise(torch, half, 1, True)),
        ("fp8_dequant", 3, lambda: dequantise(torch, codes, scales)),
    ]


def rate_of(run, element_bytes, pairs):
    rates = []
    for _ in range(pairs + 1):
        start = time.perf_counter()
        run()
        rates.append(ROWS * COLUMNS * element_bytes / 2 / (time.perf_counter() - start) / 1e9)
    return statistics.median(rates[1:])


def weft_results(weft, pairs):
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "casts.json")
        subprocess.run([weft, "bench", "casts", "--pairs", str(pairs), "--json", report],
                       check=True, stdout=subprocess.DEVNULL)
        with open(report, encoding="utf-8") as text:
            return {result["name"].removeprefix("casts/"): result for result in json.load(text)}


def main():
    parser = argparse.ArgumentParser(description="weft bench casts beside eager torch, on one core")
    parser.add_argument("weft", help="the program, build/weft")
    parser.add_argument("--pairs", type=int, default=7, help="samples of each (7)")
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("torch cannot be imported here: nothing is measured beside weft")
        return 0
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one thread, {ROWS} x {COLUMNS}")
    print(f"{'':18} {'torch GB/s':>10} {'weft GB/s':>10} {'weft/torch':>10} {'weft/limit':>10}")
    by_torch = [(name, rate_of(run, size, options.pairs)) for name, size, run in jobs(torch)]
    by_weft = weft_results(options.weft, options.pairs)
    for name, rate in by_torch:
        found = by_weft[name]
        print(f"{name:18} {rate:10.2f} {found['median']:10.2f} {found['median'] / rate:10.1f} "
              f"{found['ratio']:10.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
