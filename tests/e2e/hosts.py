#!/usr/bin/env python3
"""hosts.py WEFT CASE - jobs over a list of hosts, with a stand-in for ssh.

The stand-in does what matters of ssh: the command runs in a session of its own, which outlives the client; when
the client goes, its standard input ends and nothing else happens to it; a command that dies gives status 255.
"""
import os
import re
import signal
import stat
import subprocess
import sys
import time

import e2e
from held import Held
from e2e import DEADLINE, WEFT, Work, check, run
from transports import UCX, has_ucx, skip

STAND_IN = """#!/usr/bin/env python3
import os, subprocess, sys, threading
host, command = sys.argv[-2:]
inside = {inside!r}.split()
with open({log!r}, "a") as log:
    log.write(host + " " + command + chr(10))
inside = [word.replace("HOST", host) for word in inside]
far = subprocess.Popen([*inside, "sh", "-c", command], stdin=subprocess.PIPE, start_new_session=True)
def relay():
    while data := os.read(0, 65536):
        try:
            os.write(far.stdin.fileno(), data)
        except OSError:
            return
    far.stdin.close()
threading.Thread(target=relay, daemon=True).start()
status = far.wait()
os._exit(255 if status < 0 else status)
"""


class Hosts(Work):
    """A job, a list of hosts and a remote shell that stays here."""

    def __init__(self, hosts, versions=3, inside="", **more):
        super().__init__()
        self.job_path = self.job("megatron:tp=2", "vllm:tp=2", versions=versions, **more)
        self.list = self.path("hosts")
        self.log = self.path("commands")
        self.rsh = self.path("rsh")
        with open(self.list, "w") as out:
            out.write(hosts)
        with open(self.rsh, "w") as out:
            out.write(STAND_IN.format(log=self.log, inside=inside))
        os.chmod(self.rsh, stat.S_IRWXU)
        os.environ["WEFT_RSH"] = self.rsh

    def far(self):
        """The processes that were started through the remote shell, a rank and its keeper each: {pid: command line}."""
        found = {}
        for entry in os.listdir("/proc"):
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as text:
                    words = text.read().decode().split("\0")
            except OSError:
                continue
            if self.job_path in words and "--gate-stdin" in words and "sh" not in words[0].split("/")[-1]:
                found[int(entry)] = words
        return found

    def wait_until(self, condition, what):
        end = time.monotonic() + DEADLINE
        while not condition():
            if time.monotonic() > end:
                raise e2e.Failed(what)
            time.sleep(0.05)


def case_list():
    """All ranks and a reader on a far host; and on this one by its name in a list."""
    with Hosts("# the far one\nfar1 slots=4 address=user@127.0.0.1\n") as work:
        status, report, text = run(work.job_path, "--hosts", work.list)
        check(status == 0, "exit status 0", text)
        e2e.check_report(report, 3)
        with open(work.log) as log:
            commands = log.read()
        check(commands.count("user@127.0.0.1 exec ") == 5, "four ranks and a reader were started there", commands)
        check("--host-name' 'far1'" in commands, "they are told what their host is called", commands)
        check(not re.search("[0-9a-f]{64}", commands), "the token is in no command line")
        check("reads during inference" in text, "and the reader's account is there")
    with Hosts("localhost\n") as work:
        status, report, text = run(work.job_path, "--hosts", work.list)
        check(status == 0 and not os.path.exists(work.log), "localhost needs no remote shell", text)


def command(*words):
    return subprocess.run(words, capture_output=True, text=True, check=False)


class Networks:
    """Two network namespaces on a bridge of this host, by IPv4 or IPv6."""

    def __init__(self, six):
        self.number = os.getpid() % 200
        self.names = [f"weft{self.number}a", f"weft{self.number}b"]
        self.bridge = f"weft{self.number}"
        self.six = six

    def address(self, number):
        return f"fd77:{self.number:x}::{number}" if self.six else f"10.77.{self.number}.{number}"

    def __enter__(self):
        bits = 64 if self.six else 24
        lines = [f"link add {self.bridge} type bridge", f"link set {self.bridge} up",
                 f"addr add {self.address(1)}/{bits} dev {self.bridge}" + " nodad" * self.six]
        for i, name in enumerate(self.names):
            lines += [f"netns add {name}", f"link add {name}l type veth peer name eth0 netns {name}",
                      f"link set {name}l master {self.bridge} up", f"-n {name} link set lo up",
                      f"-n {name} link set eth0 up",
                      f"-n {name} addr add {self.address(2 + i)}/{bits} dev eth0" + " nodad" * self.six]
        self.failed = next((done.stderr for done in (command("ip", *line.split()) for line in lines)
                            if done.returncode != 0), None)
        return self

    def __exit__(self, *_):
        for name in self.names:
            command("ip", "link", "del", name + "l")  # at once: the kernel ends a namespace's interfaces when it likes
            command("ip", "netns", "del", name)
        command("ip", "link", "del", self.bridge)


def case_networks():
    """Trainer and engines in network namespaces of their own: the server is reached from both, weights go by UCX."""
    if not has_ucx():
        skip()
    for six in (False, True):
        with Networks(six) as net:
            if net.failed is not None:
                print(f"  skipped: no network namespaces here: {net.failed.strip()}")
                sys.exit(77)
            train, infer = net.names
            lines = f"{train} side=train\n{infer} side=infer\n"
            listen = f"[{net.address(1)}]:0" if six else f"{net.address(1)}:0"
            with Hosts(lines, inside="ip netns exec HOST", extra=f'server: {{listen: "{listen}"}}\n') as work:
                status, report, text = run(work.job_path, "--hosts", work.list)
                check(status == 0, f"exit status 0 with IPv{6 if six else 4}", text[-3000:])
                e2e.check_report(report, 3)
                names = {one["name"] for version in report["versions"] for one in version["transports"]}
                check(names == {"ucx"}, "no shared memory between namespaces", names)
            if six:
                continue
            with Work() as work:
                status, report, text = run(work.job(versions=1, extra=UCX), "--quiet")
                check(status == 0 and all(entry["how"].endswith("; tcp/lo") for entry in report["selected"]),
                      "a bridge of namespaces joins no ranks of this host", (report["selected"], text))


