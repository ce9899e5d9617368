#!/usr/bin/env python3
"""watch.py WEFT CASE - end-to-end tests of watching a job: weft status, HTTP, the page."""
import base64
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import e2e
from held import Held
from e2e import DEADLINE, WEFT, Watched, Work, check, weft
from slow import PATIENT, free_port

NUMBER = r"[+-]?(?:\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|NaN|\+Inf|-Inf)"


class Running:
    """A job that goes on until it is ended, its server on a TCP port of every address."""

    def __init__(self, work, env=None, **more):
        self.token = work.path("token")
        with open(self.token, "w") as out:
            out.write(os.urandom(32).hex() + "\n")
        os.chmod(self.token, 0o600)
        self.port = free_port()
        extra = f'server: {{listen: "*:{self.port}", token_file: {self.token}}}\n{PATIENT}'
        self.path = work.job(train="megatron:tp=2", infer="vllm:tp=1,engines=2", versions=100000, extra=extra, job="watched", **more)
        self.watched = Watched(self.path, env=env)

    def __enter__(self):
        self.wait_rounds(3)
        return self

    def wait_rounds(self, count):
        deadline = time.monotonic() + DEADLINE
        while True:
            done = weft("status", self.path, "--json", "-")
            if done.returncode == 0 and json.loads(done.stdout)["totals"]["rounds_committed"] >= count:
                return
            if time.monotonic() > deadline or self.watched.process.poll() is not None:
                raise e2e.Failed(f"never saw {count} rounds: {done.stderr} {self.watched.text[-1000:]}")
            self.watched.pump(0.2)

    def __exit__(self, *_):
        self.watched.process.terminate()
        self.watched.process.wait(timeout=DEADLINE)

    def get(self, path, host="127.0.0.1", method="GET", **headers):
        """(status, headers, body)"""
        connection = http.client.HTTPConnection(host, self.port, timeout=DEADLINE)
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        fields = answer.getheaders()
        together = {name: ', '.join(value for other, value in fields if other == name) for name, _ in fields}
        return answer.status, together, answer.read().decode()


