"""Simulated traces that the Spark tests read."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark.sparking import scenario
from support.running import simulate_to
from whence.sim.files import run_id
from whence.trace.schema import Level


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a sweep leaves it: both protocols, two seeds, one run with a crash. Read only."""
    out = tmp_path_factory.mktemp("runs")
    crash = [{"kind": "crash", "nodes": ["n1"], "at_us": 30_000, "restart_us": 60_000}]
    scenarios = [scenario(protocol, seed=seed) for protocol in ("fifo", "vector") for seed in (1, 2)]
    scenarios.append(scenario("vector", faults=crash, topology={"kind": "ring"}))
    for each in scenarios:
        simulate_to(each, out / f"run={run_id(each)}")
    return out


@pytest.fixture(scope="session")
def deliveries_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run that recorded deliveries only."""
    out = tmp_path_factory.mktemp("deliveries")
    simulate_to(scenario("vector", seed=3), out, Level.DELIVERIES)
    return out
