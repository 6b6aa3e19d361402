"""Pages beside a report, one for each run with findings: the events around them, to be stepped through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from whence.studies.results import Row
from whence.trace.reader import open_trace
from whence.verify.report import RunReport
from whence.view import AROUND_EVENTS, EVENTS_MAX, PAD
from whence.view.clocks import with_corrections
from whence.view.page import write
from whence.view.scene import around
from whence.view.traces import scene_of_trace

FOLDER = "views"
RUNS_MAX = 24  # a study can have hundreds of runs with findings of one kind


class ShownRun(NamedTuple):
    """A run that has a page, and what to call each of its findings, in the order of the page."""

    file: str  # relative to the report
    labels: Mapping[str, object]
    findings: list[str]


class Views(NamedTuple):
    """The pages of a report, by run."""

    runs: dict[str, ShownRun]
    left_out: int  # runs with findings that have none: too many of them, or too large


def write_views(rows: Sequence[Row], traces: Path, folder: Path, *, version: str) -> Views:
    """Write the pages into `folder`/views; the trace of a run is in `traces`/run=<run>."""
    broken = [row for row in rows if row.verdict.get("findings")]
    made: dict[str, ShownRun] = {}
    for row in broken[:RUNS_MAX]:
        place = traces / f"run={row.run}"
        if not place.is_dir():
            continue  # it was measured elsewhere, and has no trace here
        trace = open_trace(place, hashes=False)
        if trace.event_count > EVENTS_MAX:
            continue
        scene = scene_of_trace(trace, row.run, msgspec.convert(dict(row.verdict), RunReport))
        found = range(len(scene.findings))
        scene = with_corrections(around(scene, found, pad=PAD, limit=AROUND_EVENTS))
        page = write(scene, folder / FOLDER / f"{row.run}.html", version=version, focus=1)
        names = [f"{each.kind} {each.title}" for each in scene.findings]
        made[row.run] = ShownRun(f"{FOLDER}/{page.name}", row.labels, names)
    return Views(made, len(broken) - len(made))
