#!/usr/bin/env python3
"""compare.py WEFT CASE - weft compare and weft dump: equal sets are equal whatever their form, planted faults are named."""
import json
import os
import shutil
import struct
import sys

import e2e
from e2e import MODELS, Work, check, weft


def model(name):
    return os.path.join(MODELS, name + ".json")


class Tensors:
    """A safetensors file in memory: raw bytes by name, changed in place, written on leaving."""

    def __init__(self, path):
        self.path = path

    def __enter__(self):
        with open(self.path, "rb") as file:
            length, = struct.unpack("<Q", file.read(8))
            header, data = json.loads(file.read(length)), file.read()
        self.meta = header.pop("__metadata__", None)
        self.entry = header
        self.data = {name: bytearray(data[slice(*e["data_offsets"])]) for name, e in header.items()}
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            header, data = {"__metadata__": self.meta} if self.meta else {}, b""
            for name, e in self.entry.items():
                header[name] = {**e, "data_offsets": [len(data), len(data) + len(self.data[name])]}
                data += self.data[name]
            text = json.dumps(header).encode()
            text += b" " * (-len(text) % 8)
            with open(self.path, "wb") as file:
                file.write(struct.pack("<Q", len(text)) + text + data)

    def rows(self, name):
        each = len(self.data[name]) // self.entry[name]["shape"][0]
        return [self.data[name][i:i + each] for i in range(0, len(self.data[name]), each)]

    def put(self, name, rows):
        self.data[name][:] = b"".join(rows)

    def drop(self, name):
        del self.entry[name], self.data[name]

    def add(self, name, like, data):
        self.entry[name], self.data[name] = dict(self.entry[like]), bytearray(data)


def make(work, config, name="a", **changes):
    """A folder of known values; `changes` go into the config."""
    path = work.path(name + ".json")
    with open(config) as text, open(path, "w") as out:
        json.dump({**json.load(text), **changes}, out)
    done = weft("make-checkpoint", "--model", path, "--out", work.path(name))
    check(done.returncode == 0, f"{name} is made", done.stderr)
    return work.path(name)


def dump(work, folder, spec, name):
    done = weft("dump", folder, "--spec", spec, "--out", work.path(name))
    check(done.returncode == 0, f"a dump of {spec}", done.stderr)
    return work.path(name)


def compare(a, b, *arguments):
    done = weft("compare", a, b, "--json", "-", *arguments)
    check(done.returncode in (0, 1) and done.stdout.startswith("{"), "there is a report", done.stderr)
    return done.returncode, json.loads(done.stdout)


def equal(a, b, *arguments):
    status, report = compare(a, b, *arguments)
    check(status == 0 and report["ok"] and report["elements"] > 10000 and not report["diagnosis"],
          f"{os.path.basename(a)} equals {os.path.basename(b)}", report)


def case_equal():
    """Files, Megatron, FSDP, vLLM and SGLang hold the same, in pairs."""
    rows = [("tiny-llama", "megatron:tp=3", "vllm:tp=3", "fsdp:dp=2", "sglang:tp=3"),
            ("tiny-qwen3-moe", "megatron:tp=2,pp=2,ep=2,etp=1", "vllm:tp=2,ep=2", "sglang:tp=4"),
            ("tiny-deepseek-v3", "megatron:tp=2,ep=2,etp=1,vocab_div=1", "vllm:tp=2"),
            ("tiny-qwen3-next", "megatron:tp=2,ep=2,etp=1", "sglang:tp=2")]
    for name, *specs in rows:
        with Work(model(name)) as work:
            before = make(work, model(name))
            for i, spec in enumerate(specs):
                after = dump(work, work.path("a"), spec, f"d{i}")
                equal(before, after)
                before = after


def case_quantised():
    """Engines that hold codes and scales by a rule, beside plain weights, trainers, and each other."""
    sizes = {"hidden_size": 512, "head_dim": 64, "num_key_value_heads": 4, "intermediate_size": 768}
    with Work(model("tiny-qwen3")) as work:
        plain = make(work, model("tiny-qwen3"), **sizes)
        codes = dump(work, plain, "vllm:tp=2,quant=vllm", "v")
        equal(plain, codes)
        equal(codes, dump(work, plain, "megatron:tp=2", "m"))
        equal(codes, dump(work, plain, "sglang:quant=vllm", "s"))
        other = dump(work, plain, "sglang:quant=transformers", "t")
        equal(plain, other)
        status, report = compare(codes, other)
        check(status == 1 and not report["missing_a"] and not report["refused"], "two rules give different codes", report["value"])
        rows = dump(work, plain, "vllm:tp=2,quant=channel_div", "r")
        equal(plain, rows)
        equal(rows, dump(work, plain, "sglang:tp=4,quant=channel_div", "w"))


