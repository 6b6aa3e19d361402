"""Test vectors of the wire format for clients in other languages: docs/wire-vectors.json.

    python tools/wire_vectors.py            # is the file current? exit code 1 if not
    python tools/wire_vectors.py --write

Each has the bytes of one frame and what it says, as JSON; bytes within are {"hex": ...}. They are cut from
the goldens of the wire (tests/golden), so they change only with them.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from whence.session.wire import FrameType

ROOT = Path(__file__).parents[1]
GOLDENS = ROOT / "tests" / "golden" / "data" / "frames.json.gz"
VECTORS = ROOT / "docs" / "wire-vectors.json"
PER_TALK = 4  # frames of each protocol's talk: the shortest, the longest, and two between


def plain(value: Any) -> Any:
    """A decoded value as JSON has it."""
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def vector(name: str, hexadecimal: str) -> dict[str, Any]:
    """One frame: its length, its type, its body."""
    data = bytes.fromhex(hexadecimal)
    length = int.from_bytes(data[:4], "big")
    assert len(data) == 4 + length, name
    body = data[5:]
    said = plain(msgspec.msgpack.decode(body)) if body else None
    return {"name": name, "type": FrameType(data[4]).name, "hex": hexadecimal, "body": said}


def vectors() -> list[dict[str, Any]]:
    """All of them, in a fixed order."""
    goldens = json.loads(gzip.decompress(GOLDENS.read_bytes()))
    named = [*goldens["controls"].items(), *goldens["greetings"].items()]
    for talk, frames in goldens["packets"].items():
        ranked = sorted(set(frames), key=lambda each: (len(each), each))
        picked = sorted({round(n * (len(ranked) - 1) / (PER_TALK - 1)) for n in range(PER_TALK)})
        named += [(f"{talk} {place}", ranked[index]) for place, index in enumerate(picked, 1)]
    return [vector(name, frame) for name, frame in named]


def text() -> str:
    """The file, one frame per line."""
    return "[\n" + ",\n".join(json.dumps(each, ensure_ascii=False) for each in vectors()) + "\n]\n"


if __name__ == "__main__":
    if "--write" in sys.argv:
        VECTORS.write_text(text())
    elif not VECTORS.exists() or VECTORS.read_text() != text():
        sys.exit("docs/wire-vectors.json is not current: python tools/wire_vectors.py --write")
