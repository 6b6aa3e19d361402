"""A recorder that keeps the packed rows in memory: for tests, and to verify a run without files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from whence.trace.reader import Event
from whence.trace.schema import SEGMENT_EVENTS, Kind

if TYPE_CHECKING:
    import pyarrow as pa


class MemoryTrace:
    """A `Recorder` whose events become one Arrow table of packed rows."""

    def __init__(self) -> None:
        self._flat: dict[str, list[Any]] = {}

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
        """Record one event of `node`, as `TraceWriter.event` does."""
        flat = self._flat.get(node)
        if flat is None:
            flat = self._flat[node] = []
        flat += (time_us, kind, origin, number, peer, total_bytes, control_bytes, detail)

    def extend(self, events: Iterable[Event]) -> None:
        """Record events of the flat view; each node's events must come in order of `seq`."""
        for event in events:
            self.event(event.node, *event[3:])

    def table(self, run: str, segment_events: int = SEGMENT_EVENTS) -> pa.Table:
        """All events so far as packed rows of at most `segment_events` events."""
        import pyarrow as pa

        from whence.trace.columns import FIELDS, PACKED_SCHEMA, pack, packed_batch

        segments, numbers = [], []
        for node, flat in self._flat.items():
            step = segment_events * FIELDS
            for number, start in enumerate(range(0, len(flat), step)):
                segments.append(pack(node, number * segment_events, flat[start : start + step]))
                numbers.append(number)
        batches = [packed_batch(run, numbers, segments)] if segments else []
        return pa.Table.from_batches(batches, schema=PACKED_SCHEMA)
