"""weft_manifest.py - writes a rank's manifest: which elements of which parameters stand where in its tensors.

For engines that no recipe describes (docs/manifests.md). Standard library only; copy it where you need it.

    rank = Manifest()
    qkv = rank.tensor("blocks.0.qkv", "bf16", [96, 64])
    qkv.put("model.layers.0.self_attn.q_proj.weight", [128, 64], take=[(0, 64), None])
    qkv.put("model.layers.0.self_attn.k_proj.weight", [32, 64], take=[(0, 16), None], at=[64, 0])
    qkv.put("model.layers.0.self_attn.v_proj.weight", [32, 64], take=[(0, 16), None], at=[80, 0])
    rank.write("rank-0.manifest")
"""
import copy
import json
import math
import os
import struct

# Weft's names, and what torch and safetensors call them.
DTYPES = {
    "f32": (4, "float32", "F32"), "f16": (2, "float16", "F16"), "bf16": (2, "bfloat16", "BF16"),
    "f8_e4m3": (1, "float8_e4m3fn", "F8_E4M3"), "f8_e5m2": (1, "float8_e5m2", "F8_E5M2"), "f64": (8, "float64", "F64"),
    "i64": (8, "int64", "I64"), "i32": (4, "int32", "I32"), "i16": (2, "int16", "I16"), "i8": (1, "int8", "I8"),
    "u8": (1, "uint8", "U8"), "bool": (1, "bool", "BOOL"),
}
KINDS = {"weights": 0, "derived": 1, "kept": 2, "view": 3}


def dtype_of(name):
    """Weft's name of a dtype: "bf16" for "bf16", "BF16", "bfloat16", "torch.bfloat16" or torch.bfloat16 itself."""
    plain = str(name).removeprefix("torch.")
    for own, (_, torch, safetensors) in DTYPES.items():
        if plain in (own, torch, safetensors):
            return own
    raise ValueError(f"dtype {name}: expected one of {', '.join(DTYPES)}")


def tensors_of(path):
    """(name, dtype, shape) of each tensor of a safetensors file; its data is not read."""
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
    return [(name, dtype_of(it["dtype"]), it["shape"]) for name, it in header.items() if name != "__metadata__"]


def steps_of(shape, order=None):
    """Elements from one index of each dimension to the next; `order`: the dimensions by falling step."""
    steps, step = [0] * len(shape), 1
    for dimension in reversed(order or range(len(shape))):
        steps[dimension] = step
        step *= shape[dimension]
    return steps


class Tensor:
    """A tensor of the rank; made by Manifest.tensor."""

    def __init__(self, name, dtype, shape, kind, order):
        self.name, self.dtype, self.shape, self.kind = name, dtype_of(dtype), list(shape), KINDS[kind]
        self.order = list(order or [])
        self.bytes = DTYPES[self.dtype][0]
        self.steps = steps_of(self.shape, self.order)
        self.begins = {}  # offset: what begins there
        self.pieces = []  # (offset, axes, parameter or None, first, value)

    def view(self, shape):
        """The same memory in other dimensions, row-major: what is put there, is in this tensor."""
        if math.prod(shape) != math.prod(self.shape):
            raise ValueError(f"{self.name} {self.shape} has no view {list(shape)}: that is another number of elements")
        seen = copy.copy(self)
        seen.shape, seen.steps = list(shape), steps_of(shape)
        return seen

    def put(self, param, shape, take=None, at=None, along=None, less_one=False):
        """A box of the parameter `param`, whose whole shape is `shape`, stands in this tensor.

        take: for each dimension of the parameter (first, end), or None for all of it; default: all of each
        at: the index in this tensor where the box begins; default: its beginning
        along: which dimension of this tensor each of the parameter's runs along; default: the last ones, in order.
               [1, 0] is transposed
        less_one: the tensor holds the values minus 1 (a norm that is stored zero-centred)

        A box without elements (an end that is not behind its first) is left out. ValueError where the box does not fit
        the parameter or the tensor, or begins where another one does.
        """
        what = f"{self.name}: {param}"
        if take is not None and len(take) != len(shape):
            raise ValueError(f"{what}: take={list(take)}: expected an entry for each dimension of shape={list(shape)}")
        take = [whole or (0, size) for whole, size in zip(take or [None] * len(shape), shape)]
        along = list(along or range(len(self.shape) - len(shape), len(self.shape)))
        if len(along) != len(shape) or len(set(along)) != len(along) or any(not 0 <= to < len(self.shape) for to in along):
            raise ValueError(f"{what}: shape={list(shape)}, along={along}: expected a dimension of {self.shape} for each")
        if any(begin >= end for begin, end in take):
            return
        if any(begin < 0 or end > size for (begin, end), size in zip(take, shape)):
            raise ValueError(f"{what}: take={take} reaches past the parameter's shape={list(shape)}")
        size = [1] * len(self.shape)
        for (begin, end), to in zip(take, along):
            size[to] = end - begin
        steps = steps_of(shape)
        axes = [(end - begin, steps[d], self.steps[to] * self.bytes) for d, ((begin, end), to) in enumerate(zip(take, along))]
        first = sum(begin * step for (begin, _), step in zip(take, steps))
        self.add(what, size, at, axes, (param, first, int(less_one)))

    def fill(self, size, at=None, byte=0):
        """A box of `size` that belongs to no parameter: each of its bytes is `byte`."""
        axes = [(count, step, to * self.bytes) for count, step, to in zip(size, steps_of(size), self.steps)]
        if len(size) != len(self.shape):
            raise ValueError(f"{self.name}: a fill of {list(size)}: expected a size for each dimension of {self.shape}")
        if all(count > 0 for count in size):
            self.add(f"{self.name}: a fill", size, at, axes, (None, 0, byte))

    def add(self, what, size, at, axes, of):
        """The piece `of` its parameter, whose box of `size` begins at the index `at` of this tensor."""
        at = list(at or []) + [0] * (len(self.shape) - len(at or []))
        ends = [index + count for index, count in zip(at, size)]
        if len(at) != len(self.shape) or min(at, default=0) < 0 or any(end > most for end, most in zip(ends, self.shape)):
            raise ValueError(f"{what}: a box of {list(size)} at={at} reaches past the tensor's {self.shape}")
        offset = sum(index * step for index, step in zip(at, self.steps)) * self.bytes
        if offset in self.begins:
            raise ValueError(f"{what}: overlap at={at}: there begins {self.begins[offset]}")
        self.begins[offset] = of[0] or "a fill"
        self.pieces.append((offset, axes, *of))


