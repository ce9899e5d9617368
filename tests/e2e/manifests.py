#!/usr/bin/env python3
"""manifests.py WEFT CASE - jobs whose ranks have the layouts of manifests: the example of docs/manifests.md, what
`weft layout write` spells out, and files that are wrong."""
import json
import os
import re
import shutil
import struct
import subprocess
import sys

import e2e
from e2e import DEADLINE, MODELS, QWEN, WEFT, Work, check, check_report, run, start_server, weft
from slow import SLOW

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
BLOCKS = os.path.join(MODELS, "blocks-qwen3-moe.json")
LOOM = {"qkv": [96, 64], "out": [64, 64], "w13": [96, 64], "w2": [48, 64], "q_norm": [16], "k_norm": [16],
        "input_layernorm": [64], "post_attention_layernorm": [64]}
LOOM_JOB = "manifest:files=rank-%d.manifest,ranks=2"


def dump_of_loom(work):
    """What ranks of the document's engine would dump: here nothing but zeros."""
    tensors = {f"blocks.{layer}.{part}": shape for layer in range(4) for part, shape in LOOM.items()}
    tensors.update({"embed_tokens": [256, 64], "lm_head": [256, 64], "norm": [64]})
    header, end = {}, 0
    for name, shape in tensors.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    for rank in range(2):
        with open(work.path(f"rank_{rank:02}.safetensors"), "wb") as out:
            out.write(struct.pack("<Q", len(text)) + text + bytes(end))


def run_script(work, text):
    with open(work.path("describe.py"), "w", encoding="utf-8") as out:
        out.write(text)
    done = subprocess.run([sys.executable, work.path("describe.py"), work.folder], capture_output=True, text=True,
                          env=dict(os.environ, PYTHONPATH=os.path.join(ROOT, "tools")), timeout=DEADLINE, check=False)
    check(done.returncode == 0, "the script writes manifests", done.stderr)


def documents_script():
    with open(os.path.join(ROOT, "docs", "manifests.md"), encoding="utf-8") as text:
        return re.search("```python\n(.*?)```", text.read(), re.DOTALL).group(1)


def spell(work, model, spec, name, *more):
    done = weft("layout", "write", "--model", model, "--spec", spec, "--out", work.path(f"{name}-%d.manifest"), *more)
    check(done.returncode == 0 and "manifests" in done.stdout, f"{spec} is spelled out", done.stderr)


def commits(work, train, *infer, model=None):
    path = work.path("job.yaml")
    with open(path, "w") as out:
        groups = ", ".join(f'{{name: "g{i}", spec: "{spec}"}}' for i, spec in enumerate(infer))
        out.write(f'job: spelt\nmodel: {model or work.model}\ntrain: {{spec: "{train}"}}\ninfer: [{groups}]\nrun: {{versions: 2}}\n')
    status, report, text = run(path)
    check(status == 0, f"{train} -> {' and '.join(infer)}", text[-3000:])
    check_report(report, 2)
    check(report["manifests_lack"] == [], "the manifests have everything", report["manifests_lack"])
    check(all(v["elements_checked"] > 10000 for v in report["versions"]), "elements were checked", report["versions"])
    return report


def layout_json(*arguments):
    done = weft("layout", "show", *arguments, "--json", "-")
    check(done.returncode == 0, f"weft layout show {' '.join(arguments[:2])}", done.stderr)
    return json.loads(done.stdout)


def case_script():
    """An engine that no recipe describes, by the document's script; beside one with a recipe."""
    with Work() as work:
        dump_of_loom(work)
        run_script(work, documents_script())
        done = weft("layout", "show", "--manifest", work.path("rank-1.manifest"), "--model", QWEN)
        check(done.returncode == 0 and "blocks.3.w2 bf16 48x64" in done.stdout and "fill of 0, 768" in done.stdout,
              "the manifest is shown", done.stdout + done.stderr)
        alone = layout_json("--manifest", work.path("rank-1.manifest"))
        known = layout_json("--manifest", work.path("rank-1.manifest"), "--model", QWEN)
        check(alone["tensors"] == known["tensors"] and len(alone["tensors"]) == 35, "without the model too")
        report = commits(work, "megatron:tp=2,pp=2", LOOM_JOB + ",engines=2", "vllm:tp=2")
        done = weft("plan", "--model", QWEN, "--train", "megatron:tp=2,pp=2", "--infer", LOOM_JOB + ",engines=2", "--infer",
                    "vllm:tp=2", "--json", "-", cwd=work.folder)
        check(done.returncode == 0, "weft plan", done.stderr)
        plan = json.loads(done.stdout[done.stdout.index("{"):])
        check(plan["proof"] == "ok" and plan["bytes_moved"] == report["plan"]["bytes_moved"], "planned as it ran", plan)


