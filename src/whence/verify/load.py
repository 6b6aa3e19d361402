"""From packed rows to the verifier's arrays, without a Python step per event.

Rows may come in any order and cut anywhere: events are placed by node and `seq`. Only the kinds that matter
to the verifier are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from whence.errors import TraceError
from whence.trace.columns import (
    NONE,
    Stretches,
    batch_problem,
    integer_array,
    is_flat,
    numbers_of,
    stretches_of,
    text_codes,
)
from whence.trace.schema import VERIFIED_KINDS, Kind
from whence.verify.kernels import Array
from whence.verify.lives import fold

NEEDED_COLUMNS = ("run", "node", "first_seq", "events", "names", "kind", "origin", "number", "peer")
FLAT_NEEDED = ("node", "seq", "kind", "origin", "number", "peer")
TIMING_COLUMNS = ("time_us", "detail")  # needed as well where a run promises to be timely

# Lifetimes that are not a number of microseconds.
FOREVER = -1
UNREADABLE = -2
_LIFETIME_MAX = 2**63 - 1

CHUNK = 1 << 16  # events at a time whose temporary arrays stay in the processor's cache

_KEPT = np.zeros(256, dtype=bool)
_KEPT[list(VERIFIED_KINDS)] = True


class EventTimes(NamedTuple):
    """When events happened, and how long messages are good."""

    time_us: Array
    lifetime_us: Array  # at a broadcast: of its message, or FOREVER, or UNREADABLE; FOREVER elsewhere


class RunEvents(NamedTuple):
    """The events of one run that matter, ordered by (node, seq)."""

    run: str | None
    names: list[str]  # every name that occurs, sorted: a node's index is its place here
    is_node: Array  # per name: it is a member, or has events
    total: int  # events of all kinds
    offsets: Array  # node i's events are offsets[i] : offsets[i + 1]
    seq: Array  # empty where all events are kept: then an event's seq is its place at its node
    kind: Array
    origin: Array  # index into names, -1 for none
    number: Array
    to: Array  # of a broadcast: the one node that it is for, -1 for every node; empty where all are so
    timing: EventTimes | None = None  # loaded only where timeliness is judged

    def node_of(self, event: Any) -> Any:
        """The node of an event, or of each of many."""
        return np.searchsorted(self.offsets, event, side="right").astype(np.int32) - 1


class PackedRow(NamedTuple):
    """The kept events of one packed row."""

    node: int
    first_seq: int
    events: int
    seq: Array  # empty where all events of the row are kept
    kind: Array
    origin: Array
    number: Array
    to: Array | None  # None: no message of this row has a destination
    timing: EventTimes | None

    def seqs(self) -> Array:
        """The `seq` of each kept event."""
        if len(self.seq) == len(self.kind):
            return self.seq
        return _narrow(np.arange(self.first_seq, self.first_seq + self.events))


class _RowColumns(NamedTuple):
    """The events of some packed rows, end to end."""

    kind: Array
    origin: Array  # index into the names of its row
    number: Array
    peer: Array | None  # None: no event has one
    kept: Array | None  # None: all
    timing: EventTimes | None

    def part(self, here: Any) -> _RowColumns:
        """Some of the events."""
        return _RowColumns(
            kind=self.kind[here],
            origin=self.origin[here],
            number=self.number[here],
            peer=None if self.peer is None else self.peer[here],
            kept=None if self.kept is None else self.kept[here],
            timing=self.timing and EventTimes(*(each[here] for each in self.timing)),
        )

    def row(self, node: int, first_seq: int, events: int, table: Array) -> PackedRow:
        """All of it as one row; `table` has the indices of its names."""
        seq: Array = np.empty(0, dtype=np.int32)
        kept = self
        if self.kept is not None and not self.kept.all():
            at = np.flatnonzero(self.kept)
            kept, seq = self.part(at), _narrow(first_seq + at)
        to = None
        if kept.peer is not None:
            to = np.where((kept.kind == Kind.BROADCAST) & (kept.peer >= 0), table[kept.peer], -1)
            to = to if to.max(initial=-1) >= 0 else None
        origin = table[kept.origin]
        return PackedRow(node, first_seq, events, seq, kept.kind, origin, kept.number, to, kept.timing)


class NameIds(NamedTuple):
    """The indices of a batch's names; its distinct names are often the next one's."""

    distinct: Any
    of_distinct: Array
    ids: Array  # of every entry of the names, -1 for none


def ids_of_names(rows: Stretches, identify: Callable[[str], int], last: NameIds | None) -> NameIds:
    """The index that `identify` gives to each name: one look-up per distinct name, at most."""
    encoded = text_codes(rows.names)
    if last is None or not encoded.dictionary.equals(last.distinct):
        texts: list[str] = encoded.dictionary.to_pylist()
        found = [-1 if rows.is_flat and name == NONE else identify(name) for name in texts]
        table = np.array(found, dtype=_index_type(max(found, default=0) + 1))
    else:
        table = last.of_distinct
    indices = numbers_of(encoded.indices)
    return NameIds(encoded.dictionary, table, table[indices] if len(indices) else table[:0])


class Loader:
    """Collects the packed rows of one run; `timed`: with times and lifetimes."""

    def __init__(self, members: Iterable[str], *, timed: bool = False) -> None:
        self._columns = columns_needed(timed)
        self._timed = timed
        self._ids: dict[str, int] = {}  # name -> provisional index, in order of arrival
        self._members = {self._id(name) for name in members}
        self._rows: list[PackedRow] = []
        self._runs: set[str] = set()
        self._last: NameIds | None = None

    def _id(self, name: str) -> int:
        return self._ids.setdefault(name, len(self._ids))

    def add(self, batch: pa.RecordBatch, *, checked: bool = False) -> None:
        """Take the rows of a batch that has at least the columns needed."""
        self.keep(self.decode(batch, checked=checked))

    def keep(self, rows: Iterable[PackedRow]) -> None:
        """Take rows that `decode` made."""
        self._rows += rows

    def decode(self, batch: pa.RecordBatch, *, checked: bool = False) -> list[PackedRow]:
        """The events of a batch, row by row, with provisional indices of names.

        `checked`: the batch has been through `batch_problem` already, as those of `Trace.batches` have.
        """
        if not checked:
            self.check(batch)
        if "run" in batch.schema.names:
            runs: Any = batch.column("run").unique()
            self._runs.update(runs.to_pylist())
        stretches = stretches_of(batch)
        columns = self._columns_of(stretches)
        self._last = ids_of_names(stretches, self._id, self._last)
        ids = self._last.ids
        tables = [np.append(ids[low:high], ids.dtype.type(-1)) for low, high in stretches.tables()]
        nodes = [self._id(name) for name in stretches.nodes.to_pylist()]
        rows: list[PackedRow] = []
        keys = zip(stretches.node.tolist(), stretches.first_seq.tolist(), strict=True)
        bounds = stretches.starts.tolist()
        for at, (node, first_seq) in enumerate(keys):
            start, end = bounds[at], bounds[at + 1]
            table = tables[at if len(tables) > 1 else 0]  # its last entry is for index -1
            rows.append(columns.part(slice(start, end)).row(nodes[node], first_seq, end - start, table))
        return rows

    def _columns_of(self, stretches: Stretches) -> _RowColumns:
        kind, origin, number = (stretches.columns[name] for name in ("kind", "origin", "number"))
        peer = stretches.columns.get("peer")
        kept = _KEPT[kind.view(np.uint8)]
        return _RowColumns(
            kind=kind,
            origin=origin,
            number=_narrow(number),
            peer=None if peer is None or peer.max(initial=-1) < 0 else peer,
            kept=None if kept.all() else kept,
            timing=_timing(stretches) if self._timed else None,
        )

    def check(self, batch: pa.RecordBatch) -> None:
        """Refuse rows that are not of a trace."""
        flat = is_flat(batch.schema)
        wanted = [*FLAT_NEEDED, *(TIMING_COLUMNS if self._timed else ())] if flat else self._columns
        absent = sorted(set(wanted) - set(batch.schema.names))
        problem = f"column {absent[0]!r} is missing" if absent else None
        problem = problem or batch_problem(batch.select(list(wanted)))
        if problem is not None:
            raise TraceError("the rows of a run", problem, "See docs/trace-format.md")

    def finish(self) -> RunEvents:
        """Place all events; a hole or an overlap in a node's `seq` is an error."""
        if len(self._runs) > 1:
            found = ", ".join(sorted(self._runs))
            raise TraceError(
                "the rows to verify", f"they are of several runs ({found})", "Verify one run at a time"
            )
        names, rank = sorted(self._ids), self.ranks()
        rows = sorted(self._rows, key=lambda row: (rank[row.node], row.first_seq))
        self._rows = []  # their memory is needed again soon
        self._check_dense(rows)
        is_node = np.zeros(len(names), dtype=bool)
        kept = np.zeros(len(names), dtype=np.int64)
        is_node[[rank[member] for member in self._members]] = True
        for row in rows:
            is_node[rank[row.node]] = True
            kept[rank[row.node]] += len(row.kind)
        kind, origin, number = fold(
            names,
            is_node,
            _joined([row.kind for row in rows]),
            _translated([row.origin for row in rows], rank),
            _joined([row.number for row in rows]),
        )
        return RunEvents(
            run=next(iter(self._runs), None),
            names=names,
            is_node=is_node,
            total=sum(row.events for row in rows),
            offsets=np.concatenate([[0], np.cumsum(kept)]),
            seq=_joined_seq(rows),
            kind=kind,
            origin=origin,
            number=number,
            timing=_joined_timing(rows) if self._timed else None,
            to=_translated(_filled(rows), rank),
        )

    def ranks(self) -> Array:
        """The place among the sorted names of each provisional index; -1 for -1."""
        names = sorted(self._ids)
        rank = np.empty(len(names) + 1, dtype=_index_type(len(names)))
        rank[[self._ids[name] for name in names]] = np.arange(len(names))
        rank[-1] = -1
        return rank

    def _check_dense(self, rows: list[PackedRow]) -> None:
        names = list(self._ids)
        node, expected = -1, 0
        for row in rows:
            if row.node != node:
                node, expected = row.node, 0
            if row.first_seq != expected:
                raise TraceError(
                    f"the events of node {names[row.node]!r}",
                    f"the row that should begin with seq {expected} begins with {row.first_seq}",
                    "Give all rows of the run, each of them once",
                )
            expected += row.events


