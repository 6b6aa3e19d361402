"""VCube under crashes, false suspicions, leaves and joins: always in order, and in agreement afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.member_mutants import (
    AdmitsAtOnce,
    BeginsWithWhatItsContactDelivered,
    FalseSuspectContinues,
    ForgetsWhatItDelivered,
    GivesUpAtOnce,
    NeverGivesUp,
    NoRepair,
    NumbersFromOne,
    OrphansOnlyOfOneOrigin,
    SuspectIsNotTold,
)
from support.member_storms import storm
from support.member_world import Make, World
from whence.core.effects import Reason
from whence.sim.replay import replay
from whence.sim.run import record_to
from whence.sim.scenario import from_dict
from whence.verify.run import verify_trace

FAST_SEEDS, SLOW_SEEDS = 150, 1000


def problems(world: World) -> list[str]:
    """What is wrong at the end of a storm: first the order, which must hold all the time."""
    report = world.verdict()
    return [*report.broken, *map(str, report.findings[:3] if not report.ok else []), *world.disagreements()]


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


@pytest.mark.parametrize("part", range(5))
def test_storms(part: int) -> None:
    happened = weather_all(range(part, FAST_SEEDS, 5))
    for what in ("crash", "joined", "orphans", Reason.LEFT, Reason.GONE):
        assert happened.get(what, 0) > 0, happened


@pytest.mark.slow
def test_a_thousand_storms() -> None:
    happened = weather_all(range(FAST_SEEDS, FAST_SEEDS + SLOW_SEEDS))
    for what in ("crash", "joined", "orphans", Reason.LEFT, Reason.GONE):
        assert happened.get(what, 0) > 100, happened


# Each rule is needed: without it, or done too early, some storm among these ends badly.


def is_caught(mutant: Make, seeds: range) -> bool:
    for seed in seeds:
        try:
            found = problems(storm(seed, mutant))
        except AssertionError:
            return True
        if found:
            return True
    return False


@pytest.mark.parametrize(
    ("mutant", "seeds"),
    [
        (NoRepair, range(6)),
        (ForgetsWhatItDelivered, range(6)),
        (FalseSuspectContinues, range(18)),
        (SuspectIsNotTold, range(15)),
        (NumbersFromOne, range(5)),
        (NeverGivesUp, range(4)),
        (BeginsWithWhatItsContactDelivered, range(40, 110)),
        (GivesUpAtOnce, range(120, 140)),
        (OrphansOnlyOfOneOrigin, range(20, 150)),
        (AdmitsAtOnce, range(90)),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_every_rule_is_needed(mutant: Make, seeds: range) -> None:
    assert is_caught(mutant, seeds)


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


@pytest.mark.parametrize("seed", range(3))
def test_simulated_crashes_verify_completely_and_replay(tmp_path: Path, seed: int) -> None:
    result, _ = record_to(from_dict(scenario(seed)), tmp_path, check=seed == 0)
    assert result.waiting == {}
    assert result.drained
    [report] = verify_trace(tmp_path, complete=True)
    assert report.ok, report.findings
    assert report.broadcasts > 150
    crashed = [event.node for event in _crashes(tmp_path)]
    assert sorted(crashed) == ["n2", "n3", "n5", "n6", "n6"], "n6 stops itself when it comes back"
    replayed = replay(tmp_path)
    assert replayed.ok, replayed.mismatches[:3]


def _crashes(folder: Path) -> list[Any]:
    from whence.trace.reader import open_trace
    from whence.trace.schema import Kind

    return [event for event in open_trace(folder).events() if event.kind is Kind.CRASH]
