#!/usr/bin/env python3
"""files.py WEFT CASE - versions as Hugging Face folders: written by a rank of their own, and what fills engines
that nobody else can fill."""
import glob
import json
import os
import shutil
import signal
import sys

import e2e
from e2e import Watched, Work, check, check_report, child_pid, run, weft
from held import Held

# Without a margin a slow machine would take the hold for a death; the fill itself waits for nobody.
JOB = """job: files
model: {model}
train: {{spec: "{train}"}}
infer:
  - {{name: engines, spec: "{infer}", mode: in_place}}
  - {{name: keeper, spec: "hf:", mode: in_place}}
files: {{folder: versions, keep: 2}}
policy: {{fill: {fill}}}
run: {{versions: {versions}}}
{extra}"""


def write_job(work, versions=3, fill="folder", extra="", train="megatron:tp=2", infer="vllm:tp=2"):
    path = work.path("job.yaml")
    with open(path, "w") as out:
        out.write(JOB.format(model=work.model, versions=versions, fill=fill, extra=extra, train=train, infer=infer))
    return path


def folders(work):
    """The versions that lie there, oldest first."""
    names = [name for name in os.listdir(work.path("versions")) if not name.startswith(".")]
    return sorted(names, key=lambda name: [int(part) for part in name.split(".")])


def read_json(*parts):
    with open(os.path.join(*parts)) as text:
        return json.load(text)


def held(work, job_path, point, act):
    """Runs the job until a rank stops itself at `point`, calls act(job, pid) and gives what the job gave."""
    stopped = Held(work.folder, *point.split(","))
    job = Watched(job_path, env=stopped.environment)
    act(job, stopped.wait(lambda seconds: check_alive(job)))
    status, report = job.end()
    return status, report, job.text


def check_alive(job):
    if not job.pump(0.1) or job.process.poll() is not None:
        raise e2e.Failed("the job ended too early: " + job.text[-3000:])


def wait_for(job, found):
    while not found():
        check_alive(job)


def case_written():
    """Each version is a folder that any reader takes, two are kept, and a job can start from one."""
    with Work() as work:
        status, report, text = run(write_job(work, versions=4))
        check(status == 0, "exit status 0", text)
        check_report(report, 4)
        names = [version["version"] for version in report["versions"]]
        check(folders(work) == names[-2:], "the two newest are kept", (folders(work), names))
        newest = work.path("versions/" + names[-1])
        said = read_json(newest, "weft_version.json")
        check(said["job"] == "files" and said["version"] == names[-1] and said["label"] == "step-4", "it says whose",
              {key: said[key] for key in said if key != "files"})
        check(sorted(os.listdir(newest)) == ["config.json", "model.safetensors", "weft_version.json"], "its files",
              os.listdir(newest))
        check(read_json(newest, "config.json") == read_json(work.model, "config.json"), "the model's config")
        done = weft("versions", work.path("versions"), "--json", "-")
        listed = json.loads(done.stdout)
        check(done.returncode == 0 and [(v["version"], v["ok"], v["job"]) for v in listed] ==
              [(name, True, "files") for name in names[-2:]], "weft versions finds them whole", done.stdout + done.stderr)
        os.mkdir(work.path("empty"))
        done = weft("versions", work.path("empty"))
        check(done.returncode == 1 and not done.stdout and "there is no version in" in done.stderr, "or says that there is none",
              done.stdout + done.stderr)
        work.model = newest
        status, report, text = run(work.job(versions=2))
        check(status == 0, "a job runs from the folder", text)
        check_report(report, 2)


def case_refill():
    """kill -9 in the flip of an engine updated in place, no replica, the trainers idle: filled from the folder."""

    def kill(job, pid):
        wait_for(job, lambda: glob.glob(work.path("versions/*.*.3/weft_version.json")))
        os.kill(pid, signal.SIGKILL)
        os.kill(child_pid(job.process.pid, "--rank", "infer:2"), signal.SIGKILL)  # the keeper too

    with Work() as work:
        status, report, text = held(work, write_job(work), "infer:0,before,flipped,3", kill)
        check(status == 0 and report["ok"], "the job ends well", text[-4000:])
        for rank in (0, 2):
            check(f"infer rank {rank} was killed by signal 9" in text, f"rank {rank} was killed")
        fills = [fill for fill in report["fills"] if fill["state"] == "committed"]
        check(fills and all(fill["source"] == "folder" for fill in fills), "filled from the folder", report["fills"])
        check(all(fill["version"].endswith(".3") and fill["bytes"] > 0 for fill in fills), "with the last version")
        check({t["name"] for fill in fills for t in fill["transports"]} == {"folder"}, "by nothing else", fills)
        check(all(v["elements_wrong"] == 0 and v["torn_reads"] == 0 for v in report["versions"] + fills), "all right")


