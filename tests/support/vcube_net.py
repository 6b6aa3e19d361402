"""Nodes of VCube wired together by hand: numbered, with the packets in flight in the test's hands."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from whence.core.effects import Deliver, Discard, Effects, Send
from whence.protocols.vcube.core import VCube
from whence.protocols.vcube.wire import VCubeMessage


def message(origin: int, number: int, after: tuple[int, ...] = (), payload: bytes = b"") -> VCubeMessage:
    """A message made by hand."""
    return VCubeMessage(origin, number, after, payload)


class Flight(NamedTuple):
    """A packet on its way; `ids` are its messages as "origin:number"."""

    sender: int
    to: int
    ids: list[str]
    packet: Any


class VCubeNet(ABC):
    """What every such net has, whatever its nodes are; the judge's knowledge is kept here."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.flying: list[Flight] = []
        self.sent: Counter[tuple[int, int, str]] = Counter()  # (sender, to, message)
        self.packets = 0
        self.delivered: list[list[str]] = [[] for _ in range(count)]
        self.past: dict[str, set[str]] = {}  # message -> what its origin had broadcast or delivered before
        self.broadcasts = [0] * count
        self.on_delivery: Callable[[int, str], None] = lambda node, id_: None

    @abstractmethod
    def _broadcast(self, node: int) -> None:
        """Let the node broadcast."""

    @abstractmethod
    def _receive(self, node: int, sender: int, packet: Any) -> None:
        """Give the node a packet."""

    def broadcast(self, node: int) -> None:
        self.broadcasts[node] += 1
        self.past[f"{node}:{self.broadcasts[node]}"] = set(self.delivered[node])
        self._broadcast(node)

    def arrive(self, at: int, *, keep: bool = False) -> None:
        """Packet number `at` in flight arrives; with `keep` a copy stays in flight."""
        flight = self.flying[at] if keep else self.flying.pop(at)
        self._receive(flight.to, flight.sender, flight.packet)

    def arrive_at(self, to: int, ids: list[str]) -> None:
        """The packet with just these messages arrives at a node."""
        self.arrive(next(at for at, fly in enumerate(self.flying) if (fly.to, fly.ids) == (to, ids)))

    def settle(self) -> None:
        while self.flying:
            self.arrive(0)

    def put(self, sender: int, to: int, packet: Any, ids: list[str]) -> None:
        """A node has sent a packet."""
        self.packets += 1
        self.flying.append(Flight(sender, to, ids, packet))
        self.sent.update((sender, to, id_) for id_ in ids)

    def give(self, node: int, id_: str) -> None:
        """A node has delivered a message."""
        self.delivered[node].append(id_)

    def problems(self) -> set[str]:
        """What is wrong: "causal", "duplicate", "missing", and "sent twice" to the same child."""
        found = {"sent twice"} if any(times > 1 for times in self.sent.values()) else set()
        for ids in self.delivered:
            seen: set[str] = set()
            for id_ in ids:
                if id_ in seen:
                    found.add("duplicate")
                if not self.past[id_] <= seen:
                    found.add("causal")
                seen.add(id_)
            if seen != set(self.past):
                found.add("missing")
        return found


class CoreNet(VCubeNet):
    """The cores that Whence ships, linked each to each."""

    def __init__(self, count: int, make: Callable[..., VCube] = VCube, **params: Any) -> None:
        super().__init__(count)
        self.names = [f"n{node:02d}" for node in range(count)]
        self.new = lambda node: make(self.names[node], self.names, **params)
        self.cores = [self.new(node) for node in range(count)]
        self.discards: list[Discard] = []
        self.now_us = 0
        for core in self.cores:
            for name in self.names:
                if name != core.me:
                    core.link_up(name, 0)

    def _broadcast(self, node: int) -> None:
        self.now_us += 1
        self._carry_out(node, self.cores[node].broadcast(b"", self.now_us))

    def _receive(self, node: int, sender: int, packet: Any) -> None:
        self.now_us += 1
        self._carry_out(node, self.cores[node].receive(self.names[sender], packet, self.now_us))

    def _carry_out(self, node: int, effects: Effects) -> None:
        delivered = []
        for effect in effects:
            if isinstance(effect, Send):
                ids = [f"{message.origin}:{message.number}" for message in effect.packet[0]]
                for name in effect.to:
                    self.put(node, self.names.index(name), effect.packet, ids)
            elif isinstance(effect, Deliver):
                origin = self.names.index(effect.message.origin)
                delivered.append(f"{origin}:{effect.message.number}")
                self.give(node, delivered[-1])
            elif isinstance(effect, Discard):
                self.discards.append(effect)
        for id_ in delivered:  # a host carries out all effects of an input before it gives the next one
            self.on_delivery(node, id_)

    def restart(self, node: int) -> None:
        """Replace a core by one that was restored from what it saved."""
        state = self.cores[node].save()
        self.cores[node] = self.new(node)
        self.cores[node].restore(state)
        assert self.cores[node].save() == state

    def check(self) -> None:
        for core in self.cores:
            core.check()


def drive(net: VCubeNet, seed: int, *, replies: bool = False, copies: bool = False) -> None:
    """One random schedule: broadcasts with arrivals in any order between them, until all is quiet.

    With `replies`, applications answer what they are given; with `copies`, the network duplicates.
    """
    draw = random.Random(seed)
    left = 3 * net.count

    def answer(node: int, id_: str) -> None:
        nonlocal left
        if replies and left > 0 and not id_.startswith(f"{node}:") and draw.random() < 0.4:
            left -= 1
            net.broadcast(node)

    net.on_delivery = answer
    for _ in range(2 * net.count):
        net.broadcast(draw.randrange(net.count))
        for _ in range(draw.randrange(6)):
            if net.flying:
                net.arrive(draw.randrange(len(net.flying)))
    while net.flying:
        net.arrive(draw.randrange(len(net.flying)), keep=copies and draw.random() < 0.1)
