#!/usr/bin/env python3
"""compare_recipes.py WEFT CASE - weft compare of dumps whose recipe is not theirs, or whose files are not whole."""
import json
import os
import shutil
import sys

import e2e
from compare import Tensors, compare, dump, equal, make, model
from e2e import Work, check, weft


def changed(work, folder, name, **keys):
    """A copy of a dump with another recipe; None takes a key away."""
    shutil.copytree(folder, work.path(name))
    path = os.path.join(work.path(name), "recipe.json")
    with open(path) as text:
        recipe = {**json.load(text), **keys}
    with open(path, "w") as out:
        json.dump({key: value for key, value in recipe.items() if value is not None}, out)
    return work.path(name)


def case_wrong():
    """The recipe is blamed first, and what it would take to see what fits; what two ranks hold apart is no tied head."""
    with Work(model("tiny-qwen3")) as work:
        a = make(work, model("tiny-qwen3"))
        b = dump(work, a, "megatron:tp=2,pp=2", "b")
        equal(a, b)
        with open(os.path.join(a, "config.json")) as text:
            config = json.load(text)
        rows = [("sizes", "not what its recipe.json says (megatron:tp=4): 32 tensors of another shape", {"tp": 4, "pp": 1}),
                ("order", "3 that do not belong there, 2 parameters not there or not whole", {"order": "pp-tp-cp-ep-dp"}),
                ("engine", "70 that do not belong there, 47 parameters", {"engine": "vllm"}),
                ("heads", "16 tensors of another shape", {"model": {**config, "num_attention_heads": 4}}),
                ("typo", "B's recipe.json has to be put right: ", {"engine": "megatorn"}),
                ("no_model", "B's recipe.json has to be put right: ", {"model": None}),
                ("files", "expected the files of 8 ranks (megatron:tp=2,pp=4), rank_00 to rank_07; found those of 4", {"pp": 4})]
        for name, words, keys in rows:
            status, report = compare(a, changed(work, b, name, **keys))
            told = report["diagnosis"]
            check(status == 1 and told and words in told[0], f"{name}: the recipe is blamed first", told)
            check(not any("tied head" in line for line in told), f"{name}: no tensor is said to be there twice", told)
        longer = make(work, model("tiny-qwen3"), "longer", num_hidden_layers=6)
        status, report = compare(longer, b)
        check(status == 1 and report["diagnosis"] == ["A has 6 layers and B 4: not the same model, or a part of it; "
                                                      "--max-layers 4 compares those that both have"], "layers", report["diagnosis"])
        equal(longer, b, "--max-layers", "4")
        status, report = compare(a, changed(work, b, "padding", vocab_div=1))
        check(status == 1 and len(report["diagnosis"]) == 1 and "vocab_div" in report["diagnosis"][0], "padding alone", report["diagnosis"])


def case_files():
    """Rank files in each other's places, one that is empty, cut or missing; a folder's name with spaces."""
    with Work(model("tiny-qwen3")) as work:
        a = make(work, model("tiny-qwen3"))
        b = dump(work, a, "megatron:tp=2", "b")
        done = weft("dump", b, "--spec", "vllm:tp=2", "--out", work.path("c"))
        check(done.returncode == 1 and f"{b}: expected a Hugging Face folder" in done.stderr and
              "found a dump of megatron:tp=2" in done.stderr, "a dump of a dump is refused", done.stderr)
        done = weft("dump", a, "--spec", "vllm:", "--out", a)
        check(done.returncode == 1 and "name another folder for a dump" in done.stderr and
              sorted(os.listdir(a)) == ["config.json", "model.safetensors"], "so is one into the checkpoint", done.stderr)
        shutil.copytree(b, work.path("my dump (1)"))
        equal(a, work.path("my dump (1)"))
        one, other = (os.path.join(b, f"rank_{rank:02}.safetensors") for rank in (0, 1))
        os.rename(one, one + ".kept")
        os.rename(other, one)
        os.rename(one + ".kept", other)
        status, report = compare(a, b)
        check(status == 1 and report["diagnosis"] and report["diagnosis"][0].startswith("ranks in each other's places"), "ranks that are exchanged",
              report["diagnosis"])
        for what, words in ((lambda: os.truncate(other, 5000), "it is truncated"),
                            (lambda: os.truncate(other, 0), "found an empty file"),
                            (lambda: os.rename(other, other.replace("01", "02")), "no file rank_01.*")):
            what()
            done = weft("compare", a, b)
            check(done.returncode == 1 and words in done.stderr, f"{words} is told", done.stdout + done.stderr)
        loop = os.path.join(shutil.copytree(a, work.path("loop")), "config.json")
        os.unlink(loop)
        os.symlink("config.json", loop)
        done = weft("compare", a, work.path("loop"))
        check(done.returncode == 1 and "config.json: Too many levels" in done.stderr, "a config that cannot be read stops it",
              done.stdout + done.stderr)
        # Names that would rewrite a terminal.
        with open(work.path("names.tsv"), "w") as out:
            out.write("red\x1b[31m.weight\tbf16\t4x4\n")
        done = weft("layout", "detect", work.path("names.tsv"))
        check(done.returncode == 1 and "control character 0x1b" in done.stderr and "\x1b" not in done.stderr, "a rank's are refused",
              done.stderr)
        c = shutil.copytree(a, work.path("c"), dirs_exist_ok=True)
        with Tensors(os.path.join(c, "model.safetensors")) as t:
            t.add("red\x1b[31m.bias", "model.norm.weight", t.data["model.norm.weight"])
        done = weft("compare", a, c)
        check(done.returncode == 1 and "control character 0x1b" in done.stderr and "\x1b" not in done.stderr, "a folder's, too",
              done.stderr)


if __name__ == "__main__":
    sys.exit(e2e.main(globals()))