def case_lacking():
    """What a manifest leaves out, and a rank that the SPEC forgets, are told where the proof finds nothing wrong."""
    with Work() as work:
        dump_of_loom(work)
        run_script(work, documents_script().replace("self_attn.v_proj", "self_attn.k_proj"))
        plan_of = ("plan", "--model", QWEN, "--train", "megatron:tp=1", "--infer")
        first = "model.layers.0.self_attn.v_proj.weight"
        done = weft(*plan_of, LOOM_JOB, cwd=work.folder)
        check(done.returncode == 0 and f"none of its ranks has 4 of the model's 47 parameters, the first is {first}" in done.stdout,
              "k written where v belongs", done.stdout + done.stderr)
        done = weft(*plan_of, "manifest:files=rank-%d.manifest", "--json", "-", cwd=work.folder)
        lack = {"spec": "manifest:files=rank-%d.manifest", "lacks": 4, "of": 47, "first": first, "next_file": True}
        check(json.loads(done.stdout)["manifests_lack"] == [lack], "in JSON, with the rank that was forgotten", done.stdout)
        path = work.path("job.yaml")
        with open(path, "w") as out:
            out.write(f'job: lack\nmodel: {work.model}\ntrain: {{spec: "megatron:tp=1"}}\n'
                      'infer: [{name: "loom", spec: "manifest:files=rank-%d.manifest"}]\nrun: {versions: 1}\n'
                      'policy: {validate_every: 0}\n')
        status, report, text = run(path)
        check(report["manifests_lack"] == [lack], "in the report", text[-3000:])
        check(status == 0 and text.count("there is a manifest for rank 1 too, but ranks=1") >= 1, "in the table", text[-3000:])


def case_compared():
    """A dump by manifests is compared in canonical names; manifests that say another thing are found out."""
    with Work() as work:
        dump_of_loom(work)
        run_script(work, documents_script())
        done = weft("dump", work.model, "--spec", "manifest:files=" + work.path("rank-%d.manifest") + ",ranks=2", "--out",
                    work.path("dump"))
        check(done.returncode == 0, "weft dump by manifests", done.stderr)
        done = weft("compare", work.model, work.path("dump"))
        check(done.returncode == 0 and "manifest:files=rank-%d.manifest,ranks=2, 2 ranks" in done.stdout, "the dump is the model",
              done.stdout + done.stderr)
        run_script(work, documents_script().replace("mlp.gate_proj", "mlp.other").replace("mlp.up_proj", "mlp.gate_proj")
                   .replace("mlp.other", "mlp.up_proj"))
        for rank in range(2):
            shutil.copy(work.path(f"rank-{rank}.manifest"), work.path("dump"))
        done = weft("compare", work.model, work.path("dump"))
        check(done.returncode == 1 and "matrices swapped" in done.stdout, "gate and up said the other way about", done.stdout)
        spell(work, BLOCKS, "vllm:tp=2,quant=vllm", "codes")
        with Work(BLOCKS) as other:
            done = weft("dump", other.model, "--spec", "manifest:files=" + work.path("codes-%d.manifest") + ",ranks=2,quant=vllm",
                        "--out", work.path("codes"))
            check(done.returncode == 0, "a dump of codes and scales", done.stderr)
            weft("dump", other.model, "--spec", "sglang:tp=1,quant=vllm", "--out", work.path("sglang"))
            done = weft("compare", work.path("codes"), work.path("sglang"))
            check(done.returncode == 0 and "quant=vllm, 2 ranks" in done.stdout, "is another engine's", done.stdout + done.stderr)
        os.unlink(work.path("dump/rank-1.manifest"))
        done = weft("compare", work.model, work.path("dump"))
        check(done.returncode == 1 and "rank-1.manifest" in done.stdout + done.stderr, "a missing one is named",
              done.stdout + done.stderr)


