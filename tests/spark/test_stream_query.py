"""`causal_order` and `whence stream` as Spark runs them: batches, watermarks, restarts, files."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

from spark.spans import shop
from spark.streaming import (
    COLUMNS,
    LIFETIME,
    SCHEMA,
    check_order,
    job,
    results,
    run_command,
    write_batches,
    write_files,
    write_rooms,
)
from whence.errors import MisuseError
from whence.spark.ordering.job import run_job
from whence.spark.ordering.sort import causal_sort
from whence.spark.ordering.versions import StateStore

pytestmark = pytest.mark.spark


def order_line(folder: Path, *more: str) -> list[str]:
    order = ["--id", "id", "--depends-on", "after", "--event-time", "at", "--lifetime", LIFETIME]
    return ["stream", str(folder / "in"), str(folder / "out"), *order, "--available-now", *more]


def test_no_row_is_dropped_for_being_older_than_the_watermark(spark: SparkSession, tmp_path: Path) -> None:
    """Spark would filter such rows away in silence if it saw their time; here they are `late`."""
    times = (0, 10, 0.05, 20, 1)
    write_batches(tmp_path / "in", *([{"id": str(at), "at": us}] for at, us in enumerate(times)))
    summary = run_job(spark, job(tmp_path / "in", tmp_path / "out"))
    found = {row.id: row.outcome for row in spark.read.parquet(str(tmp_path / "out")).collect()}
    assert found == {"0": "in order", "1": "in order", "2": "late", "3": "in order", "4": "late"}
    assert summary.outcomes["late"] == 2
    assert (summary.rows_in, summary.rows_out, summary.unplaced) == (5, 5, 2)


def test_the_command_on_csv(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Text becomes lists and times, the order is that of the same rows at rest, and the summary adds up."""
    rows = write_files(tmp_path / "in", keys=1, files=2, form="csv")
    line = order_line(tmp_path, "--format", "csv", "--to-format", "csv", "--separator", "|", "--key", "room")
    assert run_command([*line, "--flush", "--json"]) == 0
    said = capsys.readouterr()
    summary = json.loads(said.out)["summary"]
    assert summary["rows_in"] == summary["rows_out"] == sum(summary["outcomes"].values()) == len(rows)
    assert summary["rows_per_second"] == pytest.approx(len(rows) / summary["seconds"])
    assert f"{len(rows)} rows in, {len(rows)} out, batch {summary['batches']}" in said.err
    assert "WARN" not in said.err
    table = spark.createDataFrame(
        [(row["room"], row["id"], row["after"], row["at"]) for row in rows],
        "room string, id string, after array<string>, at string",
    ).withColumn("at", F.col("at").cast("timestamp"))
    at_rest = causal_sort(table, **COLUMNS | {"remember": None}).collect()
    read = spark.read.option("header", "true").csv(str(tmp_path / "out")).collect()
    assert sorted((row.id, row.outcome, row.missing or "", row.position or "") for row in read) == sorted(
        (row.id, row.outcome, "|".join(row.missing), str(row.position or "")) for row in at_rest
    )


# The slow ones


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["emit", "drop"])
def test_the_stream_gives_what_the_sort_gives(spark: SparkSession, tmp_path: Path, policy: str) -> None:
    """Whatever the batches and partitions: nothing lost, nothing doubled, each row where it is at rest."""
    rows = write_files(tmp_path / "in")
    at_rest = results(
        causal_sort(spark.read.schema(SCHEMA).json(str(tmp_path / "in")), **COLUMNS, policy=policy)
    )
    for files, partitions in (("1", "2"), ("3", "5"), ("1000", "1")):
        out = tmp_path / f"out{files}"
        options = {"maxFilesPerTrigger": files}
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
        try:
            summary = run_job(
                spark, job(tmp_path / "in", out, order=COLUMNS | {"policy": policy}, source_options=options)
            )
        finally:
            spark.conf.set("spark.sql.shuffle.partitions", "2")
        read = spark.read.parquet(str(out))
        assert results(read) == at_rest
        assert check_order(read.collect()) > 0
        assert summary.rows_in == summary.rows_out == len(rows)
        assert sum(summary.outcomes.values()) == len(rows)
        assert all(summary.outcomes.values())


@pytest.mark.slow
def test_the_end_needs_a_flush_and_a_restart_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    rows = write_files(tmp_path / "in", files=4)
    later = tmp_path / "later"
    later.mkdir()
    for path in sorted((tmp_path / "in").glob("*"))[2:]:
        path.rename(later / path.name)
    first = run_job(spark, job(tmp_path / "in", tmp_path / "out", flush=False))
    assert 0 < first.rows_out < first.rows_in < len(rows)
    for path in later.iterdir():
        path.rename(tmp_path / "in" / path.name)
    second = run_job(spark, job(tmp_path / "in", tmp_path / "out", flush=False))
    assert first.rows_in + second.rows_in == len(rows)
    assert first.rows_out + second.rows_out < len(rows)  # some still wait: nothing moves the watermark
    third = run_job(spark, job(tmp_path / "in", tmp_path / "out"))
    assert third.rows_in == 0
    assert third.state_keys == 0
    expected = causal_sort(spark.read.schema(SCHEMA).json(str(tmp_path / "in")), **COLUMNS)
    assert results(spark.read.parquet(str(tmp_path / "out"))) == results(expected)
    with pytest.raises(MisuseError, match="it was flushed"):
        run_job(spark, job(tmp_path / "in", tmp_path / "out", flush=False))


