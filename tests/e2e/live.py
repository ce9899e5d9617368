#!/usr/bin/env python3
"""live.py WEFT CASE - weft compare --against-live: files against what the ranks of a running job hold."""
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import e2e
from compare import Tensors
from e2e import MODELS, WEFT, Watched, Work, check, weft
from files import wait_for
from held import Held
from transports import has_ucx
from slow import PATIENT

JOB = """job: live
model: {model}
train: {{spec: "{train}"}}
infer:
  - {{name: engines, spec: "{infer}"}}
  - {{name: keeper, spec: "hf:"}}
files: {{folder: versions, keep: 3}}
run: {{versions: {versions}}}
"""


class Standing:
    """A job or a command of which a process stands still at a point."""

    def __init__(self, work, point, start):
        held = Held(work.folder, *point.split(","))
        self.started = start(held.environment)
        self.pid = held.wait(self.look)

    def look(self, seconds):
        """A job's output is read, so that it does not wait for us."""
        running = self.started
        if isinstance(running, Watched):
            if not running.pump(seconds) or running.process.poll() is not None:
                raise e2e.Failed("the job ended too early: " + running.text[-3000:])
        elif running.poll() is not None:
            raise e2e.Failed("it ended too early: " + running.communicate()[1])
        else:
            time.sleep(seconds)

    def go_on(self):
        os.kill(self.pid, signal.SIGCONT)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not None:  # who stands still cannot end
            self.go_on()
            job = self.started.process if isinstance(self.started, Watched) else self.started
            job.terminate()
            job.wait(timeout=e2e.DEADLINE)


def job_held(work, point, versions, train="megatron:tp=2", infer="vllm:tp=2,engines=2", extra=""):
    path = work.path("job.yaml")
    with open(path, "w") as out:
        out.write(JOB.format(model=work.model, versions=versions, train=train, infer=infer) + PATIENT + extra)
    return path, Standing(work, point, lambda environment: Watched(path, env=environment))


def versions_of(work):
    names = [name for name in os.listdir(work.path("versions")) if not name.startswith(".")]
    return sorted((work.path("versions/" + name) for name in names), key=lambda path: int(path.split(".")[-1]))


def stored(work, step):
    """The folder of that version, or nothing."""
    there = versions_of(work) if os.path.isdir(work.path("versions")) else []
    return next((path for path in there if path.endswith(f".{step}")), None)


def wait_flipped(job, path, step, ranks):
    """Until these infer ranks have the version: a folder may hold it while some of them have yet to flip."""
    def all_have():
        done = weft("status", path, "--json", "-")
        there = json.loads(done.stdout)["ranks"] if done.returncode == 0 else []
        have = {rank["rank"] for rank in there if rank["side"] == "infer" and (rank["version"] or "").endswith(f".{step}")}
        return have.issuperset(ranks)
    wait_for(job, all_have)


def compare(folder, where, *arguments):
    done = weft("compare", folder, "--against-live", where, "--json", "-", *arguments)
    return done.returncode, json.loads(done.stdout) if done.stdout.startswith("{") else None, done.stderr


def equal(folder, where, what):
    status, report, text = compare(folder, where)
    check(status == 0 and report["ok"] and report["elements"] > 10000, f"{what} holds what the folder has", text or report)
    check(report["b"]["version"] == os.path.basename(folder), f"and {what} says which version that is", report["b"])


def open_comparison(work, folder, where, copies):
    """One that stands still before it has read everything, for as long as the job needs."""
    command = [WEFT, "compare", folder, "--against-live", where, "--json", "-", "--timeout", "240"]
    return Standing(work, f"compare,job,shm copy,{copies}",
                    lambda environment: subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                                         env=environment))


def flip_a_bit(pid):
    """In the middle of the largest memory that a process shares, which is a rank's weights; gives how to undo it."""
    paths = [f"/proc/{pid}/fd/{fd}" for fd in os.listdir(f"/proc/{pid}/fd")]
    regions = [path for path in paths if "memfd:weft-weights" in os.readlink(path)]
    region = max(regions, key=lambda path: os.stat(path).st_size)
    at = os.stat(region).st_size // 2

    def flip():
        with open(region, "r+b", buffering=0) as memory:
            memory.seek(at)
            byte = memory.read(1)[0]
            memory.seek(at)
            memory.write(bytes([byte ^ 0x40]))
    flip()
    return flip


def case_engines():
    """Equal; differences on either side; who may not look; a flip, and a death, in the middle."""
    with Work() as work:
        path, held = job_held(work, "train:0,before,publish,3", versions=4)
        with held:
            job = held.started
            wait_for(job, lambda: stored(work, 2))
            wait_flipped(job, path, 2, range(5))
            folder = stored(work, 2)
            for where, what in ((path, "engine 0"), (path + "/engine:1", "engine 1"), (path + "/infer:3", "a single rank"),
                                (path + "/infer:4", "the rank that keeps versions")):
                equal(folder, where, what)
            differences(work, job, path, folder)
            refusals(work, path, folder)
            interrupted(work, held, path, folder)
            status, report = job.end()
            check(status == 0 and report["ok"], "and the job has noticed nothing of all that", job.text[-2000:])


