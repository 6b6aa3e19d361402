"""Storms: random worlds of protocol `log` in which nothing may go wrong (judged in support/log_worlds.py).

python -m pytest tests/simulation/test_log_storms.py -m slow    # 10,000 worlds; 200 crashed at every step
WHENCE_STORM_SEED=123456 python -m pytest ... -m slow           # other worlds: fresh seeds find most
"""

from __future__ import annotations

import os

import pytest

from support.log_worlds import LogWorld, storm
from support.parts import parts

FIRST = int(os.environ.get("WHENCE_STORM_SEED", "20000"))
WORLDS, CRASHED = 10_000, 200


def assert_calm(world: LogWorld, seed: int) -> None:
    assert not world.observer.found, (seed, world.params, world.observer.stories[:3])


# The first parts have the worlds in which every mutant of zoo/test_log_zoo.py is caught: the first 25.
@pytest.mark.parametrize("part", parts(5, fast=2))
def test_a_hundred_and_fifty_worlds(part: int) -> None:
    for seed in range(part * 30, part * 30 + 30):
        assert_calm(storm(seed), seed)


def test_storms_do_all_that_they_say() -> None:
    """Otherwise nothing was tested."""
    counts = LogWorld(0).counts
    deliveries = missed = late = 0
    for seed in range(30):
        world = storm(seed)
        counts += world.counts
        deliveries += world.observer.deliveries
        missed += world.observer.missed
        late += world.observer.late
    wanted = "broadcast crash restart forget rollback clone partition join leave retire pause cut time"
    assert set(wanted.split()) <= set(counts)
    assert min(deliveries, missed, late) > 0


def test_what_a_floor_passes_over_is_not_told_to_others_as_expired() -> None:
    """One of 20,000 worlds: nodes with `keep="lifetime"` and `history="new"` passed on what lives as dead."""
    assert_calm(storm(94002363), 94002363)


def test_what_is_dead_by_a_clock_that_is_ahead_is_not_dead_here() -> None:
    """One of 10,000 worlds with skew: a peer's word uncovered a predecessor that lived by our clock."""
    assert_calm(storm(91184865), 91184865)


def crashed_at_every_step(seed: int, actions: int) -> int:
    """Run a world again and again, each time with a crash and a restart after the next step of some node."""
    steps, crash_at = 0, 0
    while crash_at <= steps:
        world = LogWorld(seed)
        steps = world.run_with_crash(actions, crash_at)
        world.heal()
        assert_calm(world, seed)
        crash_at += 1
    return steps


def test_a_crash_at_every_step_of_a_small_world() -> None:
    assert crashed_at_every_step(3, 40) > 50


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(20))
def test_a_crash_at_every_step_of_two_hundred_worlds(part: int) -> None:
    for seed in range(FIRST + part * CRASHED // 20, FIRST + (part + 1) * CRASHED // 20):
        crashed_at_every_step(seed, 40)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(10))
def test_ten_thousand_worlds(part: int) -> None:
    for seed in range(FIRST + part * WORLDS // 10, FIRST + (part + 1) * WORLDS // 10):
        assert_calm(storm(seed), seed)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_nothing_is_late_in_clean_worlds_without_jumps() -> None:
    """One founder, no clones, rollbacks, lost disks or retirements, and everything is kept."""
    for seed in range(FIRST, FIRST + 1_000):
        world = LogWorld(seed, clean=True, stability=True, keep="forever", history="all").run().heal()
        assert_calm(world, seed)
        assert not world.observer.late, seed


def test_nothing_is_late_in_forty_clean_worlds_without_jumps() -> None:
    late = admitted = 0
    for seed in range(40):
        world = LogWorld(seed, clean=True, stability=True, keep="forever", history="all").run().heal()
        assert_calm(world, seed)
        late += world.observer.late
        admitted += any(world.net.cores[key].ready for key in world.up())
    assert not late
    assert admitted > 20
