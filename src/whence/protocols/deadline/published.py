"""Figure 8 of paper 002 as it is printed, for the record of its flaws. Do not use it.

It loses messages that it need not lose, and ODCA delivers messages twice, out of order and late:
tests/paper/test_002_flaws.py and `whence study deadline` show each flaw. What the figure leaves open is read
in its favour: "the current clock value" is the clock in ticks of `tick_us`; "every time interval" is every
tick in which something is queued or stored; a queue's "FIFO order" is the order of sending times in which
its members are inserted. With `strict = False` SOLICIT-RECV replies as flaw 2's repair does: as printed it
never replies, and the flaws behind it never show.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import gt, le, lt
from typing import Any, ClassVar, cast

from whence.core.effects import Deliver, Discard, Effects, Reason, Send, SetTimer
from whence.core.group import NUMBER_MAX, check_payload
from whence.core.message import Message, MessageId, NodeId, Packet, Waiting
from whence.core.parameters import Parameters, flag, whole
from whence.core.protocol import State
from whence.protocols.deadline.tdca import (
    AHEAD_MAX_US,
    LIFETIME,
    LIFETIME_MAX_US,
    DeadlineBase,
    check_lifetime,
    plain_message,
    read_message,
)
from whence.protocols.deadline.wire import (
    MESSAGE,
    REPLY,
    SOLICITATION,
    DeadlineMessage,
    DeadlinePacket,
    broadcast_packet,
)

TIMER = "tick"
TICK = whole("tick_us", 1_000, 1, LIFETIME_MAX_US)  # of the clock


class Figure8(DeadlineBase):
    """The figure; its two readings differ in the last line of B-RECV."""

    solicits: ClassVar[bool]

    def __init__(self, me: NodeId, members: Iterable[NodeId], **given: Any) -> None:
        super().__init__(me, members)
        options = self.parameters.read(self.name, given)
        self.lifetime_us: int = options["lifetime_us"]
        self.tick_us: int = options["tick_us"]
        self.strict: bool = options.get("strict", True)
        self.mvector = [0] * len(self.members)
        self.received: list[tuple[DeadlineMessage, int]] = []  # RMSG_Q, with the time of arrival
        self.delivered: list[DeadlineMessage] = []  # DLVD_Q
        self.ticking = False
        self.solicitations = self.replies = 0  # how often SOLICIT-RECV was asked, and answered anything

    # B-SEND

    def broadcast(self, payload: bytes, now_us: int) -> Effects:
        return self.broadcast_within(payload, self.lifetime_us, now_us)

    # rule 002 B-SEND: as printed
    def broadcast_within(self, payload: bytes, lifetime_us: int, now_us: int) -> Effects:
        check_payload(payload)
        check_lifetime(lifetime_us)
        self.last += 1
        self.last_lifetime_us = lifetime_us
        self.mvector[self.my_index] = self._clock(now_us)
        after = tuple(self.mvector)
        message = DeadlineMessage(
            self.my_index, self.last, self._clock(now_us), now_us + lifetime_us, after, (), payload
        )
        effects: Effects = [Deliver(Message(self.me, self.last, payload))]
        if self.neighbours:
            effects.append(Send(self.neighbours, broadcast_packet(message)))
        return effects

    def _clock(self, now_us: int) -> int:
        return max(now_us, 0) // self.tick_us

    # B-RECV, RPY-RECV, SOLICIT-RECV

    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        if peer not in self.neighbours:
            return [Discard(None, peer, Reason.NOT_A_NEIGHBOUR)]
        kind, messages, have, upper, _ = cast(DeadlinePacket, packet)
        effects: Effects = []
        size = len(self.members)
        if kind == SOLICITATION and self.solicits and len(have) == len(upper) == size:
            self._solicit_recv(peer, have, upper, effects)
        elif kind in (MESSAGE, REPLY) and messages:
            sound = []
            for message in messages:
                refused = self._refuse(message, now_us)
                if refused is None:
                    sound.append(message)
                else:
                    self._discard(message, peer, refused, effects)
            if kind == REPLY:
                self._rpy_recv(sound, now_us, effects)
            elif sound:
                self._b_recv(peer, sound[0], now_us, effects)
        else:
            effects.append(Discard(None, peer, Reason.MALFORMED))
        self._tick(now_us, effects)
        return effects

    def _refuse(self, message: DeadlineMessage, now_us: int) -> Reason | None:
        """Not in the figure: what no correct member sends."""
        origin, number, stamp, deadline_us, after, _, _ = message
        if not 0 <= origin < len(self.members):
            return Reason.UNKNOWN_ORIGIN
        limit_us = max(now_us, 0) + AHEAD_MAX_US
        if not 0 < number < NUMBER_MAX or not 0 <= stamp <= limit_us or deadline_us > limit_us:
            return Reason.MALFORMED
        if len(after) != len(self.members) or min(after) < 0 or max(after) > limit_us:
            return Reason.MALFORMED
        return Reason.FORGED if origin == self.my_index and number > self.last else None

    # rule 002 B-RECV: as printed
    def _b_recv(self, peer: NodeId, message: DeadlineMessage, now_us: int, effects: Effects) -> None:
        origin, after = message.origin, message.after
        if message.deadline_us // self.tick_us < self._clock(now_us):
            self._discard(message, peer, Reason.EXPIRED, effects)
        elif after[origin] <= self.mvector[origin]:
            self._discard(message, peer, Reason.OVERTAKEN, effects)
        elif self._may_deliver(message):
            self._deliver(message, effects)
            self._check_msgs(now_us, effects)
        else:
            self._insert(message, now_us)
            if self.solicits and self.members[origin] in self.neighbours:
                packet = DeadlinePacket(SOLICITATION, (), tuple(self.mvector), after, ())
                effects.append(Send((self.members[origin],), packet))

    # rule 002 RPY-RECV: as printed
    def _rpy_recv(self, messages: list[DeadlineMessage], now_us: int, effects: Effects) -> None:
        """Flaw 4: unchecked. The union of two sets has what is in both only once."""
        queued = {message[:2] for message, _ in self.received}
        for message in messages:
            if message[:2] not in queued:
                self._insert(message, now_us)
        self._check_msgs(now_us, effects)

    # rule 002 SOLICIT-RECV: as printed
    def _solicit_recv(
        self, peer: NodeId, have: tuple[int, ...], upper: tuple[int, ...], effects: Effects
    ) -> None:
        """Flaw 2: for all members strictly between, which not even the newest entry can be."""
        self.solicitations += 1
        found = [
            message
            for message in self.delivered
            if (
                all(map(lt, message.after, upper)) and all(map(gt, message.after, have))
                if self.strict
                else have[message.origin] < message.stamp <= upper[message.origin]
            )
        ]
        if found:
            self.replies += 1
            effects.append(Send((peer,), DeadlinePacket(REPLY, tuple(found), (), (), ())))

    def _may_deliver(self, message: DeadlineMessage) -> bool:
        origin, after, mvector = message.origin, message.after, self.mvector
        return after[origin] > mvector[origin] and all(
            entry <= mvector[member] for member, entry in enumerate(after) if member != origin
        )

    def _deliver(self, message: DeadlineMessage, effects: Effects) -> None:
        self.mvector = list(map(max, self.mvector, message.after))
        effects.append(Deliver(Message(self.members[message.origin], message.number, message.payload)))
        self.delivered.append(message)
        self.delivered.sort(key=_sending_time)

    def _insert(self, message: DeadlineMessage, now_us: int) -> None:
        self.received.append((message, now_us))
        self.received.sort(key=lambda entry: _sending_time(entry[0]))

    # CHECK-MSGS: one pass (flaw 5), an equality on a clock (flaw 6), no look at the deadline (flaw 7)

    # rule 002 CHECK-MSGS: as printed
    def _check_msgs(self, now_us: int, effects: Effects) -> None:
        for entry in list(self.received):
            if entry not in self.received:
                continue
            message = entry[0]
            if self._may_deliver(message):
                self._deliver(message, effects)
                self.received.remove(entry)
            elif message.deadline_us // self.tick_us == self._clock(now_us):
                for other in list(self.received):
                    if all(map(le, other[0].after, message.after)):
                        self._deliver(other[0], effects)
                        self.received.remove(other)

    # rule 002 GARBAGE-COLLECT: as printed
    def timer(self, key: str, now_us: int) -> Effects:
        """Every time interval: CHECK-MSGS and GARBAGE-COLLECT."""
        effects: Effects = []
        self.ticking = False
        self._check_msgs(now_us, effects)
        clock = self._clock(now_us)
        self.delivered = [each for each in self.delivered if each.deadline_us // self.tick_us > clock]
        self._tick(now_us, effects)
        return effects

    def _tick(self, now_us: int, effects: Effects) -> None:
        """Go on while a tick can change anything."""
        waits = any(each.deadline_us >= now_us for each, _ in self.received)
        if (waits or self.delivered) and not self.ticking:
            self.ticking = True
            effects.append(SetTimer(TIMER, (self._clock(now_us) + 1) * self.tick_us))

    # The contract

    @property
    def waiting(self) -> int:
        return len(self.received)

    def explain(self) -> list[Waiting]:
        """What waits. The figure's vectors hold clock values, so that what is missing has no name."""
        waiting = [
            Waiting(MessageId(self.members[message.origin], message.number), since_us, ())
            for message, since_us in self.received
        ]
        return sorted(waiting)

    def check(self) -> None:
        times = [_sending_time(message) for message, _ in self.received]
        self._require(times == sorted(times), "the queue is in the order of sending times")

    def save(self) -> State:
        return {
            "last": self.last,
            "lifetime": self.last_lifetime_us,
            "neighbours": list(self.neighbours),
            "mvector": list(self.mvector),
            "received": [[*plain_message(message), since_us] for message, since_us in self.received],
            "delivered": [plain_message(message) for message in self.delivered],
            "ticking": self.ticking,
            "asked": [self.solicitations, self.replies],
        }

    def restore(self, state: State) -> None:
        self.last = state["last"]
        self.last_lifetime_us = state["lifetime"]
        self.neighbours = tuple(state["neighbours"])
        self.mvector = list(state["mvector"])
        self.received = [(read_message(plain), since_us) for *plain, since_us in state["received"]]
        self.delivered = [read_message(plain) for plain in state["delivered"]]
        self.ticking = state["ticking"]
        self.solicitations, self.replies = state["asked"]

    def entries(self) -> int:
        return len(self.members) + (1 + len(self.members)) * (len(self.received) + len(self.delivered))


class PublishedTdca(Figure8):
    """B-SEND, B-RECV without its last line, CHECK-MSGS."""

    name: ClassVar[str] = "tdca"
    solicits: ClassVar[bool] = False
    parameters: ClassVar[Parameters] = Parameters(LIFETIME, TICK)


class PublishedOdca(Figure8):
    """All of Figure 8."""

    name: ClassVar[str] = "odca"
    solicits: ClassVar[bool] = True
    parameters: ClassVar[Parameters] = Parameters(LIFETIME, TICK, flag("strict", default=True))


def _sending_time(message: DeadlineMessage) -> tuple[int, int, int]:
    return message.stamp, message.origin, message.number