def places_of(values: Array, *wanted: int) -> Array:
    """Where any of the wanted values is; in chunks, so that little memory is touched on the way."""
    found: list[Array] = []
    for low in range(0, len(values), CHUNK):
        part = values[low : low + CHUNK]
        there = part == wanted[0]
        for other in wanted[1:]:
            there |= part == other
        found.append(low + np.flatnonzero(there))
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def columns_needed(timed: bool) -> tuple[str, ...]:
    """The columns that a table must have to be verified; `timed`: with the judgement of lifetimes."""
    return (*NEEDED_COLUMNS, *TIMING_COLUMNS) if timed else NEEDED_COLUMNS


def _timing(rows: Stretches) -> EventTimes:
    """The times of all events, and the lifetimes that the broadcasts among them state."""
    kind = rows.columns["kind"]
    broadcasts = np.flatnonzero(kind == Kind.BROADCAST)
    lifetime_us = np.full(len(kind), FOREVER, dtype=np.int64)
    stated: list[str | None] = rows.columns["detail"].take(integer_array(broadcasts)).to_pylist()
    lifetime_us[broadcasts] = [_lifetime_us(text) for text in stated]
    return EventTimes(rows.columns["time_us"], lifetime_us)


def _lifetime_us(text: str | None) -> int:
    if text is None:
        return FOREVER
    if not (text.isascii() and text.isdigit() and len(text) < 20) or int(text) > _LIFETIME_MAX:
        return UNREADABLE
    return int(text)


