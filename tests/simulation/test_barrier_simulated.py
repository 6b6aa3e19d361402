"""Barriers in the simulator: random worlds with faults, lifetimes and skewed clocks, verified, replayed."""

from __future__ import annotations

from pathlib import Path

from support.simulating import random_scenario
from whence.sim.replay import replay
from whence.sim.run import record_to, simulate
from whence.sim.scenario import from_dict, run_id, to_dict
from whence.trace.memory import MemoryTrace
from whence.trace.schema import Level
from whence.verify.run import verify_table

RUNS = 60
SKEW_US = 20_000 + 2 * 200  # offsets up to 9,000 either way, 300 ppm for the length of a run


def judged(plain: dict[str, object]) -> tuple[object, object]:
    scenario = from_dict(plain)
    trace = MemoryTrace()
    result = simulate(scenario, trace, level=Level.DELIVERIES, check=True)
    names = [f"n{at}" for at in range(scenario.nodes)]
    run = run_id(scenario)
    return result, verify_table(trace.table(run), result.promises, names, run=run, protocol="barrier")


def test_without_lifetimes_everybody_delivers_everything_in_order() -> None:
    for seed in range(RUNS):
        reliable = seed % 4 != 0
        result, report = judged(to_dict(random_scenario(seed, protocol="barrier", reliable=reliable)))
        assert report.ok, (seed, report.findings)
        if reliable:
            assert result.promises.complete, seed
            assert (result.undelivered, result.waiting) == (0, {}), seed


def test_with_lifetimes_order_holds_under_skew_and_nothing_waits_for_ever() -> None:
    expired = 0
    for seed in range(RUNS):
        plain = to_dict(random_scenario(seed, protocol="barrier", reliable=True))
        plain["params"] = {"lifetime_us": [1_000, 5_000, 40_000][seed % 3], "skew_us": SKEW_US}
        for workload in plain["workloads"]:
            if seed % 2:
                workload["lifetime"] = {"kind": "uniform", "low_us": 100, "high_us": 20_000}
        result, report = judged(plain)
        assert report.ok, (seed, report.findings)
        assert result.waiting == {}, seed
        assert not result.promises.complete
        expired += sum(result.expiries.values()) + result.discards.get("expired", 0)
    assert expired > 10 * RUNS


def test_a_run_with_timers_and_expiries_replays(tmp_path: Path) -> None:
    plain = to_dict(random_scenario(8, protocol="barrier", reliable=True))
    plain["params"] = {"lifetime_us": 3_000, "skew_us": SKEW_US}
    record_to(from_dict(plain), tmp_path / "trace", Level.ALL)
    report = replay(tmp_path / "trace")
    assert report.ok, report.mismatches
