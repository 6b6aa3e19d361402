"""Vector: causal broadcast with a vector clock, sent as the sender's delta (baseline).

Guarantee     every node delivers each message at most once, after everything that happened before
              its broadcast. On links that are reliable, every node delivers every message.
Assumptions   a known group; links that are reliable while they are up; a connected graph of links.
              Links need not be FIFO.
Source        Birman, Schiper and Stephenson, "Lightweight causal and atomic group multicast" (1991),
              section 5.1; differences between successive clocks as in Singhal and Kshemkalyani,
              "An efficient implementation of vector clocks" (1992).

    symbol                          here
    VT(p)[k], delivered of k at p   clock.counts[k]
    VT(m)[j] for the sender j       packet.number
    VT(m)[k], k /= j                packet.after, only entries newer than in j's previous message
    delay queue                     holdback, under the first missing predecessor

Why a delta is enough: rule 2 delivers (j, n) only after (j, n - 1), whose own requirements were
therefore met here already; what (j, n) requires besides is exactly what changed at j in between.
The full vector is never rebuilt, so a delivery costs the size of the delta, not of the group.

Why the delta is not FIFO-dependent: a delta is relative to a named message (j, n - 1), not to the
previous packet on a link; copies may overtake, take other paths or be lost and come again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import length_hint
from typing import Any, ClassVar, NamedTuple, cast

from whence.core.clocks import Delta, DeltaClock
from whence.core.effects import Deliver, Deliveries, Discard, Effects, Reason, Send, Spoken
from whence.core.group import WINDOW_MAX, Gaps, check_payload, is_too_far, refuse_id
from whence.core.holdback import HoldBack, Key
from whence.core.message import Message, MessageId, NodeId, Packet, Sizes, Unread, Waiting
from whence.core.protocol import State
from whence.core.sizes import (
    FRAME_BYTES,
    array_header_bytes,
    binary_header_bytes,
    uint_array_bytes,
    uint_bytes,
)
from whence.protocols.baselines.flooding import Flooding

_make = tuple.__new__  # of a named tuple: half the cost of its own constructor
_REFUSED: Key = (-1, -1)  # the obstacle of a message that no correct sender makes


class VectorPacket(NamedTuple):
    """Message `number` of the member at `origin`, to be delivered after its `number - 1` and `after`."""

    origin: int
    number: int
    after: Delta  # flat pairs (member index, count), indices ascending
    payload: bytes


class Vector(Flooding):
    """Causal broadcast with a vector clock."""

    name: ClassVar[str] = "vector"
    packet_type: ClassVar[type[Packet]] = VectorPacket

    def __init__(self, me: NodeId, members: Iterable[NodeId], **given: Any) -> None:
        super().__init__(me, members, **given)
        self.clock = DeltaClock(len(self.members))
        self.holdback: HoldBack[VectorPacket] = HoldBack()
        self.held, self.waiters = self.holdback.held, self.holdback.waiters  # for the fast path

    # Rule 1 (BSS 5.1, step 1): increment the own entry, send the clock with the message.

    def broadcast(self, payload: bytes, now_us: int) -> Effects:
        if type(payload) is not bytes:
            check_payload(payload)
        clock = self.clock
        after = clock.take_delta() if clock.changed else ()
        self.last += 1
        # The own entry is the packet's number: `advance` would repeat it in the next delta.
        clock.counts[self.my_index] = self.last
        effects: Effects = [_make(Deliver, (_make(Message, (self.me, self.last, payload)), 0, False))]
        if self.neighbours:
            packet = _make(VectorPacket, (self.my_index, self.last, after, payload))
            effects.append(_make(Send, (self.neighbours, packet)))
        return effects

    def broadcast_many(self, payloads: Sequence[bytes], now_us: int) -> Spoken | None:
        """Only the first names what was delivered meanwhile: nothing is between the others."""
        me, mine, clock, first = self.me, self.my_index, self.clock, self.last + 1
        after = clock.take_delta() if clock.changed else ()
        self.last = clock.counts[mine] = self.last + len(payloads)
        messages = [(me, number, payload) for number, payload in enumerate(payloads, first)]
        packets: list[Packet] = [(mine, number, (), payload) for _, number, payload in messages]
        packets[0] = (mine, first, after, payloads[0])
        return Spoken(messages, self.neighbours, packets)

    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        """The common case, the next message of its origin with nothing missing, goes straight through."""
        origin, number, after, payload = packet
        counts = self.clock.counts
        if (
            not 0 <= origin < len(counts)
            or number != counts[origin] + 1
            or origin == self.my_index
            or peer not in self._without
            or (self._direct and self.members[origin] != peer)
            or (after and not self.is_met(after))
            or (origin, number) in self.held  # a forged copy may name another past than the held one
            or self.lives.marks
            or (after and self.lives.overtaken and self._names_overtaken(after))
        ):
            return super().receive(peer, packet, now_us)
        effects: Effects = []
        if self.relay:
            self._pass_on(peer, packet, effects)
        elif self.kept is not None:
            self._keep(packet, effects)
        counts[origin] = self.clock.changed[origin] = number
        effects.append(Deliver(Message(self.members[origin], number, payload)))
        if self.waiters:
            self._release(origin, number, effects)
        return effects

    def _receive_runs(
        self, peer: NodeId, only: int, packets: list[Packet], first: int, stop: int, now_us: int
    ) -> Effects:
        counts, changed, held, waiters = self.clock.counts, self.clock.changed, self.held, self.waiters
        find, marks, wanted, kept = self._obstacle_in, self.lives.marks, self._wanted_by, self.kept
        overtaken = self.lives.overtaken
        effects: Effects = []
        run: list[Unread] = []
        ascending = True  # from `first` on they are not kept yet
        obstacle: Key | None
        rest = iter(packets if stop - first == len(packets) else packets[first:stop])
        for packet in rest:
            origin, number, after, payload = packet
            obstacle = None
            if (
                origin == only
                and number == counts[origin] + 1
                and (not after or (obstacle := find(after)) is None)
                and not (held and (origin, number) in held)
                and not (marks or wanted)
                and not (overtaken and after and self._names_overtaken(after))
            ):
                counts[origin] = changed[origin] = number
                run.append((peer, number, payload))
                if waiters and (origin, number) in waiters:
                    self._release_into(run, (origin, number))
            elif (
                origin == only
                and 0 < (ahead := number - counts[origin]) <= WINDOW_MAX
                and not (marks or wanted)
                and (key := (origin, number)) not in held
                and (obstacle or (find(after) if after else None)) is not _REFUSED
                and not (overtaken and after and self._names_overtaken(after))
            ):  # it waits: for one of another origin, or behind one that does (as `HoldBack.hold`)
                if ahead > 1:
                    obstacle, ascending = (origin, number - 1), False
                held[key] = (packet, now_us)  # type: ignore[assignment]
                waiters.setdefault(obstacle, []).append(key)  # type: ignore[arg-type]  # or it were delivered
            else:
                if kept is not None:
                    at = stop - length_hint(rest)
                    kept.add_run(packets, first, at - 1, ascending=ascending)
                    first, ascending = at, True
                run = self._take_alone(peer, packet, now_us, run, effects)
        if kept is not None:
            kept.add_run(packets, first, stop, ascending=ascending)
        if run:
            effects.append(Deliveries(run))
        return effects

    def is_met(self, after: Delta) -> bool:
        """Whether a delta is well formed and all of it is delivered here (one pass: it is the hot path)."""
        counts = self.clock.counts
        previous = -1
        pairs = iter(after)
        try:
            for member, count in zip(pairs, pairs, strict=True):
                if previous < member and 0 < count <= counts[member]:
                    previous = member
                else:
                    return False
        except (IndexError, ValueError):  # there is no such member, or a member without a count
            return False
        return True

    def _obstacle_in(self, after: Delta) -> Key | None:
        """As `_missing_in` after `_refuse_delta`, in one pass; `_REFUSED` for what that refuses."""
        counts = self.clock.counts
        obstacle, previous = None, -1
        pairs = iter(after)
        try:
            for member, count in zip(pairs, pairs, strict=True):
                if not previous < member or count < 1:
                    return _REFUSED
                previous = member
                if count > counts[member]:
                    if member == self.my_index or is_too_far(count, counts[member]):
                        return _REFUSED
                    obstacle = obstacle or (member, count)
        except (IndexError, ValueError):  # there is no such member, or a member without a count
            return _REFUSED
        return obstacle

    def _refuse(self, packet: Packet) -> Reason | None:
        origin, number, after, _ = packet
        refused = refuse_id(origin, number, self.clock.counts, self.my_index)
        if refused is not None:
            return refused
        if self.held and (origin, number) in self.held:
            return Reason.DUPLICATE
        return self._refuse_delta(after) if after else None

    def _refuse_delta(self, after: Delta) -> Reason | None:
        """A delta that no correct sender makes would be waited for in vain: refuse it at the door."""
        counts = self.clock.counts
        if len(after) % 2:
            return Reason.MALFORMED
        previous, size = -1, len(counts)
        pairs = iter(after)
        for member, count in zip(pairs, pairs, strict=True):
            if not previous < member < size or count < 1:
                return Reason.MALFORMED
            if count > counts[member]:
                if member == self.my_index:
                    return Reason.IMPOSSIBLE  # it follows a message that we never broadcast
                if is_too_far(count, counts[member]):
                    return Reason.TOO_FAR_AHEAD
            previous = member
        return None

    # Rule 2 (BSS 5.1, step 2): delay m until the sender's previous message and all of VT(m) are in.

    def _accept(self, packet: Packet, now_us: int, effects: Effects) -> None:
        packet = cast(VectorPacket, packet)
        if self.lives.overtaken:
            self._tell_named(packet.after, effects)
        obstacle = self.missing_of(packet)
        if obstacle is not None:
            self.holdback.hold((packet.origin, packet.number), packet, now_us, obstacle)
            return
        self._deliver(packet, effects)

    def missing_of(self, packet: VectorPacket) -> Key | None:
        """The first predecessor of `packet` that is not delivered here."""
        origin, number, after, _ = packet
        if self.clock.counts[origin] < number - 1:
            return origin, number - 1
        return self._missing_in(after) if after else None

    def _missing_in(self, after: Delta) -> Key | None:
        counts = self.clock.counts
        pairs = iter(after)
        for member, count in zip(pairs, pairs, strict=True):
            if counts[member] < count:
                return member, count
        return None

    # Rule 3 (BSS 5.1, step 3): on delivery merge the clock; then look at what waited for it.

    def _deliver(self, packet: VectorPacket, effects: Effects) -> None:
        origin, number, _, payload = packet
        self.clock.advance(origin, number)
        effects.append(Deliver(Message(self.members[origin], number, payload)))
        self._release(origin, number, effects)

    def _release(self, origin: int, number: int, effects: Effects) -> None:
        """Deliver what waited for (origin, number), and what waited for that, in order of arrival."""
        if (origin, number) in self.waiters:
            released: list[Unread] = []
            self._release_into(released, (origin, number))
            effects += [Deliver(Message(*fields)) for fields in released]

    def _release_into(self, run: list[Unread], key: Key) -> None:
        """As `HoldBack.release`, for which half of the messages may wait: what is released was next already,
        or waited for the one before it, so only what it names is looked at again."""
        counts, changed, members = self.clock.counts, self.clock.changed, self.members
        held, waiters = self.held, self.waiters
        stack: list[Key] = []
        freed = waiters.pop(key, None)
        while freed or stack:
            if freed:
                stack += freed[::-1] if len(freed) > 1 else freed
                freed = None
            key = stack.pop()
            _, _, after, payload = held[key][0]
            if after and (missing := self._missing_in(after)) is not None:
                waiters.setdefault(missing, []).append(key)
                continue
            del held[key]
            origin, number = key
            counts[origin] = changed[origin] = number
            run.append((members[origin], number, payload))
            freed = waiters.pop(key, None)

    # Lives (flooding.py)

    def _counts(self) -> list[int]:
        return self.clock.counts

    def _skip_to(self, member: int, number: int, effects: Effects) -> None:
        if member == self.my_index:
            self.clock.counts[member] = number  # the own entry is the packet's number
        else:
            self.clock.advance(member, number)
        for key, (packet, since_us) in self.holdback.take_all():  # rare: all that waits is looked at again
            self._tell_named(packet.after, effects)
            if key[0] == member and key[1] <= number:
                id_ = MessageId(self.members[member], key[1])
                effects.append(Discard(id_, self.members[member], Reason.OVERTAKEN))
            elif (obstacle := self.missing_of(packet)) is not None:
                self.holdback.hold(key, packet, since_us, obstacle)
            else:
                self._deliver(packet, effects)

    def _names_overtaken(self, after: Delta) -> bool:
        """Whether a message follows what a life said that another one has overtaken here."""
        overtaken, pairs = self.lives.overtaken, iter(after)
        return any(
            member in overtaken and overtaken[member][0] < count < overtaken[member][1]
            for member, count in zip(pairs, pairs, strict=False)
        )

    def _tell_named(self, after: Delta, effects: Effects) -> None:
        """What it follows and is not given here any more is missed, before it is delivered."""
        pairs = iter(after)
        for member, count in zip(pairs, pairs, strict=True):
            self._tell_overtaken(member, count, effects)

    def _control(self, number: int, payload: bytes) -> Packet:
        return VectorPacket(self.my_index, number, (), payload)

    @property
    def waiting(self) -> int:
        return len(self.held)

    def explain(self) -> list[Waiting]:
        waiting = []
        gaps = Gaps(self.clock.counts)
        for origin, number in sorted(self.held):
            packet, since_us = self.held[origin, number]
            missing = gaps.before(origin, number)
            missing += [pair for pair in self.clock.missing(packet.after) if pair not in self.held]
            if not missing:  # all that it waits for is here and waits itself: name the obstacle
                obstacle = self.missing_of(packet)
                missing = [obstacle] if obstacle else []
            ids = tuple(MessageId(self.members[member], count) for member, count in missing)
            waiting.append(Waiting(MessageId(self.members[origin], number), since_us, ids))
        return waiting

    def check(self) -> None:
        counts = self.clock.counts
        self._require(counts[self.my_index] == self.last, "own messages are delivered immediately")
        for key, (packet, _) in self.held.items():
            self._require(self.missing_of(packet) is not None, f"{key} is held without an obstacle")
        broken = self.holdback.broken_rule(lambda key: key[1] <= counts[key[0]])
        self._require(broken is None, broken or "")
        for member, count in self.clock.changed.items():
            self._require(counts[member] == count, "the delta names the newest delivery")

    def save(self) -> State:
        return {
            "last": self.last,
            "neighbours": list(self.neighbours),
            "counts": list(self.clock.counts),
            "changed": [list(pair) for pair in sorted(self.clock.changed.items())],
            "held": [
                [origin, number, list(after), payload, since_us]
                for (origin, number, after, payload), since_us in self.held.values()
            ],
            "waiters": self.holdback.save_waiters(),
            **self._save_lives(),
        }

    def restore(self, state: State) -> None:
        self.last = state["last"]
        self._set_neighbours(set(state["neighbours"]))
        self.clock.counts = list(state["counts"])
        self.clock.changed = dict(state["changed"])
        for origin, number, after, payload, since_us in state["held"]:
            packet = VectorPacket(origin, number, tuple(after), payload)
            self.held[origin, number] = (packet, since_us)
        self.holdback.restore_waiters(state["waiters"])
        self._restore_lives(state)

    def sizes(self, packet: Packet) -> Sizes:
        origin, number, after, payload = packet
        control = FRAME_BYTES + array_header_bytes(4) + uint_bytes(origin) + uint_bytes(abs(number))
        control += uint_array_bytes(after)
        control += binary_header_bytes(len(payload))
        return Sizes(control + len(payload), control)

    def entries(self) -> int:
        held = sum(1 + len(packet.after) // 2 for packet, _ in self.held.values())
        kept = 0 if self.kept is None else len(self.kept)
        return len(self.clock.counts) + len(self.clock.changed) + held + kept
