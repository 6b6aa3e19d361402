"""Simulated runs are what they were: the same rows in the same order, and the same counters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from golden.files import as_stored, load
from golden.of_runs import EXAMPLES, overlay_run, replayed, scenario_run
from whence.protocols.registry import names
from whence.sim.files import from_dict
from whence.sim.files import load as load_scenario

SCENARIOS: list[dict[str, Any]] = load("scenarios")
LOGS: list[dict[str, Any]] = load("logs")
OVERLAYS: list[dict[str, Any]] = load("overlays")
FAST = 60  # three of each kind: they are kept one of each kind after the other
REPLAYED = 20  # one of each kind


def name_of(entry: dict[str, Any]) -> str:
    return entry["run"]["name"]


def repeats(entry: dict[str, Any]) -> None:
    assert as_stored(scenario_run(from_dict(entry["run"]))) == entry["golden"]


def replays(entry: dict[str, Any]) -> None:
    """A trace on the disk has the same hash, and fresh cores do the same again."""
    assert replayed(from_dict(entry["run"])) == entry["replayed"]


def test_the_goldens_cover_every_protocol() -> None:
    runs = [*SCENARIOS, *LOGS, *OVERLAYS]
    assert (len(SCENARIOS), len(LOGS), len(OVERLAYS)) == (300, 15, 41)
    assert {entry["run"]["protocol"] for entry in [*SCENARIOS[:FAST], *LOGS]} == set(names())
    assert len({entry["golden"]["hash"] for entry in runs}) == len(runs)
    departing = [entry for entry in OVERLAYS if entry["run"]["departures"]]
    assert len(departing) == 20
    faults = {fault["kind"] for entry in SCENARIOS[:FAST] for fault in entry["run"]["faults"]}
    assert [name_of(entry) for entry in [*SCENARIOS, *LOGS] if entry["replayed"][-1]] == []
    assert all(entry["replayed"][0] == entry["golden"]["hash"] for entry in [*SCENARIOS, *LOGS])
    assert {"crash", "random_crashes", "partition", "random_partitions", "slow", "skew"} <= faults


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem == "bus-day" else [])
        for path in EXAMPLES  # a whole day of sixty buses takes a minute
    ],
)
def test_an_example_repeats(path: Path) -> None:
    assert as_stored(scenario_run(load_scenario(path))) == load("examples")[path.stem]


@pytest.mark.parametrize("entry", [*SCENARIOS[:FAST], *LOGS], ids=name_of)
def test_a_scenario_repeats(entry: dict[str, Any]) -> None:
    repeats(entry)


@pytest.mark.parametrize("entry", OVERLAYS, ids=name_of)
def test_a_run_over_an_overlay_repeats(entry: dict[str, Any]) -> None:
    assert as_stored(overlay_run(entry["run"])) == entry["golden"]


@pytest.mark.parametrize("entry", [*SCENARIOS[:REPLAYED], *LOGS], ids=name_of)
def test_a_scenario_replays(entry: dict[str, Any]) -> None:
    replays(entry)


@pytest.mark.slow
def test_every_scenario_repeats() -> None:
    for entry in SCENARIOS:
        repeats(entry)


@pytest.mark.slow
def test_every_scenario_replays() -> None:
    for entry in SCENARIOS:
        replays(entry)