class Table:
    """Things by the order in which they came."""

    def __init__(self):
        self.numbers = {}

    def put(self, thing):
        return self.numbers.setdefault(thing, len(self.numbers))


class Manifest:
    """All tensors of one rank, in any order."""

    def __init__(self):
        self.tensors, self.aliases = [], []

    def tensor(self, name, dtype, shape, kind="weights", order=None):
        """A tensor under the engine's own name. kind: weights; derived (the engine computes it anew from others), kept
        (never written) and view (of another tensor) have no pieces. order: the dimensions by falling stride, where
        memory does not follow the shape ([1, 0] for a transposed matrix)."""
        self.tensors.append(Tensor(name, dtype, shape, kind, order))
        return self.tensors[-1]

    def alias(self, name, tensor):
        """A second name of a tensor (a tied head)."""
        self.aliases.append((name, self.tensors.index(tensor)))

    def pack(self):
        words, params, types, forms = Table(), Table(), Table(), Table()
        tensors, before, following = [], [], 0
        for tensor in self.tensors:
            kind = types.put((tensor.dtype, tensor.kind, tuple(tensor.shape), tuple(tensor.order)))
            entry = [name_of(tensor.name, before, words), kind]
            for offset, axes, param, first, value in sorted(tensor.pieces, key=lambda piece: piece[0]):
                form = forms.put((tensor.bytes, *(axis for axis in axes if axis[0] != 1)))
                number = None if param is None else params.put(param)
                piece = [form, None if param is None else number - following, offset, first, value]
                while len(piece) > 1 and piece[-1] == 0:
                    piece.pop()
                entry.append(piece)
                following = following if param is None else number + 1
            tensors.append(entry)
        names, before = [], []
        for param in params.numbers:
            names.append(name_of(param, before, words))
        aliases, before = [], []
        for name, tensor in self.aliases:
            aliases.append([name_of(name, before, words), tensor])
        return packed(["weft-manifest", 1, None, words.numbers, names, types.numbers, forms.numbers, tensors, aliases])

    def write(self, path):
        """The file appears whole or not at all."""
        with open(f"{path}.partial", "wb") as out:
            out.write(self.pack())
        os.replace(f"{path}.partial", path)


def name_of(name, before, words):
    """[words shared with the name before, the other words...]; `before` becomes this name's words."""
    own = [words.put(word) for word in name.split(".")]
    shared = 0
    while shared < min(len(own), len(before)) and own[shared] == before[shared]:
        shared += 1
    before[:] = own
    return [shared, *own[shared:]]


def head(codes, number):
    """A number behind the first of (code, format) that holds it."""
    for code, form in codes:
        if number < 1 << 8 * struct.calcsize(form):
            return struct.pack(">B" + form, code, number)
    raise ValueError(f"{number} is too much for a manifest")


def packed(value):
    """The value as msgpack: None, whole numbers, text, and lists (or keys of a dict) of those."""
    if value is None:
        return b"\xc0"
    if isinstance(value, int):
        if -32 <= value < 128:
            return struct.pack(">b", value)
        return struct.pack(">Bq", 0xd3, value) if value < 0 else head(((0xcc, "B"), (0xcd, "H"), (0xce, "I"), (0xcf, "Q")), value)
    if isinstance(value, str):
        text = value.encode()
        return head(((0xd9, "B"), (0xda, "H")), len(text)) + text
    parts = [packed(part) for part in value]
    start = bytes([0x90 | len(parts)]) if len(parts) < 16 else head(((0xdc, "H"), (0xdd, "I")), len(parts))
    return start + b"".join(parts)
