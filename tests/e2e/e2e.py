#!/usr/bin/env python3
"""e2e.py WEFT CASE - end-to-end tests: real processes, real files, the program as a user calls it.

Each case is a function named case_*; without a case all run. Prints one line a check; exits 1 at the first
that fails. Uses Python's standard library only. WEFT is the program; the working directory is the source root.
"""
import concurrent.futures
import fcntl
import json
import os
import pty
import random
import re
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from held import Held
from slow import DEADLINE, LEASE, PATIENT, SLOW, brief, wait_present

WEFT = os.path.abspath(sys.argv[1])
# Tests run side by side and their jobs have the same names: tokens, notes of servers and journals lie apart.
CACHE = tempfile.TemporaryDirectory(prefix="weft-e2e-cache-")
os.environ["WEFT_CACHE"] = CACHE.name
MODELS = os.path.abspath("tests/golden/models")
QWEN = os.path.join(MODELS, "tiny-qwen3.json")
LLAMA = os.path.join(MODELS, "tiny-llama.json")


class Failed(Exception):
    pass


def check(condition, what, detail=""):
    if not condition:
        raise Failed(f"{what} {detail}")
    print(f"  ok: {what}", flush=True)


class Work:
    """A folder with a checkpoint and job files, gone afterwards."""

    def __init__(self, model=QWEN, layers=None, dtype=None):
        self.folder = tempfile.mkdtemp(prefix="weft-e2e-")
        self.model = os.path.join(self.folder, "model")
        command = ["make-checkpoint", "--model", model, "--out", self.model]
        command += ["--layers", str(layers)] if layers else []
        command += ["--dtype", dtype] if dtype else []
        done = weft(*command)
        if done.returncode != 0:
            raise Failed("make-checkpoint: " + done.stderr)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def job(self, train="megatron:tp=2,pp=2", infer="vllm:tp=2,engines=2", versions=3, name="job", extra="",
            train_extra="", run_extra="", job="e2e"):
        path = self.path(name + ".yaml")
        extra += "" if "timeouts:" in extra else LEASE  # a slow machine is no fault
        with open(path, "w") as out:
            out.write(f'job: {job}\nmodel: {self.model}\ntrain: {{spec: "{train}"{train_extra}}}\n'
                      f'infer: {{spec: "{infer}"}}\nrun: {{versions: {versions}{run_extra}}}\n{extra}')
        return path


def weft(*arguments, **more):
    return subprocess.run([WEFT, *arguments], capture_output=True, text=True, timeout=DEADLINE, check=False, **more)


def run(job, *arguments):
    """Runs a job; gives (exit status, report, standard error)."""
    report = job + ".json"
    done = weft("run", job, "--json", report, *arguments)
    if not os.path.exists(report):
        raise Failed("no report: " + done.stderr)
    with open(report) as text:
        return done.returncode, json.load(text), done.stdout + done.stderr


def children_of(pid):
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as text:
                    parent = int(text.read().rsplit(")", 1)[1].split()[1])
                with open(f"/proc/{entry}/cmdline", "rb") as text:
                    command = text.read().split(b"\0")
            except OSError:
                continue
            if parent == pid:
                found.append((int(entry), [word.decode() for word in command]))
    return found


def child_pid(parent, *words):
    for pid, command in children_of(parent):
        if all(word in command for word in words):
            return pid
    raise Failed(f"no child with {words}")


class Watched:
    """A job on a terminal of its own, so that its progress line can be followed."""

    def __init__(self, job, *arguments, env=None):
        self.report = job + ".json"
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen([WEFT, "run", job, "--json", self.report, *arguments], stdin=subprocess.DEVNULL,
                                        stdout=slave, stderr=slave, env=env)
        os.close(slave)
        fcntl.fcntl(self.master, fcntl.F_SETFL, os.O_NONBLOCK)
        self.text = ""
        self.start = time.monotonic()

    def pump(self, wait):
        ready, _, _ = select.select([self.master], [], [], wait)
        if not ready:
            return True
        try:
            got = os.read(self.master, 65536).decode(errors="replace")
        except OSError:
            return False
        self.text += got
        return got != ""

    def until(self, pattern):
        while not re.search(pattern, self.text):
            if time.monotonic() - self.start > DEADLINE or not self.pump(0.5):
                raise Failed(f"never saw {pattern!r} in: {self.text[-2000:]}")

    def end(self):
        while self.pump(0.5) and time.monotonic() - self.start < DEADLINE:
            if self.process.poll() is not None:
                break
        while self.pump(0) and select.select([self.master], [], [], 0)[0]:
            pass
        status = self.process.wait(timeout=DEADLINE)
        os.close(self.master)
        with open(self.report) as text:
            return status, json.load(text)


