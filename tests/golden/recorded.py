"""The runs of every study at its scale `demo`, as they were recorded: to judge them, and to spoil them.

    python tests/golden/record_demo.py out/study-*/results.json        # records them anew
    python tests/golden/record_demo.py --add deadline                  # runs what the grid has got since

A file has the labels, the measures and whether the verifier was content; parameters follow from the grid.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from whence.sim.files import to_dict
from whence.studies import registry
from whence.studies.base import Point
from whence.studies.oppnet.data import DATA_SETS
from whence.studies.results import Results, Row

DATA = Path(__file__).parent / "data"
SCALE = "demo"
NAMES = tuple(registry.names())


def path_of(name: str) -> Path:
    """Where a study's runs are kept."""
    return DATA / f"runs-{name}.json.gz"


def save(document: dict[str, Any]) -> Path:
    """Keep the runs of a `results.json`."""
    assert document["scale"] == SCALE, "the scale that is recorded is `demo`"
    runs = [_kept(run["labels"], run["measures"], run["verdict"]) for run in document["runs"]]
    return _write(document["study"], runs)


def _write(name: str, runs: list[dict[str, Any]]) -> Path:
    path = path_of(name)
    with gzip.GzipFile(path, "wb", mtime=0) as file:
        file.write(json.dumps(runs).encode())
    return path


def _kept(labels: Any, measures: Any, verdict: Any) -> dict[str, Any]:
    return {
        "labels": dict(labels),
        "measures": {
            name: value if value is None or value == int(value) else float(f"{value:.9g}")
            for name, value in measures.items()
        },
        "ok": verdict.get("ok"),
    }


def missing(name: str) -> list[Point]:
    """The points of the grid of today that were not recorded, but for those of real traces."""
    seen = {_place(row.labels) for row in recorded(name).rows}
    points = registry.lookup(name).grid(SCALE)
    return [
        point
        for point in points
        if _place(point.labels) not in seen and point.labels.get("plan") not in DATA_SETS
    ]


def add(name: str, rows: Iterable[Row]) -> Path:
    """Keep these runs of a study besides those that are kept already."""
    return _write(name, [*_runs(name), *(_kept(row.labels, row.measures, row.verdict) for row in rows)])


def parts_of(name: str) -> list[str]:
    """The kinds of runs of a study: without its grid, for which domains must be planned."""
    return sorted({str(run["labels"]["part"]) for run in _runs(name)})


@lru_cache(maxsize=8)
def recorded(name: str) -> Results:
    """The runs of a study."""
    study = registry.lookup(name)
    scenarios = {_place(point.labels): point.scenario for point in study.grid(SCALE)}
    rows = []
    for at, run in enumerate(_runs(name)):
        scenario = scenarios.get(_place(run["labels"]))
        parameters = {} if scenario is None else to_dict(scenario)
        verdict = {} if run["ok"] is None else {"ok": run["ok"], "deliveries": 0}
        rows.append(Row(str(at), run["labels"], parameters, run["measures"], verdict))
    return Results(tuple(rows), study.repetition)


def _runs(name: str) -> Any:
    return json.loads(gzip.decompress(path_of(name).read_bytes()))


def _place(labels: Any) -> tuple[Any, ...]:
    return tuple(sorted(labels.items()))
