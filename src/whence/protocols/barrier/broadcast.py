"""Barrier: causal and Δ-causal broadcast with causal barriers, over links (paper 001).

Guarantee     every node delivers each message at most once, after everything that happened before its
              broadcast, as far as that is still alive. A message with a lifetime is delivered before its
              deadline on the node's own clock, or not at all; one without is delivered everywhere if the
              links are reliable. With `mode = "published"` this holds only as far as the printed codes go.
Assumptions   none about who is in the group: names are strings, members come and go. With lifetimes, clocks
              differ by `skew_us` at most. A connected graph of links; they need not be FIFO, and
              duplicates do no harm.
Source        "Causal and Δ-causal broadcast in opportunistic networks", sections IV and V, corrected: each
              flaw is a test in tests/paper/test_001_flaws.py.

    paper                       here
    host_id, mid                me; (origin, number)
    st                          number and deadline_us, two fields (F3, F4)
    c_barrier                   SafeOrder.past: several entries per source where the cover rule needs it (F5)
    co_delivered                SafeOrder.delivered
    pending                     SafeOrder.pending
    lifetime (Code 8)           lifetime_us, or per message `broadcast_within`
    oppnet_broadcast, _receive  flooding here, contacts in `oppnet.py`

The order of messages is the work of `safe.py` or `published.py`; this module floods them:
a node passes the first copy of a message on to every neighbour but the one that it came from.

Late joiners (safe mode). A node that gets a new neighbour tells it first what it has delivered, of each
source the newest (a packet of number 0), and then repeats what it holds back. A node that has neither
broadcast nor delivered anything takes the first such packet for its own past: it is never given what is in
it, and it is given everything else, in causal order, for as long as that neighbour stays. What it was not
given its own messages still follow, through what it was given: rule R9 of `safe.py` names it. A node that has
a past of its own ignores such packets. Without a lifetime this is what keeps a joiner from waiting forever;
with one it only spares it the wait until old messages are dead.

Late messages (safe mode). What first comes after its deadline ends as `Expire`, once, if it is late by
`late_us` at most (`Arrivals`); copies, and whatever is later than that, are discarded as expired.

Parameters: `lifetime_us` of messages that have none of their own (None: good forever); `mode`; `skew_us`,
the largest difference between two clocks (safe mode); `relay = False`: only origins send (`flooding.py`);
`late_us`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, cast

from whence.core.effects import CancelTimer, Discard, Effects, Expire, Reason, Send, SetTimer
from whence.core.group import check_payload
from whence.core.lives import BACK, BEGIN, CUT_OFF, WELCOME
from whence.core.message import MessageId, NodeId, Packet, Sizes, Waiting
from whence.core.parameters import Parameter, Parameters, choice, whole
from whence.core.protocol import State
from whence.errors import MisuseError, ParameterError
from whence.protocols.barrier.order import LATE_US, LIFETIME_MAX_US, Arrivals, BarrierOrder, check_lifetime
from whence.protocols.barrier.published import PublishedOrder
from whence.protocols.barrier.safe import SafeOrder
from whence.protocols.barrier.wire import BarrierPacket, as_number, named, packet_sizes, told, well_formed
from whence.protocols.baselines.flooding import FLOOD, Relaying

WAKE = "wake"  # the one timer
SKEW = whole("skew_us", 0, 0, LIFETIME_MAX_US)  # the printed codes make no allowance for clocks
FORCED = b"cut"  # the payload of a start that is meant for nodes that have a past, too: it came back
LATE = whole("late_us", LATE_US, 0, LIFETIME_MAX_US)  # as printed nothing is said of what comes late


def order_parameters(*more: Parameter) -> Parameters:
    """Return the parameters of a protocol with a causal order: the order's own, and `more`."""
    lifetime = whole("lifetime_us", None, 1, LIFETIME_MAX_US, optional=True)
    modes = {
        "safe": Parameters(lifetime, SKEW, *more, LATE),
        "published": Parameters(lifetime, *more),
    }
    return Parameters.by_mode(choice("mode", "safe", tuple(modes)), modes, place=1)