def _joined_timing(rows: list[PackedRow]) -> EventTimes:
    timings = [row.timing for row in rows if row.timing is not None]
    return EventTimes(
        time_us=_joined([each.time_us for each in timings]),
        lifetime_us=_joined([each.lifetime_us for each in timings]),
    )


def _joined_seq(rows: list[PackedRow]) -> Array:
    """The `seq` of all events; empty where none was left out."""
    if all(len(row.kind) == row.events for row in rows):
        return np.empty(0, dtype=np.int32)
    return _joined([row.seqs() for row in rows])


def _filled(rows: list[PackedRow]) -> list[Array]:
    """The destinations of all rows, -1 where a row has none; nothing at all where no row has any."""
    if all(row.to is None for row in rows):
        return []
    return [np.full(len(row.kind), -1, dtype=np.int32) if row.to is None else row.to for row in rows]


def _joined(parts: list[Array]) -> Array:
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int32)


def _translated(parts: list[Array], table: Array) -> Array:
    """`table[part]` of all parts, joined without a copy in between."""
    if (table[:-1] == np.arange(len(table) - 1)).all():
        return _joined(parts).astype(table.dtype, copy=False)  # every name was known beforehand, in order
    joined = np.empty(sum(map(len, parts)), dtype=table.dtype)
    start = 0
    for part in parts:
        joined[start : start + len(part)] = table[part]  # -1 is the last entry
        start += len(part)
    return joined


def _index_type(names: int) -> type[np.signedinteger[Any]]:
    """The smallest type that holds the index of a name."""
    return np.int16 if names <= np.iinfo(np.int16).max else np.int32


def _narrow(values: Array) -> Array:
    """As 16-bit or 32-bit integers where they fit: memory traffic is most of what loading costs."""
    low, high = values.min(initial=0), values.max(initial=0)
    for narrow in (np.int16, np.int32):
        limits = np.iinfo(narrow)
        if limits.min <= low and high <= limits.max:
            return values.astype(narrow)
    return values
