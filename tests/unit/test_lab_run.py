"""One run: which path it takes and why, observers, what is written; and that all callers ask this place."""

from __future__ import annotations

import ast
from pathlib import Path

import msgspec
import pytest

import whence
from support.simulating import KeptRows
from whence.errors import MisuseError
from whence.kernels import contract
from whence.lab import run as lab
from whence.lab.observer import Observer
from whence.lab.run import path_of, run
from whence.protocols.baselines.vector import Vector
from whence.sim.files import from_dict, load
from whence.sim.model import Scenario
from whence.trace.measures import read_measures
from whence.trace.reader import open_trace
from whence.trace.schema import Kind, Level

SOURCE = Path(whence.__file__).parent
EXAMPLES = SOURCE.parents[1] / "examples" / "scenarios"
SMALL = from_dict(
    {
        "nodes": 4,
        "protocol": "vector",
        "workloads": [{"kind": "periodic", "interval_us": 1_000, "count": 5}],
        "record": {"sample_every_us": 2_000},
        "stop": {"duration_us": 10_000},
    }
)


# The choice


def test_only_the_laboratory_chooses_a_kernel() -> None:
    """simulate, sweep and the studies ask lab/run.py, which alone loads kernels and makes engines."""
    choosing: dict[str, set[str]] = {"load": set(), "Engine": set(), "run_plan": set()}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom):
                continue
            names = {alias.name for alias in node.names}
            if node.module == "whence.kernels.contract" and "load" in names:
                choosing["load"].add(str(path.relative_to(SOURCE)))
            if node.module == "whence.sim.engine" and "Engine" in names:
                choosing["Engine"].add(str(path.relative_to(SOURCE)))
            if node.module == "whence.kernels.oppnet.kernel" and "run_plan" in names:
                choosing["run_plan"].add(str(path.relative_to(SOURCE)))
    assert choosing == {
        "load": {"lab/run.py"},
        "Engine": {"lab/run.py"},
        "run_plan": {"studies/oppnet/advice.py"},  # a search over many runs of one plan
    }


@pytest.mark.parametrize("caller", ["cli/simulate.py", "lab/attempts.py", "studies/vcube/measures.py"])
def test_the_callers_ask_the_laboratory(caller: str) -> None:
    assert "whence.lab.run import" in (SOURCE / caller).read_text()


def long_run(seconds: int) -> Scenario:
    scenario = load(EXAMPLES / "lossy-deadlines.toml")
    stop = msgspec.structs.replace(scenario.stop, duration_us=seconds * 1_000_000)
    record = msgspec.structs.replace(scenario.record, level="deliveries")
    loads = [msgspec.structs.replace(each, count=None, stop_us=None) for each in scenario.workloads]
    return msgspec.structs.replace(scenario, stop=stop, workloads=loads, record=record)


def test_auto_takes_a_kernel_only_where_it_saves_time(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    assert "need less than 2 s" in path_of(long_run(1))[1]
    much = long_run(3_000)
    kernel = contract.load(much)
    monkeypatch.setattr(kernel, "is_compiled", lambda: True)
    monkeypatch.setattr(lab, "estimate_seconds", lambda scenario: 3.0)
    assert path_of(much) == ("kernel", contract.TESTED)
    monkeypatch.setattr(kernel, "is_compiled", lambda: False)
    assert path_of(much) == ("core", "the kernel is not compiled, which takes 11 s")
    monkeypatch.setattr(lab, "estimate_seconds", lambda scenario: 19.0)
    assert path_of(much)[0] == "kernel"
    assert path_of(long_run(1), kernel="always")[0] == "kernel"
    assert path_of(much, kernel="never") == ("core", "the cores are asked for")
    monkeypatch.setattr(lab, "find_spec", lambda name: None)
    assert "numba is not installed" in path_of(much, kernel="always")[1]


def test_what_looks_into_the_cores_gets_them() -> None:
    scenario = long_run(1)
    for options, why in (
        ({"observers": [Observer()]}, "an observer watches them"),
        ({"make": Vector}, "others are given"),
        ({"check": True}, "they are checked"),
    ):
        described = SMALL if "make" in options else scenario
        outcome = run(described, kernel="always", **options)
        assert (outcome.path, outcome.why) == ("core", f"the cores are asked for: {why}")


def test_the_hour_of_prc_runs_in_the_kernel() -> None:
    pytest.importorskip("numba")
    scenario = load(EXAMPLES / "prc-hour.toml")
    assert path_of(scenario, kernel="always") == ("kernel", contract.TESTED)


# Observers


class Counting(Observer):
    """Counts what each hook hears."""

    def __init__(self, level: Level) -> None:
        self.level = level
        self.kinds: dict[Kind, int] = {}
        self.packets = 0

    def event(self, node, time_us, kind, *rest):
        self.kinds[kind] = self.kinds.get(kind, 0) + 1

    def sent(self, core, to, packet, time_us):
        self.packets += len(to)

    def finished(self, cores, time_us):
        return {"packets_seen": self.packets, "entries": sum(core.entries() for core in cores)}


@pytest.mark.parametrize("watched", Level)
@pytest.mark.parametrize("kept", Level)
def test_an_observer_hears_its_level_whatever_the_trace_keeps(watched: Level, kept: Level) -> None:
    alone, beside = KeptRows(), KeptRows()
    expected = run(SMALL, recorder=alone, level=kept)
    heard = KeptRows()
    run(SMALL, recorder=heard, level=watched)
    observer = Counting(watched)
    outcome = run(SMALL, recorder=beside, level=kept, observers=[observer])
    assert beside.rows == alone.rows
    assert observer.kinds == {kind: len(heard.of(kind)) for kind in Kind if heard.of(kind)}
    assert outcome.measures["packets_seen"] == outcome.packets == expected.packets


# What is written


def test_measures_of_observers_and_functions_lie_beside_the_trace(tmp_path: Path) -> None:
    outcome = run(
        SMALL,
        tmp_path,
        observers=[Counting(Level.MEASURES)],
        measure=lambda outcome: {"twice": 2 * outcome.deliveries},
    )
    found = read_measures(tmp_path)
    assert found is not None
    assert found.measures == outcome.measures
    assert found.measures["twice"] == 2 * outcome.deliveries
    assert found.counted_by.startswith("core, ")
    assert outcome.manifest is not None
    assert open_trace(tmp_path).event_count == outcome.manifest.events


def test_a_folder_and_a_recorder_are_one_too_many(tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match="one of them"):
        run(SMALL, tmp_path, recorder=KeptRows())