def own_address():
    """An address of this host that is not loopback; None where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
            address = probe.getsockname()[0]
        except OSError:
            return None
    return None if address.startswith("127.") else address


def case_status():
    """weft status: tables, waits, JSON; a server that is gone, a wrong token."""
    with Work() as work:
        with Running(work) as job:
            answers(work, job)
        held(work)
        done = weft("status", job.path)
        check(done.returncode == 1 and f":{job.port}" in done.stderr, "a server that is gone is named", done.stderr)


def answers(work, job):
    done = weft("status", job.path)
    check(done.returncode == 0 and "job watched:" in done.stdout, "a job file is enough", done.stderr)
    check(re.search(r"infer:1 +(serving|reading|voted|pausing|flipping|resuming)", done.stdout), "ranks are listed", done.stdout)
    check(re.search(r"\d+\.1\.\d+ +1 +committed", done.stdout), "and rounds", done.stdout)
    done = weft("status", f"localhost:{job.port}", "--token-file", job.token, "--json", "-")
    status = json.loads(done.stdout)
    check(status["job"] == "watched" and status["totals"]["rounds_committed"] >= 2, "an address and the token are enough", done.stderr)
    check([(r["side"], r["rank"]) for r in status["ranks"]] == [("train", 0), ("train", 1), ("infer", 0), ("infer", 1)], "all ranks")
    check(all(r["presence"] == "present" and r["lease_seconds_left"] > 0 for r in status["ranks"]), "and their leases")
    done = weft("status", job.path, "--waits")
    check(done.returncode == 0 and ("waits for" in done.stdout), "who waits for whom", done.stdout)
    wrong = work.path("wrong")
    with open(wrong, "w") as out:
        out.write("00" * 32)
    os.chmod(wrong, 0o600)
    done = weft("status", job.path, "--token-file", wrong)
    check(done.returncode == 1 and "did not prove" in done.stderr, "a wrong token is refused", done.stderr)
    for arguments in (["status", "a b"], ["status", "--timeout", "x"], ["status", "a:1", "b:2"]):
        check(weft(*arguments).returncode == 2, f"refused: {arguments}")


def held(work):
    """A rank that stands still before its vote: the server waits for it, and says so."""
    stopped = Held(work.folder, "infer:1", "before", "vote", 8)
    with Running(work, name="held", env=stopped.environment) as job:
        pid = stopped.wait(job.watched.pump)
        deadline = time.monotonic() + DEADLINE
        text = ""
        while "infer rank 1" not in text or "infer rank 0" in text:  # that one may still be reading
            if time.monotonic() > deadline:
                raise e2e.Failed(f"who holds up the round is never named, or somebody else is too: {text}")
            text = weft("status", job.path, "--waits").stdout
        check(True, "who holds up the round is named, and nobody else")
        os.kill(pid, signal.SIGCONT)


def parse_metrics(text):
    """The text format, strictly: {name: (type, {labels: value})}."""
    families, name = {}, None
    assert text.endswith("\n"), "the last line has no end"
    for line in text.split("\n")[:-1]:
        head = re.fullmatch(r"# HELP (weft_[a-z0-9_]+) (\S.*)", line)
        kind = re.fullmatch(r"# TYPE (weft_[a-z0-9_]+) (counter|gauge)", line)
        sample = re.fullmatch(r'(weft_[a-z0-9_]+)(?:\{((?:[a-z_]+="[^"\\\n]*",?)+)\})? (' + NUMBER + ")", line)
        if head:
            name = head[1]
            assert name not in families, f"{name} comes twice"
            families[name] = (None, {})
        elif kind:
            assert kind[1] == name and families[name][0] is None, line
            families[name] = (kind[2], {})
            assert (kind[2] == "counter") == name.endswith("_total"), f"{name} is a {kind[2]}"
        else:
            assert sample and sample[1] == name and families[name][0], f"not a sample of {name}: {line!r}"
            labels = sample[2] or ""
            assert labels not in families[name][1], f"twice: {line}"
            families[name][1][labels] = float(sample[3])
    return families


def case_http():
    """/metrics parsed strictly, /v1/status, and who is refused."""
    with Work() as work, Running(work) as job:
        code, headers, text = job.get("/metrics")
        check(code == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4"), "/metrics is there", headers)
        families = parse_metrics(text)
        check(families["weft_rounds_total"][1]['result="committed"'] >= 2, "rounds are counted", families["weft_rounds_total"])
        check(families["weft_ranks"][1]['side="infer",presence="present"'] == 2, "ranks are counted")
        with open("docs/watching.md") as page:
            documented = set(re.findall(r"^\| `(weft_[a-z_]+)", page.read(), re.M))
        check(documented == set(families), "docs/watching.md names every family", documented ^ set(families))
        code, headers, text = job.get("/v1/status")
        status = json.loads(text)
        check(code == 200 and status["job"] == "watched" and len(status["ranks"]) == 4, "/v1/status is JSON")
        check(job.get("/v1/status", method="HEAD")[2] == "", "HEAD has no body")
        for code, path, method, headers in ((404, "/etc/passwd", "GET", {}), (404, "/v1/status/", "GET", {}), (405, "/v1/status", "POST", {}),
                                            (403, "/v1/status", "GET", {"Host": "rebound.example"}), (200, "/", "GET", {"Host": "localhost:1"})):
            check(job.get(path, method=method, **headers)[0] == code, f"{method} {path} {headers}: {code}")
        outside(job)
        slow(job)


def outside(job):
    address = own_address()
    if address is None:
        print("  skipped: this host has no address but loopback", flush=True)
        return
    code, headers, text = job.get("/v1/status", address)
    check(code == 401 and "--secret" in text and "Bearer" in str(headers), "401 off loopback, with a hint", f"{code} {text}")
    secret = weft("status", job.path, "--secret").stdout.strip()
    with open(job.token) as file:
        token = file.read().strip()
    pair = base64.b64encode(f"anybody:{secret}".encode()).decode()
    for code, value in ((200, f"Bearer {secret}"), (200, f"Bearer {token}"), (200, f"Basic {pair}"), (401, "Bearer " + "0" * 64),
                        (401, "Bearer "), (401, "Basic !"), (401, secret)):
        check(job.get("/v1/status", address, Authorization=value)[0] == code, f"{code} for {value[:12]}...")


def slow(job):
    """Who sends nothing, a byte now and then, or too much keeps nobody waiting."""
    sockets = []
    for number in range(80):
        each = socket.create_connection(("127.0.0.1", job.port), timeout=DEADLINE)
        each.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n" if number % 2 else b"G")
        sockets.append(each)
    before = json.loads(weft("status", job.path, "--json", "-").stdout)["totals"]["rounds_committed"]
    job.wait_rounds(before + 2)
    check(True, "rounds go on beside slow readers")
    for each in sockets:
        each.close()
    with socket.create_connection(("127.0.0.1", job.port), timeout=DEADLINE) as big:
        big.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 60000 + b"\r\n\r\n")
        first = big.recv(12)
        check(first[:10] in (b"HTTP/1.1 4", b"HTTP/1.0 4"), "a head that is too large is refused", first)
    deadline = time.monotonic() + DEADLINE
    while job.get("/metrics")[0] != 200:
        assert time.monotonic() < deadline
    check(True, "and others are served")


def case_page():
    """The page in a real browser: its document has the rounds and the ranks."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        print("  skipped: no chromium here; the page was not looked at", flush=True)
        sys.exit(77)
    with Work() as work, Running(work) as job:
        done = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                               f"--user-data-dir={work.path('profile')}", "--virtual-time-budget=5000", "--dump-dom",
                               f"http://127.0.0.1:{job.port}/"], capture_output=True, text=True, timeout=DEADLINE, check=False)
        text = done.stdout
        check(done.returncode == 0 and "<h1 id=\"job\">watched</h1>" in text, "the page shows the job", done.stderr[-500:] + text[:500])
        for name in ("train 0", "train 1", "infer 0 · engine 0", "infer 1 · engine 1"):
            check(f"<td>{name}</td>" in text, f"and {name}", text[-3000:])
        check(text.count('class="good">committed</td>') >= 2, "and rounds that were committed")
        check(re.search(r'<rect class="transfer"', text), "and a timeline of their phases")
        check("Nothing was heard" not in re.sub(r"<script>.*</script>", "", text, flags=re.S), "and no error")
        check(not re.search(r'(src|href)="https?:', text), "nothing is loaded from elsewhere")


if __name__ == "__main__":
    sys.exit(e2e.main(globals()))
