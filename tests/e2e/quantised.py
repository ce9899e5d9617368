#!/usr/bin/env python3
"""quantised.py WEFT CASE - engines that hold fp8 codes and scales: each is compared with what the rule makes of the
whole matrix, by the element check's own arithmetic."""
import os
import sys

import e2e
from e2e import MODELS, Work, check, check_report, run


def blocks(name):
    return os.path.join(MODELS, f"blocks-{name}.json")


def moves(model, train, *infer, mode="staged", extra="", versions=2, expect=0):
    """A job of some versions; its report, or None where it is refused."""
    with Work(model) as work:
        path = work.path("job.yaml")
        with open(path, "w") as out:
            groups = ", ".join(f'{{name: "g{i}", spec: "{spec}", mode: {mode}}}' for i, spec in enumerate(infer))
            out.write(f'job: quantised\nmodel: {work.model}\ntrain: {{spec: "{train}"}}\ninfer: [{groups}]\n'
                      f'run: {{versions: {versions}}}\n{extra}')
        status, report, text = run(path)
        name = f"{train} -> {' and '.join(infer)}"
        check(status == expect, name, text[-3000:])
        if expect == 0:
            check_report(report, versions)
            check(all(v["elements_checked"] > 10000 for v in report["versions"]), "elements were checked", report["versions"])
        return report, text


def case_experts():
    """Half the bytes move, and every code and scale is the rule's: staged, in place, and beside an engine in bf16."""
    train = "megatron:tp=2,dp=2,ep=4,etp=1"
    plain, _ = moves(blocks("qwen3-moe"), train, "vllm:tp=2,ep=2")
    half, _ = moves(blocks("qwen3-moe"), train, "vllm:tp=2,ep=2,quant=vllm")
    ratio = half["plan"]["bytes_moved"] / plain["plan"]["bytes_moved"]
    check(ratio < 0.56, "about half the bytes move; embedding and head stay bf16", ratio)
    moves(blocks("qwen3-moe"), train, "vllm:tp=2,ep=2,quant=slime", "sglang:tp=2,quant=slime", "vllm:tp=2", mode="in_place")


def case_latents():
    """Latent attention, with the halves of kv_b_proj that SGLang dequantises for itself."""
    moves(blocks("deepseek-v3"), "megatron:tp=2,ep=2,etp=1,vocab_div=1", "vllm:tp=2,ep=2,quant=deepseek",
          "sglang:tp=2,quant=deepseek", "vllm:tp=2")


def case_shards():
    """From FSDP2 whose shards are whole blocks; and a trainer that publishes snapshots."""
    moves(blocks("qwen3-moe"), "fsdp:dp=2", "sglang:tp=2,quant=transformers")


def case_rules():
    """Two rules in one job are refused before anything starts."""
    _, text = moves(blocks("qwen3-moe"), "megatron:tp=1", "vllm:tp=1,quant=vllm", "vllm:tp=1,quant=awex", expect=2)
    check("vllm" in text and "awex" in text, "the refusal names both rules", text)


if __name__ == "__main__":
    sys.exit(e2e.main(globals()))
