"""Cases that a storm meets too rarely, run with the real core and without the rule that they need.

A case answers what is wrong at its end.
"""

from __future__ import annotations

from support.member_world import INTERVAL_US, TIMEOUT_US, Make, World, quiet
from whence.core.effects import Discard, Reason
from whence.core.message import MessageId
from whence.protocols.vcube.control import MemberPacket
from whence.protocols.vcube.wire import VCubeMessage
from whence.trace.schema import Kind


def problems(world: World) -> list[str]:
    """What is wrong at the end: first the order, which must hold all the time."""
    report = world.verdict()
    return [*report.broken, *map(str, report.findings[:3] if not report.ok else []), *world.disagreements()]


def last_words(make: Make) -> list[str]:
    """A node crashes, and its last message comes to one of three others at any time after that."""
    found: list[str] = []
    for late_us in range(TIMEOUT_US, TIMEOUT_US + 6 * INTERVAL_US, 2_000):
        world = World(4, 1, make)
        world.tests_are_right = True
        world.run(2 * INTERVAL_US)
        world.pasts[3, 1] = [0] * 4
        sender = world.current["n3"]
        world._row(sender, Kind.BROADCAST, 3, 1)
        world.crash("n3")
        packet = MemberPacket(0, (VCubeMessage(3, 1, (), b""),), None)
        world.at(world.now_us + late_us, world._arrive, sender, "n1", packet)
        world.run(world.now_us + late_us)
        quiet(world, rounds=25)
        found += problems(world)
    return found


def earlier_life(make: Make) -> list[str]:
    """What a node sent in its earlier life comes when it is back."""
    world = World(3, 1, make)
    world.run(2 * INTERVAL_US)
    world.crash("n1")
    world.run(2 * TIMEOUT_US)
    world.join("n1")
    quiet(world)
    packet = MemberPacket(0, (VCubeMessage(2, 1, (), b""),), None)
    effects = world.current["n0"].core.receive("n1", packet, world.now_us)
    return [] if effects == [Discard(MessageId("n2", 1), "n1", Reason.GONE)] else [str(effects)]


def joiners_of_two_parts(make: Make) -> list[str]:
    """The group is split, each part lets somebody in that the other does not know, and then they meet."""
    world = World(7, 1, make)
    part, heal_us = {"n0", "n1", "n2"}, 12 * TIMEOUT_US
    world.run(2 * INTERVAL_US)
    for name in ("n2", "n6"):
        world.crash(name)

    def delay_us(sender: str, to: str, _: bool) -> int:
        is_cut = (sender in part) != (to in part) and world.now_us < heal_us
        return (heal_us - world.now_us if is_cut else 0) + world.draw.randrange(500, 3_000)

    world.delay_us = delay_us
    world.at(4 * TIMEOUT_US, lambda: world.join("n2"))
    world.at(4 * TIMEOUT_US, lambda: world.join("n6"))
    for round_ in range(3, 11):
        for name in world.names:
            world.at(round_ * TIMEOUT_US, world.broadcast, name)
    world.run(heal_us)
    quiet(world)
    wanted = ["n3", "n4", "n5", "n6"]  # the larger part goes on
    there = sorted(process.name for process in world.live())
    return problems(world) + ([] if there == wanted else [f"{there} go on, and not {wanted}"])
