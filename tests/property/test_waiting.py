"""`waiting` is the length of `explain`, after every step of every protocol, and after a restart."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from support.net import Net
from whence.core.effects import Effects, Reason
from whence.core.message import NodeId
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
    "log": ("log", {"window": 4}),
    "log, random": ("log", {"exchange": "random", "gap_us": 200, "setup_max_us": 50, "tick_us": 2_000}),
    "log, lifetimes": ("log", {"lifetime_us": 50_000, "window": 4}),
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
    """A group on a full mesh: packets arrive in drawn order, some twice, some never; timers when due."""

    def __init__(
        self, protocol: str, params: dict[str, Any], seed: int, make: Callable[..., Any] | None = None
    ) -> None:
        self.info = registry.lookup(protocol)
        self.draw = Random(seed)
        self.most = 0  # that ever waited at one node
        self.there = list(MEMBERS)
        self.net = Net(make or protocol, MEMBERS, **params)
        self.net.before = self._look
        self.net.on_stop = self._stop
        self.net.on_close = lambda node, peer: pytest.fail("links are static here")
        for node in MEMBERS:
            self._look(node, [])

    def step(self) -> None:
        self.net.pass_time(self.net.now_us + self.draw.randrange(1, 30))
        choice = self.draw.random()
        if not self.there:
            return
        node = self.draw.choice(self.there)
        if choice < 0.25 and self.net.cores[node].ready:
            self._say(node)
        elif choice < 0.27:
            self.net.restart(node)
            self._look(node, [])
        elif self.net.flying:
            self._arrive()

    def _say(self, node: NodeId) -> None:
        if self.info.point_to_point:
            to = self.draw.choice(MEMBERS)
            self.net.do(node, lambda core, now_us: core.send(to, b"x", now_us))
        else:
            self.net.broadcast(node)

    def _arrive(self) -> None:
        flight = self.draw.choice(self.net.flying)
        at, keep = self.net.flying.index(flight), False
        if self.info.fifo_links:
            at = self.net.find(flight.to, sender=flight.sender)
        else:
            keep = self.draw.random() < 0.1
        is_lost = not keep and self.info.datagrams and self.draw.random() < 0.2
        if is_lost or flight.to not in self.there:
            self.net.lose(at)
        else:
            self.net.arrive(at, keep=keep)

    def _stop(self, node: NodeId, reason: Reason) -> None:
        self.there.remove(node)
        for key in [key for key in self.net.timers if key[0] == node]:
            del self.net.timers[key]

    def _look(self, node: NodeId, effects: Effects) -> None:
        core = self.net.cores[node]
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
        most = max(most, world.most)
    assert (most == 0) == (variant in NEVER_WAIT), "otherwise nothing was tested"
