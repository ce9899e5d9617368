"""held.py - a process of a job that stops itself at a point of the protocol, so that a test strikes just there.

A test that waits for a line of the job's output and then strikes has a race: on a machine that is slow the job may be
at its end by then. The point and its words are those of tools/run/hold.h.
"""
import os
import select
import time

from slow import DEADLINE


def stands_still(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as text:
        return text.read().rsplit(")", 1)[1].split()[0] == "T"


class Held:
    """Give `environment` to the job, then wait."""

    def __init__(self, folder, who, when, what, number):
        fifo = os.path.join(folder, f"held-{who}-{when}-{what}-{number}".replace(" ", "-"))
        os.mkfifo(fifo)
        self.fifo = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        self.point = f"{who},{when},{what},{number}"
        self.environment = dict(os.environ, WEFT_TEST_HOLD=f"{self.point},{fifo}")

    def wait(self, meanwhile):
        """The process, once it stands still. `meanwhile`, such as a job's `pump`, waits for as many seconds as it gets."""
        limit = time.monotonic() + DEADLINE
        pid = None
        while pid is None or not stands_still(pid):
            assert time.monotonic() < limit, f"nobody reached {self.point}"
            meanwhile(0.05)
            if pid is None and select.select([self.fifo], [], [], 0)[0]:
                pid = int(os.read(self.fifo, 32))
        os.close(self.fifo)
        return pid
