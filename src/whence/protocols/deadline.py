"""TDCA: causal order before a deadline, and what cannot have both is given up (paper 002).

Guarantee     every message that a node delivers comes after everything that happened before its
              broadcast and that this node delivers at all, before its deadline, and once. A message
              that reaches a node and cannot have this ends there as `Expire`, with the reason.
              **Not** guaranteed: that a message is delivered. That is what deadlines are for.
Assumptions   a known group whose members can all talk to each other, over links that may lose,
              duplicate and reorder; clocks that differ by `clock_error_us` at the most. Drift beyond
              that costs messages or punctuality, never order. No member lies.
Source        section 4 and Figure 8, corrected: each of its nine flaws is a test in
              tests/paper/test_002_flaws.py, and `mode = "published"` (deadline_published.py) has the
              figure as printed. TDCA is the traditional algorithm of section 3 (Rodrigues et al.,
              "Deadline-constrained causal order", 2000); `deadline_pull.py` makes ODCA of it.

    paper                               here
    MVector_sndr in a message           after: for each member the number of its newest message before
    the previous stamp (flaw 1)         after[origin], which is number - 1
    MVector_p, V of the spec            accepted
    W of the spec                       frontier: also counts what is known to be late
    RMSG_Q, Q                           queue, in stamp order
    DLVD_Q, store                       store (ODCA only)
    the current clock value             stamp: a hybrid logical clock (flaw 9)

Why numbers stand where Figure 8 has clock values: numbers and stamps of one sender rise together, so
either tells what is before what; but a number also shows a gap (flaw 1), names what is missing for
`explain` and for an exact solicitation, and takes 1 to 3 bytes instead of 9.

Why order holds whatever is lost: delivering m raises V to all that m follows, and nothing up to V is
delivered any more. W only decides how long a message waits for its predecessors.

Why stamps are needed at all: when the time of a message comes, what it follows is delivered before it, in
stamp order, and a hybrid clock's stamps rise along causality however clocks drift or stand still.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from operator import le
from typing import ClassVar, cast

from whence.core.effects import CancelTimer, Deliver, Discard, Effects, Expire, Reason, Send, SetTimer
from whence.core.message import Message, MessageId, NodeId, Packet
from whence.protocols.deadline_base import check_lifetime
from whence.protocols.deadline_state import BUFFER_BYTES, HOLES_MAX, DeadlineState, Entry, Options
from whence.protocols.deadline_wire import (
    MESSAGE,
    REPLY,
    SOLICITATION,
    DeadlineMessage,
    DeadlinePacket,
    broadcast_packet,
)
from whence.protocols.flooding import check_payload

TIMER = "due"  # one timer of the host serves all that is due
LAPSE, RETRY, FORCE = 0, 1, 2  # what can be due; at one time in this order: what is ready need not be forced


class Tdca(DeadlineState):
    """See the module."""

    name: ClassVar[str] = "tdca"
    keeps: ClassVar[bool] = False  # whether delivered messages are stored for others

    def __init__(
        self,
        me: NodeId,
        members: Iterable[NodeId],
        *,
        lifetime_us: int = 1_000_000,
        deadlines: bool = True,
        copies: int = 1,
        margin_us: int = 5_000,
        clock_error_us: int = 0,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> None:
        options = Options(lifetime_us, deadlines, copies, margin_us, clock_error_us, buffer_bytes)
        super().__init__(me, members, options)

    # B-SEND

    def broadcast(self, payload: bytes, now_us: int) -> Effects:
        return self.broadcast_within(payload, self.options.lifetime_us, now_us)

    def broadcast_within(self, payload: bytes, lifetime_us: int, now_us: int) -> Effects:
        check_payload(payload)
        check_lifetime(lifetime_us)
        effects: Effects = []
        self._pass_time(now_us, effects)
        stamp = self.greatest_stamp = max(now_us, self.greatest_stamp + 1)  # flaw 9
        after = tuple(self.accepted)
        left: tuple[int, ...] = ()
        if self.options.deadlines:
            left = tuple(end_us and 1 + max(0, end_us - stamp) for end_us in self.ends_us)
        mine = self.my_index
        self.last += 1
        self.last_lifetime_us = lifetime_us
        message = DeadlineMessage(mine, self.last, stamp, now_us + lifetime_us, after, left, payload)
        self.accepted[mine] = self.frontier[mine] = self.last
        self.ends_us[mine] = message.deadline_us
        self._keep(message)  # flaw 3
        effects.append(Deliver(Message(self.me, self.last, payload)))
        if self.neighbours:
            effects += [Send(self.neighbours, broadcast_packet(message))] * self.options.copies
        self._arm(effects)
        return effects

    # B-RECV and RPY-RECV: a reply goes the same way as a direct message (flaw 4)

    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        if peer not in self.neighbours:
            return [Discard(None, peer, Reason.NOT_A_NEIGHBOUR)]
        effects: Effects = []
        self._pass_time(now_us, effects)
        kind, messages = packet[0], cast(DeadlinePacket, packet).messages
        if kind == SOLICITATION:
            self._solicited(peer, cast(DeadlinePacket, packet), now_us, effects)
        elif kind in (MESSAGE, REPLY) and messages:
            for message in messages:
                self._take(peer, message, now_us, effects)
        else:
            effects.append(Discard(None, peer, Reason.MALFORMED))
        self._arm(effects)
        return effects

    def _take(self, peer: NodeId, message: DeadlineMessage, now_us: int, effects: Effects) -> None:
        origin, number = message[0], message[1]
        # A copy ends before anything costly is done about it.
        is_copy = self._is_old_copy(origin, number)
        refused = Reason.DUPLICATE if is_copy else self._refuse(message, now_us)
        if refused is not None:
            self._discard(message, peer, refused, effects)
            return
        self.greatest_stamp = max(self.greatest_stamp, message.stamp)
        if number <= self.accepted[origin]:
            self._come_too_late(message, now_us, effects)
        elif (origin, number) in self.queue or self.resolved[origin].get(number):
            self._discard(message, peer, Reason.DUPLICATE, effects)
        elif self._is_late(message, now_us):
            self._expire(message, effects)
            self._drain(now_us, effects)
        else:
            entry = Entry(message, now_us)
            if self._ready(entry):
                self._deliver(message, effects)
                self._drain(now_us, effects)
            elif self._make_room(len(message.payload)):
                self._hold(entry, now_us, effects)
            else:
                self._discard(message, peer, Reason.NO_ROOM, effects)

    def _come_too_late(self, message: DeadlineMessage, now_us: int, effects: Effects) -> None:
        """The first copy of a message of which a follower is delivered already."""
        origin, number = message[0], message[1]
        self.holes[origin].remove(number)
        reason = Reason.EXPIRED if self._is_late(message, now_us) else Reason.OVERTAKEN
        effects.append(Expire(MessageId(self.members[origin], number), reason))

    def _hold(self, entry: Entry, now_us: int, effects: Effects) -> None:
        """It has to wait: until what it follows has come, is known to be late, or its own time comes."""
        self._enqueue(entry)
        _, _, stamp, deadline_us, after, left, _ = entry.message
        options, frontier = self.options, self.frontier
        if left:
            for member, newest in enumerate(after):
                if newest > frontier[member] and left[member] and self._is_missing(member, newest):
                    late_us = stamp + left[member] - options.clock_error_us
                    heappush(self.due, (late_us, LAPSE, member, newest))
        force_us = deadline_us - options.clock_error_us - options.margin_us
        heappush(self.due, (force_us, FORCE, *entry.message[:2]))  # flaw 6: a timer, not an equality
        self._pass_time(now_us, effects)
        if entry.message[:2] in self.queue:
            self._wait(entry, now_us, effects)

    # CHECK-MSGS: what can be delivered, and what must be

    def _drain(self, now_us: int, effects: Effects) -> None:
        """Deliver what is ready, the first in stamp order; then look from the beginning again (flaw 5).

        Only what stood under a member whose frontier has moved can have become ready.
        """
        ready: list[tuple[int, int, int]] = []
        while self.moved or ready:
            while self.moved:
                self._find_ready(self.moved.pop(), ready)
            entry = self.queue.get(heappop(ready)[1:]) if ready else None
            if entry is None:  # stale by now
                continue
            self._dequeue(entry)
            if self._is_late(entry.message, now_us):  # flaw 7
                self._expire(entry.message, effects)
            else:
                self._deliver(entry.message, effects)

    def _find_ready(self, member: int, ready: list[tuple[int, int, int]]) -> None:
        """Put what has become ready because this member's frontier moved on the heap `ready`."""
        keys = self.held_by[member]
        if not keys:
            return
        self.held_by[member] = []
        for key in keys:
            entry = self.queue.get(key)
            if entry is None:
                continue
            if self._ready(entry):
                heappush(ready, (entry.message.stamp, *key))
            self.held_by[entry.blocker].append(key)

    def _force(self, entry: Entry, now_us: int, effects: Effects) -> None:
        """The time of a message has come: what it follows is delivered, if it is here, and then itself."""
        after = entry.message.after
        chosen: list[list[int]] = []
        if not self._is_late(entry.message, now_us):  # else the host slept, and there is nothing to hurry for
            chosen = [key for _, *key in self.order if key[1] <= after[key[0]]]
        for origin, number in (*chosen, entry.message[:2]):
            held = self.queue.get((origin, number))
            if held is None:  # stale by now
                continue
            self._dequeue(held)
            if self._is_late(held.message, now_us):
                self._expire(held.message, effects)
            else:
                self._deliver(held.message, effects)
        self._drain(now_us, effects)

    def _deliver(self, message: DeadlineMessage, effects: Effects) -> None:
        """Raise V to all that the message follows, then to itself; give up what this makes stale."""
        origin, number, stamp, deadline_us, after, left, payload = message
        accepted = self.accepted
        jumps = not all(map(le, after, accepted))
        if jumps:
            for member, newest in enumerate(after):
                if newest > accepted[member]:
                    end_us = stamp + left[member] - 1 if left and left[member] else 0
                    self._raise(member, newest, end_us)
        accepted[origin] = number
        self.resolved[origin].pop(number, None)
        self._advance(origin, number)
        self.ends_us[origin] = deadline_us
        self._keep(message)
        effects.append(Deliver(Message(self.members[origin], number, payload)))
        if jumps:
            self._purge(effects)

    def _raise(self, member: int, newest: int, end_us: int) -> None:
        """V[member] becomes `newest`; what never came up to there is remembered as such."""
        first = max(self.accepted[member], newest - HOLES_MAX) + 1
        self.accepted[member] = newest
        self.ends_us[member] = end_us
        resolved, holes = self.resolved[member], self.holes[member]
        for number in range(first, newest + 1):
            if not resolved.pop(number, False) and (member, number) not in self.queue:
                holes.add(number)
        if resolved and min(resolved) < first:
            self.resolved[member] = {number: came for number, came in resolved.items() if number > newest}
        if len(holes) > HOLES_MAX:
            self.holes[member] = set(sorted(holes)[-HOLES_MAX:])
        self._advance(member, newest)

    def _advance(self, member: int, newest: int = 0) -> None:
        """W goes to `newest` at least, and over everything that nobody waits for."""
        resolved, frontier = self.resolved[member], max(self.frontier[member], newest)
        while frontier + 1 in resolved:
            frontier += 1
        if frontier > self.frontier[member]:
            self.frontier[member] = frontier
            self.moved.append(member)

    def _purge(self, effects: Effects) -> None:
        """What waits and is followed by something delivered is given up (flaw 5)."""
        stale = [key for _, *key in self.order if key[1] <= self.accepted[key[0]]]
        for origin, number in stale:
            self._dequeue(self.queue[origin, number])
            effects.append(Expire(MessageId(self.members[origin], number), Reason.OVERTAKEN))

    def _is_late(self, message: DeadlineMessage, now_us: int) -> bool:
        return now_us + self.options.clock_error_us > message.deadline_us

    def _expire(self, message: DeadlineMessage, effects: Effects) -> None:
        """It came, or waited, too long; nobody needs to wait for it any more (flaw 8)."""
        origin, number = message[0], message[1]
        self.resolved[origin][number] = True
        self._advance(origin)
        effects.append(Expire(MessageId(self.members[origin], number), Reason.EXPIRED))

    # Time

    def timer(self, key: str, now_us: int) -> Effects:
        """Something is due."""
        self.armed_us = None
        effects: Effects = []
        self._pass_time(now_us, effects)
        self._arm(effects)
        return effects

    def _pass_time(self, now_us: int, effects: Effects) -> None:
        """Do what has become due, in its order; forget what nobody may deliver any more."""
        due = self.due
        while due and due[0][0] <= now_us:
            _, what, origin, number = heappop(due)
            if what == FORCE:
                entry = self.queue.get((origin, number))
                if entry is not None:
                    self._force(entry, now_us, effects)
            elif self._is_missing(origin, number):
                if what == LAPSE:
                    self.resolved[origin][number] = False
                    self._advance(origin)
                    self._drain(now_us, effects)
                else:
                    self._retry(origin, number, now_us)
        while self.stored and self.stored[0][0] <= now_us:  # GARBAGE-COLLECT
            self._drop()

    def _arm(self, effects: Effects) -> None:
        """Set the host's timer to the next thing that is due."""
        due = self.due
        while due and not self._counts(*due[0][1:]):
            heappop(due)
        next_us = due[0][0] if due else None
        if next_us != self.armed_us:
            self.armed_us = next_us
            effects.append(CancelTimer(TIMER) if next_us is None else SetTimer(TIMER, next_us))

    def _counts(self, what: int, origin: int, number: int) -> bool:
        return (origin, number) in self.queue if what == FORCE else self._is_missing(origin, number)

    # The store

    def _keep(self, message: DeadlineMessage) -> None:
        """Store an own or delivered message for others; without room, the one with the least time goes."""
        if self.keeps and self._make_room(len(message.payload)):
            origin, number, _, deadline_us = message[:4]
            self.store[origin][number] = message
            heappush(self.stored, (deadline_us, origin, number))
            self.used_bytes += len(message.payload)

    def _make_room(self, size_bytes: int) -> bool:
        limit_bytes = self.options.buffer_bytes - size_bytes
        while self.used_bytes > limit_bytes and self.stored:
            self._drop()
        return self.used_bytes <= limit_bytes

    def _drop(self) -> None:
        _, origin, number = heappop(self.stored)
        self.used_bytes -= len(self.store[origin].pop(number).payload)

    # What ODCA adds

    def _wait(self, entry: Entry, now_us: int, effects: Effects) -> None:
        """A message has to wait: ODCA asks for what it follows."""

    def _solicited(self, peer: NodeId, packet: DeadlinePacket, now_us: int, effects: Effects) -> None:
        """A peer asks for messages: TDCA keeps none."""
        effects.append(Discard(None, peer, Reason.MALFORMED))

    def _retry(self, member: int, number: int, now_us: int) -> None:
        """A message that was asked for has not come."""
