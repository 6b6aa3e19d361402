"""Point-to-point protocols in the simulator: workloads with destinations, restarts, replay, refusals."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support.domain_runs import judge, scenario
from support.running import simulate_to
from whence.errors import ScenarioError
from whence.sim.files import dumps, from_dict
from whence.sim.replay import replay
from whence.trace.reader import open_trace
from whence.trace.schema import Kind
from whence.verify.run import verify_trace


def base(**changes: Any) -> dict[str, Any]:
    return scenario(9, 1) | changes


@pytest.mark.parametrize("protocol", ["matrix", "domains"])
def test_a_recorded_run_replays_and_verifies(protocol: str, tmp_path: Path) -> None:
    simulate_to(from_dict(base(protocol=protocol)), tmp_path)
    assert replay(tmp_path).ok
    (report,) = verify_trace(tmp_path)
    assert report.ok
    assert report.promises.complete
    assert report.deliveries == report.broadcasts > 100


def test_servers_that_crash_and_come_back_lose_nothing() -> None:
    link = {"delay": {"kind": "exponential", "mean_us": 4_000}, "retransmit_us": 3_000, "loss": 0.1}
    crashes = {
        "kind": "random_crashes", "count": 12, "stop_us": 300_000,
        "lasting": {"kind": "uniform", "low_us": 5_000, "high_us": 60_000},
    }  # fmt: skip
    for seed in range(4):
        report = judge(scenario(9, seed) | {"link": link, "faults": [crashes]})
        assert report.ok, report.findings


def test_destinations_are_drawn_from_those_named(tmp_path: Path) -> None:
    loads = [
        {"kind": "periodic", "interval_us": 1_000, "count": 60, "senders": ["n0"], "to": ["n0", "n3", "n4"]},
        {"kind": "replies", "probability": 1.0, "to": "origin"},
    ]
    simulate_to(from_dict(base(workloads=loads)), tmp_path)
    sent = Counter(
        (event.node, event.peer) for event in open_trace(tmp_path).events() if event.kind is Kind.BROADCAST
    )
    assert set(sent) == {("n0", "n3"), ("n0", "n4"), ("n3", "n0"), ("n4", "n0")}  # nobody sends to itself
    assert sent["n0", "n3"] == sent["n3", "n0"] > 15


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        (
            {
                "protocol": "vector",
                "params": {},
                "workloads": [{"kind": "poisson", "interval_us": 9, "to": "n1"}],
            },
            "to",
        ),
        ({"workloads": [{"kind": "poisson", "interval_us": 9, "to": "origin"}]}, "to"),
        ({"workloads": [{"kind": "poisson", "interval_us": 9, "to": "n99"}]}, "to"),
        ({"workloads": [{"kind": "poisson", "interval_us": 9, "to": ["n1"]}]}, "to"),
        ({"topology": {"kind": "ring"}}, "topology"),
        ({"topology": {"kind": "hypercube"}}, "topology"),
    ],
)
def test_impossible_destinations_and_topologies_are_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ScenarioError, match=field):
        from_dict(base(**changes))


def test_destinations_survive_a_scenario_file(tmp_path: Path) -> None:
    from whence.sim.files import load

    loads = [{"kind": "poisson", "interval_us": 900, "senders": ["n0"], "to": ["n3", "n4"]}]
    made = from_dict(base(workloads=loads))
    file = tmp_path / "s.toml"
    file.write_text(dumps(made))
    assert load(file) == made
