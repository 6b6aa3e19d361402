"""Storms: everything that can befall a group of VCube members, drawn from a seed, and then a calm."""

from __future__ import annotations

import random

from support.member_world import INTERVAL_US, TIMEOUT_US, Make, World, chatter, settle
from whence.protocols.vcube.members import VCubeMembers

STOP_US = 500_000  # nothing bad happens, and nobody broadcasts, after this
LATEST_US = 400_000  # no packet takes longer


def storm(seed: int, make: Make = VCubeMembers, *, check: bool = False) -> World:
    """Run the world of a seed to its end."""
    draw = random.Random(f"storm/{seed}")
    size = draw.choice([2, 3, 4, 4, 5, 5, 6, 7, 8, 11])
    world = World(size, seed, make, check=check, aggregate=draw.random() < 0.8)
    chatter(world, world.names, draw.choice([15_000, 40_000, 100_000]), STOP_US)
    _weather(world, draw)
    _accidents(world, draw)
    world.run(STOP_US + LATEST_US)
    settle(world)
    return world


def _weather(world: World, draw: random.Random) -> None:
    """How long packets take. Slow messages reach into later views; slow tests make suspects."""
    slow_share = draw.choice([0.0, 0.05, 0.3])
    control_share = draw.choice([0.0, 0.0, 0.002, 0.02])
    slow_us = draw.choice([60_000, 200_000, LATEST_US])
    cut_off = (
        set(draw.sample(world.names, draw.randrange(1, len(world.names)))) if draw.random() < 0.4 else set()
    )
    first_us = draw.randrange(50_000, 300_000)
    last_us = first_us + draw.randrange(TIMEOUT_US // 2, 3 * TIMEOUT_US)
    world_draw = world.draw
    world.tests_are_right = not control_share and not cut_off

    def delay_us(sender: str, to: str, is_control: bool) -> int:
        delay_us = world_draw.randrange(300, 5_000)
        if world.now_us >= STOP_US:
            return delay_us
        if world_draw.random() < (control_share if is_control else slow_share):
            delay_us += world_draw.randrange(slow_us)
        if (sender in cut_off) != (to in cut_off) and first_us <= world.now_us < last_us:
            delay_us += last_us - world.now_us
        return delay_us

    world.delay_us = delay_us


def _accidents(world: World, draw: random.Random) -> None:
    """Crashes, some in the middle of a broadcast, and some together; leaves; quick and late returns."""

    def crash_in_broadcast(name: str, after: int) -> None:
        world.current[name].crash_after = after

    def crash_contact(name: str) -> None:
        """Crash whoever has just admitted the member, if anybody has."""
        member = world.names.index(name)
        knowing = [
            process
            for process in world.live()
            if process.name != name
            and process.core.roster.life(member) > 0
            and process.core.roster.is_present(member)
        ]
        if len(knowing) == 1:
            world.crash(knowing[0].name)
        elif not knowing and world.now_us < STOP_US:
            world.at(world.now_us + 500, crash_contact, name)

    for _ in range(draw.randrange(2 * len(world.names))):
        time_us, name, kind = draw.randrange(30_000, STOP_US), draw.choice(world.names), draw.random()
        if kind < 0.2:
            world.at(time_us, world.leave, name)
        elif kind < 0.7:
            world.at(time_us, world.crash, name)
            for other in draw.sample(world.names, draw.randrange(len(world.names))):
                if draw.random() < 0.3:
                    world.at(time_us + draw.randrange(5_000), world.crash, other)
        else:
            world.at(time_us, crash_in_broadcast, name, draw.randrange(3))
        if draw.random() < 0.7:
            back_us = time_us + draw.choice([5_000, INTERVAL_US, TIMEOUT_US, 2 * TIMEOUT_US])
            if back_us < STOP_US:
                world.at(
                    back_us,
                    lambda name, noticed: world.join(name, noticed=noticed),
                    name,
                    draw.random() < 0.5,
                )
                if draw.random() < 0.2:
                    world.at(back_us + 1_000, crash_contact, name)
