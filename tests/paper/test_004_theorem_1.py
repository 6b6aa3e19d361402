"""Paper 004, theorem 1, in both directions: order holds everywhere just when the domains form no cycle.

Also the rule of section 4.2 that chains must not cross over: a router stamps what it forwards at once.
"""

from __future__ import annotations

from collections import deque
from typing import Any, cast

import pytest

from support.domain_runs import judge, scenario
from whence.core.effects import Effects, SetTimer
from whence.core.message import NodeId, Packet
from whence.protocols.domains.domains import DomainPacket, Domains

STAMPS = ["full", "updates-scan", "updates"]
TRIANGLE = [["n0", "n1"], ["n1", "n2"], ["n2", "n0"]]
RING = [["n0", "n1", "n2"], ["n2", "n3", "n4"], ["n4", "n5", "n6"], ["n6", "n7", "n0"]]


def causal(seeds: range, make: Any = None, nodes: int = 10, **params: Any) -> int:
    reports = [judge(scenario(nodes, seed, **params), make) for seed in seeds]
    assert all(
        report.counts.created + report.counts.malformed + report.counts.duplicate == 0 for report in reports
    )
    return sum(report.counts.causal for report in reports)


@pytest.mark.parametrize("stamps", STAMPS)
@pytest.mark.parametrize("domains", ["flat", "bus", "daisy", "tree"])
def test_acyclic_domains_keep_order_everywhere(domains: str, stamps: str) -> None:
    for seed in range(2):
        report = judge(scenario(10, seed, domains=domains, size=0 if domains == "bus" else 4, stamps=stamps))
        assert report.ok, report.findings


@pytest.mark.slow
@pytest.mark.parametrize("stamps", STAMPS)
@pytest.mark.parametrize("domains", ["flat", "bus", "daisy", "tree"])
def test_acyclic_domains_keep_order_everywhere_in_many_runs(domains: str, stamps: str) -> None:
    for seed in range(100, 130):
        for nodes, size in ((9, 3), (16, 4), (25, 5)):
            report = judge(scenario(nodes, seed, domains=domains, size=size, stamps=stamps))
            assert report.ok, report.findings


@pytest.mark.parametrize(("nodes", "domains"), [(3, TRIANGLE), (8, RING)], ids=["triangle", "ring"])
@pytest.mark.parametrize("stamps", ["full", "updates"])
def test_a_cycle_of_domains_breaks_order(nodes: int, domains: list[list[str]], stamps: str) -> None:
    assert causal(range(8), nodes=nodes, domains=domains, stamps=stamps, unsafe_cycles=True) > 0
    # The same servers without the last domain: a chain, and all is well.
    chain = [*domains[:-1], *([["n7", "n6"]] if nodes == 8 else [])]
    assert causal(range(8), nodes=nodes, domains=chain, stamps=stamps) == 0


class DeferredForwards(Domains):
    """A router puts aside what it forwards, and stamps it a little later: own sends may come between."""

    def __init__(self, me: NodeId, members: Any, **params: Any) -> None:
        super().__init__(me, members, **params)
        self.aside: deque[tuple[int, Packet]] = deque()
        self.now_us = 0

    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        self.now_us = now_us
        return super().receive(peer, packet, now_us)

    def _hand_on(self, hop: int, packet: Packet, effects: Effects) -> None:
        if cast(DomainPacket, packet).to == self.my_index:
            super()._hand_on(hop, packet, effects)
        else:
            self.aside.append((hop, packet))
            effects.append(SetTimer("forward", self.now_us + 4_000))

    def timer(self, key: str, now_us: int) -> Effects:
        effects: Effects = []
        while self.aside:
            super()._hand_on(*self.aside.popleft(), effects)
        return effects


class OneQueue(DeferredForwards):
    """The other right way: forwards wait, but own sends wait behind them in the same queue."""

    def send(self, to: NodeId, payload: bytes, now_us: int) -> Effects:
        effects = self.timer("forward", now_us)
        return effects + super().send(to, payload, now_us)


class ForwardsAtOnce(Domains):
    """A router forwards what arrives without waiting for its turn in the domain that it came from."""

    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        arrived = cast(DomainPacket, packet)
        known = [key for consumer in self.consumers.values() for key in consumer.held]
        effects = super().receive(peer, packet, now_us)
        for consumer in self.consumers.values():
            for key, (early, since_us) in consumer.held.items():
                if key not in known and arrived.to != self.my_index:
                    # Sent on now; when its turn comes it is dropped by pretending that it was for this
                    # server.
                    self._forward(arrived.origin, arrived.to, arrived.number, arrived.payload, effects)
                    consumer.held[key] = (early._replace(packet=arrived._replace(to=-1)), since_us)
        return effects

    def _hand_on(self, hop: int, packet: Packet, effects: Effects) -> None:
        if cast(DomainPacket, packet).to != -1:
            super()._hand_on(hop, packet, effects)


def test_a_deferred_forward_breaks_order() -> None:
    assert causal(range(8), DeferredForwards, domains="bus") > 0


def test_one_queue_for_forwards_and_own_sends_keeps_order() -> None:
    assert causal(range(8), OneQueue, domains="bus") == 0


def test_a_forward_out_of_turn_breaks_order() -> None:
    assert causal(range(8), ForwardsAtOnce, domains="bus") > 0
