"""The worlds of the examples can be read, and small ones are as the document says."""

from __future__ import annotations

from pathlib import Path

import pytest

from whence.errors import ScenarioError
from whence.explore.search import Options, explore
from whence.explore.world import FaultBudget, Line, World, WorldChange, checked, load

WORLDS = sorted((Path(__file__).parents[2] / "examples" / "worlds").glob("*.toml"))
FLAWED = {"tdca-published": "late", "odca-published": "late"}


@pytest.mark.parametrize("path", WORLDS, ids=lambda path: path.stem)
def test_a_world_of_the_examples_is_explored(path: Path) -> None:
    world = load(path)
    report = explore(world, Options(states_max=3_000))
    found = report.counterexample
    assert (None if found is None else found.finding.kind) == FLAWED.get(world.name)
    assert report.complete or report.why_not or found


@pytest.mark.parametrize("protocol", ["link_memory", "prc"])
def test_nothing_is_kept_once_all_is_done(protocol: str) -> None:
    report = explore(World(protocol=protocol, say=[Line(node="n0"), Line(node="n1")]))
    assert report.complete
    assert report.finals


@pytest.mark.parametrize("params", [{}, {"domains": [["n0", "n1"], ["n1", "n2"]]}])
def test_messages_to_one_node(params: dict[str, object]) -> None:
    say = [Line(node="n0", to="n2"), Line(node="n0", to="n1"), Line(node="n1", to="n2", after=[1])]
    protocol = "domains" if params else "matrix"
    report = explore(
        World(protocol=protocol, links="any", params=params, say=say, budget=FaultBudget(duplicates=1))
    )
    assert report.complete


def test_clocks_jump() -> None:
    say = [Line(node="n0", lifetime_us=50), Line(node="n1", lifetime_us=50)]
    budget = FaultBudget(clock_steps=1, ticks=2)
    world = World(protocol="tdca", nodes=2, links="any", say=say, budget=budget, clock_step_us=30)
    report = explore(world)
    assert report.complete
    assert report.states > explore(World(protocol="tdca", nodes=2, links="any", say=say)).states


@pytest.mark.parametrize(
    ("world", "field"),
    [
        (World(protocol="prc", links="any"), "links"),
        (World(protocol="prc", budget=FaultBudget(losses=1)), "budget"),
        (World(protocol="prc", budget=FaultBudget(cuts=1)), "budget"),
        (World(protocol="vector", links="some"), "links"),
        (World(protocol="vector", say=[Line(node="x")]), "say[0].node"),
        (World(protocol="vector", say=[Line(node="n0", to="n1")]), "say[0].to"),
        (World(protocol="vector", say=[Line(node="n0", lifetime_us=5)]), "say[0].lifetime_us"),
        (World(protocol="matrix", say=[Line(node="n0")]), "say[0].to"),
        (World(protocol="vector", change=[WorldChange(join="n1", leave="n1")]), "change[0]"),
        (World(protocol="vector", change=[WorldChange(command=["n1"])]), "change[0].command"),
        (World(protocol="vector", change=[WorldChange(link=("n1", "n1"))]), "change[0]"),
    ],
)
def test_a_world_that_cannot_be(world: World, field: str) -> None:
    with pytest.raises(ScenarioError, match=field.replace("[", r"\[")):
        checked(world)


def test_what_no_schedule_comes_to_is_said() -> None:
    say = [Line(node="n0"), Line(node="n1", after=[1])]  # it waits for itself
    change = [WorldChange(link=("n0", "n1")), WorldChange(command=["n0", "dance"])]
    world = World(protocol="vector", nodes=2, say=say, edges=[], change=change)
    report = explore(world)
    assert report.complete
    assert report.never == ("say[1]", "change[1]")
    assert explore(World(protocol="vector", nodes=2, say=say[:1])).never == ()