def case_families():
    """Experts, latents and delta nets; some tensors in another dtype than the folder has them."""
    rows = [
        ("tiny-deepseek-v3.json", "megatron:tp=1", "vllm:tp=2"),
        ("tiny-qwen3-next.json", "fsdp:dp=2", "vllm:tp=1"),
    ]
    for model, train, infer in rows:
        with Work(os.path.join(e2e.MODELS, model)) as work:

            def kill(_, pid):
                os.kill(pid, signal.SIGKILL)

            status, report, text = held(work, write_job(work, train=train, infer=infer), "infer:0,before,flipped,3", kill)
            check(status == 0 and report["ok"], model, text[-4000:])
            check([(fill["state"], fill["source"]) for fill in report["fills"]] == [("committed", "folder")],
                  "filled from the folder", report["fills"])


def case_damaged():
    """A damaged folder is refused by a sentence; the engine stays without weights and serves nothing."""

    def spoil(job, pid):
        wait_for(job, lambda: glob.glob(work.path("versions/*.*.3/weft_version.json")))
        path = glob.glob(work.path("versions/*.*.3/model.safetensors"))[0]
        with open(path, "r+b") as weights:
            weights.seek(os.path.getsize(path) // 2)
            byte = weights.read(1)[0]
            weights.seek(-1, os.SEEK_CUR)
            weights.write(bytes([byte ^ 1]))
        os.kill(pid, signal.SIGKILL)

    with Work() as work:
        status, report, text = held(work, write_job(work), "infer:0,before,flipped,3", spoil)
        done = weft("versions", work.path("versions"))
        check(done.returncode == 1 and done.stdout.count("whole") == 1 and "is damaged: bytes" in done.stdout,
              "weft versions tells the damaged one", done.stdout + done.stderr)
        check(status == 1 and not report["ok"], "the job does not end well", text[-4000:])
        check(report["fills"] and all(fill["state"] == "aborted" for fill in report["fills"]), "no fill was committed",
              report["fills"])
        reasons = [fill["culprit"]["reason"] for fill in report["fills"]]
        check(all("is damaged: bytes" in reason for reason in reasons), "the damage is named", reasons)
        check("does not have version" in text or "did not get version 3" in text, "and who has no weights",
              text[-2000:])


def case_full_disk():
    """No room for a version: told, the old ones stay, the job goes on and fails at its end."""
    if os.geteuid() != 0:
        print("  skipped: mounting a small file system needs root")
        return
    with Work(layers=64) as work:
        place = work.path("versions")
        os.mkdir(place)
        size = os.path.getsize(os.path.join(work.model, "model.safetensors")) * 3 // 2
        if os.system(f"mount -t tmpfs -o size={size} weft-test {place}") != 0:
            print("  skipped: no small file system can be mounted here")
            return
        try:
            status, report, text = run(write_job(work, versions=2))
            names = [version["version"] for version in report["versions"] if version["state"] == "committed"]
            check(len(names) == 2, "all versions are committed", text[-3000:])
            check(status == 1 and "is in no folder" in text and "make room" in text, "the failure is told", text[-3000:])
            check(folders(work) == names[:1], "the old one is whole, and no part of the new one is there",
                  os.listdir(place))
        finally:
            os.system(f"umount {place}")
            shutil.rmtree(place, ignore_errors=True)


def case_refused():
    """What cannot work is said before anything starts."""
    with Work() as work:
        rows = [
            ("files: {folder: versions, keep: 2}\npolicy: {fill: folder}\n", "", "give files.folder"),
            ('  - {name: keeper, spec: "hf:", mode: in_place}\n',
             '  - {name: keeper, spec: "hf:"}\n  - {name: second, spec: "hf:"}\n', "leave the second hf out"),
            ("fill: folder", "fill: disk", "policy.fill: expected true, false, or some of"),
        ]
        for old, new, says in rows:
            path = write_job(work)
            with open(path) as text:
                changed = text.read().replace(old, new)
            with open(path, "w") as out:
                out.write(changed)
            done = weft("run", path)
            check(done.returncode == 2 and says in done.stderr, says, done.stderr)


if __name__ == "__main__":
    sys.exit(e2e.main(globals()))
