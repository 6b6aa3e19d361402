"""Which worlds each mutant of the zoo is explored in, the small ones first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from explore.worlds import of_class
from whence.core.protocol import Protocol
from whence.explore.search import Options, Report, explore
from whence.explore.world import FaultBudget, Line, World, WorldChange, load
from whence.protocols.baselines.fifo import Fifo
from zoo.mutants.barrier import ORDER
from zoo.mutants.baselines import ZOO
from zoo.mutants.carry import CARRY
from zoo.mutants.deadline import DEADLINE
from zoo.mutants.log import STORMED, CutsSilently, IgnoresSilent, RetiresAtOnce
from zoo.mutants.members import MUTANTS as MEMBERS
from zoo.mutants.prc import MUTANTS as PRC

STATES_MAX = 400_000
LOG: list[Any] = [*(variant.make for variant in STORMED), CutsSilently, IgnoresSilent, RetiresAtOnce]
WORLDS = Path(__file__).parents[2] / "examples" / "worlds"

# Why a mutant is not found in these worlds.
_HOST = "it needs a host that is wrong too; the explorer's links are right"
_NO_PROMISE = "it breaks nothing that the registry promises of oppnet"
_AGREEMENT = "after a crash members disagree on who is in or what is lost; no order is broken"
_JOINERS = "it breaks the order in storms of five members and more; these worlds have two or three"
NOT_FOUND = {
    "barrier DeadGoLast": "the registry does not promise that barrier is timely",
    "barrier SkippedCountsAsDelivered": "the observer demands no outcome of what was skipped",
    "odca TrustsItsClock": "what clocks that are apart make late is within the promised slack",
    "log CutsSilently": "what it cuts without a word is asked for, and jumped over aloud (R13, R14): "
    "every schedule of the world made for it ends well",
    "log RetiresAtOnce": "it makes more messages late; each is flagged, and no promise bounds how many are",
    "oppnet EvictsPending": "what it drops is not delivered, and no promise of oppnet is that it would be",
    "oppnet NeverEvicts": _NO_PROMISE,
    "oppnet PurgesTooEarly": _NO_PROMISE,
    "oppnet GivesTheDead": _NO_PROMISE,
    "oppnet CarriesOnlyItsOwn": _NO_PROMISE,
    "oppnet NewsWaitForTheNextContact": _NO_PROMISE,
    "oppnet RestartForgetsWhatWasGiven": _NO_PROMISE,
    "oppnet RestartForgetsTheCache": _NO_PROMISE,
    "oppnet TakesNoNoticeOfTheEnd": _NO_PROMISE,
    "oppnet SlotsTooShort": _NO_PROMISE,
    "oppnet SaysNothingOfTheLate": _NO_PROMISE,
    "prc 1-NoGuard": _HOST,
    "prc 3-NoTombstone": "its leak needs a second attempt after an abort that a control packet has overtaken",
    "prc 5-ControlSurvives": _HOST,
    "prc 7-Prc": _HOST,
    "vcube NoRepair": _AGREEMENT,
    "vcube ForgetsWhatItDelivered": _AGREEMENT,
    "vcube BeginsWithWhatItsContactDelivered": _JOINERS,
    "vcube NeverGivesUp": _AGREEMENT,
    "vcube GivesUpAtOnce": _AGREEMENT,
    "vcube OrphansOnlyOfOneOrigin": _AGREEMENT,
    "vcube AdmitsAtOnce": _JOINERS,
    "vcube DoesNotWaitForAll": _JOINERS,
    "vcube TakesFromGhosts": "it needs four members: the last word of one that is gone comes to one of three",
    "vcube LivesLookAlike": "it needs a packet of an earlier life; links go with a life, with all on them",
    "vcube PartsMerge": "it needs a group in two parts, each of which goes on and lets somebody in",
    "vcube LeavesAtOnce": "what the leaver alone had is lost, and no promise holds for that",
}


class Explored(NamedTuple):
    """What exploring a mutant gave."""

    name: str
    world: World | None  # in which it was found
    report: Report | None


class Suspect(NamedTuple):
    """A mutant and the worlds in which it is looked for."""

    name: str
    core: Callable[..., Protocol]  # from the name of a node, those of all, and the parameters of a world
    worlds: list[World]
    module: str  # that has it


def _world(protocol: str, *said: str | tuple[str, int] | Line, **given: Any) -> World:
    lines = []
    for each in said:
        if isinstance(each, Line):
            lines.append(each)
        else:
            node, lifetime_us = (each, None) if isinstance(each, str) else each
            lines.append(Line(node=node, lifetime_us=lifetime_us))
    budget = FaultBudget(
        **{key: given.pop(key) for key in list(given) if key in FaultBudget.__struct_fields__}
    )
    return World(protocol=protocol, say=lines, budget=budget, **({"links": "any"} | given))


def _three_before_a_fourth(protocol: str) -> World:
    """Three messages that know nothing of each other, and one that follows all; only origins send."""
    last = Line(node="n3", after=[0, 1, 2])
    return _world(protocol, "n0", "n1", "n2", last, nodes=4, params={"relay": False})


def _flooding(protocol: str) -> list[World]:
    ring = [("n0", "n1"), ("n1", "n2"), ("n2", "n3"), ("n0", "n3")]
    return [
        _world(protocol, "n0", "n0", nodes=2),
        _world(protocol, "n0", "n1", nodes=2, duplicates=1),
        _world(protocol, "n0", "n1"),
        _world(protocol, "n0", "n0", "n1"),
        _world(protocol, "n0", "n1", crashes=1),
        _world(protocol, "n0", "n0", "n1", duplicates=1),
        _world(protocol, "n0", "n1", "n2"),
        _world(protocol, "n0", "n0", "n1", crashes=1),
        _world(protocol, "n2", edges=[("n0", "n1"), ("n1", "n2")]),
        _world(protocol, *["n0"] * 6, nodes=2),
        _three_before_a_fourth(protocol),
        _world(protocol, "n0", Line(node="n2", after=[0]), nodes=4, edges=ring),
        _world(
            protocol, "n0", Line(node="n1", after=[0]), Line(node="n2", after=[0, 1]), nodes=4, edges=ring
        ),
    ]


def _barrier() -> list[World]:
    a, b, c = ("n0", 100), ("n1", 5), ("n0", 5)
    skewed = {"params": {"skew_us": 100}, "clock_step_us": 100, "clock_steps": 1}
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
        _three_before_a_fourth("barrier"),
        _world("barrier", c, nodes=2, ticks=2, duplicates=2, params={"late_us": 1000}),
        _world("barrier", c, a, nodes=2, ticks=2, duplicates=1, params={"late_us": 1000}),
        _world("barrier", ("n0", 50), ("n0", 500), nodes=2, ticks=1, **skewed),
        _world("barrier", ("n0", 50), Line(node="n1", lifetime_us=500, after=[0]), ticks=1, **skewed),
    ]


def _deadline() -> list[World]:
    waits = {"margin_us": 0, "retry_us": 0, "copies": 1}
    a, b, c = ("n0", 100), ("n1", 100), ("n0", 10)
    return [
        _world("odca", a, nodes=2, ticks=1),
        _world("odca", a, c, nodes=2, ticks=1),
        _world("odca", a, b, ticks=1),
        _world("odca", a, a, b),
        _world("odca", a, b, ("n2", 100)),
        _world("odca", a, nodes=2, ticks=1, clock_steps=1),
        _world("odca", a, c, b, ticks=1, clock_steps=1, nodes=2),
        # Without the margin a message waits, and what it waits for is asked for.
        _world("odca", ("n0", 1000), Line(node="n1", lifetime_us=1000, after=[0]), params=waits),
        # n2 misses the first, and the last must not wait; n0's clock is ahead.
        _world(
            "odca", ("n0", 1000), ("n0", 1000), Line(node="n1", lifetime_us=1000, after=[1]), ("n1", 100),
            params=waits, ticks=1, clock_steps=1, clock_step_us=50,
        ),
    ]  # fmt: skip


def _overlay(*said: str, edges: int = 3, **given: Any) -> World:
    """Three processes that come one after the other, and a third link that is opened."""
    script = [
        WorldChange(command=["n0", "found"]),
        WorldChange(link=("n0", "n1")),
        WorldChange(command=["n1", "join", "n0"]),
        WorldChange(link=("n1", "n2")),
        WorldChange(command=["n2", "join", "n1"]),
        WorldChange(link=("n0", "n2")),
        WorldChange(command=["n0", "open", "n0", "n1", "n2"]),
        *given.pop("then", ()),
    ]
    params = {"links": "dynamic", "timeout_us": 100}
    return _world("prc", *said, links="fifo", edges=[], params=params, change=script, **given)


def _prc() -> list[World]:
    again = [WorldChange(command=["n0", "open", "n0", "n1", "n2"])]
    return [
        _world("prc", "n0", links="fifo"),
        _world("prc", "n0", "n1", links="fifo", leaves=1),
        _overlay("n0"),
        _overlay("n1"),
        _overlay("n0", "n1"),
        _overlay("n1", "n2"),
        _overlay("n0", "n0", then=again),
        _overlay("n0", ticks=1),
        _overlay("n0", ticks=2),
        _overlay("n1", cuts=1),
        _overlay("n0", cuts=1, ticks=2),
        _overlay("n0", "n1", ticks=1),
        _overlay("n0", "n1", "n2"),
        _overlay("n1", "n1", "n0"),
        _overlay(crashes=1, ticks=3),
    ]


def _members() -> list[World]:
    params = {"test_interval_us": 10, "test_timeout_us": 15, "start_timeout_us": 15}
    given = {"links": "fifo", "params": {"detect": True, **params}}
    return [
        _world("vcube", "n0", nodes=2, ticks=2, **given),
        _world("vcube", "n0", "n1", nodes=2, ticks=2, crashes=1, **given),
        _world("vcube", "n0", nodes=2, ticks=3, joins=1, **given),
        _world("vcube", "n0", "n1", nodes=2, ticks=3, joins=1, **given),
        _world("vcube", "n0", nodes=2, ticks=3, leaves=1, **given),
        _world("vcube", "n0", ticks=1, **given),
        _world("vcube", "n0", ticks=1, leaves=1, **given),
        _world("vcube", "n0", "n0", nodes=2, ticks=3, amnesias=1, **given),
        _world("vcube", "n0", ticks=2, crashes=1, **given),
    ]


def _carry() -> list[World]:
    swift = {"setup_max_us": 0, "gap_us": 10}
    line = [("n0", "n1"), ("n1", "n2")]
    short, long = ("n0", 15), ("n0", 1000)
    return [
        _world("oppnet", "n0", nodes=2, ticks=2, params=swift),
        _world("oppnet", "n0", "n0", nodes=2, ticks=3, params=swift),
        _world("oppnet", "n0", "n1", nodes=2, ticks=2, crashes=1, params=swift),
        _world("oppnet", "n0", nodes=2, ticks=2, cuts=1, params=swift),
        _world("oppnet", "n0", "n0", nodes=2, ticks=3, cuts=1, params={**swift, "capacity": 1}),
        _world("oppnet", "n0", "n0", nodes=2, ticks=3, duplicates=1, params={**swift, "capacity": 1}),
        _world("oppnet", "n0", ticks=3, edges=line, params=swift),
        _world("oppnet", short, nodes=2, ticks=3, duplicates=1, params={**swift, "late_us": 1000}),
        _world("oppnet", short, nodes=2, ticks=3, crashes=1, duplicates=1, params={**swift, "late_us": 1000}),
        _world("oppnet", short, long, nodes=2, ticks=3, params={**swift, "late_us": 1000}),
        _world("oppnet", "n0", "n0", "n0", nodes=2, ticks=3, duplicates=1, params={**swift, "capacity": 1}),
    ]


# Ticks of a log are frequent, so that few of them bring everything about.
_SWIFT = {"tick_us": 10, "pull_us": 10, "jump_us": 10, "suspect_us": 1000}
_MEMBERS = {**_SWIFT, "stability": True, "ack_us": 1, "alone_us": 1}


def _log() -> list[World]:
    line = [("n0", "n1"), ("n1", "n2")]
    b = Line(node="n1", after=[0])
    pair = {"nodes": 2, "params": _SWIFT, "links": "fifo"}
    three = {"params": _SWIFT, "links": "fifo"}
    one = {**_SWIFT, "keep": "count", "keep_count": 1}
    members = {"params": _MEMBERS, "links": "fifo"}
    return [
        _world("log", "n0", "n0", **pair),
        _world("log", "n0", "n1", ticks=1, **pair),
        _world("log", "n0", "n0", nodes=2, params=one, links="fifo", joins=1, ticks=2),
        _world("log", "n0", "n0", "n0", nodes=2, params=one, links="fifo", joins=1, ticks=2),
        _world("log", "n0", "n0", amnesias=1, ticks=1, **pair),
        _world("log", "n0", b, **three),
        _world("log", "n0", b, edges=line, **three),
        _world("log", "n0", b, crashes=1, edges=line, **three),
        _world("log", "n0", "n1", Line(node="n1", after=[0, 1]), **three),
        _world("log", "n0", "n1", cuts=1, ticks=2, **pair),
        _world("log", "n0", cuts=1, ticks=2, edges=line, **three),
        _world("log", ("n0", 5), "n0", nodes=2, params={**_SWIFT, "lifetimes": True}, links="fifo", ticks=2),
        _world("log", "n0", nodes=2, ticks=2, settle_ticks=6, **members),
        _world("log", "n0", "n1", nodes=2, ticks=3, settle_ticks=6, **members),
        _world("log", "n0", nodes=2, ticks=2, settle_ticks=6, cuts=1, retirements=1, **members),
        _world("log", "n0", nodes=2, ticks=2, settle_ticks=6, amnesias=1, **members),
        _world("log", "n0", ticks=3, settle_ticks=8, **members),
        _world("log", "n0", ticks=1, settle_ticks=8, retirements=1, **members),
    ]


def _made_for_logs() -> dict[str, list[World]]:
    """By mutant of `log`: the world that is made for it, the first in which it is looked for."""
    settled = {"params": _SWIFT, "links": "fifo", "settle_ticks": 2}
    pair = {**settled, "nodes": 2}
    cut = {**_SWIFT, "keep": "count", "keep_count": 1}  # at a tick; with a chain, at every step
    mortal = {**_SWIFT, "lifetimes": True}
    follows = [Line(node="n0", after=[0])]
    # A link goes while a second message is on its way: it has to be pulled over the others.
    pulled = _world(
        "log", "n0", *follows, said_first=1, run_on_ticks=12, **settled,
        change=[WorldChange(cut=("n0", "n2"))],
    )  # fmt: skip
    away = [
        WorldChange(cut=("n0", "n1")),
        WorldChange(command=["n0", "retire", "n1"]),
        WorldChange(link=("n0", "n1")),
    ]
    pauses = [WorldChange(command=["n1", verb]) for verb in ("pause", "resume")]
    newcomer = {**settled, "params": {**mortal, "tick_us": 1000, "history": "new"}}
    return {
        "BrokenChain": [_world("log", "n0", "n0", **pair | {"params": {**_SWIFT, "chain": True}})],
        "NeverBehind": [pulled],
        "NeverPulls": [pulled],
        "ShortBarrier": [_world("log", "n1", *follows, "n1", Line(node="n2", after=[1, 2]), **settled)],
        "DeliversTheDead": [
            _world(
                "log", ("n0", 5), Line(node="n1", lifetime_us=1000, after=[0]),
                ticks=1, **settled | {"params": mortal},
            )
        ],
        "IgnoresSilent": [  # it is a member and has said nothing
            _world(
                "log", "n0", nodes=2, ticks=2, cuts=1, settle_ticks=4, links="fifo",
                params={**_MEMBERS, "alone_us": 20},
            )
        ],
        "NeverLate": [  # it is retired while it is away
            _world("log", "n0", "n1", ticks=at, change=away, **pair | {"params": _MEMBERS, "settle_ticks": 6})
            for at in (1, 2)
        ],
        "NamesNothingAdopted": [  # as examples/worlds/barrier-late-joiner.toml
            _world(
                "log", ("n0", 100), ("n0", 5), Line(node="n1", lifetime_us=60, after=[1]),
                ticks=1, change=[WorldChange(join="n1")], **newcomer,
            )
        ],
        "CutsSilently": [
            _world(
                "log", "n0", "n0", "n0", ticks=2, run_on_ticks=20, change=pauses,
                **pair | {"params": {**cut, "window": 1}},
            )
        ],
        "PartialFloors": [  # n2 hears of a floor before it hears of what the messages below it follow
            _world(
                "log", "n1", *follows, "n0", "n0",
                **settled | {"params": {**cut, "chain": True, "window": 1}},
            )
        ],
        "NoCheckpoint": [  # n1 comes back, and has forgotten one of two that the other two said
            _world(
                "log", "n0", "n2", Line(node="n1", after=[0, 1]), change=[WorldChange(restart="n1")],
                **settled | {"params": {**cut, "chain": True}},
            )
        ],
    }  # fmt: skip


def suspects() -> Iterator[Suspect]:
    """Every mutant of a core, by name."""
    for mutant in ZOO:
        protocol = "fifo" if issubclass(mutant.make, Fifo) else "vector"
        yield Suspect(mutant.name, mutant.make, _flooding(protocol), "zoo.mutants.baselines")
    for variant in ORDER:
        yield Suspect(f"barrier {variant.name}", variant.over_links, _barrier(), "zoo.mutants.barrier")
    for variant in CARRY:
        yield Suspect(f"oppnet {variant.name}", variant.over_contacts, _carry(), "zoo.mutants.carry")
    for odd in DEADLINE:
        yield Suspect(f"odca {odd.name}", odd.make, _deadline(), "zoo.mutants.deadline")
    for line in PRC:
        yield Suspect(f"prc {line.name}", line.make, _prc(), "zoo.mutants.prc")
    for member in MEMBERS:
        yield Suspect(f"vcube {member.__name__}", member, _members(), "zoo.mutants.members")
    made = _made_for_logs()
    for broken in LOG:
        worlds = made.get(broken.__name__, []) + _log()
        yield Suspect(f"log {broken.__name__}", broken, worlds, "zoo.mutants.log")


def convict(suspect: Suspect, states_max: int = STATES_MAX) -> Explored:
    """Explore a mutant's worlds until something is found."""
    for world in suspect.worlds:
        params = {key: value for key, value in world.params.items() if key != "detect"}
        report = explore(world, Options(states_max=states_max), of_class(suspect.core, params))
        if report.counterexample is not None:
            return Explored(suspect.name, world, report)
    return Explored(suspect.name, None, None)