def check_report(report, versions):
    states = [v["state"] for v in report["versions"]]
    check(report["ok"] is True, "the report says ok", json.dumps(report)[:1500])
    check(states.count("committed") == versions, f"{versions} versions are committed", states)
    check(all(v["elements_wrong"] == 0 for v in report["versions"]), "no element is wrong")
    check(all(v["torn_reads"] == 0 for v in report["versions"]), "no read is torn")


def case_commit():
    """The main job in small: tp2 pp2 into two engines of tp2."""
    with Work() as work:
        status, report, text = run(work.job(), "--timeline", work.path("t.svg"))
        check(status == 0, "exit status 0", text)
        check_report(report, 3)
        per_version = {v["elements_checked"] for v in report["versions"]}
        check(len(per_version) == 1 and per_version.pop() > 10000, "every version's elements were checked")
        check(report["train_ranks"] == 4 and report["infer_ranks"] == 4, "ranks are counted")
        check(report["versions"][0]["transports"][0]["name"] == "shm", "the transport is named")
        check(all(v["bytes"] == report["plan"]["bytes_moved"] for v in report["versions"]), "bytes are the plan's")
        check(re.fullmatch("[0-9a-f]{32}", report["plan"]["hash"]), "the plan has a hash")
        with open(work.path("t.svg")) as file:
            picture = file.read()
        spans = re.findall(r"<title>(\w+) rank \d+, step \d+: (\w+),", picture)
        for side, names in (("train", "step hold digest"), ("infer", "transfer verify flip check")):
            for name in names.split():
                check(spans.count((side, name)) == 4 * 3, f"the picture shows 3 times 4 {name}", spans)
        check(re.findall(r">v(\d)<", picture) == ["1", "2", "3"], "and when each version began")


def case_shapes():
    """Other shapes: 1 + 1, tp3 of 9 heads, uneven pipelines, 17 ranks, two groups."""
    rows = [
        (QWEN, "megatron:tp=1", "vllm:tp=1"),
        (LLAMA, "megatron:tp=3,pp=2", "vllm:tp=3,engines=2"),
        (QWEN, "megatron:tp=2,pp=2,dp=2", "vllm:tp=1,pp=2"),
        (QWEN, "megatron:tp=1,pp=2", "vllm:tp=1,engines=17"),
        (QWEN, "megatron:tp=4", "vllm:tp=2"),
    ]
    for model, train, infer in rows:
        with Work(model) as work:
            status, report, text = run(work.job(train, infer, versions=2))
            check(status == 0, f"{train} -> {infer}", text[-3000:])
            check_report(report, 2)
    with Work() as work:
        job = work.job(versions=2)
        with open(job) as text:
            changed = text.read().replace('infer: {spec: "vllm:tp=2,engines=2"}',
                                          'infer: [{name: a, spec: "vllm:tp=2"}, {name: b, spec: "vllm:tp=1"}]')
        with open(job, "w") as text:
            text.write(changed)
        status, report, text = run(job)
        check(status == 0 and report["infer_ranks"] == 3, "two groups of different shapes", text)


def case_dtypes():
    """A float32 trainer and a bf16 engine, and the reverse: cast while moving."""
    with Work(dtype="f32") as work:
        status, report, text = run(work.job(infer="vllm:tp=2,engines=1,dtype=bf16", versions=2))
        check(status == 0, "f32 trainer, bf16 engine", text)
        check_report(report, 2)
    with Work(dtype="bf16") as work:
        status, report, text = run(work.job(train="megatron:tp=2,dtype=f32", infer="vllm:tp=2", versions=2))
        check(status == 0, "f32 master weights of a bf16 checkpoint", text)
        check_report(report, 2)


