"""TDCA: causal order before a deadline, and what cannot have both is dropped (paper 002).

Guarantee     every message that a node delivers comes after everything that happened before its
              broadcast and that this node delivers at all, before its deadline, and once. A message
              that reaches a node and cannot have this ends there as `Expire`, with the reason.
              **Not** guaranteed: that a message is delivered. That is what deadlines are for.
Assumptions   a known group whose members can all talk to each other, over links that may lose,
              duplicate and reorder; clocks that differ by `clock_error_us` at most. Drift beyond
              that costs messages or punctuality, never order. No member lies.
Source        section 4 and Figure 8, corrected: each of its nine flaws is a test in
              tests/paper/test_002_flaws.py, and `mode = "published"` (published.py) has the
              figure as printed. TDCA is the traditional algorithm of section 3 (Rodrigues et al.,
              "Deadline-constrained causal order", 2000); `odca.py` makes ODCA of it.

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

from bisect import bisect_left, insort
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from operator import le
from typing import Any, ClassVar, TypeAlias, cast

from whence.core.effects import CancelTimer, Deliver, Discard, Effects, Expire, Reason, Send, SetTimer
from whence.core.group import (
    LIFE_BITS,
    NUMBER_MAX,
    WINDOW_MAX,
    check_payload,
    check_peer,
    group_of,
    id_of,
)
from whence.core.lives import BACK, BEGIN, CUT_OFF, WELCOME
from whence.core.message import Message, MessageId, NodeId, Packet, Sizes, Waiting
from whence.core.parameters import Parameters, flag, whole
from whence.core.protocol import Protocol, State
from whence.errors import MisuseError
from whence.protocols.deadline.wire import (
    MESSAGE,
    REPLY,
    SOLICITATION,
    DeadlineMessage,
    DeadlinePacket,
    broadcast_packet,
    packet_sizes,
)

AHEAD_MAX_US = 86_400_000_000  # a day: a stamp or a deadline further ahead is a mistake or an attack
LIFETIME_MAX_US = 3_600_000_000
LIFETIME = whole("lifetime_us", 1_000_000, 1, LIFETIME_MAX_US)


class DeadlineBase(Protocol):
    """What both readings of Figure 8 share: members, links, what is named and what it costs."""

    packet_type: ClassVar[type[Packet]] = DeadlinePacket

    def __init__(self, me: NodeId, members: Iterable[NodeId]) -> None:
        self.members, self.index, self.my_index = group_of(me, members)
        self.me = me
        self.neighbours: tuple[NodeId, ...] = ()
        self.last = 0

    # Links

    def link_up(self, peer: NodeId, now_us: int) -> Effects:
        check_peer(self.me, peer)
        self.neighbours = tuple(sorted({*self.neighbours, peer}))
        return []

    def link_down(self, peer: NodeId, now_us: int) -> Effects:
        self.neighbours = tuple(each for each in self.neighbours if each != peer)
        return []

    def _named(self, message: DeadlineMessage) -> MessageId | None:
        """The message's id, or None where it names a member or a number that cannot be."""
        return id_of(self.members, message[0], message[1])

    def _discard(self, message: DeadlineMessage, peer: NodeId, reason: Reason, effects: Effects) -> None:
        effects.append(Discard(self._named(message), peer, reason))

    # The contract: what it costs

    def message_of(self, packet: Packet) -> MessageId | None:
        """The first message; `further_messages_of` has the others. A solicitation carries none."""
        kind, messages = packet[0], cast(DeadlinePacket, packet).messages
        return self._named(messages[0]) if messages and kind != SOLICITATION else None

    def further_messages_of(self, packet: Packet) -> tuple[MessageId, ...]:
        """All but the first, in the packet's order."""
        messages = cast(DeadlinePacket, packet).messages
        if len(messages) < 2 or packet[0] == SOLICITATION:
            return ()
        found = (self._named(message) for message in messages[1:])
        return tuple(id_ for id_ in found if id_ is not None)

    def detail_of(self, packet: Packet) -> str | None:
        """Of a solicitation what it asks for, as one word: two of equal size may ask for different things."""
        kind, _, have, upper, wants = cast(DeadlinePacket, packet)
        if kind != SOLICITATION:
            return super().detail_of(packet)
        return "asks:" + ";".join(",".join(map(str, part)) for part in (have, upper, wants))

    def is_control(self, packet: Packet) -> bool:
        """Solicitations and the replies to them."""
        return packet[0] in (SOLICITATION, REPLY)

    def sizes(self, packet: Packet) -> Sizes:
        return packet_sizes(cast(DeadlinePacket, packet))