def write_rank(folder, rank, engine, config, tensors):
    """A rank of a dump, of {name: (shape, bytes)} in bf16."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "recipe.json"), "w") as out:
        json.dump({"engine": engine, "tp": 3, "model": config}, out)
    header, end = {}, 0
    for name, (shape, raw) in tensors.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + len(raw)]}
        end += len(raw)
    text = json.dumps(header).encode()
    with open(os.path.join(folder, f"rank_{rank:02}.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(raw for _, raw in tensors.values())


def part(rows, rank):
    return rows[len(rows) // 3 * rank:len(rows) // 3 * (rank + 1)]


def columns(rows, rank):
    return [part(row, rank) for row in rows]


def tensor(rows):
    return [len(rows), len(rows[0]) // 2], b"".join(rows)


def case_independent():
    """Dumps of a Llama over three ranks that a second program makes from the frameworks' rules, here; $WEFT_REAL_MODEL:
    of this folder, say SmolLM2-135M's real weights."""
    with Work(model("tiny-llama")) as work:
        a = os.environ.get("WEFT_REAL_MODEL") or make(work, model("tiny-llama"))
        with open(os.path.join(a, "config.json")) as text:
            config = json.load(text)
        check((config["model_type"], config["num_key_value_heads"], config["tie_word_embeddings"]) == ("llama", 3, True),
              "a KV head for each rank, and a tied head", config)
        hidden = config["hidden_size"]
        t = Tensors(os.path.join(a, "model.safetensors")).__enter__()  # only read: leaving it would write the file anew
        data, rows = {name: bytes(raw) for name, raw in t.data.items()}, t.rows
        for rank in range(3):
            megatron = {"embedding.word_embeddings.weight": tensor(part(rows("model.embed_tokens.weight"), rank)),
                        "decoder.final_layernorm.weight": ([hidden], data["model.norm.weight"])}
            vllm = {"model.embed_tokens.weight": tensor(part(rows("model.embed_tokens.weight"), rank)),
                    "model.norm.weight": ([hidden], data["model.norm.weight"])}
            for i in range(config["num_hidden_layers"]):
                hf, te = f"model.layers.{i}.", f"decoder.layers.{i}."
                q, k, v = (part(rows(f"{hf}self_attn.{x}_proj.weight"), rank) for x in "qkv")
                gate, up = (part(rows(f"{hf}mlp.{x}_proj.weight"), rank) for x in ("gate", "up"))
                o, down = (columns(rows(hf + x), rank) for x in ("self_attn.o_proj.weight", "mlp.down_proj.weight"))
                norms = [([hidden], data[hf + x]) for x in ("input_layernorm.weight", "post_attention_layernorm.weight")]
                # One KV head a rank, so one group of three query heads: q, k, v in both frameworks.
                megatron |= {te + "self_attention.linear_qkv.weight": tensor(q + k + v),
                             te + "self_attention.linear_qkv.layer_norm_weight": norms[0],
                             te + "self_attention.linear_proj.weight": tensor(o),
                             te + "mlp.linear_fc1.weight": tensor(gate + up),
                             te + "mlp.linear_fc1.layer_norm_weight": norms[1],
                             te + "mlp.linear_fc2.weight": tensor(down)}
                vllm |= {hf + "self_attn.qkv_proj.weight": tensor(q + k + v), hf + "self_attn.o_proj.weight": tensor(o),
                         hf + "mlp.gate_up_proj.weight": tensor(gate + up), hf + "mlp.down_proj.weight": tensor(down),
                         hf + "input_layernorm.weight": norms[0], hf + "post_attention_layernorm.weight": norms[1]}
            write_rank(work.path("megatron"), rank, "megatron", config, megatron)
            write_rank(work.path("vllm"), rank, "vllm", config, vllm)
        equal(a, work.path("megatron"))
        equal(work.path("megatron"), work.path("vllm"))


def named(work, fault, a, b, *words):
    status, report = compare(a, b)
    text = " ".join(report["diagnosis"])
    check(status == 1 and not report["ok"], f"{fault} is a difference", report)
    check(all(word in text for word in words) and len(report["diagnosis"]) == 1, f"{fault} is named", report["diagnosis"])


def copied(work, a, name="b"):
    shutil.copytree(a, work.path(name), dirs_exist_ok=True)
    return work.path(name), Tensors(os.path.join(work.path(name), "model.safetensors"))


LAYER = "model.layers.1."


