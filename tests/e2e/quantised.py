#!/usr/bin/env python3
"""quantised.py WEFT CASE - engines that hold fp8 codes and scales: each is compared with what the rule makes of the
whole matrix, by the element check's own arithmetic."""
import json
import os
import signal
import struct
import sys

import e2e
import files
from e2e import MODELS, Work, check, check_report, run, weft


def blocks(name):
    return os.path.join(MODELS, f"blocks-{name}.json")


def write_job(work, train, infer, mode, extra=""):
    path = work.path("job.yaml")
    with open(path, "w") as out:
        groups = ", ".join(f'{{name: "g{i}", spec: "{spec}", mode: {mode}}}' for i, spec in enumerate(infer))
        out.write(f'job: quantised\nmodel: {work.model}\ntrain: {{{train}}}\ninfer: [{groups}]\nrun: {{versions: 2}}\n{extra}')
    return path


def moves(model, train, *infer, mode="staged", publish="hold", extra="", folder=None):
    """The report of a job of two versions, from known values or from a folder."""
    with Work(model) as work:
        work.model = folder or work.model
        path = write_job(work, f'spec: "{train}", publish: {publish}', infer, mode, extra)
        status, report, text = run(path)
        check(status == 0, f"{train} -> {' and '.join(infer)}", text[-3000:])
        check_report(report, 2)
        check(all(v["elements_checked"] > 10000 for v in report["versions"]), "elements were checked", report["versions"])
        return report


def refused(model, train, *infer):
    """The sentence that refuses a job."""
    with Work(model) as work:
        done = weft("run", write_job(work, f'spec: "{train}"', infer, "staged"))
        check(done.returncode in (1, 2), f"{train} -> {' and '.join(infer)} is refused", done.stderr)
        return done.stderr


def case_experts():
    """Half the bytes move, and every code and scale is the rule's: staged, in place, and beside an engine in bf16."""
    train = "megatron:tp=2,dp=2,ep=4,etp=1"
    plain = moves(blocks("qwen3-moe"), train, "vllm:tp=2,ep=2")
    half = moves(blocks("qwen3-moe"), train, "vllm:tp=2,ep=2,quant=vllm")
    ratio = half["plan"]["bytes_moved"] / plain["plan"]["bytes_moved"]
    check(ratio < 0.56, "about half the bytes move; embedding and head stay bf16", ratio)
    moves(blocks("qwen3-moe"), train, "vllm:tp=2,ep=2,quant=slime", "sglang:tp=2,quant=slime", "vllm:tp=2", mode="in_place")


def case_latents():
    """Latent attention, with the halves of kv_b_proj that SGLang dequantises for itself."""
    moves(blocks("deepseek-v3"), "megatron:tp=2,ep=2,etp=1,vocab_div=1", "vllm:tp=2,ep=2,quant=deepseek",
          "sglang:tp=2,quant=deepseek", "vllm:tp=2")


def case_shards():
    """From FSDP2 whose shards are whole blocks, by a trainer that publishes snapshots; to shares of experts of half a
    block too, for which vLLM repeats scales."""
    moves(blocks("qwen3-moe"), "fsdp:dp=2", "sglang:tp=2,quant=transformers", "vllm:tp=4,quant=transformers",
          publish="snapshot")


def case_cut():
    """From FSDP2 whose shards divide blocks: engines quantise what they assemble, each element as the rule has it."""
    plain = moves(blocks("qwen3-moe"), "fsdp:dp=3", "vllm:tp=2")
    both = moves(blocks("qwen3-moe"), "fsdp:dp=3", "vllm:tp=2,quant=vllm", "sglang:tp=2,quant=vllm", mode="in_place")
    check(both["plan"]["quantised_by_engines"]["matrices"] > 0 and plain["plan"]["quantised_by_engines"] is None,
          "the report says that engines quantised", both["plan"])
    check(all(v["replicas_checked"] > 0 and v["replicas_different"] == 0 for v in both["versions"]),
          "engines' codes are alike", both["versions"])
    ratio = both["plan"]["bytes_moved"] / plain["plan"]["bytes_moved"]
    check(1.1 < ratio < 1.9, "what is not cut moves as codes still: two engines get less than twice as much", ratio)
    moves(blocks("deepseek-v3"), "megatron:tp=4,ep=2,etp=1,vocab_div=1", "vllm:tp=2,quant=deepseek",
          "sglang:tp=2,quant=deepseek", publish="snapshot")


