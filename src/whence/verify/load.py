"""From packed rows to the verifier's arrays, without a Python step per event.

Rows may come in any order and cut anywhere: events are placed by node and `seq`. Only the kinds that matter
to the verifier are kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from whence.errors import TraceError
from whence.trace.columns import batch_problem, integer_array, lengths_of, numbers_of
from whence.trace.schema import VERIFIED_KINDS, Kind

NEEDED_COLUMNS = ("run", "node", "first_seq", "events", "names", "kind", "origin", "number", "peer")
TIMING_COLUMNS = ("time_us", "detail")  # needed as well where a run promises to be timely

# Lifetimes that are no number of microseconds.
FOR_EVER = -1
UNREADABLE = -2
_LIFETIME_MAX = 2**63 - 1

Array = npt.NDArray[Any]

_KEPT = np.zeros(256, dtype=bool)
_KEPT[list(VERIFIED_KINDS)] = True


class Timing(NamedTuple):
    """When events happened, and how long messages are good."""

    time_us: Array
    lifetime_us: Array  # at a broadcast: of its message, or FOR_EVER, or UNREADABLE; FOR_EVER elsewhere


class Events(NamedTuple):
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
    to: Array  # of a broadcast: the one node that it is for, -1 for everybody; empty where all are so
    timing: Timing | None = None  # loaded only where timeliness is judged

    def node_of(self, event: Any) -> Any:
        """The node of an event, or of each of many."""
        return np.searchsorted(self.offsets, event, side="right").astype(np.int32) - 1


class Row(NamedTuple):
    """The kept events of one packed row."""

    node: int
    first_seq: int
    events: int
    seq: Array  # empty where all events of the row are kept
    kind: Array
    origin: Array
    number: Array
    to: Array | None  # None: no message of this row has a destination
    timing: Timing | None

    def seqs(self) -> Array:
        """The `seq` of each kept event."""
        if len(self.seq) == len(self.kind):
            return self.seq
        return _narrow(np.arange(self.first_seq, self.first_seq + self.events))


class Loader:
    """Collects the packed rows of one run; `timed`: with times and lifetimes."""

    def __init__(self, members: Iterable[str], *, timed: bool = False) -> None:
        self._columns = columns_needed(timed)
        self._timed = timed
        self._ids: dict[str, int] = {}  # name -> provisional index, in order of arrival
        self._members = {self._id(name) for name in members}
        self._rows: list[Row] = []
        self._runs: set[str] = set()
        self._last: tuple[Any, Array] | None = None  # one batch's distinct names are often the next one's

    def _id(self, name: str) -> int:
        return self._ids.setdefault(name, len(self._ids))

    def add(self, batch: pa.RecordBatch, *, checked: bool = False) -> None:
        """Take the rows of a batch that has at least the columns needed."""
        self.keep(self.decode(batch, checked=checked))

    def keep(self, rows: Iterable[Row]) -> None:
        """Take rows that `decode` made."""
        self._rows += rows

    def decode(self, batch: pa.RecordBatch, *, checked: bool = False) -> list[Row]:
        """The events of a batch, row by row, with provisional indices of names.

        `checked`: the batch has been through `batch_problem` already, as those of `Trace.batches` have.
        """
        if not checked:
            self._check(batch)
        runs: Any = batch.column("run").unique()
        self._runs.update(runs.to_pylist())
        names: Any = batch.column("names")
        lists: dict[str, Any] = {name: batch.column(name) for name in ("kind", "origin", "number")}
        sizes = numbers_of(batch.column("events"))
        first_seq = numbers_of(batch.column("first_seq"))
        kind, local, number = (numbers_of(lists[name].flatten()) for name in ("kind", "origin", "number"))
        row_of = np.repeat(np.arange(batch.num_rows, dtype=np.int32), sizes)
        at: Array = np.arange(len(kind))
        timing = _timing(batch, kind) if self._timed else None
        kept = _KEPT[kind.view(np.uint8)]
        dense = bool(kept.all())
        if not dense:
            kind, local, number, row_of, at = (each[kept] for each in (kind, local, number, row_of, at))
            timing = timing and Timing(*(each[kept] for each in timing))
        seq: Array = np.empty(0, dtype=np.int32)
        if not dense:
            starts = np.cumsum(sizes, dtype=np.int64) - sizes
            seq = _narrow(at + (first_seq - starts)[row_of])
        name_sizes = lengths_of(names)
        name_starts = (np.cumsum(name_sizes) - name_sizes).astype(np.int32)
        table = np.append(self._ids_of(names.flatten()), np.int32(-1))  # the last entry answers index -1
        index = name_starts[row_of]
        index += local
        if len(local) and local.min() < 0:
            index[local < 0] = len(table) - 1
        origin = table[index]
        number = _narrow(number)
        to = self._destinations(batch, kind, at, table, name_starts, row_of)
        bounds = np.searchsorted(row_of, np.arange(batch.num_rows + 1))
        nodes: list[Any] = batch.column("node").to_pylist()
        keys = zip(nodes, first_seq.tolist(), sizes.tolist(), strict=True)
        rows: list[Row] = []
        for index, (node, first, events) in enumerate(keys):
            part = slice(bounds[index], bounds[index + 1])
            row = Row(
                self._id(node), first, events, seq[part], kind[part], origin[part], number[part],
                None if to is None else to[part],
                timing and Timing(*(each[part] for each in timing)),
            )  # fmt: skip
            rows.append(row)
        return rows

    def _check(self, batch: pa.RecordBatch) -> None:
        absent = sorted(set(self._columns) - set(batch.schema.names))
        problem = f"column {absent[0]!r} is missing" if absent else None
        problem = problem or batch_problem(batch.select(list(self._columns)))
        if problem is not None:
            raise TraceError("the rows of a run", problem, "See docs/trace-format.md")

    @staticmethod
    def _destinations(
        batch: pa.RecordBatch, kind: Array, at: Array, table: Array, starts: Array, row_of: Array
    ) -> Array | None:
        """The destination of each kept event that begins a point-to-point message; None if there is none."""
        peers: Any = batch.column("peer")
        begins = np.flatnonzero(kind == Kind.BROADCAST)
        peer = numbers_of(peers.flatten())[at[begins]]
        addressed = peer >= 0
        if not addressed.any():
            return None
        to = np.full(len(kind), -1, dtype=np.int32)
        to[begins[addressed]] = table[peer[addressed] + starts[row_of[begins[addressed]]]]
        return to

    def _ids_of(self, names: pa.Array[Any]) -> Array:
        """Provisional indices of many names: one look-up per distinct name, at most."""
        encoded: Any = names.dictionary_encode()
        if self._last is None or not encoded.dictionary.equals(self._last[0]):
            dictionary: list[str] = encoded.dictionary.to_pylist()
            found = np.array([self._id(name) for name in dictionary], dtype=np.int32)
            self._last = (encoded.dictionary, found)
        distinct = self._last[1]
        indices = numbers_of(encoded.indices)
        return distinct[indices] if len(indices) else np.empty(0, dtype=np.int32)

    def finish(self) -> Events:
        """Place all events; a hole or an overlap in a node's `seq` is an error."""
        if len(self._runs) > 1:
            found = ", ".join(sorted(self._runs))
            raise TraceError(
                "the rows to verify", f"they are of several runs ({found})", "Verify one run at a time"
            )
        names, rank = sorted(self._ids), self.ranks()
        rows = sorted(self._rows, key=lambda row: (rank[row.node], row.first_seq))
        self._check_dense(rows)
        is_node = np.zeros(len(names), dtype=bool)
        kept = np.zeros(len(names), dtype=np.int64)
        is_node[[rank[member] for member in self._members]] = True
        for row in rows:
            is_node[rank[row.node]] = True
            kept[rank[row.node]] += len(row.kind)
        return Events(
            run=next(iter(self._runs), None),
            names=names,
            is_node=is_node,
            total=sum(row.events for row in rows),
            offsets=np.concatenate([[0], np.cumsum(kept)]),
            seq=_joined_seq(rows),
            kind=_joined([row.kind for row in rows]),
            origin=_translated([row.origin for row in rows], rank),
            number=_joined([row.number for row in rows]),
            timing=_joined_timing(rows) if self._timed else None,
            to=_translated(_filled(rows), rank),
        )

    def ranks(self) -> Array:
        """The place among the sorted names of each provisional index; -1 for -1."""
        names = sorted(self._ids)
        rank = np.empty(len(names) + 1, dtype=np.int32)
        rank[[self._ids[name] for name in names]] = np.arange(len(names), dtype=np.int32)
        rank[-1] = -1
        return rank

    def _check_dense(self, rows: list[Row]) -> None:
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


