#!/usr/bin/env python3
"""launchers.py WEFT CASE - jobs whose ranks a launcher starts, by the scripts of config/examples/launchers.

Open MPI is really run where it is installed, and so is torchrun; otherwise, and for Slurm and PMIx, a stand-in
of the launcher's name starts as many processes with the variables that the real one sets.
"""
import json
import os
import shutil
import stat
import subprocess
import sys

import e2e
from e2e import DEADLINE, WEFT, Work, check, check_report, start_server
from slow import free_port

EXAMPLES = os.path.abspath("config/examples/launchers")

# Started as NAME ... -n N ... COMMAND: runs N commands, each with the variables of the template, and ends with
# the first status that is not 0.
STAND_IN = """#!/usr/bin/env python3
import os, subprocess, sys
words = sys.argv[1:]
count = int(os.environ["STAND_IN_RANKS"])
command = words[words.index(os.environ["WEFT"]):]
def variables(rank):
    pairs = (pair.split("=", 1) for pair in {template!r}.split())
    return dict(os.environ, **{{name: value.format(r=rank, n=count) for name, value in pairs}})
ranks = [subprocess.Popen(command, env=variables(rank)) for rank in range(count)]
sys.exit(max(rank.wait() for rank in ranks))
"""
TORCHRUN = ("RANK={r} WORLD_SIZE={n} LOCAL_RANK={r} LOCAL_WORLD_SIZE={n} MASTER_ADDR=localhost MASTER_PORT=29500 "
            "TORCHELASTIC_RUN_ID=x")
SLURM = ("SLURM_PROCID={r} SLURM_NTASKS={n} SLURM_STEP_NUM_TASKS={n} SLURM_LOCALID={r} SLURM_STEP_ID=0 SLURM_JOB_ID=7 "
         "SLURM_STEP_NODELIST=localhost,other[1-2]")
PMIX = "PMIX_RANK={r} PMIX_NAMESPACE=prterun-1"
ONE_NODE = " SLURM_NNODES=1"
CLEAN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "SLURM_PROCID", "PMI_RANK", "PMIX_RANK")


def environment(**more):
    kept = {name: value for name, value in os.environ.items() if name not in CLEAN}
    return dict(kept, WEFT=WEFT, **more)


def stand_in(work, name, template):
    """A folder with a program of the launcher's name."""
    folder = work.path("bin")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name)
    with open(path, "w") as out:
        out.write(STAND_IN.format(template=template))
    os.chmod(path, stat.S_IRWXU)
    return folder


def start(script, *arguments, path=None, **variables):
    env = environment(**variables)
    if path:
        env["PATH"] = path + os.pathsep + env["PATH"]
    return subprocess.run([os.path.join(EXAMPLES, script), *arguments], env=env, capture_output=True, text=True,
                          timeout=DEADLINE, check=False)


def ends_well(done, report, versions):
    check(done.returncode == 0, "exit status 0", done.stdout[-2000:] + done.stderr[-3000:])
    with open(report) as text:
        found = json.load(text)
    check_report(found, versions)
    check(all(v["elements_checked"] > 10000 for v in found["versions"]), "every version was checked")


def small(work, extra=""):
    """2 + 2 ranks, three versions, and a report."""
    return work.job("megatron:tp=2", "vllm:tp=2", extra=f"report: {work.path('r.json')}\n{extra}"), work.path("r.json")


