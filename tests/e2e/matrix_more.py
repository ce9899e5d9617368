"""matrix_more.py - cells of tools/fault-matrix about a keeper of versions, its folder, and the trainer's deadline."""
import os
import re
import shutil
import signal
import subprocess

KEEPER = "infer:3"  # behind the three ranks of the engines
KEEPER_GROUP = '{name: keeper, spec: "hf:", mode: in_place}'
# As those of the matrix: (state, WHEN, WHAT, N).
KEEPER_STATES = [
    ("joining", "before", "joined", 1),
    ("transfer", "after", "digest_request", 3),
    ("voting", "before", "vote", 2),
    ("in doubt", "after", "vote", 2),
    ("flipping", "before", "flipped", 2),
    ("writing", "job", "write", 2),
    ("idle", "after", "resumed", 2),
]
FOLDER_STATES = [
    ("writing", (KEEPER, "job", "write", 2)),
    ("between writes", (KEEPER, "before", "vote", 3)),
    ("filling", ("infer:1", "before", "flipped", 2)),  # the next version comes to the rescue
    ("filling at last", ("infer:1", "before", "flipped", 4)),
]
DEADLINE = 0.3  # seconds of a trainer, much less than a lease
LATE_STATES = [
    ("grant", "before", "grant_request", 3),
    ("transfer", "after", "digest_request", 3),
    ("voting", "before", "vote", 2),
]


def make(cell, failed):
    """The classes, of the matrix's own Cell and Failed."""

    class Kept(cell):
        """A job whose versions a keeper writes to a folder."""

        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.infer = 4

        def job_text(self, more):
            text = super().job_text(more).replace('spec: "vllm:tp=1"}]', 'spec: "vllm:tp=1"}, ' + KEEPER_GROUP + "]")
            return text + f"files: {{folder: {self.versions_folder()}, keep: 2}}\n"

        def versions_folder(self):
            return os.path.join(self.folder, "versions")

        def check_report(self, report):
            super().check_report(report)
            newest = [v["version"] for v in report["versions"] if v["state"] == "committed"][-1]
            done = subprocess.run([self.options.weft, "versions", self.versions_folder()], capture_output=True, text=True,
                                  timeout=60, check=False)
            if done.returncode != 0 or newest not in done.stdout:
                raise failed(f"versions that are kept: {done.stdout} {done.stderr}")
            left = [name for name in os.listdir(self.versions_folder()) if name.startswith(".")]
            if left:
                raise failed(f"left in the folder: {left}")

    class Vanished(Kept):
        """The folder is taken away; in the fill of an engine whose update in place failed, too."""

        def __init__(self, options, checkpoint, state, hold):
            super().__init__(options, checkpoint, "vanished", "folder", state, hold)
            self.fills, self.last_one = state.startswith("filling"), state == "filling at last"
            self.status = int(self.last_one)

        def job_text(self, more):
            text = super().job_text(more)
            in_place = text.replace('spec: "vllm:tp=2"}', 'spec: "vllm:tp=2", mode: in_place}') + "policy: {fill: folder}\n"
            return in_place if self.fills else text

        def strike(self, held):
            if self.fills:
                step = f".{self.hold[3]}"
                self.until("the version is written", lambda: any(name.endswith(step) and not name.startswith(".")
                                                                 for name in os.listdir(self.versions_folder())))
            os.rename(self.versions_folder(), self.versions_folder() + ".gone")  # at once, whoever is at it
            shutil.rmtree(self.versions_folder() + ".gone", ignore_errors=True)
            os.kill(held, signal.SIGKILL if self.fills else signal.SIGCONT)

        def may_be_named(self):
            return {self.hold[0]} if self.fills else set()

        def check_report(self, report):
            if not self.last_one:
                super().check_report(report)
                return
            reasons = [fill["culprit"]["reason"] for fill in report["fills"]]
            missing = f"is not in {self.versions_folder()}"
            if report["ok"] or not reasons or not all(missing in reason for reason in reasons):
                raise failed(f"the missing folder is not named: {reasons}")
            if "did not get version 4" not in self.text and "does not have version" not in self.text:
                raise failed("nobody says who has no weights")

    class Late(cell):
        """A rank is late, and the trainer's own deadline for a version passes: in doubt, and committed all the same."""

        def __init__(self, options, checkpoint, fault, victim, state, hold):
            super().__init__(options, checkpoint, fault, victim, state, hold)
            self.name += " with a deadline" if fault != "late" else ""

        def job_text(self, more):
            deadline = int(DEADLINE * self.slow * 1000)
            return super().job_text(more).replace('spec: "megatron:pp=2"', f'spec: "megatron:pp=2", deadline: {deadline}ms')

        def strike(self, held):
            if self.fault != "late":
                super().strike(held)
                return
            self.until("version 2 is in doubt", lambda: "version 2 of 4 is in doubt" in self.read_log())
            os.kill(held, signal.SIGCONT)

        def may_be_named(self):
            return set() if self.fault == "late" else super().may_be_named()

        def check_report(self, report):
            super().check_report(report)
            told = re.findall(r"train rank (\d+): version 2 is in doubt", self.text)
            struck = [v for v in report["versions"] if v["version"].endswith(".2")]
            if self.fault == "late" and (not told or not all(v["in_doubt"] for v in struck)):
                raise failed(f"nobody was in doubt: {struck}")
            undecided = [v for v in report["versions"] if v["state"] == "in_doubt"]
            if undecided:
                raise failed(f"never settled: {undecided}")

    return Kept, Vanished, Late


def cells(cell, failed, options, checkpoint):
    kept, vanished, late = make(cell, failed)
    for state, *point in KEEPER_STATES:
        for fault in ("kill", "stop long", "stop short"):
            yield kept(options, checkpoint, fault, KEEPER, state, (KEEPER, *point))
    for state, hold in FOLDER_STATES:
        yield vanished(options, checkpoint, state, hold)
    for state, *point in LATE_STATES:
        yield late(options, checkpoint, "late", "infer:1", state, ("infer:1", *point))
    for fault, victim, state, hold in (("kill", "infer:1", "voting", ("infer:1", "before", "vote", 2)),
                                       ("kill", "train:1", "digesting", ("train:1", "before", "digest", 4)),
                                       ("kill", "server", "deciding", ("server", "before", "decide", 4)),
                                       ("stop long", "server", "deciding", ("server", "before", "decide", 4))):
        yield late(options, checkpoint, fault, victim, state, hold)
