"""Which worlds each mutant of the zoo is explored in, the small ones first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from explore.worlds import of_class
from whence.explore.machine import Make
from whence.explore.search import Options, Report, explore
from whence.explore.world import FaultBudget, Line, World, load
from whence.protocols.baselines.fifo import Fifo
from zoo.mutants.barrier import ORDER
from zoo.mutants.baselines import ZOO
from zoo.mutants.deadline import DEADLINE

STATES_MAX = 40_000  # the late joiner's world has 34,289
WORLDS = Path(__file__).parents[2] / "examples" / "worlds"


# Why a mutant is not found in these worlds.
NOT_FOUND = {
    "ClockMergedOnlyFromNeighbours": "in a mesh all are neighbours; it needs a ring of four",
    "TwoIdHistory": "it needs three origins before a fourth",
    "FullBufferForgets": "it needs four messages that wait at once",
    "RelaysOnlyUpwards": "in a mesh everybody is reached without relaying",
    "barrier IgnoresSkew": "it needs clocks that are apart, and an allowance for it",
    "barrier DeadGoLast": "the registry does not promise that barrier is timely",
    "barrier NewestSourcesOnly": "it needs three origins before a fourth",
    "barrier SaysLateAgain": "the observer does not count outcomes of the late",
    "barrier SkippedCountsAsDelivered": "the observer does not count outcomes of the late",
    "odca ClockStampsUnpurged": "it needs clocks that are apart and a third message",
    "odca TrustsItsClock": "what clocks that are apart make late is within the promised slack",
    "odca UncheckedReplies": "it needs a pull, its reply, and four messages",
}


class Explored(NamedTuple):
    """What exploring a mutant gave."""

    name: str
    world: World | None  # in which it was found
    report: Report | None


class Suspect(NamedTuple):
    """A mutant and the worlds in which it is looked for."""

    name: str
    make: Make
    worlds: list[World]


def _world(protocol: str, *said: str | tuple[str, int], **given: Any) -> World:
    lines = [
        Line(node=each) if isinstance(each, str) else Line(node=each[0], lifetime_us=each[1]) for each in said
    ]
    budget = FaultBudget(
        **{key: given.pop(key) for key in list(given) if key in FaultBudget.__struct_fields__}
    )
    return World(protocol=protocol, links="any", say=lines, budget=budget, **given)


def _flooding(protocol: str) -> list[World]:
    return [
        _world(protocol, "n0", "n0", nodes=2),
        _world(protocol, "n0", "n1", nodes=2, duplicates=1),
        _world(protocol, "n0", "n1"),
        _world(protocol, "n0", "n0", "n1"),
        _world(protocol, "n0", "n1", crashes=1),
        _world(protocol, "n0", "n0", "n1", duplicates=1),
        _world(protocol, "n0", "n1", "n2"),
        _world(protocol, "n0", "n0", "n1", crashes=1),
    ]


def _barrier() -> list[World]:
    a, b, c = ("n0", 100), ("n1", 5), ("n0", 5)
    return [
        _world("barrier", "n0", "n0", nodes=2),
        _world("barrier", "n0", "n1", nodes=2, duplicates=1),
        _world("barrier", a, nodes=2, ticks=2, duplicates=1),
        _world("barrier", a, c, nodes=2, ticks=2, duplicates=1),
        _world("barrier", "n0", "n1"),
        _world("barrier", a, b, ticks=2),
        _world("barrier", a, c, ticks=2, nodes=2, losses=1),
        _world("barrier", c, a, nodes=2, losses=1, ticks=1),
        _world("barrier", a, c, ("n1", 60), ticks=1),
        _world("barrier", ("n1", 100), c, ("n0", 60), ticks=1),
        _world("barrier", "n0", "n0", "n1"),
        _world("barrier", "n0", "n1", crashes=1),
        _world("barrier", "n0", "n1", "n2"),
        load(WORLDS / "barrier-late-joiner.toml"),
    ]


def _deadline() -> list[World]:
    a, b, c = ("n0", 100), ("n1", 100), ("n0", 10)
    return [
        _world("odca", a, nodes=2, ticks=1),
        _world("odca", a, c, nodes=2, ticks=1),
        _world("odca", a, b, ticks=1),
        _world("odca", a, a, b),
        _world("odca", a, b, ("n2", 100)),
        _world("odca", a, nodes=2, ticks=1, clock_steps=1),
    ]


def suspects() -> Iterator[Suspect]:
    """Every mutant that has an explored world, by name."""
    for mutant in ZOO:
        protocol = "fifo" if issubclass(mutant.make, Fifo) else "vector"
        yield Suspect(mutant.name, of_class(mutant.make, {}), _flooding(protocol))
    for variant in ORDER:
        yield Suspect(f"barrier {variant.name}", variant.over_links, _barrier())
    for odd in DEADLINE:
        yield Suspect(f"odca {odd.name}", of_class(odd.make, {}), _deadline())


def convict(suspect: Suspect, states_max: int = STATES_MAX) -> Explored:
    """Explore a mutant's worlds until something is found."""
    for world in suspect.worlds:
        report = explore(world, Options(states_max=states_max), suspect.make)
        if report.counterexample is not None:
            return Explored(suspect.name, world, report)
    return Explored(suspect.name, None, None)
