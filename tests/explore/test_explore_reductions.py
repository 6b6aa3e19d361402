"""The reductions change the number of states, and no verdict."""

from __future__ import annotations

import pytest

from explore.worlds import Trial, random_trial
from whence.explore.search import Options, Report, explore
from whence.explore.story import Kept, repeat
from whence.explore.world import Line, World

STATES_MAX = 40_000
PLAIN = Options(symmetry=False, order=False, stale=False)
REDUCED = [
    PLAIN._replace(symmetry=True), PLAIN._replace(order=True), PLAIN._replace(stale=True), Options(),
]  # fmt: skip


def verdict(report: Report) -> int | None:
    """The length of the shortest counterexample."""
    found = report.counterexample
    assert found is None or found.shortest
    return None if found is None else len(found.moves)


def is_told(trial: Trial, report: Report) -> bool:
    """Whether the schedule, followed in actual names, ends with the finding."""
    found = report.counterexample
    if found is None or found.finding.kind == "livelock":
        return True
    told = repeat(Kept.of(trial.world, found, trial.make), trial.make)
    return told.finding is not None and told.finding.kind == found.finding.kind


def compare(seed: int) -> bool:
    """Compare the verdicts on one random world; whether it was small enough to be judged whole."""
    trial = random_trial(seed)
    plain = explore(trial.world, PLAIN._replace(exact=True, states_max=STATES_MAX), trial.make)
    if plain.counterexample is None and not plain.complete:
        return False
    assert is_told(trial, plain)
    for options in REDUCED:
        reduced = explore(trial.world, options, trial.make)
        assert verdict(reduced) == verdict(plain), (seed, options, trial.world)
        assert reduced.states <= plain.states or plain.counterexample
        assert is_told(trial, reduced)
    return True


@pytest.mark.parametrize("seed", range(24))
def test_verdicts_are_the_same_on_a_few_random_worlds(seed: int) -> None:
    assert compare(seed)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_verdicts_are_the_same_on_200_random_worlds() -> None:
    assert sum(compare(seed) for seed in range(100, 320)) >= 200


@pytest.mark.parametrize(("relay", "states"), [(False, 509), (True, 33_125)])
def test_the_numbers_of_the_first_trial(relay: bool, states: int) -> None:
    world = World(
        protocol="vector", links="any", params={"relay": relay}, say=[Line(node=f"n{at}") for at in range(3)]
    )
    report = explore(world, PLAIN)
    assert (report.complete, report.states) == (True, states)
    assert explore(world, PLAIN._replace(symmetry=True)).states * 6 >= states
