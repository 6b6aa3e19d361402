"""A manifest's parameters alone repeat the run: the same trace hash, for every study and every part of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.hashing import HashingRecorder
from support.running import simulate
from support.tiny_study import TinyStudies
from whence.sim.files import from_dict, to_dict
from whence.studies.base import Point
from whence.studies.registry import lookup
from whence.trace.measures import read_measures
from whence.trace.reader import open_trace
from whence.trace.schema import Level

STUDIES = ["vcube", "oppnet", "deadline", "prc", "domains"]
# A search over runs, and handshakes one by one: these leave measures and no trace.
WITHOUT_TRACE = {("oppnet", "advice"), ("prc", "routes")}
# Minutes with the cores; the frontier is the same kind of run.
LONG = {("prc", "hour"), ("prc", "smooth"), ("prc", "degrees")}
# Seconds each, of a protocol and mode that a shorter part has, too.
DEAR = {
    ("prc", "frontier", "prc", None),
    ("domains", "tree-law", "domains", None),
    ("oppnet", "region", "oppnet", "published"),
    ("oppnet", "main", "oppnet", "published"),
    ("oppnet", "main", "oppnet", "safe"),
    ("oppnet", "first", "oppnet", "published"),
    ("oppnet", "skew", "oppnet", "safe"),
}


def one_of_each(name: str) -> dict[int, Point]:
    """The last point of each part, protocol and mode of the smallest scale, by its place in the grid."""
    found: dict[tuple[object, ...], tuple[int, Point]] = {}
    for at, point in enumerate(lookup(name).grid("tiny")):
        found[point.labels.get("part"), point.scenario.protocol, point.labels.get("mode")] = at, point
    return dict(found.values())


def only_measured(name: str, point: Point) -> bool:
    return (name, point.task) in WITHOUT_TRACE or (name, point.labels["part"]) in LONG


def is_dear(name: str, point: Point) -> bool:
    return (name, point.labels["part"], point.scenario.protocol, point.labels.get("mode")) in DEAR


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without real traces of contacts."""
    monkeypatch.delenv("WHENCE_DATA", raising=False)


@pytest.mark.usefixtures("no_data")
@pytest.mark.parametrize("name", STUDIES)
def test_a_manifest_repeats_its_run_through_the_cores(name: str, tiny_studies: TinyStudies) -> None:
    points = one_of_each(name)
    quick = {
        at: point
        for at, point in points.items()
        if not is_dear(name, point) and not only_measured(name, point)
    }
    assert {(each.scenario.protocol, each.labels.get("mode")) for each in quick.values()} == {
        (each.scenario.protocol, each.labels.get("mode")) for each in points.values()
    }
    check(name, quick, tiny_studies)


def fields_of(plain: object, where: str = "") -> Iterator[str]:
    """What a scenario says, by the place where it says it; of what has kinds, each kind is a place.

    The parameters of a protocol are one field: a manifest has them as they were given.
    """
    if isinstance(plain, dict) and not where.endswith(".params"):
        where += f" {plain.get('kind', '')}"
        for name, value in plain.items():
            yield from fields_of(value, f"{where}.{name}")
    elif isinstance(plain, list):
        for value in plain:
            yield from fields_of(value, where)
    else:
        yield where


@pytest.mark.usefixtures("no_data")
def test_whatever_a_longer_run_says_another_says_too() -> None:
    said: set[str] = set()
    dear: set[str] = set()
    for name in STUDIES:
        for point in one_of_each(name).values():
            fields = set(fields_of(to_dict(point.scenario)))
            if is_dear(name, point):
                dear |= fields
            elif not only_measured(name, point):
                said |= fields
    assert dear <= said
    assert len(dear) > 50


@pytest.mark.slow
@pytest.mark.usefixtures("no_data")
@pytest.mark.parametrize("name", sorted({each[0] for each in DEAR}))
def test_so_do_the_longer_runs(name: str, tiny_studies: TinyStudies) -> None:
    dear = {at: point for at, point in one_of_each(name).items() if is_dear(name, point)}
    assert len(dear) == sum(each[0] == name for each in DEAR)
    check(name, dear, tiny_studies)


def check(name: str, points: dict[int, Point], studies: TinyStudies) -> None:
    """The runs are those that other tests judge, too."""
    _, folder = studies.carried_out(lookup(name))
    for at, point in points.items():
        (manifest,) = open_trace(folder / str(at)).manifests
        scenario, again = from_dict(manifest.parameters), HashingRecorder()
        assert scenario == point.scenario
        simulate(scenario, again, level=Level[manifest.level.upper()])
        assert again.hexdigest() == manifest.trace_hash, point.labels


@pytest.mark.slow
@pytest.mark.usefixtures("no_data")
@pytest.mark.parametrize("name", ["oppnet", "prc"])
def test_what_leaves_no_trace_repeats_its_measures(name: str, tmp_path: Path) -> None:
    study = lookup(name)
    without_trace = set()
    for at, point in one_of_each(name).items():
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
