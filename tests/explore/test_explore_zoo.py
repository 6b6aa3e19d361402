"""The zoo's mutants are found by exploring alone, but for those that the table names."""

from __future__ import annotations

import pytest

from explore.suspects import NOT_FOUND, STATES_MAX, Suspect, convict, suspects
from whence.explore.search import Options, explore

ALL = list(suspects())
# The first of its worlds in which a mutant is found, where those before it take more time than it does.
FOUND_IN = {
    "ClockMergedOnlyFromNeighbours": 11,
    "DeltaPerDelivery": 6,
    "FullBufferForgets": 9,
    "RelaysOnlyUpwards": 8,
    "TwoIdHistory": 10,
    "barrier BarrierStartsAnew": 9,
    "barrier CoversWhatLivesLonger": 8,
    "barrier DeadlinesAsTags": 8,
    "barrier IgnoresSkew": 18,
    "barrier NamesNothingAdopted": 13,
    "barrier NewestSourcesOnly": 14,
    "barrier NothingWakes": 6,
    "barrier OneObstacleIsEnough": 8,
    "barrier WakesOnlyTheDead": 7,
    "log Forgetful": 7,
    "log NoBarrier": 5,
    "log SameLife": 4,
    "odca ClockStampsUnpurged": 8,
    "odca UncheckedReplies": 7,
    "oppnet CacheAloneKnowsCopies": 4,
    "oppnet CacheAloneKnowsTheLate": 7,
    "oppnet NobodyKnowsCopies": 4,
    "oppnet RestartForgetsWhatCame": 7,
    "prc 10-BufferFromAlpha": 3,
    "prc 11-FilterWithoutBalpha": 3,
    "prc 11-FilterWithoutBpi": 2,
    "prc 12-ExpectNothing": 2,
    "prc 12-ExpectTooMuch": 2,
    "prc 14-OpensAgain": 6,
    "prc 15-TwoContacts": 2,
    "prc 16-NoHandshake": 2,
    "prc 2-NoEpochs": 8,
    "prc 4-NoTimeOut": 7,
    "prc 6-ControlOnNewLink": 2,
    "prc 9-BufferAsSet": 4,
    "vcube FalseSuspectContinues": 4,
    "vcube NumbersFromOne": 2,
    "vcube SuspectIsNotTold": 4,
}


@pytest.mark.parametrize(
    "suspect", [each for each in ALL if each.name not in NOT_FOUND], ids=lambda each: each.name
)
def test_a_mutant_is_found(suspect: Suspect) -> None:
    left = suspect.worlds[FOUND_IN.get(suspect.name, 0) :]
    report = convict(suspect._replace(worlds=left)).report
    assert report is not None
    assert report.counterexample is not None
    assert report.counterexample.shortest


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND_IN)
def test_no_world_before_finds_it(name: str) -> None:
    (suspect,) = [each for each in ALL if each.name == name]
    assert convict(suspect._replace(worlds=suspect.worlds[: FOUND_IN[name]])).report is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "suspect", [each for each in ALL if each.name in NOT_FOUND], ids=lambda each: each.name
)
def test_a_mutant_of_the_other_list_is_not_found(suspect: Suspect) -> None:
    assert convict(suspect).report is None


def test_every_reason_is_for_a_mutant() -> None:
    assert set(NOT_FOUND) <= {each.name for each in ALL}


EVERY = list({repr(world): world for each in ALL for world in each.worlds}.values())
RIGHT = {
    protocol: [world for world in EVERY if world.protocol == protocol]
    for protocol in sorted({world.protocol for world in EVERY})
}


@pytest.mark.parametrize("protocol", RIGHT)
def test_no_right_core_is_found_in_the_same_worlds(protocol: str) -> None:
    for world in RIGHT[protocol][:5]:
        report = explore(world)
        assert report.complete, (world, report.counterexample)


@pytest.mark.parametrize(
    "name", ["BrokenChain", "NeverPulls", "ShortBarrier", "DeliversTheDead", "IgnoresSilent", "PartialFloors"]
)
def test_a_right_log_is_not_found_where_a_broken_one_is(name: str) -> None:
    (made_for,) = [each.worlds[0] for each in ALL if each.name == f"log {name}"]
    assert explore(made_for).complete


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("protocol", RIGHT)
def test_no_right_core_is_found_in_any_of_these_worlds(protocol: str) -> None:
    for world in RIGHT[protocol]:
        report = explore(world, Options(states_max=STATES_MAX))
        assert report.counterexample is None, (world, report.counterexample)
