"""frames.py - the wire's framing and Weft's frames, from the tables that `weft server --describe-frames` prints."""
import re
import struct
import subprocess

GREETING = b"WFT1\0\0\0\0"


def pack(value):
    """The forms of msgpack that frames use: of a number the shortest, else the longest."""
    if isinstance(value, int):
        if value < 0:
            return struct.pack(">Bq", 0xd3, value)
        for limit, form, code in ((0x80, "B", None), (1 << 8, "B", 0xcc), (1 << 16, ">H", 0xcd), (1 << 32, ">I", 0xce)):
            if value < limit:
                return (bytes([code]) if code else b"") + struct.pack(form, value)
        return struct.pack(">BQ", 0xcf, value)
    if isinstance(value, str):
        return struct.pack(">BI", 0xdb, len(value.encode())) + value.encode()
    if isinstance(value, bytes):
        return struct.pack(">BI", 0xc6, len(value)) + value
    return struct.pack(">BI", 0xdd, len(value)) + b"".join(pack(item) for item in value)


def _head(data, at):
    """(kind, number or length, where the rest begins) of the value at `at`."""
    head = data[at]
    if head < 0x80:
        return "number", head, at + 1
    if 0x90 <= head < 0xa0:
        return "list", head & 15, at + 1
    if 0xa0 <= head < 0xc0:
        return "text", head & 31, at + 1
    kinds = {0xc4: "bytes", 0xcc: "number", 0xd9: "text", 0xdc: "list"}
    first = max((code for code in kinds if code <= head), default=None)
    widths = {0xc4: (1, 2, 4), 0xcc: (1, 2, 4, 8), 0xd9: (1, 2, 4), 0xdc: (2, 4)}
    if first is None or head - first >= len(widths[first]):
        raise ValueError(f"msgpack {head:#x}")
    width = widths[first][head - first]
    return kinds[first], int.from_bytes(data[at + 1:at + 1 + width], "big"), at + 1 + width


def unpack(data, at=0):
    """One value of the forms that frames use: (value, where the next begins). IndexError: it is cut short."""
    kind, size, at = _head(data, at)
    if kind == "number":
        return size, at
    if kind == "list":
        values = []
        for _ in range(size):
            value, at = unpack(data, at)
            values.append(value)
        return values, at
    if at + size > len(data):
        raise IndexError("cut short")
    return (data[at:at + size].decode() if kind == "text" else bytes(data[at:at + size])), at + size


def framed(payload):
    return b"WFT1" + struct.pack("<I", len(payload)) + payload


def split(data):
    """The payloads of the whole frames at the front of `data` (a greeting is an empty one), and what is left."""
    payloads = []
    while len(data) >= 8:
        size = struct.unpack_from("<I", data, 4)[0]
        if len(data) < 8 + size:
            break
        payloads.append(data[8:8 + size])
        data = data[8 + size:]
    return payloads, data


class Frames:
    """Every frame by its name, from the program's own description."""

    def __init__(self, program):
        text = subprocess.run([program, "server", "--describe-frames"], check=True, capture_output=True, text=True).stdout
        self.types, self.elements = {}, {}
        for line in text.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            fields = re.findall(r"`(\w+)` ([^,]+)", cells[-1])
            if cells[0].isdigit():
                self.types[cells[1]] = (int(cells[0]), fields)
            elif len(cells) == 2 and fields:
                self.elements[cells[0]] = fields
        if len(self.types) < 40 or "member" not in self.elements:
            raise ValueError("cannot read the description of frames: " + text[:300])
        self.names = {number: name for name, (number, _) in self.types.items()}

    def read(self, payload):
        """(name, {field: value}) of a frame; ("", {}) of anything else."""
        try:
            values, _ = unpack(payload)
            name = self.names[values[0]]
            return name, dict(zip((field for field, _ in self.types[name][1]), values[1:]))
        except (IndexError, KeyError, TypeError, UnicodeDecodeError, ValueError):
            return "", {}

    def write(self, name, values):
        """The payload of a frame with these fields."""
        number, fields = self.types[name]
        return pack([number] + [values[field] for field, _ in fields])

    def good(self, kind):
        """A value that the description allows."""
        element = re.match(r"list of (\w+)", kind)
        if element:
            return [[self.good(each) for _, each in self.elements[element.group(1)]]]
        return {"integer": 1, "text": "x", "bytes": b"", "hash": bytes(16), "version": [0, 0, 0], "round": [0] * 7,
                "culprit": [0, 0, 0, "", "", ""]}[kind.split()[0]]

    def make(self, name, **values):
        """A good frame, with these values in it."""
        return self.write(name, {field: values.get(field, self.good(kind)) for field, kind in self.types[name][1]})
