#!/usr/bin/env python3
"""check_netlab.py WEFT - tools/netlab makes its hosts, limits and faults its links, and leaves nothing behind.

Skipped (status 77) where the system cannot do it by itself, as its own tools find. A netlab that fails is a failure.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
from slow import SLOW  # noqa: E402 (its folder was not on the path before)

WEFT = os.path.abspath(sys.argv[1])
NETLAB = os.path.abspath("tools/netlab")


def check(condition, what, detail=""):
    if not condition:
        print(f"  FAILED: {what} {detail}", flush=True)
        sys.exit(1)
    print(f"  ok: {what}", flush=True)


def netlab(*words):
    done = subprocess.run([NETLAB, *words], capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def can():
    missing = [program for program in ("unshare", "nsenter", "ip", "tc", "nft") if shutil.which(program) is None]
    if missing:
        return f"{', '.join(missing)} is missing (Debian: util-linux, iproute2, nftables)"
    probe = ("ip link add probe type veth peer name other && tc qdisc add dev probe root tbf rate 1gbit burst 1mb latency 50ms && "
             "nft add table inet probe")
    done = subprocess.run(["unshare", *(["--user", "--map-root-user"] if os.geteuid() != 0 else []), "--net", "--mount", "--pid",
                           "--fork", "sh", "-c", probe], capture_output=True, text=True, timeout=60, check=False)
    return "" if done.returncode == 0 else f"no network namespaces, token buckets or nftables here: {done.stderr.strip()}"


def reaches(source, target):
    """A shell line that says whether a connection from one host gets to the other's kernel."""
    probe = (f"import socket\ntry: socket.create_connection(('10.77.0.{target + 1}', 9), timeout=1)\n"
             "except ConnectionRefusedError: print('there')\nexcept OSError: print('nothing')")
    return f"{NETLAB} exec h{source} {sys.executable} -c \"{probe}\""


def links():
    status, text = netlab("up", "3", "--rate", "200mbit", NETLAB, "measure", "h0", "h2", "--seconds", "1")
    rate = re.search(r"h0 -> h2 +([0-9.]+) Mbit/s", text)
    check(status == 0 and rate and 100 < float(rate.group(1)) < 240, "a link has the rate that was asked for", text)
    script = (f"{reaches(0, 1)}; {NETLAB} partition h0 h1; {reaches(0, 1)}; {reaches(0, 2)}; {NETLAB} heal; {reaches(1, 0)}; "
              f"{NETLAB} cut h1; {reaches(0, 1)}; {NETLAB} heal; {NETLAB} partition h0 h1 --one-way; {reaches(1, 0)}; "
              f"{NETLAB} partition h0 h9")
    _, text = netlab("up", "3", "sh", "-c", script)
    # One way: the answer to a connection does not come back either.
    check(text.split("\n")[:6] == ["there", "nothing", "there", "there", "nothing", "nothing"], "faults come and go", text)
    check("no host h9" in text, "a host that is not there is named", text)


def processes(mark):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as text:
                if mark.encode() in text.read():
                    found.append(int(pid))
        except OSError:
            pass
    return found


def teardown():
    for number in (signal.SIGTERM, signal.SIGKILL):
        mark = f"WEFT_NETLAB_MARK={os.getpid()}.{number}"
        lab = subprocess.Popen([NETLAB, "up", "2", "sh", "-c", "echo up; sleep 1000"], stdout=subprocess.PIPE, text=True,
                               env=dict(os.environ, **dict([mark.split("=")])))
        check(lab.stdout.readline() == "up\n" and len(processes(mark)) >= 5, "a lab runs")
        lab.send_signal(number)
        lab.wait(timeout=30)
        limit = time.monotonic() + 15
        while processes(mark) and time.monotonic() < limit:
            time.sleep(0.02)
        check(not processes(mark), f"{signal.Signals(number).name} takes everything away", processes(mark))


def make_job(folder, model, infer):
    path = os.path.join(folder, "job.yaml")
    with open(path, "w") as out:
        out.write(f'job: netlab-{os.getpid()}\nmodel: {model}\ntrain: {{spec: "megatron:pp=2"}}\ninfer: {{spec: "{infer}"}}\n'
                  "run: {versions: 3, readers: false}\n"
                  f"timeouts: {{lease: {SLOW}s, heartbeat: 200ms, round: 20s, connect: 10s, join: 30s, repeat: 300ms}}\n")
    return path


def jobs(folder):
    model = os.path.join(folder, "model")
    subprocess.run([WEFT, "make-checkpoint", "--model", "tests/golden/models/tiny-qwen3.json", "--out", model], check=True,
                   stdout=subprocess.DEVNULL)
    shared = ["--weft", WEFT, "--seconds", "0"]
    status, text = netlab("up", "1", NETLAB, "run", make_job(folder, model, "vllm:tp=2"), *shared, "--place", "engine0=h0")
    check(status == 0 and text.endswith("ok\n"), "a job on one host of a lab", text)
    path, report = make_job(folder, model, "vllm:tp=2,engines=2"), os.path.join(folder, "report.json")
    status, text = netlab("up", "3", "--rate", "5mbit", NETLAB, "run", path, *shared, "--json", report,
                          "--fault", "2 partition h0 h1")
    if "built without UCX" in text:
        print("  skipped: a job between hosts (this build or machine has no UCX)")
        return
    check(status == 0 and text.endswith("ok\n"), "a job between hosts, one of them cut off during a transfer", text)
    with open(report) as out:
        result = json.load(out)
    culprits = {(v["culprit"]["side"], v["culprit"]["rank"]) for v in result["report"]["versions"] if v["state"] == "aborted"}
    check(culprits and culprits <= {("infer", 0), ("infer", 1)}, "a rank of that host is named", culprits)
    check(all(name for _, name in result["named"]), "before the network is whole again", result["named"])


def main():
    why = can()
    if why:
        print(f"skipped: {why}")
        return 77
    links()
    teardown()
    with tempfile.TemporaryDirectory(prefix="weft-netlab-") as folder:
        jobs(folder)
    return 0


sys.exit(main())
