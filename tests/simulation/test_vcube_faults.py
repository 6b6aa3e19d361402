"""VCube under crashes, false suspicions, leaves and joins: always in order, and in agreement afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support import member_cases, member_mutants
from support.member_cases import problems
from support.member_storms import storm
from support.member_world import Make
from support.running import simulate_in
from whence.core.effects import Reason
from whence.errors import ScenarioError
from whence.protocols.vcube.members import VCubeMembers
from whence.sim.files import from_dict, load
from whence.sim.replay import replay
from whence.trace.reader import open_trace
from whence.trace.schema import Kind
from whence.verify.run import verify_trace

FAST_SEEDS, SLOW_SEEDS = 100, 1000
EXAMPLE = Path(__file__).parents[2] / "examples" / "scenarios" / "vcube-crash.toml"


def weather_all(seeds: range) -> dict[str, int]:
    """Run the storms of all seeds; answers how often what happened, so that a test can see that it did."""
    happened: dict[str, int] = {}
    for seed in seeds:
        world = storm(seed, check=seed % 8 == 0)
        assert problems(world) == [], f"seed {seed}"
        joined = sum(bool(process.core.life) and process.core.ready for process in world.processes)
        counts = {"joined": joined, "orphans": world.discards.get(Reason.ORPHAN, 0)}
        for process in world.processes:
            counts[process.end] = counts.get(process.end, 0) + 1
        for what, count in counts.items():
            happened[what] = happened.get(what, 0) + count
    return happened


def test_storms() -> None:
    happened = weather_all(range(FAST_SEEDS))
    for what in ("crash", "joined", "orphans", Reason.LEFT, Reason.GONE):
        assert happened.get(what, 0) > 5, happened


@pytest.mark.slow
def test_a_thousand_storms() -> None:
    happened = weather_all(range(SLOW_SEEDS))
    for what in ("crash", "joined", "orphans", Reason.LEFT, Reason.GONE):
        assert happened.get(what, 0) > 100, happened


# Each rule is needed: without it, or done too early, some storm or case ends badly.


def is_caught(mutant: Make, seeds: range) -> bool:
    for seed in seeds:
        try:
            found = problems(storm(seed, mutant))
        except AssertionError:
            return True
        if found:
            return True
    return False


STORMY: dict[Make, range] = {
    member_mutants.NoRepair: range(6),
    member_mutants.ForgetsWhatItDelivered: range(6),
    member_mutants.FalseSuspectContinues: range(10, 24),
    member_mutants.SuspectIsNotTold: range(18),
    member_mutants.NumbersFromOne: range(4),
    member_mutants.BeginsWithWhatItsContactDelivered: range(28),
    member_mutants.NeverGivesUp: range(4),
    member_mutants.GivesUpAtOnce: range(22),
    member_mutants.OrphansOnlyOfOneOrigin: range(110, 150),
    member_mutants.AdmitsAtOnce: range(45, 85),
    member_mutants.DoesNotWaitForAll: range(22),
    member_mutants.LeavesAtOnce: range(30, 75),
}
CASES: dict[Make, Callable[[Make], list[str]]] = {
    member_mutants.TakesFromGhosts: member_cases.last_words,
    member_mutants.LivesLookAlike: member_cases.earlier_life,
    member_mutants.PartsMerge: member_cases.joiners_of_two_parts,
}


def test_every_mutant_has_its_storm_or_its_case() -> None:
    assert {*STORMY, *CASES} == set(member_mutants.MUTANTS)


@pytest.mark.parametrize("mutant", STORMY, ids=lambda mutant: mutant.__name__)
def test_every_rule_is_needed_in_a_storm(mutant: Make) -> None:
    assert is_caught(mutant, STORMY[mutant])


@pytest.mark.parametrize("mutant", CASES, ids=lambda mutant: mutant.__name__)
def test_every_rule_is_needed_in_its_case(mutant: Make) -> None:
    case = CASES[mutant]
    assert case(VCubeMembers) == []
    assert case(mutant) != []


# The simulator's own faults: crashes for good, short outages, and one so long that the group gives up


def scenario(seed: int) -> dict[str, Any]:
    return {
        "name": "vcube-faults",
        "seed": seed,
        "nodes": 8,
        "protocol": "vcube",
        "params": {
            "detect": True,
            "test_interval_us": 20_000,
            "test_timeout_us": 150_000,
            "start_timeout_us": 300_000,
        },
        "topology": {"kind": "full"},
        # A replay finds a packet without a message by its size: it needs links that keep the order.
        "link": {
            "delay": {"kind": "uniform", "low_us": 300, "high_us": 4_000},
            "fifo": True,
            "retransmit_us": 2_000,
        },
        "workloads": [
            {"kind": "poisson", "interval_us": 30_000, "stop_us": 900_000, "payload_bytes": 8},
            {
                "kind": "replies",
                "probability": 0.1,
                "depth": 2,
                "delay": {"kind": "constant", "value_us": 500},
            },
        ],
        "faults": [
            {"kind": "crash", "nodes": ["n2"], "at_us": 300_000},
            {"kind": "crash", "nodes": ["n5"], "at_us": 310_000},
            {"kind": "crash", "nodes": ["n3"], "at_us": 500_000, "restart_us": 560_000},
            {"kind": "crash", "nodes": ["n6"], "at_us": 500_000, "restart_us": 900_000},
        ],
        "stop": {"duration_us": 1_800_000, "drain": False},
    }


def test_detection_needs_a_full_mesh() -> None:
    with pytest.raises(ScenarioError, match="any two others"):
        from_dict({**scenario(1), "topology": {"kind": "hypercube"}})


def test_the_example_ends_with_agreement(tmp_path: Path) -> None:
    result = simulate_in(load(EXAMPLE), tmp_path)
    assert result.waiting == {}
    [report] = verify_trace(tmp_path, complete=True)
    assert report.ok, report.findings
    assert report.deliveries > 5_000


@pytest.mark.parametrize("seed", range(3))
def test_simulated_crashes_verify_completely_and_replay(tmp_path: Path, seed: int) -> None:
    result = simulate_in(from_dict(scenario(seed)), tmp_path, check=seed == 0)
    assert result.waiting == {}
    assert result.drained
    [report] = verify_trace(tmp_path, complete=True)
    assert report.ok, report.findings
    assert report.broadcasts > 150
    crashed = [event.node for event in open_trace(tmp_path).events() if event.kind is Kind.CRASH]
    assert sorted(crashed) == ["n2", "n3", "n5", "n6", "n6"], "n6 stops itself when it comes back"
    replayed = replay(tmp_path)
    assert replayed.ok, replayed.mismatches[:3]
