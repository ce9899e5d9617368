#!/usr/bin/env python3
"""packed.py WEFT CASE - weights that are packed go through a job, dumps and compare as the bytes that they are."""
import json
import os
import sys

import e2e
from compare import Tensors
from e2e import Work, check, check_report, run, weft

SIZES = {"model_type": "qwen3_moe", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 101, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96, "num_experts": 8, "num_experts_per_tok": 2,
         "moe_intermediate_size": 64, "decoder_sparse_step": 1, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
INT4 = {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head", "re:.*self_attn.*"],
        "weights": {"num_bits": 4, "group_size": 16, "symmetric": True}}


def config(work):
    path = work.path("config.json")
    with open(path, "w") as file:
        json.dump({**SIZES, "quantization_config": INT4}, file)
    return path


def case_int4():
    """From files into vLLM, each element checked; vLLM's and SGLang's dumps, the one transposed, are equal."""
    with Work() as work:
        model, job = config(work), work.path("job.yaml")
        with open(job, "w") as out:
            out.write(f'job: packed\nmodel: {model}\ntrain: {{spec: "hf:"}}\n'
                      'infer: [{name: g, spec: "vllm:tp=2"}]\nrun: {versions: 2}\n')
        status, report, text = run(job)
        check(status == 0, "int4 from files into vLLM", text[-3000:])
        check_report(report, 2)
        check(all(v["elements_checked"] > 10000 for v in report["versions"]), "elements were checked", report["versions"])
        folder, dumps = work.path("checkpoint"), [work.path("vllm"), work.path("sglang")]
        for arguments in (("make-checkpoint", "--model", model, "--out", folder),
                          ("dump", folder, "--spec", "vllm:tp=2", "--out", dumps[0]),
                          ("dump", folder, "--spec", "sglang:tp=4,ep=2", "--out", dumps[1]),
                          ("compare", *dumps), ("compare", folder, dumps[1])):
            done = weft(*arguments)
            check(done.returncode == 0, " ".join(arguments), done.stderr + done.stdout)
        tensor = "model.layers.1.mlp.experts.routed_experts.w2_weight_packed"
        with Tensors(os.path.join(dumps[0], "rank_01.safetensors")) as rank:
            rank.data[tensor][20] ^= 1  # one number of eight in a word, by one
        done = weft("compare", folder, dumps[0])
        check(done.returncode == 1 and "weight_packed" in done.stdout, "one wrong number of four bits is found", done.stdout)


if __name__ == "__main__":
    sys.exit(e2e.main(globals()))
