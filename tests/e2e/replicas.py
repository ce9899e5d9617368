#!/usr/bin/env python3
"""replicas.py WEFT CASE - copies that must be alike and are not: found, named, and not served.

Cases as in e2e.py, whose helpers they use. WEFT_TEST_ALTER (tools/run/alter.h) plants the differing bit.
"""
import os
import sys

import e2e
from e2e import MODELS, Work, check, run

QWEN3_MOE = os.path.join(MODELS, "tiny-qwen3-moe.json")


def altered(work, what, **job):
    """Runs a job of which one rank's weights differ by a bit; gives (status, report, text)."""
    path = work.job(**job)
    if what:
        os.environ["WEFT_TEST_ALTER"] = what
    try:
        return run(path)
    finally:
        os.environ.pop("WEFT_TEST_ALTER", None)


def states(report):
    return [v["state"] for v in report["versions"]]


def found(report, side, rank, *words):
    """The version that names the rank, with these words in its sentence."""
    for version in report["versions"]:
        culprit = version["culprit"]
        if culprit and (culprit["side"], culprit["rank"]) == (side, rank):
            text = culprit["object"] + " | " + culprit["reason"]
            return version if all(word in text for word in words) else None
    return None


def case_trainers():
    """A data-parallel copy, a norm of a tensor-parallel group, and a snapshot's: aborted by name, and never served."""
    dp = dict(train="megatron:tp=2,pp=2,dp=2", infer="vllm:tp=2", versions=3)
    with Work() as work:
        status, report, text = altered(work, None, **dp)
        check(status == 0 and all(v["replicas_checked"] == 10 and v["replicas_different"] == 0
                                  for v in report["versions"]), "copies are alike", text[-2000:])
        check("\ncopies   of 10 ranks compared with each other in 3 rounds, all alike\n" in text, "ranks are counted once", text[-2000:])
        for name, extra in (("hold", ""), ("snapshot", ", publish: snapshot")):
            # In pipeline stage 1, data-parallel copy 1: only rank 4 has the same.
            status, report, text = altered(work, "train:6,2,decoder.layers.0.mlp.linear_fc2.weight,5000",
                                           train_extra=extra, **dp)
            version = found(report, "train", 6, "model.layers.2.mlp.down_proj.weight, element 4996,",
                            "in decoder.layers.0.mlp.linear_fc2.weight", "than train rank 4 ", "not known")
            check(status == 1 and version and version["replicas_different"] == 1 and
                  [who["rank"] for who in version["culprits"]] == [6, 4], f"{name}: both ranks are named", text[-2000:])
            check(states(report) == ["committed", "aborted", "aborted"] and
                  all(v["elements_wrong"] == 0 for v in report["versions"]), f"{name}: nothing of it was served", text[-2000:])
            check("result   NOT OK" in text, f"{name}: the run is not ok", text[-500:])
        status, report, text = altered(work, "train:1,2,decoder.layers.0.self_attention.q_layernorm.weight,31", **dp)
        check(status == 1 and found(report, "train", 1, "model.layers.0.self_attn.q_norm.weight, element 15,",
                                    "3 of the 4 ranks that hold it"), "the one that differs from three is named", text[-2000:])
        status, report, text = altered(work, "train:6,2,decoder.layers.0.mlp.linear_fc2.weight,5000",
                                       extra="policy: {validate_every: 3}\n", **dp)
        check(states(report) == ["committed", "committed", "aborted"], "where only some versions are validated, those are",
              text[-2000:])


def case_engines():
    """An engine's own copy, beside another engine's and, of redundant experts, beside itself: served, and not ok."""
    with Work() as work:
        two = dict(train="megatron:tp=2", infer="vllm:tp=2,engines=2", versions=3)
        status, report, text = altered(work, "infer:2,2,model.layers.1.mlp.down_proj.weight,400", **two)
        version = found(report, "infer", 2, "of model.layers.1.mlp.down_proj.weight, element 392, than infer rank 0 ")
        check(status == 1 and version and version["state"] == "committed" and version["replicas_different"] == 1,
              "an engine's copy is named", text[-2000:])
        check("ranks compared with each other in 3 rounds, different in 1 of them, on 1 of the ranks at most\n" in text, "and counted", text[-2000:])
        check(report["versions"][2]["replicas_different"] == 0, "the next version is written over it", report["versions"])
    with Work(QWEN3_MOE) as work:
        redundant = dict(train="megatron:tp=2,ep=2,etp=1", infer="sglang:tp=2,ep=2,redundant=8", versions=2)
        status, report, text = altered(work, None, **redundant)
        check(status == 0 and all(v["replicas_checked"] > 2 for v in report["versions"]), "redundant experts are alike",
              text[-2000:])
        status, report, text = altered(work, "infer:1,2,model.layers.0.mlp.experts.w2_weight,0", **redundant)
        check(status == 1 and found(report, "infer", 1, "experts"), "a redundant expert is named", text[-2000:])


if __name__ == "__main__":
    sys.exit(e2e.main(globals()))
