"""PRC: preventive reliable causal broadcast over links that open and close at any time.

Guarantee     every process delivers each message at most once, after everything that happened before its
              broadcast; what a surviving process delivers, every surviving process delivers (those that
              were there when it was broadcast). A message carries one number. Memory depends on what is
              in transit and on the degree, and is empty when nothing is under way.
              Not guaranteed: uniform agreement. A process delivers its own message at once; if it crashes
              then, nobody else may have it (`own_after_echo` narrows this: docs/prc.md).
Assumptions   links are reliable and FIFO while they are up, control and messages in one queue; a link that
              goes down takes with it what was in flight (all that follows the first loss), and `link_down`
              comes before a new `link_up` of the same peer; the graph of safe links stays connected.
Source        paper 003, section 2.4, Algorithm 2, with the repairs that prc_handshake.py lists.

    symbol                          here
    Qo, Qi, E                       out_view, in_view, expected (link_memory.py)
    B[to]                           opening[to].delivered
    S[from] = (Bα, Bπ, receivedπ)   accepting[from] = (before, after, has_pi)
    openo(to)                       open(peer, route)
    closeo, closei                  close(peer), link_down(peer)

Who links to whom is not decided here: an overlay (overlay/spray.py) says `open`, `close`, `mediate`. A host
first brings the link up at both ends, then tells one of them to `open` it along a route of safe links. With
`links = "static"` (default) links that come up before the first message are safe at once, as in Algorithm 1,
so that the protocol runs on any static graph; with "dynamic" a process begins with `found` or `join`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar, cast

from whence.core.effects import Discard, Effects, Reason, Send
from whence.core.message import Message, NodeId, Packet
from whence.core.protocol import State
from whence.protocols.overlaid import RELAY
from whence.protocols.prc_handshake import ACCEPT, OPEN, Handshakes
from whence.protocols.prc_state import WAIT_RETURN, Accepting, Opening
from whence.protocols.prc_wire import (
    ABORT,
    ALPHA,
    BETA,
    BUFFER,
    JOIN,
    MESSAGE,
    PI,
    RETURN,
    RHO,
    ROUTED,
    WELCOME,
    PrcPacket,
    is_well_formed,
    next_hop,
)


class Prc(Handshakes):
    """See the module."""

    name: ClassVar[str] = "prc"

    def __init__(
        self,
        me: NodeId,
        members: Iterable[NodeId],
        *,
        links: str = "static",
        timeout_us: int = 60_000_000,
        attempts: int = 3,
        own_after_echo: bool = False,
    ) -> None:
        super().__init__(
            me, members, links=links, timeout_us=timeout_us, attempts=attempts, own_after_echo=own_after_echo
        )

    # What the overlay and the host say

    def open(self, peer: NodeId, route: tuple[NodeId, ...], now_us: int) -> Effects:
        """Make the link to `peer` safe; `route` leads there over safe links: (me, mediator, ..., peer)."""
        self._require_route(peer, route)
        self.closing.discard(peer)
        if self._is_under_way(peer):
            return []
        if route[1] not in self.out_view:
            effects: Effects = []
            self._close(peer, effects)
            return effects
        return self._start(peer, route, 1, now_us)

    def _is_under_way(self, peer: NodeId) -> bool:
        """A view is a multiset: a link that is safe or being opened is not opened again."""
        return peer in self.out_view or peer in self.opening or peer in self.accepting

    def is_using(self, peer: NodeId) -> bool:
        """Whether a handshake needs the link to `peer`, as its route or because it is being opened."""
        if peer in self.opening or peer in self.accepting:
            return True
        if any(peer in neighbours for neighbours in self.relays.values()):
            return True
        if any(each.route[1] == peer and each.phase != WAIT_RETURN for each in self.opening.values()):
            return True
        return any(each.route[-2] == peer and not each.has_pi for each in self.accepting.values())

    # Packets

    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        packet = cast(PrcPacket, packet)
        kind = packet.kind
        if kind == MESSAGE and not packet.route and not packet.messages:
            return self._receive_message(peer, Message(packet.origin, packet.number, packet.payload), now_us)
        if peer not in self.links:
            return [Discard(None, peer, Reason.NOT_A_NEIGHBOUR)]
        if not is_well_formed(packet) or kind == MESSAGE:
            return [Discard(None, peer, Reason.MALFORMED)]
        if kind in ROUTED:
            effects = self._route(peer, packet, now_us)
        else:
            effects = self._direct(kind)(peer, packet, now_us)
        self._close_unused(effects)
        return effects

    def _direct(self, kind: int) -> Callable[[NodeId, PrcPacket, int], Effects]:
        return {
            BUFFER: self._on_buffer,
            RETURN: self._on_return,
            ABORT: self._on_abort,
            JOIN: self._on_join,
            WELCOME: self._on_welcome,
        }[kind]

    def _route(self, peer: NodeId, packet: PrcPacket, now_us: int) -> Effects:
        """α, β, π, ρ go hop by hop over safe links, behind the messages that went before them."""
        if not self._is_safe_for_control(peer):
            return [Discard(None, peer, Reason.NOT_A_NEIGHBOUR)]
        hop = next_hop(packet, self.me, peer)
        if hop is None:
            return [Discard(None, peer, Reason.MALFORMED)]
        if hop == self.me:
            arrived = {ALPHA: self._on_alpha, BETA: self._on_beta, PI: self._on_pi, RHO: self._on_rho}
            return arrived[packet.kind](peer, packet, now_us)
        if hop not in self.out_view:
            return [Discard(None, peer, Reason.NO_ROUTE)]
        effects: Effects = [Send((hop,), packet)]
        opener, target = packet.route[0], packet.route[-1]
        if packet.kind == RHO:
            self._end_relay(opener, target, effects)
        else:
            effects += self._relay(opener, target, (peer, hop), now_us)
        return effects

    def _is_safe_for_control(self, peer: NodeId) -> bool:
        return self._is_safe(peer)

    # Time

    def timer(self, key: str, now_us: int) -> Effects:
        effects: Effects = []
        if key.startswith(OPEN):
            effects = self._opening_timed_out(key[len(OPEN) :], now_us)
        elif key.startswith(ACCEPT):
            effects = self._accepting_timed_out(key[len(ACCEPT) :])
        elif key.startswith(RELAY):
            self._relay_timed_out(key)
        self._close_unused(effects)
        return effects

    # The contract

    def check(self) -> None:
        super().check()
        self._require(not self.accepting.keys() & self.opening.keys(), "one handshake for each pair")
        self._require(not self.accepting.keys() & self.in_view, "a safe link is not being accepted")
        self._require(self.accepting.keys() | self.opening.keys() <= self.links, "handshakes are for links")
        for peer, opening in self.opening.items():
            is_used = opening.phase == WAIT_RETURN
            self._require((peer in self.out_view) == is_used, f"{peer} is used once Bβ is sent")
            self._require(peer not in self.in_view, f"nothing is expected from {peer} before its answer")

    def save(self) -> State:
        return super().save() | {
            "epoch": self.epoch,
            "opening": {peer: each.save() for peer, each in self.opening.items()},
            "accepting": {peer: each.save() for peer, each in self.accepting.items()},
            "closed": dict(self.closed),
        }

    def restore(self, state: State) -> None:
        super().restore(state)
        self.epoch = state["epoch"]
        self.opening = {peer: Opening.load(each) for peer, each in state["opening"].items()}
        self.accepting = {peer: Accepting.load(each) for peer, each in state["accepting"].items()}
        self.closed = dict(state["closed"])

    def buffered(self) -> int:
        """Entries in buffers: each delivered message once for each link that is being opened."""
        opening = sum(len(each.delivered) for each in self.opening.values())
        return opening + sum(len(each.before) + len(each.after) for each in self.accepting.values())

    def entries(self) -> int:
        handshakes = len(self.opening) + len(self.accepting) + len(self.closed) + len(self.relays)
        return super().entries() + self.buffered() + handshakes