def case_modes():
    """snapshot, drop_to_latest, each, every, memory that cannot be mapped, no readers. (validate_every: compare.py)"""
    rows = [
        ("snapshot", dict(train_extra=", publish: snapshot"), 3),
        ("each", dict(extra="policy: {commit: each}\n"), 3),
        ("process memory", dict(extra="transport: {share_memory: false}\n"), 3),
        ("no readers", dict(run_extra=", readers: false"), 3),
    ]
    for name, more, versions in rows:
        with Work() as work:
            status, report, text = run(work.job(versions=versions, **more))
            check(status == 0, name, text[-3000:])
            check_report(report, versions)
    with Work() as work:
        status, report, text = run(work.job(versions=4, extra="policy: {every: 2}\n"))
        check(status == 0, "every: 2", text)
        steps = [int(v["version"].split(".")[2]) for v in report["versions"]]
        check(steps == [1, 2, 4], "the first step, 2 and 4 are versions", steps)
        status, report, text = run(work.job(versions=1, extra="policy: {every: 2}\n"))
        check(status == 0 and report["ok"], "the first step alone is a version", text)
    with Work() as work:
        status, report, text = run(work.job(versions=6, train_extra=", publish: snapshot",
                                            extra="policy: {drop_to_latest: true}\n"))
        check(status == 0, "drop_to_latest", text)
        last = [v for v in report["versions"] if v["state"] == "committed"][-1]
        check(last["version"].endswith(".6"), "the newest version arrived", last["version"])


def case_torn():
    """Without the pause the reader must see torn versions: otherwise it could not see any."""
    with Work(layers=8) as work:
        for _ in range(5):
            status, report, _ = run(work.job(versions=6, run_extra=", skip_pause: true"))
            if sum(v["torn_reads"] for v in report["versions"]) > 0:
                break
        check(sum(v["torn_reads"] for v in report["versions"]) > 0, "torn reads are reported without the pause")
        check(status == 1 and report["ok"] is False, "and the job is not ok")


def kill_case(side, rank, work, versions=5, extra=""):
    """Version 2 cannot be decided while infer rank 3 stops itself before its vote; meanwhile the other is killed."""
    held = Held(work.folder, "infer:3", "before", "vote", 2)
    job = Watched(work.job(versions=versions, extra=extra + PATIENT), "--verbose", env=held.environment)
    slow = held.wait(job.pump)
    job.until(r"version 2 of \d+  \[[.#]+\] transfer 3/4")
    os.kill(child_pid(job.process.pid, "--rank", f"{side}:{rank}"), signal.SIGKILL)
    job.until(r"infer rank 0: version 2, attempt 1 aborted")
    os.kill(slow, signal.SIGCONT)
    status, report = job.end()
    check(status == 0, f"the job ends well although {side} rank {rank} was killed", job.text[-4000:])
    check(f"{side} rank {rank} was killed by signal 9" in job.text, "the supervisor says who was killed")
    # A version may be committed twice: a new generation publishes the weights again.
    steps = {v["version"].split(".")[2] for v in report["versions"] if v["state"] == "committed"}
    check(len(steps) == versions and report["ok"], f"all {versions} steps are committed", report["versions"])
    return report, job.text


def case_kill():
    """kill -9 of one infer rank and of one trainer rank in the middle of a transfer."""
    for side, rank in (("infer", 1), ("train", 2)):
        with Work() as work:
            report, text = kill_case(side, rank, work)
            culprit = [v for v in report["versions"] if v["state"] == "aborted"][0]["culprit"]
            check(culprit and culprit["side"] == side and culprit["rank"] == rank, "the culprit is named", culprit)
            line = rf"weft: (\w+ rank \d+): version \d+, attempt \d+ aborted: {side} rank {rank} \(host "
            survivors = set(re.findall(line, text))
            check(len(survivors) == 7, "every survivor names it too", sorted(survivors))


