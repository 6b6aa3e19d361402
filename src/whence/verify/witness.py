"""Why a delivery is too late: the message that overtook it, and a shortest chain of events between the two.

Searches run backwards. All that precedes a message directly is what its origin broadcast or delivered before
it: a prefix of that node's events. So the search goes from node to node, and of each node only the latest
message found so far matters, since its prefix contains the others'.

Events are looked up again one node at a time (`Access`), from memory or from files.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from whence.errors import InvariantError
from whence.verify.kernels import BROADCAST, DELIVERY, Array
from whence.verify.load import RunEvents
from whence.verify.messages import Messages, PlacedEvents
from whence.verify.report import ChainStep


class NodePart(NamedTuple):
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

    def part(self, node: int, end: int) -> NodePart:
        """The events of `node` before event `end` of the run, at least."""
        ...


class MemoryAccess:
    """All events are in memory: a part is a view."""

    def __init__(self, events: RunEvents, placed: PlacedEvents) -> None:
        self._events = events
        self._placed = placed
        self.names = events.names
        self.offsets = events.offsets
        self.messages = placed.messages

    def part(self, node: int, end: int) -> NodePart:
        """The events of `node`, as views."""
        events, placed = self._events, self._placed
        here = slice(int(self.offsets[node]), max(end, int(self.offsets[node])))
        return NodePart(
            here.start, events.seq[here], events.origin[here], events.number[here], placed.message[here],
            placed.action[here], placed.delivers[here], placed.ends[here],
        )  # fmt: skip


def node_of(offsets: Array, event: int) -> int:
    """The node of an event."""
    return int(np.searchsorted(offsets, event, side="right")) - 1


class Overtaken(NamedTuple):
    """A late delivery, explained."""

    other_event: int  # the first delivery at the same node of a message that depends on the late one
    chain: list[ChainStep]


class Search:
    """Looks for witnesses in one run."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._messages = access.messages

    def look_up(self, event: int) -> tuple[int, NodePart, int]:
        """An event's node, the events up to it there, and its place among them."""
        node = node_of(self._access.offsets, event)
        part = self._access.part(node, event + 1)
        return node, part, event - part.first

    def name_of(self, event: int) -> str:
        """The id of an event's message."""
        _, part, at = self.look_up(event)
        origin = part.origin[at]
        return f"{self._access.names[origin] if origin >= 0 else '?'}:{part.number[at]}"

    def causal(self, event: int, seen: Array) -> Overtaken:
        """Explain the late delivery `event`.

        `seen[m]` is the number of messages of the late message's origin in the past of message m.
        """
        late, delivered, which = self._deliveries_before(event)
        rank = self._messages.rank[late]
        first = int(np.argmax(seen[which] >= rank))
        return Overtaken(int(delivered[first]), self._chain(late, int(which[first]), seen >= rank))

    def fifo(self, event: int) -> Overtaken:
        """Explain a delivery that comes after a later message of the same origin."""
        late, delivered, which = self._deliveries_before(event)
        messages = self._messages
        later = (messages.node[which] == messages.node[late]) & (messages.rank[which] > messages.rank[late])
        first = int(np.argmax(later))
        chain = [self.step(int(messages.event[each])) for each in (late, int(which[first]))]
        return Overtaken(int(delivered[first]), chain)

    def _deliveries_before(self, event: int) -> tuple[int, Array, Array]:
        """An event's message; the node's first deliveries before it, and their messages."""
        _, part, end = self.look_up(event)
        at = np.flatnonzero(part.action[:end] == DELIVERY)
        return int(part.message[end]), part.first + at, part.message[at]

    def _chain(self, target: int, last: int, depends: Array) -> list[ChainStep]:
        """The events on a shortest path from message `target` to `last`; `depends[m]`: target precedes m."""
        messages, offsets = self._messages, self._access.offsets
        followed_by: dict[
            int, tuple[int, int]
        ] = {}  # message -> event at the next one's origin, next message
        explored: dict[int, int] = {}
        frontier = [last]
        while frontier:
            reached: dict[int, int] = {}  # node -> the latest message of it found in this round
            for current in frontier:
                node, end = int(messages.node[current]), int(messages.event[current])
                start = explored.get(node, int(offsets[node]))
                explored[node] = max(start, end)
                part = self._access.part(node, max(start, end))
                actions = part.action[start - part.first : max(start, end) - part.first]
                at = start + np.flatnonzero((actions == BROADCAST) | (actions == DELIVERY))
                which = part.message[at - part.first]
                direct = np.flatnonzero(which == target)
                if len(direct):
                    followed_by[target] = (int(at[direct[0]]), current)
                    return self._steps(target, followed_by)
                hopeful = depends[which]
                for event, candidate in _latest_of_each(at[hopeful], which[hopeful], messages.node):
                    origin = int(messages.node[candidate])
                    if candidate not in followed_by and reached.get(origin, -1) < candidate:
                        reached[origin] = candidate
                        followed_by[candidate] = (event, current)
            frontier = [reached[origin] for origin in sorted(reached)]
        raise InvariantError(
            f"message {target}", f"it is said to precede message {last}, but no chain leads there"
        )

    def _steps(self, target: int, followed_by: dict[int, tuple[int, int]]) -> list[ChainStep]:
        message = target
        steps = [self.step(int(self._messages.event[message]))]
        while message in followed_by:
            event, message = followed_by[message]
            _, part, at = self.look_up(event)
            if part.action[at] == DELIVERY:
                steps.append(self.step(event))
            steps.append(self.step(int(self._messages.event[message])))
        return steps

    def step(self, event: int) -> ChainStep:
        """An event as a step of a chain."""
        node, part, at = self.look_up(event)
        verb = "deliver"
        if part.action[at] == BROADCAST:
            verb = "broadcast" if self._messages.to[part.message[at]] < 0 else "send"
        return ChainStep(
            event=verb, message=self.name_of(event), node=self._access.names[node], seq=part.seq_at(at)
        )


def _latest_of_each(at: Array, which: Array, node_of: Array) -> list[tuple[int, int]]:
    """Of the messages of each origin the latest, with the event that it was found at."""
    distinct, first = np.unique(which, return_index=True)
    is_last = np.append(np.diff(node_of[distinct]) != 0, True) if len(distinct) else np.zeros(0, dtype=bool)
    return list(zip(at[first[is_last]].tolist(), distinct[is_last].tolist(), strict=True))