def token(work):
    """A token file, as for ranks on several hosts."""
    path = work.path("token")
    with open(path, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as out:
        out.write(os.urandom(32).hex() + "\n")
    return path


def case_openmpi():
    """Really mpirun, if it is here: one host without an address, and over TCP."""
    if shutil.which("mpirun") is None:
        print("  skipped: no mpirun here")
        sys.exit(77)
    with Work() as work:
        options = ["--allow-run-as-root", "--oversubscribe"]
        job, report = small(work)
        ends_well(start("mpirun.sh", job, *options, RANKS="4"), report, 3)
        os.unlink(report)
        job, report = small(work, f'server: {{listen: "127.0.0.1:{free_port()}"}}\n')
        ends_well(start("mpirun.sh", job, *options, RANKS="4"), report, 3)
        done = start("mpirun.sh", job, *options, RANKS="3")
        check(done.returncode != 0 and "OMPI_COMM_WORLD_SIZE=3" in done.stderr and "4 ranks" in done.stderr,
              "a wrong number of ranks is refused", done.stderr)


def case_torchrun():
    """torchrun, or a stand-in for it: rank 0 at MASTER_ADDR has the server."""
    with Work() as work:
        job, report = small(work, f'server: {{listen: "*:{free_port()}"}}\n')
        folder = None if shutil.which("torchrun") else stand_in(work, "torchrun", TORCHRUN)
        ends_well(start("torchrun.sh", job, path=folder, NPROC="4", STAND_IN_RANKS="4", MASTER_ADDR="localhost",
                        MASTER_PORT=str(free_port())), report, 3)


def case_slurm():
    """A stand-in for srun: several nodes with the list's first as the server's, and one node without an address."""
    with Work() as work:
        job, report = small(work, f'server: {{listen: "*:{free_port()}"}}\n')
        ends_well(start("slurm.sbatch", path=stand_in(work, "srun", SLURM), JOB=job, STAND_IN_RANKS="4"), report, 3)
        os.unlink(report)
        job, report = small(work)
        ends_well(start("slurm.sbatch", path=stand_in(work, "srun", SLURM + ONE_NODE), JOB=job, STAND_IN_RANKS="4",
                        SLURM_PROCID="0", SLURM_NTASKS="4"), report, 3)
        done = start("slurm.sbatch", path=stand_in(work, "srun", SLURM), JOB=job, STAND_IN_RANKS="4")
        check(done.returncode == 2 and "server.listen" in done.stderr, "several nodes need an address", done.stderr)
        job, report = small(work, f'server: {{listen: "*:{free_port()}"}}\n')
        several = stand_in(work, "srun", SLURM + " SLURM_NNODES=3")
        done = start("slurm.sbatch", path=several, JOB=job, STAND_IN_RANKS="4")
        check(done.returncode == 2 and "server.token_file" in done.stderr, "and a token", done.stderr)
        ends_well(start("slurm.sbatch", path=several, JOB=job, STAND_IN_RANKS="4", WEFT_TOKEN_FILE=token(work)), report, 3)


def case_pmix():
    """A stand-in for prterun, which does not say how many ranks there are."""
    with Work() as work:
        job, report = small(work, f'server: {{listen: "127.0.0.1:{free_port()}"}}\n')
        ends_well(start("pmix.sh", job, path=stand_in(work, "prterun", PMIX), RANKS="4", STAND_IN_RANKS="4"), report, 3)


def case_kubernetes():
    """The pods of the example's Job: a server of its own, ranks by their index, an observer for the report."""
    with open(os.path.join(EXAMPLES, "kubernetes.yaml")) as text:
        manifest = text.read()
    check("command: [weft, run, /job/job.yaml, --launcher, k8s]" in manifest, "the manifest's command is this one")
    with Work() as work:
        job, report = small(work, f"server: {{token_file: {token(work)}}}\n")
        server, address = start_server(work, job)
        observer = subprocess.Popen([WEFT, "run", job, "--observe", "--server", address], env=environment(),
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        pods = [subprocess.Popen([WEFT, "run", job, "--launcher", "k8s", "--server", address], stderr=subprocess.PIPE,
                                 text=True, env=environment(JOB_COMPLETION_INDEX=str(pod), WEFT_WORLD_SIZE="4"))
                for pod in range(4)]
        for pod in pods:
            _, text = pod.communicate(timeout=DEADLINE)
            check(pod.returncode == 0, "a pod ends well", f"{pod.returncode}: {text}")
        check(server.wait(timeout=DEADLINE) == 0, "the server ends well", server.stderr.read())
        out, text = observer.communicate(timeout=DEADLINE)
        ends_well(subprocess.CompletedProcess([], observer.returncode, out, text), report, 3)


def case_sides():
    """Trainer and engines by a launcher of their own each: an engine does not take its trainer's RANK."""
    with Work() as work:
        job, report = small(work, f'server: {{listen: "127.0.0.1:{free_port()}"}}\n')
        command = [WEFT, "run", job, "--launcher", "auto", "-q", "--side"]
        def rank(side, **variables):
            return subprocess.Popen([*command, side], env=environment(**variables), stderr=subprocess.PIPE, text=True)
        ranks = [rank("train", RANK=str(r), WORLD_SIZE="2") for r in (0, 1)]
        ranks += [rank("infer", PMI_RANK=str(r), PMI_SIZE="2") for r in (0, 1)]
        texts = [one.communicate(timeout=DEADLINE)[1] for one in ranks]
        check([one.returncode for one in ranks] == [0] * 4, "all ranks end well", texts)
        with open(report) as text:
            check_report(json.load(text), 3)
        rows = [
            ("the trainer's world is another size", {"RANK": "1", "WORLD_SIZE": "4"}, ["WORLD_SIZE=4", "2 ranks"]),
            ("the trainer's RANK beside its own", {"RANK": "1", "WORLD_SIZE": "2", "PMI_RANK": "0", "PMI_SIZE": "2"},
             ["RANK=1", "PMI_RANK=0", "--launcher pmi"]),
            ("no launcher at all", {}, ["--rank"]),
        ]
        for name, variables, words in rows:
            done = subprocess.run([*command, "infer"], env=environment(**variables), capture_output=True, text=True,
                                  timeout=DEADLINE, check=False)
            check(done.returncode == 2 and all(word in done.stderr for word in words), f"refused: {name}", done.stderr)


def case_not_asked():
    """A plain `weft run` under a launcher: its part where that fits, a refusal where not, all of it if told so."""
    with Work() as work:
        job, _ = small(work)
        def plain(*more, **variables):
            return subprocess.run([WEFT, "run", job, "-q", *more], env=environment(**variables), capture_output=True,
                                  text=True, timeout=DEADLINE, check=False)
        done = plain(RANK="3", WORLD_SIZE="8")
        check(done.returncode == 2 and "WORLD_SIZE=8" in done.stderr and "--launcher" in done.stderr,
              "a world that does not fit is refused", done.stderr)
        check(plain("--launcher", "none", RANK="3", WORLD_SIZE="8").returncode == 0, "and told so, it is all of the job")
        check(plain(SLURM_PROCID="0", SLURM_NTASKS="4").returncode == 0, "a batch script runs all of it")
        for option in (["--launcher", "sge"], ["--side", "both"], ["--host-name", "a b"], ["--observe"]):
            check(plain(*option).returncode == 2, f"refused: {' '.join(option)}")


if __name__ == "__main__":
    sys.exit(e2e.main(globals()))
