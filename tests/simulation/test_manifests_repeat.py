"""A manifest's parameters alone repeat the run: the same trace hash, for every study and every part of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.hashing import HashingRecorder
from support.running import simulate
from whence.lab.attempts import simulated
from whence.sim.files import from_dict
from whence.studies.base import Point
from whence.studies.registry import lookup
from whence.trace.schema import Level


def one_of_each(name: str) -> list[Point]:
    """The last point of each part, protocol and mode of the smallest scale."""
    found: dict[tuple[object, ...], Point] = {}
    for point in lookup(name).grid("tiny"):
        if point.task != "advice":  # a search over runs leaves no trace
            found[point.labels.get("part"), point.scenario.protocol, point.labels.get("mode")] = point
    return list(found.values())


@pytest.mark.parametrize("name", ["vcube", "oppnet", "deadline", "prc", "domains"])
def test_a_manifest_repeats_its_run_through_the_cores(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WHENCE_DATA", raising=False)
    study = lookup(name)
    for at, point in enumerate(one_of_each(name)):
        if point.labels.get("part") == "hour":
            continue  # minutes with the cores; the frontier is the same kind of run
        runner = study.runners.get(point.task, simulated)
        outcome = runner(point.scenario, tmp_path / str(at), None)
        if outcome is None:
            assert point.task != "run", point.labels  # others may measure without a trace
            continue
        assert outcome.manifest is not None
        again = HashingRecorder()
        simulate(from_dict(outcome.manifest.parameters), again, level=Level[outcome.manifest.level.upper()])
        assert again.hexdigest() == outcome.manifest.trace_hash, point.labels
