"""A certificate of cleanness: proof that a run has no finding, without a schedule of its events.

Most runs are clean, and to prove that takes less than to find what is wrong. Two walks over each node's own
events, nodes in any order:

1. Own broadcasts are numbered 1, 2, 3 ...; of each origin the node delivers 1, 2, 3 ... and in the end all
   that there are; own messages are broadcast first. So nothing is malformed, created, repeated, missing or
   out of its origin's order. V(m) is what m's origin had delivered, and how many it had broadcast itself,
   when it broadcast m.
2. Whenever a node delivers m, it has delivered all that V(m) counts.

Then V(m) is the causal past of m: by 2, what a node has delivered is closed under V, so V grows along every
chain of broadcasts and deliveries. A circle of messages that wait for each other cannot pass: V(m) would
count m itself, and it counts its origin's earlier messages only. And 2 says that nothing is delivered before
its past.

The first walk takes events as they are stored and keeps two bytes of each delivery: the column of its origin
(the number is implied). Entries of V are lanes of 64-bit words: with the highest bit of every lane set in
what is delivered, one subtraction compares four of them. Pasts of a block of messages are joined: a node that
has delivered the joined past has delivered each, so most messages need no comparison of their own.

No certificate is no verdict: the run goes to `analyse`. There is none for runs in which something expires,
crashes or has one destination, nor where times are judged or a node's rows are out of order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from whence.trace.columns import Stretches, stretches_of
from whence.trace.schema import Kind
from whence.verify import kernels as loops
from whence.verify.kernels import Array, Kernels
from whence.verify.load import NameIds, ids_of_names

BLOCK = 32  # messages whose pasts are joined
CACHED_BYTES = 1 << 19  # of vectors that one turn of all nodes should need
COLUMNS_MAX = 1 << 16
LOG_BYTES = 2  # of each delivery
WORD_BYTES = 8


class Proof(NamedTuple):
    """What a clean run consists of."""

    nodes: int
    events: int
    broadcasts: int
    deliveries: int


class Counted(NamedTuple):
    """The result of the first walk over some nodes."""

    nodes: list[str]
    speakers: list[str]  # of each column
    sent: Array  # over columns: broadcasts of those of the nodes that speak; 0 of others
    delivered: Array  # over nodes and columns
    vectors: Array  # over broadcasts, in the order in which they were met
    speaker: Array  # the column of each broadcast
    log: Array  # the column of each delivery
    stretch_node: Array  # stretch s of the log is of this node, ...
    stretch_end: Array  # ... and ends here
    events: int

    def agrees(self, sent: Array) -> bool:
        """Whether every node has delivered all that was sent, by column."""
        return bool((self.delivered == sent).all())


class Certifier:
    """The first walk, fed with batches of stored rows; then the second, if no other nodes are there.

    `members` must all deliver everything; more than `memory_bytes` are not used; `events` are expected. Of a
    part of a run's nodes (`belongs`) only the first walk is made: `counted` has its result.
    """

    def __init__(
        self,
        kernels: Kernels,
        members: Iterable[str],
        memory_bytes: int,
        events: int = 0,
        belongs: Callable[[str], bool] | None = None,
    ) -> None:
        self._kernels = kernels
        self._memory_bytes = memory_bytes
        self._belongs = belongs
        self.names = list(dict.fromkeys(members))  # of all nodes and origins
        self._ids = dict(zip(self.names, range(len(self.names)), strict=True))  # the place of each
        self._run: str | None = None
        self._last: NameIds | None = None
        self._speakers: list[int] = []  # the node of each column
        self._lane: Any = np.uint16
        self._delivered: Array = np.zeros((0, 4), dtype=self._lane)
        self._vectors: Array = np.zeros((0, 4), dtype=self._lane)
        self._speaker: Array = np.zeros(0, dtype=np.uint16)
        self._log: Array = np.empty(min(events, memory_bytes // 2), dtype=np.uint16)
        self._column, self._own, self._next_seq = (np.zeros(0, dtype=np.int64) for _ in range(3))
        self._stretches: list[tuple[Array, Array]] = []  # nodes, and ends in the log
        self._progress = np.zeros(4, dtype=np.int64)
        self.events = 0
        # In a clean run every node has an event for each message, and its origin one more.
        self._make_room(0, events // (len(self._ids) + 1))

    def _id(self, name: str) -> int:
        known = self._ids.setdefault(name, len(self._ids))
        if known == len(self.names):
            self.names.append(name)
        return known

    def add(self, batch: pa.RecordBatch) -> bool:
        """Take some rows, which are checked already; False: there is no certificate."""
        if not self._is_of_one_run(batch):
            return False
        rows = stretches_of(batch)
        kind = rows.columns["kind"]
        self._last = ids_of_names(rows, self._id, self._last)
        names = self._last.ids
        nodes: list[str] = rows.nodes.to_pylist()
        ids = list(map(self._ids.get, nodes))  # mostly members: there may be more of them than events
        known: Array = np.array(list(map(self._id, nodes)) if None in ids else ids, dtype=np.int64)
        node, starts, stops, base = known[rows.node], rows.starts[:-1], rows.starts[1:], rows.base
        first_seq = rows.first_seq
        if self._belongs is not None:
            ours = np.array(list(map(self._belongs, nodes)), dtype=bool)[rows.node]
            node, starts, stops, base, first_seq = (
                each[ours] for each in (node, starts, stops, base, first_seq)
            )
        if "peer" in rows.columns and _has_destinations(rows, names):
            return False
        self._make_room(len(kind), int(np.count_nonzero(kind == loops.BROADCAST_KIND)))
        if not self._is_next(node, first_seq, stops - starts) or self.used_bytes > self._memory_bytes:
            return False
        self._progress[: loops.ROWS] = 0
        logged = np.empty(len(node), dtype=np.int64)
        while True:
            columns = np.append(self._column, -1)[names]
            status = self._kernels.count_on(
                node, starts, stops, base, columns, names, kind, rows.columns["origin"],
                rows.columns["number"], self._column, self._own, self._delivered,
                np.iinfo(self._lane).max >> 1, self._vectors, self._speaker, self._log, logged,
                self._progress,
            )  # fmt: skip
            if status == loops.COUNTED:
                self._stretches.append((node, logged))
                self.events += int((stops - starts).sum())
                return True
            if status == loops.BROKEN:
                return False
            stretch, event = self._progress[loops.STRETCH], self._progress[loops.EVENT]
            rest = slice(event, stops[stretch])
            speaks = (kind[rest] == loops.DELIVER_KIND) | (kind[rest] == loops.BROADCAST_KIND)
            if not self._widen(status, names[base[stretch] :], rows.columns["origin"][rest][speaks]):
                return False

    @property
    def used_bytes(self) -> int:
        """Of the large arrays, those of the second walk included."""
        return 2 * self._delivered.nbytes + self._vectors.nbytes + self._log.nbytes

    def _is_of_one_run(self, batch: pa.RecordBatch) -> bool:
        if "run" in batch.schema.names:
            runs: Any = batch.column("run").unique()
            for run in runs.to_pylist():
                self._run = run if self._run is None else self._run
                if run != self._run:
                    return False
        return True

    def _is_next(self, node: Array, first_seq: Array, lengths: Array) -> bool:
        """Whether stretches go on where their nodes' last ones ended; they are counted."""
        order = np.argsort(node, kind="stable")
        of_node, first = node[order], first_seq[order]
        ends = first + lengths[order]
        begins = np.flatnonzero(np.concatenate([[True], of_node[1:] != of_node[:-1]]))[: len(order)]
        due = np.concatenate([[0], ends[:-1]])[: len(order)]
        due[begins] = self._next_seq[of_node[begins]]
        self._next_seq[of_node] = ends  # the last one of a node stays
        return bool((due == first).all())

    def _widen(self, status: int, names: Array, origin: Array) -> bool:
        """Make what the walk lacked: wider lanes, or columns for new origins, in the order of their names."""
        if status == loops.NO_LANE:
            if self._lane is np.uint32:
                return False
            self._lane = np.uint32
        else:
            known = names[np.unique(origin[origin >= 0])]
            known = np.unique(known[known >= 0])
            for speaker in sorted(known[self._column[known] < 0].tolist(), key=self.names.__getitem__):
                self._column[speaker] = len(self._speakers)
                self._speakers.append(speaker)
        self._make_room(0, 0)
        return len(self._speakers) <= COLUMNS_MAX and self.used_bytes <= self._memory_bytes

    def _make_room(self, events: int, broadcasts: int) -> None:
        """Let arrays hold what there is, so many more events and broadcasts, and wider vectors."""
        rows, logged = int(self._progress[loops.ROWS]), int(self._progress[loops.LOGGED])
        width, nodes = self._delivered.shape[1], len(self._ids)
        while len(self._speakers) > width:
            width *= 2
        self._delivered = _grown(self._delivered, len(self._delivered), nodes, width, self._lane)
        self._vectors = _grown(self._vectors, rows, rows + broadcasts, width, self._lane)
        self._speaker = _grown(self._speaker, rows, rows + broadcasts)
        self._log = _grown(self._log, logged, logged + events)
        have = len(self._column)
        if have < nodes:
            self._column, self._own, self._next_seq = (
                np.concatenate([old, np.full(nodes, fill, dtype=np.int64)])
                for old, fill in ((self._column, -1), (self._own, 0), (self._next_seq, 0))
            )

    def counted(self, *, by_name: bool = False) -> Counted:
        """What the first walk has found; columns as they were met, or in the order of their names."""
        names = self.names
        speakers = [names[at] for at in self._speakers]
        places = range(len(speakers))
        order = np.array(sorted(places, key=speakers.__getitem__) if by_name else places, dtype=np.int64)
        rank = np.argsort(order).astype(np.uint16)
        rows, logged = int(self._progress[loops.ROWS]), int(self._progress[loops.LOGGED])
        width = max(1, -(-len(order) * self._vectors.itemsize // WORD_BYTES)) * WORD_BYTES
        width //= self._vectors.itemsize
        in_order = bool((order == np.arange(len(order))).all())
        vectors, log, speaker = self._vectors[:rows], self._log[:logged], self._speaker[:rows]
        if in_order and width == vectors.shape[1]:
            found = vectors
        else:
            found = np.zeros((rows, width), dtype=vectors.dtype)
            found[:, : len(order)] = vectors[:, order]
        ours = [at for at, name in enumerate(names) if self._belongs is None or self._belongs(name)]
        place = np.full(len(names), -1, dtype=np.int64)
        place[ours] = np.arange(len(ours))
        ends, nodes = ([each[at] for each in self._stretches] or [place[:0]] for at in (1, 0))
        return Counted(
            nodes=[names[at] for at in ours],
            speakers=[speakers[at] for at in order],
            sent=self._own[np.array(self._speakers, dtype=np.int64)[order]] if len(order) else self._own[:0],
            delivered=self._delivered[ours][:, order],
            vectors=found,
            speaker=speaker if in_order else rank[speaker],
            log=log if in_order else rank[log],
            stretch_node=place[np.concatenate(nodes)],
            stretch_end=np.concatenate(ends),
            events=self.events,
        )

    def finish(self) -> Proof | None:
        """What the run consists of, if it is proved to be clean."""
        found = self.counted()
        self._delivered = self._vectors = self._log = np.zeros((0, 4), dtype=self._lane)
        if not len(found.vectors) or not found.agrees(found.sent):
            return None
        pasts = pasts_of(self._kernels, found.vectors, found.speaker)
        if not is_ordered(self._kernels, found, pasts, lambda: found.vectors):
            return None
        return Proof(len(found.nodes), found.events, len(found.vectors), len(found.log))


class Pasts(NamedTuple):
    """The pasts of messages, those of one origin in its own order."""

    speaker: Array  # the column of its origin
    row: Array  # the vector that is its past
    block: Array  # its block ...
    joined: Array  # ... and the largest entries of all vectors of that block


def pasts_of(kernels: Kernels, vectors: Array, speaker: Array) -> Pasts:
    """Where the past of each message is: for rows that are equal mostly the first of its kind.

    Blocks are of messages with pasts of about one size: those are often delivered at about one time.
    """
    words = vectors.view(np.uint64)
    row = np.empty(len(words), dtype=np.int32)
    kernels.find_equal(words, np.full(1 << max(4, len(words).bit_length()), -1, dtype=np.int32), row)
    size = np.empty(len(row), dtype=np.int64)
    kernels.add_up(vectors, row, np.full(len(vectors), -1, dtype=np.int64), size)
    order = np.argsort(size, kind="stable")
    block = np.empty(len(row), dtype=np.int32)
    block[order] = np.arange(len(row), dtype=np.int32) // BLOCK
    joined = np.zeros((-(-len(row) // BLOCK), vectors.shape[1]), dtype=vectors.dtype)
    kernels.join_pasts(vectors, row, order, BLOCK, joined)
    return Pasts(speaker, row, block, joined)


def is_ordered(kernels: Kernels, counted: Counted, pasts: Pasts, vectors: Callable[[], Array]) -> bool:
    """The second walk, over the nodes counted, with the pasts of all messages; vectors only if needed."""
    by_speaker = np.argsort(pasts.speaker, kind="stable")
    columns = len(counted.speakers)
    starts = np.searchsorted(pasts.speaker[by_speaker], np.arange(columns))
    row, block, joined = pasts.row[by_speaker], pasts.block[by_speaker], pasts.joined
    nodes, stretches = len(counted.nodes), len(counted.stretch_node)
    # The stretches of each node as a chain.
    order = np.argsort(counted.stretch_node, kind="stable")
    of_node = counted.stretch_node[order]
    following = np.full(stretches, -1, dtype=np.int64)
    follows = of_node[1:] == of_node[:-1]
    following[order[:-1][follows]] = order[1:][follows]
    begins = np.concatenate([[0], counted.stretch_end[:-1]])[:stretches]
    head = np.full(nodes, -1, dtype=np.int64)
    firsts = np.concatenate([[True], ~follows])[:stretches]
    head[of_node[firsts]] = order[firsts]
    high = 1 << (8 * joined.itemsize - 1)
    mask = np.full(4, high, joined.dtype).view(np.uint64)[0]
    lanes: Array = np.full((nodes, joined.shape[1]), high, dtype=joined.dtype)
    slots = 1 << max(4, (4 * columns // BLOCK).bit_length())
    reached, last = np.where(head >= 0, begins[head], 0), np.full(nodes, -1, dtype=np.int32)
    passed = np.full((nodes, slots), -1, dtype=np.int32)
    status, given = loops.NO_VECTORS, joined[:0]
    while status == loops.NO_VECTORS:
        status = kernels.follow_pasts(
            head, following, begins, counted.stretch_end, counted.log, given.view(np.uint64), row,
            joined.view(np.uint64), block, starts, lanes.view(np.uint64), lanes, high, mask,
            max(64, CACHED_BYTES // lanes[:1].nbytes), reached, last, passed,
        )  # fmt: skip
        given = vectors() if status == loops.NO_VECTORS else given
    return bool(status == loops.COUNTED)


def _has_destinations(rows: Stretches, names: Array) -> bool:
    """Whether a broadcast is for one node."""
    sent = np.flatnonzero(rows.columns["kind"] == Kind.BROADCAST)
    peer = rows.columns["peer"][sent]
    of_stretch = np.searchsorted(rows.starts, sent, side="right") - 1
    named = peer >= 0
    return bool((names[(rows.base[of_stretch] + peer)[named]] >= 0).any())


def _grown(old: Array, used: int, rows: int, width: int = 0, dtype: Any = None) -> Array:
    """The array with room for `rows` rows of the given width, those used kept; twice as large if larger."""
    dtype = old.dtype if dtype is None else np.dtype(dtype)
    if rows <= len(old) and (old.ndim == 1 or (width == old.shape[1] and dtype == old.dtype)):
        return old
    many = max(rows, 2 * len(old)) if rows > len(old) else len(old)
    made: Array = np.zeros((many,) if old.ndim == 1 else (many, width), dtype=dtype)
    if old.ndim == 1:
        made[:used] = old[:used]
    else:
        made[:used, : old.shape[1]] = old[:used]
    return made
