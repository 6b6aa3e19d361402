"""The verifier on Spark gives the reports of the verifier in process, exactly."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark.sparking import scenario
from support.running import simulate_to
from support.traces import random_run, random_timing, random_unicast_run
from whence.errors import SchemaError, TraceError
from whence.spark import tables
from whence.spark.verify import findings, verify, verify_folder
from whence.trace.reader import open_trace
from whence.trace.schema import Kind, Level, PromisesMade
from whence.trace.writer import TraceWriter
from whence.verify.report import RunReport
from whence.verify.run import verify_trace

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("witness_max", [None, 0, 2])
@pytest.mark.parametrize("complete", [None, True])
def test_reports_are_equal(
    spark: SparkSession, folder: Path, witness_max: int | None, complete: bool | None
) -> None:
    expected = verify_trace(folder, witness_max=witness_max, complete=complete)
    assert verify_folder(spark, folder, witness_max=witness_max, complete=complete) == expected
    if witness_max is None:
        # fifo breaks causal order here and does not promise it; vector keeps it.
        assert {(r.protocol, r.ok, r.counts.causal > 0) for r in expected} >= {("fifo", True, True)}
        assert all(r.counts.causal == 0 for r in expected if r.protocol == "vector")


@pytest.mark.parametrize(("blocks", "memory_bytes"), [(1, None), (3, None), (2, 1 << 16)])
def test_blocks_of_columns_and_little_memory_give_the_same_reports(
    spark: SparkSession, folder: Path, blocks: int, memory_bytes: int | None
) -> None:
    expected = verify_trace(folder, witness_max=2)
    assert verify_folder(spark, folder, witness_max=2, blocks=blocks, memory_bytes=memory_bytes) == expected


def test_random_damaged_traces_give_the_same_reports(spark: SparkSession, tmp_path: Path) -> None:
    _compare_random(spark, tmp_path, 60, cut=16)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_10000_random_damaged_traces_give_the_same_reports(spark: SparkSession, tmp_path: Path) -> None:
    _compare_random(spark, tmp_path, 10_000, cut=10_000)


def _compare_random(spark: SparkSession, tmp_path: Path, count: int, cut: int) -> None:
    """Broadcast and point-to-point runs in one folder, as a sweep's: whole runs, and `cut` of them in blocks.

    Each run in blocks is two jobs of Spark.
    """
    rng = random.Random(count)
    for number in range(count):
        to: dict[tuple[str | None, int], str] = {}
        timing: dict[tuple[str, int], tuple[int, str | None]] = {}
        if number % 2:
            run, members, to = random_unicast_run(rng)
        else:
            run, members = random_run(rng)
            timing = random_timing(run, rng)
        name = f"r{number:05d}"
        with TraceWriter(
            tmp_path / f"run={name}", run=name, writer="w", protocol="p", parameters={}, seed=None,
            promises=PromisesMade(complete=True, timely=number % 4 == 0), nodes=members, level=Level.ALL,
        ) as writer:  # fmt: skip
            for node, rows in run.items():
                for seq, (kind, origin, which) in enumerate(rows):
                    time_us, detail = timing.get((node, seq), (seq, None))
                    peer = to.get((origin, which)) if kind is Kind.BROADCAST else None
                    writer.event(node, time_us, kind, origin, which, peer, detail=detail)
    opened = open_trace(tmp_path)
    expected = verify_trace(opened, witness_max=None)
    assert verify_folder(spark, opened, witness_max=None) == expected
    some = expected[:cut]
    assert _kinds(some) == _kinds(expected) >= {"causal", "late", "missing"}
    runs = [report.run for report in some]
    assert verify_folder(spark, opened, witness_max=None, blocks=3, runs=runs) == some


def _kinds(reports: list[RunReport]) -> set[str]:
    return {each.kind for report in reports for each in report.findings}


def test_lives_are_judged_once_by_every_path(spark: SparkSession, tmp_path: Path) -> None:
    """c delivers what depends on a message that it neither has nor is told of: one finding."""
    ours, theirs = "a/00000000000000aa", "b/00000000000000bb"
    rows = [
        ("a", Kind.BROADCAST, ours), ("a", Kind.DELIVER, ours), ("b", Kind.DELIVER, ours),
        ("b", Kind.BROADCAST, theirs), ("b", Kind.DELIVER, theirs), ("c", Kind.DELIVER, theirs),
    ]  # fmt: skip
    with TraceWriter(
        tmp_path / "run=r", run="r", writer="w", protocol="p", parameters={}, seed=None,
        promises=PromisesMade(complete=False), nodes=["a", "b", "c"], level=Level.ALL,
    ) as writer:  # fmt: skip
        for node, kind, origin in rows:
            writer.event(node, 0, kind, origin, 1, None)
    expected = verify_trace(tmp_path)
    assert expected[0].counts.causal == 1
    assert verify_folder(spark, tmp_path) == expected
    assert verify_folder(spark, tmp_path, blocks=3) == expected
    segments, manifests = tables.read_segments(spark, tmp_path), tables.read_manifests(spark, tmp_path)
    (row,) = verify(segments, manifests).collect()
    assert msgspec.json.decode(row.report_json, type=RunReport) == expected[0]
    (row,) = verify(segments, manifests, timed=False).collect()
    assert "lives" in row.error


def test_some_runs_of_a_folder(spark: SparkSession, folder: Path) -> None:
    wanted = open_trace(folder).runs[1:3]
    assert verify_folder(spark, folder, runs=wanted) == [r for r in verify_trace(folder) if r.run in wanted]
    with pytest.raises(TraceError, match="holds no run 'nothing'"):
        verify_folder(spark, folder, runs=["nothing"])


def test_verdicts_do_not_depend_on_partitions(spark: SparkSession, folder: Path) -> None:
    segments, manifests = tables.read_segments(spark, folder), tables.read_manifests(spark, folder)
    whole = verify(segments.coalesce(1), manifests)
    tables.require(whole, tables.VERDICTS, "verdicts")
    split = verify(segments.repartition(9, "node", "segment"), manifests.repartition(3))
    assert sorted(map(tuple, whole.collect())) == sorted(map(tuple, split.collect()))


def test_findings_as_a_table(spark: SparkSession, folder: Path) -> None:
    verdicts = verify(tables.read_segments(spark, folder), tables.read_manifests(spark, folder))
    table = findings(verdicts)
    tables.require(table, tables.FINDINGS, "findings")
    found = sorted((r.run, r.kind, r.node, r.message, r.other, len(r.chain)) for r in table.collect())
    expected = sorted(
        (report.run, each.kind, each.node, each.message, each.other, len(each.chain))
        for report in verify_trace(folder)
        for each in report.findings
    )
    assert found == expected
    assert any(row[1] == "causal" and row[5] for row in found), "a causal finding has its witness"


def test_a_run_without_events_has_a_report(spark: SparkSession, tmp_path: Path) -> None:
    about = {"run": "r", "writer": "w", "protocol": "vector", "parameters": {}, "promises": PromisesMade()}
    TraceWriter(tmp_path, **about, seed=1, nodes=["a", "b"], level=Level.ALL).close()
    assert verify_folder(spark, tmp_path) == verify_trace(tmp_path)


def test_a_run_without_deliveries_recorded_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    simulate_to(scenario(nodes=2), tmp_path, Level.MEASURES)
    with pytest.raises(TraceError, match="measures"):
        verify_folder(spark, tmp_path)


def test_one_bad_run_does_not_hide_the_others(spark: SparkSession, folder: Path) -> None:
    segments, manifests = tables.read_segments(spark, folder), tables.read_manifests(spark, folder)
    bad = open_trace(folder).runs[0]
    # A hole in one run (its first segments are gone), and rows of a run that nobody announced.
    holed = segments.where((F.col("run") != bad) | (F.col("first_seq") > 0) | (F.col("node") != "n0"))
    foreign = segments.where(F.col("run") == bad).withColumn("run", F.lit("unknown"))
    late = holed.withColumn("first_seq", F.col("first_seq") + F.when(F.col("run") == bad, 5).otherwise(0))
    rows = {row.run: row for row in verify(late.union(foreign), manifests).collect()}
    assert set(rows) == {*open_trace(folder).runs, "unknown"}
    assert "seq" in rows[bad].error
    assert "no manifest" in rows["unknown"].error
    good = [row for run, row in rows.items() if run not in (bad, "unknown")]
    assert all(row.error is None and row.report_json for row in good)


def test_a_damaged_list_is_a_trace_error(spark: SparkSession, folder: Path) -> None:
    segments, manifests = tables.read_segments(spark, folder), tables.read_manifests(spark, folder)
    broken = segments.withColumn("origin", F.transform("origin", lambda each: each + 1000))
    assert all("origin" in row.error for row in verify(broken, manifests).collect())


def test_a_wrong_table_is_refused(spark: SparkSession, folder: Path) -> None:
    segments, manifests = tables.read_segments(spark, folder), tables.read_manifests(spark, folder)
    with pytest.raises(SchemaError, match="table 'segments', column 'number'"):
        verify(segments.drop("number"), manifests)
    with pytest.raises(SchemaError, match="table 'manifests', column 'nodes'"):
        verify(segments, manifests.drop("nodes"))


def test_a_truncated_trace_is_refused(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    part = next((tmp_path / "copy").rglob("*.parquet"))
    part.write_bytes(part.read_bytes()[: part.stat().st_size // 2])
    with pytest.raises(TraceError, match="truncated"):
        verify_folder(spark, tmp_path / "copy")


def test_lateness_is_judged_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """One run that promises to be timely beside one that does not, with the same late delivery."""
    for run, timely in (("timely", True), ("patient", False)):
        promises = PromisesMade(timely=timely, clock_slack_us=10 if timely else 0)
        about = {"run": run, "writer": run, "protocol": "p", "parameters": {}, "promises": promises}
        with TraceWriter(
            tmp_path / f"run={run}", **about, seed=1, nodes=["a", "b", "c"], level=Level.DELIVERIES
        ) as writer:
            writer.event("a", 100, Kind.BROADCAST, "a", 1, detail="500")
            writer.event("a", 100, Kind.DELIVER, "a", 1)
            writer.event("b", 610, Kind.DELIVER, "a", 1)
            writer.event("c", 611, Kind.DELIVER, "a", 1)
    expected = verify_trace(tmp_path)
    assert verify_folder(spark, tmp_path) == expected
    assert [(report.run, report.ok, report.counts.late) for report in expected] == [
        ("patient", True, 0), ("timely", False, 1),
    ]  # fmt: skip
    segments, manifests = tables.read_segments(spark, tmp_path), tables.read_manifests(spark, tmp_path)
    [late] = findings(verify(segments, manifests)).collect()
    assert (late.run, late.kind, late.node, late.broadcast_us, late.delivered_us) == (
        "timely", "late", "c", 100, 611,
    )  # fmt: skip
    errors = {row.run: row.error for row in verify(segments, manifests, timed=False).collect()}
    assert errors["patient"] is None
    assert "is missing" in errors["timely"]
