"""`waiting` is the length of `explain`, after every step of every protocol, and after a restart."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from whence.core.effects import CancelTimer, CloseLink, Effects, Send, SetTimer, Stop
from whence.core.message import NodeId, Packet
from whence.core.protocol import Protocol
from whence.protocols import registry

MEMBERS = ["a", "b", "c", "d"]
STEPS = 400
SEEDS = 8

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "fifo": ("fifo", {}),
    "reliable": ("reliable", {}),
    "vector": ("vector", {}),
    "vcube": ("vcube", {}),
    "vcube, no aggregation": ("vcube", {"aggregate": False}),
    "vcube, one tree": ("vcube", {"tree": "single"}),
    "vcube, members": ("vcube", {"detect": True, "test_interval_us": 300, "test_timeout_us": 3_000}),
    "barrier": ("barrier", {"lifetime_us": 900}),
    "barrier, published": ("barrier", {"mode": "published", "lifetime_us": 900}),
    "oppnet": ("oppnet", {"gap_us": 5, "setup_max_us": 20, "lifetime_us": 2_000}),
    "oppnet, published": ("oppnet", {"mode": "published", "gap_us": 5, "setup_max_us": 20, "capacity": 4}),
    "tdca": ("tdca", {"lifetime_us": 900, "margin_us": 10}),
    "tdca, published": ("tdca", {"mode": "published", "lifetime_us": 900, "tick_us": 50}),
    "odca": ("odca", {"lifetime_us": 900, "margin_us": 10, "retry_us": 60}),
    "odca, published": ("odca", {"mode": "published", "lifetime_us": 900, "tick_us": 50}),
    "link_memory": ("link_memory", {"own_after_echo": True}),
    "prc": ("prc", {"own_after_echo": True}),
    "preventive": ("preventive", {}),
    "matrix": ("matrix", {}),
    "domains": ("domains", {"domains": [["a", "b", "c"], ["c", "d"]]}),
}
NEVER_WAIT = {"reliable", "preventive"}


class World:
    """A group on a full mesh: packets arrive in drawn order, some twice, some never; timers fire when due."""

    def __init__(self, protocol: str, params: dict[str, Any], seed: int) -> None:
        self.protocol, self.params = protocol, params
        self.info = registry.lookup(protocol)
        self.draw = Random(seed)
        self.now_us = 0
        self.most = 0  # that ever waited at one node
        self.cores = {me: self._make(me) for me in MEMBERS}
        self.flying: list[tuple[NodeId, NodeId, Packet]] = []
        self.timers: dict[tuple[NodeId, str], int] = {}
        self.stopped: set[NodeId] = set()
        for me in MEMBERS:
            for peer in MEMBERS:
                if peer != me:
                    self._carry_out(me, self.cores[me].link_up(peer, 0))

    def _make(self, me: NodeId) -> Protocol:
        return registry.make(self.protocol, me, MEMBERS, self.params)

    def step(self) -> None:
        self.now_us += self.draw.randrange(1, 30)
        for (node, key), at_us in sorted(self.timers.items(), key=lambda timer: timer[1]):
            if at_us <= self.now_us and self.timers.pop((node, key), None) is not None:
                self._carry_out(node, self.cores[node].timer(key, self.now_us))
        choice = self.draw.random()
        node = self.draw.choice([each for each in MEMBERS if each not in self.stopped])
        if choice < 0.25 and self.cores[node].ready:
            self._say(node)
        elif choice < 0.27:
            self._restart(node)
        elif self.flying:
            self._arrive()

    def _say(self, node: NodeId) -> None:
        if self.info.point_to_point:
            effects = self.cores[node].send(self.draw.choice(MEMBERS), b"x", self.now_us)
        else:
            effects = self.cores[node].broadcast(b"x", self.now_us)
        self._carry_out(node, effects)

    def _restart(self, node: NodeId) -> None:
        state = self.cores[node].save()
        self.cores[node] = self._make(node)
        self.cores[node].restore(state)
        self._look(node)

    def _arrive(self) -> None:
        at = self.draw.randrange(len(self.flying))
        sender, to, packet = self.flying[at]
        if self.info.fifo_links:
            at = next(at for at, fly in enumerate(self.flying) if fly[:2] == (sender, to))
            sender, to, packet = self.flying.pop(at)
        elif self.draw.random() > 0.1:
            self.flying.pop(at)
            if self.info.datagrams and self.draw.random() < 0.2:
                return
        if to not in self.stopped:
            self._carry_out(to, self.cores[to].receive(sender, packet, self.now_us))

    def _carry_out(self, node: NodeId, effects: Effects) -> None:
        self._look(node)
        for effect in effects:
            if isinstance(effect, Send):
                self.flying += [(node, to, effect.packet) for to in effect.to]
            elif isinstance(effect, SetTimer):
                self.timers[node, effect.key] = effect.at_us
            elif isinstance(effect, CancelTimer):
                self.timers.pop((node, effect.key), None)
            elif isinstance(effect, Stop):
                self.stopped.add(node)
            assert not isinstance(effect, CloseLink), "links are static here"

    def _look(self, node: NodeId) -> None:
        core = self.cores[node]
        assert core.waiting == len(core.explain())
        self.most = max(self.most, core.waiting)


def test_every_protocol_is_here() -> None:
    assert {protocol for protocol, _ in VARIANTS.values()} == set(registry.names())


@pytest.mark.parametrize("variant", VARIANTS)
def test_waiting_is_the_length_of_explain(variant: str) -> None:
    protocol, params = VARIANTS[variant]
    most = 0
    for seed in range(SEEDS):
        world = World(protocol, params, seed)
        for _ in range(STEPS):
            world.step()
            if len(world.stopped) == len(MEMBERS):
                break
        most = max(most, world.most)
    assert (most == 0) == (variant in NEVER_WAIT), "otherwise nothing was tested"
