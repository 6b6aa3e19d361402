"""BSS: causal broadcast in which every message carries its sender's whole vector clock.

Guarantee     each message is delivered at most once, after all that happened before its broadcast
Assumptions   a known group; reliable links, which connect it
Source        Birman, Schiper and Stephenson, "Lightweight causal and atomic group multicast" (1991)
"""

from typing import Any, NamedTuple

from whence.core.effects import Deliver, Discard, Effects, Reason, Send
from whence.core.group import WINDOW_MAX, check_payload, group_of, id_of, refuse_id
from whence.core.message import Message, MessageId, NodeId, Packet, Sizes, Waiting
from whence.core.parameters import Parameters
from whence.core.sizes import FRAME_BYTES, array_header_bytes, binary_header_bytes, uint_bytes
from whence.protocols.baselines.flooding import Relaying
from whence.protocols.registry import CAUSAL, ProtocolInfo


class BssPacket(NamedTuple):
    """Message `number` of the member at `origin`, after `past[k]` messages of each member k."""

    origin: int
    number: int
    past: tuple[int, ...]
    payload: bytes


class Bss(Relaying):
    """One node; `Relaying` knows its neighbours, and passes first copies on."""

    name, packet_type, parameters = "bss", BssPacket, Parameters()

    def __init__(self, me: NodeId, members: Any) -> None:
        super().__init__(me, relay=True)
        self.members, _, self.my_index = group_of(me, members)
        self.delivered = [0] * len(self.members)
        self.held: dict[tuple[int, int], tuple[BssPacket, int]] = {}  # and since when

    def broadcast(self, payload: bytes, now_us: int) -> Effects:
        check_payload(payload)
        packet = BssPacket(self.my_index, self.last + 1, tuple(self.delivered), payload)
        self.last = self.delivered[self.my_index] = packet.number
        return [Deliver(Message(self.me, self.last, payload)), Send(self.neighbours, packet)]

    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        if refused := self._refuse(peer, *packet):
            return [Discard(self.message_of(packet), peer, refused)]
        effects: Effects = []
        self._pass_on(peer, packet, effects)
        self.held[packet[0], packet[1]] = (BssPacket(*packet), now_us)
        while ready := next((each for each, _ in self.held.values() if not self._missing(each)), None):
            del self.held[ready.origin, ready.number]
            self.delivered[ready.origin] = ready.number
            effects.append(Deliver(Message(self.members[ready.origin], ready.number, ready.payload)))
        return effects

    def _refuse(self, peer: NodeId, origin: int, number: int, past: Any, _: bytes) -> Reason | None:
        if peer not in self.neighbours or (origin, number) in self.held:
            return Reason.DUPLICATE if peer in self.neighbours else Reason.NOT_A_NEIGHBOUR
        if refused := refuse_id(origin, number, self.delivered, self.my_index):
            return refused
        sane = len(past) == len(self.delivered) and past[origin] == number - 1 and min(past) >= 0
        return None if sane and max(past) < max(self.delivered) + WINDOW_MAX else Reason.IMPOSSIBLE

    def _missing(self, packet: BssPacket) -> tuple[MessageId, ...]:
        gaps = zip(self.members, self.delivered, packet.past, strict=True)
        return tuple(MessageId(name, n) for name, done, past in gaps for n in range(done + 1, past + 1))

    waiting = property(lambda self: len(self.held))

    def explain(self) -> list[Waiting]:
        return [Waiting(self.message_of(each), us, self._missing(each)) for each, us in self.held.values()]

    def check(self) -> None:
        self._require(all(self._missing(each) for each, _ in self.held.values()), "nothing ready is held")

    def save(self) -> dict[str, Any]:
        held = [[*packet, since_us] for packet, since_us in self.held.values()]
        return {"delivered": self.delivered[:], "peers": list(self.neighbours), "held": held}

    def restore(self, state: dict[str, Any]) -> None:
        self.delivered, self.last = state["delivered"], state["delivered"][self.my_index]
        self._set_neighbours(set(state["peers"]))
        self.held = {(i, n): (BssPacket(i, n, tuple(p), b), us) for i, n, p, b, us in state["held"]}

    def message_of(self, packet: Packet) -> Any:
        return id_of(self.members, packet[0], packet[1])

    def sizes(self, packet: Packet) -> Sizes:
        *ids, past, payload = packet
        control = FRAME_BYTES + 1 + array_header_bytes(len(past)) + binary_header_bytes(len(payload))
        control += sum(map(uint_bytes, (*ids, *past)))
        return Sizes(control + len(payload), control)

    def entries(self) -> int:
        return len(self.delivered) * (1 + len(self.held))


PROTOCOLS = (ProtocolInfo.of(Bss, CAUSAL, environment="a known group", summary="whole vector clocks"),)