def case_stop():
    """SIGTERM ends everything in order; kill -9 of the supervisor leaves nothing behind."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with Work() as work:
            job = Watched(work.job(versions=10000))
            job.until(r"version 2 of \d+ committed")
            children = [pid for pid, _ in children_of(job.process.pid)]
            check(len(children) == 11, "server, 2 readers and 8 ranks run", children)
            job.process.send_signal(number)
            job.process.wait(timeout=DEADLINE)
            limit = time.monotonic() + DEADLINE
            while any(os.path.exists(f"/proc/{pid}") for pid in children) and time.monotonic() < limit:
                time.sleep(0.05)
            check(not any(os.path.exists(f"/proc/{pid}") for pid in children), f"no child outlives {number.name}")
            os.close(job.master)


def case_server_killed():
    """The server is started once more; without it the job ends with a sentence, not a hang."""
    with Work() as work:
        job = Watched(work.job(versions=10000))
        job.until("version 1 of .* committed")
        os.kill(child_pid(job.process.pid, "server"), signal.SIGKILL)
        job.until(r"the server was killed by signal 9 \(Killed\); starting it again[^$]*version \d+ of \d+ committed")
        os.kill(child_pid(job.process.pid, "server"), signal.SIGKILL)
        status, _ = job.end()
        check(status == 1 and job.text.count("the server was killed by signal 9") == 2, "it is named", job.text[-500:])


BRIEF, FROZEN = brief(frozen=4), f"has been silent for {4 * SLOW} s"


def frozen_case(who, what, seconds, good, says):
    name = f"{who} stopped {f'for {seconds} s' if seconds else 'for good'}"
    with Work() as work:
        reader = "reader" in who  # it cannot hold itself
        held = Held(work.folder, "infer:0" if reader else who, "before", what, 3)
        job = Watched(work.job(versions=5, extra=BRIEF), env=held.environment)
        pid = stopped = held.wait(job.pump)
        if reader:
            pid = child_pid(job.process.pid, *who.split())
            os.kill(pid, signal.SIGSTOP)
            os.kill(stopped, signal.SIGCONT)
        if seconds:
            limit = time.monotonic() + seconds
            while time.monotonic() < limit:
                job.pump(0.1)
            os.kill(pid, signal.SIGCONT)
        status, report = job.end()
        check((status == 0) is good and report["ok"] is good, f"{name}: the job's fate", job.text[-3000:])
        check(re.search(says, job.text.replace("\r\n", "\n"), re.M), f"{name}: is named", job.text[-3000:])
        check(sum(v["elements_wrong"] + v["torn_reads"] for v in report["versions"]) == 0, f"{name}: nothing is wrong")
        check(not os.path.exists(f"/proc/{pid}"), f"{name}: is gone")


def case_frozen():
    """A rank that stops for good is named, killed and started again; what stood still for a while goes on."""
    rows = [  # who, before which frame, for how long (None: for good), the job's fate, what is said
        ("train:1", "publish", None, True, rf"train rank 1 {FROZEN} .*\n(.*\n)*.*train rank 1 was killed by signal 9"),
        ("infer:3", "vote", None, True, rf"infer rank 3 {FROZEN} .*\n(.*\n)*.*infer rank 3 was killed by signal 9"),
        ("--reader 1", "vote", None, False,  # while its ranks ask for the count of reads, or for the next pause
         rf"infer rank [23] .* did not stop serving for version \S+ within {2 * SLOW} s|the check of a version: infer rank [23]"),
        ("train:1", "publish", 3 * SLOW, True, ""),
        ("infer:3", "vote", 3 * SLOW, True, ""),
        ("server", "decide", 3 * SLOW, True, ""),
    ]
    with concurrent.futures.ThreadPoolExecutor(len(rows)) as together:  # they only wait
        for future in [together.submit(frozen_case, *row) for row in rows]:
            future.result()


def case_twice():
    """Two jobs of one name at once do not touch each other."""
    with Work() as work:
        jobs = [subprocess.Popen([WEFT, "run", work.job(name=f"twin{i}"), "--json", work.path(f"{i}.json")],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for i in range(2)]
        for i, job in enumerate(jobs):
            _, text = job.communicate(timeout=DEADLINE)
            check(job.returncode == 0, f"twin {i}", text)


def case_bad_input():
    """Each wrong input: its own sentence, its exit status, nothing written."""
    with Work() as work:
        rows = [
            ("unknown engine", work.job(train="megatrn:tp=2", name="a"), 2, "did you mean"),
            ("unknown SPEC key", work.job(train="megatron:tpp=2", name="b"), 2, "tp"),
            ("TP that does not divide", work.job(train="megatron:tp=3", name="c"), (1, 2), "3"),
            ("no such job", work.path("none.yaml"), 1, "none.yaml"),
            ("unknown key", work.job(extra="polcy: {}\n"), 2, "policy"),
            ("more engines than possible", work.job(infer="vllm:tp=1,engines=5000", name="d"), 2, "at most"),
            ("a trainer as an engine", work.job(infer="megatron:tp=1", name="e"), 2, "vllm"),
            ("a fault of no rank", work.job(extra="faults: [{kind: drop, at: 1, ranks: [1, 99]}]\n", name="f"), 2,
             "faults[0].ranks: 99: the job has infer ranks 0 to 3"),
        ]
        for name, job, wanted, says in rows:
            done = weft("run", job, "--json", work.path("out.json"))
            wanted = wanted if isinstance(wanted, tuple) else (wanted,)
            check(done.returncode in wanted, f"{name}: exit status", f"{done.returncode}: {done.stderr}")
            check(says in done.stderr, f"{name}: says so", done.stderr)
    with Work() as work:
        shutil.rmtree(work.model)
        done = weft("run", work.job())
        check(done.returncode == 1 and "model" in done.stderr, "missing model folder", done.stderr)
    weights = "model.safetensors"
    for name, harm in (("truncated weights", lambda p: os.truncate(p, os.path.getsize(p) - 100)),
                       ("missing weights", os.remove),
                       ("absurd header", lambda p: open(p, "r+b").write(b"\xff" * 8))):
        with Work() as work:
            harm(os.path.join(work.model, weights))
            done = weft("run", work.job(), "--json", work.path("out.json"))
            check(done.returncode == 1, f"{name}: exit status 1", f"{done.returncode}: {done.stderr[:800]}")
            check(weights in done.stderr, f"{name}: the file is named", done.stderr[:800])
    with Work() as work:
        config = os.path.join(work.model, "config.json")
        with open(config) as text:
            changed = json.load(text)
        changed["hidden_size"] *= 2
        with open(config, "w") as text:
            json.dump(changed, text)
        done = weft("run", work.job())
        check(done.returncode == 1 and "the config says" in done.stderr, "config that does not match the tensors", done.stderr[:800])


def case_port_in_use():
    import socket
    with Work() as work, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = weft("server", work.job(), "--listen", f"127.0.0.1:{port}")
        check(done.returncode == 1 and str(port) in done.stderr, "a port in use is named", done.stderr)


def start_server(work, job):
    server = subprocess.Popen([WEFT, "server", job, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
    line = server.stdout.readline()
    check(line.startswith("listening on tcp:127.0.0.1:"), "the server says where it listens", line)
    return server, line.split()[-1]


def case_by_hand():
    """Server and ranks started by hand, as a launcher would: over TCP, no supervisor."""
    with Work() as work:
        job = work.job(train="megatron:tp=2", infer="vllm:tp=2", versions=2)
        server, address = start_server(work, job)
        address = address.removeprefix("tcp:")  # HOST:PORT, as the help says
        ranks = [subprocess.Popen([WEFT, "run", job, "--rank", f"{side}:{rank}", "--server", address],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                 for side in ("train", "infer") for rank in (0, 1)]
        for rank in ranks:
            _, text = rank.communicate(timeout=DEADLINE)
            check(rank.returncode == 0, "a rank ends well", f"{rank.returncode}: {text}")
        check(server.wait(timeout=DEADLINE) == 0, "the server ends well", server.stderr.read())


def wake_ups(pid):
    """Voluntary context switches of all threads of a process so far."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/status") as text:
            total += int(re.search(r"voluntary_ctxt_switches:\s*(\d+)", text.read()).group(1))
    return total


