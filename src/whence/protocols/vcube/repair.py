"""What is kept for those who lack it, and the tally that says when no member does any more.

**Repair.** A digest says what its sender has received. A node that has kept a message that the digest
lacks gives it, but not while it may still be on its way: only what has been here for a whole
interval of tests, or immediately in reply to a peer's first digest after the view has changed. What was
given is not given again in the same view, because links between members lose nothing.

**Tally.** A sample is a flat tuple over the nodes that it covers: for each member the least that one
of them has delivered of it; for each member that is gone the least, then for each the most, that one
has received of it without a hole; for each member the most that one holds for stable and may have
forgotten. Each node adds its own sample to those of its children in the tree of the first node that
is there, and passes the sum up; the root's sum covers all members, and goes down again. A sample
belongs to one view and is forgotten with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import TypeAlias

from whence.protocols.vcube.core import Key
from whence.protocols.vcube.wire import VCubeMessage

REPAIR_MAX = 4096  # messages given for one digest; the rest follows at the next

Sample: TypeAlias = tuple[int, ...]


class RepairStore:
    """Messages that some member may still lack, each with its place in the order of arrival here."""

    def __init__(self, size: int) -> None:
        self.kept: dict[int, dict[int, tuple[int, VCubeMessage]]] = {}  # origin -> number -> (place, it)
        self.newest: dict[int, int] = {}  # origin -> a bound on the numbers that are kept of it
        self.places = 0
        self.young = self.ripe = 0  # the last places at the last tick and at the one before it
        self.served = set(range(size))  # all but those from whom a digest is due since the view changed
        self.given: dict[int, set[Key]] = {}  # peer -> what it was given in this view and may not have yet

    def __len__(self) -> int:
        return sum(map(len, self.kept.values()))

    def keep(self, message: VCubeMessage) -> None:
        """Keep a message that has arrived or was broadcast."""
        origin, number = message[0], message[1]
        self.places += 1
        kept = self.kept.get(origin)
        if kept is None:
            kept = self.kept[origin] = {}
            self.newest[origin] = number
        elif number > self.newest[origin]:
            self.newest[origin] = number
        kept[number] = (self.places, message)

    def drop(self, origin: int, number: int) -> None:
        """Forget one message."""
        kept = self.kept.get(origin, {})
        kept.pop(number, None)
        if not kept:
            self.kept.pop(origin, None)

    def drop_all(self, origin: int) -> None:
        """Forget all messages of one member."""
        self.kept.pop(origin, None)

    # rule 000 ours 4: a message is kept until all have delivered it
    def prune(self, stable: Sequence[int]) -> None:
        """Forget what all members have delivered."""
        for origin in list(self.kept):
            kept, bound = self.kept[origin], stable[origin]
            # In order of arrival, which is nearly that of the numbers: one out of turn only waits a while.
            for number in list(takewhile(bound.__ge__, kept)):
                del kept[number]
            if not kept:
                del self.kept[origin]

    def tick(self) -> None:
        """An interval of tests is over."""
        self.ripe, self.young = self.young, self.places

    def new_view(self) -> None:
        """The view has changed: give immediately what the next digests lack."""
        self.served.clear()
        self.given.clear()

    def expect_digest(self, peer: int) -> None:
        """The peer begins with nothing: its first digest counts immediately."""
        self.served.discard(peer)
        self.given.pop(peer, None)

    # rule 000 ours 3: repair by digests
    def lacking(self, peer: int, received: Sequence[int], early: Sequence[int]) -> tuple[VCubeMessage, ...]:
        """What to give to the peer that has sent this digest, in order of arrival here."""
        last = self.ripe if peer in self.served else self.places
        self.served.add(peer)
        given = {key for key in self.given.get(peer, ()) if key[1] > received[key[0]]}
        beyond = set(zip(early[::2], early[1::2], strict=True))
        wanted = []
        for origin, kept in self.kept.items():
            for number in self._beyond(origin, received[origin]):
                key = (origin, number)
                if number in kept and kept[number][0] <= last and key not in beyond and key not in given:
                    wanted.append(kept[number])
        wanted.sort()
        messages = tuple(message for _, message in wanted[:REPAIR_MAX])
        given.update(message[:2] for message in messages)
        self.given[peer] = given
        return messages

    def _beyond(self, origin: int, number: int) -> Iterable[int]:
        """All kept numbers of `origin` beyond `number`, perhaps among others."""
        newest, kept = self.newest[origin], self.kept[origin]
        if newest - number <= len(kept):
            return range(number + 1, newest + 1)
        return [each for each in kept if each > number]  # a new life began in between


class SampleTally:
    """The samples of one view: those of the children, and that of all members once it is known."""

    def __init__(self) -> None:
        self.ups: dict[int, Sample] = {}
        self.whole: Sample = ()

    def reset(self) -> None:
        """The view has changed."""
        self.ups.clear()
        self.whole = ()

    # rule 000 ours 4: the tally of a subtree
    def sum(self, own: Sample, kids: Sequence[int], least: int) -> Sample:
        """The sample of the whole subtree; empty as long as a child's is missing.

        The first `least` entries are minima, the others maxima.
        """
        if any(kid not in self.ups for kid in kids):
            return ()
        covered = [own, *(self.ups[kid] for kid in kids)]
        if len(covered) == 1:
            return own
        columns = list(zip(*covered, strict=True))
        return (*map(min, columns[:least]), *map(max, columns[least:]))
