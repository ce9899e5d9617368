#!/usr/bin/env python3
"""check_doors.py WEFT - what every command says to a file that is missing, a folder, empty or garbage, and to an
output that takes nothing: what was expected, what was found, and never success."""
import os
import shutil
import subprocess
import sys
import tempfile

WEFT = os.path.abspath(sys.argv[1])
LLAMA = os.path.abspath("tests/golden/models/tiny-llama.json")
CASE = os.path.abspath("tests/golden/real/vllm-llama-tp1")

# A command with INPUT in it; what it says it expects; what it may say was found, of nothing, a folder, an empty file
# and garbage (None: that is no mistake there).
NOT_YAML, NO_VALUE, FOLDER = "not valid YAML", "JSON line 1 column 1", "Is a directory"
INPUTS = [
    ("run INPUT", "expected a", "No such file", FOLDER, "the file is empty", NOT_YAML),
    ("run --family INPUT JOB", "expected a", "No such file", FOLDER, "the file is empty", NOT_YAML),
    ("run --hosts INPUT JOB", "", "expected a list of hosts", "expected a list of hosts", "no host is named", "line 1"),
    ("server INPUT", "expected a", "No such file", FOLDER, "the file is empty", NOT_YAML),
    ("status INPUT", "", "no file of that name", "found a folder", "the file is empty", NOT_YAML),
    ("plan --model INPUT --train fsdp:dp=2 --infer vllm:tp=3", "expect", "nothing of that name", "a folder without config.json",
     NO_VALUE, NO_VALUE),
    ("plan --family INPUT --model LLAMA --train fsdp:dp=2 --infer vllm:tp=3", "expected a", "No such file", FOLDER,
     "the file is empty", NOT_YAML),
    ("layout show --model INPUT --spec vllm:tp=3", "expect", "nothing of that name", "a folder without config.json", NO_VALUE,
     NO_VALUE),
    ("layout check INPUT", "expected a folder with what ranks held", "No such file", "there is no case.json", "Not a directory",
     "Not a directory"),
    ("layout detect INPUT", "", "cannot open", "neither rank_00.* nor *.safetensors is there", "expected the tensors of a rank",
     "neither a safetensors file nor a torch .pt archive"),
    ("compare INPUT CHECKPOINT", "expected a Hugging Face folder", "found nothing of that name", "found neither",
     "found no folder", "found no folder"),
    ("compare CHECKPOINT INPUT", "expected a Hugging Face folder", "found nothing of that name", "found neither",
     "found no folder", "found no folder"),
    ("dump INPUT --spec vllm:tp=3 --out OUT", "expected a Hugging Face folder", "found nothing of that name", "found neither",
     "found no folder", "found no folder"),
    ("versions INPUT", "", "expected a job's files.folder", "there is no version in", "Not a directory", "Not a directory"),
    ("make-checkpoint --model INPUT --out OUT", "expect", "nothing of that name", "a folder without config.json", NO_VALUE,
     NO_VALUE),
]

# Words that no file is behind, and what is said of them.
WORDS = [
    ("status JOB/foo", "expected a job file (docs/job-file.md) or the address of a job's server"),
    ("status nowhere", "found no file of that name"),
    ("status --timeout 0 host:7000", "expected more than 0 and up to 3600 seconds, found \"0\""),
    ("compare a b --max-layers 99999999999", "expected a whole number up to 999999, found \"99999999999\""),
    ("compare a b --tolerance bf17=1", "expected DTYPE=X, a type that weights have (f32, "),
    ("compare a --against-live JOB/engine:x", "JOB/engine:x: expected JOB with /engine:N, /infer:R"),
    ("compare a --against-live nowhere/x", "found no file of that name"),
    ("status host:99999", "is no job file, and no address: expected a port of 0 to 65535, found \"99999\""),
]

