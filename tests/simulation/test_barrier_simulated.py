"""Barriers in the simulator: random worlds with faults, lifetimes and skewed clocks, verified, replayed."""

from __future__ import annotations

import random
from pathlib import Path

from support.running import simulate, simulate_in
from support.simulating import KeptRows, random_scenario
from whence.sim.files import from_dict, run_id, to_dict
from whence.sim.replay import replay
from whence.trace.memory import MemoryTrace
from whence.trace.schema import Kind, Level
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
    simulate_in(from_dict(plain), tmp_path / "trace", Level.ALL)
    report = replay(tmp_path / "trace")
    assert report.ok, report.mismatches


def test_memory_of_a_node_is_bounded_where_others_come_and_go_for_long() -> None:
    """All of it: registries, cache, contacts, ids of what came; ever new nodes, lifetimes of 2 s."""
    second_us, nodes = 1_000_000, 120
    draw = random.Random("churn")
    stays_us = [(at * second_us, (at + 12) * second_us) for at in range(nodes)]
    stays_us[0] = (0, nodes * second_us)  # the one that is watched stays
    rows = []
    for other in range(1, nodes):
        for one in [0] * 8 + draw.choices(range(max(0, other - 8), other), k=8):
            first_us, last_us = stays_us[other][0], min(stays_us[one][1], stays_us[other][1]) - second_us
            if last_us > first_us:
                start_us = draw.randrange(first_us, last_us)
                rows.append((one, other, start_us, start_us + draw.randrange(200_000, second_us)))
    scenario = from_dict(
        {
            "nodes": nodes, "protocol": "oppnet",
            "params": {"lifetime_us": 2 * second_us, "gap_us": 20_000, "setup_max_us": 50_000,
                       "late_us": second_us},
            "topology": {"kind": "contacts", "rows": rows,
                         "presence": [(at, *stay_us) for at, stay_us in enumerate(stays_us)]},
            "workloads": [{"kind": "periodic", "interval_us": 400_000, "from_entry": True}],
            "record": {"sample_every_us": second_us},
            "stop": {"duration_us": nodes * second_us, "drain": False},
        }
    )  # fmt: skip
    trace = KeptRows()
    result = simulate(scenario, trace, level=Level.DELIVERIES)
    assert result.deliveries > 20 * nodes
    sizes = [(row[1], row[4]) for row in trace.of(Kind.SAMPLE) if row[0] == "n000" and row[-1] == "entries"]
    third_us = nodes * second_us // 3
    second, last = (
        [size for time_us, size in sizes if at * third_us <= time_us < (at + 1) * third_us] for at in (1, 2)
    )
    assert max(last) < 1.5 * max(second)
    assert sum(last) / len(last) < 1.25 * sum(second) / len(second)
    assert sum(second) / len(second) > 20  # there is something to forget
