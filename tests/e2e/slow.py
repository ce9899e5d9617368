"""slow.py - tests on a machine that is slow: how much longer things may take, and waiting for what happens.

WEFT_TEST_SLOW=N, a whole number: leases and deadlines of tests that are about them are N times as long. The suite sets
it for sanitized builds. It changes no judgement, only how long a process may wait for a core before it counts as dead.
"""
import json
import os
import random
import socket
import subprocess
import time

SLOW = int(os.environ.get("WEFT_TEST_SLOW", "1"))
DEADLINE = 180 * SLOW  # seconds that anything may take that must happen: a command, a process that ends, an answer
LEASE = "timeouts: {lease: 30s}\n"  # of jobs that are not about time
PATIENT = "timeouts: {lease: 150s, round: 170s}\n"  # of a job in which a rank is held on purpose: it must not count as dead


def brief(**more):
    """The `timeouts` of a job whose faults are to be found soon; `more` and all of them in seconds."""
    seconds = {"lease": 1, "round": 20, "quiesce": 2, "flip": 5, "join": 60, "connect": 30, **more}
    return ("timeouts: {heartbeat: 150ms, repeat: 300ms, " +
            ", ".join(f"{name}: {number * SLOW}s" for name, number in seconds.items()) + "}\n")


def wait_present(weft, address, side, rank):
    """Until the server at that address has the rank."""
    limit = time.monotonic() + DEADLINE
    while True:
        done = subprocess.run([weft, "status", address, "--json", "-"], capture_output=True, text=True, check=False)
        ranks = json.loads(done.stdout)["ranks"] if done.returncode == 0 else []
        if any((r["side"], r["rank"], r["presence"]) == (side, rank, "present") for r in ranks):
            return
        assert time.monotonic() < limit, f"{side} rank {rank} never joined: {done.stderr}"


def free_port():
    """A port that nobody has; not one of those that the kernel gives away, as somebody might get it meanwhile."""
    numbers = random.Random(os.urandom(8))
    while True:
        port = numbers.randrange(20000, 30000)
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
                return port
            except OSError:
                pass  # in use