# Commands that print, and those of them that write JSON too.
OUTPUTS = [
    ("plan --model LLAMA --train fsdp:dp=2 --infer vllm:tp=3", True),
    ("plan explain --param model.norm.weight --model LLAMA --train fsdp:dp=2 --infer vllm:tp=3", False),
    ("layout show --model LLAMA --spec vllm:tp=3", True),
    ("layout check CASE", True),
    ("layout family llama", False),
    ("compare CHECKPOINT CHECKPOINT", True),
    ("make-checkpoint --model LLAMA --out CHECKPOINT", True),
    ("dump CHECKPOINT --spec vllm:tp=3 --out OUT", False),
]


class Doors:
    def __init__(self, folder):
        self.words = {"LLAMA": LLAMA, "CASE": CASE, "CHECKPOINT": folder + "/checkpoint", "OUT": folder + "/out",
                      "JOB": folder + "/job.yaml"}
        self.failed = 0

    def run(self, command, stdout=subprocess.PIPE, **more):
        words = [dict(self.words, **more).get(word, word) for word in command.split()]
        return subprocess.run([WEFT, *words], stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, text=True,
                              timeout=60, check=False)

    def check(self, what, done, statuses, *texts):
        said = (done.stdout or "") + done.stderr
        if done.returncode not in statuses or not all(text in said for text in texts):
            self.failed += 1
            print(f"FAILED: {what}: status {done.returncode}, expected {texts}, found: {said[-500:]}")


def main():
    with tempfile.TemporaryDirectory(prefix="weft-doors-") as folder:
        doors = Doors(folder)
        inputs = [folder + "/" + name for name in ("nothing", "folder", "empty", "garbage")]
        os.mkdir(inputs[1])
        with open(inputs[2], "wb"), open(inputs[3], "wb") as garbage, open(folder + "/job.yaml", "w") as job:
            garbage.write(bytes(range(128, 256)) * 20)
            job.write(f'job: doors\nmodel: {LLAMA}\ntrain: {{spec: "fsdp:dp=2"}}\ninfer: {{spec: "vllm:tp=3"}}\n')
        broken = folder + "/broken"
        os.mkdir(broken)
        shutil.copy(LLAMA, broken + "/config.json")
        shutil.copy(inputs[3], broken + "/model.safetensors")
        doors.check("a checkpoint", doors.run("make-checkpoint --model LLAMA --out CHECKPOINT"), (0,))
        for command, expected, *found in INPUTS:
            for path, text in zip(inputs, found):
                more = expected if text in ("No such file", FOLDER) or not text.startswith("the file") else ""
                doors.check(f"{command} of {os.path.basename(path)}", doors.run(command, INPUT=path), (1, 2), text,
                            more if text not in (NOT_YAML, NO_VALUE) else "")
        for command, text in WORDS:
            doors.check(command, doors.run(command), (2,), text)
        doors.check("a dump of garbage", doors.run("dump INPUT --spec vllm:tp=3 --out OUT", INPUT=broken), (1,), "this is no safetensors file")
        doors.check("a dump", doors.run("dump CHECKPOINT --spec fsdp:dp=3 --out OUT2", OUT2=folder + "/out2"), (0,))
        doors.check("a dump over one of more ranks", doors.run("dump CHECKPOINT --spec fsdp:dp=2 --out OUT2", OUT2=folder + "/out2"), (1,),
                    "and this one has 2; remove its files, or name another folder")
        for command, json in OUTPUTS:
            with open("/dev/full", "w") as full:
                doors.check(f"{command} to a full disk", doors.run(command, stdout=full), (1,), "cannot write to standard output")
            for path, text in (("/dev/full", "No space left"), (folder + "/none/x", "make the folder first"),
                               (folder + "/folder", "name a file in it")):
                if json:
                    doors.check(f"{command} --json {path}", doors.run(command + " --json JSON", JSON=path), (1,), text)
        read, write = os.pipe()
        os.close(read)
        doors.check("a reader that went away", doors.run("layout show --model LLAMA --spec vllm:tp=3", stdout=write), (0,), "")
        os.close(write)
    print(f"{doors.failed} failed")
    return doors.failed > 0


if __name__ == "__main__":
    sys.exit(main())
