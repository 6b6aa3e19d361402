"""A study from its grid to its page, on Spark: a part of the tour."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from support.made_up_study import judged
from support.running import simulate
from whence.cli import main as cli
from whence.report import html, tour
from whence.sim.files import from_dict
from whence.studies import save
from whence.studies.base import Point, Study, StudyResult
from whence.studies.results import Results, Row
from whence.studies.run import TRACES, run_study
from whence.studies.tour import grid, page
from whence.studies.tour.grid import TOUR
from whence.studies.verdicts import Judged
from whence.verify.run import verify_trace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def small(scale: str) -> list[Point]:
    """One run of each kind: every protocol under the common workload, and the smallest of each chapter."""
    points = [point for point in TOUR.grid(scale) if point.labels["seed"] == 1]
    chapters = [point for point in points if point.labels["chapter"] != grid.COMMON]
    least = {str(point.labels["chapter"]): point.labels["nodes"] for point in reversed(chapters)}
    few = [point for point in chapters if point.labels["nodes"] == least[str(point.labels["chapter"])]]
    return [*(point for point in points if point.labels["chapter"] == grid.COMMON), *few]


STUDY = replace(TOUR, grid=small)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("study")


@pytest.fixture(scope="module")
def result(spark: SparkSession, folder: Path) -> StudyResult:
    return run_study(spark, STUDY, "tour", folder)


def test_the_tour_holds(result: StudyResult) -> None:
    assert [one.claim.text for one in result.judged if one.failed] == []
    assert result.failures == ()
    assert len(result.results.rows) == len(small("tour"))
    assert result.results.total("causal", protocol="fifo") > 0
    assert list(result.seconds) == ["simulate", "verify", "measure"]


def test_five_chapters_beside_their_papers(result: StudyResult) -> None:
    chapters = page.chapters(result.results)
    assert [chapter.paper for chapter in chapters] == ["000", "001", "002", "003", "004"]
    for chapter in chapters:
        assert chapter.line.startswith(chapter.paper)
        assert chapter.table.rows
        assert any(series.x for series in chapter.figure.panels[0].series)
    (flat, bus) = chapters[-1].table.rows
    assert (flat[1], flat[2].mean, bus[1], bus[2].mean) == (1024, 1024, 192, 192)  # 4 n² and 12 n
    assert chapters[0].table.rows[0][1] == 3.33  # Table 1, printed
    table = page.common(result.results)
    violations = {row[0]: row[1] for row in table.rows}
    assert set(violations) == {*grid.UNORDERED, *grid.CAUSAL}
    assert all(violations[protocol] == 0 for protocol in grid.CAUSAL)
    assert violations["fifo"] > 0


def test_the_page_of_the_tour(result: StudyResult, folder: Path) -> None:
    shown = unescape(tour.write(result, folder / "tour.html", date="today").read_text())
    (opened,) = re.findall(r'href="(views/[^"]+)"', shown)
    assert result.witness.run in (folder / opened).read_text()
    assert shown.count("<svg") == 6  # five figures and a violation
    for words in ("One workload under every protocol", "Where to go on", *result.witness.sentences):
        assert words in shown
    for name in tour.ONWARD:
        for part in name.split():
            if part.startswith("examples/"):
                assert (Path(__file__).parents[2] / part).exists()
    assert result.witness.labels["protocol"] == "fifo"


def test_a_tour_without_runs_says_so(result: StudyResult) -> None:
    empty = replace(result, results=Results(()), witness=None)
    assert page.chapters(empty.results) == []
    assert "One workload" in tour.render(empty, date="today")


def test_measures_are_those_of_the_simulator_and_verdicts_those_of_the_verifier(
    result: StudyResult, folder: Path
) -> None:
    for row in result.results.rows[::3]:
        direct = simulate(from_dict(row.parameters))
        assert direct.run == row.run
        if row.labels["chapter"] == grid.DOMAINS:  # counted while it runs: Spark measures nothing of it
            assert row.counted["messages"] == direct.deliveries
            assert row.counted["packets"] == direct.packets
        else:
            assert row.measures["broadcasts"] == direct.broadcasts
            assert row.measures["deliveries"] == direct.deliveries
            assert row.measures["packets"] == direct.packets
        (report,) = verify_trace(folder / TRACES / f"run={row.run}")
        assert row.verdict == msgspec.to_builtins(report)
        assert row.measures["causal"] == report.counts.causal
        assert report.deliveries == direct.deliveries
    compared = {row.labels["chapter"] for row in result.results.rows[::3]}
    # Chapter 002 records deliveries only, of which Spark counts no packets.
    assert compared >= {*page.STUDIES, grid.COMMON} - {grid.DEADLINE}


def test_the_page_and_the_files_hold_every_run(result: StudyResult, tmp_path: Path) -> None:
    save.save(result, tmp_path)
    page = html.write(result, tmp_path / "report.html", date="today", links=save.LINKS).read_text()
    read = json.loads((tmp_path / save.RESULTS_FILE).read_text())
    with (tmp_path / save.RUNS_FILE).open(newline="") as file:
        runs = [line["run"] for line in csv.DictReader(file)]
    assert runs == [row["run"] for row in read["runs"]] == [row.run for row in result.results.rows]
    for run in runs:
        assert run in page
    assert result.witness is not None
    assert result.witness.sentences[1].split(" delivered")[0] in page
    assert from_dict(read["runs"][0]["parameters"]).seed == read["runs"][0]["labels"]["seed"]


class Steps:
    """A watch that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int | None, int | None]] = []

    @contextmanager
    def __call__(self, phase: str, total: int | None) -> Iterator[Any]:
        yield SimpleNamespace(update=lambda done: self.told.append((phase, total, done)))


