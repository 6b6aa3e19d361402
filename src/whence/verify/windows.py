"""Causal order with a window of events per node in memory: one pass over the run for a block of columns.

Nodes advance in step: a node gets its next window when nobody can move within the present ones. So few
messages are in flight at a time, and the rows of those that have arrived everywhere are used again. Where the
rows run out all the same, the block is halved on the spot: its left half goes on with twice the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from whence.errors import PlatformError
from whence.verify import kernel
from whence.verify.kernel import UNTIMELY
from whence.verify.messages import Messages
from whence.verify.window_kernel import DONE, FOUND, FREE, NO_ROW, STATES, TOP, WindowKernels

Array = npt.NDArray[Any]
Fill = Callable[[int, int], tuple[Array, Array]]  # (node, first event) -> messages and actions of some events

FOUND_ROOM = 1 << 16  # findings until they are collected


class Found(NamedTuple):
    """What a pass over a block of columns found."""

    high: int  # the block ends here
    causal: int
    fifo: int
    rows: int  # pasts held at a time, at most


class Pass:
    """One pass over the run."""

    def __init__(
        self, kernels: WindowKernels, messages: Messages, offsets: Array, rank: Array, window: int
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
    ) -> Found:
        """Judge the columns from `low`, to `high` at most: as many as there is memory for."""
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
                return Found(low + width, causal, fifo, capacity)

    def pasts(
        self, fill: Fill, pending: Array, untimely: set[int], chosen: Array, progress: Callable[[int], None]
    ) -> Array:
        """Of every message's past the columns `chosen`."""
        self._begin(fill, untimely, progress)
        narrowed = np.full(self._messages.columns + 1, -1, dtype=np.int32)
        narrowed[chosen] = np.arange(len(chosen), dtype=np.int32)  # the last entry answers column -1
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
        """What nodes know, the highest rank they delivered, both by column; findings by column; own pasts."""
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
        """Make the nodes able to move again; False when all have come to their ends."""
        if status != DONE or self._refill():
            return True
        unfinished = np.flatnonzero(self._reached < self._offsets[1:])
        if not len(unfinished):
            return False
        # All that are left wait, hence in circles: `kernel.break_circle`, with one event for each node.
        awaited = np.full(self._nodes, -1, dtype=np.int32)
        place = (self._at + self._reached - self._first)[unfinished]
        awaited[unfinished] = self._pool_message[place]
        chosen = kernel.break_circle(
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
        """The next window for every node that has come to the end of its own."""
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