@pytest.mark.slow
@pytest.mark.parametrize("delay", ["0s", "1 minute"])
def test_a_delay_spares_a_key_that_lags_behind_another(
    spark: SparkSession, tmp_path: Path, delay: str
) -> None:
    write_batches(
        tmp_path / "in",
        [{"room": "slow", "id": "b", "after": ["a"], "at": 0}, {"room": "fast", "id": "x", "at": 10}],
        [{"room": "fast", "id": "y", "at": 11}],
        [{"room": "slow", "id": "a", "at": 0.05}],
    )
    run_job(spark, job(tmp_path / "in", tmp_path / "out", order=COLUMNS | {"delay": delay}))
    found = {row.id: row.outcome for row in spark.read.parquet(str(tmp_path / "out")).collect()}
    spared = {"a": "in order", "b": "waited"}
    given_up = {"a": "late", "b": "predecessor expired"}
    assert found == {"x": "in order", "y": "in order"} | (given_up if delay == "0s" else spared)


@pytest.mark.slow
def test_without_an_event_time_the_batch_is_the_arrival(spark: SparkSession, tmp_path: Path) -> None:
    rows = write_files(tmp_path / "in")
    order = COLUMNS | {"event_time": None, "lifetime": "1 day"}
    summary = run_job(spark, job(tmp_path / "in", tmp_path / "out", order=order))
    assert summary.rows_out == len(rows)
    assert summary.outcomes["late"] == 0  # nothing expires before the flush


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_state_does_not_grow(spark: SparkSession, tmp_path: Path) -> None:
    """Rooms come and go: after each generation the state is what it was after the one before it."""
    lives, generations = 4, 6
    count = write_rooms(tmp_path / "in", files=lives * generations, lives=lives)
    order = COLUMNS | {"lifetime": "1s", "remember": "1s"}
    summary = run_job(spark, job(tmp_path / "in", tmp_path / "out", order=order, flush=False))
    assert summary.rows_in == count
    store = StateStore(f"{tmp_path / 'out'}.checkpoint/whence")
    sizes = [store.sizes(batch) for batch in range(lives - 1, lives * generations, lives)]
    keys = [sum(size.keys for size in each) for each in sizes]
    assert set(keys) <= {1, 2, 3}  # a room, and those that are not forgotten yet
    assert max(keys[2:]) <= max(keys[:2])
    held = [sum(size.waiting for size in each) for each in sizes]
    assert max(held[2:]) <= max(held[:2])
    known = [sum(len(each.bucket) for p in range(2) for each in store.versions(p, b)[:1]) for b in (7, 23)]
    assert known[1] <= 1.05 * known[0]


@pytest.mark.slow
def test_the_command_again_has_nothing_left_to_do(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = write_files(tmp_path / "in", keys=1)
    line = order_line(tmp_path, "--format", "json", "--key", "room", "--flush")
    assert run_command(line) == 0
    said = capsys.readouterr().out
    assert f"{len(rows)} rows in, {len(rows)} out" in said
    assert "rows/s" in said
    assert run_command(line) == 0
    assert "0 rows in, 0 out" in capsys.readouterr().out
    # A file that no batch committed does not belong to the result: Spark knows.
    parts = sorted((tmp_path / "out").glob("part-*"))
    shutil.copy(parts[0], parts[0].with_name("part-stray.snappy.parquet"))
    assert spark.read.parquet(str(tmp_path / "out")).count() == len(rows)


@pytest.mark.slow
def test_the_command_on_spans(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    shop(tmp_path / "in" / "spans.json")
    line = ["stream", str(tmp_path / "in"), str(tmp_path / "out"), "--format", "otel", "--lifetime", "1s"]
    assert run_command([*line, "--available-now", "--flush"]) == 0
    assert "6 rows in, 6 out" in capsys.readouterr().out  # spans, not export requests
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert {row.span_id: row.position for row in rows} == {"a": 1, "b": 2, "c": 3, "m": 1, "p": 1, "q": 2}


@pytest.mark.slow
def test_the_command_on_vector_clocks(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    lines = ['b {"b":1,"a":1}', "got it", 'a {"a":2,"b":1}', "back", 'a {"a":1}', "start"]
    (tmp_path / "in" / "made.log").write_text("\n".join(lines) + "\n")
    line = ["stream", str(tmp_path / "in"), str(tmp_path / "out"), "--format", "shiviz", "--lifetime", "1m"]
    assert run_command([*line, "--available-now", "--flush"]) == 0
    assert "3 rows in, 3 out" in capsys.readouterr().out  # events, not logs
    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("position").collect()
    assert [row.event for row in rows] == ["start", "got it", "back"]


@pytest.mark.slow
def test_a_source_by_name(spark: SparkSession, tmp_path: Path) -> None:
    """Any source that Spark knows, here one made in Python."""

    class Reader(SimpleDataSourceStreamReader):  # in here, so that it is sent to the workers by value
        def initialOffset(self) -> dict[str, int]:
            return {"row": 0}

        def read(self, start: dict[str, int]) -> Any:
            times = [datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC) for second in (0, 1)]
            rows = [(2, [1], times[0]), (1, [], times[1])]
            return iter(rows[start["row"] :]), {"row": len(rows)}

        def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Any:
            return self.read(start)[0]

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "made_up"

        def schema(self) -> str:
            return "id bigint, after array<bigint>, at timestamp"

        def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:
            return Reader()

    spark.dataSource.register(Source)
    order = COLUMNS | {"key": None, "lifetime": "1 hour"}
    more = {"source_format": "made_up", "schema": None, "source_options": {}, "order": order}
    summary = run_job(spark, job(Path("unused"), tmp_path / "out", **more))
    assert summary.rows_out == 2
    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("position").collect()
    assert [(row.id, row.outcome) for row in rows] == [(1, "in order"), (2, "waited")]
