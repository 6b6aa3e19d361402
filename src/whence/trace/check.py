"""Reads a whole trace and computes its hashes anew: what `whence trace check` does."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from whence.errors import TraceError
from whence.trace.reader import Trace, open_trace

if TYPE_CHECKING:
    from hashlib import _Hash

    from whence.trace.columns import Segment


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """One writer's share of a trace, read and found in order."""

    run: str
    writer: str
    events: int
    trace_hash: str


def segments_of(trace: Trace, digest: _Hash) -> Iterator[tuple[int, Segment]]:
    """Every segment with its number, in stored order; `digest` becomes their hash."""
    from whence.trace.columns import INTEGER_COLUMNS, Segment, update_hash

    for batch in trace.batches():
        for row in batch.to_pylist():
            layout = struct.Struct(f"<{row['events']}q")
            integers = [layout.pack(*row[name]) for name in INTEGER_COLUMNS]
            segment = Segment(row["node"], row["first_seq"], row["names"], integers, row["detail"])
            update_hash(digest, segment)
            yield row["segment"], segment


def check_trace(trace: Trace | Path | str) -> list[Checked]:
    """Decode every event and compare counts and trace hashes with the manifests; raises `TraceError`."""
    opened = trace if isinstance(trace, Trace) else open_trace(trace)
    checked: list[Checked] = []
    for source in opened.sources:
        digest = hashlib.sha256()
        segments = segments_of(Trace(opened.path, [source], []), digest)
        events = sum(segment.events for _, segment in segments)
        found = digest.hexdigest()
        if found != source.manifest.trace_hash:
            raise TraceError(
                f"writer {source.manifest.writer!r} of run {source.manifest.run!r} in {source.folder}",
                f"the events hash to {found}, the manifest says {source.manifest.trace_hash}",
                "The trace was not written by what its manifest says; record the run again",
            )
        checked.append(
            Checked(run=source.manifest.run, writer=source.manifest.writer, events=events, trace_hash=found)
        )
    return checked
