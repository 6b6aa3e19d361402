"""Verification within bounded memory, for runs whose events do not fit: the same report, in several passes.

First an index and the table of messages; then every delivery and expiry with one bit per node and message;
then causal order (`Pass`), one pass over the run per block of columns; at last, where something was found,
the few columns that its witnesses need. docs/verification.md has the argument and the cost.

A pass has a window of each node's events in memory. Nodes advance in step: a node gets its next window when
no node can move within the present ones. So few messages are in flight at a time, and the rows of those that
have arrived everywhere are used again. Where the rows run out all the same, the block is halved on the spot:
its left half goes on with twice the rows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from whence.errors import PlatformError
from whence.trace.schema import Kind
from whence.verify.analysis import (
    WHOLE,
    Analysis,
    Block,
    ListedProblems,
    is_overdue,
    rank_type,
    survivors,
    wanted_at,
)
from whence.verify.kernels import (
    BROADCAST,
    DELIVERY,
    DONE,
    FOUND,
    FREE,
    NO_ROW,
    STATES,
    TOP,
    UNTIMELY,
    Array,
    Kernels,
    break_circle,
    choose_kernels,
)
from whence.verify.load import Loader, PackedRow
from whence.verify.messages import Ends, Messages, NumberIndex, find_broadcasts, place_ends
from whence.verify.report import Counts, Progress
from whence.verify.segments import Groups, Segments, build_index, joined
from whence.verify.witness import NodePart, Overtaken, Search

Fill = Callable[[int, int], tuple[Array, Array]]  # (node, first event) -> messages and actions of some events

FOUND_ROOM = 1 << 16  # findings until they are collected


class BlockFindings(NamedTuple):
    """The findings of a pass over a block of columns, counted."""

    high: int  # the block ends here
    causal: int
    fifo: int
    rows: int  # pasts held at a time, at most


class Pass:
    """One pass over the run."""

    def __init__(
        self, kernels: Kernels, messages: Messages, offsets: Array, rank: Array, window: int
    ) -> None:
        self._kernels = kernels
        self._messages = messages
        self._offsets = offsets
        self._rank = rank
        self._nodes = len(offsets) - 1
        most = int(np.diff(offsets).max(initial=1))
        # In step: each node's window is the same share of its events.
        self._window = np.maximum(1, -(-np.diff(offsets) * min(window, most) // max(1, most)))
        self._at = np.cumsum(self._window) - self._window
        self._pool_message = np.empty(int(self._window.sum()), dtype=np.int32)
        self._pool_action = np.empty(int(self._window.sum()), dtype=np.int8)

    def run(
        self,
        fill: Fill,
        pending: Array,
        untimely: set[int],
        low: int,
        high: int,
        past_bytes: int,
        collect: Callable[[Array, Array], None],
        progress: Callable[[int], None],
    ) -> BlockFindings:
        """Judge the columns from `low`, at most to `high`: as many as there is memory for."""
        self._begin(fill, untimely, progress)
        width, item = high - low, self._rank.itemsize
        capacity = min(self._messages.total, past_bytes // (width * item))
        if capacity == 0:
            width = max(1, past_bytes // item)
            capacity = min(self._messages.total, past_bytes // (width * item))
        buffer = np.empty(min(self._messages.total * width, past_bytes // item), dtype=self._rank.dtype)
        if not len(buffer):
            raise _too_little(item * self._messages.total)
        slot = np.full(self._messages.total, -1, dtype=np.int32)
        free = np.arange(self._messages.total, dtype=np.int32)[::-1].copy()
        free[:capacity] = np.arange(capacity - 1, -1, -1, dtype=np.int32)
        self._state[FREE] = capacity
        columns = (self._messages.column, self._messages.column_of_node)
        tables = self._tables(width)
        pending = pending.copy()
        while True:
            past = buffer[: capacity * width].reshape(capacity, width)
            status = self._step(columns, low, low + width, False, slot, pending, free, past, tables, collect)
            if status == NO_ROW:
                if width == 1:
                    raise _too_little(2 * len(buffer) * item)
                narrow = width // 2
                _narrow_rows(buffer, capacity, width, narrow)
                more = min(self._messages.total, len(buffer) // narrow)
                free[: more - capacity] = np.arange(capacity, more, dtype=np.int32)  # none was free
                self._state[FREE] = more - capacity
                width, capacity = narrow, more
                # What was found in the right half is forgotten: it will be found again.
                tables = (*(each[:, :narrow].copy() for each in tables[:3]), tables[3])
            elif not self._go_on(status):
                causal, fifo = tables[2].sum(axis=1).tolist()
                return BlockFindings(low + width, causal, fifo, capacity)

    def pasts(
        self, fill: Fill, pending: Array, untimely: set[int], chosen: Array, progress: Callable[[int], None]
    ) -> Array:
        """Of every message's past the columns `chosen`."""
        self._begin(fill, untimely, progress)
        narrowed = np.full(self._messages.columns + 1, -1, dtype=np.int32)
        narrowed[chosen] = np.arange(len(chosen), dtype=np.int32)  # the last entry is for column -1
        columns = (narrowed[self._messages.column], narrowed[self._messages.column_of_node])
        past = np.zeros((self._messages.total, len(chosen)), dtype=self._rank.dtype)
        slot = np.full(self._messages.total, -1, dtype=np.int32)
        free = np.empty(0, dtype=np.int32)
        tables, pending = self._tables(len(chosen)), pending.copy()

        def ignore(events: Array, fifo: Array) -> None:
            """They have been collected before."""

        while self._go_on(
            self._step(columns, 0, len(chosen), True, slot, pending, free, past, tables, ignore)
        ):
            pass
        return past

    def _begin(self, fill: Fill, untimely: set[int], progress: Callable[[int], None]) -> None:
        self._fill, self._untimely, self._progress = fill, untimely, progress
        self._state = np.zeros(STATES, dtype=np.int64)
        self._stack = np.zeros(self._nodes + 1, dtype=np.int32)
        self._first = self._offsets[:-1].copy()
        self._end = self._offsets[:-1].copy()
        self._reached = self._offsets[:-1].copy()
        self._first_waiter = np.full(self._messages.total, -1, dtype=np.int32)
        self._next_waiter = np.full(self._nodes, -1, dtype=np.int32)
        self._found_event = np.empty(FOUND_ROOM, dtype=np.int64)
        self._found_fifo = np.empty(FOUND_ROOM, dtype=bool)
        self._refill()

    def _tables(self, width: int) -> tuple[Array, ...]:
        """By column: the knowledge of nodes, the highest ranks they delivered, findings; then own pasts."""
        dtype = self._rank.dtype
        return (
            np.zeros((self._nodes, width), dtype=dtype),
            np.zeros((self._nodes, width), dtype=dtype),
            np.zeros((2, width), dtype=np.int64),
            np.zeros(self._nodes, dtype=dtype),
        )

    def _step(
        self, columns: tuple[Array, Array], low: int, high: int, keep: bool, slot: Array, pending: Array,
        free: Array, past: Array, tables: tuple[Array, ...], collect: Callable[[Array, Array], None],
    ) -> int:  # fmt: skip
        known, highest, tally, own_past = tables
        messages = self._messages
        status = self._kernels.run_windows(
            self._state, self._stack, self._at, self._first, self._end, self._pool_message, self._pool_action,
            self._reached, messages.event, messages.node, self._rank, columns[0], columns[1], low, high,
            self._first_waiter, self._next_waiter, keep, slot, pending, free, past, known, highest, tally,
            own_past, self._found_event, self._found_fifo,
        )  # fmt: skip
        found = int(self._state[FOUND])
        if found:
            collect(self._found_event[:found], self._found_fifo[:found])
            self._state[FOUND] = 0
        return status

    def _go_on(self, status: int) -> bool:
        """Make the nodes able to move again; False when all are at their ends."""
        if status != DONE or self._refill():
            return True
        unfinished = np.flatnonzero(self._reached < self._offsets[1:])
        if not len(unfinished):
            return False
        # All that are left wait, hence in circles: `break_circle`, with one event for each node.
        awaited = np.full(self._nodes, -1, dtype=np.int32)
        place = (self._at + self._reached - self._first)[unfinished]
        awaited[unfinished] = self._pool_message[place]
        chosen = break_circle(
            int(unfinished[0]), np.zeros(self._nodes, dtype=np.int8), awaited, self._messages.node,
            np.arange(self._nodes), self._first_waiter, self._next_waiter,
        )  # fmt: skip
        event = int(self._reached[chosen])
        self._untimely.add(event)
        self._pool_action[self._at[chosen] + event - self._first[chosen]] = UNTIMELY
        self._stack[0] = chosen
        self._state[TOP] = 1
        return True

    def _refill(self) -> bool:
        """Load the next window of every node that is at the end of its own."""
        hungry = np.flatnonzero((self._reached == self._end) & (self._end < self._offsets[1:]))
        for node in hungry[::-1].tolist():  # the first node by name is on top
            first, room = int(self._end[node]), int(self._window[node])
            at = int(self._at[node])
            last = min(first + room, int(self._offsets[node + 1]))
            done = first
            while done < last:
                message, action = self._fill(node, done)
                count = min(len(message), last - done)
                place = at + done - first
                self._pool_message[place : place + count] = message[:count]
                self._pool_action[place : place + count] = action[:count]
                done += count
            for event in self._untimely:
                if first <= event < last:
                    self._pool_action[at + event - first] = UNTIMELY
            self._first[node], self._end[node] = first, last
            self._stack[self._state[TOP]] = node
            self._state[TOP] += 1
            self._progress(last - first)
        return bool(len(hungry))


