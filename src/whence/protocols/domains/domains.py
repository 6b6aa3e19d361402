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

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, cast

from whence.core.effects import Deliver, Discard, Effects, Reason
from whence.core.group import NUMBER_MAX, id_of
from whence.core.lives import SHAPE
from whence.core.message import Message, MessageId, NodeId, Packet, Sizes, Waiting
from whence.core.parameters import Parameters, anything, flag, whole
from whence.core.protocol import State
from whence.core.sizes import (
    FRAME_BYTES,
    array_header_bytes,
    binary_header_bytes,
    uint_array_bytes,
    uint_bytes,
)
from whence.errors import MisuseError, ParameterError
from whence.overlay.domain_graph import DomainGraph, Route, domain_graph, organised
from whence.overlay.shape import Shape, first_shape, shape_of
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

    `domains`: lists of names, or "flat", "bus", "daisy", "tree"; `size`: 0 for the root of their number. Or
    the shape of a system that may change (overlay/shape.py), as plain data.
    `unsafe_cycles` lets a cyclic graph pass, to show what it does to order.
    """

    name: ClassVar[str] = "domains"
    packet_type: ClassVar[type[Packet]] = DomainPacket
    routes_for_others: ClassVar[bool] = True

    parameters: ClassVar[Parameters] = Parameters(
        anything("domains", "bus", "lists of names, or flat, bus, daisy, tree"),
        whole("size", 0, 0),
        STAMPS,
        flag("unsafe_cycles", default=False),
    )

    def __init__(self, me: NodeId, members: Iterable[NodeId], **given: Any) -> None:
        options = self.parameters.read(self.name, given)
        domains = options["domains"]
        super().__init__(me, domains["seats"] if isinstance(domains, Mapping) else members)
        self._stamps: str = options["stamps"]
        self.places: dict[int, dict[NodeId, int]] = {}  # domain -> server -> its place there
        self.consumers: dict[int, Consumer] = {}
        self.newest: dict[int, int] = {}  # of each origin beyond a router, the newest number delivered
        self.is_shaped = isinstance(domains, Mapping)
        if self.is_shaped:
            self._take_shape(shape_of(domains))
        else:
            graph = self._make_graph(domains, options["size"], options["unsafe_cycles"])
            self._take_shape(first_shape(graph), graph)

    def _take_shape(self, shape: Shape, graph: DomainGraph | None = None) -> None:
        """Be where `shape` says; what there is of a domain that goes on is kept."""
        me = self.me
        self.shape: Shape = shape
        self.graph = graph = graph or shape.graph()
        self.members = shape.seats
        self.index = {server: seat for seat, server in enumerate(shape.seats)}
        self.my_index = self.index[me]
        mine = shape.of(me)
        for domain in set(self.consumers) - set(mine):
            del self.consumers[domain], self.places[domain]
        for domain, of in mine.items():
            self.places[domain] = places = {server: place for place, server in enumerate(of.places)}
            if domain not in self.consumers:
                self.consumers[domain] = Consumer(CLOCKS[self._stamps](len(places), places[me]))
            clock = self.consumers[domain].clock
            if clock.size < len(places):
                clock.grow(len(places))
            clock.gone.update(places[server] for server in of.left)
        wire = [shape.wire_index(name) for name in graph.names]
        self.routes = {to: Route(wire[way.domain], way.hop) for to, way in graph.routes(me).items()}
        beyond: dict[NodeId, list[NodeId]] = {}
        for to, way in self.routes.items():
            beyond.setdefault(way.hop, []).append(to)
        self._beyond = {hop: frozenset(servers) for hop, servers in beyond.items()}

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
        return self.shape.neighbours(self.me)

    # A system that changes (overlay/shape.py)

    def command(self, verb: str, names: tuple[NodeId, ...], now_us: int) -> Effects:
        if verb != SHAPE:
            return super().command(verb, names, now_us)
        self._take_shape(shape_of(names[0]))
        effects: Effects = []
        for peer in [*self.neighbours, *self.unsent]:
            if peer not in self.linked:
                self.neighbours.discard(peer)
                self.unsent.pop(peer, None)
        for consumer in self.consumers.values():
            consumer.look_again(self._hand_on_to(effects))
            self._tell_and_ask(consumer, effects)
        return effects

    def agreement(self, peer: NodeId) -> dict[str, Any]:
        """The seats, and the domains that are shared: the rest is no matter between the two."""
        if not self.is_shaped:
            return {}
        shared = {
            f"domain {domain.name!r}": [at, domain.places, domain.left]
            for at, domain in self.shape.of(self.me).items()
            if peer in domain.servers
        }
        return {"seats": self.members, **shared}

    def held_packets(self) -> list[DomainPacket]:
        """What waits here for what precedes it, or for a link."""
        held = [early.packet for consumer in self.consumers.values() for early, _ in consumer.held.values()]
        unsent = [packet for packets in self.unsent.values() for packet in packets]
        return [cast(DomainPacket, packet) for packet in (*held, *unsent)]

    def understands(self, packets: Sequence[Packet]) -> bool:
        """Whether this node knows all that packets name; otherwise the peer knows of a later change."""
        return all(origin < len(self.members) > to for _, origin, to, *_ in packets)

    def next_hop(self, to: NodeId) -> NodeId:
        return self.routes[to].hop if to in self.routes else to

    def destinations_over(self, hop: NodeId) -> frozenset[NodeId]:
        return self._beyond.get(hop, frozenset())

    # Sending (figure 7, left)

    # rule 004 figure 7: sending over the first hop of the route
    def send(self, to: NodeId, payload: bytes, now_us: int) -> Effects:
        """Send over the first hop of the route. A message to oneself is delivered immediately."""
        self._check_send(to, payload)
        if to not in self.routes and to != self.me:
            raise MisuseError(f"destination {to!r}", "it is not in the system any more", "Name a server")
        self.last += 1
        if to == self.me:
            return [Deliver(Message(self.me, self.last, payload))]
        effects: Effects = []
        self._forward(self.my_index, self.index[to], self.last, payload, effects)
        return effects

    def _forward(self, origin: int, to: int, number: int, payload: bytes, effects: Effects) -> None:
        """Stamp a message for its next hop and give it to the link: one step."""
        domain, hop = self.routes[self.members[to]]
        if self.places[domain][hop] in self.consumers[domain].clock.gone:  # retired: no node waits for it
            effects.append(Discard(id_of(self.members, origin, number), hop, Reason.GONE))
            return
        count, stamp = self.consumers[domain].clock.next_stamp(self.places[domain][hop])
        self._pass_to(hop, DomainPacket(domain, origin, to, number, count, stamp, payload), effects)

    # Receiving (figure 7, right)

    # rule 004 figure 7: receiving, in the clock of the hop's domain
    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        arrived = cast(DomainPacket, packet)
        refused = self._refuse(peer, arrived)
        effects: Effects = []
        if refused is Reason.IMPOSSIBLE:
            place, consumer = self.places[arrived.domain][peer], self.consumers[arrived.domain]
            if self._is_of_a_copy(consumer, place, arrived.stamp, effects):
                refused = self._refuse(peer, arrived)
        if refused is not None:
            effects.append(Discard(id_of(self.members, arrived.origin, arrived.number), peer, refused))
            if arrived.domain in self.consumers:
                self._tell_and_ask(self.consumers[arrived.domain], effects)
            return effects
        domain = arrived.domain
        source, consumer = self.places[domain][peer], self.consumers[domain]
        if arrived.number <= 0:
            return self._hear(peer, consumer, source, arrived.number, arrived.sent, arrived.stamp)
        hand_on = self._hand_on_to(effects)
        consumer.accept(source, arrived.sent, arrived.stamp, arrived, now_us, hand_on)
        if consumer.marks:
            consumer.begin_lives(hand_on)
        if consumer.skipped or consumer.doubts:
            self._tell_and_ask(consumer, effects)
        return effects

    def _hand_on_to(self, effects: Effects) -> HandOn:
        return lambda source, each: self._hand_on(source, each, effects)

    def _shared_with(self, peer: NodeId) -> list[tuple[Consumer, int]]:
        return [
            (self.consumers[domain], places[peer]) for domain, places in self.places.items() if peer in places
        ]

    def _word(self, consumer: Consumer, number: int, sent: int, stamp: Stamp) -> Packet:
        [domain] = [each for each, mine in self.consumers.items() if mine is consumer]
        return DomainPacket(domain, self.my_index, self.my_index, number, sent, stamp, b"")

    # rule 004 section 4.2: a router stamps a forward in the step that delivers it
    def _hand_on(self, hop: int, packet: Packet, effects: Effects) -> None:
        """Deliver or forward what came from place `hop`, in the step that merged the clock."""
        domain, origin, to, number, _, _, payload = cast(DomainPacket, packet)
        if to != self.my_index:
            self._forward(origin, to, number, payload, effects)
            return
        source = self.members[origin]
        if source not in self.places[domain]:
            # A router that lost its state may forward again. One way leads from there to here, in order.
            if number <= self.newest.get(origin, 0):
                effects.append(
                    Discard(MessageId(source, number), [*self.places[domain]][hop], Reason.DUPLICATE)
                )
                return
            self.newest[origin] = number
        effects.append(Deliver(Message(source, number, payload)))

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
        if to != self.my_index:
            way = self.routes.get(self.members[to])
            if way is None or way.domain == domain:  # or it leads back into the domain that it came from
                return Reason.NO_ROUTE if way is None else Reason.MISROUTED
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
        shape = {"shape": self.shape.plain()} if self.is_shaped else {}
        newest = {"newest": sorted(self.newest.items())} if self.newest else {}
        return {**self._save_links(), "consumers": consumers, **shape, **newest}

    def restore(self, state: State) -> None:
        if self.is_shaped and "shape" in state:
            self._take_shape(shape_of(state["shape"]))
        self._restore_links(state)
        self.newest = dict(state.get("newest", []))
        for domain, saved in state["consumers"]:
            self.consumers[domain].restore(saved, DomainPacket)

    def message_of(self, packet: Packet) -> MessageId | None:
        return id_of(self.members, packet[1], packet[3])

    def sizes(self, packet: Packet) -> Sizes:
        domain, origin, to, number, count, stamp, payload = cast(DomainPacket, packet)
        control = FRAME_BYTES + array_header_bytes(7)
        control += sum(map(uint_bytes, (domain, origin, to, abs(number), count)))
        control += uint_array_bytes(stamp)
        control += binary_header_bytes(len(payload))
        return Sizes(control + len(payload), control)

    def entries(self) -> int:
        return sum(consumer.entries() for consumer in self.consumers.values()) + len(self.routes)
