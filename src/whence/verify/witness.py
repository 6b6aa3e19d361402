"""Why a delivery is too late: the message that overtook it, and a shortest chain of events between the two.

Searches run backwards. All that precedes a message directly is what its origin broadcast or delivered before
it: a prefix of that node's events. So the search goes from node to node, and of each node only the latest
message found so far matters, since its prefix contains the others'.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from whence.errors import InvariantError
from whence.verify.kernel import BROADCAST, DELIVERY
from whence.verify.load import Events
from whence.verify.messages import Messages
from whence.verify.report import Step

Array = npt.NDArray[Any]


class Overtaken(NamedTuple):
    """A late delivery, explained."""

    other_event: int  # the first delivery at the same node of a message that depends on the late one
    chain: list[Step]


class Search:
    """Looks for witnesses in one run."""

    def __init__(self, events: Events, messages: Messages, message: Array, action: Array) -> None:
        self._events = events
        self._messages = messages
        self._message = message
        self._action = action

    def name_of(self, event: int) -> str:
        """The id of an event's message."""
        origin = self._events.origin[event]
        return f"{self._events.names[origin] if origin >= 0 else '?'}:{self._events.number[event]}"

    def causal(self, event: int, node: int, seen: Array) -> Overtaken:
        """Explain the late delivery `event` at `node`.

        `seen[m]` is the number of messages of the late message's origin in the past of message m.
        """
        late = int(self._message[event])
        rank = self._messages.rank[late]
        delivered = self._deliveries_before(node, event)
        other_event = int(delivered[np.argmax(seen[self._message[delivered]] >= rank)])
        return Overtaken(other_event, self._chain(late, int(self._message[other_event]), seen >= rank))

    def fifo(self, event: int, node: int) -> Overtaken:
        """Explain a delivery that comes after a later message of the same origin."""
        late = int(self._message[event])
        delivered = self._deliveries_before(node, event)
        which = self._message[delivered]
        messages = self._messages
        later = (messages.node[which] == messages.node[late]) & (messages.rank[which] > messages.rank[late])
        other_event = int(delivered[np.argmax(later)])
        other = int(self._message[other_event])
        return Overtaken(other_event, [self.step(int(messages.event[each])) for each in (late, other)])

    def _deliveries_before(self, node: int, event: int) -> Array:
        start = int(self._events.offsets[node])
        found: Array = start + np.flatnonzero(self._action[start:event] == DELIVERY)
        return found

    def _chain(self, target: int, last: int, depends: Array) -> list[Step]:
        """The events on a shortest path from message `target` to `last`; `depends[m]`: target precedes m."""
        messages, offsets = self._messages, self._events.offsets
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
                actions = self._action[start : max(start, end)]
                at = start + np.flatnonzero((actions == BROADCAST) | (actions == DELIVERY))
                which = self._message[at]
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

    def _steps(self, target: int, followed_by: dict[int, tuple[int, int]]) -> list[Step]:
        message = target
        steps = [self.step(int(self._messages.event[message]))]
        while message in followed_by:
            event, message = followed_by[message]
            if self._action[event] == DELIVERY:
                steps.append(self.step(event))
            steps.append(self.step(int(self._messages.event[message])))
        return steps

    def step(self, event: int) -> Step:
        """An event as a step of a chain."""
        node = int(self._events.node_of(event))
        verb = "deliver"
        if self._action[event] == BROADCAST:
            verb = "broadcast" if self._messages.to[self._message[event]] < 0 else "send"
        return Step(
            event=verb,
            message=self.name_of(event),
            node=self._events.names[node],
            seq=int(self._events.seq[event]),
        )


def _latest_of_each(at: Array, which: Array, node_of: Array) -> list[tuple[int, int]]:
    """Of the messages of each origin the latest, with the event that it was found at."""
    distinct, first = np.unique(which, return_index=True)
    is_last = np.append(np.diff(node_of[distinct]) != 0, True) if len(distinct) else np.zeros(0, dtype=bool)
    return list(zip(at[first[is_last]].tolist(), distinct[is_last].tolist(), strict=True))
