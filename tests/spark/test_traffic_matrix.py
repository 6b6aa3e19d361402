"""The traffic matrix from traces, on Spark, and a plan from it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.sparking import scenario
from support.running import simulate_to
from whence.cli.main import main
from whence.spark import tables
from whence.spark.metrics.wire import traffic_matrix
from whence.spark.verify import verify_folder
from whence.trace.reader import open_trace
from whence.trace.schema import Kind
from whence.verify.run import verify_trace

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Point-to-point messages over domains, and beside them a run of broadcasts, which has no
    destinations."""
    out = tmp_path_factory.mktemp("sent")
    simulate_to(scenario("domains", nodes=9, seed=3), out / "run=one")
    simulate_to(scenario("vector", seed=3), out / "run=two")
    return out


def test_the_matrix_counts_every_message_once(spark: SparkSession, sent: Path) -> None:
    matrix = traffic_matrix(tables.flatten(tables.read_segments(spark, sent)))
    tables.require(matrix, tables.TRAFFIC_MATRIX, "matrix")
    found = {(row.run, row.source, row.to): row.messages for row in matrix.collect()}
    plain = Counter(
        (event.run, event.node, event.peer)
        for event in open_trace(sent).events()
        if event.kind is Kind.BROADCAST and event.peer is not None
    )
    assert found == plain
    assert len(plain) > 30


def test_spark_and_process_judge_point_to_point_traces_alike(spark: SparkSession, sent: Path) -> None:
    assert verify_folder(spark, sent) == verify_trace(sent)
    assert all(report.ok for report in verify_trace(sent))


def test_from_a_trace_to_a_plan(sent: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "traffic.parquet"
    for words in (
        ["traffic", str(sent / "run=one"), str(file)],
        ["plan", str(file), "--steps", "200", "--json"],
    ):
        with pytest.raises(SystemExit) as end:
            main(["mom", *words])
        assert not end.value.code
    document = json.loads(capsys.readouterr().out.partition("\n")[2])
    assert document["costs"]["flat"]["per_message"] == 50 + 81
