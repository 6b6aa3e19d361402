"""Random small worlds for the explorer, of right cores and of broken ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import NamedTuple

from whence.core.protocol import Protocol
from whence.explore.machine import Make
from whence.explore.world import FaultBudget, Line, World
from whence.protocols.registry import lookup
from zoo.mutants.baselines import ZOO

RIGHT = (
    "barrier", "fifo", "link_memory", "matrix", "odca", "prc", "preventive", "reliable", "tdca", "vcube",
    "vector",
)  # fmt: skip
FAULTS = ("losses", "duplicates", "crashes", "amnesias", "cuts", "clock_steps", "joins", "leaves")


class Trial(NamedTuple):
    """A world, and cores if they are not the registry's."""

    world: World
    make: Make | None


def of_class(core: Callable[..., Protocol], params: Mapping[str, object]) -> Make:
    """Fresh cores of a class with these parameters."""
    return lambda me, members, **more: core(me, members, **params, **more)


def random_trial(seed: int) -> Trial:
    """One world of at most three nodes and three messages, every third of a broken core."""
    rng = random.Random(seed)
    make: Make | None = None
    params: dict[str, object] = {}
    if seed % 3 == 0:
        mutant = rng.choice(ZOO)
        name, make = "vector", of_class(mutant.make, params)
    else:
        name = rng.choice(RIGHT)
    info = lookup(name)
    nodes = rng.choice((2, 3))
    names = [f"n{at}" for at in range(nodes)]
    if name in ("tdca", "odca") and rng.random() < 0.5:
        params["mode"] = "published"
    if name == "vector" and make is None:
        params["relay"] = rng.random() < 0.5
    faults = ("crashes", "clock_steps", "leaves") if info.fifo_links else FAULTS
    budget = {}
    say = rng.choice((1, 2)) if nodes == 3 else 3
    if rng.random() < 0.5:
        budget[rng.choice(faults)] = 1
        say = min(say, 2)
    lives = info.lifetimes and rng.random() < 0.7
    if lives:
        budget["ticks"] = 1
    lines = []
    for _ in range(say):
        node = rng.choice(names)
        to = rng.choice([each for each in names if each != node]) if info.point_to_point else None
        lifetime_us = rng.choice((10, 100)) if lives or name in ("tdca", "odca") else None
        lines.append(Line(node=node, to=to, lifetime_us=lifetime_us))
    links = "fifo" if info.fifo_links else rng.choice(("fifo", "any"))
    world = World(
        protocol=name, nodes=nodes, links=links, params=params, say=lines, budget=FaultBudget(**budget)
    )
    return Trial(world, make)
