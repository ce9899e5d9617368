"""check_layout_command.py WEFT - exit statuses, sentences and JSON of `weft layout`."""
import json
import subprocess
import sys

WEFT = sys.argv[1]
MODEL = "tests/golden/configs/Qwen3-0.6B.json"
REAL = "tests/golden/real/"

# (arguments, exit status, text that standard output or error must hold)
ROWS = [
    (["--help"], 0, "check DIR"),
    ([], 2, "show, check or detect"),
    (["foo"], 2, "foo"),
    (["check"], 2, "folders"),
    (["check", "--model", MODEL, REAL + "megatron-qwen3-tp1"], 2, "check needs"),
    (["check", REAL + "megatron-qwen3-tp1"], 0, "ok       megatron-qwen3-tp1: 1 ranks, 19 tensors"),
    (["check", REAL + "megatron-qwen3-tp1", "/nowhere"], 1, "refused  nowhere"),
    (["show"], 2, "--spec"),
    (["show", "--model", MODEL, "--spec", "vllm:tp=3"], 2, "tp=3"),
    (["show", "--model", MODEL, "--spec", "vlm:tp=2"], 2, "did you mean vllm"),
    (["show", "--model", MODEL, "--spec", "vllm:tp=2", "--rank", "2"], 2, "ranks 0 to 1"),
    (["show", "--model", MODEL, "--spec", "vllm:tp=2", "--rank", "-1"], 2, "--rank"),
    (["show", "--model", "/nowhere", "--spec", "vllm:tp=2"], 1, "/nowhere"),
    (["show", "--model", "README.md", "--spec", "vllm:tp=2"], 1, "JSON line 1"),
    (["show", "--model", MODEL, "--spec", "hf:"], 0, "model.embed_tokens.weight bf16 151936x1024"),
]


def run(arguments):
    return subprocess.run([WEFT, "layout"] + arguments, capture_output=True, text=True)


def check_json():
    done = run(["check", "--json", "-", REAL + "vllm-qwen3-tp2", REAL + "hf-transformers-5.24.0"])
    assert done.returncode == 0, done
    good, inventory = json.loads(done.stdout)
    assert set(good) == {"case", "ok", "tensors", "elements", "first_difference"}, good
    assert good == {"case": "vllm-qwen3-tp2", "ok": True, "tensors": 38, "elements": 136064,
                    "first_difference": None}, good
    assert inventory["ok"] is True and "inventory" in inventory["first_difference"], inventory
    done = run(["show", "--model", MODEL, "--spec", "megatron:tp=2,pp=2", "--rank", "3", "--json", "-"])
    shown = json.loads(done.stdout)
    assert shown["coordinates"] == {"engine": 0, "tp": 1, "pp": 1, "dp": 0, "cp": 0}, shown
    names = [tensor["name"] for tensor in shown["tensors"]]
    assert "output_layer.weight" in names and len(names) == 114, names


failed = 0
for arguments, status, text in ROWS:
    done = run(arguments)
    if done.returncode != status or text not in done.stdout + done.stderr:
        failed += 1
        print("weft layout", *arguments, "gave", done.returncode, done.stdout[:300], done.stderr[:300])
check_json()
sys.exit(failed != 0)
