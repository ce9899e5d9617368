#!/usr/bin/env python3
"""Writes the folders beside it: layouts in the form of ../real that no executed case shows.

Each begins as an executed case of ../real. Vision towers are added to its language model, index by index, after the code
that README.md names; further cuts and types are worked out from what it holds. Knows nothing of Weft's tables.
"""
import json
import pathlib
import re

KEPT = "u"
HERE = pathlib.Path(__file__).resolve().parent
REAL = HERE.parent / "real"


class Tensor:
    """Elements of parameter `p` (its number), row-major, as (number, index) pairs; None is a zero, KEPT what nobody moves."""

    def __init__(self, shape, cells):
        self.shape, self.cells = list(shape), cells

    @staticmethod
    def read(shape, runs):
        """The `shape` and `runs` columns of a rank file: p:s+n, p:s+n*k/st, z+n."""
        cells = []
        for run in filter(None, runs.split(",")):
            origin, _, rest = run.partition("+")
            if origin == "z":
                cells += [None] * int(rest)
                continue
            number, first = origin.split(":")
            length, _, repeat = rest.partition("*")
            times, _, step = repeat.partition("/") if repeat else ("1", "", "0")
            cells += [(number, int(first) + k * int(step) + i) for k in range(int(times)) for i in range(int(length))]
        return Tensor([int(n) for n in shape.split("x")], cells)

    @staticmethod
    def whole(number, shape):
        count = 1
        for n in shape:
            count *= n
        return Tensor(shape, [(number, i) for i in range(count)])

    def rows(self, first, last):
        width = len(self.cells) // self.shape[0]
        return Tensor([last - first] + self.shape[1:], self.cells[first * width:last * width])

    def columns(self, first, last):
        rows, width = self.shape[0], self.shape[1]
        cells = [c for r in range(rows) for c in self.cells[r * width + first:r * width + last]]
        return Tensor([rows, last - first], cells)

    def transposed(self):
        rows, width = self.shape
        return Tensor([width, rows], [self.cells[r * width + c] for c in range(width) for r in range(rows)])

    def padded(self, rows):
        width = len(self.cells) // self.shape[0]
        return Tensor([rows] + self.shape[1:], self.cells + [None] * ((rows - self.shape[0]) * width))

    def runs(self):
        out = []
        for cell in self.cells:
            if cell is None or cell == KEPT:
                mark = cell or "z"
                if out and out[-1][0] == mark:
                    out[-1][2] += 1
                else:
                    out.append([mark, 0, 1])
            elif out and out[-1][0] == cell[0] and out[-1][1] + out[-1][2] == cell[1]:
                out[-1][2] += 1
            else:
                out.append([cell[0], cell[1], 1])
        return ",".join(f"{p}+{n}" if p in ("z", KEPT) else f"{p}:{s}+{n}" for p, s, n in out)


def stacked(parts):
    return Tensor([sum(p.shape[0] for p in parts)] + parts[0].shape[1:], [c for p in parts for c in p.cells])


def row_share(tensor, rank, size):
    n = tensor.shape[0] // size
    assert n * size == tensor.shape[0]
    return tensor.rows(rank * n, (rank + 1) * n)


def column_share(tensor, rank, size):
    n = tensor.shape[1] // size
    assert n * size == tensor.shape[1]
    return tensor.columns(rank * n, (rank + 1) * n)


def qkv_share(parts, rank, size):
    """A QKV-parallel linear: every rank stacks its own heads of q, of k and of v."""
    return stacked([row_share(p, rank, size) for p in parts])


def thirds(tensor):
    n = tensor.shape[0] // 3
    return [tensor.rows(i * n, (i + 1) * n) for i in range(3)]


# --- SigLIP and Gemma 3's projector ---------------------------------------------------------------

SIGLIP = {"hidden_size": 8, "image_size": 12, "intermediate_size": 12, "num_attention_heads": 4,
          "num_hidden_layers": 2, "patch_size": 4, "vision_use_head": False}
TOWER = "vision_tower.vision_model."
BLOCK = TOWER + "encoder.layers.{}."


