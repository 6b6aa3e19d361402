"""How findings are looked up again: one node's events at a time, from memory or from files."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from whence.verify.load import Events
from whence.verify.messages import Messages, Placed

Array = npt.NDArray[Any]


class Part(NamedTuple):
    """The first events of one node, in its order; event e of the run is at e - first."""

    first: int
    seq: Array  # empty where every event of the node is kept: then a place is a seq
    origin: Array
    number: Array
    message: Array
    action: Array
    delivers: Array
    ends: Array

    def seq_at(self, at: int) -> int:
        """The `seq` of the event at a place."""
        return int(self.seq[at]) if len(self.seq) else at


class Access(Protocol):
    """The events of a run, node by node."""

    @property
    def names(self) -> list[str]: ...
    @property
    def offsets(self) -> Array: ...
    @property
    def messages(self) -> Messages: ...

    def part(self, node: int, end: int) -> Part:
        """The events of `node` before event `end` of the run, at least."""
        ...


class MemoryAccess:
    """All events are in memory: a part is a view."""

    def __init__(self, events: Events, placed: Placed) -> None:
        self._events = events
        self._placed = placed
        self.names = events.names
        self.offsets = events.offsets
        self.messages = placed.messages

    def part(self, node: int, end: int) -> Part:
        """The events of `node`, as views."""
        events, placed = self._events, self._placed
        here = slice(int(self.offsets[node]), max(end, int(self.offsets[node])))
        return Part(
            here.start, events.seq[here], events.origin[here], events.number[here], placed.message[here],
            placed.action[here], placed.delivers[here], placed.ends[here],
        )  # fmt: skip


def node_of(offsets: Array, event: int) -> int:
    """The node of an event."""
    return int(np.searchsorted(offsets, event, side="right")) - 1
