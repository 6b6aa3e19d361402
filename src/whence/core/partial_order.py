"""Which messages followed which: the partial order, from what each message names.

Causal delivery says in which order messages may be read, not which of them had nothing to do with each other.
Paper 003 leaves that as future work (section 5). Here every message names those that its sender had delivered
last: the ones that no other of them followed. Together with the sender's own previous message, which needs no
name, these are all of its direct predecessors, and the whole order follows from them.

    broadcast m   m names F; then F is empty. All of F precedes m, and m the sender's next message
    deliver m     F ← (F \\ direct predecessors of m) ∪ {m}. Who precedes m otherwise precedes one of them,
                  and so is not in F

The rules hold over any protocol that delivers in causal order, each message once. A message names one other
where nothing is under way, more as more is, and never more than there are senders (bench_partial_order.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import StrEnum

from whence.core.group import LATER_LIVES
from whence.core.message import MessageId, NodeId
from whence.errors import MisuseError, ParameterError


class Relation(StrEnum):
    """How one message stands to another."""

    SAME = "same"
    BEFORE = "before"
    AFTER = "after"
    CONCURRENT = "concurrent"


class PartialOrder:
    """What one process knows of the order of the newest `keep` messages that it delivered."""

    def __init__(self, me: NodeId, keep: int = 10_000) -> None:
        if isinstance(keep, bool) or not isinstance(keep, int) or keep < 1:
            raise ParameterError("keep", f"{keep!r} is not a positive integer", "Use 1 or more")
        self.me = me
        self.keep = keep
        self._last: set[MessageId] = set()  # F: messages of others that none of the delivered ones followed
        self._after: dict[MessageId, frozenset[MessageId]] = {}  # direct predecessors of the newest
        self._newest: deque[MessageId] = deque()
        self._heard: dict[NodeId, int] = {}  # the newest number of each

    def name_past(self) -> tuple[MessageId, ...]:
        """What the next own message must name, sorted. It counts as broadcast from now on."""
        past = tuple(sorted(self._last))
        self._last.clear()
        return past

    def take_back(self, past: Iterable[MessageId]) -> None:
        """The message for which `name_past` was asked was not broadcast."""
        self._last.update(past)

    def delivered(self, message: MessageId, past: Iterable[MessageId]) -> frozenset[MessageId]:
        """A message was delivered that names `past`; returns its direct predecessors."""
        origin, number = message
        predecessors = {each for each in past if each != message}
        # The first number of a later life follows none: what is before it is no message.
        if number > 1 and (number < LATER_LIVES or self._heard.get(origin) == number - 1):
            predecessors.add(MessageId(origin, number - 1))
        self._heard[origin] = number
        if origin != self.me:  # our own next message follows our own ones anyway
            self._last -= predecessors
            self._last.add(message)
        after = frozenset(predecessors)
        if message not in self._after:
            self._newest.append(message)
        self._after[message] = after
        if len(self._newest) > self.keep:
            del self._after[self._newest.popleft()]
        return after

    def relation(self, one: MessageId, other: MessageId) -> Relation:
        """How `one` stands to `other`; both must be among the newest messages that were delivered here."""
        for each in (one, other):
            if each not in self._after:
                raise MisuseError(
                    f"message {each}",
                    f"it is not among the {self.keep:,} newest that were delivered here",
                    "Ask earlier, or keep more",
                )
        if one == other:
            return Relation.SAME
        if self._precedes(one, other):
            return Relation.BEFORE
        return Relation.AFTER if self._precedes(other, one) else Relation.CONCURRENT

    def _precedes(self, one: MessageId, other: MessageId) -> bool:
        """Whatever lies between the two was delivered between them, so it is kept if `one` is."""
        seen = {other}
        frontier = [other]
        while frontier:
            for each in self._after.get(frontier.pop(), ()):
                if each == one:
                    return True
                if each not in seen and each in self._after:
                    seen.add(each)
                    frontier.append(each)
        return False

    def entries(self) -> int:
        """Names in memory that the next message needs; those kept for `relation` come on top."""
        return len(self._last)