def siglip_params(hidden):
    v = SIGLIP
    h, i, side, patches = v["hidden_size"], v["intermediate_size"], v["patch_size"], v["image_size"] // v["patch_size"]
    out = {TOWER + "embeddings.patch_embedding.weight": (h, 3, side, side),
           TOWER + "embeddings.patch_embedding.bias": (h,),
           TOWER + "embeddings.position_embedding.weight": (patches * patches, h)}
    for n in range(v["num_hidden_layers"]):
        b = BLOCK.format(n)
        for norm in ("layer_norm1", "layer_norm2"):
            out[b + norm + ".weight"] = out[b + norm + ".bias"] = (h,)
        for linear in ("q_proj", "k_proj", "v_proj", "out_proj"):
            out[b + f"self_attn.{linear}.weight"], out[b + f"self_attn.{linear}.bias"] = (h, h), (h,)
        out[b + "mlp.fc1.weight"], out[b + "mlp.fc1.bias"] = (i, h), (i,)
        out[b + "mlp.fc2.weight"], out[b + "mlp.fc2.bias"] = (h, i), (h,)
    out[TOWER + "post_layernorm.weight"] = out[TOWER + "post_layernorm.bias"] = (h,)
    out["multi_modal_projector.mm_input_projection_weight"] = (h, hidden)
    out["multi_modal_projector.mm_soft_emb_norm.weight"] = (h,)
    return out