def case_spelled():
    """Manifests on both sides, of recipes: the plan is the recipes' plan. In fp8 too, where parameters are codes."""
    with Work() as work:
        spell(work, QWEN, "megatron:tp=2,pp=2", "train")
        spell(work, QWEN, "vllm:tp=2", "infer")
        manifest = layout_json("--manifest", work.path("infer-1.manifest"), "--model", QWEN)
        recipe = layout_json("--model", QWEN, "--spec", "vllm:tp=2", "--rank", "1")
        check(all(manifest[key] == recipe[key] for key in ("hash", "tensors", "aliases")), "the layout is the recipe's")
        spelt = commits(work, "manifest:files=train-%d.manifest,ranks=4", "manifest:files=infer-%d.manifest,ranks=2,engines=2")
        plain = commits(work, "megatron:tp=2,pp=2", "vllm:tp=2,engines=2")
        check(spelt["plan"]["hash"] == plain["plan"]["hash"], "the plan is the recipes'", spelt["plan"])
    with Work(BLOCKS) as work:
        spell(work, BLOCKS, "vllm:tp=2,ep=2,quant=vllm", "infer")
        commits(work, "megatron:tp=2", "manifest:files=infer-%d.manifest,ranks=2,quant=vllm", "vllm:tp=1")


def refused(work, spec, status, *words, train="megatron:tp=1"):
    done = weft("run", work.job(train, spec, versions=1))
    check(done.returncode == status and all(word in done.stderr for word in words), f"refused: {words[-1]}", done.stderr)


def case_command():
    """weft layout: what is wrong with a command line, and names of parameters where groups differ."""
    rows = [
        (2, "expected %d", ("write", "--model", QWEN, "--spec", "vllm:tp=2", "--out", "one.manifest")),
        (2, "write needs", ("write", "--model", QWEN, "--spec", "vllm:tp=2")),
        (2, "ranks 0 to 1", ("write", "--model", QWEN, "--spec", "vllm:tp=2", "--out", "one.manifest", "--rank", "2")),
        (2, "show --manifest FILE goes with", ("show", "--manifest", "none.manifest", "--spec", "vllm:tp=2")),
        (1, "none.manifest", ("show", "--manifest", "none.manifest")),
        (1, "no/one.manifest", ("write", "--model", QWEN, "--spec", "vllm:", "--out", "no/one.manifest")),
        (0, "one.manifest: 1 manifests, 35 tensors", ("write", "--model", QWEN, "--spec", "vllm:tp=2", "--out", "one.manifest",
                                                      "--rank", "1")),
    ]
    with Work() as work:
        for status, words, arguments in rows:
            done = weft("layout", *arguments, cwd=work.folder)
            check(done.returncode == status and words in done.stdout + done.stderr, words, done.stdout + done.stderr)
        config = work.path("fp8.json")
        with open(BLOCKS) as text, open(config, "w") as out:
            rule = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128],
                    "modules_to_not_convert": [f"model.layers.{i}.mlp.gate" for i in range(4)]}
            json.dump({**json.load(text), "quantization_config": rule}, out)
        for beside in ([], ["--beside", "megatron:"]):
            spell(work, config, "vllm:", "fp8", *beside)
            done = weft("layout", "show", "--manifest", work.path("fp8-0.manifest"), "--model", config, *beside)
            check(done.returncode == 0 and ("weight_scale_inv@deepseek[" in done.stdout) == bool(beside),
                  f"names {' '.join(beside) or 'of one group'}", done.stderr)
        done = weft("layout", "show", "--manifest", work.path("fp8-0.manifest"), "--model", config)
        check(done.returncode == 1 and "@deepseek" in done.stderr, "names of another job", done.stderr)