def case_idle():
    """A rank that waits wakes for its heartbeats and for nothing else."""
    with Work() as work:
        job = work.job(train="megatron:tp=1", infer="vllm:tp=1", extra="timeouts: {join: 60s, heartbeat: 2s, lease: 20s}\n")
        server, address = start_server(work, job)
        rank = subprocess.Popen([WEFT, "run", job, "--rank", "infer:0", "--server", address], stderr=subprocess.DEVNULL)
        try:
            wait_present(WEFT, address, "infer", 0)
            before, start = wake_ups(rank.pid), time.monotonic()
            time.sleep(8)
            woke, seconds = wake_ups(rank.pid) - before, time.monotonic() - start
            # A heartbeat and its answer every 2 s; less than one wake-up a second besides.
            check(woke < 2 * seconds, "an idle rank hardly wakes", f"{woke} times in {seconds} s")
        finally:
            rank.kill()
            server.kill()
            rank.wait()
            server.wait()


def case_server_elsewhere():
    """A server that somebody else started, and one that comes late; one that never comes."""
    with Work() as work:
        job = work.job(train="megatron:tp=2", infer="vllm:tp=2", versions=2)
        address = "unix:" + work.path("server.sock")
        joins = work.job(train="megatron:tp=2", infer="vllm:tp=2", versions=2, name="joins",
                         extra=f'server: {{address: "{address}"}}\n')
        with subprocess.Popen([WEFT, "run", joins], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            time.sleep(1)
            server = subprocess.Popen([WEFT, "server", job, "--listen", address], stdout=subprocess.DEVNULL)
            _, text = running.communicate(timeout=DEADLINE)
            check(running.returncode == 0, "a server that comes a second late serves the job", text)
        check(server.wait(timeout=DEADLINE) == 0, "and ends with it")
        never = work.job(train="megatron:tp=2", infer="vllm:tp=2", name="never",
                         extra=f'server: {{address: "{address}"}}\ntimeouts: {{connect: 1s}}\n')
        done = weft("run", never)
        check(done.returncode == 1 and address in done.stderr, "a server that never comes is named", done.stderr)


def case_stuck_trainer():
    """A train rank that lives but never publishes is named within its deadline."""
    with Work() as work:
        job = work.job(train="megatron:tp=2", infer="vllm:tp=2", versions=2, extra="timeouts: {publish: 2s}\n")
        server, address = start_server(work, job)
        read_end, write_end = os.pipe()  # a gate that nobody opens
        stuck = subprocess.Popen([WEFT, "run", job, "--rank", "train:1", "--server", address, "--gate"], stderr=subprocess.PIPE,
                                 text=True, close_fds=False, preexec_fn=lambda: os.dup2(read_end, 3))
        others = [subprocess.Popen([WEFT, "run", job, "--rank", rank, "--server", address], stderr=subprocess.PIPE, text=True)
                  for rank in ("train:0", "infer:0", "infer:1")]
        texts = [rank.communicate(timeout=DEADLINE)[1] for rank in [stuck, *others]]
        check(server.wait(timeout=DEADLINE) == 1, "the server ends the job")
        # It rebuilds and publishes step 1 if train rank 0 was there first; it never makes step 2.
        says = re.search(r"train rank 1 .*has not published step [12] within 2 s of train rank 0", texts[1])
        check(says, "the train rank that holds everybody up is named", texts)
        os.close(read_end)
        os.close(write_end)


def case_identity():
    """Two ranks with one identity, a rank of another job, a rank with another recipe."""
    with Work() as work:
        job = work.job(train="megatron:tp=1", infer="vllm:tp=1", versions=2)
        server, address = start_server(work, job)
        first = subprocess.Popen([WEFT, "run", job, "--rank", "infer:0", "--server", address], stderr=subprocess.PIPE, text=True)
        wait_present(WEFT, address, "infer", 0)
        second = weft("run", job, "--rank", "infer:0", "--server", address)
        check(second.returncode == 1 and "infer rank 0" in second.stderr, "a second infer rank 0 is refused", second.stderr)
        other = weft("run", work.job(train="megatron:tp=1", infer="vllm:tp=1", name="other", job="another"), "--rank", "train:0", "--server", address)
        check(other.returncode == 1 and "another" in other.stderr, "a rank of another job is refused", other.stderr)
        train = weft("run", job, "--rank", "train:0", "--server", address)
        check(train.returncode == 0, "the job goes on undisturbed", train.stderr)
        check(first.wait(timeout=DEADLINE) == 0, "the first infer rank ends well", first.stderr.read())
        server.wait(timeout=DEADLINE)
    with Work() as work:
        short = f"timeouts: {{join: {6 * SLOW}s}}\n"
        job = work.job(train="megatron:tp=2", infer="vllm:tp=1", versions=2, extra=short)
        stale = work.job(train="megatron:tp=2,vocab_div=64", infer="vllm:tp=1", versions=2, name="stale", extra=short)
        server, address = start_server(work, job)
        address = address.removeprefix("tcp:")  # HOST:PORT, as the help says
        ranks = [subprocess.Popen([WEFT, "run", which, "--rank", rank, "--server", address], stderr=subprocess.PIPE, text=True)
                 for which, rank in ((job, "train:0"), (stale, "train:1"), (job, "infer:0"))]
        texts = [rank.communicate(timeout=DEADLINE)[1] for rank in ranks]
        check(all(rank.returncode == 1 for rank in ranks), "a rank with another recipe stops the job", texts)
        check("train rank 1" in "".join(texts) and "vocab_div" in "".join(texts), "the rank and what differs are named", texts)
        server.kill()
        server.wait()


def case_streams():
    """Standard streams that are closed, full or gone; few descriptors."""
    with Work() as work:
        job = work.job(versions=2)
        command = f"'{WEFT}' run '{job}' --json '{job}.json'"
        rows = [
            ("all three closed", command + " <&- >&- 2>&-", 0),
            ("input and errors closed", command + " <&- 2>&- | cat >/dev/null; exit ${PIPESTATUS[0]}", 0),
            ("a reader that goes away", command + " 2>/dev/null | head -n 1 >/dev/null; exit ${PIPESTATUS[0]}", 0),
            ("a full standard output", command + " >/dev/full", 1),
            ("the JSON on a full standard output", f"'{WEFT}' run '{job}' --json - >/dev/full", 1),
            ("few descriptors", "ulimit -n 16; " + command, 1),
            ("small files", "ulimit -f 100; " + command, 1),
        ]
        for name, line, wanted in rows:
            done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=DEADLINE, check=False)
            check(done.returncode == wanted, f"{name}: exit status {wanted}", f"{done.returncode}: {done.stderr}")
            if wanted == 0:
                with open(job + ".json") as text:
                    check(json.load(text)["ok"] is True, f"{name}: the report is whole")
                os.unlink(job + ".json")
            else:
                wanted = {"few descriptors": "ulimit -n", "small files": "ulimit -f"}.get(name, "standard output")
                check(wanted in done.stderr, f"{name}: says so", done.stderr)


