#!/usr/bin/env python3
"""transports.py WEFT CASE - jobs whose bytes move in different ways, and bytes that go wrong on the way.

Each case is a function named case_*. Those over UCX are skipped (exit 77) where this build or this host has none.
"""
import sys

from e2e import LLAMA, Work, check, main, run, weft


def moved_by(version):
    return {entry["name"]: entry for entry in version["transports"]}


def whole(report):
    return report["ok"] and all(v["elements_wrong"] == 0 and v["torn_reads"] == 0 for v in report["versions"])


def has_ucx():
    with Work() as work:
        status, report, text = run(work.job(train="megatron:tp=1", infer="vllm:tp=1", versions=1,
                                            extra="transport: {prefer: ucx}\n"), "--quiet")
        return status == 0 or "transport.prefer asks for ucx" not in text


def case_flips():
    """A byte that flips on the wire or after the write: named to the chunk, not committed; the next attempt is."""
    with Work() as work:
        for kind in ("flip_wire", "flip_memory"):
            job = work.job(name=kind, extra=f"faults: [{{kind: {kind}, at: 2, ranks: [1]}}]\n")
            status, report, text = run(job, "--quiet")
            aborted = [v for v in report["versions"] if v["state"] == "aborted"]
            check(status == 0 and whole(report), f"{kind}: the job ends well", text)
            check(len(aborted) == 1 and aborted[0]["digest_mismatches"] == 1, f"{kind}: one attempt is aborted", report)
            culprit = aborted[0]["culprit"]
            check(culprit["object"].startswith("chunk ") and " of box " in culprit["object"], f"{kind}: a chunk is named",
                  culprit)
            check([v["state"] for v in report["versions"] if v["version"] == aborted[0]["version"]][-1] == "committed",
                  f"{kind}: the version commits at the next attempt")


def case_faults():
    """Reads that are late, fail or vanish end their attempt by name and deadline; the next attempt commits."""
    with Work() as work:
        rows = (("delay", "delay: 300ms", 0, ""), ("fail", "at: 2", 1, "a fault on purpose"),
                ("drop", "at: 2", 1, "did not arrive"))
        for kind, more, aborts, says in rows:
            more = more if "at:" in more else more + ", at: 2"
            job = work.job(name=kind, extra=f"faults: [{{kind: {kind}, {more}, ranks: [0]}}]\ntimeouts: {{round: 2s}}\n")
            status, report, text = run(job, "--quiet")
            aborted = [v for v in report["versions"] if v["state"] == "aborted"]
            check(status == 0 and whole(report), f"{kind}: the job ends well", text)
            check(len(aborted) == aborts, f"{kind}: {aborts} attempts are aborted", report)
            check(all(says in v["culprit"]["reason"] for v in aborted), f"{kind}: the culprit says why", aborted)


def case_missing():
    """A transport that is asked for and not there is an error that says so."""
    with Work() as work:
        job = work.job(extra="transport: {prefer: ucx}\n")
        done = weft("run", job, "--quiet", env={"PATH": "/usr/bin:/bin", "WEFT_UCX_LIBRARY": "/nonexistent/libucp.so.0"})
        check(done.returncode == 1, "exit status 1", done.stderr)
        check("transport.prefer asks for ucx" in done.stderr, "the error says what was asked for", done.stderr)


if __name__ == "__main__":
    sys.exit(main(globals()))