def one_bad(scale: str) -> list[Point]:
    """Two good runs and one that no simulator can do; the folder holds more runs than these."""
    points = [point for point in STUDY.grid(scale) if point.labels["seed"] == 1][:2]
    bad = msgspec.structs.replace(points[0].scenario, params={"relay": "perhaps"})
    return [*points, Point({**points[0].labels, "seed": 2}, bad)]


def test_a_run_that_fails_is_reported_and_the_others_count(
    spark: SparkSession, result: StudyResult, folder: Path
) -> None:
    watch = Steps()
    partial = run_study(spark, replace(STUDY, grid=one_bad), "tour", folder, watch=watch)
    assert [row.run for row in partial.results.rows] == [row.run for row in result.results.rows[:2]]
    (failure,) = partial.failures
    assert failure.labels["seed"] == 2
    assert "perhaps" in failure.error
    assert not partial.holds
    assert [one.difference for one in partial.judged[-2:]] == [-1, 0]
    assert watch.told[-1] == ("simulate", 3, 3)
    # What was finished before was not run again: its numbers are the very same.
    assert partial.results.rows[0] == result.results.rows[0]
    assert failure.error.splitlines()[-1] in unescape(html.render(partial, date="today"))


def test_a_study_without_a_finished_run_is_a_report_of_failures(spark: SparkSession, tmp_path: Path) -> None:
    all_bad = replace(STUDY, grid=lambda scale: one_bad(scale)[2:])
    empty = run_study(spark, all_bad, "tour", tmp_path)
    assert not empty.holds
    assert "perhaps" in empty.failures[0].error
    assert [one.measured for one in empty.judged[-2:]] == [0, 0]
    assert "perhaps" in unescape(html.render(empty, date="today"))


def test_a_part_of_a_report_that_cannot_be_made_is_a_line_of_it(
    spark: SparkSession, result: StudyResult, folder: Path
) -> None:
    def broken(results: Results) -> list[Any]:
        raise KeyError("a point that was never run")

    made = run_study(spark, replace(STUDY, tables=broken), "tour", folder)
    assert [failure.run for failure in made.failures] == ["tables"]
    assert "never run" in made.failures[0].error
    assert not made.holds
    assert len(made.results.rows) == len(result.results.rows)


def test_a_run_whose_numbers_cannot_be_derived_is_a_line_of_the_report(
    spark: SparkSession, result: StudyResult, folder: Path
) -> None:
    lost = result.results.rows[0]

    def derive(row: Row) -> dict[str, float | None]:
        return {"share": 1 / (row.run != lost.run), **STUDY.derive(row)}

    made = run_study(spark, replace(STUDY, derive=derive), "tour", folder)
    assert [(failure.run, failure.labels) for failure in made.failures] == [(lost.run, lost.labels)]
    assert "ZeroDivisionError" in unescape(html.render(made, date="today"))
    assert not made.holds
    assert len(made.results.rows) == len(result.results.rows) - 1


@pytest.mark.usefixtures("result")
def test_the_command(
    spark: SparkSession, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once as a machine calls it, and once for people with a claim that cannot hold: exit code 1."""
    monkeypatch.setattr(grid, "TOUR", STUDY)
    arguments = ["tour", "--out", str(folder)]
    with pytest.raises(SystemExit) as ended:
        cli.main([*arguments, "--json"])
    shown = capsys.readouterr()
    assert ended.value.code == 0
    read = json.loads(shown.out)
    assert read["holds"] is True
    assert len(read["lines"]) == 5
    assert Path(read["page"]) == (folder / "tour.html").resolve()
    assert f"simulate {len(small('tour'))}/{len(small('tour'))} done" in shown.err

    def impossible(_: Study, results: Results) -> list[Judged]:
        return [judged("seeds", 3, len(results.values("seed")))]

    monkeypatch.setattr(Study, "judge", impossible)
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    shown = capsys.readouterr()
    assert ended.value.code == 1
    lines = shown.out.strip().splitlines()
    assert [line[:3] for line in lines[-6:]] == ["000", "001", "002", "003", "004", "Pag"]
    assert lines[-1] == f"Page: {(folder / 'tour.html').resolve()}"
    assert "invariants: 2 of 3 hold" in (folder / "tour.html").read_text()
