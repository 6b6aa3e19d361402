"""A study at its smallest scale without Spark, and its results with a measure changed."""

from __future__ import annotations

import fcntl
import os
import pickle
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from whence.report.plots import svg
from whence.sim.files import run_id
from whence.studies.base import Figure, Point, Study
from whence.studies.results import Results, Row
from whence.studies.run import _row
from whence.trace.measures import read_measures
from whence.verify.run import verify_trace


def carried_out(study: Study, points: Iterable[Point], folder: Path) -> Results:
    """Every point simulated by the study's own runner, judged if it has a trace, measured by its counts."""
    rows = []
    for at, point in enumerate(points):
        run = study.runners[point.task]
        place = folder / str(at)
        verdict = {}
        outcome = run(point.scenario, place, None)
        if outcome is not None and outcome.manifest.level != "measures":
            (report,) = verify_trace(place)
            verdict = msgspec.to_builtins(report)
        counted = read_measures(place)
        assert counted is not None
        rows.append(_row(study, run_id(point.scenario), point, {}, verdict, counted.measures))
    return Results(tuple(rows))


class TinyStudies:
    """Studies at the scale `tiny`, each carried out once for all processes of the tests."""

    def __init__(self, shared: Path) -> None:
        self._shared = shared

    def carried_out(self, study: Study) -> tuple[Results, Path]:
        """The results of a study, without real traces of contacts, and the folder of its runs."""
        folder, kept = self._shared / study.name, self._shared / f"{study.name}.pickle"
        with kept.with_suffix(".lock").open("w") as lock, without("WHENCE_DATA"):
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not kept.exists():
                shutil.rmtree(folder, ignore_errors=True)  # of a test that was given up
                kept.write_bytes(pickle.dumps(carried_out(study, study.grid("tiny"), folder)))
            results: Results = pickle.loads(kept.read_bytes())
        return results, folder


@contextmanager
def without(variable: str) -> Iterator[None]:
    """This environment, but for one variable."""
    kept = os.environ.pop(variable, None)
    try:
        yield
    finally:
        if kept is not None:
            os.environ[variable] = kept


_drawn: dict[bytes, str] = {}


def drawn(figure: Figure) -> str:
    """The figure as the page has it; of those that are equal one is drawn."""
    key = msgspec.json.encode(figure)
    if key not in _drawn:
        _drawn[key] = svg(figure)
    return _drawn[key]


def failed(study: Study, results: Results) -> set[str]:
    """The texts of the demanded claims that do not hold."""
    return {one.claim.text for one in study.judge(results) if one.failed}


def changed(results: Results, measure: str, value: float | None, **labels: Any) -> Results:
    """The same runs, with one measure of some of them set to another value."""

    def other(row: Row) -> Row:
        if any(row.labels[name] != at for name, at in labels.items()) or measure not in row.measures:
            return row
        return replace(row, measures={**row.measures, measure: value})

    return Results(tuple(other(row) for row in results.rows))
