#!/usr/bin/env python3
"""life.py WEFT CASE - the server's life: killed at each state, started again on its journal, without it, twice, paused."""
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

import e2e
from held import Held
from e2e import DEADLINE, WEFT, Failed, Watched, Work, check, check_report, child_pid
from slow import SLOW, brief

BRIEF = brief(quiesce=5, join=30, reconnect=60)
JOURNAL_FULL = 2000  # bytes: enough for the start and a few versions
SMALL = {"train": "megatron:tp=2", "infer": "vllm:tp=2"}


def check_order(report, rebuilt=False):
    versions = [tuple(map(int, v["version"].split("."))) for v in report["versions"] if v["state"] == "committed"]
    check(versions == sorted(versions), "versions never go back", versions)
    if not rebuilt:  # then a new generation publishes the newest step again
        check([v[2] for v in versions] == sorted({v[2] for v in versions}), "each step once", versions)


def case_killed():
    """kill -9 of the server of `weft run` where the protocol is most delicate: it goes on by its journal."""
    rows = [  # the frame of the server's that is next or was sent last; which one of its name
        ("before", "open", 5), ("after", "open", 5), ("before", "decide", 4), ("after", "decide", 4),
        ("before", "resume", 3), ("before", "released", 3),
    ]
    for when, what, number in rows:
        with Work() as work:
            held = Held(work.folder, "server", when, what, number)
            job = Watched(work.job(**SMALL, versions=4, extra=BRIEF), env=held.environment)
            os.kill(held.wait(job.pump), signal.SIGKILL)
            status, report = job.end()
            name = f"{when} {what}"
            check(status == 0, f"{name}: exit status 0", job.text[-3000:])
            check("the server was killed by signal 9 (Killed); starting it again" in job.text, f"{name}: is said")
            check_report(report, 4)
            check_order(report)


def case_never_back():
    """While a server that was started again does not come to listen, the supervisor hears who wants the job to end."""
    with Work() as work:
        path = work.job(**SMALL, versions=100000)
        job = Watched(path)
        job.until(r"version 1 of \d+ committed")
        os.unlink(path)
        os.mkfifo(path)  # the next server waits for its job file
        os.kill(child_pid(job.process.pid, "server"), signal.SIGKILL)
        job.until("starting it again")
        job.process.send_signal(signal.SIGINT)
        status, _ = job.end()
        check(status == 1 and "did not start to listen" not in job.text, "the job ends", job.text[-3000:])


def case_leftovers():
    """A run folder may be shared by hosts: only what dead processes of this very host have left is taken away."""
    with Work() as work:
        os.environ["WEFT_CACHE"] = work.path("cache")
        try:
            status, _, text = e2e.run(work.job(**SMALL, versions=1))
            check(status == 0, "a job runs", text)
            folder = work.path("cache/run")
            here = [name for name in os.listdir(folder) if name.startswith("here-")]
            check(len(here) == 1, "this host has a folder of its own", os.listdir(folder))
            gone = 4194304  # above every process number that Linux gives
            mine, others = (os.path.join(folder, of, f"e2e-{gone}.journal") for of in (here[0], "here-0123456789abcdef"))
            for journal in (mine, others):
                os.makedirs(journal)
                open(os.path.join(journal, "journal"), "w").close()
            status, _, text = e2e.run(work.job(**SMALL, versions=1))
            check(status == 0 and not os.path.exists(mine), "a journal that a dead process has left is removed", text)
            check(os.path.exists(os.path.join(others, "journal")), "that of another host is not")
        finally:
            del os.environ["WEFT_CACHE"]


class Server:
    """A server that is started by hand on a journal, at an address that stays."""

    def __init__(self, work, job):
        self.job, self.address, self.journal = job, "unix:" + work.path("server.sock"), work.path("journal")

    def start(self, *arguments, **more):
        return subprocess.Popen([WEFT, "server", self.job, "--listen", self.address, "--journal", self.journal, *arguments],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)

    def up(self, *arguments, **more):
        server = self.start(*arguments, **more)
        line = server.stdout.readline()
        check(line.startswith("listening on "), f"the server is up {' '.join(arguments)}", line or server.stderr.read())
        return server


def kill(server):
    server.kill()
    server.communicate(timeout=DEADLINE)