def columns_needed(timed: bool) -> tuple[str, ...]:
    """What a table must have to be verified; `timed`: with the judgement of lifetimes."""
    return (*NEEDED_COLUMNS, *TIMING_COLUMNS) if timed else NEEDED_COLUMNS


def _timing(batch: pa.RecordBatch, kind: Array) -> Timing:
    """The times of all events, and the lifetimes that the broadcasts among them state."""
    time_us: Any = batch.column("time_us")
    details: Any = batch.column("detail")
    broadcasts = np.flatnonzero(kind == Kind.BROADCAST)
    lifetime_us = np.full(len(kind), FOR_EVER, dtype=np.int64)
    stated: list[str | None] = details.flatten().take(integer_array(broadcasts)).to_pylist()
    lifetime_us[broadcasts] = [_lifetime_us(text) for text in stated]
    return Timing(numbers_of(time_us.flatten()), lifetime_us)


def _lifetime_us(text: str | None) -> int:
    if text is None:
        return FOR_EVER
    if not (text.isascii() and text.isdigit() and len(text) < 20) or int(text) > _LIFETIME_MAX:
        return UNREADABLE
    return int(text)


def _joined_timing(rows: list[Row]) -> Timing:
    timings = [row.timing for row in rows if row.timing is not None]
    return Timing(
        time_us=_joined([each.time_us for each in timings]),
        lifetime_us=_joined([each.lifetime_us for each in timings]),
    )


def _joined_seq(rows: list[Row]) -> Array:
    """The `seq` of all events; empty where none was left out."""
    if all(len(row.kind) == row.events for row in rows):
        return np.empty(0, dtype=np.int32)
    return _joined([row.seqs() for row in rows])


def _filled(rows: list[Row]) -> list[Array]:
    """The destinations of all rows, -1 where a row has none; nothing at all where no row has any."""
    if all(row.to is None for row in rows):
        return []
    return [np.full(len(row.kind), -1, dtype=np.int32) if row.to is None else row.to for row in rows]


def _joined(parts: list[Array]) -> Array:
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int32)


def _translated(parts: list[Array], table: Array) -> Array:
    """`table[part]` of all parts, joined without a copy in between."""
    joined = np.empty(sum(map(len, parts)), dtype=table.dtype)
    start = 0
    for part in parts:
        np.take(table, part, out=joined[start : start + len(part)], mode="wrap")  # -1 is the last entry
        start += len(part)
    return joined


def _narrow(values: Array) -> Array:
    """As 32-bit integers where they fit: memory traffic is most of what loading costs."""
    limits = np.iinfo(np.int32)
    if len(values) and (values.max() > limits.max or values.min() < limits.min):
        return values
    return values.astype(np.int32)
