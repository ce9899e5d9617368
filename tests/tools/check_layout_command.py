"""check_layout_command.py WEFT - exit statuses, sentences and JSON of `weft layout`."""
import json
import subprocess
import sys
import tempfile

WEFT = sys.argv[1]
MODEL = "tests/golden/configs/Qwen3-0.6B.json"
REAL = "tests/golden/real/"

# (arguments, exit status, text that standard output or error must hold)
ROWS = [
    (["--help"], 0, "check DIR"),
    (["--help"], 0, "family NAME"),
    ([], 2, "check, detect or family"),
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
    (["detect"], 2, "detect needs"),
    (["detect", "/nowhere"], 1, "/nowhere"),
    (["detect", REAL + "fsdp2-qwen3-dp2"], 0, "qwen3          fsdp:dtype=f32,dp=2\n"),
    (["detect", REAL + "vllm-qwen3-tp2"], 0, "ambiguous: these"),
    (["detect", REAL + "vllm-qwen3-tp2"], 0, "qwen3          vllm:dtype=f32,tp=2\n"),
    (["detect", REAL + "vllm-qwen3-tp2"], 0, "vocab_size may be smaller"),
    (["detect", REAL + "vllm-qwen3-fp8block-tp2"], 0, "holds fp8 codes and scales"),
    (["detect", REAL + "megatron-qwen3-tp1/rank_00.tsv"], 0, "one dump does not show"),
    (["detect", REAL + "../models"], 1, "neither rank_00"),
    (["family", "qwen3"], 0, "role: q_norm"),
    (["family", "qwen9"], 2, "this build knows: bailing"),
    (["family"], 2, "one NAME"),
    (["show", "--family", "/nowhere", "--model", MODEL, "--spec", "vllm:tp=2"], 2, "/nowhere"),
    (["show", "--family", "README.md", "--model", MODEL, "--spec", "vllm:tp=2"], 2, "README.md"),
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


def check_detected():
    """What detect answers is what show takes: its config and SPEC make the dump's tensors."""
    done = run(["detect", "--json", "-", REAL + "fsdp2-qwen3-dp2"])
    assert done.returncode == 0, done
    fits = json.loads(done.stdout)["fits"]
    assert len(fits) == 1 and fits[0]["family"] == "qwen3", fits
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(fits[0]["config"], file)
        file.flush()
        shown = json.loads(run(["show", "--model", file.name, "--spec", fits[0]["spec"], "--rank", "1",
                                "--json", "-"]).stdout)
    with open(REAL + "fsdp2-qwen3-dp2/rank_01.tsv") as lines:
        dump = {line.split("\t")[0] for line in lines if not line.startswith(("#", "alias"))}
    assert {tensor["name"] for tensor in shown["tensors"]} == dump, shown


def check_flat():
    """Flat parameters of which a rank has no elements may be left out."""
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(3):
            with open(f"{REAL}fsdp1-qwen3-dp3/rank_{rank:02d}.tsv") as lines, \
                    open(f"{folder}/rank_{rank:02d}.tsv", "w") as fewer:
                fewer.writelines(line for line in lines if line.split("\t")[2].strip() != "0")
        done = run(["detect", folder])
    assert done.returncode == 0 and "fsdp:dtype=f32,dp=3,flat=1\n" in done.stdout, done


def check_family():
    """A family as it is printed, with one name changed, takes the built-in one's place."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(run(["family", "qwen3"]).stdout.replace("self_attn.q_norm", "self_attn.query_norm"))
        file.flush()
        show = ["show", "--model", MODEL, "--spec", "vllm:tp=2"]
        plain, mine = run(show).stdout, run(show + ["--family", file.name]).stdout
        changed = [line for line in mine.replace("query_norm", "q_norm").splitlines() if line not in plain.splitlines()]
        assert "self_attn.query_norm.weight" in mine and len(changed) <= 1, changed  # one line tells the hash


failed = 0
for arguments, status, text in ROWS:
    done = run(arguments)
    if done.returncode != status or text not in done.stdout + done.stderr:
        failed += 1
        print("weft layout", *arguments, "gave", done.returncode, done.stdout[:300], done.stderr[:300])
check_json()
check_detected()
check_flat()
check_family()
sys.exit(failed != 0)