def plain_message(message: DeadlineMessage) -> list[object]:
    """A message as plain data."""
    origin, number, stamp, deadline_us, after, left, payload = message
    return [origin, number, stamp, deadline_us, list(after), list(left), payload]


def read_message(plain: list[Any]) -> DeadlineMessage:
    """The message that `plain_message` described."""
    origin, number, stamp, deadline_us, after, left, payload = plain
    return DeadlineMessage(origin, number, stamp, deadline_us, tuple(after), tuple(left), payload)


def check_lifetime(lifetime_us: object) -> None:
    """Refuse a lifetime that is none."""
    if isinstance(lifetime_us, bool) or not isinstance(lifetime_us, int):
        raise MisuseError("lifetime", f"{lifetime_us!r} is not a number of microseconds", "Use an integer")
    if not 1 <= lifetime_us <= LIFETIME_MAX_US:
        raise MisuseError("lifetime", f"{lifetime_us} us is not between 1 us and one hour", "Use one that is")


Key: TypeAlias = tuple[int, int]  # (origin, number) of a message

HOLES_MAX = 4096  # of each origin, how many messages that never came are remembered as such
NAMED_MAX = 64  # missing messages of one origin that are named together, in `explain` and to a peer


class QueuedMessage:
    """A message that waits for its turn."""

    __slots__ = ("blocker", "message", "since_us")

    def __init__(self, message: DeadlineMessage, since_us: int) -> None:
        self.message = message
        self.since_us = since_us
        self.blocker = 0  # a member whose frontier held it back when it was last looked at


def deadline_parameters(*, copies: int) -> Parameters:
    """Return the parameters that TDCA and ODCA share; docs/deadline.md says what each costs."""
    return Parameters(
        LIFETIME,  # of a message that is broadcast without one
        flag("deadlines", default=True),  # messages carry their predecessors' deadlines
        whole("copies", copies, 1, 16),  # of each packet of a broadcast
        whole("margin_us", 5_000, 0, LIFETIME_MAX_US),  # deliver out of turn this early: timers are late
        whole("clock_error_us", 0, 0, LIFETIME_MAX_US),  # the largest difference between two clocks
        whole("buffer_bytes", 128 << 20, 0, NUMBER_MAX),  # section 5: "a 128MB buffer space"
    )


TIMER = "due"  # one timer of the host serves all that is due
LAPSE, RETRY, FORCE = 0, 1, 2  # what can be due; at one time in this order: what is ready need not be forced