def case_two_hosts():
    """Hosts that only are called differently: a rank reads by shared memory where it is at home, by UCX elsewhere."""
    if not has_ucx():
        skip()
    with Hosts("far1 slots=3 address=127.0.0.1\nfar2 slots=1 address=127.0.0.1\n") as work:
        with open(work.job_path) as text:
            changed = text.read().replace("vllm:tp=2", "vllm:tp=1,engines=2")
        with open(work.job_path, "w") as out:
            out.write(changed)
        status, report, text = run(work.job_path, "--hosts", work.list)
        check(status == 0, "exit status 0", text[-3000:])
        e2e.check_report(report, 3)
        names = sorted(one["name"] for one in report["versions"][0]["transports"])
        check(names == ["shm", "ucx"], "both ways are used", names)


def case_refused():
    """Lists and shells that cannot work are named, and nothing is left behind."""
    rows = [("too few slots", "a slots=1\n", 2, "room for 1 of the 2 train ranks"),
            ("an unknown word", "a\nb gpus=2\n", 2, "line 2"),
            ("no hosts", "#\n", 2, "no host is named")]
    for name, hosts, status, words in rows:
        with Hosts(hosts) as work:
            done = e2e.weft("run", work.job_path, "--hosts", work.list)
            check(done.returncode == status and words in done.stderr, f"refused: {name}", done.stderr)
    with Hosts("far1 address=127.0.0.1\n") as work:
        done = e2e.weft("run", work.job_path, "--hosts", work.path("none"))
        check(done.returncode == 1 and work.path("none") in done.stderr, "a list that is not there", done.stderr)
        check(e2e.weft("run", work.job_path, "--hosts", work.list, "--rank", "train:0").returncode == 2, "not with --rank")
        os.environ["WEFT_RSH"] = "/nonexistent/rsh"
        done = e2e.weft("run", work.job_path, "--hosts", work.list)
        check(done.returncode == 1 and "on far1" in done.stderr and "127" in done.stderr, "no remote shell", done.stderr)
        for name, shell in (("long", "x" * 1100), ("of many words", "x " * 25)):
            os.environ["WEFT_RSH"] = work.rsh + " " + shell
            done = e2e.weft("run", work.job_path, "--hosts", work.list)
            check(done.returncode == 1 and "WEFT_RSH: expected at most 24 words" in done.stderr, f"a remote shell that is {name}", done.stderr)
        os.environ["WEFT_RSH"] = work.rsh
        os.environ["WEFT_REMOTE"] = "/nonexistent/weft"
        done = e2e.weft("run", work.job_path, "--hosts", work.list)
        del os.environ["WEFT_REMOTE"]
        check(done.returncode == 1 and "[far1] " in done.stderr and "/nonexistent/weft" in done.stderr,
              "what the far end says comes with its host's name", done.stderr)
        work.wait_until(lambda: not work.far(), "nothing is left")


def start(work, env=None):
    job = subprocess.Popen([WEFT, "run", work.job_path, "--hosts", work.list], stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True, env=env)
    work.wait_until(lambda: len(work.far()) == 10, "five processes and their keepers run there")
    for line in job.stderr:
        if re.search(r"version \d+ of \d+ committed", line):
            return job
    raise e2e.Failed("no version was committed")


def case_torn_down():
    """However the supervisor ends, the far ends see it."""
    for name, number in (("killed", signal.SIGKILL), ("interrupted", signal.SIGTERM)):
        with Hosts("far1 address=127.0.0.1\n", versions=100000) as work:
            job = start(work)
            job.send_signal(number)
            job.communicate(timeout=DEADLINE)
            check(job.returncode == (1 if number == signal.SIGTERM else -number), f"{name}: its exit status")
            work.wait_until(lambda: not work.far(), "all far processes end")
            check(True, f"{name}: nothing is left")


def case_far_crash():
    """A rank that is killed there is started there again."""
    with Hosts("far1 address=127.0.0.1\n", versions=5) as work:
        held = Held(work.folder, "infer:1", "before", "vote", 3)
        job = start(work, held.environment)
        os.kill(held.wait(time.sleep), signal.SIGKILL)
        out, text = job.communicate(timeout=DEADLINE)
        check("infer rank 1 on far1 ended with status 255; starting it again" in text, "it is named", text[-1500:])
        check(job.returncode == 0, "and the job ends well", out + text[-1500:])


def case_far_frozen():
    """A rank that is frozen there is killed there before it is started again."""
    with Hosts("far1 address=127.0.0.1\n", versions=5, extra=e2e.BRIEF) as work:
        held = Held(work.folder, "infer:1", "before", "vote", 3)
        job = start(work, held.environment)
        frozen = held.wait(time.sleep)
        text = ""
        for line in job.stderr:
            text += line
            if "starting it again" in line:
                break
        check(f"infer rank 1 on far1 {e2e.FROZEN}" in text, "it is named", text[-1500:])
        work.wait_until(lambda: not os.path.exists(f"/proc/{frozen}"), "the frozen process is gone")
        out, text = job.communicate(timeout=DEADLINE)
        check(job.returncode == 0, "and the job ends well", out + text[-1500:])
        work.wait_until(lambda: not work.far(), "nothing is left")


if __name__ == "__main__":
    sys.exit(e2e.main(globals()))