def case_full_disk():
    """A report or a checkpoint that cannot be written leaves nothing under the final name."""
    with Work() as work:
        def limited():
            resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        done = weft("make-checkpoint", "--model", QWEN, "--out", work.path("full"), preexec_fn=limited)
        check(done.returncode == 1, "a checkpoint that does not fit fails", done.stderr)
        left = [name for _, _, names in os.walk(work.path("full")) for name in names if "safetensors" in name]
        check(not left, "and nothing of it is there", left)
        done = weft("run", work.job(versions=1), "--json", "/nonexistent/r.json")
        check(done.returncode == 1 and "/nonexistent/r.json" in done.stderr, "a report that cannot be written is an error", done.stderr)


def main(namespace):
    """Runs the cases of a module, which may be another one that imports this one's helpers."""
    cases = {name[5:]: function for name, function in namespace.items() if name.startswith("case_")}
    random.seed(1)
    for name in sys.argv[2:] or cases:
        print(name, flush=True)
        try:
            cases[name]()
        except (Failed, subprocess.TimeoutExpired) as failure:
            print(f"  FAILED: {failure}", flush=True)
            for pid, _ in children_of(os.getpid()):  # a job that runs on would take the next test's cores
                os.kill(pid, signal.SIGKILL)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(globals()))
