#!/usr/bin/env python3
"""in_place.py WEFT CASE - engines updated in place: what they need, and what a death in a transfer leaves."""
import os
import signal
import sys

import e2e
from e2e import Watched, Work, check, check_report, run
from held import Held

IN_PLACE = 'vllm:tp=2,engines=2", mode: "in_place'


def case_memory():
    """Every element right, no read torn, the pause holds the transfer, and no second set of tensors."""
    with Work(layers=16) as work:
        peaks = {}
        for name, infer in (("staged", "vllm:tp=2,engines=2"), ("in_place", IN_PLACE)):
            status, report, text = run(work.job(infer=infer, versions=3))
            check(status == 0, name, text[-3000:])
            check_report(report, 3)
            peaks[name] = report["own_bytes_peak"]["infer"]
        for version in report["versions"][1:]:
            check(version["pause_seconds"] >= version["seconds"]["transfer"], "the transfer is in the pause", version)
        print("  own bytes of an inference rank:", peaks)
        check(peaks["in_place"] < peaks["staged"], "in place needs less", peaks)


def case_killed():
    """kill -9 of an infer rank while a version moves: its engine waits, paused, and all ends well."""
    with Work(layers=16) as work:
        held = Held(work.folder, "infer:1", "after", "digest_request", 3)
        job = Watched(work.job(infer=IN_PLACE, versions=4), env=held.environment)
        os.kill(held.wait(job.pump), signal.SIGKILL)
        status, report = job.end()
        check(status == 0 and report["ok"], "the job ends well", job.text[-4000:])
        check("infer rank 1 was killed by signal 9" in job.text, "the supervisor says who was killed")
        check(sum(v["torn_reads"] for v in report["versions"]) == 0, "no read is torn", report["versions"])
        steps = {v["version"].split(".")[2] for v in report["versions"] if v["state"] == "committed"}
        check(len(steps) == 4, "all steps are committed", report["versions"])


def case_replica():
    """A rank that is started again is filled from the other engine, while the trainer trains on."""
    with Work(layers=16) as work:
        for number in range(3):  # a version that waits may be sooner: then its round brings the rank back
            folder = work.path(str(number))
            os.mkdir(folder)
            held = Held(folder, "infer:1", "after", "resumed", 3)
            job = Watched(work.job(infer=IN_PLACE, versions=30, extra="policy: {commit: each}\n"), env=held.environment)
            os.kill(held.wait(job.pump), signal.SIGKILL)
            status, report = job.end()
            check(status == 0 and report["ok"], "the job ends well", job.text[-4000:])
            fills = [f for f in report["fills"] if f["state"] == "committed" and f["source"] == "engine 1"]
            if fills:
                break
        check(fills and fills[0]["bytes"] > 0, "the other engine was its source", report["fills"])


if __name__ == "__main__":
    sys.exit(e2e.main(globals()))
