#!/usr/bin/env python3
"""layouts.py WEFT CASE - jobs of other families and engines: every element of every version is checked."""
import os
import sys

import e2e
from e2e import MODELS, QWEN, Work, check, check_report, run


def tiny(name):
    return os.path.join(MODELS, f"tiny-{name}.json")


def commits(model, train, *infer, mode="staged"):
    """A job of two versions from `train` to all of `infer` at once."""
    with Work(model) as work:
        path = work.path("job.yaml")
        with open(path, "w") as out:
            groups = ", ".join(f'{{name: "g{i}", spec: "{spec}", mode: {mode}}}' for i, spec in enumerate(infer))
            out.write(f'job: layouts\nmodel: {work.model}\ntrain: {{spec: "{train}"}}\ninfer: [{groups}]\nrun: {{versions: 2}}\n')
        status, report, text = run(path)
        check(status == 0, f"{train} -> {' and '.join(infer)}", text[-3000:])
        check_report(report, 2)
        check(all(v["elements_checked"] > 10000 for v in report["versions"]), "elements were checked", report["versions"])


def case_experts():
    """Experts dealt out over a grid of their own, to two engines that hold them differently."""
    commits(tiny("qwen3-moe"), "megatron:tp=2,dp=2,ep=4,etp=1", "vllm:tp=2,ep=2", "sglang:tp=4")
    commits(tiny("qwen3-moe"), "fsdp:dp=3", "sglang:tp=2,ep=2", mode="in_place")


def case_latents():
    """Latent attention, a dense layer, shared experts, and a layer that predicts, which vLLM leaves out."""
    commits(tiny("deepseek-v3"), "megatron:tp=2,ep=2,etp=1,vocab_div=1", "vllm:tp=2,ep=2", "vllm:tp=2")


def case_delta_nets():
    """Gated delta nets and gated attention."""
    commits(tiny("qwen3-next"), "fsdp:dp=2", "vllm:tp=2", "sglang:tp=2")


def case_shards():
    """Uneven shards of FSDP2."""
    commits(QWEN, "fsdp:dp=3", "vllm:tp=2")


if __name__ == "__main__":
    sys.exit(e2e.main(globals()))
