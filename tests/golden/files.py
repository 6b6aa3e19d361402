"""Where goldens are kept: compact JSON in `data/`, packed where it is long, the same bytes every time."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
PACKED_FROM_BYTES = 20_000


def load(name: str) -> Any:
    """The recorded data of a golden; FileNotFoundError if it was never recorded."""
    packed = DATA / f"{name}.json.gz"
    if packed.exists():
        return json.loads(gzip.decompress(packed.read_bytes()))
    return json.loads((DATA / f"{name}.json").read_bytes())


def keep(name: str, data: Any) -> Path:
    """Write a golden, in place of what was there."""
    text = json.dumps(data, separators=(",", ":"), sort_keys=True).encode()
    plain, packed = DATA / f"{name}.json", DATA / f"{name}.json.gz"
    plain.unlink(missing_ok=True)
    packed.unlink(missing_ok=True)
    DATA.mkdir(exist_ok=True)
    if len(text) < PACKED_FROM_BYTES:
        plain.write_bytes(text + b"\n")
        return plain
    packed.write_bytes(gzip.compress(text, 9, mtime=0))
    return packed


def as_stored(data: Any) -> Any:
    """Data as it would come back from a file: tuples are lists."""
    return json.loads(json.dumps(data))
