#!/usr/bin/env python3
"""strangers.py WEFT CASE - end-to-end tests of the job's token. Helpers are e2e.py's."""
import os
import signal
import socket
import subprocess
import sys

from e2e import DEADLINE, WEFT, Watched, Work, check, child_pid, main, weft
from held import Held
from slow import PATIENT


def token(work, name, mode=0o600):
    path = work.path(name)
    with open(path, "w") as out:
        out.write(os.urandom(32).hex() + "\n")
    os.chmod(path, mode)
    return path


def server_address(pid):
    """From the command line of a rank that joined it."""
    with open(f"/proc/{child_pid(pid, 'infer:0')}/cmdline", "rb") as text:
        words = text.read().decode().split("\0")
    return words[words.index("--server") + 1]


def case_files():
    """Files that others may read, that are none, that are not there."""
    with Work() as work:
        job = work.job(versions=1)
        open_to_all = token(work, "open", 0o644)
        done = weft("server", job, "--token-file", open_to_all)
        check(done.returncode == 1 and f"chmod 600 {open_to_all}" in done.stderr, "a file that others may read", done.stderr)
        words = token(work, "words")
        with open(words, "w") as out:
            out.write("correct horse battery staple\n")
        done = weft("run", job, "--token-file", words)
        check(done.returncode == 1 and "64 hex digits" in done.stderr and "horse" not in done.stderr, "a file of words", done.stderr)
        done = weft("server", job, "--token-file", work.path("none"))
        check(done.returncode == 1 and "No such file" in done.stderr, "no file", done.stderr)
        environment = dict(os.environ, WEFT_TOKEN_FILE=open_to_all)
        done = weft("server", job, env=environment)
        check(done.returncode == 1 and "chmod 600" in done.stderr, "WEFT_TOKEN_FILE is looked at", done.stderr)
        environment = dict(os.environ, HOME="/proc/nowhere")
        for name in ("WEFT_CACHE", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME"):
            environment.pop(name, None)
        nobodys = f"e2e-{os.getpid()}"  # this one's token lies where a user's own may be
        homeless = work.job(versions=1, name="homeless", job=nobodys)
        check(weft("run", homeless, env=environment).returncode == 0, "a home that cannot be written is no hindrance")
        os.unlink(f"/tmp/weft-run-{os.geteuid()}/{nobodys}.token")
        environment = dict(os.environ, WEFT_CACHE=work.path("cache"))
        check(weft("run", job, env=environment).returncode == 0, "a job without a file makes one")
        made = os.path.join(work.path("cache"), "run", "e2e.token")
        check(os.stat(made).st_mode & 0o777 == 0o600 and os.stat(os.path.dirname(made)).st_mode & 0o777 == 0o700,
              "that only its user can read")


def case_strangers():
    """Who has no token, another, or another job's is refused by name while a job runs undisturbed."""
    with Work() as work:
        right, wrong = token(work, "right"), token(work, "wrong")
        extra = f'server: {{listen: "127.0.0.1:0", token_file: {right}}}\n{PATIENT}'
        job = work.job(train="megatron:tp=2", infer="vllm:tp=2", versions=6, extra=extra)
        other = work.job(train="megatron:tp=2", infer="vllm:tp=2", name="other", job="other")
        held = Held(work.folder, "infer:0", "before", "vote", 3)
        running = Watched(job, env=held.environment)
        stopped = held.wait(running.pump)
        address = server_address(running.process.pid)
        refused = weft("run", job, "--rank", "infer:1", "--server", address, "--token-file", wrong)
        check(refused.returncode == 1 and "did not prove" in refused.stderr, "a wrong token is refused", refused.stderr)
        refused = weft("run", other, "--rank", "infer:1", "--server", address, "--token-file", right)
        check(refused.returncode == 1 and "another job" in refused.stderr, "a rank of another job is refused", refused.stderr)
        host, port = address.removeprefix("tcp:").rsplit(":", 1)
        silent = [socket.create_connection((host, int(port))) for _ in range(50)]
        noisy = [socket.create_connection((host, int(port))) for _ in range(50)]
        for number, each in enumerate(noisy):
            each.sendall(b"WFT1\0\0\0\0WFT1" + bytes([number, 0, 0, 0]) + bytes(number))
        os.kill(stopped, signal.SIGCONT)
        (code, report), text = running.end(), running.text
        check(code == 0 and report["ok"], "the job never noticed", text)
        check(all(version["attempt"] == 1 for version in report["versions"]), "not one attempt was lost")
        check(text.count("refused a connection from tcp:127.0.0.1") <= 20, "the log has a few lines, not hundreds",
              text.count("refused a connection"))
        check("did not prove that it knows the job's token" in text, "the log names the reason", text)
        for each in silent + noisy:
            each.close()


if __name__ == "__main__":
    sys.exit(main(globals()))
