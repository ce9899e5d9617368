#!/usr/bin/env python3
"""hostile.py WEFT CASE - end-to-end tests against peers that mean harm, beside a job that must not notice.

The attacker speaks the wire by itself: frames are packed here from the tables that `weft server --describe-frames`
prints, every type with values inside and outside of its bounds. Helpers are e2e.py's.
"""
import hashlib
import os
import re
import resource
import select
import signal
import socket
import statistics
import struct
import subprocess
import sys
import time

from e2e import DEADLINE, QWEN, WEFT, Failed, Watched, Work, check, child_pid, main
from frames import GREETING, Frames as Known, framed, pack, split

SILENT = 10000
STRANGER, TRIES = 10, 3  # seconds that the server gives a connection to prove itself (WF_STRANGER_NS)
CALM, MEANWHILE = 8, 4  # versions before an attack, and at least during it


def raise_descriptors():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


# --- frames -------------------------------------------------------------------------------------------------------

class Frames(Known):
    """And wrong ones."""

    def __init__(self):
        super().__init__(WEFT)

    def bad(self, kind):
        """Values that it does not: out of bounds, of another kind, torn."""
        bound = int((re.search(r"\d+$", kind) or [0])[0])
        values = [[], -1, b"x" * 70000, "x" * 70000, [[[[]]]]]
        if kind.startswith("integer") and bound:
            values += [bound + 1, (1 << 64) - 1]
        if kind.startswith("text"):
            values += ["x" * bound, "a\0b"]
        if kind.startswith("list"):
            values += [[1], [[]], [[1] * 50]]
        return values

    def wrong(self):
        """(what, payload) of frames that decoding must refuse."""
        yield "nothing", b""
        yield "no array", pack(7)
        yield "an array that says more than it has", b"\xdd\xff\xff\xff\xff"
        yield "an unknown type", pack([99])
        yield "depth", b"\x91" * 4000
        for name, (number, fields) in self.types.items():
            whole = self.make(name)
            yield f"{name}, half", whole[: len(whole) // 2]
            yield f"{name} and more", whole + b"\0"
            yield f"{name} without its last field", pack([number] + [self.good(kind) for _, kind in fields[:-1]])
            for field, kind in fields:
                for value in self.bad(kind):
                    yield f"{name}.{field}", self.make(name, **{field: value})


# --- a peer -------------------------------------------------------------------------------------------------------

class Peer:
    def __init__(self, address):
        host, port = address
        self.socket = socket.create_connection((host, port), timeout=DEADLINE)
        self.rest, self.payloads = b"", []

    def send(self, data):
        """False: the other end has closed."""
        try:
            self.socket.sendall(data)
            return True
        except OSError:
            return False

    def frame(self):
        """The payload of the next frame; None at the end."""
        while True:
            if self.payloads:
                return self.payloads.pop(0)
            try:
                got = self.socket.recv(65536)
            except OSError:
                return None
            if not got:
                return None
            payloads, self.rest = split(self.rest + got)
            self.payloads += payloads

    def ends(self):
        """Reads to the end; true if the other end closed within the socket's time-out."""
        try:
            while self.socket.recv(65536):
                pass
            return True
        except socket.timeout:
            return False
        except OSError:
            return True

    def close(self):
        self.socket.close()


class Insider(Peer):
    """Knows the job's token (docs/protocol.md, the handshake)."""

    def __init__(self, address, frames, key, job, role=1, side=0, rank=0, incarnation=7):
        self.identity = {"role": role, "side": side, "rank": rank, "incarnation": incarnation}
        for _ in range(TRIES):
            start = time.monotonic()
            super().__init__(address)
            answer = self.prove(frames, key, job)
            if answer is not None or time.monotonic() - start < STRANGER - 1:
                break
            self.close()  # so busy a machine that the time of strangers passed: as a rank would, once more
        if answer is None or frames.read(answer)[0] != "proven":
            raise Failed(f"the attacker's own handshake is wrong: {answer!r}")

    def prove(self, frames, key, job):
        """What is answered to the proof; None: the other end has closed."""
        self.send(GREETING)
        challenge = self.frame()
        if challenge is None:
            return None
        _, challenge = frames.read(challenge)
        low, high, term, nonce = (challenge[name] for name in ("proto_min", "proto_max", "term", "nonce"))
        own = os.urandom(32)
        said = [low, high, term, 1, 1, 0] + [self.identity[name] for name in ("role", "side", "rank", "incarnation")]
        text = b"".join(struct.pack("<Q", len(part)) + part for part in (b"weft: handshake 1, connector to acceptor",))
        text += b"".join(struct.pack("<Q", number) for number in said)
        text += b"".join(struct.pack("<Q", len(part)) + part for part in (job.encode(), nonce, own))
        proof = hashlib.blake2b(text, key=key, digest_size=32).digest()
        self.send(framed(frames.make("prove", proto_min=1, proto_max=1, job=job, channel=0, nonce=own, proof=proof,
                                     **self.identity)))
        return self.frame()

    def hello(self, frames, of_job, **values):
        return framed(frames.make("hello", **{"proto_min": 1, "proto_max": 1, "job": of_job, **self.identity, **values}))


# --- the job ------------------------------------------------------------------------------------------------------

class Target:
    """A job that runs until it is told to stop, its server's address, and what the server costs."""

    def __init__(self, work, name):
        self.key = os.urandom(32)
        path = work.path(name + ".token")
        with open(path, "w") as out:
            out.write(self.key.hex() + "\n")
        os.chmod(path, 0o600)
        self.name = name
        self.running = Watched(work.job(train="megatron:tp=2", infer="vllm:tp=2", versions=100000, name=name, job=name,
                                        run_extra=", readers: false",
                                        extra=f'server: {{listen: "127.0.0.1:0", token_file: {path}}}\ntimeouts: {{lease: 30s}}\n'))
        self.running.until("version 1 of .* committed")
        with open(f"/proc/{child_pid(self.running.process.pid, 'infer:0')}/cmdline", "rb") as text:
            words = text.read().decode().split("\0")
        host, port = words[words.index("--server") + 1].removeprefix("tcp:").rsplit(":", 1)
        self.address = (host, int(port))
        self.server = child_pid(self.running.process.pid, "server")

    def costs(self):
        """(descriptors, MiB of memory) of the server now; of memory 0 under a sanitizer, which keeps what is freed."""
        with open(f"/proc/{self.server}/status") as text:
            memory = int(re.search(r"VmRSS:\s+(\d+) kB", text.read()).group(1)) // 1024
        with open(f"/proc/{self.server}/maps") as text:
            memory = 0 if "libasan" in text.read() else memory
        return len(os.listdir(f"/proc/{self.server}/fd")), memory

    def rounds(self):
        """Milliseconds of every version so far, as the job says them."""
        while select.select([self.running.master], [], [], 0)[0] and self.running.pump(0):
            pass
        lines = re.findall(r"version (\d+) of \d+ committed: .*? in ([\d.]+) (m?s)", self.running.text)
        check_quiet([int(number) for number, _, _ in lines] == list(range(1, len(lines) + 1)), "a version was not committed",
                    self.running.text[-1000:])
        return [float(time) * (1 if unit == "ms" else 1000) for _, time, unit in lines]

    def until(self, count):
        limit = time.monotonic() + DEADLINE
        while len(self.rounds()) < count:
            if time.monotonic() > limit or not self.running.pump(0.5):
                raise Failed(f"the job commits no more: {self.running.text[-1000:]}")

    def stop(self):
        self.running.process.send_signal(signal.SIGTERM)
        limit = time.monotonic() + DEADLINE
        while self.running.process.poll() is None and time.monotonic() < limit:
            self.running.pump(0.1)
        self.running.process.wait(timeout=DEADLINE)
        os.close(self.running.master)


def attack(what, strike):
    """Runs one attack beside a job, which must not notice. Says how much longer its rounds took meanwhile."""
    raise_descriptors()
    with Work(QWEN) as work:
        target = Target(work, "hostile")
        try:
            target.until(CALM)
            before, start = len(target.rounds()), time.monotonic()
            strike(target)
            target.until(before + MEANWHILE)
            seconds, after = time.monotonic() - start, len(target.rounds())
            target.until(after + 2)
            rounds = target.rounds()
            under, calm = rounds[before:max(after, before + 1)], rounds[1:before]
            check(True, f"{after - before} versions were committed meanwhile, and {len(rounds) - after} afterwards")
            print(f"  {what}: {seconds:.1f} s; a round took {statistics.median(under):.1f} ms, before it "
                  f"{statistics.median(calm):.1f} ms: {statistics.median(under) / statistics.median(calm):.2f} times", flush=True)
            lines = target.running.text.count("refused a connection")
            check(lines < 10 * (2 + seconds / 10), "the log has a few lines, not thousands", lines)
        finally:
            target.stop()


def hold(target, versions, what):
    """Until so many more versions are committed."""
    before = len(target.rounds())
    target.until(before + versions)
    took = statistics.median(target.rounds()[before:])
    check(True, f"{versions} versions later the job runs on beside {what}: a round took {took:.1f} ms")


def case_silent():
    """10,000 connections that say nothing; the server bounds their number, and ranks still come in."""
    def strike(target):
        count, quiet = min(SILENT, raise_descriptors() - 500), []
        at_most = 0
        for number in range(count):
            try:
                quiet.append(socket.create_connection(target.address, timeout=DEADLINE))
            except OSError as error:
                raise Failed(f"connection {number}: {error}") from error
            if number % 500 == 0:
                at_most = max(at_most, target.costs()[0])
        descriptors, memory = target.costs()
        at_most = max(at_most, descriptors)
        print(f"  {count} silent connections: the server has {at_most} descriptors at most, {memory} MiB", flush=True)
        check(at_most < 4096 + 200, "the server keeps a bounded number of them", at_most)
        check(memory < 256, "and a bounded memory", memory)
        hold(target, 8, "them")
        Insider(target.address, Frames(), target.key, target.name).close()
        check(True, "who belongs here still gets in")
        for each in quiet:
            each.close()
    attack("10,000 silent connections", strike)


def case_shapes():
    """Halves, absurd lengths and every wrong frame, from strangers and from who knows the token."""
    def strike(target):
        frames = Frames()
        starts = [b"WFT1", b"WFT1\0\0", b"WFT1\xff\xff\xff\xff", b"WFT1\0\0\0\x80", b"WFT2\0\0\0\0", b"\0" * 64, b"\xff" * 64,
                  b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", b"SSH-2.0-x\r\n"]
        starts += [GREETING + start for start in starts] + [GREETING * 50]
        starts += [GREETING + framed(frames.make(name)) for name in frames.types]
        starts += [GREETING + framed(os.urandom(size)) for size in (1, 100, 4096, 5000)]
        peers = [Peer(target.address) for _ in starts]
        for peer, start in zip(peers, starts):
            peer.send(start)
            peer.send(b"more of it" * 100)
        for peer, start in zip(peers, starts):
            check_quiet(peer.ends(), "a stranger is let go", start[:40])
            peer.close()
        count = 0
        for what, payload in frames.wrong():
            peer = Insider(target.address, frames, target.key, target.name)
            peer.send(framed(payload))
            check_quiet(peer.ends(), "a wrong frame ends its connection", what)
            peer.close()
            count += 1
        print(f"  ok: {len(starts)} strangers and {count} wrong frames of insiders were let go", flush=True)
        check(count > 500, "every field of every frame was wrong in turn", count)
    attack("frames of every wrong shape", strike)


def check_quiet(condition, what, detail):
    if not condition:
        raise Failed(f"{what}: {detail}")


def case_states():
    """Good frames where they do not belong: before HELLO, of an observer, of a second claimant; HELLOs out of range."""
    def strike(target):
        frames = Frames()
        for name in frames.types:
            if name == "hello":
                continue
            early = Insider(target.address, frames, target.key, target.name)
            early.send(framed(frames.make(name)))
            check_quiet(early.ends(), "a frame before HELLO ends the connection", name)
            early.close()
            if name in ("leave", "status_request", "look"):  # what an observer may say
                continue
            watcher = Insider(target.address, frames, target.key, target.name)
            watcher.send(watcher.hello(frames, target.name) + framed(frames.make(name)))
            check_quiet(watcher.ends(), "an observer may only ask and leave", name)
            watcher.close()
        rows = [{"rank": 99}, {"side": 1, "rank": 99}, {"side": 1, "rank": 0, "engine": 77}, {"proto_min": 9, "proto_max": 9},
                {"job": "another"}, {"incarnation": 8}, {"rank": 1, "incarnation": 9}]
        for row in rows:
            proven = {key: row[key] for key in ("side", "rank") if key in row}
            peer = Insider(target.address, frames, target.key, target.name, role=0, **proven)
            peer.send(peer.hello(frames, target.name, **{"host": "here", "group": "x", "spec": "vllm:tp=1", **row}))
            check_quiet(peer.ends(), "a HELLO that is wrong is refused", row)
            peer.close()
        print(f"  ok: {2 * len(frames.types)} frames out of place and {len(rows)} HELLOs were refused", flush=True)
    attack("frames out of place", strike)


def case_floods():
    """Floods of small frames, and observers that never read: bounded, and let go."""
    def strike(target):
        frames = Frames()
        beat = framed(frames.make("heartbeat"))
        watchers = []
        for _ in range(40):  # they never read
            peer = Insider(target.address, frames, target.key, target.name)
            peer.send(peer.hello(frames, target.name))
            watchers.append(peer)
        claimants = []
        for number in range(20):  # each says it is rank 0 of the infer side, which lives
            peer = Insider(target.address, frames, target.key, target.name, role=0, side=1, rank=0, incarnation=100 + number)
            peer.send(peer.hello(frames, target.name, engine=0, host="here", group="x", spec="vllm:tp=1"))
            claimants.append(peer)
        until = time.monotonic() + 4
        sent = 0
        while time.monotonic() < until:
            for peer in claimants:
                peer.socket.settimeout(0.01)
                sent += 200 if peer.send(beat * 200) else 0
            stranger = Peer(target.address)
            stranger.send(GREETING + beat * 500)
            stranger.close()
        descriptors, memory = target.costs()
        print(f"  a flood of {sent} heartbeats of claimants: the server has {descriptors} descriptors, {memory} MiB", flush=True)
        check(memory < 256 and descriptors < 400, "the server's cost is bounded", (descriptors, memory))
        for peer in watchers + claimants:
            peer.close()
    attack("floods and observers that never read", strike)


def case_reconnects():
    """A thousand connections that come, are somebody, and go leave nothing behind."""
    def strike(target):
        frames = Frames()

        def come_and_go(count):
            for number in range(count):
                peer = Insider(target.address, frames, target.key, target.name)
                peer.send(peer.hello(frames, target.name))
                if number % 2 == 0:
                    peer.send(framed(frames.make("leave")))
                peer.close()

        come_and_go(100)
        before = target.costs()
        come_and_go(1000)
        limit = time.monotonic() + DEADLINE
        while target.costs()[0] > before[0] and time.monotonic() < limit:
            hold(target, 1, "a thousand that came and went")
        after = target.costs()
        check(after[0] <= before[0] and after[1] <= before[1] + 4, "no descriptor and no memory is left of them", (before, after))
    attack("a thousand reconnects", strike)


def case_descriptors():
    """A server that may open few files: it pauses accepting without a spin, and the job goes on."""
    with Work(QWEN) as work:
        path = work.path("few.token")
        with open(path, "w") as out:
            out.write("11" * 32 + "\n")
        os.chmod(path, 0o600)
        job = work.job(train="megatron:tp=2", infer="vllm:tp=2", versions=3, extra="server: {token_file: %s}\n" % path)
        limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        with subprocess.Popen([WEFT, "server", job, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, preexec_fn=limit) as server:
            host, port = server.stdout.readline().split("tcp:")[1].strip().rsplit(":", 1)
            quiet = [socket.create_connection((host, int(port)), timeout=DEADLINE) for _ in range(300)]
            time.sleep(3)
            with open(f"/proc/{server.pid}/stat") as text:
                ticks = sum(int(number) for number in text.read().rsplit(")", 1)[1].split()[11:13])
            check(ticks < 200, "a server without descriptors does not spin", f"{ticks} ticks of 10 ms")
            ranks = [subprocess.Popen([WEFT, "run", job, "--rank", f"{side}:{rank}", "--server", f"{host}:{port}", "--token-file",
                                       path], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                     for side in ("train", "infer") for rank in (0, 1)]
            for rank in ranks:
                _, text = rank.communicate(timeout=DEADLINE)
                check(rank.returncode == 0, "a rank comes in and ends well", f"{rank.returncode}: {text}")
            text = server.communicate(timeout=DEADLINE)[1]
            check(server.returncode == 0, "the server ends well", text)
            check(len(text.splitlines()) < 60, "with a few lines in its log", len(text.splitlines()))
            for each in quiet:
                each.close()


if __name__ == "__main__":
    sys.exit(main(globals()))
