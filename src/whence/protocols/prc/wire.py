"""What PRC-broadcast sends: one packet type for messages, control and buffers.

    kind        way                              origin     number   route      messages
    MESSAGE     every safe link                  of the message      -          -
    ALPHA, PI   opener -> target, safe links     opener     epoch    all hops   -
    BETA, RHO   target -> opener, safe links     opener     epoch    all hops   -
    BUFFER      opener -> target, the new link   opener     epoch    -          Bβ, in order of delivery
    RETURN      target -> opener, the new link   opener     epoch    -          Bπ \\ Bβ of the target
    ABORT       opener -> target, the new link   opener     epoch    -          -
    JOIN        joiner -> contact, the new link  joiner     -        -          -
    WELCOME     contact -> joiner, the new link  joiner     -        -          - (preventive: its memory)

`number` is the only clock on a message. A route names every node of the way, the opener first.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from whence.core.message import NUMBER_MAX, Message, NodeId, Sizes
from whence.core.sizes import FRAME_BYTES, array_header_bytes, binary_header_bytes, text_bytes, uint_bytes

MESSAGE, ALPHA, BETA, PI, RHO, BUFFER, RETURN, ABORT, JOIN, WELCOME = range(10)
NAMES = dict(
    enumerate(["message", "alpha", "beta", "pi", "rho", "buffer", "return", "abort", "join", "welcome"])
)
FORWARD = frozenset({ALPHA, PI})
ROUTED = frozenset({ALPHA, BETA, PI, RHO})
ROUTE_MAX = 64  # nodes of a route; an overlay has a diameter of a few hops
NAME_MAX = 255

Buffered: TypeAlias = tuple[NodeId, int, bytes]  # (origin, number, payload)


class PrcPacket(NamedTuple):
    """A message, control of a handshake, or a buffer."""

    kind: int
    origin: NodeId
    number: int
    payload: bytes
    route: tuple[NodeId, ...]
    messages: tuple[Buffered, ...]


def message_packet(message: Message) -> PrcPacket:
    """A message on its way."""
    return PrcPacket(MESSAGE, *message, (), ())


def routed(kind: int, opener: NodeId, epoch: int, route: tuple[NodeId, ...]) -> PrcPacket:
    """One of α, β, π, ρ."""
    return PrcPacket(kind, opener, epoch, b"", route, ())


def direct(kind: int, opener: NodeId, epoch: int, messages: tuple[Buffered, ...] = ()) -> PrcPacket:
    """Control that goes over the new link itself."""
    return PrcPacket(kind, opener, epoch, b"", (), messages)


def is_well_formed(packet: PrcPacket) -> bool:
    """Whether a correct node could have sent this, whatever its state."""
    kind, origin, number, payload, route, messages = packet
    if not MESSAGE <= kind <= WELCOME or not _is_name(origin) or not 0 < number < NUMBER_MAX:
        return False
    if (kind != MESSAGE and payload) or (messages and kind not in (BUFFER, RETURN, WELCOME)):
        return False
    return _is_right_route(kind, origin, route) and _are_right(messages)


def _is_right_route(kind: int, origin: NodeId, route: tuple[NodeId, ...]) -> bool:
    if kind not in ROUTED:
        return not route
    if not 3 <= len(route) <= ROUTE_MAX or len(set(route)) != len(route) or route[0] != origin:
        return False
    return all(map(_is_name, route))


def _are_right(messages: tuple[Buffered, ...]) -> bool:
    if any(not _is_name(name) or not 0 < number < NUMBER_MAX for name, number, _ in messages):
        return False
    return len({(name, number) for name, number, _ in messages}) == len(messages)


def _is_name(name: NodeId) -> bool:
    return 0 < len(name) <= NAME_MAX


def next_hop(packet: PrcPacket, me: NodeId, peer: NodeId) -> NodeId | None:
    """Where a routed packet that `peer` handed over goes next: `me` at its end, None if it is lost here."""
    route = packet.route
    if me not in route:
        return None
    at = route.index(me)
    step = 1 if packet.kind in FORWARD else -1
    if not 0 <= at - step < len(route) or route[at - step] != peer:
        return None
    return route[at + step] if 0 <= at + step < len(route) else me


def packet_sizes(packet: PrcPacket) -> Sizes:
    """Bytes on the wire; payloads in a buffer are payload there too."""
    _, origin, number, payload, route, messages = packet
    control = FRAME_BYTES + array_header_bytes(6) + uint_bytes(packet.kind)
    control += text_bytes(origin) + uint_bytes(number) + binary_header_bytes(len(payload))
    control += array_header_bytes(len(route)) + sum(map(text_bytes, route))
    control += array_header_bytes(len(messages))
    total = len(payload)
    for name, count, content in messages:
        control += array_header_bytes(3) + text_bytes(name) + uint_bytes(count)
        control += binary_header_bytes(len(content))
        total += len(content)
    return Sizes(control + total, control)