class Tdca(DeadlineBase):
    """The corrected algorithm without repair; ODCA adds the asking."""

    name: ClassVar[str] = "tdca"
    keeps: ClassVar[bool] = False  # whether delivered messages are stored for others
    returns: ClassVar[bool] = True
    begins_at_once: ClassVar[bool] = True  # a message of a later life waits for nothing of an earlier one
    parameters: ClassVar[Parameters] = deadline_parameters(copies=1)

    def __init__(self, me: NodeId, members: Iterable[NodeId], **given: Any) -> None:
        super().__init__(me, members)
        options = self.parameters.read(self.name, given)
        self.lifetime_us: int = options["lifetime_us"]
        self.deadlines: bool = options["deadlines"]
        self.copies: int = options["copies"]
        self.margin_us: int = options["margin_us"]
        self.clock_error_us: int = options["clock_error_us"]
        self.buffer_bytes: int = options["buffer_bytes"]
        size = len(self.members)
        self.greatest_stamp = 0
        self.accepted = [0] * size  # V: the newest message of each member in the past of what is delivered
        self.frontier = [0] * size  # W >= V: up to here nothing of the member is to be waited for
        # Beyond V, what no node waits for: True if it came (and was late), False if only its time is known.
        self.resolved: list[dict[int, bool]] = [{} for _ in range(size)]
        self.holes: list[set[int]] = [set() for _ in range(size)]  # up to V, what never came
        self.ends_us = [0] * size  # the deadline of message V[i] of member i; 0: not known
        self.queue: dict[Key, QueuedMessage] = {}  # Q
        self.order: list[tuple[int, int, int]] = []  # Q by (stamp, origin, number)
        # Each waiting message stands under one member that holds it back: nothing else can free it.
        self.held_by: list[list[Key]] = [[] for _ in range(size)]
        self.moved: list[int] = []  # members whose frontier has moved since the queue was looked at
        self.store: list[dict[int, DeadlineMessage]] = [{} for _ in range(size)]  # number -> own or delivered
        self.stored: list[tuple[int, int, int]] = []  # heap of (deadline_us, origin, number)
        self.used_bytes = 0  # payloads in queue and store
        # Heap of (when, what, origin, number); what no longer counts is dropped when it comes to the top.
        self.due: list[tuple[int, int, int, int]] = []
        self.armed_us: int | None = None  # what the host's one timer is set to

    # The queue

    def _enqueue(self, entry: QueuedMessage) -> None:
        message = entry.message
        self.queue[message.origin, message.number] = entry
        insort(self.order, (message.stamp, message.origin, message.number))
        self.held_by[entry.blocker].append(message[:2])
        self.used_bytes += len(message.payload)

    def _dequeue(self, entry: QueuedMessage) -> None:
        message = entry.message
        del self.queue[message.origin, message.number]
        del self.order[bisect_left(self.order, (message.stamp, message.origin, message.number))]
        self.used_bytes -= len(message.payload)

    def _ready(self, entry: QueuedMessage) -> bool:
        """Whether nothing before it is to be waited for; else remembers one member that holds it back."""
        after, frontier = entry.message.after, self.frontier
        if after[entry.blocker] > frontier[entry.blocker]:
            return False
        if all(map(le, after, frontier)):
            return True
        entry.blocker = next(at for at, number in enumerate(after) if number > frontier[at])
        return False

    def _missing(self, after: tuple[int, ...]) -> list[Key]:
        """What a message with that past waits for and has not come, the newest `NAMED_MAX` of each member."""
        frontier, resolved, queue = self.frontier, self.resolved, self.queue
        return [
            (member, number)
            for member, newest in enumerate(after)
            if newest > frontier[member]
            for number in range(max(frontier[member], newest - NAMED_MAX) + 1, newest + 1)
            if number not in resolved[member] and (member, number) not in queue
        ]

    def _is_missing(self, member: int, number: int) -> bool:
        """Whether message `number` of the member may still come and be of use."""
        return (
            number > self.frontier[member]
            and (member, number) not in self.queue
            and number not in self.resolved[member]
        )

    # What a peer may not send

    def _refuse(self, message: DeadlineMessage, now_us: int) -> Reason | None:
        origin, _, stamp, deadline_us, after, left, _ = message
        if not 0 <= origin < len(self.members):
            return Reason.UNKNOWN_ORIGIN
        if not self._is_well_formed(message):
            return Reason.MALFORMED
        if origin == self.my_index:
            return Reason.FORGED
        if after[self.my_index] > self.last:
            return Reason.IMPOSSIBLE  # it follows a message that we never broadcast
        limit_us = max(now_us, 0) + AHEAD_MAX_US
        if stamp > limit_us or deadline_us > limit_us or (left and max(left) > AHEAD_MAX_US):
            return Reason.TOO_FAR_AHEAD
        return None

    def _is_old_copy(self, origin: int, number: int) -> bool:
        """Whether it is a further copy of what has come to its end here."""
        known = 0 <= origin < len(self.accepted) and 0 < number <= self.accepted[origin]
        return known and number not in self.holes[origin]

    # rule 002 flaw 1: the sender's own entry is the number before, so that a gap shows
    def _is_well_formed(self, message: DeadlineMessage) -> bool:
        origin, number, stamp, _, after, left, _ = message
        size = len(self.members)
        if not 0 < number < NUMBER_MAX or stamp < 1 or len(after) != size or after[origin] != number - 1:
            return False
        return (
            min(after) >= 0
            and max(after) < NUMBER_MAX
            and (not left or (len(left) == size and min(left) >= 0))
        )

    # B-SEND

    def broadcast(self, payload: bytes, now_us: int) -> Effects:
        return self.broadcast_within(payload, self.lifetime_us, now_us)

    # rule 002 B-SEND: stamp, attach what is delivered and its deadlines, store
    # rule 002 flaw 3: own messages are stored
    # rule 002 flaw 9: the stamp is a hybrid logical clock
    def broadcast_within(self, payload: bytes, lifetime_us: int, now_us: int) -> Effects:
        check_payload(payload)
        check_lifetime(lifetime_us)
        effects: Effects = []
        self._pass_time(now_us, effects)
        stamp = self.greatest_stamp = max(now_us, self.greatest_stamp + 1)  # flaw 9
        after = tuple(self.accepted)
        left: tuple[int, ...] = ()
        if self.deadlines:
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
            effects += [Send(self.neighbours, broadcast_packet(message))] * self.copies
        self._arm(effects)
        return effects

    # B-RECV and RPY-RECV: a reply goes the same way as a direct message (flaw 4)

    # rule 002 B-RECV: a message arrives
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

    # rule 002 flaw 4: a reply is checked like a direct message
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
            entry = QueuedMessage(message, now_us)
            is_ready = self._ready(entry)
            if not is_ready and self._follow_lives(message.after):
                self._drain(now_us, effects)
                is_ready = self._ready(entry)
            if is_ready:
                self._deliver(message, effects)
                self._drain(now_us, effects)
            elif self._make_room(len(message.payload)):
                self._hold(entry, now_us, effects)
            else:
                self._discard(message, peer, Reason.NO_ROOM, effects)

    # Lives (core/lives.py)

    def command(self, verb: str, names: tuple[NodeId, ...], now_us: int) -> Effects:
        """What the host knows of lives. Nobody is told where to begin: what is before is late soon."""
        if verb == BEGIN:
            mine, self.last = self.my_index, int(names[0])
            self.accepted[mine] = self.frontier[mine] = self.last
            self.ends_us[mine] = 0
        elif verb not in (WELCOME, CUT_OFF, BACK):
            return super().command(verb, names, now_us)
        return []

    def _follow_lives(self, after: tuple[int, ...]) -> bool:
        """Wait for nothing of a member's earlier lives once one names a later; returns whether one does."""
        leaps = [at for at, newest in enumerate(after) if newest > self.frontier[at] + WINDOW_MAX]
        for at in leaps:
            self._advance(at, after[at] >> LIFE_BITS << LIFE_BITS)
        return bool(leaps)

    def _come_too_late(self, message: DeadlineMessage, now_us: int, effects: Effects) -> None:
        """The first copy of a message of which a follower is delivered already."""
        origin, number = message[0], message[1]
        self.holes[origin].remove(number)
        reason = Reason.EXPIRED if self._is_late(message, now_us) else Reason.OVERTAKEN
        effects.append(Expire(MessageId(self.members[origin], number), reason))

    # rule 002 flaw 6: a timer at the deadline, not an equality on a clock
    def _hold(self, entry: QueuedMessage, now_us: int, effects: Effects) -> None:
        """It has to wait: until what it follows has come, is known to be late, or its own time comes."""
        self._enqueue(entry)
        _, _, stamp, deadline_us, after, left, _ = entry.message
        frontier = self.frontier
        if left:
            for member, newest in enumerate(after):
                if newest > frontier[member] and left[member] and self._is_missing(member, newest):
                    late_us = stamp + left[member] - self.clock_error_us
                    heappush(self.due, (late_us, LAPSE, member, newest))
        force_us = deadline_us - self.clock_error_us - self.margin_us
        heappush(self.due, (force_us, FORCE, *entry.message[:2]))  # flaw 6: a timer, not an equality
        self._pass_time(now_us, effects)
        if entry.message[:2] in self.queue:
            self._wait(entry, now_us, effects)

    # CHECK-MSGS: what can be delivered, and what must be

    # rule 002 CHECK-MSGS: deliver what is ready, in stamp order
    # rule 002 flaw 7: never deliver late
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

    # rule 002 timer: the time of a message has come
    def _force(self, entry: QueuedMessage, now_us: int, effects: Effects) -> None:
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
        """W goes to `newest` at least, and over everything that no node waits for."""
        resolved, frontier = self.resolved[member], max(self.frontier[member], newest)
        while frontier + 1 in resolved:
            frontier += 1
        if frontier > self.frontier[member]:
            self.frontier[member] = frontier
            self.moved.append(member)

    # rule 002 flaw 5: what a delivery made stale is purged
    def _purge(self, effects: Effects) -> None:
        """What waits and is followed by something delivered is dropped (flaw 5)."""
        stale = [key for _, *key in self.order if key[1] <= self.accepted[key[0]]]
        for origin, number in stale:
            self._dequeue(self.queue[origin, number])
            effects.append(Expire(MessageId(self.members[origin], number), Reason.OVERTAKEN))

    def _is_late(self, message: DeadlineMessage, now_us: int) -> bool:
        return now_us + self.clock_error_us > message.deadline_us

    # rule 002 flaw 8: an expired arrival is resolved, and holds no other back
    def _expire(self, message: DeadlineMessage, effects: Effects) -> None:
        """It came, or waited, too long; no message needs to wait for it any more (flaw 8)."""
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

    # rule 002 GARBAGE-COLLECT: forget what no node may deliver
    def _pass_time(self, now_us: int, effects: Effects) -> None:
        """Do what has become due, in its order; forget what no node may deliver any more."""
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
        limit_bytes = self.buffer_bytes - size_bytes
        while self.used_bytes > limit_bytes and self.stored:
            self._drop()
        return self.used_bytes <= limit_bytes

    def _drop(self) -> None:
        _, origin, number = heappop(self.stored)
        self.used_bytes -= len(self.store[origin].pop(number).payload)

    # What ODCA adds

    def _wait(self, entry: QueuedMessage, now_us: int, effects: Effects) -> None:
        """A message has to wait: ODCA asks for what it follows."""

    def _solicited(self, peer: NodeId, packet: DeadlinePacket, now_us: int, effects: Effects) -> None:
        """A peer asks for messages: TDCA keeps none."""
        effects.append(Discard(None, peer, Reason.MALFORMED))

    def _retry(self, member: int, number: int, now_us: int) -> None:
        """A message that was asked for has not come."""

    # The contract: what waits, what must hold

    @property
    def waiting(self) -> int:
        return len(self.queue)

    def explain(self) -> list[Waiting]:
        waiting = []
        for origin, number in sorted(self.queue):
            entry = self.queue[origin, number]
            missing = self._missing(entry.message.after)
            if not missing:  # all that it waits for is here and waits itself: name what holds it back
                missing = [
                    (member, newest)
                    for member, newest in enumerate(entry.message.after)
                    if newest > self.frontier[member]
                ]
            ids = tuple(MessageId(self.members[member], count) for member, count in missing)
            waiting.append(Waiting(MessageId(self.members[origin], number), entry.since_us, ids))
        return waiting

    def check(self) -> None:
        mine = self.my_index
        self._require(self.accepted[mine] == self.frontier[mine] == self.last, "own messages are delivered")
        for member, frontier in enumerate(self.frontier):
            accepted, resolved = self.accepted[member], self.resolved[member]
            self._require(accepted <= frontier, f"member {member}: V <= W")
            self._require(frontier + 1 not in resolved, f"member {member}: W stops at what may still come")
            self._require(not resolved or min(resolved) > accepted, f"member {member}: resolved is beyond V")
            holes = self.holes[member]
            self._require(not holes or max(holes) <= accepted, f"member {member}: holes are up to V")
        self._require(len(self.order) == len(self.queue), "the order of the queue has each message once")
        self._require(self.order == sorted(self.order), "the queue is in stamp order")
        for stamp, origin, number in self.order:
            entry = self.queue[origin, number]
            self._require(entry.message.stamp == stamp, f"{(origin, number)} stands at its stamp")
            self._require(number > self.accepted[origin], f"{(origin, number)} is not stale")
            self._require(not self._ready(entry), f"{(origin, number)} waits for something")
            held = self.held_by[entry.blocker].count((origin, number))
            self._require(held == 1, f"{(origin, number)} stands under what holds it back")
        self._require(not self.moved, "the queue has been looked at")
        in_store = sorted(message[:2] for held in self.store for message in held.values())
        self._require(in_store == sorted(key[1:] for key in self.stored), "the store is indexed by deadline")
        used_bytes = sum(len(entry.message.payload) for entry in self.queue.values())
        used_bytes += sum(len(message.payload) for held in self.store for message in held.values())
        self._require(self.used_bytes == used_bytes <= self.buffer_bytes, "the buffer has its limit")

    # The contract: state through plain data

    def save(self) -> State:
        return {
            "last": self.last,
            "lifetime": self.last_lifetime_us,
            "neighbours": list(self.neighbours),
            "stamp": self.greatest_stamp,
            "accepted": list(self.accepted),
            "frontier": list(self.frontier),
            "resolved": [[list(pair) for pair in sorted(each.items())] for each in self.resolved],
            "holes": [sorted(each) for each in self.holes],
            "ends": list(self.ends_us),
            "queue": [
                [*plain_message(entry.message), entry.since_us]
                for entry in (self.queue[key[1:]] for key in self.order)
            ],
            "store": [plain_message(held[number]) for held in self.store for number in sorted(held)],
            "due": [list(each) for each in sorted(self.due)],
            "armed": self.armed_us,
        }

    def restore(self, state: State) -> None:
        self.last = state["last"]
        self.last_lifetime_us = state["lifetime"]
        self.neighbours = tuple(state["neighbours"])
        self.greatest_stamp = state["stamp"]
        self.accepted = list(state["accepted"])
        self.frontier = list(state["frontier"])
        self.resolved = [dict(pairs) for pairs in state["resolved"]]
        self.holes = [set(numbers) for numbers in state["holes"]]
        self.ends_us = list(state["ends"])
        for *plain, since_us in state["queue"]:
            entry = QueuedMessage(read_message(plain), since_us)
            self._ready(entry)  # finds what holds it back
            self._enqueue(entry)
        for plain in state["store"]:
            message = read_message(plain)
            self.store[message.origin][message.number] = message
            self.stored.append((message.deadline_us, message.origin, message.number))
            self.used_bytes += len(message.payload)
        heapify(self.stored)
        self.due = [cast("tuple[int, int, int, int]", tuple(each)) for each in state["due"]]
        self.armed_us = state["armed"]

    # The contract: what it costs

    def entries(self) -> int:
        size = len(self.members)
        held = sum(1 + len(entry.message.after) for entry in self.queue.values())
        kept = sum(1 + len(message.after) for store in self.store for message in store.values())
        return 3 * size + held + kept + sum(map(len, self.resolved)) + sum(map(len, self.holes))