def siglip_engine(p, rank, size, out_name, pad):
    """Both engines: attention and MLP cut over the ranks, the rest whole."""
    out = {}
    for name, tensor in p.items():
        if ".self_attn.q_proj." in name:
            parts = [p[name.replace("q_proj", x)] for x in ("q_proj", "k_proj", "v_proj")]
            out[name.replace("q_proj", "qkv_proj")] = qkv_share(parts, rank, size)
        elif ".k_proj." in name or ".v_proj." in name:
            continue
        elif name.endswith("out_proj.weight"):
            out[name.replace("out_proj", out_name)] = column_share(tensor, rank, size)
        elif name.endswith("fc2.weight"):
            out[name] = column_share(tensor, rank, size)
        elif ".fc1." in name:
            out[name] = row_share(tensor, rank, size)
        elif "position_embedding" in name and pad:
            rows = -(-tensor.shape[0] // pad) * pad
            out[name] = row_share(tensor.padded(rows), rank, size)
        else:
            out[name.replace("out_proj", out_name)] = tensor
    return out


def gemma_vllm(p, rank, size):
    return siglip_engine(p, rank, size, "out_proj", 0)


def gemma_sglang(p, rank, size):
    return siglip_engine(p, rank, size, "proj", 64)


def gemma_megatron(p, rank, size):
    out = {name: tensor for name, tensor in p.items() if name.startswith("vision_tower.")}
    projection = p["multi_modal_projector.mm_input_projection_weight"].transposed()
    out["multi_modal_projector.proj.weight"] = row_share(projection, rank, size)
    out["multi_modal_projector.mm_soft_embed_norm.weight"] = p["multi_modal_projector.mm_soft_emb_norm.weight"]
    return out


# --- MoonViT and Kimi K2.5's projector ------------------------------------------------------------

MOONVIT = {"vt_hidden_size": 12, "vt_num_hidden_layers": 2, "vt_num_attention_heads": 2, "vt_intermediate_size": 20,
           "patch_size": 2, "init_pos_emb_height": 5, "init_pos_emb_width": 3, "merge_kernel_size": [2, 2]}
# As transformers calls them, and vLLM and SGLang with it.
MOONVIT.update({"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 20,
                "pos_emb_height": 5, "pos_emb_width": 3})
MOON = "vision_tower.encoder.blocks.{}."


def moonvit_params(hidden):
    v = MOONVIT
    h, i, side = v["vt_hidden_size"], v["vt_intermediate_size"], v["patch_size"]
    merged = h * v["merge_kernel_size"][0] * v["merge_kernel_size"][1]
    out = {"vision_tower.patch_embed.proj.weight": (h, 3, side, side), "vision_tower.patch_embed.proj.bias": (h,),
           "vision_tower.patch_embed.pos_emb.weight": (v["init_pos_emb_height"], v["init_pos_emb_width"], h)}
    for n in range(v["vt_num_hidden_layers"]):
        b = MOON.format(n)
        for name, shape in (("norm0", (h,)), ("norm1", (h,)), ("wqkv", (3 * h, h)), ("wo", (h, h)),
                            ("mlp.fc0", (i, h)), ("mlp.fc1", (h, i))):
            out[b + name + ".weight"], out[b + name + ".bias"] = shape, shape[:1]
    for name, shape in (("vision_tower.encoder.final_layernorm", (h,)), ("mm_projector.pre_norm", (h,)),
                        ("mm_projector.proj.0", (merged, merged)), ("mm_projector.proj.2", (hidden, merged))):
        out[name + ".weight"], out[name + ".bias"] = shape, shape[:1]
    return out


def projector_name(name):
    return name.replace("mm_projector.proj.0", "mm_projector.linear_1").replace("mm_projector.proj.2",
                                                                                "mm_projector.linear_2")


def kimi_vllm(p, rank, size):
    out = {}
    for name, tensor in p.items():
        if ".wqkv." in name:
            tensor = qkv_share(thirds(tensor), rank, size)
        elif name.endswith(".wo.weight") or name.endswith(".mlp.fc1.weight"):
            tensor = column_share(tensor, rank, size)
        elif ".mlp.fc0." in name:
            tensor = row_share(tensor, rank, size)
        out[projector_name(name)] = tensor
    return out


def kimi_vllm_data(p, rank, size):
    return {projector_name(name): tensor for name, tensor in p.items()}


def kimi_sglang_name(name):
    return projector_name(name).replace("wqkv.", "attn.qkv_proj.").replace("wo.", "attn.proj.")


def kimi_sglang_data(p, rank, size):
    return {kimi_sglang_name(name): tensor for name, tensor in p.items()}


def kimi_sglang(p, rank, size):
    out = {}
    for name, tensor in p.items():
        if ".wqkv." in name:
            tensor = qkv_share(thirds(tensor), rank, size)
        elif name.endswith(".wo.weight"):
            tensor = column_share(tensor, rank, size)
        out[kimi_sglang_name(name)] = tensor
    return out


def kimi_megatron(p, rank, size):
    return dict(p)


# --- further cuts of Megatron's tensors ------------------------------------------------------------


def paired_share(tensor, rank, size):
    """Of gate rows and up rows, a share of each."""
    half = tensor.shape[0] // 2
    return stacked([row_share(tensor.rows(0, half), rank, size), row_share(tensor.rows(half, 2 * half), rank, size)])


def megatron_share(name, tensor, rank, size):
    """One of `size` tensor parallel ranks' part of what one rank holds."""
    module = name.rstrip("0123456789")
    paired = (".linear_fc1.weight", ".linear_fc1.bias")
    by_rows = (".linear_q_up_proj.weight", ".linear_kv_up_proj.weight", ".eh_proj.weight")
    by_columns = (".linear_proj.weight", ".linear_fc2.weight")
    if module.endswith(paired):
        return paired_share(tensor, rank, size)
    if module in ("embedding.word_embeddings.weight", "output_layer.weight"):
        return row_share(tensor.padded(-(-tensor.shape[0] // size) * size), rank, size)
    if module.endswith(by_rows):
        return row_share(tensor, rank, size)
    return column_share(tensor, rank, size) if module.endswith(by_columns) else tensor


def read_rank(path):
    return [(n, d, Tensor.read(s, r)) for n, d, s, r in read_table(path)]


def write_rank(out, rank, rows):
    lines = ["# name\tdtype\tshape\truns"]
    lines += [f"{n}\t{d}\t{'x'.join(map(str, t.shape))}\t{t.runs()}" for n, d, t in rows]
    (out / f"rank_{rank:02}.tsv").write_text("\n".join(lines) + "\n")


def expert_at(name, first):
    """The name with its expert counted from `first`."""
    if ".local_experts." in name:
        head, tail = name.split(".local_experts.")
        number, rest = tail.split(".", 1)
        return f"{head}.local_experts.{int(number) + first}.{rest}"
    digits = len(name) - len(name.rstrip("0123456789"))
    return f"{name[:-digits]}{int(name[-digits:]) + first}"


def recut(folder, base):
    """The experts of all expert parallel ranks on each of as many ranks, and cut over them."""
    case = json.loads((REAL / base / "case.json").read_text())
    size = case["parallel"]["ep"]
    tables = [read_rank(REAL / base / f"rank_{rank:02}.tsv") for rank in range(size)]
    experts = {}
    for ep, table in enumerate(tables):
        own = [row for row in table if ".experts." in row[0]]
        highest = 1 + max(int(re.search(r"(\d+)(?:\.linear_fc[12]\.\w+)?$", n).group(1)) for n, _, _ in own)
        experts.update({expert_at(n, ep * highest): (d, t) for n, d, t in own})
    case["parallel"].update(ep=1, etp=size)
    for rank, at in enumerate(case["rank_coordinates"]):
        at.update(ep=0, etp=rank)
    out = start(folder, case, base)
    for rank, table in enumerate(tables):
        rows = [row for row in table if ".experts." not in row[0]]
        rows += [(n, d, megatron_share(n, t, rank, size)) for n, (d, t) in experts.items()]
        write_rank(out, rank, rows)


def cut_one(folder, base, size):
    """What one rank holds, cut over `size`, the vocabulary padded to a multiple of it, of the other
    bridge: its get_model keeps all routers' biases in f32."""
    case = json.loads((REAL / base / "case.json").read_text())
    case["parallel"].update(tp=size, etp=size)
    case["padded_vocab_multiple"], case["loader"] = size, "Megatron-Bridge"
    zero = case["rank_coordinates"][0]
    case["rank_coordinates"] = [dict(zero, tp=rank, etp=rank) for rank in range(size)]
    out = start(folder, case, base)
    for rank in range(size):
        write_rank(out, rank, [(n, "float32" if n.endswith("router.expert_bias") else d,
                                megatron_share(n, t, rank, size))
                               for n, d, t in read_rank(REAL / base / "rank_00.tsv")])


def retype(folder, base, dtype, names):
    """Another dtype in the config, which the tensors whose names hold one of `names` then have."""
    case = json.loads((REAL / base / "case.json").read_text())
    case["hf_config"]["torch_dtype"] = dtype
    out = start(folder, case, base)
    for path in sorted((REAL / base).glob("rank_*.tsv")):
        lines = path.read_text().splitlines()
        for i, line in enumerate(lines):
            columns = line.split("\t")
            if any(name in columns[0] for name in names):
                columns[1] = dtype
                lines[i] = "\t".join(columns)
        (out / path.name).write_text("\n".join(lines) + "\n")


# --- int4 experts ----------------------------------------------------------------------------------

GROUP = 8  # two groups a rank: of one group, what is transposed looks the same
INT4 = {"quant_method": "compressed-tensors", "format": "pack-quantized",
        "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"],
        "config_groups": {"group_0": {"targets": ["Linear"],
                                      "weights": {"num_bits": 4, "type": "int", "group_size": GROUP, "strategy": "group",
                                                  "symmetric": True, "dynamic": False, "actorder": None}}}}
ROUTED = re.compile(r"(.*\.mlp\.experts\.)(\d+)\.(gate|up|down)_proj\.weight$")


def stack_experts(experts):
    return Tensor([len(experts)] + experts[0].shape, [c for e in experts for c in e.cells])


def int4_experts(dir_, experts, rank, size, transposed):
    """w13 and w2, packed and scales, of the experts {number: {(matrix, kind): tensor}}."""
    out = {}
    turn = Tensor.transposed if transposed else lambda t: t
    for kind in ("packed", "scale"):
        w13 = [stacked([row_share(e[m, kind], rank, size) for m in ("gate", "up")]) for e in experts.values()]
        w2 = [column_share(e["down", kind], rank, size) for e in experts.values()]
        dtype = "int32" if kind == "packed" else "bfloat16"
        out[f"{dir_}w13_weight_{kind}"] = dtype, stack_experts([turn(t) for t in w13])
        out[f"{dir_}w2_weight_{kind}"] = dtype, stack_experts([turn(t) for t in w2])
    hidden, inside = experts[0]["down", "packed"].shape
    kept = {"w13_weight_shape": ("bfloat16", 2), "w2_weight_shape": ("bfloat16", 2)}
    if transposed:
        for w, columns in (("w13", 64), ("w2", inside * 8 // size)):
            kept[f"{w}_weight_g_idx"] = kept[f"{w}_g_idx_sort_indices"] = ("int32", columns)
        assert hidden == 64
    for name, (dtype, columns) in kept.items():
        out[dir_ + name] = dtype, Tensor([len(experts), columns], [KEPT] * (len(experts) * columns))
    return out


def int4(folder, base, model_type, live, transposed):
    """The routed experts of a case packed; `live`: what the engine writes behind "mlp.experts."."""
    case = json.loads((REAL / base / "case.json").read_text())
    case["hf_config"]["quantization_config"], case["hf_config"]["model_type"] = INT4, model_type
    out = start(folder, case, base)
    lines, renumbered, layers = ["# index\tname\tshape"], {}, {}
    for number, name, shape in read_table(REAL / base / "params.tsv"):
        found = ROUTED.match(name)
        if not found:
            renumbered[number] = str(len(lines) - 1)
            lines.append(f"{len(lines) - 1}\t{name}\t{shape}")
            continue
        rows, columns = (int(n) for n in shape.split("x"))
        dir_, expert, matrix = found.groups()
        for kind, own in (("packed", (rows, columns // 8)), ("scale", (rows, columns // GROUP)), ("shape", (2,))):
            index = len(lines) - 1
            experts = layers.setdefault(dir_, {}).setdefault(int(expert), {})
            experts[matrix, kind] = Tensor.whole(index, own)
            lines.append(f"{index}\t{name}_{kind}\t{'x'.join(map(str, own))}")
    (out / "params.tsv").write_text("\n".join(lines) + "\n")
    size = case["parallel"]["tp"]
    for path in sorted((REAL / base).glob("rank_*.tsv")):
        rank = int(path.stem[5:])
        rows = ["# name\tdtype\tshape\truns"]
        for line in read_table(path):
            if line[0] != "alias" and re.search(r"\.w(13|2)_weight$", line[0]):
                continue
            if line[0] != "alias":
                line[3] = re.sub(r"(^|,)(\d+):", lambda m: f"{m[1]}{renumbered[m[2]]}:", line[3])
            rows.append("\t".join(line))
        for dir_, experts in layers.items():
            for name, (dtype, tensor) in int4_experts(dir_ + live, experts, rank, size, transposed).items():
                rows.append(f"{name}\t{dtype}\t{'x'.join(map(str, tensor.shape))}\t{tensor.runs()}")
        (out / path.name).write_text("\n".join(rows) + "\n")


def start(folder, case, base):
    case["how"] = "not executed: see README.md"
    out = HERE / folder
    out.mkdir(exist_ok=True)
    (out / "case.json").write_text(json.dumps(case, indent=1) + "\n")
    (out / "params.tsv").write_text((REAL / base / "params.tsv").read_text())
    return out


# --- folders --------------------------------------------------------------------------------------


def read_table(path):
    return [line.split("\t") for line in path.read_text().splitlines() if line and not line.startswith("#")]


def prefixed(name, prefix):
    for mark in ("buffer:", "attr:"):
        if name.startswith(mark):
            return mark + prefix + name[len(mark):]
    return prefix + name


def make(folder, base, model_type, vision, params_of, tower_of, change=None):
    case = json.loads((REAL / base / "case.json").read_text())
    params = read_table(REAL / base / "params.tsv")
    text = case["hf_config"]
    text.setdefault("model_type", case.get("hf_model_type"))
    tower = params_of(text["hidden_size"])
    top = {"model_type": model_type, "text_config": text, "vision_config": vision,
           "tie_word_embeddings": text["tie_word_embeddings"], "torch_dtype": "float32"}
    case["hf_config"] = top
    if "hf_model_type" in case:
        case["hf_model_type"], case["loader"] = model_type, "Megatron-Bridge"
    case["how"] = "not executed: see README.md"
    case.update(change or {})
    out = HERE / folder
    out.mkdir(exist_ok=True)
    (out / "case.json").write_text(json.dumps(case, indent=1) + "\n")
    lines = ["# index\tname\tshape"] + [f"{i}\tlanguage_model.{n}\t{s}" for i, n, s in params]
    numbers = {name: len(params) + i for i, name in enumerate(tower)}
    lines += [f"{numbers[n]}\t{n}\t{'x'.join(map(str, s))}" for n, s in tower.items()]
    (out / "params.tsv").write_text("\n".join(lines) + "\n")
    size = case["parallel"]["tp"]
    for path in sorted((REAL / base).glob("rank_*.tsv")):
        rank = int(path.stem[5:])
        table = read_table(path)
        dtype = table[0][1]
        lines = ["# name\tdtype\tshape\truns"]
        for line in table:
            names = (1, 2) if line[0] == "alias" else (0,)
            lines.append("\t".join(prefixed(f, "language_model.") if i in names else f for i, f in enumerate(line)))
        whole = {name: Tensor.whole(numbers[name], shape) for name, shape in tower.items()}
        for name, tensor in tower_of(whole, rank, size).items():
            lines.append(f"{name}\t{dtype}\t{'x'.join(map(str, tensor.shape))}\t{tensor.runs()}")
        (out / path.name).write_text("\n".join(lines) + "\n")


def main():
    make("vllm-gemma3-tower-tp2", "vllm-gemma3-tp2-tied", "gemma3", SIGLIP, siglip_params, gemma_vllm)
    make("sglang-gemma3-tower-tp2", "sglang-gemma3-tp2-tied", "gemma3", SIGLIP, siglip_params, gemma_sglang)
    make("megatron-gemma3-tower-tp2", "megatron-bridge-gemma3-tp2", "gemma3", SIGLIP, siglip_params, gemma_megatron)
    make("vllm-kimik25-tower-tp2", "vllm-deepseekv3-tp2", "kimi_k25", MOONVIT, moonvit_params, kimi_vllm)
    odd = dict(MOONVIT, vt_num_attention_heads=3, num_attention_heads=3)
    make("vllm-kimik25-odd-heads-tp2", "vllm-deepseekv3-tp2", "kimi_k25", odd, moonvit_params, kimi_vllm_data)
    make("vllm-kimik25-data-tp2", "vllm-deepseekv3-tp2", "kimi_k25", MOONVIT, moonvit_params, kimi_vllm_data,
         {"engine_options": {"mm_encoder_tp_mode": "data"}})
    make("sglang-kimik25-tower-tp2", "sglang-deepseekv3-tp2", "kimi_k25", MOONVIT, moonvit_params, kimi_sglang)
    make("sglang-kimik25-data-tp2", "sglang-deepseekv3-tp2", "kimi_k25", MOONVIT, moonvit_params, kimi_sglang_data,
         {"engine_options": {"mm_enable_dp_encoder": True, "disable_shared_experts_fusion": True}})
    make("megatron-kimik25-tower-tp2", "megatron-dsv3-tp2-ep2-etp1", "kimi_k25", MOONVIT, moonvit_params, kimi_megatron)
    recut("megatron-gptoss-tp2-etp2", "megatron-bridge-gptoss-tp2-ep2-etp1")
    recut("megatron-local-qwen3moe-sequential-tp2-etp2", "megatron-local-qwen3moe-sequential-tp2-ep2-etp1")
    cut_one("megatron-dsv3-mtp1-tp2", "megatron-dsv3-mtp1-tp1", 2)
    int4("vllm-kimik2-int4-tp2", "vllm-deepseekv3-tp2", "kimi_k2", "routed_experts.", False)
    int4("sglang-kimik2-int4-tp2", "sglang-deepseekv3-tp2", "kimi_k2", "", True)
    retype("sglang-gptoss-config-bf16", "sglang-gptoss-bf16-tp2", "bfloat16",
           ("qkv_proj.", "o_proj.", "mlp.router."))
    retype("sglang-qwen3next-config-bf16", "sglang-qwen3next-tp2", "bfloat16", ("linear_attn.norm.",))


main()
