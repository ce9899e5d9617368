#!/usr/bin/env python3
"""doubt.py WEFT CASE - a trainer's own deadline for a version: in doubt, and settled later, either way."""
import os
import signal
import sys

import e2e
from held import Held
from e2e import Watched, Work, check
from slow import PATIENT, SLOW


def held_vote(work, faults="", keeper=""):
    """Infer rank 0 stops itself before its first vote about version 2, until its trainer is told that it is in doubt."""
    path = work.path("job.yaml")
    with open(path, "w") as out:
        out.write(f'job: doubt\nmodel: {work.model}\ntrain: {{spec: "megatron:tp=1", deadline: {SLOW}s}}\n'
                  f'infer: [{{spec: "vllm:tp=1"}}{keeper}]\nrun: {{versions: 3}}\n{faults}{PATIENT}')
    held = Held(work.folder, "infer:0", "before", "vote", 2)
    job = Watched(path, env=held.environment)
    stopped = held.wait(job.pump)
    job.until("version 2 of 3 is in doubt: the trainer's deadline passed")
    os.kill(stopped, signal.SIGCONT)
    status, report = job.end()
    check("train rank 0: version 2 is in doubt: its outcome is not known in time; the weights stay held" in job.text,
          "the trainer was told, and holds", job.text[-3000:])
    return status, report, job.text


def step(entry):
    return int(entry["version"].split(".")[2])


def case_committed():
    with Work() as work:
        status, report, text = held_vote(work)
        check(status == 0 and report["ok"], "the job ends well", text[-3000:])
        states = [(step(entry), entry["state"]) for entry in report["versions"]]
        check(states == [(1, "committed"), (2, "committed"), (3, "committed")], "all versions are committed", states)
        check(report["versions"][1]["in_doubt"], "version 2 was in doubt", report["versions"])  # the others may be: a slow machine


def case_aborted():
    with Work() as work:
        faults = "faults: [" + ", ".join(f"{{kind: fail, at: {at}, ranks: [0]}}" for at in (2, 3, 4)) + "]\n"
        # Who keeps versions in a folder serves nobody, and is not counted below.
        status, report, text = held_vote(work, faults + "files: {folder: versions, keep: 2}\n", ', {name: keeper, spec: "hf:"}')
        check(status == 1 and not report["ok"], "a version was given up", text[-3000:])
        states = [(step(entry), entry["state"]) for entry in report["versions"]]
        check(states == [(1, "committed"), (2, "aborted"), (2, "aborted"), (2, "aborted"), (3, "committed")],
              "version 2 was given up, and the next one is committed", states)
        check(all(entry["in_doubt"] for entry in report["versions"] if step(entry) == 2), "all its attempts were late",
              report["versions"])
        check(text.count("version 2 of 3 is given up: the weights are free") == 1, "then the hold ended", text[-3000:])
        for attempt in (1, 2, 3):
            told = [line for line in text.splitlines() if f"version 2, attempt {attempt} aborted" in line]
            check(len(told) == 1 and told[0].endswith("; 1 infer rank keeps what it serves"), "an abort is told once, for all",
                  told)


if __name__ == "__main__":
    sys.exit(e2e.main(globals()))