def make_order(me: NodeId, options: Mapping[str, Any]) -> BarrierOrder:
    """Return the order of the mode that the options choose."""
    if options["mode"] == "safe":
        return SafeOrder(me, options["lifetime_us"], options["skew_us"])
    return PublishedOrder(me, options["lifetime_us"])


def check_message_lifetime(order: BarrierOrder, lifetime_us: int) -> None:
    """Refuse a lifetime that this order cannot give to one message."""
    check_lifetime("lifetime of a message", lifetime_us)
    if order.mode == "published" and order.lifetime_us is None:
        raise ParameterError(
            "lifetime of a message",
            "the printed codes have lifetimes for all messages or for none",
            "Set lifetime_us for the group, or use mode safe",
        )


class Barrier(Relaying):
    """A causal order over flooding."""

    name: ClassVar[str] = "barrier"
    packet_type: ClassVar[type[Packet]] = BarrierPacket
    parameters: ClassVar[Parameters] = order_parameters(FLOOD)
    returns: ClassVar[bool] = True  # in mode "safe": `command` refuses the other

    def __init__(
        self,
        me: NodeId,
        members: Iterable[NodeId],  # not used: no node needs to know the group
        **given: Any,
    ) -> None:
        options = self.parameters.read(self.name, given)
        super().__init__(me, relay=options["relay"])
        self.order = make_order(me, options)
        # As printed it is the network's cache, to which duplicates are left; it forgets at the deadline.
        self.seen = Arrivals(options["late_us"] if self.order.mode == "safe" else 0)
        self._wake_us: int | None = None

    def broadcast(self, payload: bytes, now_us: int) -> Effects:
        check_payload(payload)
        return self._broadcast(payload, None, now_us)

    def broadcast_within(self, payload: bytes, lifetime_us: int, now_us: int) -> Effects:
        check_payload(payload)
        check_message_lifetime(self.order, lifetime_us)
        return self._broadcast(payload, lifetime_us, now_us)

    def _broadcast(self, payload: bytes, lifetime_us: int | None, now_us: int) -> Effects:
        effects: Effects = []
        order = self.order
        order.advance(now_us, effects)
        packet = order.broadcast(payload, lifetime_us, now_us, effects)
        self.last = order.last
        self.last_lifetime_us = order.lifetime_us if lifetime_us is None else lifetime_us
        if self.neighbours:
            effects.append(Send(self.neighbours, packet))
        return self._with_timer(effects)

    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        packet = cast(BarrierPacket, packet)
        if peer not in self._without:
            return [Discard(None, peer, Reason.NOT_A_NEIGHBOUR)]
        effects: Effects = []
        order = self.order
        order.advance(now_us, effects)
        self.seen.forget(now_us)
        if packet.number == 0 and isinstance(order, SafeOrder):
            if well_formed(packet):
                order.adopt(packet.barrier, peer, now_us, effects, forced=bool(packet.payload))
                self.last = order.last
            else:
                effects.append(Discard(None, peer, Reason.MALFORMED))
            return self._with_timer(effects)
        refused = order.refuse(packet, now_us) or self._refuse_seen(packet)
        if refused is not None:
            if isinstance(order, SafeOrder):
                order.tell_overtaken(packet.origin, packet.number, effects)
            effects.append(self._end(peer, packet, refused, now_us))
            return self._with_timer(effects)
        if self.relay:
            self._pass_on(peer, packet, effects)
        order.receive(packet, now_us, effects)
        return self._with_timer(effects)

    def _refuse_seen(self, packet: BarrierPacket) -> Reason | None:
        key = (packet.origin, packet.number)
        if self.order.mode == "published":
            if key in self.seen:
                return Reason.DUPLICATE
        elif packet.deadline_us is None:
            return None  # it is never late, and the order knows copies itself
        self.seen.note(key, as_number(packet.deadline_us))
        return None

    def _end(self, peer: NodeId, packet: BarrierPacket, refused: Reason, now_us: int) -> Discard | Expire:
        if self.order.mode == "published" or packet.number <= self.order.cut.get(packet.origin, 0):
            return Discard(named(packet), peer, refused)
        return self.seen.end(packet, peer, refused, now_us)

    def link_up(self, peer: NodeId, now_us: int) -> Effects:
        super().link_up(peer, now_us)
        effects: Effects = []
        order = self.order
        order.advance(now_us, effects)
        if isinstance(order, SafeOrder) and (order.delivered or order.pending):
            effects.append(Send((peer,), BarrierPacket(self.me, 0, None, order.start(), b"")))
            effects += [Send((peer,), held.packet) for held in order.pending.values()]
        return self._with_timer(effects)

    def command(self, verb: str, names: tuple[NodeId, ...], now_us: int) -> Effects:
        """What the host knows of lives (core/lives.py). Whom it cannot hear is no matter: all is flooded."""
        effects: Effects = []
        order = self.order
        order.advance(now_us, effects)
        if verb in (BEGIN, WELCOME) and not isinstance(order, SafeOrder):
            raise MisuseError("mode 'published'", "nobody can come back to it", "Use mode 'safe'")
        if verb == BEGIN and isinstance(order, SafeOrder):
            order.begin_life(int(names[0]))
            self.last = order.last
        elif verb == WELCOME and isinstance(order, SafeOrder):
            effects.append(Send((names[0],), BarrierPacket(self.me, 0, None, order.start(), FORCED)))
            effects += [Send((names[0],), held.packet) for held in order.pending.values()]
        elif verb not in (CUT_OFF, BACK):
            return super().command(verb, names, now_us)
        return self._with_timer(effects)

    def has_heard_of(self, peer: NodeId) -> bool:
        return isinstance(self.order, SafeOrder) and peer in self.order.hearsay

    def timer(self, key: str, now_us: int) -> Effects:
        effects: Effects = []
        self._wake_us = None
        self.order.advance(now_us, effects)
        return self._with_timer(effects)

    def _with_timer(self, effects: Effects) -> Effects:
        """Ask to be woken when time alone changes something (F9)."""
        wake_us = self.order.next_us()
        if wake_us != self._wake_us:
            self._wake_us = wake_us
            effects.append(CancelTimer(WAKE) if wake_us is None else SetTimer(WAKE, wake_us))
        return effects

    @property
    def waiting(self) -> int:
        return len(self.order.pending)

    def explain(self) -> list[Waiting]:
        return self.order.explain()

    def check(self) -> None:
        self._require(self.last == self.order.last, "the order counts our broadcasts")
        self.order.check()
        self._require(self._wake_us == self.order.next_us(), "the timer is set to what comes next")

    def save(self) -> State:
        return {
            "neighbours": list(self.neighbours),
            "order": self.order.save(),
            "seen": self.seen.save(),
            "adopted": [list(pair) for pair in self.order.cut.items()],
            "wake_us": self._wake_us,
            "last_lifetime_us": self.last_lifetime_us,
        }

    def restore(self, state: State) -> None:
        self._set_neighbours(set(state["neighbours"]))
        self.order.restore(state["order"])
        self.seen.restore(state["seen"])
        self.order.cut = dict(state["adopted"])
        self._wake_us = state["wake_us"]
        self.last = self.order.last
        self.last_lifetime_us = state["last_lifetime_us"]

    def message_of(self, packet: Packet) -> MessageId | None:
        return named(cast(BarrierPacket, packet))

    def detail_of(self, packet: Packet) -> str | None:
        """Of what a new neighbour is told, what it says."""
        packet = cast(BarrierPacket, packet)
        return None if packet.number else told("past", packet.barrier)

    def sizes(self, packet: Packet) -> Sizes:
        return packet_sizes(cast(BarrierPacket, packet))

    def entries(self) -> int:
        return self.order.entries() + len(self.seen)
