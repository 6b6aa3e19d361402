"""A run on disk, a segment at a time: an index of its rows first, then rows on demand.

Nothing here holds all events. What is kept of every row is where it is and how many events of it matter.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from whence.errors import TraceError
from whence.trace.columns import batch_problem
from whence.trace.reader import StoredPart, Trace
from whence.trace.schema import Kind
from whence.verify.kernels import Array
from whence.verify.load import EventTimes, Loader, PackedRow, RunEvents

OPEN_FILES = 32


class Groups(Protocol):
    """Rows in groups that are loaded one at a time."""

    def __len__(self) -> int: ...

    def load(self, group: int) -> pa.RecordBatch:
        """One group."""
        ...


class TraceGroups:
    """The row groups of a run's Parquet files."""

    def __init__(self, trace: Trace, run: str, timed: bool) -> None:
        self._timed = timed
        self._open: OrderedDict[Path, StoredPart] = OrderedDict()
        self._groups: list[tuple[Path, int]] = []
        for path in trace.part_files(run):
            self._groups += [(path, group) for group in range(self._file(path).groups)]

    def __len__(self) -> int:
        return len(self._groups)

    def load(self, group: int) -> pa.RecordBatch:
        """One row group."""
        path, number = self._groups[group]
        file = self._file(path)
        return file.read(number, file.columns_judged(number, timed=self._timed))

    def _file(self, path: Path) -> StoredPart:
        if path not in self._open:
            while len(self._open) >= OPEN_FILES:
                self._open.popitem(last=False)[1].close()
            self._open[path] = StoredPart(path)
        self._open.move_to_end(path)
        return self._open[path]


class TableGroups:
    """The batches of a table in memory."""

    def __init__(self, table: pa.Table, rows: int = 64) -> None:
        self._batches = table.to_batches(max_chunksize=rows)

    def __len__(self) -> int:
        return len(self._batches)

    def load(self, group: int) -> pa.RecordBatch:
        """One batch."""
        return self._batches[group]


class Index(NamedTuple):
    """Where every row is, ordered by (node, first_seq); and all events but deliveries and expiries."""

    group: Array
    row: Array  # its place in the group
    node: Array
    start: Array  # the run's number of its first kept event
    kept: Array
    rows_of_node: Array  # node i's rows are rows_of_node[i] : rows_of_node[i + 1]
    stored: Array  # the rows in an order that keeps each node's own, as near as possible to that of the files
    others: RunEvents  # events that neither deliver nor expire
    others_at: Array  # the run's number of each of them
    offsets: Array  # as of all kept events
    deliveries: int
    expiries: int


def build_index(groups: Groups, loader: Loader, progress: Callable[[int], None]) -> Index:
    """Read everything once, and keep little of it."""
    where: list[tuple[int, int, int, int, int]] = []  # group, row, provisional node, first_seq, kept events
    inner: list[Array] = []
    kinds = np.zeros(256, dtype=np.int64)
    for group in range(len(groups)):
        batch = groups.load(group)
        problem = batch_problem(batch)
        if problem is not None:
            raise TraceError("the rows of a run", problem, "See docs/trace-format.md")
        for at, row in enumerate(loader.decode(batch, checked=True)):
            where.append((group, at, row.node, row.first_seq, len(row.kind)))
            kinds += np.bincount(row.kind.view(np.uint8), minlength=256)
            rest = np.flatnonzero((row.kind != Kind.DELIVER) & (row.kind != Kind.EXPIRE))
            inner.append(rest)
            loader.keep([_picked(row, rest)])
            progress(row.events)
    others = loader.finish()
    table = np.array(where, dtype=np.int64).reshape(-1, 5)
    node = loader.ranks()[table[:, 2]]
    order = np.lexsort((table[:, 4], table[:, 3], node))
    kept = table[order, 4]
    start = np.cumsum(kept) - kept
    names = len(others.names)
    ordered = [start[place] + inner[which] for place, which in enumerate(order.tolist())]
    in_files = np.argsort(order, kind="stable")  # the sorted place of each row as stored
    last = np.full(names, -1, dtype=np.int64)
    ascending = True
    for place, each in zip(in_files.tolist(), node.tolist(), strict=True):
        ascending = ascending and place > last[each]
        last[each] = place
    return Index(
        group=table[order, 0],
        row=table[order, 1],
        node=node[order],
        start=start,
        kept=kept,
        rows_of_node=np.searchsorted(node[order], np.arange(names + 1)),
        stored=in_files if ascending else np.arange(len(order)),
        others=others,
        others_at=np.concatenate(ordered) if ordered else np.empty(0, dtype=np.int64),
        offsets=np.concatenate(
            [[0], np.cumsum(np.bincount(node[order], weights=kept, minlength=names))]
        ).astype(np.int64),
        deliveries=int(kinds[Kind.DELIVER]),
        expiries=int(kinds[Kind.EXPIRE]),
    )


def _picked(row: PackedRow, at: Array) -> PackedRow:
    return PackedRow(
        row.node, row.first_seq, row.events, row.seqs()[at], row.kind[at], row.origin[at], row.number[at],
        None if row.to is None else row.to[at], row.timing and EventTimes(*(each[at] for each in row.timing)),
    )  # fmt: skip


class Segments:
    """Rows on demand; the groups used last stay decoded, up to `cached_events` events."""

    def __init__(self, groups: Groups, loader: Loader, index: Index, cached_events: int) -> None:
        self._groups = groups
        self._loader = loader
        self._index = index
        self._ranks = loader.ranks()
        self._room = cached_events
        self._held = 0
        self._cache: OrderedDict[int, list[PackedRow]] = OrderedDict()

    def row(self, place: int) -> PackedRow:
        """The row at a place of the index; names are numbered as in the run."""
        group = int(self._index.group[place])
        if group not in self._cache:
            rows = self._loader.decode(self._groups.load(group), checked=True)
            self._cache[group] = [row._replace(origin=self._ranks[row.origin]) for row in rows]
            self._held += sum(len(row.kind) for row in rows)
            while self._held > self._room and len(self._cache) > 1:
                _, dropped = self._cache.popitem(last=False)
                self._held -= sum(len(row.kind) for row in dropped)
        self._cache.move_to_end(group)
        return self._cache[group][int(self._index.row[place])]


def joined(parts: Sequence[Array], dtype: Any) -> Array:
    """Arrays end to end."""
    return np.concatenate(parts) if parts else np.empty(0, dtype=dtype)
