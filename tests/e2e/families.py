#!/usr/bin/env python3
"""families.py WEFT CASE - jobs whose model is of a family that a file describes: the example of
docs/add-a-model.md."""
import os
import re
import sys

import e2e
import files
from e2e import Work, check, check_report, run, weft

DOCUMENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "add-a-model.md")


def example(work, language, name):
    """The document's first block of a language, as a file."""
    with open(DOCUMENT, encoding="utf-8") as text:
        block = re.search(f"```{language}\n(.*?)```", text.read(), re.DOTALL).group(1)
    with open(work.path(name), "w", encoding="utf-8") as out:
        out.write(block)
    return work.path(name)


def case_file():
    with Work() as work:
        os.environ["WEFT_CACHE"] = work.path("cache")
        family = example(work, "yaml", "harbor.yaml")
        work.model = example(work, "json", "harbor.json")
        spec = "megatron:tp=2,pp=2", "vllm:tp=2"
        status, report, text = run(work.job(*spec, versions=2, extra="families: [harbor.yaml]\n"))
        check(status == 0, "families in the job file", text)
        check_report(report, 2)
        check(report["versions"][0]["elements_checked"] > 10000, "every element was checked")
        check(report["checks"][0]["by"] == "layout" and "beware   infer0" in text, "by its own layout, it says", report["checks"])
        job = work.job(*spec, versions=2, name="plain")
        status, report, text = run(job, "--family", os.path.relpath(family))
        check(status == 0, "--family on the command line", text)
        check_report(report, 2)
        done = weft("run", job)
        check(done.returncode == 1 and 'model_type "harbor"' in done.stderr, "without it the type is unknown", done.stderr)
        done = weft("plan", "--family", family, "--model", work.model, "--train", spec[0], "--infer", spec[1])
        check(done.returncode == 0, "weft plan --family", done.stderr)


def case_checkpoint():
    """A job whose folder make-checkpoint filled, both by the family's file."""
    with Work() as work:
        os.environ["WEFT_CACHE"] = work.path("cache")
        family = example(work, "yaml", "harbor.yaml")
        config = example(work, "json", "harbor.json")
        make = "make-checkpoint", "--model", config, "--out", work.path("folder")
        done = weft(*make)
        check(done.returncode == 1 and 'model_type "harbor"' in done.stderr, "without it the type is unknown", done.stderr)
        done = weft(*make, "--family", family)
        check(done.returncode == 0 and "21 tensors" in done.stdout, "make-checkpoint --family", done.stdout + done.stderr)
        work.model = work.path("folder")
        status, report, text = run(work.job("fsdp:dp=2", "sglang:tp=2", versions=2, extra="families: [harbor.yaml]\n"))
        check(status == 0, "a job from the folder", text)
        check_report(report, 2)


def case_versions():
    """A version that the keeper wrote is one for who knows its family, and for nobody else."""
    with Work() as work:
        os.environ["WEFT_CACHE"] = work.path("cache")
        family = example(work, "yaml", "harbor.yaml")
        work.model = example(work, "json", "harbor.json")
        status, report, text = run(files.write_job(work, versions=2, extra="families: [harbor.yaml]\n"))
        check(status == 0, "the keeper writes", text)
        done = weft("versions", work.path("versions"), "--family", family)
        check(done.returncode == 0 and done.stdout.count("whole") == 2, "both are whole", done.stdout + done.stderr)
        done = weft("versions", work.path("versions"))
        check(done.returncode == 1 and done.stdout.count('model_type "harbor"') == 2 and "family file" in done.stdout,
              "without the file the type is unknown, and what to do", done.stdout + done.stderr)


if __name__ == "__main__":
    sys.exit(e2e.main(globals()))
