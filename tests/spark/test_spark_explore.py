"""Exploring on Spark: the same states, final states and findings as in one process."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from whence.explore.search import Report, explore
from whence.explore.world import FaultBudget, Line, World
from whence.spark.explore import explore_on

SAYS = [Line(node=f"n{at}") for at in range(3)]
MORTAL = [Line(node="n0", lifetime_us=1000), Line(node="n1", lifetime_us=100)]
FLAWED = World(
    protocol="tdca", links="any", params={"mode": "published"}, say=MORTAL, budget=FaultBudget(ticks=2)
)


def seen(report: Report) -> Report:
    """What must be equal; a search that ends early has tried other moves of its last level."""
    steps = 0 if report.counterexample else report.steps
    return report._replace(seconds=0.0, steps=steps)


@pytest.mark.slow
def test_a_flaw_is_found_by_the_same_schedule(spark: SparkSession) -> None:
    assert seen(explore_on(spark, FLAWED)) == seen(explore(FLAWED))


def test_the_same_states(spark: SparkSession) -> None:
    world = World(protocol="vector", nodes=2, say=SAYS[:1])
    assert seen(explore_on(spark, world)) == seen(explore(world))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "world",
    [
        World(protocol="vector", say=SAYS[:2]),
        World(protocol="vcube", links="any", say=[*SAYS, SAYS[0]]),
        World(protocol="prc", say=SAYS, budget=FaultBudget(crashes=1)),
    ],
    ids=lambda world: world.protocol,
)
def test_the_same_states_in_larger_worlds(spark: SparkSession, world: World) -> None:
    assert seen(explore_on(spark, world)) == seen(explore(world))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_same_states_where_moves_lead_back(spark: SparkSession) -> None:
    world = World(protocol="barrier", say=SAYS, budget=FaultBudget(cuts=1))
    spread, whole = explore_on(spark, world), explore(world)
    assert whole.complete
    assert spread.why_not == "moves lead back: livelocks are looked for only in one process"
    assert seen(spread._replace(complete=True, why_not=None)) == seen(whole)
