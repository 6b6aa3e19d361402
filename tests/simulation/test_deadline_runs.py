"""Random runs of TDCA and ODCA: whatever is lost, doubled, reordered or shown by clocks, nothing is delivered
out of order, twice or late. Judged by the independent verifier and by a count of late rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from support.deadline_worlds import DURATION_US, judge, scenario
from support.running import simulate_to
from whence.sim.files import from_dict
from whence.sim.outcome import Outcome
from whence.sim.replay import replay

ALWAYS, ALL, PART = 100, 10_000, 500


def one_run(seed: int) -> Outcome:
    found = judge(from_dict(scenario(seed)), check=seed % 2 == 0)
    assert found.wrong == {}, f"seed {seed}: {found.wrong}"
    assert found.result.waiting == {} or not found.result.drained, f"seed {seed}: held for ever"
    return found.result


def run_many(seeds: range) -> Counter[str]:
    total: Counter[str] = Counter()
    for result in map(one_run, seeds):
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
    assert total["deliveries"] > 7_000
    assert min(total.values()) > 100, total  # every way to fail has been tried


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, ALL, PART))
def test_ten_thousand_random_runs_are_in_order_once_and_in_time(first: int) -> None:
    """In parts, each of which ends by itself: a run that hangs is found, and where."""
    assert run_many(range(first, first + PART))["deliveries"] > 500_000 * PART // ALL


def test_the_judge_sees_what_is_wrong():
    """The same runs of the figure as printed: its faults are found, so that finding none means something."""
    wrong: Counter[str] = Counter()
    for seed in range(60):
        data = scenario(seed) | {"protocol": "odca", "params": {"mode": "published", "strict": False}}
        wrong.update(judge(from_dict(data)).wrong)
        if wrong.keys() >= {"causal", "fifo", "duplicate", "late"}:
            return
    pytest.fail(f"only {dict(wrong)} was found")


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
