"""A study at its smallest scale without Spark, and its results with a measure changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from whence.sim.files import run_id
from whence.studies.base import Point, Study
from whence.studies.results import Results, Row
from whence.studies.run import _row
from whence.trace.measures import read_measures
from whence.verify.run import verify_trace


def carried_out(study: Study, points: Iterable[Point], folder: Path) -> Results:
    """Every point simulated by the study's own runner, judged if it has a trace, measured by its counts."""
    rows = []
    for at, point in enumerate(points):
        run = study.runner(point.task)
        assert run is not None
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
