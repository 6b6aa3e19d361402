"""A peer can never make a PRC core raise, whatever state its handshakes are in."""

from __future__ import annotations

import random

import pytest

from support.prc_worlds import Overlay, Schedule
from whence.protocols.prc.prc import Prc
from whence.protocols.prc.preventive import Preventive
from whence.protocols.prc.wire import PrcPacket


def nearly_right(draw: random.Random, names: list[str], epochs: int) -> PrcPacket:
    """Real names, epochs around the real ones: such packets meet the real state often."""
    route = draw.sample(names, min(len(names), draw.choice([0, 2, 3, 3, 3, 4])))
    origin = draw.choice([*route[:1], draw.choice(names)])
    number = draw.choice([0, 1, 2, draw.randrange(1, epochs + 2), 2**62, -1])
    messages = tuple((draw.choice(names), draw.randrange(5), b"m") for _ in range(draw.choice([0, 0, 2])))
    return PrcPacket(draw.randrange(-1, 11), origin, number, b"", tuple(route), messages)


@pytest.mark.parametrize("make", [Prc, Preventive])
def test_nearly_right_packets_in_the_middle_of_handshakes(make: type[Prc]) -> None:
    for seed in range(60):
        draw = random.Random(seed)
        overlay = Overlay(seed, make=make, timeout_us=200)
        overlay.found()
        schedule = Schedule(overlay, crashes=False)
        for _ in range(60):
            schedule.run(3)
            name = draw.choice(overlay.alive)
            core = overlay.cores[name]
            epochs = max(each.epoch for each in overlay.cores.values())
            packet = nearly_right(draw, [*overlay.alive, "stranger"], epochs)
            copy = overlay.net.fresh(name)  # what it does must not disturb the rest
            copy.restore(core.save())
            peers = [*sorted(core.links), "stranger"]
            copy.receive(draw.choice(peers), packet, overlay.net.now_us)
            copy.message_of(packet)
            copy.sizes(packet)
            copy.check()
