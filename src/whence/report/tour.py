"""The page of the tour: five chapters, one table, one violation, and where to go on."""

from __future__ import annotations

from pathlib import Path

from whence.report import plots, spacetime
from whence.report.format import number, seconds
from whence.report.html import Tile, environment
from whence.studies.base import StudyResult
from whence.studies.tour import page

ONWARD = {
    "whence study vcube": "every number of paper 000, judged; likewise oppnet, deadline, prc, domains",
    "whence simulate examples/scenarios/vcube-crash.toml --verify": "a scenario of your own: copy this file",
    "whence explore examples/worlds/fifo.toml": "every schedule of a small world",
    "whence verify TRACE": "judge a trace of any program: docs/trace-format.md",
    "python examples/chat.py": "the library: whence.join, five lines to causal messages",
}


def write(result: StudyResult, path: Path, *, date: str) -> Path:
    """Write the page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(result, date=date), encoding="utf-8")
    return path


def render(result: StudyResult, *, date: str) -> str:
    """The whole page as text."""
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
