"""Tables, figures and page of the VCube study, from a tiny grid that is simulated here. No Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from whence.report import html
from whence.sim.files import run_id
from whence.studies.base import StudyResult
from whence.studies.results import Estimate, Results, Row
from whence.studies.vcube.grid import STUDY
from whence.studies.vcube.runs import Runs
from whence.trace.measures import read_measures


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("tiny")
    rows = []
    for at, point in enumerate(STUDY.grid("tiny")):
        place = folder / str(at)
        STUDY.runners[point.task](point.scenario, place, None)
        found = read_measures(place)
        assert found is not None
        row = Row(run_id(point.scenario), point.labels, {}, {}, {}, found.measures)
        rows.append(Row(row.run, row.labels, {}, STUDY.derive(row), {}))
    return Results(tuple(rows))


def test_tables_hold_the_runs_beside_the_paper(tiny: Results) -> None:
    tables = STUDY.tables(tiny)
    names = [table.name for table in tables]
    wanted = ["table-1", "table-2", "table-3", *(f"figure-{at}" for at in (1, 6, 7, 8, 9, 10, 11))]
    assert list(dict.fromkeys(names)) == [*wanted, "readings", "residuals", "several", "crashes", "reading"]
    packets, reduction, _ = (table for table in tables if table.name == "table-1")
    runs = Runs(tiny)
    assert [row[0] for row in packets.rows] == [16, 32]
    assert packets.rows[0][1] == Estimate(240, 0, 3)  # without aggregation, in every run
    assert packets.rows[1][2] == 919
    assert packets.rows[0][3] == runs.mean("packets", "R0", 16, "aggregation")
    assert reduction.rows[0][:3] == (16, 3.33, 2.57)
    # Table 2 is printed for 256 nodes, which were not run: its numbers must not stand beside those of 32.
    (by_messages,) = (table for table in tables if table.name == "table-2")
    assert "32 nodes" in by_messages.title
    assert all(row[1] is None and row[4] is None for row in by_messages.rows)
    shares = [row[2].mean for row in by_messages.rows[:6]]
    assert sum(shares) == pytest.approx(100)


def test_figures_show_every_run_size(tiny: Results) -> None:
    figures = {figure.name: figure for figure in STUDY.figures(tiny)}
    assert list(figures) == [
        *("table-1", "table-2", "table-3", "figure-1", "figure-6", "figure-7", "figure-7-change"),
        *("figure-8", "figure-9", "figure-10", "figure-11"),
    ]
    series = {one.label: one for one in figures["table-1"].panels[0].series}
    assert series["paper"].x == (16, 32)
    assert series["R0"].x == (8, 16, 32)
    assert series["R1"].x == (8, 16)
    assert series["R0"].y[1] == tiny.estimate(
        "reduction_percent", profile="R0", nodes=16, mode="aggregation", part="main"
    )
    one_tree = {one.label: one for one in figures["figure-1"].panels[0].series}
    assert all(
        single.mean > many.mean
        for single, many in zip(one_tree["one fixed tree"].y, one_tree["tree per source"].y, strict=True)
    )
    many = {one.label: one for one in figures["figure-11"].panels[0].series}["aggregated, many trees"]
    assert many.y[1].count == 4  # three runs, and one more for this figure


def test_the_page_of_a_tiny_grid(tiny: Results, tmp_path: Path) -> None:
    result = StudyResult(
        name=STUDY.name,
        title=STUDY.title,
        paper=STUDY.paper,
        summary=STUDY.summary,
        scale="tiny",
        scale_text=STUDY.scales["tiny"],
        results=tiny,
        failures=(),
        headline=STUDY.headline(tiny),
        tables=tuple(STUDY.tables(tiny)),
        figures=tuple(STUDY.figures(tiny)),
        judged=tuple(STUDY.judge(tiny)),
        findings=tuple(STUDY.findings(tiny)),
        witness=None,
        command="whence study vcube --scale tiny",
        environment={"whence": "0"},
        seconds={"simulate": 1.0},
    )
    page = html.write(result, tmp_path / "report.html", date="today").read_text()
    assert "runs recorded no trace" in page
    assert "mathdefault" not in page
    for words in ("How the paper is read", "Where the numbers differ, and why", "R1 (fitted)"):
        assert words in page
