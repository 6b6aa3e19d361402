"""A barrier that was looked through before need not be again: the effects and states are the very same."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from property.test_receive_many import Pair
from support.net import Net
from whence.core.message import NodeId
from whence.protocols import registry
from whence.protocols.barrier.wire import BarrierEntry

NAMES = "abcdef"
NEVER = 1 << 30  # entries of a barrier


def spoilt(packet: Any, draw: Random) -> Any:
    """A packet whose barrier, number or deadline no correct node would have sent."""
    entries = [entry for entry in packet.barrier if draw.random() < 0.9]
    for at, entry in enumerate(entries):
        if draw.random() < 0.1:
            until_us = draw.choice([None, entry.deadline_us, 50, 10**9])
            entries[at] = BarrierEntry(entry.origin, max(1, entry.number + draw.randrange(-2, 3)), until_us)
    barrier = draw.choice([tuple(entries), packet.barrier])
    number = draw.choice([packet.number, 0, packet.number - 1, packet.number + 1])
    return packet._replace(barrier=barrier, number=number, origin=draw.choice([packet.origin, *NAMES]))


@pytest.mark.parametrize("params", [{}, {"lifetime_us": 900}], ids=str)
def test_a_common_barrier_changes_nothing(params: dict[str, Any]) -> None:
    common = 0

    def pair(name: NodeId, names: list[NodeId], **given: Any) -> Pair:
        one, other = (registry.make("barrier", name, names, given) for _ in range(2))
        other.order.common_entries = NEVER  # type: ignore[attr-defined]
        return Pair(one, other)

    for seed in range(4):
        draw = Random(seed)
        net = Net(pair, NAMES, relay=False, **params)
        for _ in range(70):
            net.pass_time(net.now_us + draw.randrange(1, 40))
            for node in draw.sample(NAMES, draw.choice([1, 1, 6])):  # alone, or all of them
                lifetime_us = draw.choice([None, None, 300, 2_000])
                net.broadcast(node, lifetime_us)
            for _ in range(draw.choice([3, 40, 90])):
                if net.flying:
                    flight = draw.choice(net.flying)
                    if draw.random() < 0.02:
                        net.receive(flight.to, flight.sender, spoilt(flight.packet, draw))
                    net.arrive(net.flying.index(flight), keep=draw.random() < 0.02)
                    common += net.cores[flight.to].order._familiar is flight.packet
        for core in net.cores.values():
            core.catch_up()
    assert common > 100, "otherwise nothing was tested"
