"""A few cores wired together by hand: packets wait in plain lists until a test moves them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from whence.core.effects import Deliver, Discard, Effects, Send
from whence.core.message import Message, NodeId, Packet
from whence.core.protocol import Protocol
from whence.protocols import registry


class Bench:
    """Cores on a full mesh (or the given links), with the packets in flight in the test's hands."""

    def __init__(
        self,
        protocol: str,
        members: str | list[str] = "abc",
        links: list[tuple[str, str]] | None = None,
        make: Callable[..., Protocol] | None = None,
        **params: Any,
    ) -> None:
        self.members = list(members)
        self.now_us = 0
        factory = make or (lambda me, group, **given: registry.make(protocol, me, group, given))
        self.cores = {me: factory(me, self.members, **params) for me in self.members}
        self.flying: list[tuple[NodeId, NodeId, Packet]] = []  # (from, to, packet)
        self.delivered: dict[NodeId, list[Message]] = {me: [] for me in self.members}
        self.discarded: dict[NodeId, list[Discard]] = {me: [] for me in self.members}
        self.params = params
        self.factory = factory
        for left, right in links or [(a, b) for a in self.members for b in self.members if a < b]:
            self.cores[left].link_up(right, 0)
            self.cores[right].link_up(left, 0)

    def broadcast(self, node: NodeId, payload: bytes = b"") -> None:
        self.now_us += 1
        self._carry_out(node, self.cores[node].broadcast(payload, self.now_us))

    def arrive(self, at: int, *, keep: bool = False) -> None:
        """Packet number `at` in flight arrives; with `keep` a copy stays in flight (a duplicate)."""
        sender, to, packet = self.flying[at] if keep else self.flying.pop(at)
        self.receive(to, sender, packet)

    def receive(self, node: NodeId, peer: NodeId, packet: Packet) -> None:
        self.now_us += 1
        self._carry_out(node, self.cores[node].receive(peer, packet, self.now_us))

    def arrive_from_to(self, sender: NodeId, to: NodeId) -> None:
        """The oldest packet on that link arrives."""
        self.arrive(next(at for at, fly in enumerate(self.flying) if fly[:2] == (sender, to)))

    def settle(self) -> None:
        """Let everything in flight arrive, oldest first."""
        while self.flying:
            self.arrive(0)

    def restart(self, node: NodeId) -> None:
        """Replace a core by one that was restored from what it saved."""
        state = self.cores[node].save()
        self.cores[node] = self.factory(node, self.members, **self.params)
        self.cores[node].restore(state)

    def ids(self, node: NodeId) -> list[str]:
        """What a node has delivered, in order, as "a:1"."""
        return [str(message.id) for message in self.delivered[node]]

    def _carry_out(self, node: NodeId, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self.flying += [(node, to, effect.packet) for to in effect.to]
            elif isinstance(effect, Deliver):
                self.delivered[node].append(effect.message)
            elif isinstance(effect, Discard):
                self.discarded[node].append(effect)
