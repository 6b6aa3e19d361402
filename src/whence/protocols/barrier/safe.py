"""The corrected order: causal barriers that hold under lifetimes, skewed clocks and duplicates.

What is proved, and by which rule (F1 ... are the flaws of the printed codes, docs/barrier.md):

    A message m is *dead* at p once p's clock is beyond its deadline d(m): p never delivers it after that.
    Claim: when p delivers m, everything that happened before m has been delivered at p or is dead at p.

    Cover rule (F5, F7)   an entry e may be left out of a barrier because of an entry m with e -> m only if
                          d(e) <= d(m): where m is delivered, e was settled before; where m is dead, so is e.
                          So a barrier may need several entries of one source.
    Expiry rule (F6)      a sender leaves e out as expired only after d(e) + skew_us on its own clock: then
                          e is dead at every node whose clock is at most skew_us behind.
    Registry rule (F2)    `delivered[o]` is the newest delivered number of o, and all smaller ones are
                          delivered or dead; it only grows, and is forgotten when all of them are dead.
    Cut rule (R9)         a late joiner takes what lies at or below its `cut` for settled, without having
                          delivered it, so nothing in its own barrier covers it. When it delivers m, those
                          entries of m's barrier with later deadlines than m's go into its own.
    F8                    what is dead itself leaves `pending` before anything is released, undelivered.
    F9                    `next_us` is the first moment at which a pending message or its obstacle dies.

Messages that become deliverable together are delivered as Code 7 finds them: passes over the pending
registry in order of arrival, until a pass finds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import Any, ClassVar

from whence.core.effects import Deliver, Discard, Effects, Expire, Missed, Reason, Tell
from whence.core.group import LATER_LIVES, WINDOW_MAX, base_beyond
from whence.core.lives import BEFORE, OVER, RolledBack
from whence.core.message import Message, MessageId, NodeId, State, Waiting
from whence.protocols.barrier.order import BarrierOrder
from whence.protocols.barrier.wire import (
    NEVER_US,
    BarrierEntry,
    BarrierPacket,
    Key,
    as_field,
    as_number,
    names_possible,
    plain,
    unplain,
    well_formed,
)


class PendingMessage:
    """A pending message."""

    __slots__ = ("at", "deadline_us", "packet", "seq", "since_us")

    def __init__(self, packet: BarrierPacket, seq: int, since_us: int, at: int = 0) -> None:
        self.packet = packet
        self.seq = seq  # by arrival at this node
        self.since_us = since_us
        self.at = at  # place in the barrier of the first entry that is not settled: the obstacle
        self.deadline_us = as_number(packet.deadline_us)


class SafeOrder(BarrierOrder):
    """Registries and indexes of the corrected order."""

    mode: ClassVar[str] = "safe"
    pins: ClassVar[bool] = True
    common_entries = 4  # a shorter barrier is looked through as fast as it is compared

    def __init__(self, me: NodeId, lifetime_us: int | None, skew_us: int) -> None:
        super().__init__(me, lifetime_us)
        self.skew_us = skew_us
        self.delivered: dict[NodeId, tuple[int, int]] = {}  # source -> (newest number, latest deadline)
        self.past: dict[NodeId, dict[int, int]] = {}  # the next barrier: source -> number -> deadline
        self.pending: dict[Key, PendingMessage] = {}
        self.before = 0  # the last own number before the present life
        # Of origins whose later life is here: the numbers between were given up; what comes of them is told.
        self.overtaken: dict[NodeId, tuple[int, int]] = {}
        self.hearsay: set[NodeId] = set()  # of whom the cut at which this node began knew messages
        self.now_us = 0  # of the newest input: for `explain`, which is given no time
        self._seq = 0
        # Indexes of `pending`; what is outdated in them is skipped when it comes up.
        self._waiters: dict[
            NodeId, list[tuple[int, int, Key]]
        ] = {}  # obstacle's source -> (number, seq, key)
        self._dying: list[tuple[int, int, Key]] = []  # (own deadline, seq, key)
        # (obstacle's deadline, seq, key, its place, its source)
        self._obstacles: list[tuple[int, int, Key, int, NodeId]] = []
        # The barrier of a message that was delivered here: those that have heard the same name the same, so
        # that many arrive, and what was found out of the first holds for all.
        self._common: tuple[BarrierEntry, ...] = ()
        self._common_newest: dict[NodeId, int] = {}  # of each source, the newest number in it
        self._common_us = 0  # what it names is covered, as far as it dies no later
        self._familiar: BarrierPacket | None = None  # the packet at hand, if its barrier is that one
        # Of the other two registries: what is to be forgotten when it is dead.
        self._forgettable: list[tuple[int, NodeId]] = []  # (latest deadline, source)
        self._fading: list[tuple[int, NodeId, int]] = []  # (deadline, source, number)

    # rule 001 Code 9: broadcast with the barrier
    def broadcast(
        self, payload: bytes, lifetime_us: int | None, now_us: int, effects: Effects
    ) -> BarrierPacket:
        deadline_us = self._deadline_us(lifetime_us, now_us)
        barrier = tuple(
            BarrierEntry(source, number, as_field(until_us))
            for source, numbers in sorted(self.past.items())
            for number, until_us in sorted(numbers.items())
        )
        self.last += 1
        packet = BarrierPacket(self.me, self.last, deadline_us, barrier, payload)
        self._settle(packet, effects)
        return packet

    # rule 001 F2: a number that is delivered or held is a duplicate
    def refuse(self, packet: BarrierPacket, now_us: int) -> Reason | None:
        origin, number, _, barrier, _ = packet
        common = self._common
        self._familiar = packet if barrier and (barrier is common or barrier == common) else None
        if self._familiar is None:
            is_right = well_formed(packet)
        else:
            is_right = names_possible(packet) and self._common_newest.get(origin, 0) < number
        if not is_right or not number:
            return Reason.MALFORMED
        if origin == self.me:
            return Reason.DUPLICATE if number <= self.last else Reason.FORGED
        if packet.deadline_us is not None and packet.deadline_us < now_us:
            return Reason.EXPIRED
        newest = self.delivered.get(origin)
        if (newest is not None and number <= newest[0]) or (origin, number) in self.pending:
            return Reason.DUPLICATE  # F2
        if self._familiar is not None:
            own = self._common_newest.get(self.me, 0)
        else:
            own = max((each for source, each, _ in barrier if source == self.me), default=0)
        return Reason.IMPOSSIBLE if own > self.last else None

    # rule 001 Code 11: deliver, or hold until the barrier is settled
    def receive(self, packet: BarrierPacket, now_us: int, effects: Effects) -> None:
        self._seq += 1
        held = PendingMessage(packet, self._seq, now_us)
        if self._find_obstacle(held, now_us):
            self.pending[packet.origin, packet.number] = held
            if held.deadline_us < NEVER_US:
                heappush(self._dying, (held.deadline_us, held.seq, (packet.origin, packet.number)))
            self._watch(held)
            return
        ready: list[tuple[int, int, Key]] = []
        self._settle(packet, effects)
        self._remember(packet)
        self._release(packet, -1, 0, ready, now_us)
        self._deliver_ready(ready, now_us, effects)

    def _remember(self, packet: BarrierPacket) -> None:
        """Its barrier is settled and covered: the same one need not be looked through again."""
        if packet is not self._familiar and len(packet.barrier) >= self.common_entries:
            self._common = packet.barrier
            self._common_newest = {source: number for source, number, _ in packet.barrier}
            self._common_us = as_number(packet.deadline_us)

    def deliverable(self, packet: BarrierPacket, now_us: int) -> bool:
        """Whether a message could be delivered immediately."""
        return not self._find_obstacle(PendingMessage(packet, 0, now_us), now_us)

    def _find_obstacle(self, held: PendingMessage, now_us: int) -> bool:
        """Move to the next entry that is neither delivered nor dead. What is settled stays so."""
        barrier, delivered = held.packet.barrier, self.delivered
        if held.packet is self._familiar:
            held.at = len(barrier)
            return False
        for at in range(held.at, len(barrier)):
            source, number, deadline_us = barrier[at]
            if (source not in delivered or delivered[source][0] < number) and (
                deadline_us is None or deadline_us >= now_us
            ):
                held.at = at
                return True
        held.at = len(barrier)
        return False

    def _watch(self, held: PendingMessage) -> None:
        packet = held.packet
        key = (packet.origin, packet.number)
        source, number, deadline_us = packet.barrier[held.at]
        heappush(self._waiters.setdefault(source, []), (number, held.seq, key))
        if deadline_us is not None:
            heappush(self._obstacles, (deadline_us, held.seq, key, held.at, source))

    # rule 001 Code 3: registries first
    # rule 001 F11: the state is right before the effect
    def _settle(self, packet: BarrierPacket, effects: Effects) -> None:
        """Deliver one message: registries first, then the effect (F11)."""
        source, number, _, barrier, payload = packet
        deadline_us = as_number(packet.deadline_us)
        known, until_us = self.delivered.get(source, (0, 0))
        self.delivered[source] = (number, max(until_us, deadline_us))
        if number - known > WINDOW_MAX:
            self.overtaken[source] = (known, number)
        if deadline_us < NEVER_US and deadline_us > until_us:
            heappush(self._forgettable, (deadline_us, source))
        if packet is not self._familiar or deadline_us > self._common_us:
            past = self.past
            for origin, each, _ in barrier:
                if origin in past and min(past[origin]) <= each:  # mostly what is named there is newer
                    self._cover(origin, each, deadline_us)
        if self.overtaken:
            for origin, each, _ in barrier:
                self.tell_overtaken(origin, each, effects)
        self._cover(source, number - 1, deadline_us)
        self._name(source, number, deadline_us)
        if self.cut:
            self._name_adopted(barrier, deadline_us)
        effects.append(Deliver(Message(source, number, payload)))
        if self.pending:
            self._skip(source, number, effects)

    def _skip(self, source: NodeId, number: int, effects: Effects) -> None:
        """End what is held of `source` below `number`: what ignores it lies or has a bad clock."""
        for key in [key for key in self.pending if key[0] == source and key[1] < number]:
            held = self.pending.pop(key)
            if held.at < len(held.packet.barrier):
                self._tidy(held.packet.barrier[held.at].origin)
            effects.append(Expire(MessageId(*key), Reason.IMPOSSIBLE))

    # rule 001 F5: an entry is covered only by what dies no earlier
    # rule 001 F7: the same under skewed clocks
    def _cover(self, source: NodeId, number: int, deadline_us: int) -> None:
        """Forget what a delivered message covers: of `source`, up to `number`, with no later deadline."""
        numbers = self.past.get(source)
        if numbers is None:
            return
        for each in [
            each for each, until_us in numbers.items() if each <= number and until_us <= deadline_us
        ]:
            del numbers[each]
        if not numbers:
            del self.past[source]

    def _name(self, source: NodeId, number: int, deadline_us: int) -> None:
        """Put a message into the next barrier."""
        self.past.setdefault(source, {})[number] = deadline_us
        if number <= self._common_newest.get(source, 0):
            self._forget_common()  # it may cover this one
        if deadline_us < NEVER_US:
            heappush(self._fading, (deadline_us, source, number))

    # rule 001 R9: what a late joiner was not given is named where its delivered successor dies earlier
    def _name_adopted(self, barrier: tuple[BarrierEntry, ...], deadline_us: int) -> None:
        """Name the predecessors at or below the cut that the message just delivered does not cover."""
        for source, number, entry_deadline_us in barrier:
            if number > self.cut.get(source, 0):
                continue  # delivered here, and covered since; or dead, and dead before the message
            _, latest_us = self.delivered.get(source, (0, 0))
            until_us = min(as_number(entry_deadline_us), latest_us)  # it is later only if a node lies
            if until_us <= deadline_us or any(
                each >= number and each_us >= until_us for each, each_us in self.past.get(source, {}).items()
            ):
                continue
            self._cover(source, number, until_us)
            self._name(source, number, until_us)

    # rule 001 Code 7: what waited for a delivered message
    def _release(
        self, packet: BarrierPacket, turn: int, seq: int, ready: list[tuple[int, int, Key]], now_us: int
    ) -> None:
        """Find what waited for a message that was delivered in pass `turn`, at place `seq`."""
        waiting = self._waiters.get(packet.origin)
        while waiting and waiting[0][0] <= packet.number:
            number, waiter, key = heappop(waiting)
            held = self.pending.get(key)
            if held is None or held.seq != waiter or not _waits_for(held, packet.origin, number):
                continue  # outdated: it died, was released by a death, or was delivered
            self._look_again(held, turn if waiter > seq else turn + 1, ready, now_us)
        if waiting is not None and not waiting:
            self._waiters.pop(packet.origin, None)

    def _look_again(
        self, held: PendingMessage, turn: int, ready: list[tuple[int, int, Key]], now_us: int
    ) -> None:
        if self._find_obstacle(held, now_us):
            self._watch(held)
        else:
            heappush(ready, (turn, held.seq, (held.packet.origin, held.packet.number)))

    def _deliver_ready(self, ready: list[tuple[int, int, Key]], now_us: int, effects: Effects) -> None:
        while ready:
            turn, seq, key = heappop(ready)
            held = self.pending.pop(key, None)
            if held is None:  # skipped meanwhile
                continue
            packet = held.packet
            self._settle(packet, effects)
            self._release(packet, turn, seq, ready, now_us)

    # rule 001 F8: what is dead itself leaves before anything is released
    def advance(self, now_us: int, effects: Effects) -> None:
        self.now_us = now_us
        while self._dying and self._dying[0][0] < now_us:  # F8: the dead go first
            _, seq, key = heappop(self._dying)
            held = self.pending.get(key)
            if held is not None and held.seq == seq:
                del self.pending[key]
                self._tidy(held.packet.barrier[held.at].origin)
                effects.append(Expire(MessageId(*key), Reason.EXPIRED))
        ready: list[tuple[int, int, Key]] = []
        while self._obstacles and self._obstacles[0][0] < now_us:
            _, seq, key, at, source = heappop(self._obstacles)
            if not self._is_outdated(seq, key, at):
                self._look_again(self.pending[key], 0, ready, now_us)
            self._tidy(source)
        self._deliver_ready(ready, now_us, effects)
        self._forget(now_us)

    # rule 001 F6: forget only after the deadline and the largest clock difference
    # rule 001 Code 12: registries do not grow with what is dead
    def _forget(self, now_us: int) -> None:
        """Code 12 and the expiry rule: registries do not grow with what is dead."""
        while self._fading and self._fading[0][0] + self.skew_us < now_us:
            _, source, number = heappop(self._fading)
            numbers = self.past.get(source)
            if numbers is not None and numbers.pop(number, None) is not None and not numbers:
                del self.past[source]
        while self._forgettable and self._forgettable[0][0] + self.skew_us < now_us:
            until_us, source = heappop(self._forgettable)
            if self.delivered.get(source, (0, NEVER_US))[1] == until_us and source != self.me:
                del self.delivered[source]
                self._forget_common()

    def _forget_common(self) -> None:
        self._common, self._common_newest, self._familiar = (), {}, None

    def _tidy(self, source: NodeId) -> None:
        """Drop outdated waiters: otherwise those for messages that never come would stay forever."""
        waiting = self._waiters.get(source)
        while waiting:
            number, seq, key = waiting[0]
            if not self._is_outdated(seq, key) and _waits_for(self.pending[key], source, number):
                return
            heappop(waiting)
        self._waiters.pop(source, None)

    # rule 001 F9: a timer on the first death that changes something
    def next_us(self) -> int | None:
        while self._dying and self._is_outdated(*self._dying[0][1:]):
            heappop(self._dying)
        while self._obstacles and self._is_outdated(*self._obstacles[0][1:4]):
            self._tidy(heappop(self._obstacles)[4])
        first_us = min(
            self._dying[0][0] if self._dying else NEVER_US,
            self._obstacles[0][0] if self._obstacles else NEVER_US,
        )
        return None if first_us == NEVER_US else first_us + 1

    def _is_outdated(self, seq: int, key: Key, at: int | None = None) -> bool:
        held = self.pending.get(key)
        return held is None or held.seq != seq or (at is not None and held.at != at)

    # Late joiners (broadcast.py)

    def start(self) -> tuple[BarrierEntry, ...]:
        """What has been delivered here: of each source the newest, with the latest deadline."""
        return tuple(
            BarrierEntry(source, number, as_field(until_us))
            for source, (number, until_us) in sorted(self.delivered.items())
        )

    def adopt(
        self,
        entries: tuple[BarrierEntry, ...],
        peer: NodeId,
        now_us: int,
        effects: Effects,
        *,
        forced: bool = False,
    ) -> None:
        """A node that has done nothing yet takes a neighbour's past for its own, without being given it.

        With `forced` also one that has a past and came back: it is told what it missed.
        """
        if (self.delivered or self.last) and not forced:
            return
        if not forced:
            self.cut = {}
        for source, number, deadline_us in entries:
            known, until_us = self.delivered.get(source, (0, 0))
            if number <= known:
                if forced:
                    self.tell_overtaken(source, number, effects)
                continue
            if source == self.me:
                effects += self._hear_own(number)
                continue
            if forced:
                self.hearsay.add(source)
                effects.append(Missed(source, known + 1, number, BEFORE))
            self.delivered[source] = (number, max(until_us, as_number(deadline_us)))
            self.cut[source] = number
            if deadline_us is not None:
                heappush(self._forgettable, (deadline_us, source))
        self._settle_cut(peer, now_us, effects)

    # rule 001 R8: what lies at or below a cut counts as settled
    def jump(self, cut: Mapping[NodeId, int], peer: NodeId, now_us: int, effects: Effects) -> None:
        """Pass over what cannot be had: `cut` is what one node had cut off or delivered at one moment."""
        for source, number in cut.items():
            if source != self.me and number > self.delivered.get(source, (0, 0))[0]:
                self.delivered[source] = (number, NEVER_US)
                self.cut[source] = number
        self._settle_cut(peer, now_us, effects)

    def recall(self, packet: BarrierPacket) -> None:
        """Take up a message that an earlier life of this node delivered: its log has it."""
        self._settle(packet, [])

    def _settle_cut(self, peer: NodeId, now_us: int, effects: Effects) -> None:
        """Look again at what is held: the cut has settled some of its predecessors, and some of it."""
        ready: list[tuple[int, int, Key]] = []
        for key, held in list(self.pending.items()):
            if key[1] <= self.delivered.get(key[0], (0, 0))[0]:
                del self.pending[key]
                effects.append(Discard(MessageId(*key), peer, Reason.DUPLICATE))
            else:
                self._look_again(held, 0, ready, now_us)
        self._deliver_ready(ready, now_us, effects)

    # Lives

    def begin_life(self, base: int) -> None:
        """This node's numbers go on after `base`; the first of them follows the last one before."""
        self.before, self.last = self.last, base
        self.delivered[self.me] = (base, NEVER_US)

    def tell_overtaken(self, source: NodeId, number: int, effects: Effects) -> None:
        """An origin has said so much in a life that another one has overtaken: it is not given here; once."""
        first, end = self.overtaken.get(source, (0, 0))
        if first < number < end:
            self.overtaken[source] = (number, end)
            effects.append(Missed(source, first + 1, number, OVER))

    def _hear_own(self, number: int) -> Effects:
        """A neighbour has more of this node's messages than it has itself."""
        had = self.before if self.before < number < self.last else self.last
        if number > self.last:
            has_begun = self.last >= LATER_LIVES
            self.last = number
            self.delivered[self.me] = (number, NEVER_US)
            if has_begun:  # another copy of the store has gone further, perhaps beyond this number
                self.begin_life(base_beyond(number))
        return [Tell(RolledBack("", had, number))] if number > had else []

    # The rest of the contract

    def is_pending(self, key: Key) -> bool:
        return key in self.pending

    # rule 001 F10: a pending payload is pinned
    def evicted(self, key: Key) -> None:
        self._require(key not in self.pending, f"{key} is pending and must be kept (F10)")

    def registries(self) -> tuple[int, int, int]:
        return sum(map(len, self.past.values())), len(self.delivered), len(self.pending)

    def explain(self) -> list[Waiting]:
        waiting = []
        for key in sorted(self.pending):
            held = self.pending[key]
            open_entries = [
                MessageId(source, number)
                for source, number, deadline_us in held.packet.barrier[held.at :]
                # What is dead may have been delivered here, and forgotten.
                if as_number(deadline_us) >= self.now_us and self.delivered.get(source, (0, 0))[0] < number
            ]
            absent = [id_ for id_ in open_entries if tuple(id_) not in self.pending]
            waiting.append(Waiting(MessageId(*key), held.since_us, tuple(absent or open_entries)))
        return waiting

    def entries(self) -> int:
        past, delivered, pending = self.registries()
        held = sum(len(held.packet.barrier) for held in self.pending.values())
        return past + delivered + pending + held + len(self.cut)

    def check(self) -> None:
        dying = {(seq, key) for _, seq, key in self._dying}
        for key, held in self.pending.items():
            source, number, deadline_us = held.packet.barrier[held.at]
            self._require(
                self.delivered.get(source, (0, 0))[0] < number, f"{key} waits for what is delivered"
            )
            self._require(key[1] > self.delivered.get(key[0], (0, 0))[0], f"{key} is pending and delivered")
            watched = (number, held.seq, key) in self._waiters.get(source, [])
            self._require(watched, f"nothing wakes {key} when its obstacle is delivered")
            if deadline_us is not None:
                watched = (deadline_us, held.seq, key, held.at, source) in self._obstacles
                self._require(watched, f"nothing wakes {key} when its obstacle dies (F9)")
            if held.deadline_us < NEVER_US:
                self._require((held.seq, key) in dying, f"nothing ends {key} at its deadline")
        if self.last:
            self._require(self.delivered[self.me][0] == self.last, "own messages are delivered immediately")
        for source, numbers in self.past.items():
            for number in numbers:
                newest = self.delivered.get(source, (0, 0))
                self._require(newest[0] >= number, "the barrier names what was delivered or adopted")

    def _overtaken(self) -> list[list[Any]]:
        """Of origins of which something was here before."""
        return [[source, *pair] for source, pair in sorted(self.overtaken.items()) if pair[0]]

    def save(self) -> State:
        return {
            "last": self.last,
            "now_us": self.now_us,
            "seq": self._seq,
            **({"before": self.before} if self.before else {}),
            **({"overtaken": overtaken} if (overtaken := self._overtaken()) else {}),
            "delivered": [[source, *pair] for source, pair in sorted(self.delivered.items())],
            "past": [
                [source, sorted(map(list, numbers.items()))] for source, numbers in sorted(self.past.items())
            ],
            "pending": [
                [plain(held.packet), held.seq, held.since_us, held.at] for held in self.pending.values()
            ],
        }

    def restore(self, state: State) -> None:
        self.last, self.now_us, self._seq = state["last"], state["now_us"], state["seq"]
        self.before = state.get("before", 0)
        self.overtaken = {source: (first, end) for source, first, end in state.get("overtaken", [])}
        for source, number, until_us in state["delivered"]:
            self.delivered[source] = (number, until_us)
            if until_us < NEVER_US:
                self._forgettable.append((until_us, source))
        heapify(self._forgettable)
        for source, numbers in state["past"]:
            self.past[source] = dict(numbers)
            self._fading += [
                (until_us, source, number) for number, until_us in numbers if until_us < NEVER_US
            ]
        heapify(self._fading)
        for saved, seq, since_us, at in state["pending"]:
            packet = unplain(saved)
            held = PendingMessage(packet, seq, since_us, at)
            self.pending[packet.origin, packet.number] = held
            if held.deadline_us < NEVER_US:
                heappush(self._dying, (held.deadline_us, seq, (packet.origin, packet.number)))
            self._watch(held)


def _waits_for(held: PendingMessage, source: NodeId, number: int) -> bool:
    entry = held.packet.barrier[held.at] if held.at < len(held.packet.barrier) else None
    return entry is not None and entry.origin == source and entry.number == number
