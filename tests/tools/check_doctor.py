#!/usr/bin/env python3
"""check_doctor.py WEFT - `weft doctor` on this host, and on poorer ones made by limits and namespaces."""
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile

WEFT = os.path.abspath(sys.argv[1])
KEYS = {"group": str, "id": str, "state": str, "found": str, "needed": bool}
NULLABLE = {"value": float, "unit": str, "costs": str, "do": str}
EVERYWHERE = ("memory", "memfd", "dev_shm", "memlock", "process_vm_readv", "pidfd", "descriptors", "cores", "clock",
              "host_name", "ucx", "cuda", "nccl", "tmp", "cache")


def check(condition, what, detail=""):
    if not condition:
        sys.exit(f"FAILED: {what} {detail}")
    print(f"  ok: {what}", flush=True)


def doctor(*arguments, before=None, wrap=(), env=None):
    return subprocess.run([*wrap, WEFT, "doctor", *arguments], capture_output=True, text=True, timeout=100, check=False,
                          preexec_fn=before, env=env)


def findings(**more):
    done = doctor("--json", "-", **more)
    report = json.loads(done.stdout)
    return done.returncode, report, {one["id"]: one for one in report["findings"]}


def check_schema(report):
    for one in report["findings"]:
        good = all(isinstance(one[key], kind) for key, kind in KEYS.items())
        good = good and all(one[key] is None or isinstance(one[key], kind) for key, kind in NULLABLE.items())
        good = good and set(one) == {*KEYS, *NULLABLE} and one["state"] in ("ok", "slow", "missing") and one["found"]
        good = good and (one["unit"] is None) == (one["value"] is None)
        check(good, f"{one['id']} has the form of a finding", one)
        check(one["state"] == "ok" or one["costs"] or one["group"] == "libraries", f"{one['id']} says what it costs", one)


def soft_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 8192))


def set_limits(*pairs):
    def apply():
        for kind, value in pairs:
            resource.setrlimit(kind, (value, value))
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    return apply


def check_this_host(folder):
    """One run gives both the text and the JSON."""
    path = os.path.join(folder, "d.json")
    done = doctor("--json", path)
    with open(path) as text:
        report = json.load(text)
    found = {one["id"]: one for one in report["findings"]}
    check(done.returncode == 0 and report["fit"] is True and report["weft_version"], "this host is fit", report)
    check(not [name for name in EVERYWHERE if name not in found], "every subject is there", sorted(found))
    check(len(found) == len(report["findings"]), "no id comes twice")
    check_schema(report)
    check(found["memfd"]["value"] > 0.01 and found["tcp"]["value"] > 0.01, "rates are measured")
    lines = done.stdout.split("\n")
    check(done.stderr == "" and any("libraries" in line for line in lines), "text for people", done.stderr)
    check(max(len(line) for line in lines if " " in line.strip()) <= 80, "fits on 80 columns", max(lines, key=len))
    check(all(line == line.rstrip() for line in lines), "no blanks at the ends of lines")


def main():
    with tempfile.TemporaryDirectory() as folder:
        check_this_host(folder)
    check(doctor("more").returncode == 2 and doctor("--what").returncode == 2, "a wrong command line is refused")

    poor = dict(os.environ, WEFT_UCX_LIBRARY="/nonexistent/libucp.so.0", TMPDIR="/nonexistent")
    _, _, found = findings(env=poor, before=set_limits((resource.RLIMIT_NOFILE, 64), (resource.RLIMIT_MEMLOCK, 0)))
    check(found["descriptors"]["state"] == "slow" and "64" in found["descriptors"]["found"], "few descriptors")
    check("LimitNOFILE" in found["descriptors"]["do"], "and where the hard limit is set", found["descriptors"])
    check("0 bytes" in found["memlock"]["found"], "no locked memory is said")
    check(found["cores"]["value"] == 1 and "cores.one" in found, "one core")
    check(found["ucx"]["state"] == "missing" and "/nonexistent" in found["ucx"]["found"], "a UCX that is not there")
    check(found["tmp"]["state"] == "slow" and "/nonexistent" in found["tmp"]["found"], "no temporary folder")
    check(doctor("--json", "/nonexistent/d.json", env=poor).returncode == 1, "a file that cannot be written is an error")

    _, _, found = findings(before=soft_descriptors)
    check(found["descriptors"]["state"] == "ok" and "8192" in found["descriptors"]["found"], "a low soft limit is no matter")

    status, report, found = findings(before=set_limits((resource.RLIMIT_FSIZE, 1 << 20)))
    check(status == 1 and report["fit"] is False and found["memfd"]["state"] == "missing", "files too small", report)
    check("ulimit -f" in found["memfd"]["do"] and found["file_size"]["state"] == "slow", "the limit is named")

    script = "mount -t tmpfs -o ro,size=1m tmpfs /dev/shm && exec \"$0\" \"$@\""
    wrap = ["unshare", "--mount", "--net", "sh", "-c", script]
    if shutil.which("unshare") and subprocess.run([*wrap, "true"], capture_output=True, check=False).returncode == 0:
        status, report, found = findings(wrap=wrap, env=poor)
        check(status == 0 and found["dev_shm"]["state"] == "slow", "a small read-only /dev/shm", found["dev_shm"])
        check(found["nic"]["state"] == "missing" and found["tcp"]["state"] == "missing", "no network at all", report)
        check("loopback" in found["tcp"]["found"] and "unreachable" in found["tcp"]["found"], "and why", found["tcp"])
        check_schema(report)
        with tempfile.NamedTemporaryFile("w", suffix="-hosts") as hosts:
            hosts.write(f"127.0.1.1 {os.uname().nodename}\n")
            hosts.flush()
            _, _, found = findings(env=poor, wrap=["unshare", "--mount", "sh", "-c",
                                                   f"mount --bind {hosts.name} /etc/hosts && exec \"$0\" \"$@\""])
            check(found["host_name"]["state"] == "slow" and "127.0.1.1" in found["host_name"]["found"],
                  "a name that is loopback is refused as a server would", found["host_name"])
            hosts.write(f"192.0.2.7 {os.uname().nodename}\n")
            hosts.flush()
            _, _, found = findings(env=poor, wrap=["unshare", "--mount", "sh", "-c",
                                                   f"mount --bind {hosts.name} /etc/hosts && exec \"$0\" \"$@\""])
            check(found["host_name"]["state"] == "ok" and "192.0.2.7" in found["host_name"]["found"],
                  "one that has another address too is not", found["host_name"])
    else:
        print("  skipped: no namespaces for this user")


main()
