"""The message consumer of paper 004, section 5: one domain as one of its servers sees it.

It owns the clock of the domain and the messages that came too early. A message that may be delivered is
merged into the clock and handed on immediately, before the next one is looked at: a router stamps it for the
next domain right there, and no later message can come between (section 4.2: chains must not cross over).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from whence.core.effects import Reason
from whence.core.group import LATER_LIVES, WINDOW_MAX, is_base
from whence.core.holdback import HoldBack, Key
from whence.core.message import Packet
from whence.core.protocol import State
from whence.protocols.domains.clock import MatrixClock, Stamp

HandOn: TypeAlias = Callable[[int, Packet], None]  # the place that it came from


class Early(NamedTuple):
    """A message that waits: the `number`-th from `source` to this server, its stamp and its packet."""

    source: int
    number: int
    stamp: Stamp
    packet: Packet


class Consumer:
    """Servers are known by their places in the domain."""

    def __init__(self, clock: MatrixClock) -> None:
        self.clock = clock
        self.holdback: HoldBack[Early] = HoldBack()
        self.held = self.holdback.held  # (source, count) -> the message, since when
        # Servers whose later lives are announced: what is here of the life before, and where the next begins.
        self.marks: dict[int, list[tuple[int, int]]] = {}
        # (source, first, last) of what counts as delivered and never was: the server's owner takes them.
        self.skipped: list[tuple[int, int, int]] = []
        # Counts between these were given up when a server began a later life: if they come, that is told.
        self.overtaken: dict[int, tuple[int, int]] = {}
        # Servers of which others have met a later life than this one, which something waits for: the server's
        # owner asks them.
        self.doubts: dict[int, int] = {}
        self.hearsay: set[int] = set()  # servers of which the cut at which this one began knew messages

    def refuse(self, source: int, count: int, stamp: Stamp) -> Reason | None:
        """Why a message ends here; None for one that can be delivered, now or later."""
        if count < 1:
            return Reason.MALFORMED
        if count <= self.clock.delivered(source) or (source, count) in self.held:
            self._skip_overtaken(source, count)
            return Reason.DUPLICATE
        return self.clock.problem(source, count, stamp)

    def _skip_overtaken(self, source: int, count: int) -> None:
        """A server has sent so much in a life that another one has overtaken here: a store was copied."""
        first, end = self.overtaken.get(source, (0, 0))
        if first < count <= end:
            self.overtaken[source] = (count, end)
            self.skipped.append((source, first + 1, count))

    # rule 004 section 5: the message consumer: merge and hand on, or hold
    def accept(
        self, source: int, count: int, stamp: Stamp, packet: Packet, now_us: int, hand_on: HandOn
    ) -> None:
        """Hand on the message and all that waited for it, or keep it."""
        obstacle = self.clock.obstacle(source, count, stamp)
        if obstacle is not None:
            early = Early(source, count, stamp, packet)
            self.holdback.hold((source, count), early, now_us, obstacle)
            self._doubt(obstacle)
            return
        self._merge(source, count, stamp)
        hand_on(source, packet)
        if self.held:
            for early in self.holdback.release((source, count), self._obstacle):
                self._merge(early.source, early.number, early.stamp)
                hand_on(early.source, early.packet)

    def _merge(self, source: int, count: int, stamp: Stamp) -> None:
        """The message is delivered; what it follows of a server that is out of the group never will be."""
        clock = self.clock
        if not clock.gone:
            clock.merge(source, count, stamp)
            return
        before = {k: clock.delivered(k) for k in clock.gone if k != source}
        clock.merge(source, count, stamp)
        for k, had in sorted(before.items()):
            if clock.delivered(k) > had:
                self.skipped.append((k, had + 1, clock.delivered(k)))

    # Lives (core/lives.py)

    def cut_for(self, to: int, queued: int) -> tuple[int, Stamp]:
        """Where a server that came back begins: what it was sent before the `queued`, and what is known."""
        clock = self.clock
        sent = max(0, clock.cut_for(to, queued))
        clock.owe_whole(to, is_cut_off=False)
        return sent, tuple(clock.value)

    def jump(
        self, source: int, sent: int, known: Stamp, hand_on: HandOn
    ) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
        """Begin at the cut of `source`.

        Returns what it had sent that is not given here any more, and what is known there of this server's own
        messages beyond what it knows itself, where that is most: each as first and last count.
        """
        clock, size, me = self.clock, self.clock.size, self.clock.me
        had = clock.delivered(source)
        lost_own = self.hear_own(source, ((to, known[me * size + to]) for to in range(size)))
        for entry, said in enumerate(known):
            if entry // size != me != entry % size:
                clock.learn(entry, said, source)
        self.hearsay |= {entry // size for entry, said in enumerate(known) if said}
        if sent > had:
            self.skip_to(source, sent, hand_on)
        else:
            self._skip_overtaken(source, sent)
        return ((had + 1, sent) if sent > had else None), lost_own

    def hear_own(self, source: int, claims: Iterable[tuple[int, int]]) -> tuple[int, int] | None:
        """Others know this many messages of this server to each: returns first and last of what it does not.

        Where that is most. Another life of it that has begun, and sent nothing there, has left nothing there.
        """
        clock = self.clock
        most = None
        for to, said in claims:
            entry = clock.me * clock.size + to
            mine = clock.value[entry]
            if said > mine:
                most = max(most or (0, 0), (mine + 1, said), key=itemgetter(1))
                if to != clock.me and not (mine >= LATER_LIVES and is_base(said)):
                    clock.learn(entry, said, source)
        return most

    def hear_life(self, source: int, base: int, before: int, hand_on: HandOn) -> None:
        """A server counts on after `base`, once what has come of it before is delivered here.

        It comes in order over the link from that server: what it sent before, and is not here, was lost with
        the life that sent it.
        """
        here = max([self.clock.delivered(source), *(count for k, count in self.held if k == source)])
        if base <= here:
            return
        marks = self.marks.setdefault(source, [])
        last = max([here, *(base for _, base in marks)])
        if before > last:
            self.skipped.append((source, last + 1, before))
        else:
            self._skip_overtaken(source, before)
        marks.append((last, base))
        self.begin_lives(hand_on)

    def begin_lives(self, hand_on: HandOn) -> None:
        """Follow the servers whose earlier messages are delivered."""
        for source, marks in sorted(self.marks.items()):
            while marks and self.clock.delivered(source) >= marks[0][0]:
                here, base = marks.pop(0)
                if here:
                    self.overtaken[source] = (here, base)
                self.skip_to(source, base, hand_on)
            if not marks:
                del self.marks[source]

    def skip_to(self, source: int, count: int, hand_on: HandOn) -> None:
        """What `source` sent here up to `count` is accounted for; what waits is looked at again."""
        clock = self.clock
        clock.learn(source * clock.size + clock.me, count, source)
        clock.changes += 1
        self.look_again(hand_on)

    def look_again(self, hand_on: HandOn) -> None:
        """Hand on what waits no more, let the rest wait for what it misses now; rare, so all is looked at."""
        found = True
        while found:
            found = False
            for key, (early, _) in sorted(self.held.items()):
                if early.number <= self.clock.delivered(early.source) or self._obstacle(early) is None:
                    self._drop(key)
                    if early.number > self.clock.delivered(early.source):
                        self._merge(early.source, early.number, early.stamp)
                        hand_on(early.source, early.packet)
                    found = True
        left = list(self.held.items())
        self.held.clear()
        self.holdback.waiters.clear()
        for key, (early, since_us) in left:
            obstacle = self._obstacle(early)
            assert obstacle is not None
            self.holdback.hold(key, early, since_us, obstacle)

    def _drop(self, key: Key) -> None:
        del self.held[key]
        waiters = self.holdback.waiters
        for missing in [each for each, keys in waiters.items() if key in keys]:
            waiters[missing].remove(key)
            if not waiters[missing]:
                del waiters[missing]

    def _obstacle(self, early: Early) -> Key | None:
        obstacle = self.clock.obstacle(early.source, early.number, early.stamp)
        if obstacle is not None:
            self._doubt(obstacle)
        return obstacle

    def _doubt(self, obstacle: Key) -> None:
        """Something waits for a life that was not heard of here: it may be that of a copy of a store."""
        source, count = obstacle
        if count - self.clock.delivered(source) > WINDOW_MAX:
            self.doubts[source] = count

    def missing(self, source: int, count: int) -> list[tuple[int, int]]:
        """What a held message waits for, as (k, c): what has not come, else the first obstacle."""
        delivered, held = self.clock.delivered, self.held
        first = delivered(source) + 1
        if count - first > WINDOW_MAX:  # of a later life, of which nothing is here
            first = count - 1
        gaps = [(source, gap) for gap in range(first, count) if (source, gap) not in self.held]
        obstacle = self.clock.obstacle(source, count, held[source, count][0].stamp)
        if obstacle is not None and not gaps:
            k, needed = obstacle
            first = delivered(k) + 1
            if needed - first > WINDOW_MAX:  # as above
                first = needed
            gaps = [(k, gap) for gap in range(first, needed + 1) if (k, gap) not in held]
            gaps = gaps or [obstacle]
        return gaps

    def broken_rule(self) -> str | None:
        """Return the invariant that does not hold; None if all do."""
        return self.holdback.broken_rule(lambda key: key[1] <= self.clock.delivered(key[0]))

    def entries(self) -> int:
        """Entries of control information."""
        return self.clock.memory_entries() + sum(
            self.clock.stamp_entries(early.stamp) for early, _ in self.held.values()
        )

    def save(self) -> State:
        return {
            "clock": self.clock.save(),
            "held": [
                [source, count, list(stamp), plain(packet), since_us]
                for (source, count, stamp, packet), since_us in self.held.values()
            ],
            "waiters": self.holdback.save_waiters(),
            **({"marks": self._saved_marks()} if self.marks else {}),
            **({"overtaken": sorted(self.overtaken.items())} if self.overtaken else {}),
            **({"gone": sorted(self.clock.gone)} if self.clock.gone else {}),
        }

    def _saved_marks(self) -> list[list[int]]:
        return [[k, base, here] for k, marks in sorted(self.marks.items()) for here, base in marks]

    def restore(self, state: State, packet_of: Callable[..., Packet]) -> None:
        """`packet_of(*fields)` makes the protocol's packet."""
        self.clock.restore(state["clock"])
        for source, count, stamp, fields, since_us in state["held"]:
            early = Early(source, count, tuple(stamp), restored(fields, packet_of))
            self.held[source, count] = (early, since_us)
        self.holdback.restore_waiters(state["waiters"])
        self.overtaken = {k: (first, end) for k, (first, end) in state.get("overtaken", [])}
        for k, base, here in state.get("marks", []):
            self.marks.setdefault(k, []).append((here, base))
        self.clock.gone = set(state.get("gone", []))


def plain(packet: Packet) -> list[Any]:
    """A packet as plain data, for `save`."""
    return [list(each) if isinstance(each, tuple) else each for each in packet]


def restored(fields: Sequence[Any], packet_of: Callable[..., Packet]) -> Packet:
    """The packet that `plain` made plain data of; its stamp comes back as a tuple."""
    return packet_of(*(tuple(each) if isinstance(each, list | tuple) else each for each in fields))
