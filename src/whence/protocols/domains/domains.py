"""Domains: causal order of point-to-point messages across domains of causality (paper 004, sections 4 and 5).

Guarantee     as `matrix`, for a whole system of domains that form no cycle (theorem 1); a message passes
              through router servers on the shortest path. The cost of a clock is that of a domain, not of the
              system.
Assumptions   a known system; two servers of a domain are linked; links are reliable while they are up, but
              need not be FIFO and may duplicate.
Source        paper 004, sections 4.2, 4.3 and 5 (figure 7), appendix A.

    paper                           here
    MessageConsumer                 consumers[domain]
    RoutingTable[dest]              routes[dest] = Route(domain, hop)
    Push(evt, QueueIN)              Deliver
    messCons.network.Send(msg)      Send
    virtual message, chain          message (origin, number), its packets hop by hop

The rule that is easy to get wrong (section 4.2, "do not cross over"): a router stamps a message that it
forwards for the next domain in the very step that delivers it here, before anything else is delivered or
sent. If it put the message aside and sent something else first, that later message could overtake it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple, cast

from whence.core.effects import Deliver, Discard, Effects, Reason
from whence.core.group import NUMBER_MAX, id_of
from whence.core.message import Message, MessageId, NodeId, Packet, Sizes, Waiting
from whence.core.parameters import Parameters, anything, flag, whole
from whence.core.protocol import State
from whence.core.sizes import FRAME_BYTES, array_header_bytes, binary_header_bytes, uint_bytes
from whence.errors import ParameterError
from whence.overlay.domain_graph import DomainGraph, domain_graph, organised
from whence.protocols.domains.clock import CLOCKS, STAMPS, Stamp
from whence.protocols.domains.consumer import Consumer, HandOn
from whence.protocols.domains.unicast import Unicast, pair


class DomainPacket(NamedTuple):
    """One hop, in a domain by its index, of message `number` from member `origin` to member `to`."""

    domain: int
    origin: int
    to: int
    number: int
    sent: int  # messages of this hop's pair of servers in this domain, this one included
    stamp: Stamp  # of this domain; servers by their places in it
    payload: bytes


class Domains(Unicast):
    """Causal order across domains.

    `domains`: lists of names, or "flat", "bus", "daisy", "tree"; `size`: 0 for the root of their number.
    `unsafe_cycles` lets a cyclic graph pass, to show what it does to order.
    """

    name: ClassVar[str] = "domains"
    packet_type: ClassVar[type[Packet]] = DomainPacket

    parameters: ClassVar[Parameters] = Parameters(
        anything("domains", "bus", "lists of names, or flat, bus, daisy, tree"),
        whole("size", 0, 0),
        STAMPS,
        flag("unsafe_cycles", default=False),
    )

    def __init__(self, me: NodeId, members: Iterable[NodeId], **given: Any) -> None:
        super().__init__(me, members)
        options = self.parameters.read(self.name, given)
        self.graph = self._make_graph(options["domains"], options["size"], options["unsafe_cycles"])
        self.routes = self.graph.routes(me)
        self.places: dict[int, dict[NodeId, int]] = {}  # domain -> server -> its place there
        self.consumers: dict[int, Consumer] = {}
        for domain in self.graph.domains_of[me]:
            group = sorted(self.graph.groups[domain])
            self.places[domain] = {server: place for place, server in enumerate(group)}
            clock = CLOCKS[options["stamps"]](len(group), self.places[domain][me])
            self.consumers[domain] = Consumer(clock)

    def _make_graph(
        self, domains: str | Sequence[Sequence[NodeId]], size: int, unsafe_cycles: bool
    ) -> DomainGraph:
        groups = organised(domains, self.members, size) if isinstance(domains, str) else domains
        graph = domain_graph(groups, allow_cycles=unsafe_cycles)
        if graph.servers != self.members:
            odd = sorted(set(graph.servers) ^ set(self.members))[0]
            raise ParameterError(
                "domains", f"{odd!r} is a member without a domain, or a stranger in one", "Place every member"
            )
        return graph

    @property
    def linked(self) -> frozenset[NodeId]:
        """The servers of this server's domains."""
        groups = (self.graph.groups[domain] for domain in self.consumers)
        return frozenset(server for group in groups for server in group) - {self.me}

    def next_hop(self, to: NodeId) -> NodeId:
        return self.routes[to].hop if to in self.routes else to

    # Sending (figure 7, left)

    # rule 004 figure 7: sending over the first hop of the route
    def send(self, to: NodeId, payload: bytes, now_us: int) -> Effects:
        """Send over the first hop of the route. A message to oneself is delivered immediately."""
        self._check_send(to, payload)
        self.last += 1
        if to == self.me:
            return [Deliver(Message(self.me, self.last, payload))]
        effects: Effects = []
        self._forward(self.my_index, self.index[to], self.last, payload, effects)
        return effects

    def _forward(self, origin: int, to: int, number: int, payload: bytes, effects: Effects) -> None:
        """Stamp a message for its next hop and give it to the link: one step."""
        domain, hop = self.routes[self.members[to]]
        count, stamp = self.consumers[domain].clock.next_stamp(self.places[domain][hop])
        self._pass_to(hop, DomainPacket(domain, origin, to, number, count, stamp, payload), effects)

    # Receiving (figure 7, right)

    # rule 004 figure 7: receiving, in the clock of the hop's domain
    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        arrived = cast(DomainPacket, packet)
        refused = self._refuse(peer, arrived)
        if refused is not None:
            return [Discard(id_of(self.members, arrived.origin, arrived.number), peer, refused)]
        effects: Effects = []
        domain = arrived.domain
        source, consumer = self.places[domain][peer], self.consumers[domain]
        if arrived.number <= 0:
            return self._hear(peer, consumer, source, arrived.number, arrived.sent, arrived.stamp)
        hand_on = self._hand_on_to(effects)
        consumer.accept(source, arrived.sent, arrived.stamp, arrived, now_us, hand_on)
        if consumer.marks:
            consumer.begin_lives(hand_on)
        return effects

    def _hand_on_to(self, effects: Effects) -> HandOn:
        return lambda each: self._hand_on(each, effects)

    def _shared_with(self, peer: NodeId) -> list[tuple[Consumer, int]]:
        return [
            (self.consumers[domain], places[peer]) for domain, places in self.places.items() if peer in places
        ]

    def _word(self, consumer: Consumer, number: int, sent: int, stamp: Stamp) -> Packet:
        [domain] = [each for each, mine in self.consumers.items() if mine is consumer]
        return DomainPacket(domain, self.my_index, self.my_index, number, sent, stamp, b"")

    # rule 004 section 4.2: a router stamps a forward in the step that delivers it
    def _hand_on(self, packet: Packet, effects: Effects) -> None:
        """Deliver here, or forward: in the step that merged the clock."""
        _, origin, to, number, _, _, payload = cast(DomainPacket, packet)
        if to == self.my_index:
            effects.append(Deliver(Message(self.members[origin], number, payload)))
        else:
            self._forward(origin, to, number, payload, effects)

    def _refuse(self, peer: NodeId, packet: DomainPacket) -> Reason | None:
        domain, origin, to, number, count, stamp, _ = packet
        if peer not in self.neighbours or domain not in self.consumers or peer not in self.places[domain]:
            return Reason.NOT_A_NEIGHBOUR
        if not (0 <= origin < len(self.members) and 0 <= to < len(self.members)) or origin == self.my_index:
            return Reason.FORGED if origin == self.my_index else Reason.UNKNOWN_ORIGIN
        if abs(number) >= NUMBER_MAX or (number <= 0 and self.members[origin] != peer):
            return Reason.MALFORMED
        if number <= 0:
            return None
        if to != self.my_index and self.routes[self.members[to]].domain == domain:
            return Reason.MISROUTED  # the way on leads back into the domain that it came from
        return self.consumers[domain].refuse(self.places[domain][peer], count, stamp)

    # The rest of the contract

    @property
    def waiting(self) -> int:
        return sum(len(consumer.held) for consumer in self.consumers.values())

    def explain(self) -> list[Waiting]:
        waiting = []
        for domain, consumer in self.consumers.items():
            group = list(self.places[domain])
            for (source, count), (early, since_us) in consumer.held.items():
                packet = cast(DomainPacket, early.packet)
                ids = tuple(pair(group[k], self.me, c) for k, c in consumer.missing(source, count))
                id_ = MessageId(self.members[packet.origin], packet.number)
                waiting.append(Waiting(id_, since_us, ids))
        return sorted(waiting)

    def check(self) -> None:
        for consumer in self.consumers.values():
            broken = consumer.broken_rule()
            self._require(broken is None, broken or "")

    def save(self) -> State:
        consumers = [[domain, consumer.save()] for domain, consumer in self.consumers.items()]
        return {**self._save_links(), "consumers": consumers}

    def restore(self, state: State) -> None:
        self._restore_links(state)
        for domain, saved in state["consumers"]:
            self.consumers[domain].restore(saved, DomainPacket)

    def message_of(self, packet: Packet) -> MessageId | None:
        return id_of(self.members, packet[1], packet[3])

    def sizes(self, packet: Packet) -> Sizes:
        domain, origin, to, number, count, stamp, payload = cast(DomainPacket, packet)
        control = FRAME_BYTES + array_header_bytes(7)
        control += sum(map(uint_bytes, (domain, origin, to, abs(number), count)))
        control += array_header_bytes(len(stamp)) + sum(map(uint_bytes, stamp))
        control += binary_header_bytes(len(payload))
        return Sizes(control + len(payload), control)

    def entries(self) -> int:
        return sum(consumer.entries() for consumer in self.consumers.values()) + len(self.routes)