def _narrow_rows(buffer: Array, rows: int, width: int, narrow: int) -> None:
    """Keep the first `narrow` entries of each row, in the same memory: no row moves to the right."""
    for row in range(rows):
        buffer[row * narrow : (row + 1) * narrow] = buffer[row * width : row * width + narrow].copy()


def _too_little(needed_bytes: int) -> PlatformError:
    return PlatformError(
        "verifying within the memory allowed",
        f"the messages in flight need {-(-needed_bytes >> 20)} MB or more",
        "Give more with --memory, or use a machine that has it",
    )


class MemoryBudget(NamedTuple):
    """How much of what may be in memory."""

    memory_bytes: int
    past_bytes: int
    cached_events: int
    window_events: int = 4096  # of one node, at most
    parts: int = 16  # nodes whose events the search for witnesses keeps

    @classmethod
    def of(cls, memory_bytes: int) -> MemoryBudget:
        """A share of the memory for each purpose."""
        return cls(memory_bytes, memory_bytes * 2 // 5, memory_bytes // 100)


class Lowest:
    """The first few of many findings, however they come: tuples that begin with an event."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._kept: list[Any] = []

    def add(self, found: Iterable[Any]) -> None:
        """Take more."""
        self._kept += found
        if self._most is not None and len(self._kept) > 4 * self._most + 1024:
            self._kept = self.first()

    def first(self) -> list[Any]:
        """The lowest of all, in order, each once: what a narrowed pass forgets comes again."""
        return sorted(set(self._kept))[: self._most]


class _Placed(NamedTuple):
    """One row with its messages."""

    row: PackedRow
    message: Array
    action: Array  # BROADCAST and DELIVERY, the latter for all first deliveries
    ends: Ends
    repeat: Array
    again: Array


class Bounded:
    """One run, judged within a budget."""

    def __init__(
        self,
        groups: Groups,
        members: Iterable[str],
        *,
        timed: bool,
        witness_max: int | None,
        budget: MemoryBudget,
        clock_slack_us: int = 0,
        block: Block = WHOLE,
        progress: Progress | None = None,
    ) -> None:
        self._witness_max = witness_max
        self._budget = budget
        self._slack_us = clock_slack_us
        self._block = block
        self._progress = progress or (lambda what, events: None)
        loader = Loader(members, timed=timed)
        self._malformed: list[tuple[int, str]] = []
        self.index = build_index(groups, loader, lambda events: self._progress("indexing", events))
        others = self.index.others
        self.run, self.names, self.offsets = others.run, others.names, self.index.offsets
        found = find_broadcasts(others, self._malformed)
        at = self.index.others_at
        self._malformed = [(int(at[event]), why) for event, why in self._malformed]
        self._begun_us = self._lifetime_us = np.empty(0, dtype=np.int64)
        if others.timing is not None:
            self._begun_us, self._lifetime_us = (each[found.event] for each in others.timing)
        self.messages = found._replace(event=at[found.event])
        self._numbers = NumberIndex(self.messages)
        self._survives = survivors(others)
        self._segments = Segments(groups, loader, self.index, budget.cached_events)
        self._kernels = choose_kernels(int(self.offsets[-1]))
        self._parts: OrderedDict[int, NodePart] = OrderedDict()
        self._untimely: set[int] = set()
        self._rows = 0
        self._lay_out_bits()

    @property
    def rows_held(self) -> int:
        """How many messages' pasts were in memory at a time, at most."""
        return self._rows

    def _lay_out_bits(self) -> None:
        to = self.messages.to
        alone = to >= 0
        self._place = np.where(alone, np.cumsum(alone), np.cumsum(~alone)).astype(np.int64) - 1
        self._row_bits = -(-int((~alone).sum()) // 8) * 8
        bits = len(self.names) * self._row_bits + int(alone.sum())
        self._table_bytes = -(-bits // 8)
        tables = 4 if self.index.expiries else 2  # those of the second pass are kept for what is missing
        needed = tables * self._table_bytes + 60 * self.messages.total + self._budget.past_bytes
        if needed > self._budget.memory_bytes:
            raise PlatformError(
                f"verifying {len(self.names)} nodes and {self.messages.total} messages",
                f"even in parts it needs {-(-needed >> 20)} of {self._budget.memory_bytes >> 20} MB allowed",
                "Give more with --memory, or use a machine that has it",
            )
        self._clear_bits()

    def _clear_bits(self) -> None:
        self._delivered = np.zeros(self._table_bytes, dtype=np.uint8)
        # Where nothing expires, what has ended has been delivered: one table does for both.
        self._ended = np.zeros(self._table_bytes, dtype=np.uint8) if self.index.expiries else self._delivered

    def analyse(self) -> Analysis:
        """All passes."""
        kept = {name: Lowest(self._witness_max) for name in (*ListedProblems._fields, "causal")}
        counts, missing, wanted = self._judge_ends(kept)
        causal, fifo = self._judge_order(kept)
        search = Search(self)
        kept["untimely"].add(self._untimely)
        overtakings = self._explain(search, kept["causal"].first())
        malformed = len(self._malformed) + counts["malformed"] + counts["again"] + len(self._untimely)
        kept["malformed"].add(self._malformed)
        others = self.index.others
        return Analysis(
            access=self,
            search=search,
            nodes=int(others.is_node.sum()),
            events=others.total,
            broadcasts=int((others.kind == Kind.BROADCAST).sum()),
            deliveries=self.index.deliveries,
            expiries=self.index.expiries,
            counts=Counts(
                causal=causal,
                fifo=fifo,
                duplicate=counts["duplicate"],
                late=counts["late"],
                created=counts["created"],
                missing=int(missing.sum()),
                malformed=malformed,
            ),
            missing=missing,
            wanted=wanted,
            ended_at=self._ended_at,
            listed=ListedProblems(**{name: kept[name].first() for name in ListedProblems._fields}),
            overtakings=overtakings,
        )

    # The second pass: deliveries and expiries

    def _judge_ends(self, kept: dict[str, Lowest]) -> tuple[dict[str, int], Array, Array]:
        counts = dict.fromkeys(("duplicate", "late", "created", "malformed", "again"), 0)
        messages = self.messages
        wanted = self._survives[messages.node]
        self._pending = np.zeros(messages.total, dtype=np.int32)
        created_before: set[tuple[int, int, int]] = set()

        def note(kind: str, found: list[Any]) -> None:
            counts[kind] += len(found)
            kept[kind].add(found)

        for place in self.index.stored.tolist():
            start, node = int(self.index.start[place]), int(self.index.node[place])
            malformed: list[tuple[int, str]] = []
            placed = self._placed(place, malformed)
            note("malformed", [(start + at, why) for at, why in malformed])
            unknown = np.flatnonzero(placed.ends.delivers & (placed.message >= messages.total))
            for at in unknown.tolist():
                key = (node, int(placed.row.origin[at]), int(placed.row.number[at]))
                note("duplicate" if key in created_before else "created", [start + at])
                created_before.add(key)
            first = np.flatnonzero(placed.action == DELIVERY)
            which = placed.message[first]
            self._pending[which] += 1  # each of them is there once
            if self._survives[node]:
                there = placed.ends.delivers & (placed.message < messages.total)
                wanted[placed.message[there]] = True
            note("duplicate", (start + np.flatnonzero(placed.repeat)).tolist())
            note("again", (start + np.flatnonzero(placed.again)).tolist())
            if placed.row.timing is not None:
                time_us, begun_us = placed.row.timing.time_us[first], self._begun_us[which]
                late = is_overdue(time_us - begun_us, self._lifetime_us[which], self._slack_us)
                columns = (start + first, time_us, begun_us, self._lifetime_us[which])
                note("late", list(zip(*(each[late].tolist() for each in columns), strict=True)))
            self._progress("deliveries", len(placed.message))
        self._ends_seen = self._ended
        missing = self._missing(wanted)
        return counts, missing, wanted

    def _missing(self, wanted: Array) -> Array:
        missing = np.zeros(len(self.names), dtype=np.int64)
        demanded = wanted_at(self.messages, wanted, len(self.names))
        for node in np.flatnonzero(self._survives).tolist():
            missing[node] = demanded[node] - int((self._ended_at(node) & wanted).sum())
        return missing

    def _ended_at(self, node: int) -> Array:
        """Per message: it ended at this node (a message for another node never does)."""
        to = self.messages.to
        row = np.where(to < 0, node, len(self.names))
        cell = row * self._row_bits + self._place
        there: Array = (self._ends_seen[cell >> 3] >> (cell & 7).astype(np.uint8)) & 1 == 1
        there &= (to < 0) | (to == node)
        return there

    def _placed(self, place: int, malformed: list[tuple[int, str]]) -> _Placed:
        """A row's events with their messages; every row of a node once per pass, in order."""
        node = int(self.index.node[place])
        row = self._segments.row(place)
        message, action, ends = self._messages_of(row, int(self.index.start[place]), node, malformed)
        repeat, again = (np.zeros(len(message), dtype=bool) for _ in range(2))
        self._kernels.mark_part(
            node, len(self.names), ends.delivers, ends.ends, message, self.messages.total, self.messages.to,
            self._place, self._row_bits, self._delivered, self._ended, repeat, again,
        )  # fmt: skip
        action[ends.delivers & (message < self.messages.total) & ~repeat] = DELIVERY
        return _Placed(row, message, action, ends, repeat, again)

    def _messages_of(
        self, row: Any, start: int, node: int, malformed: list[tuple[int, str]]
    ) -> tuple[Array, Array, Ends]:
        message = np.full(len(row.kind), -1, dtype=np.int32)
        action = np.zeros(len(row.kind), dtype=np.int8)
        low, high = np.searchsorted(self.messages.event, [start, start + len(row.kind)])
        begun = self.messages.event[low:high] - start
        message[begun] = np.arange(low, high)
        action[begun] = BROADCAST
        ends = place_ends(self._numbers, row, lambda at: np.full(len(at), node), message, malformed)
        return message, action, ends

    # The third pass: order

    def _judge_order(self, kept: dict[str, Lowest]) -> tuple[int, int]:
        rank = self.messages.rank.astype(rank_type(self.messages))
        window = max(
            1, min(self._budget.window_events, self._budget.cached_events // max(1, len(self.names)))
        )
        self._pass = Pass(self._kernels, self.messages, self.offsets, rank, window)
        low, end = self._block.bounds(self.messages.columns)
        causal = fifo = 0

        def collect(events: Array, is_fifo: Array) -> None:
            kept["fifo"].add(events[is_fifo].tolist())
            kept["causal"].add(events[~is_fifo].tolist())

        width = end - low
        while low < end:
            found = self._pass.run(
                self._filler(), self._pending, self._untimely, low, min(end, low + width),
                self._budget.past_bytes, collect, lambda events: self._progress("order", events),
            )  # fmt: skip
            causal, fifo = causal + found.causal, fifo + found.fifo
            self._rows = max(self._rows, found.rows)
            width, low = found.high - low, found.high
        return causal, fifo

    def _filler(self) -> Callable[[int, int], tuple[Array, Array]]:
        """Gives each node's events once, in order, a row at a time."""
        self._clear_bits()
        nothing = np.empty(0, dtype=np.int8)
        current: dict[int, tuple[int, int, Array, Array]] = {}  # node -> place, first event, its events

        def fill(node: int, event: int) -> tuple[Array, Array]:
            place, start, message, action = current.get(
                node, (int(self.index.rows_of_node[node]) - 1, -1, nothing, nothing)
            )
            while event >= start + len(message):
                place += 1
                placed = self._placed(place, [])
                start, message, action = int(self.index.start[place]), placed.message, placed.action
                current[node] = (place, start, message, action)
            return message[event - start :], action[event - start :]

        return fill

    # Witnesses

    def _explain(self, search: Search, events: list[int]) -> dict[int, Overtaken]:
        explained: dict[int, Overtaken] = {}
        column_of = {}
        for event in events:
            _, part, at = search.look_up(event)
            column_of[event] = int(self.messages.column[part.message[at]])
        chosen = sorted(set(column_of.values()))
        at_once = max(1, self._budget.past_bytes // max(1, 4 * self.messages.total))
        for low in range(0, len(chosen), at_once):
            some = chosen[low : low + at_once]
            past = self._pass.pasts(
                self._filler(), self._pending, self._untimely, np.array(some),
                lambda count: self._progress("witnesses", count),
            )  # fmt: skip
            for event, column in column_of.items():
                if column in some:
                    explained[event] = search.causal(event, past[:, some.index(column)])
        return explained

    def part(self, node: int, end: int) -> NodePart:
        """The events of one node up to `end`, from its files; those of the nodes used last are kept."""
        first = int(self.offsets[node])
        held = self._parts.get(node)
        if held is None or first + len(held.message) < end:
            held = self._parts[node] = self._load_part(node, end)
            while len(self._parts) > self._budget.parts:
                self._parts.popitem(last=False)
        self._parts.move_to_end(node)
        return held

    def _load_part(self, node: int, end: int) -> NodePart:
        rows: list[PackedRow] = []
        for place in range(int(self.index.rows_of_node[node]), int(self.index.rows_of_node[node + 1])):
            if self.index.start[place] >= end:
                break
            rows.append(self._segments.row(place))
        first = int(self.offsets[node])
        whole = _PartColumns(
            joined([row.kind for row in rows], np.int8),
            joined([row.origin for row in rows], np.int32),
            joined([row.number for row in rows], np.int32),
        )
        message, action, ends = self._messages_of(whole, first, node, [])
        stamps = np.full((2, ends.message_limit), -1, dtype=np.int32)
        unwanted = np.zeros(ends.message_limit, dtype=bool)
        flags = np.zeros((3, len(message)), dtype=bool)  # of no interest here
        self._kernels.mark_repeats(
            np.array([0, len(message)]), ends.delivers, ends.ends, message, self.messages.total, unwanted,
            stamps, action, *flags, np.zeros(1, dtype=np.int64),
        )  # fmt: skip
        for event in self._untimely:
            if first <= event < first + len(message):
                action[event - first] = UNTIMELY
        seq = joined([row.seqs() for row in rows], np.int32)
        return NodePart(first, seq, whole.origin, whole.number, message, action, ends.delivers, ends.ends)


class _PartColumns(NamedTuple):
    """The events of several rows."""

    kind: Array
    origin: Array
    number: Array