def case_faults_of_engines():
    """Parts of fused tensors in the wrong order, in every rank of an engine's dump."""
    with Work(model("tiny-llama")) as work:
        a = make(work, model("tiny-llama"))
        for fault, tensor, order, words in (
                ("swapped gate and up", "mlp.gate_up_proj.weight", lambda r: r[len(r) // 2:] + r[:len(r) // 2], ["gate and up"]),
                ("q and k order", "self_attn.qkv_proj.weight", lambda r: r[24:32] + r[:24] + r[32:], ["q and k order"])):
            b = dump(work, a, "vllm:tp=3", fault[:3])
            for rank in range(3):
                with Tensors(os.path.join(b, f"rank_{rank:02}.safetensors")) as t:
                    t.put(LAYER + tensor, order(t.rows(LAYER + tensor)))
            named(work, fault, a, b, *words)


def case_faults_of_values():
    """Heads, a tied head, vocabulary, rounding, NaN, bias."""
    with Work(model("tiny-llama")) as work:
        a = make(work, model("tiny-llama"), attention_bias=True)
        q, embed = LAYER + "self_attn.q_proj.weight", "model.embed_tokens.weight"
        b, tensors = copied(work, a)
        with tensors as t:
            rows = t.rows(q)
            t.put(q, [rows[h * 8 + i // 2 + i % 2 * 4] for h in range(9) for i in range(8)])
        named(work, "wrong head interleave", a, b, "head interleave")
        b, tensors = copied(work, a)
        with tensors as t:
            stale = bytearray(t.data[embed])
            stale[0:4000:2] = bytes(x ^ 1 for x in stale[0:4000:2])
            t.add("lm_head.weight", embed, stale)
        named(work, "stale tied head", a, b, "stale tied head", "lm_head.weight")
        b, tensors = copied(work, a)
        with tensors as t:
            rows = t.rows(embed)
            t.put(embed, rows[:-40] + [bytes(len(rows[0]))] * 40)
        named(work, "truncated vocabulary", a, b, "vocabulary truncated", "last 40")
        b, tensors = copied(work, a)
        with tensors as t:
            down = LAYER + "mlp.down_proj.weight"
            t.data[down][0::14] = bytes(x ^ 1 for x in t.data[down][0::14])
        named(work, "bf16 double rounding", a, b, "rounded twice")
        b, tensors = copied(work, a)
        with tensors as t:
            t.data[q][10:12] = b"\xc0\x7f"
        named(work, "NaN", a, b, "NaN", "1 NaN in B")
        with Tensors(os.path.join(a, "model.safetensors")) as t:
            t.data[q][10:12] = b"\xc0\xff"
        done = weft("compare", a, b)
        check(done.returncode == 0 and "1 element of 1 parameter is NaN on both sides, which counts as equal; first " + q
              in done.stdout and compare(a, b)[1]["nan_both"] == 1, "NaN on both sides is told", done.stdout)
        a = make(work, model("tiny-llama"), "without_nan", attention_bias=True)
        b, tensors = copied(work, a)
        with tensors as t:
            t.drop(LAYER + "self_attn.k_proj.bias")
        named(work, "missing bias", a, b, "bias missing", "k_proj.bias")


def case_faults_of_experts():
    """Experts: transposed, shifted; a scale; layers that predict."""
    with Work(model("blocks-qwen3-moe")) as work:
        experts = LAYER + "mlp.experts."
        a = make(work, model("blocks-qwen3-moe"))
        b, tensors = copied(work, a)
        with tensors as t:
            for expert in range(8):
                name = f"{experts}{expert}.gate_proj.weight"
                rows = t.rows(name)
                t.put(name, [b"".join(bytes(row[2 * c:2 * c + 2]) for row in rows) for c in range(256)])
        named(work, "transposed experts", a, b, "transposed", "8 parameters")
        b, tensors = copied(work, a)
        with tensors as t:
            parts = ["gate_proj", "up_proj", "down_proj"]
            old = {(e, p): bytes(t.data[f"{experts}{e}.{p}.weight"]) for e in range(8) for p in parts}
            for e, p in old:
                t.data[f"{experts}{e}.{p}.weight"][:] = old[(e + 1) % 8, p] if e < 7 else old[e, p]
        named(work, "off-by-one expert", a, b, "wrong expert", "21 parameters")
        a = make(work, model("blocks-qwen3-moe"), "fp8", quantization_config={
            "quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic",
            "modules_to_not_convert": [f"model.layers.{i}.mlp.gate" for i in range(4)]})
        b, tensors = copied(work, a, "fp8b")
        with tensors as t:
            name = LAYER + "self_attn.o_proj.weight_scale_inv"
            scale, = struct.unpack("<f", t.data[name][4:8])
            t.data[name][4:8] = struct.pack("<f", 1.5 * scale)
        named(work, "wrong scale", a, b, "wrong scale", "o_proj")
        b, tensors = copied(work, a, "fp8b")
        with tensors as t:
            t.drop(name)
        for folder in (a, b):
            with open(os.path.join(folder, "config.json"), "w") as out:
                json.dump({"model_type": "harbor"}, out)
        status, report = compare(a, b)
        check(status == 1 and report["missing_b"] == [name], "codes without their scales lack something", report["missing_b"])
        a, b = work.path("a"), dump(work, work.path("a"), "vllm:tp=2,quant=vllm", "codes")
        equal(a, b)
        equal(b, dump(work, a, "sglang:tp=2,quant=vllm", "others"))
        with Tensors(os.path.join(b, "rank_01.safetensors")) as t:
            name = LAYER + "self_attn.o_proj.weight_scale_inv"
            scale, = struct.unpack("<f", t.data[name][0:4])
            t.data[name][0:4] = struct.pack("<f", 2 * scale)
        named(work, "wrong scale beside values", a, b, "wrong scale", "1 of 8 blocks")
        b = dump(work, a, "vllm:tp=2,quant=channel_mul", "rows")
        with Tensors(os.path.join(b, "rank_01.safetensors")) as t:
            name = LAYER + "self_attn.qkv_proj.weight_scale"
            scale, = struct.unpack("<f", t.data[name][20:24])
            t.data[name][20:24] = struct.pack("<f", 2 * scale)
        named(work, "a row's wrong scale beside values", a, b, "wrong scale", "1 of 512 rows")
    with Work(model("tiny-deepseek-v3")) as work:
        a = make(work, model("tiny-deepseek-v3"))
        b, tensors = copied(work, a)
        with tensors as t:
            for name in list(t.data):
                there = name.replace("model.layers.2.", "model.layers.3.")
                if there != name and there in t.data:
                    t.data[name][:] = t.data[there]
        named(work, "MTP shift", a, b, "MTP shift", "model.layers.3.")


def case_command():
    """Exit status, layers, tolerance, and what Weft does not know."""
    with Work(model("tiny-llama")) as work:
        a = make(work, model("tiny-llama"))
        b, tensors = copied(work, a)
        with tensors as t:
            t.data[LAYER + "mlp.down_proj.weight"][0] ^= 1
        status, report = compare(a, b)
        first = report["value"][0]
        check(status == 1 and first["name"] == LAYER + "mlp.down_proj.weight" and first["first_index"] == 0, "the element is named", report)
        check("\ndifferent: 1 of 38 parameters; " in weft("compare", a, b).stdout, "how many differ is told")
        check(compare(a, b, "--max-layers", "1")[0] == 0, "layer 1 is left out")
        c, tensors = copied(work, a, "c")
        with tensors as t:
            norm = t.data[LAYER + "input_layernorm.weight"]
            for i in range(0, len(norm), 2):
                bits, = struct.unpack_from("<H", norm, i)
                struct.pack_into("<H", norm, i, bits + 0x80)  # the next exponent
        status, report = compare(a, c)
        check(status == 1 and not report["diagnosis"], "bf16 that is doubled has no wrong scale: it has none", report)
        check(compare(a, b, "--tolerance", "bf16=0.1")[0] == 0, "within a tolerance")
        check(weft("compare", a).returncode == 2, "one folder is a usage error")
        check(weft("compare", a, work.path("nothing")).returncode == 1, "a folder that is not there")
        other = make(work, model("tiny-llama"), "other")
        with open(os.path.join(other, "config.json")) as text:
            config = json.load(text)
        with open(os.path.join(other, "config.json"), "w") as out:
            json.dump({**config, "model_type": "harbor"}, out)
        status, report = compare(a, other)
        check(any("does not support" in line and "harbor" in line for line in report["diagnosis"]), "an unknown family is told", report)


def case_validated():
    """Every second version, an engine's tensors against the checkpoint's files: a bit that is wrong is counted and named."""
    with Work() as work:
        job = work.job(train="megatron:tp=2", infer="vllm:tp=2", versions=4, extra="policy: {validate_every: 2}\n")
        tensor = "model.layers.1.mlp.down_proj.weight"
        status, report, text = altered(job, f"infer:1,2,{tensor},400")
        check(status == 1 and not report["ok"] and "result   NOT OK" in text, "the run is not ok", text[-2000:])
        check(f"version 2: 1 element is wrong, first {tensor}[200]: expected bits" in text, "element and bits are named", text)
        counts = [(v["elements_checked"] > 200000, v["elements_wrong"]) for v in report["versions"]]
        check(counts == [(False, 0), (True, 1), (False, 0), (True, 0)], "of versions 2 and 4 all elements are checked", counts)


def altered(job, what):
    os.environ["WEFT_TEST_ALTER"] = what
    try:
        return e2e.run(job)
    finally:
        del os.environ["WEFT_TEST_ALTER"]


if __name__ == "__main__":
    sys.exit(e2e.main(globals()))
