"""The VCube study from its grid to its page, on Spark, at its smallest scale."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from whence.cli import main as cli
from whence.errors import DataError
from whence.kernels.vcube import kernel as vcube
from whence.sim.files import from_dict
from whence.studies.base import StudyResult
from whence.studies.run import TRACES, run_study
from whence.studies.vcube.claims import CRASHES
from whence.studies.vcube.grid import STUDY
from whence.studies.verdicts import Verdict
from whence.trace.measures import read_measures
from whence.verify.run import verify_trace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FULL_TRACES, JUDGED = 2 * 3 + 2 * 3 + 2, 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vcube")


@pytest.fixture(scope="module")
def result(spark: SparkSession, folder: Path) -> StudyResult:
    return run_study(spark, STUDY, "tiny", folder)


def test_the_study_holds_at_the_smallest_scale(result: StudyResult) -> None:
    assert result.failures == ()
    assert len(result.results.rows) == len(STUDY.grid("tiny"))
    assert list(result.seconds) == ["prepare", "simulate", "verify", "measure"]
    named = {one.claim.text: one for one in result.judged}
    plain = result.results.select(mode="plain", part="main")
    for nodes, runs in ((8, 3 + 2), (16, 3 + 2 + 2), (32, 2)):  # of R0, R1 and T25
        packets = named[f"packets without aggregation, {nodes} nodes, every run"]
        assert (packets.measured, packets.runs, packets.demanded) == (nodes * (nodes - 1), runs, True)
        there = [row.measures["packets"] for row in plain if row.labels["nodes"] == nodes]
        assert there == [nodes * (nodes - 1)] * runs
    assert named["what the verifier found in all of them"].measured == 0
    assert named["deliveries missing from any run without crashes"].measured == 0
    assert [one.claim.text for one in result.judged if one.failed] == []


def test_the_verifier_judges_every_run_with_a_trace_and_no_other(result: StudyResult, folder: Path) -> None:
    judged = [row for row in result.results.rows if row.judged]
    main = [row for row in judged if row.labels["part"] == "main"]
    # The first run of each mode: R0 at 8, 16 (every event) and 32 (deliveries; with 5 bytes), R1 at 8 and 16,
    # T25, which has no single tree, at 16. And every run with crashes: three cases, two seeds.
    assert len(main) == FULL_TRACES + 4 == 18
    assert all(row.labels["part"] == CRASHES for row in judged if row not in main)
    assert len(judged) == len(main) + 3 * 2 == JUDGED
    for row in judged[::4]:
        (report,) = verify_trace(folder / TRACES / f"run={row.run}")
        assert report.ok
        assert row.verdict["deliveries"] == report.deliveries
        if row in main:  # each node broadcasts one message, and all deliver it
            assert report.deliveries == int(row.labels["nodes"]) ** 2
    named = {one.claim.text: one for one in result.judged}
    kept = named["runs with a trace that keep every promise"]
    assert (kept.expected, kept.verdict) == (len(judged), Verdict.AGREES)
    same = named["numbers in which full traces, measured by Spark, differ from the kernel's counts"]
    assert (same.measured, same.runs) == (0, FULL_TRACES)


def test_measures_are_those_of_the_kernel(result: StudyResult, folder: Path) -> None:
    of_kernel = [row for row in result.results.rows if row.labels["part"] != CRASHES]  # which the cores run
    assert {row.labels["part"] for row in of_kernel} == {"main", "figure 11", "several messages"}
    for row in of_kernel[::5] + of_kernel[-1:]:
        direct = vcube.run(from_dict(row.parameters)).detail.measures
        assert row.measures["packets"] == direct.packets
        assert row.measures["aggregated_messages"] == direct.aggregated_messages
        assert row.measures["delivery_ut"] == direct.delivery_us / direct.deliveries / 1000
        found = read_measures(folder / TRACES / f"run={row.run}")
        assert found is not None
        assert row.counted == found.measures


@pytest.mark.usefixtures("result")
def test_the_command_goes_on_where_it_stopped(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.glob(f"{TRACES}/run=*/measures.json")}
    with pytest.raises(SystemExit) as ended:
        cli.main(["study", "vcube", "--scale", "tiny", "--out", str(folder), "--json"])
    read = json.loads(capsys.readouterr().out)
    assert ended.value.code == 0
    assert read["holds"] is True
    assert len(read["runs"]) == len(before) == len(STUDY.grid("tiny"))
    assert {path: path.stat().st_mtime_ns for path in before} == before, "a finished run was run again"
    page = (folder / "report.html").read_text()
    for words in ("Table 1: packets", "Figure 11", "no trace", "How the paper is read"):
        assert words in page
    with (folder / "runs.csv").open(newline="") as file:
        oks = [line["ok"] for line in csv.DictReader(file)]
    assert oks.count("True") == JUDGED
    assert oks.count("") == len(oks) - JUDGED


def test_a_run_whose_measures_are_gone_is_an_error(
    spark: SparkSession, result: StudyResult, folder: Path
) -> None:
    lost = next(row for row in result.results.rows if not row.judged)
    place = folder / TRACES / f"run={lost.run}" / "measures.json"
    kept = place.read_bytes()
    place.unlink()
    try:
        with pytest.raises(DataError, match=f"run {lost.run}.*there are none"):
            run_study(spark, STUDY, "tiny", folder)
    finally:
        place.write_bytes(kept)
