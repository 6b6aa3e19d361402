"""The page of the tour: five chapters, one table, one violation, and where to go on."""

from __future__ import annotations

from pathlib import Path

from whence.errors import writing
from whence.report import plots, spacetime
from whence.report.format import number, seconds
from whence.report.html import Tile, environment
from whence.report.views import write_views
from whence.studies.base import StudyResult
from whence.studies.run import TRACES
from whence.studies.tour import page

ONWARD = {
    "whence study vcube": "every number of paper 000, judged; likewise oppnet, deadline, prc, domains",
    "whence simulate examples/scenarios/vcube-crash.toml --verify": "a scenario of your own: copy this file",
    "whence explore examples/worlds/fifo.toml": "every schedule of a small world, and what breaks",
    "whence verify TRACE": "judge a trace of any program: docs/trace-format.md",
    "python examples/chat.py": "the library: whence.join, five lines to causal messages",
}


def write(result: StudyResult, path: Path, *, date: str) -> Path:
    """Write the page."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render(result, date=date, opened=_opened(result, path.parent)), encoding="utf-8")
    return path


def _opened(result: StudyResult, folder: Path) -> str:
    """Write the page on which the violation can be stepped through; empty if there is none."""
    told = result.witness
    rows = [row for row in result.results.rows if told is not None and row.run == told.run]
    made = write_views(rows, folder / TRACES, folder, version=str(result.environment["whence"]))
    return made.runs[rows[0].run].file if rows and rows[0].run in made.runs else ""


def render(result: StudyResult, *, date: str, opened: str = "") -> str:
    """The whole page as text; `opened`: the page of the violation, relative to this one."""
    chapters = page.chapters(result.results)
    return (
        environment()
        .get_template("tour.html")
        .render(
            result=result,
            date=date,
            tiles=tiles(result),
            chapters=[(chapter, plots.svg(chapter.figure)) for chapter in chapters],
            common=page.common(result.results),
            # The one place where a finding is opened.
            opened=opened,
            witness_svg=spacetime.svg(result.witness) if result.witness else "",
            onward=ONWARD,
        )
    )


def tiles(result: StudyResult) -> list[Tile]:
    """How much was done, and how it ended."""
    rows = result.results.rows
    deliveries = sum(int(row.verdict["deliveries"]) for row in rows if row.judged)
    asked = [one for one in result.judged if one.demanded]
    held = sum(not one.failed for one in asked)
    return [
        Tile("5", "systems, each in its own environment"),
        Tile(number(len(rows)), "simulated runs"),
        Tile(number(deliveries), "deliveries judged"),
        Tile(f"{held} of {len(asked)}", "invariants hold", "good" if result.holds else "bad"),
        Tile(seconds(sum(result.seconds.values())), "from start to page"),
    ]