def case_by_hand():
    """Killed and started by hand: on its journal, beside another one, without its journal."""
    with Work() as work:
        hand = Server(work, work.job(**SMALL, versions=100000, extra=BRIEF))
        server = hand.up()
        job = Watched(work.job(**SMALL, versions=100000, name="joins",
                               extra=BRIEF + f'server: {{address: "{hand.address}"}}\n'))
        job.until(r"version 3 of \d+ committed")
        second = hand.start()
        _, says = second.communicate(timeout=DEADLINE)
        check(second.returncode == 1 and f"is in use by process {server.pid}" in says, "a second server is refused", says)

        def goes_on(what):
            seen = int(re.findall(r"version (\d+) of", job.text)[-1])
            job.until(rf"version ({'|'.join(str(seen + n) for n in range(3, 60))}) of \d+ committed")
            check(True, f"versions go on {what}")

        kill(server)
        time.sleep(0.3)
        server = hand.up()
        goes_on("after a restart on the journal")
        kill(server)
        with open(os.path.join(hand.journal, "journal"), "ab") as torn:
            torn.write(b"WJR1\x80\0\0\0half a record")
        server = hand.up()
        goes_on("after a restart on a torn journal")
        kill(server)
        shutil.rmtree(hand.journal)
        server = hand.start()
        _, says = server.communicate(timeout=DEADLINE)
        check(server.returncode == 1 and "of which this one has no record: start the server with --recover" in says,
              "a server without record stops", says)
        server = hand.up("--recover")
        goes_on("after --recover")
        kill(server)
        server = hand.up()
        goes_on("after a restart on the journal that was rebuilt")
        job.process.send_signal(signal.SIGINT)
        status, report = job.end()
        check(status == 1, "the job was interrupted")
        check_order(report, rebuilt=True)
        check(sum(v["elements_wrong"] + v["torn_reads"] for v in report["versions"]) == 0, "nothing is wrong or torn")
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=DEADLINE)


def case_full_disk():
    """A journal that can grow no more: the server decides nothing and stops; the job goes on by the next one."""
    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (JOURNAL_FULL, JOURNAL_FULL))
    with Work() as work:
        hand = Server(work, work.job(**SMALL, versions=12, extra=BRIEF))
        server = hand.up(preexec_fn=limited)
        job = Watched(work.job(**SMALL, versions=12, name="joins", extra=BRIEF + f'server: {{address: "{hand.address}"}}\n'))
        limit = time.monotonic() + DEADLINE
        while server.poll() is None and time.monotonic() < limit:
            job.pump(0.1)
        _, says = server.communicate(timeout=DEADLINE)
        check(server.returncode == 1 and "/journal: " in says and "too large" in says, "the server stops and says why", says)
        before = set(re.findall(r"version (\d+) of", job.text))
        check(len(before) < 12, "it stopped on the way", before)
        server = hand.up()
        status, report = job.end()
        server.communicate(timeout=DEADLINE)
        check(status == 0, "exit status 0", job.text[-3000:])
        check_report(report, 12)
        check_order(report)


def case_paused():
    """A server that is stopped for longer than the lease renews and decides nothing until its ranks are back."""
    with Work() as work:
        held = Held(work.folder, "server", "before", "decide", 3)
        job = Watched(work.job(**SMALL, versions=6, extra=BRIEF), env=held.environment)
        pid = held.wait(job.pump)
        limit = time.monotonic() + 2.5 * SLOW
        while time.monotonic() < limit:
            job.pump(0.1)
        os.kill(pid, signal.SIGCONT)
        status, report = job.end()
        check(status == 0, "exit status 0", job.text[-3000:])
        check_report(report, 6)
        check_order(report)


def case_journal_again():
    """A job file's journal serves one job after another; a folder that cannot be made is named."""
    with Work() as work:
        journal = work.path("journal")
        path = work.job(**SMALL, versions=2, extra=BRIEF + f"server: {{journal: {journal}}}\n")
        terms = []
        for _ in range(2):
            status, report, text = e2e.run(path)
            check(status == 0, "exit status 0", text)
            check_report(report, 2)
            terms.append(int(report["versions"][0]["version"].split(".")[0]))
        check(terms[1] > terms[0], "the next job's term is higher", terms)
        check(os.stat(journal).st_mode & 0o777 == 0o700, "the journal's folder is private")
        done = subprocess.run([WEFT, "server", path, "--recover", "--journal", work.path("none/such")],
                              capture_output=True, text=True, timeout=DEADLINE, check=False)
        check(done.returncode == 1 and "none/such" in done.stderr, "a folder that cannot be made is named", done.stderr)


if __name__ == "__main__":
    sys.exit(e2e.main(globals()))
