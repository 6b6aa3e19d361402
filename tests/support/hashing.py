"""The trace hash without a trace: a recorder that needs nothing but the standard library.

It gives the hash that `whence.trace.writer` would put into the manifest of the same run, by the
rules of docs/trace-format.md, without pyarrow and without files. So that determinism can be
tested on any Python that has no pyarrow, and the writer against a second reading of its format.
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections.abc import Sequence

from whence.trace.schema import SEGMENT_EVENTS, Kind

BUFFERED_EVENTS = 1 << 18  # as in the writer: then the fullest buffers are sealed early

Row = tuple[int, int, str | None, int, str | None, int, int, str | None]


class HashingRecorder:
    """A `Recorder` that keeps only a hash of what it is told."""

    def __init__(self) -> None:
        self.events = 0
        self._digest = hashlib.sha256()
        self._rows: dict[str, list[Row]] = {}
        self._sealed: dict[str, int] = {}  # node -> events that are in the hash already
        self._room = BUFFERED_EVENTS

    def event(
        self,
        node: str,
        time_us: int,
        kind: Kind,
        origin: str | None = None,
        number: int = 0,
        peer: str | None = None,
        total_bytes: int = 0,
        control_bytes: int = 0,
        detail: str | None = None,
    ) -> None:
        """Take one event of `node`, as `TraceWriter.event` does."""
        rows = self._rows.setdefault(node, [])
        rows.append((time_us, int(kind), origin, number, peer, total_bytes, control_bytes, detail))
        self.events += 1
        self._room -= 1
        if len(rows) >= SEGMENT_EVENTS:
            self._seal(node)
        elif self._room <= 0:
            for fullest in sorted(self._rows, key=lambda name: (-len(self._rows[name]), name)):
                self._seal(fullest)
                if self._room >= BUFFERED_EVENTS // 2:
                    break

    def hexdigest(self) -> str:
        """The hash of all events so far; the run must be over."""
        for node in sorted(self._rows):
            self._seal(node)
        return self._digest.hexdigest()

    def _seal(self, node: str) -> None:
        """Add a node's events to the hash as one segment."""
        rows = self._rows[node]
        if not rows:
            return
        time_us, kind, origin, number, peer, total_bytes, control_bytes, detail = zip(*rows, strict=True)
        names = list(dict.fromkeys(name for name in (*origin, *peer) if name is not None))
        place: dict[str | None, int] = {name: at for at, name in enumerate(names)}
        place[None] = -1
        first_seq = self._sealed.get(node, 0)
        self._add(_texts([node]))
        self._add(_integers((first_seq, len(rows))))
        self._add(_texts(names))
        origins = [place[name] for name in origin]
        peers = [place[name] for name in peer]
        for column in (time_us, kind, origins, number, peers, total_bytes, control_bytes):
            self._add(_integers(column))
        self._add(_texts(detail))
        self._sealed[node] = first_seq + len(rows)
        self._room += len(rows)
        rows.clear()

    def _add(self, data: bytes) -> None:
        self._digest.update(data)


def _integers(values: Sequence[int]) -> bytes:
    """64 bits each, little-endian."""
    packed = array("q", values)
    if sys.byteorder != "little":
        packed.byteswap()
    return packed.tobytes()


def _texts(texts: Sequence[str | None]) -> bytes:
    """How many, the length of each in UTF-8 (-1 for none), then the bytes of all."""
    encoded = [None if text is None else text.encode() for text in texts]
    lengths = [-1 if text is None else len(text) for text in encoded]
    return _integers([len(texts), *lengths]) + b"".join(text for text in encoded if text is not None)
