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

STUDIES = ["vcube", "oppnet", "deadline", "prc", "domains"]
# A search over runs, and handshakes one by one: these leave measures and no trace.
WITHOUT_TRACE = {("oppnet", "advice"), ("prc", "routes")}
# Minutes with the cores; the frontier is the same kind of run.
LONG = {("prc", "hour"), ("prc", "smooth"), ("prc", "degrees")}
# Seconds each, of a protocol and mode that a shorter part has, too.
DEAR = {
    ("prc", "frontier", "prc", None),
    ("oppnet", "region", "oppnet", "published"),
    ("oppnet", "first", "oppnet", "published"),
    ("oppnet", "skew", "oppnet", "safe"),
}


def one_of_each(name: str) -> list[Point]:
    """The last point of each part, protocol and mode of the smallest scale."""
    found: dict[tuple[object, ...], Point] = {}
    for point in lookup(name).grid("tiny"):
        found[point.labels.get("part"), point.scenario.protocol, point.labels.get("mode")] = point
    return list(found.values())


def only_measured(name: str, point: Point) -> bool:
    return (name, point.task) in WITHOUT_TRACE or (name, point.labels["part"]) in LONG


def is_dear(name: str, point: Point) -> bool:
    return (name, point.labels["part"], point.scenario.protocol, point.labels.get("mode")) in DEAR


@pytest.mark.parametrize("name", STUDIES)
def test_a_manifest_repeats_its_run_through_the_cores(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = one_of_each(name)
    quick = [point for point in points if not is_dear(name, point) and not only_measured(name, point)]
    assert {(each.scenario.protocol, each.labels.get("mode")) for each in quick} == {
        (each.scenario.protocol, each.labels.get("mode")) for each in points
    }
    check(name, quick, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({each[0] for each in DEAR}))
def test_so_do_the_longer_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dear = [point for point in one_of_each(name) if is_dear(name, point)]
    assert len(dear) == sum(each[0] == name for each in DEAR)
    check(name, dear, tmp_path, monkeypatch)


def check(name: str, points: list[Point], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHENCE_DATA", raising=False)
    study = lookup(name)
    for at, point in enumerate(points):
        outcome = study.runners.get(point.task, simulated)(point.scenario, tmp_path / str(at), None)
        assert outcome is not None, point.labels
        assert outcome.manifest is not None
        again = HashingRecorder()
        simulate(from_dict(outcome.manifest.parameters), again, level=Level[outcome.manifest.level.upper()])
        assert again.hexdigest() == outcome.manifest.trace_hash, point.labels


@pytest.mark.slow
@pytest.mark.parametrize("name", ["oppnet", "prc"])
def test_what_leaves_no_trace_repeats_its_measures(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WHENCE_DATA", raising=False)
    study = lookup(name)
    without_trace = set()
    for at, point in enumerate(one_of_each(name)):
        if not only_measured(name, point):
            continue
        runner, folders = study.runners[point.task], (tmp_path / f"{at}", tmp_path / f"{at}-again")
        outcomes = [runner(from_dict(to_dict(point.scenario)), folder, None) for folder in folders]
        first, second = map(read_measures, folders)
        assert first is not None
        assert second is not None
        assert first.measures == second.measures, point.labels
        without_trace |= {(name, point.task)} if outcomes == [None, None] else set()
    assert without_trace == {each for each in WITHOUT_TRACE if each[0] == name}
