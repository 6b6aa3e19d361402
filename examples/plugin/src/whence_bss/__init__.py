"""BSS: causal broadcast in which every message carries its sender's whole vector clock.

Guarantee     each message is delivered at most once, after all that happened before its broadcast
Assumptions   a known group; reliable links, which connect it
Source        Birman, Schiper and Stephenson, "Lightweight causal and atomic group multicast" (1991)
"""

from typing import Any, NamedTuple

from whence.core.effects import Deliver, Effects, Reason, Send
from whence.core.group import WINDOW_MAX, check_payload, refuse_id
from whence.core.message import Message, MessageId, NodeId, Packet, Sizes, Waiting
from whence.core.sizes import FRAME_BYTES, array_header_bytes, binary_header_bytes, uint_bytes
from whence.protocols.baselines.flooding import Flooding
from whence.protocols.registry import CAUSAL, ProtocolInfo


class BssPacket(NamedTuple):
    """Message `number` of the member at `origin`, after `past[k]` messages of each member k."""

    origin: int
    number: int
    past: tuple[int, ...]
    payload: bytes


class Bss(Flooding):
    """One node; `Flooding` passes first copies on and asks what to refuse and what to accept."""

    name, packet_type = "bss", BssPacket

    def __init__(self, me: NodeId, members: Any, **given: Any) -> None:
        super().__init__(me, members, **given)
        self.delivered = [0] * len(self.members)
        self.held: dict[tuple[int, int], tuple[BssPacket, int]] = {}  # and since when

    def broadcast(self, payload: bytes, now_us: int) -> Effects:
        check_payload(payload)
        packet = BssPacket(self.my_index, self.last + 1, tuple(self.delivered), payload)
        self.last = self.delivered[self.my_index] = packet.number
        return [Deliver(Message(self.me, self.last, payload)), Send(self.neighbours, packet)]

    def _refuse(self, packet: Packet) -> Reason | None:
        origin, number, past, _ = packet
        if refused := refuse_id(origin, number, self.delivered, self.my_index):
            return refused
        if (origin, number) in self.held:
            return Reason.DUPLICATE
        sane = len(past) == len(self.delivered) and past[origin] == number - 1 and min(past) >= 0
        return None if sane and max(past) < max(self.delivered) + WINDOW_MAX else Reason.IMPOSSIBLE

    def _accept(self, packet: Packet, now_us: int, effects: Effects) -> None:
        self.held[packet[0], packet[1]] = (BssPacket(*packet), now_us)
        while ready := next((each for each, _ in self.held.values() if not self._behind(each)), None):
            del self.held[ready.origin, ready.number]
            self.delivered[ready.origin] = ready.number
            effects.append(Deliver(Message(self.members[ready.origin], ready.number, ready.payload)))

    def _behind(self, packet: BssPacket) -> list[int]:
        return [k for k, count in enumerate(packet.past) if count > self.delivered[k]]

    @property
    def waiting(self) -> int:
        return len(self.held)

    def explain(self) -> list[Waiting]:
        return [self._why(packet, since_us) for _, (packet, since_us) in sorted(self.held.items())]

    def _why(self, packet: BssPacket, since_us: int) -> Waiting:
        past, done, name = packet.past, self.delivered, self.members
        gaps = [(k, n) for k in self._behind(packet) for n in range(done[k] + 1, past[k] + 1)]
        ids = tuple(MessageId(name[k], n) for k, n in gaps if (k, n) not in self.held)
        return Waiting(MessageId(name[packet.origin], packet.number), since_us, ids)

    def check(self) -> None:
        self._require(all(self._behind(each) for each, _ in self.held.values()), "nothing ready is held")

    def save(self) -> dict[str, Any]:
        held = [[*packet, since_us] for packet, since_us in self.held.values()]
        return {"delivered": self.delivered[:], "neighbours": list(self.neighbours), "held": held}

    def restore(self, state: dict[str, Any]) -> None:
        self.delivered = list(state["delivered"])
        self.last = self.delivered[self.my_index]
        self._set_neighbours(set(state["neighbours"]))
        for origin, number, past, payload, since_us in state["held"]:
            self.held[origin, number] = (BssPacket(origin, number, tuple(past), payload), since_us)

    def sizes(self, packet: Packet) -> Sizes:
        *ids, past, payload = packet
        control = FRAME_BYTES + array_header_bytes(4) + array_header_bytes(len(past))
        control += sum(map(uint_bytes, (*ids, *past))) + binary_header_bytes(len(payload))
        return Sizes(control + len(payload), control)

    def entries(self) -> int:
        return len(self.delivered) * (1 + len(self.held))


PROTOCOLS = (ProtocolInfo.of(Bss, CAUSAL, environment="a known group", summary="whole vector clocks"),)
