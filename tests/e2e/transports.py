#!/usr/bin/env python3
"""transports.py WEFT CASE - jobs whose bytes move in different ways, and bytes that go wrong on the way.

Each case is a function named case_*. Those over UCX are skipped (exit 77) where this build or this host has none.
"""
import sys

from e2e import LLAMA, QWEN, Work, check, kill_case, main, run, weft
from slow import SLOW

UCX = "transport: {prefer: ucx, ucx: {TLS: tcp}}\n"


def moved_by(version):
    return {entry["name"]: entry for entry in version["transports"]}


def whole(report):
    return report["ok"] and all(v["elements_wrong"] == 0 and v["torn_reads"] == 0 for v in report["versions"])


def has_ucx():
    with Work() as work:
        status, report, text = run(work.job(train="megatron:tp=1", infer="vllm:tp=1", versions=1,
                                            extra="transport: {prefer: ucx}\n"), "--quiet")
        return status == 0 or "transport.prefer asks for ucx" not in text


def skip():
    print("  skipped: no UCX here", flush=True)
    sys.exit(77)


def case_flips():
    """A byte that flips on the wire or after the write: named to the chunk, not committed; the next attempt is."""
    rows = [(kind, "") for kind in ("flip_wire", "flip_memory")]
    rows += [(kind, UCX) for kind in ("flip_wire", "flip_memory") if has_ucx()]
    with Work() as work:
        for kind, transport in rows:
            job = work.job(name=kind, extra=f"{transport}faults: [{{kind: {kind}, at: 2, ranks: [1]}}]\n")
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
        # What is dropped is missed when the round's time is over; a slow machine needs some of it too.
        rows = (("delay", "at: 2, delay: 300ms", 60, 0, ""), ("fail", "at: 2", 60, 1, "a fault on purpose"),
                ("drop", "at: 2", 5 * SLOW, 1, "did not reach infer rank"))
        for kind, more, seconds, aborts, says in rows:
            job = work.job(name=kind, extra=f"faults: [{{kind: {kind}, {more}, ranks: [0]}}]\ntimeouts: {{lease: 30s, round: {seconds}s}}\n")
            status, report, text = run(job, "--quiet")
            aborted = [v for v in report["versions"] if v["state"] == "aborted"]
            check(status == 0 and whole(report), f"{kind}: the job ends well", text)
            check(len(aborted) == aborts, f"{kind}: {aborts} attempts are aborted", report)
            check(all(says in v["culprit"]["reason"] for v in aborted), f"{kind}: the culprit says why", aborted)
            check(text.count("aborted: ") == aborts, f"{kind}: each is told once, with --quiet and before any version is there", text)


def case_missing():
    """A transport that is asked for and not there is an error that says so."""
    with Work() as work:
        job = work.job(extra="transport: {prefer: ucx}\n")
        done = weft("run", job, "--quiet", env={"PATH": "/usr/bin:/bin", "WEFT_UCX_LIBRARY": "/nonexistent/libucp.so.0"})
        check(done.returncode == 1, "exit status 1", done.stderr)
        check("transport.prefer asks for ucx" in done.stderr, "the error says what was asked for", done.stderr)


def case_shapes():
    """Every edge over UCX TCP: one pair, equal and unequal numbers of ranks, other parallel sizes on either side."""
    if not has_ucx():
        return skip()
    rows = (("1+1", QWEN, "megatron:tp=1", "vllm:tp=1"),
            ("2+2", QWEN, "megatron:tp=2", "vllm:tp=2"),
            ("3+5", LLAMA, "megatron:tp=3", "vllm:tp=1,engines=5"),
            ("8+8", QWEN, "megatron:tp=2,pp=4", "vllm:tp=2,engines=4"),
            ("tp 2 to tp 4", QWEN, "megatron:tp=2", "vllm:tp=4"))
    for name, model, train, infer in rows:
        with Work(model) as work:
            status, report, text = run(work.job(train=train, infer=infer, versions=2, extra=UCX), "--quiet")
            check(status == 0 and whole(report), f"{name}: the job ends well", text)
            moved = moved_by(report["versions"][0])
            check(set(moved) == {"ucx"} and moved["ucx"]["bytes"] == report["plan"]["bytes_moved"],
                  f"{name}: every byte came over ucx", moved)
            check("one pair of processes" in report["versions"][0]["limit_how"], f"{name}: the limit is that of a link")
            link = report["limits"]["link"]
            check(link["median"] == max(link["socket"], link["ucx"]) > 0, f"{name}: the better of its two ways", link)
            ranks = [rank for entry in report["selected"] for rank in entry["infer_ranks"]]
            check(sorted(ranks) == list(range(report["infer_ranks"])) and
                  all(entry["how"].startswith("ucx ") and entry["how"].endswith("; tcp/lo")
                      for entry in report["selected"]), f"{name}: what UCX selected is told", report["selected"])


def case_mixed():
    """One engine on the trainers' host, one that counts as elsewhere: shm and ucx in one plan, one version."""
    if not has_ucx():
        return skip()
    with Work() as work:
        job = work.job(versions=3, extra="transport: {prefer: \"shm,ucx\", ucx: {TLS: tcp}}\n")
        with open(job) as text:
            changed = text.read().replace('infer: {spec: "vllm:tp=2,engines=2"}',
                                          'infer: [{name: near, spec: "vllm:tp=2"}, '
                                          '{name: far, spec: "vllm:tp=2", host: elsewhere}]')
        with open(job, "w") as text:
            text.write(changed)
        status, report, text = run(job, "--quiet")
        check(status == 0 and whole(report), "the job ends well", text)
        for version in report["versions"]:
            moved = moved_by(version)
            check(set(moved) == {"shm", "ucx"} and all(m["bytes"] > 0 and m["edges"] > 0 for m in moved.values()),
                  "both transports moved bytes", moved)
            check(sum(m["bytes"] for m in moved.values()) == version["bytes"], "and all of them together", version)
            check("memcpy" in version["limit_how"] and "one pair of processes" in version["limit_how"],
                  "the limit knows both")


def case_kill():
    """kill -9 of a reader and of a source in the middle of a transfer over UCX."""
    if not has_ucx():
        return skip()
    for side, rank in (("infer", 1), ("train", 2)):
        with Work() as work:
            report, _ = kill_case(side, rank, work, versions=5, extra=UCX)
            culprit = [v for v in report["versions"] if v["state"] == "aborted"][0]["culprit"]
            check(culprit and culprit["side"] == side and culprit["rank"] == rank, "the culprit is named", culprit)


if __name__ == "__main__":
    sys.exit(main(globals()))
