#!/usr/bin/env python3
"""casts.py WEFT CASE - trainers in f32 and engines in bf16: what travels, what the origin casts once, and that no
element differs."""
import json
import os
import subprocess
import sys

import e2e
from e2e import WEFT, Work, check, check_report, weft
from transports import has_ucx, skip

# 10 million elements: what the limit is measured with varies by half a megabyte from run to run.
SIZES = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 256, "num_hidden_layers": 1,
         "vocab_size": 36000, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
         "intermediate_size": 1024, "tie_word_embeddings": True, "torch_dtype": "bfloat16"}
TCP = "transport: {prefer: ucx, ucx: {TLS: tcp}%s}\n"
VERSIONS = 2


def sized(folder):
    path = os.path.join(folder, "sizes.json")
    with open(path, "w") as out:
        json.dump(SIZES, out)
    return path


def alone(job):
    """Runs a job where nobody else uses the loopback device; gives the report and the bytes that went over it."""
    report = job + ".json"
    script = ('ip link set lo up && "$0" run "$1" --json "$2" && '
              "sed -n 's/^ *lo: *//p' /proc/net/dev")
    done = subprocess.run(["unshare", "--net", "sh", "-c", script, WEFT, job, report], capture_output=True, text=True,
                          timeout=e2e.DEADLINE, check=False)
    check(done.returncode == 0, os.path.basename(job), done.stdout[-2000:] + done.stderr[-2000:])
    with open(report) as text:
        return json.load(text), int(done.stdout.strip().split("\n")[-1].split()[8])


def can_be_alone():
    done = subprocess.run(["unshare", "--net", "ip", "link", "set", "lo", "up"], capture_output=True, check=False)
    return done.returncode == 0


def case_wire():
    """As many bytes travel from a trainer in f32 as from one in bf16, cast once or while they move."""
    if not has_ucx():
        skip()
        return
    if not can_be_alone():
        print("  skipped: a network of one's own needs root and iproute2", flush=True)
        return
    with Work() as work:
        done = weft("make-checkpoint", "--model", sized(work.folder), "--out", work.model + "-wide")
        check(done.returncode == 0, "a checkpoint of 20 MB", done.stderr)
        work.model += "-wide"
        sent = {}
        for name, train, budget in (("bf16", "megatron:tp=2", "64MiB"), ("once", "megatron:tp=2,dtype=f32", "64MiB"),
                                    ("moving", "megatron:tp=2,dtype=f32", "1MiB")):
            path = work.job(train, "vllm:engines=3", VERSIONS, name, TCP % f", transit_budget: {budget}")
            report, sent[name] = alone(path)
            check_report(report, VERSIONS)
            plan = report["plan"]
            moved, once, moving = plan["bytes_moved"], plan["cast_once_bytes"], plan["cast_moving_bytes"]
            check(all(v["bytes"] == moved for v in report["versions"]), f"{name}: bytes are the plan's", report["versions"])
            check(once + moving == (0 if name == "bf16" else moved), f"{name}: what narrows is told", plan)
            if name == "once":
                check(moving == 0 and once == 3 * plan["cast_made_bytes"], "once: for three engines", plan)
            elif name == "moving":
                check(moving > once and plan["cast_made_bytes"] < 2 << 20, "moving: most does not fit", plan)
        for name in ("once", "moving"):
            more = (sent[name] - sent["bf16"]) / (VERSIONS * moved)
            check(abs(more) < 0.1, f"{name}: as many bytes on the wire as from bf16; wide ones would be 1 more", more)


def case_kinds():
    """Snapshots, shards, engines in place and of two types; the command tells the same plan."""
    if not has_ucx():
        skip()
        return
    with Work() as work:
        train, infer = "fsdp:dp=2,dtype=f32", ["sglang:tp=2,engines=2", "vllm:engines=2,dtype=f16"]
        path = work.path("kinds.yaml")
        with open(path, "w") as out:
            groups = ", ".join(f'{{name: "g{i}", spec: "{spec}", mode: in_place}}' for i, spec in enumerate(infer))
            out.write(f'job: casts\nmodel: {work.model}\ntrain: {{spec: "{train}", publish: snapshot}}\n'
                      f'infer: [{groups}]\nrun: {{versions: {VERSIONS}}}\n' + TCP % ", transit_budget: 16MiB")
        status, report, text = e2e.run(path)
        check(status == 0, f"{train} -> {' and '.join(infer)}", text[-2000:])
        check_report(report, VERSIONS)
        plan = report["plan"]
        check(plan["cast_moving_bytes"] == 0 and plan["cast_once_bytes"] > 0, "all of it is cast once", plan)
        told = weft("plan", "--model", work.model, "--train", train, "--infer", infer[0], "--infer", infer[1],
                    "--transit-budget", "8MiB", "--json", "-")
        same = {key: json.loads(told.stdout)[key] for key in plan if key.startswith("cast_")}
        check(all(plan[key] == value for key, value in same.items()), "weft plan says so before", same)


if __name__ == "__main__":
    sys.exit(e2e.main(globals()))