def interrupted(work, held, path, folder):
    with open_comparison(work, folder, path, 9) as killed:
        os.kill(killed.pid, signal.SIGKILL)
        killed.started.communicate()
    equal(folder, path, "after an observer was killed, engine 0")
    with open_comparison(work, folder, path, 11) as stale:
        held.go_on()
        wait_for(held.started, lambda: stored(work, 3))
        stale.go_on()
        out, text = stale.started.communicate()
        check(stale.started.returncode == 1 and not out and "nothing can be concluded" in text and ".1.2" in text,
              "a version that comes in ends a comparison", text or out)


def differences(work, job, path, folder):
    copy = work.path("copy")
    shutil.copytree(folder, copy)
    with Tensors(os.path.join(copy, "model.safetensors")) as t:
        gate, up = "model.layers.1.mlp.gate_proj.weight", "model.layers.1.mlp.up_proj.weight"
        t.data[gate], t.data[up] = t.data[up], t.data[gate]
    status, report, text = compare(copy, path)
    check(status == 1 and "gate and up" in " ".join(report["diagnosis"]), "a difference of the files is named", text or report)
    status, report, text = compare(stored(work, 1), path)
    check(status == 1 and report["diagnosis"][0].startswith("another version"), "an older version is called so", text or report)
    status, report, text = compare(work.model, path)
    check(status == 1 and "the checkpoint that the job began with" in report["diagnosis"][0], "so is the job's model", text or report)
    check("wrong scale" not in " ".join(report["diagnosis"]), "and bf16 has no wrong scales", report["diagnosis"])
    undo = flip_a_bit(e2e.child_pid(job.process.pid, "infer:1"))
    status, report, text = compare(folder, path)
    check(status == 1 and sum(v["different"] for v in report["value"]) == 1, "one bit in a rank's memory is found", text or report)
    equal(folder, path + "/engine:1", "the other engine")
    check(compare(folder, path + "/infer:1")[0] == 1, "the rank itself differs")
    equal(folder, path + "/infer:0", "the other rank of its engine")
    undo()
    equal(folder, path, "with the bit as it was, engine 0")


def refusals(work, path, folder):
    wrong = work.path("wrong")
    with open(wrong, "w") as out:
        out.write("00" * 32)
    os.chmod(wrong, 0o600)
    status, report, text = compare(folder, path, "--token-file", wrong)
    check(status == 1 and report is None and "did not prove" in text, "a wrong token is refused", text)
    status, report, text = compare(folder, path + "/engine:7")
    check(status == 1 and "has no engine 7: its engines are 0 to 2, its infer ranks 0 to 4" in text, "so is engine 7", text)
    server = compare(folder, path)[1]["b"]["path"].split(" of ")[1].split(",")[0]
    for end in ("foo", "engine:x", "infer:", "trainer", ""):
        for job in (path, "localhost:29400", server):
            status, report, text = compare(folder, f"{job}/{end}")
            check(status == 2 and f"expected {job} with /engine:N, /infer:R (numbers from 0) or /train" in text and
                  text.endswith(f"found /{end}\n"), "an ending that is none is no wrong address", text)
    other = os.path.join(MODELS, "tiny-llama.json")
    status, report, text = compare(folder, path, "--model", other)
    check(status == 1 and f"{other} (llama, 4 layers) is not the job's model" in text and
          "give --model with the config.json of the job" in text, "so is another model", text)
    for arguments in ([folder, folder, "--against-live", path], [folder, "--token-file", wrong], ["--against-live", path]):
        check(weft("compare", *arguments).returncode == 2, f"refused: {arguments}")


def case_codes_and_trainers():
    """Codes of fp8 that an engine holds beside the values they are of; trainers, while they hold a version."""
    with Work(os.path.join(MODELS, "blocks-qwen3-moe.json")) as work:
        path, held = job_held(work, "infer:0,before,flipped,2", 2, train="megatron:tp=2,ep=2,etp=1",
                              infer="sglang:tp=1,engines=2,quant=deepseek", extra='server: {listen: "127.0.0.1:0"}\n')
        with held:
            wait_for(held.started, lambda: stored(work, 2))
            wait_flipped(held.started, path, 2, [1])
            equal(stored(work, 2), path + "/train", "the train side")
            equal(stored(work, 2), path + "/engine:1", "an engine in fp8")
            if has_ucx():
                os.environ["WEFT_HOST_NAME"] = "elsewhere"
                equal(stored(work, 2), path + "/engine:1", "read by UCX, it")
                del os.environ["WEFT_HOST_NAME"]
            held.go_on()
            status, _ = held.started.end()
            check(status == 0, "the job ends well", held.started.text[-2000:])


if __name__ == "__main__":
    sys.exit(e2e.main(globals()))