def case_filled():
    """An engine in fp8 is filled from a folder and from a replica in bf16, and from neither where trainers are in f32."""

    def kill(_, pid):
        os.kill(pid, signal.SIGKILL)

    def filled(fill, train="megatron:tp=2"):
        with Work(blocks("qwen3-moe")) as work:
            job = files.write_job(work, infer="vllm:tp=2,quant=vllm", fill=fill, train=train)
            return files.held(work, job, "infer:0,before,flipped,3", kill)

    for fill in ("folder", "engine"):
        status, report, text = filled(fill)
        check(status == 0 and report["ok"], f"the job ends well with {fill}", text[-4000:])
        fills = [(fill["state"], fill["source"].split()[0], fill["elements_wrong"]) for fill in report["fills"]]
        check(fills == [("committed", fill, 0)], f"filled from the {fill}", report["fills"])
        check(report["fills"][0]["elements_checked"] > 10000, "elements were checked", report["fills"])
    status, report, text = filled("folder", train="megatron:tp=2,dtype=f32")
    check(status == 1 and "would be others than theirs" in text, "codes of rounded values are refused", text[-3000:])


def case_rows():
    """A scale for each row: made by ranks that hold whole rows, and by engines where a cut divides them."""
    both = moves(blocks("qwen3-moe"), "megatron:tp=2,ep=2,etp=1", "vllm:tp=2,quant=channel_div", "sglang:tp=2,quant=channel_div")
    check(both["plan"]["quantised_by_engines"]["matrices"] == 2, "o_proj of two layers", both["plan"])


def halve_scales(folder):
    """Makes the scales of a folder bf16, as llm-compressor writes them."""
    path = os.path.join(folder, "model.safetensors")
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    out = b""
    for name, entry in sorted(header.items(), key=lambda item: item[1].get("data_offsets", [0])):
        if name == "__metadata__":
            continue
        first, end = entry["data_offsets"]
        part = data[first:end]
        if name.endswith("weight_scale"):
            part, entry["dtype"] = b"".join(part[i + 2:i + 4] for i in range(0, len(part), 4)), "BF16"
        entry["data_offsets"] = [len(out), len(out) + len(part)]
        out += part
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + out)


def case_rows_config():
    """A folder of compressed-tensors: its config says a scale for each row, and the scales are bf16."""
    with Work(blocks("qwen3-moe")) as work, open(blocks("qwen3-moe")) as text:
        weights = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}
        config = {**json.load(text), "quantization_config": {
            "quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head", "re:.*mlp.gate$"],
            "config_groups": {"group_0": {"weights": weights, "input_activations": {"dynamic": True}}}}}
        with open(work.path("rows.json"), "w") as out:
            json.dump(config, out)
        folder = work.path("folder")
        done = weft("make-checkpoint", "--model", work.path("rows.json"), "--out", folder)
        check(done.returncode == 0, "the folder is made", done.stderr)
        halve_scales(folder)
        moves(work.path("rows.json"), "fsdp:dp=2", "vllm:tp=2", "sglang:tp=2", folder=folder)


def case_refused():
    """Two rules in one job."""
    text = refused(blocks("qwen3-moe"), "megatron:tp=1", "vllm:tp=1,quant=vllm", "vllm:tp=1,quant=awex")
    check("quant=vllm" in text and "quant=awex" in text, "the refusal names both rules", text)


def case_fp8_config():
    """A config with fp8: a trainer in bf16 starts from codes and scales, engines have what the config says or ask
    otherwise, and versions are kept in fp8; a job runs from such a folder."""
    train, engines = "megatron:tp=2,dp=2,ep=4,etp=1", ["vllm:tp=2", "sglang:tp=2", "vllm:quant=none"]
    with Work(blocks("qwen3-moe")) as work, open(blocks("qwen3-moe")) as text:
        rule = {"quant_method": "fp8", "weight_block_size": [128, 128],
                "modules_to_not_convert": [f"model.layers.{i}.mlp.gate" for i in range(4)]}
        config = {**json.load(text), "quantization_config": rule}
        model = work.path("fp8.json")
        with open(model, "w") as out:
            json.dump(config, out)
        versions = work.path("versions")
        moves(model, train, *engines, "hf:", extra=f"files: {{folder: {versions}}}\n")
        newest = os.path.join(versions, max(os.listdir(versions)))
        with open(os.path.join(newest, "model.safetensors"), "rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        kept = {name: entry["dtype"] for name, entry in header.items() if ".layers.0.self_attn.o_proj." in name}
        check(sorted(kept.values()) == ["F32", "F8_E4M3"], "codes and scales are kept", kept)
        moves(model, "fsdp:dp=2", *engines[1:], folder=newest)


if __name__ == "__main__":
    sys.exit(e2e.main(globals()))
