#!/usr/bin/env python3
"""layouts.py WEFT CASE - jobs of other families and engines: every element of every version is checked."""
import json
import os
import signal
import sys

import e2e
from e2e import MODELS, QWEN, Watched, Work, check, check_report, child_pid, run
from held import Held
from slow import PATIENT


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
        check([c["by"] for c in report["checks"]] == ["loaders"] * len(infer), "by the engines' loaders", report["checks"])


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


def case_less_one():
    """Norms that Megatron holds less 1: what arrives has been rounded once, with 1 taken off it."""
    commits(tiny("qwen3-next"), "megatron:tp=2", "vllm:tp=2", "sglang:tp=2")


def case_absorbed():
    """The halves of kv_b_proj that SGLang keeps beside it, and stages of models with experts."""
    commits(tiny("deepseek-v3"), "megatron:tp=2,ep=2,etp=1,vocab_div=1", "sglang:tp=2", "vllm:tp=2,pp=2")


def case_vision():
    """A vision tower, cut and whole, and experts that the checkpoint holds transposed, in one tensor."""
    commits(tiny("qwen3-vl-moe"), "fsdp:dp=2", "vllm:tp=2", "vllm:vision=data,tp=2", "sglang:tp=2")


def case_sinks():
    """gpt-oss: sinks, biases, rows of gate and up in turn."""
    commits(tiny("gpt-oss"), "megatron:tp=2,ep=2,etp=1", "vllm:tp=2", "sglang:tp=4,moe_backend=triton", mode="in_place")


def case_stages():
    """Stages of SGLang: the last one's head is a copy of the embedding; heads on all of them."""
    commits(QWEN, "megatron:tp=2,pp=2", "sglang:tp=2,pp=2", "vllm:pp=2")
    commits(tiny("qwen3-moe"), "fsdp:dp=2", "sglang:pp=2")


def case_gemma():
    """Four norms a layer, and an embedding that SGLang keeps whole."""
    commits(tiny("gemma3"), "megatron:tp=2", "vllm:tp=2", "sglang:tp=2")


def case_unchecked():
    """What nobody can check is refused, or said: in words and in the report."""
    with Work(tiny("qwen3-moe")) as work:
        path = work.path("job.yaml")
        for every in 1, 0:
            with open(path, "w") as out:
                out.write(f'job: unchecked\nmodel: {work.model}\ntrain: {{spec: "fsdp:dp=2"}}\n'
                          'infer: [{name: told, spec: "vllm:tp=2"}, '
                          '{name: untold, spec: "sglang:tp=2,moe_backend=flashinfer_cutlass"}]\n'
                          f'run: {{versions: 2}}\npolicy: {{validate_every: {every}}}\n')
            status, report, text = run(path)
            why = "the element check does not know what sglang changes with moe_backend=flashinfer_cutlass"
            check(why in text, "the option is named", text[-2000:])
            if every == 1:
                check(status == 1 and "set policy.validate_every to 0" in text, "the job is refused", text[-2000:])
                continue
            check(status == 0 and report["ok"] and "result   ok, as far as anybody looked" in text, "it runs", text[-2000:])
            told, untold = report["checks"]
            check(told["by"] == untold["by"] == "nothing" and "validate_every is 0" in told["why"] and why in untold["why"],
                  "the report says that nothing was checked", report["checks"])
            check(not any(v["elements_checked"] for v in report["versions"]), "nothing counts as checked")


def derives(model, train, spec, run_extra, mode="staged"):
    """What an engine derives is checked too: right, and stale when nobody makes it anew."""
    for skip in (False, True):
        with Work(model) as work:
            path = work.path("job.yaml")
            with open(path, "w") as out:
                out.write(f'job: derived\nmodel: {work.model}\ntrain: {{spec: "{train}"}}\n'
                          f'infer: [{{spec: "{spec}", mode: {mode}}}]\n'
                          f'run: {{versions: 2{run_extra}{", skip_derived: true" if skip else ""}}}\n')
            status, report, text = run(path)
            wrong = [v["elements_wrong"] for v in report["versions"]]
            if skip:
                check(status == 1 and all(wrong), f"stale derived tensors of {spec} are found", text[-2000:])
            else:
                check(status == 0, f"derived tensors of {spec}", text[-2000:])
                check_report(report, 2)


def case_derived():
    """A norm's weight plus 1, and a packed copy of a tied head."""
    derives(tiny("qwen3-next"), "fsdp:dp=2", "sglang:tp=2", "")
    derives(tiny("llama"), "megatron:tp=3", "vllm:tp=3", ", packed_head: true", mode="in_place")


def case_shards():
    """Uneven shards of FSDP2."""
    commits(QWEN, "fsdp:dp=3", "vllm:tp=2")


def write_table(path, *rows, key=None):
    with open(path, "w") as out:
        json.dump({key: rows} if key else rows, out)


FIRST, SECOND = [7, 0, 1, 2, 3, 4, 5, 6, 7, 7], [0, 0, 1, 1, 2, 3, 4, 5, 6, 7]


def write_moving(work, versions, extra=""):
    """A job whose engines move their experts: one group from a table to another, one that begins by rule."""
    write_table(work.path("a.json"), FIRST, SECOND)
    write_table(work.path("b.json"), SECOND, FIRST, key="physical_to_logical_map")
    path = work.path("job.yaml")
    with open(path, "w") as out:
        out.write(f"""job: placements
model: {work.model}
train: {{spec: "megatron:tp=2,ep=2,etp=1"}}
infer:
  - {{spec: "sglang:tp=2,ep=2,redundant=2,engines=2", placements: [{{table: a.json}}, {{table: b.json, after: 2}}]}}
  - {{spec: "vllm:tp=2,ep=2,eplb=1,redundant=2", mode: in_place, placements: [{{table: b.json, after: 1}}]}}
run: {{versions: {versions}}}
{extra}""")
    return path


def case_placements():
    """Experts that load balancing moves: from the start and between versions, in one engine of several."""
    with Work(tiny("qwen3-moe")) as work:
        path = write_moving(work, 4)
        status, report, text = run(path)
        check(status == 0, "experts move between versions", text[-3000:])
        check_report(report, 4)
        check(all(v["elements_checked"] > 10000 for v in report["versions"]), "elements were checked", report["versions"])
        write_table(work.path("b.json"), SECOND, [0] * 10)
        status, report, text = run(path)
        check(status == 2 and "infer[0].placements[1].table: the placement has expert 1 in no slot of layer 1" in text,
              "a table that leaves an expert out is refused", text[-1000:])


def case_placed_anew():
    """Ranks that are started again begin with their first table, or by rule; their engines have moved since."""
    with Work(tiny("qwen3-moe")) as work:
        held = Held(work.folder, "infer:0", "before", "vote", 4)
        job = Watched(write_moving(work, 6, PATIENT), env=held.environment)
        os.kill(held.wait(job.pump), signal.SIGKILL)
        os.kill(child_pid(job.process.pid, "--rank", "infer:5"), signal.SIGKILL)
        status, report = job.end()
        check(status == 0 and report["ok"], "the job ends well", job.text[-4000:])
        check(all(f"infer rank {rank} was killed by signal 9" in job.text for rank in (0, 5)), "two ranks were killed")
        steps = {v["version"].split(".")[2] for v in report["versions"] if v["state"] == "committed"}
        check(len(steps) == 6, "all steps are committed", report["versions"])
        check(sum(v["elements_wrong"] + v["torn_reads"] for v in report["versions"] + report["fills"]) == 0, "nothing is wrong")


if __name__ == "__main__":
    sys.exit(e2e.main(globals()))
