"""Verification within bounded memory, for runs whose events do not fit: the same report, in several passes.

First an index and the table of messages; then every delivery and expiry with one bit per node and message;
then causal order in windows (`windows.py`), one pass per block of columns; at last, where something was
found, the few columns that its witnesses need. docs/verification.md has the argument and the cost.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from whence.errors import PlatformError
from whence.trace.schema import Kind
from whence.verify import kernel, window_kernel
from whence.verify.access import Part
from whence.verify.analysis import (
    COMPILED_EVENTS,
    WHOLE,
    Analysis,
    Block,
    Listed,
    is_overdue,
    rank_type,
    survivors,
    wanted_at,
)
from whence.verify.kernel import BROADCAST, DELIVERY, UNTIMELY
from whence.verify.load import Loader, Row
from whence.verify.messages import Ends, NumberIndex, find_broadcasts, place_ends
from whence.verify.report import Counts
from whence.verify.segments import Groups, Segments, build_index, joined
from whence.verify.windows import Pass
from whence.verify.witness import Overtaken, Search

Array = npt.NDArray[Any]
Progress = Callable[[str, int], None]  # what is being done, and how many more events have been gone through


class Budget(NamedTuple):
    """How much of what may be in memory."""

    memory_bytes: int
    past_bytes: int
    cached_events: int
    window_events: int = 4096  # of one node, at most
    parts: int = 16  # nodes whose events the search for witnesses keeps

    @classmethod
    def of(cls, memory_bytes: int) -> Budget:
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

    row: Row
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
        budget: Budget,
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
        compile_it = int(self.offsets[-1]) >= COMPILED_EVENTS
        self._kernels = (
            window_kernel.compiled_windows() if compile_it else None
        ) or window_kernel.plain_windows()
        self._loops = (kernel.compiled() if compile_it else None) or kernel.plain()
        self._parts: OrderedDict[int, Part] = OrderedDict()
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
        kept = {name: Lowest(self._witness_max) for name in (*Listed._fields, "causal")}
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
            listed=Listed(**{name: kept[name].first() for name in Listed._fields}),
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

    def part(self, node: int, end: int) -> Part:
        """The events of one node up to `end`, from its files; those of the nodes used last are kept."""
        first = int(self.offsets[node])
        held = self._parts.get(node)
        if held is None or first + len(held.message) < end:
            held = self._parts[node] = self._load_part(node, end)
            while len(self._parts) > self._budget.parts:
                self._parts.popitem(last=False)
        self._parts.move_to_end(node)
        return held

    def _load_part(self, node: int, end: int) -> Part:
        rows: list[Row] = []
        for place in range(int(self.index.rows_of_node[node]), int(self.index.rows_of_node[node + 1])):
            if self.index.start[place] >= end:
                break
            rows.append(self._segments.row(place))
        first = int(self.offsets[node])
        whole = _Columns(
            joined([row.kind for row in rows], np.int8),
            joined([row.origin for row in rows], np.int32),
            joined([row.number for row in rows], np.int32),
        )
        message, action, ends = self._messages_of(whole, first, node, [])
        stamps = np.full((2, ends.message_limit), -1, dtype=np.int32)
        unwanted = np.zeros(ends.message_limit, dtype=bool)
        flags = np.zeros((3, len(message)), dtype=bool)  # of no interest here
        self._loops.mark_repeats(
            np.array([0, len(message)]), ends.delivers, ends.ends, message, self.messages.total, unwanted,
            stamps, action, *flags, np.zeros(1, dtype=np.int64),
        )  # fmt: skip
        for event in self._untimely:
            if first <= event < first + len(message):
                action[event - first] = UNTIMELY
        seq = joined([row.seqs() for row in rows], np.int32)
        return Part(first, seq, whole.origin, whole.number, message, action, ends.delivers, ends.ends)


class _Columns(NamedTuple):
    """The events of several rows."""

    kind: Array
    origin: Array
    number: Array
