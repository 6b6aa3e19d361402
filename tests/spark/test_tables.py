"""Schemas, the check at the door, and the two views of a trace."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark.sparking import scenario
from support.running import simulate_to
from whence.errors import SchemaError, TraceError
from whence.spark import tables
from whence.spark.metrics.summary import latencies, summary
from whence.spark.metrics.wire import buffer_peaks, traffic
from whence.trace.columns import PACKED_SCHEMA
from whence.trace.reader import open_trace
from whence.trace.schema import Level, PromisesMade
from whence.trace.writer import TraceWriter

pytestmark = pytest.mark.spark


def test_segments_are_what_the_writer_writes() -> None:
    ours = to_arrow_schema(tables.SEGMENTS)
    assert ours.names == PACKED_SCHEMA.names
    for name in ours.names:
        written, read = PACKED_SCHEMA.field(name).type, ours.field(name).type
        assert (
            (read.value_type, pa.types.is_list(read)) == (written.value_type, True)
            if pa.types.is_list(written)
            else read == written
        )


def test_the_flat_view_is_the_readers(spark: SparkSession, folder: Path) -> None:
    events = tables.flatten(tables.read_segments(spark, folder))
    tables.require(events, tables.EVENTS, "events")
    assert events.columns == tables.EVENTS.names
    expected = sorted(tuple(event) for event in open_trace(folder).events())
    assert sorted(map(tuple, events.collect())) == expected
    assert len(expected) > 5_000


def test_a_missing_column_and_a_wrong_type_are_named(spark: SparkSession) -> None:
    good = spark.createDataFrame([], tables.EVENTS)
    tables.require(good.withColumn("more", F.lit(1)), tables.EVENTS, "events")
    with pytest.raises(SchemaError) as missing:
        tables.require(good.drop("seq"), tables.EVENTS, "events")
    assert missing.value.what == "table 'events', column 'seq'"
    assert "missing (expected bigint" in missing.value.reason
    with pytest.raises(SchemaError) as wrong:
        tables.require(good.withColumn("time_us", F.col("time_us").cast("int")), tables.EVENTS, "events")
    assert wrong.value.what == "table 'events', column 'time_us'"
    assert wrong.value.reason == "expected bigint, got int"


@pytest.mark.parametrize("stage", [latencies, traffic, buffer_peaks, summary])
def test_every_measure_checks_its_input(spark: SparkSession, stage: object) -> None:
    with pytest.raises(SchemaError, match="column 'kind'"):
        stage(spark.createDataFrame([], tables.EVENTS).drop("kind"))


def test_flatten_checks_its_input(spark: SparkSession) -> None:
    segments = spark.createDataFrame([], tables.SEGMENTS)
    with pytest.raises(SchemaError, match="expected array<int>, got string"):
        tables.flatten(segments.withColumn("origin", F.lit("n1")))


@pytest.mark.parametrize("name", ["with space", "glob[ab]{c}*?", "50%25"])
def test_a_folder_of_any_name(
    spark: SparkSession, deliveries_folder: Path, tmp_path: Path, name: str
) -> None:
    shutil.copytree(deliveries_folder, tmp_path / name)
    segments = tables.read_segments(spark, tmp_path / name)
    assert segments.agg(F.sum("events")).first()[0] == open_trace(deliveries_folder).event_count


def test_a_run_named_by_digits_stays_a_string(spark: SparkSession, tmp_path: Path) -> None:
    manifest = simulate_to(scenario(nodes=2), tmp_path / "run=0000000000000012")
    assert manifest.events
    segments = tables.read_segments(spark, tmp_path)
    assert segments.schema["run"].dataType.simpleString() == "string"
    assert {row.run for row in segments.select("run").distinct().collect()} == {manifest.run}


def test_a_damaged_trace_is_refused_before_spark_sees_it(
    spark: SparkSession, deliveries_folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(deliveries_folder, tmp_path / "cut")
    part = next((tmp_path / "cut").glob("*.parquet"))
    part.write_bytes(part.read_bytes()[:-100])
    with pytest.raises(TraceError, match="truncated"):
        tables.read_segments(spark, tmp_path / "cut")


def test_unlisted_files_stay_out(spark: SparkSession, deliveries_folder: Path, tmp_path: Path) -> None:
    """What a killed writer leaves behind its last part is not read."""
    target = tmp_path / "killed"
    shutil.copytree(deliveries_folder, target)
    before = tables.read_segments(spark, target).count()
    part = next(target.glob("*.parquet"))
    pq.write_table(pq.read_table(part), target / "sim-00001.parquet")
    assert tables.read_segments(spark, target).count() == before


def test_a_trace_without_events(spark: SparkSession, tmp_path: Path) -> None:
    promises = PromisesMade()
    about = {"run": "r", "writer": "w", "protocol": "vector", "parameters": {}, "promises": promises}
    TraceWriter(tmp_path, **about, seed=1, nodes=["a"], level=Level.ALL).close()
    segments = tables.read_segments(spark, tmp_path)
    assert tables.flatten(segments).count() == 0
    assert summary(tables.flatten(segments)).count() == 0


def test_manifests(spark: SparkSession, folder: Path) -> None:
    table = tables.read_manifests(spark, folder)
    tables.require(table, tables.MANIFESTS, "manifests")
    assert [row.run for row in table.orderBy("run").collect()] == open_trace(folder).runs


def test_columns_of_casts_and_orders(spark: SparkSession) -> None:
    made = spark.range(1).select(
        F.lit(1).alias("held_peak"), F.lit("r").alias("run"), F.lit("n").alias("node")
    )
    made = made.withColumn("entries_peak", F.lit(None)).select(tables.columns_of(tables.BUFFERS))
    assert isinstance(made.schema, StructType)
    tables.require(made, tables.BUFFERS, "buffers")
    assert made.columns == tables.BUFFERS.names
