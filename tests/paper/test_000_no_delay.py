"""Paper 000, sections 1, 4.3 and 7: what is kept back could not have been delivered by that child anyway."""

from __future__ import annotations

import random

import pytest

from support.net import Flight, Net
from support.vcube_worlds import NAMES
from whence.protocols.vcube.core import VCube


def driven(count: int, seed: int, *, aggregate: bool) -> Net:
    """Every node broadcasts twice; each link has one delay of its own, and nothing queues."""
    draw = random.Random(seed)
    net = Net(VCube, NAMES[:count], aggregate=aggregate)
    delays_us = {(one, other): draw.randint(1, 1_000) for one in net.names for other in net.names}

    def send(flight: Flight) -> None:
        net.flying.remove(flight)
        at_us = net.now_us + delays_us[flight.sender, flight.to]
        net.at(at_us, net.receive, flight.to, flight.sender, flight.packet)

    net.on_send = send
    for name in net.names:
        for _ in range(2):
            net.at(draw.randint(0, 2_000), net.broadcast, name)
    net.pass_time(10**9)
    return net


@pytest.mark.parametrize("count", [8, 16])
def test_keeping_a_message_back_delays_no_delivery(count: int) -> None:
    """With the same delay for all packets of a link every copy is delivered at the same time."""
    several = 0
    for seed in range(12):
        kept, plain = (driven(count, seed, aggregate=aggregate) for aggregate in (True, False))
        assert kept.delivered_us == plain.delivered_us
        assert len(kept.delivered_us) == 2 * count * count
        several += sum(len(kept.carried(flight)) > 1 for flight in kept.sent)
    assert several > 10  # something was kept back, or the equality would say nothing