def case_author():
    """weft_manifest.py refuses what cannot be at the line that says it, by the parameter's name."""
    rows = [
        ("take past the parameter", "p: take=[(0, 9)] reaches past", dict(param="p", shape=[8], take=[(0, 9)])),
        ("take of fewer dimensions", "p: take=[(0, 4)]: expected an entry", dict(param="p", shape=[8, 6], take=[(0, 4)])),
        ("at past the tensor", "p: a box of [4, 6] at=[5, 0] reaches past", dict(param="p", shape=[4, 6], at=[5, 0])),
        ("at of more dimensions", "at=[0, 0, 0] reaches past", dict(param="p", shape=[4, 6], at=[0, 0, 0])),
        ("before the tensor", "at=[-1, 0] reaches past", dict(param="p", shape=[4, 6], at=[-1, 0])),
        ("along what is not there", "along=[0, 2]: expected", dict(param="p", shape=[4, 6], along=[0, 2])),
        ("along one twice", "along=[1, 1]: expected", dict(param="p", shape=[4, 6], along=[1, 1])),
        ("more dimensions", "expected a dimension", dict(param="p", shape=[2, 4, 6])),
        ("overlap", "p: overlap at=[0, 0]: there begins first", dict(param="p", shape=[4, 6])),
        ("nothing of it", None, dict(param="p", shape=[4, 6], take=[(4, 4), None])),
        ("transposed", None, dict(param="p", shape=[6, 4], along=[1, 0], at=[4, 0])),
    ]
    sys.path.insert(0, os.path.join(ROOT, "tools"))
    import weft_manifest  # pylint: disable=import-outside-toplevel
    for name, words, arguments in rows:
        tensor = weft_manifest.Manifest().tensor("blocks.0", "bf16", [8, 6])
        tensor.put("first", [1, 6])
        try:
            tensor.put(**arguments)
            found = None
        except ValueError as error:
            found = str(error)
        check(found is None if words is None else words in (found or ""), name, found)
    try:
        tensor.view([8, 7])
        check(False, "a view of another size")
    except ValueError as error:
        check("blocks.0 [8, 6] has no view [8, 7]" in str(error), "a view of another size", error)


def case_refused():
    """Of another model, damaged, missing, with a hole; and a rank that has read another file than the others."""
    with Work() as work:
        spell(work, os.path.join(MODELS, "tiny-llama.json"), "vllm:tp=1", "llama")
        spell(work, QWEN, "vllm:tp=2", "infer")
        refused(work, "manifest:files=llama-%d.manifest", 2, "llama-0.manifest", "reaches past its parameter")
        refused(work, "manifest:files=infer-%d.manifest,ranks=3", 2, "infer-2.manifest", "No such file")
        refused(work, "manifest:files=infer.manifest,ranks=2", 2, "%d")
        with open(work.path("infer-1.manifest"), "rb") as file:
            bytes_ = file.read()
        with open(work.path("cut-0.manifest"), "wb") as out:
            out.write(bytes_[:-9])
        refused(work, "manifest:files=cut-%d.manifest", 2, "cut-0.manifest", "expected")
        dump_of_loom(work)
        refused(work, "manifest:files=rank_00.safetensors", 2, "rank_00.safetensors: is no manifest: ")
        run_script(work, documents_script().replace('elif part == "w2":', 'elif part == "w2" and rank == 1: pass\n    elif part == "w2":'))
        refused(work, LOOM_JOB, 1, "blocks.0.w2", "infer rank 1")
    with Work() as work:
        dump_of_loom(work)
        run_script(work, documents_script())
        job = work.job(infer=LOOM_JOB, train="megatron:tp=1", versions=1, extra=f"timeouts: {{join: {6 * SLOW}s}}\n")
        other = work.path("other")
        os.mkdir(other)
        for name in os.listdir(work.folder):
            if name.endswith((".manifest", ".yaml")):
                shutil.copy(work.path(name), other)
        shutil.copy(work.path("rank-0.manifest"), os.path.join(other, "rank-1.manifest"))
        server, address = start_server(work, job)
        ranks = [subprocess.Popen([WEFT, "run", which, "--rank", rank, "--server", address], stderr=subprocess.PIPE, text=True)
                 for which, rank in ((job, "train:0"), (job, "infer:0"), (os.path.join(other, "job.yaml"), "infer:1"))]
        texts = "".join(rank.communicate(timeout=DEADLINE)[1] for rank in ranks)
        check(all(rank.returncode == 1 for rank in ranks), "another manifest stops the job", texts)
        check("infer rank 1" in texts and "another input hash" in texts and "manifests" in texts, "the rank is named", texts)
        server.kill()
        server.wait()


if __name__ == "__main__":
    sys.exit(e2e.main(globals()))
