"""A manifest's parameters alone repeat the run: the same trace hash, for every study and every part of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.hashing import HashingRecorder
from support.running import simulate
from whence.lab.attempts import simulated
from whence.sim.files import from_dict, to_dict
from whence.studies.base import Point
from whence.studies.registry import lookup
from whence.trace.measures import read_measures
from whence.trace.schema import Level

# A search over runs, and handshakes one by one: these leave measures and no trace.
WITHOUT_TRACE = {("oppnet", "advice"), ("prc", "routes")}
# Minutes with the cores: the kernel repeats it, and the frontier is the same kind of run for the cores.
LONG = {("prc", "hour"), ("prc", "smooth"), ("prc", "degrees")}


def one_of_each(name: str) -> list[Point]:
    """The last point of each part, protocol and mode of the smallest scale."""
    found: dict[tuple[object, ...], Point] = {}
    for point in lookup(name).grid("tiny"):
        found[point.labels.get("part"), point.scenario.protocol, point.labels.get("mode")] = point
    return list(found.values())


@pytest.mark.parametrize("name", ["vcube", "oppnet", "deadline", "prc", "domains"])
def test_a_manifest_repeats_its_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHENCE_DATA", raising=False)
    study = lookup(name)
    without_trace = set()
    for at, point in enumerate(one_of_each(name)):
        runner = study.runners.get(point.task, simulated)
        outcome = runner(point.scenario, tmp_path / str(at), None)
        if outcome is None or (name, point.labels["part"]) in LONG:
            without_trace |= {(name, point.task)} if outcome is None else set()
            again_at = tmp_path / f"{at}-again"
            runner(from_dict(to_dict(point.scenario)), again_at, None)
            first, second = read_measures(tmp_path / str(at)), read_measures(again_at)
            assert first is not None
            assert second is not None
            assert first.measures == second.measures, point.labels
            continue
        assert outcome.manifest is not None
        again = HashingRecorder()
        simulate(from_dict(outcome.manifest.parameters), again, level=Level[outcome.manifest.level.upper()])
        assert again.hexdigest() == outcome.manifest.trace_hash, point.labels
    assert without_trace == {each for each in WITHOUT_TRACE if each[0] == name}
