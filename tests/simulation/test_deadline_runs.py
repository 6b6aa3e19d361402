"""Random runs of TDCA and ODCA: whatever is lost, doubled, reordered or shown by clocks, nothing is delivered
out of order, twice or late. Judged by the independent verifier and by a count of late rows."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support.deadline_runs import judge
from whence.sim.replay import replay
from whence.sim.run import simulate_to
from whence.sim.scenario import from_dict

DURATION_US = 400_000
DRAIN_US = 8_000_000  # longer than any lifetime that is drawn
ALWAYS, SLOW, PART = 300, 10_000, 500


def delay(draw: random.Random) -> dict[str, Any]:
    mean_us = draw.choice([0, 1, 500, 5_000, 20_000, 60_000])
    return draw.choice(
        [
            {"kind": "constant", "value_us": mean_us},  # ties: many things happen in one tick
            {"kind": "uniform", "low_us": 0, "high_us": 2 * mean_us},
            {"kind": "normal", "mean_us": mean_us, "deviation_us": mean_us // 3},
            {"kind": "exponential", "mean_us": mean_us + 1},
        ]
    )


def link(draw: random.Random) -> dict[str, Any]:
    return {
        "delay": delay(draw),
        "loss": draw.choice([0.0, draw.uniform(0.0, 0.4)]),
        "hop_loss": draw.choice([0.0, 0.0, 0.1]),
        "hop_delay_us": draw.choice([0, 0, 1_000]),
        "duplicate": draw.choice([0.0, draw.uniform(0.0, 0.5)]),
    }


def lifetime(draw: random.Random) -> dict[str, Any]:
    mean_us = draw.choice([1, 2_000, 20_000, 80_000, 200_000])
    return {"kind": "exponential", "mean_us": mean_us, "min_us": draw.choice([0, 0, 30_000])}


def workloads(draw: random.Random) -> list[dict[str, Any]]:
    interval_us = draw.choice([5_000, 20_000, 60_000])
    first = draw.choice(
        [
            {"kind": "poisson", "interval_us": interval_us, "count": draw.randrange(3, 12)},
            {"kind": "burst", "size": draw.randrange(1, 6), "interval_us": interval_us, "count": 4},
            {"kind": "periodic", "interval_us": interval_us, "count": 8},  # all nodes in the same tick
        ]
    )
    replies = {"kind": "replies", "probability": draw.choice([0.1, 0.5]), "depth": 3, "count": 4}
    chosen = [first, replies] if draw.random() < 0.5 else [first]
    return [{**each, "lifetime": lifetime(draw), "payload_bytes": draw.choice([0, 64])} for each in chosen]


def faults(draw: random.Random) -> tuple[list[dict[str, Any]], int]:
    """Faults, and how far two clocks may be apart."""
    found: list[dict[str, Any]] = []
    apart_us = 0
    if draw.random() < 0.5:
        offset_us, drift_ppm = draw.choice([0, 10, 5_000, 100_000]), draw.choice([1, 200, 5_000])
        found.append(
            {"kind": "skew", "nodes": "all", "offset_us": offset_us, "drift_ppm": drift_ppm, "drawn": True}
        )
        apart_us = 2 * (offset_us + drift_ppm * DRAIN_US // 1_000_000) + 4
    if draw.random() < 0.25:
        lasting = {"kind": "uniform", "low_us": 1_000, "high_us": 100_000}
        found.append(
            {"kind": "random_crashes", "count": 2, "stop_us": DURATION_US, "lasting": lasting}
            if draw.random() < 0.5
            else {"kind": "random_partitions", "count": 2, "stop_us": DURATION_US, "lasting": lasting}
        )
    return found, apart_us


def params(draw: random.Random, protocol: str, apart_us: int) -> dict[str, Any]:
    chosen = {
        "deadlines": draw.random() < 0.5,
        "copies": draw.choice([1, 1, 2]),
        "margin_us": draw.choice([0, 0, 5_000]),
        "clock_error_us": apart_us,
        "buffer_bytes": draw.choice([128 << 20, 128 << 20, 640, 0]),
    }
    if protocol == "odca":
        chosen |= {
            "pull": draw.choice(["window", "exact", "exact"]),
            "retry_us": draw.choice([0, 1, 5_000, 50_000]),
            "pulls": draw.choice([1, 3, 20]),
            "reply_bytes": draw.choice([0, 300, 16_384]),
        }
    return chosen


def scenario(seed: int) -> dict[str, Any]:
    draw = random.Random(f"deadline/{seed}")
    protocol = draw.choice(["tdca", "odca", "odca"])
    planned, apart_us = faults(draw)
    data = {
        "nodes": draw.randrange(2, 8),
        "seed": seed,
        "protocol": protocol,
        "params": params(draw, protocol, apart_us),
        "link": link(draw),
        "workloads": workloads(draw),
        "faults": planned,
        "stop": {"duration_us": DURATION_US, "drain_max_us": DRAIN_US - DURATION_US},
    }
    if draw.random() < 0.4:
        data["control"] = link(draw)
    return data


def run_many(seeds: range) -> Counter[str]:
    total: Counter[str] = Counter()
    for seed in seeds:
        found = judge(from_dict(scenario(seed)), check=seed % 4 == 0)
        assert found.wrong == {}, f"seed {seed}: {found.wrong}"
        assert found.result.waiting == {} or not found.result.drained, f"seed {seed}: held for ever"
        result = found.result
        total += Counter(
            deliveries=result.deliveries - result.broadcasts,
            undelivered=result.undelivered,
            expired=sum(result.expiries.values()),
            duplicates=result.discards.get("duplicate", 0),
            lost=result.lost_packets,
            control=result.control_packets,
            overtaken=result.expiries.get("overtaken", 0),
            no_room=result.discards.get("no room", 0),
        )
    return total


def test_random_runs_are_in_order_once_and_in_time():
    total = run_many(range(ALWAYS))
    assert total["deliveries"] > 20_000
    assert min(total.values()) > 100, total  # every way to fail has been tried


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, SLOW, PART))
def test_ten_thousand_random_runs_are_in_order_once_and_in_time(first: int) -> None:
    """In parts, each of which ends by itself: a run that hangs is found, and where."""
    assert run_many(range(first, first + PART))["deliveries"] > 500_000 * PART // SLOW


def test_the_judge_sees_what_is_wrong():
    """The same runs of the figure as printed: its faults are found, so that finding none means something."""
    wrong: Counter[str] = Counter()
    for seed in range(60):
        data = scenario(seed) | {"protocol": "odca", "params": {"mode": "published", "strict": False}}
        wrong.update(judge(from_dict(data)).wrong)
    assert wrong.keys() >= {"causal", "fifo", "duplicate", "late"}, wrong


@pytest.mark.parametrize("duplicate", [0.0, 0.3])
@pytest.mark.parametrize("pull", ["exact", "window"])
def test_a_run_whose_solicitations_are_lost_and_overtake_replays(
    pull: str, duplicate: float, tmp_path: Path
) -> None:
    """Two solicitations of equal size may ask for different things: the trace tells them apart."""
    data = {
        "nodes": 5,
        "protocol": "odca",
        "params": {"copies": 1, "retry_us": 5_000, "pull": pull},
        "link": {"delay": {"kind": "exponential", "mean_us": 20_000}, "loss": 0.3, "duplicate": duplicate},
        "workloads": [
            {"kind": "poisson", "interval_us": 20_000, "lifetime": {"kind": "constant", "value_us": 300_000}}
        ],
        "stop": {"duration_us": DURATION_US},
    }
    simulate_to(from_dict(data), tmp_path / "trace")
    replayed = replay(tmp_path / "trace")
    assert replayed.ok, replayed.mismatches[:5]
