"""`causal_order` and `whence stream` as Spark runs them: batches, watermarks, restarts, files."""

from __future__ import annotations

import json
import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from support.spans import shop
from support.streaming import LIFETIME, write_files
from whence.cli.main import main
from whence.errors import DataError, ExtraMissingError, MisuseError, SchemaError
from whence.spark.order_columns import describe
from whence.spark.sort import causal_sort
from whence.spark.stream import causal_order, packed, unpacked
from whence.spark.stream_job import StreamJob, run_job

pytestmark = pytest.mark.spark

COLUMNS: dict[str, Any] = {
    "key": "room", "id": "id", "depends_on": "after", "event_time": "at", "lifetime": LIFETIME,
    "remember": "1h",
}  # fmt: skip
SCHEMA = "room string, id string, after array<string>, at timestamp, text string"


@pytest.fixture
def protobuf() -> None:
    """Spark's stateful streaming talks to Python in protobuf."""
    pytest.importorskip("google.protobuf")


def job(source: Path, out: Path, **more: Any) -> StreamJob:
    settings: dict[str, Any] = {
        "source": str(source), "out": str(out), "checkpoint": f"{out}.checkpoint", "order": COLUMNS,
        "source_format": "json", "schema": SCHEMA, "source_options": {"maxFilesPerTrigger": "1"},
        "available_now": True, "flush": True,
    }  # fmt: skip
    return StreamJob(**(settings | more))


def results(table: DataFrame) -> list[tuple[str, ...]]:
    names = ("room", "id", "after", "at", "text", "outcome", "missing", "position", "epoch")
    return sorted(tuple(map(str, row)) for row in table.select(*names).collect())


@pytest.mark.usefixtures("protobuf")
@pytest.mark.parametrize("policy", ["emit", "drop"])
def test_the_stream_gives_what_the_sort_gives(spark: SparkSession, tmp_path: Path, policy: str) -> None:
    """Whatever the batches: nothing lost, nothing doubled, and each row where it is at rest."""
    rows = write_files(tmp_path / "in")
    at_rest = results(
        causal_sort(spark.read.schema(SCHEMA).json(str(tmp_path / "in")), **COLUMNS, policy=policy)
    )
    for files in ("1", "3", "1000"):
        out = tmp_path / f"out{files}"
        options = {"maxFilesPerTrigger": files}
        summary = run_job(
            spark, job(tmp_path / "in", out, order=COLUMNS | {"policy": policy}, source_options=options)
        )
        assert results(spark.read.parquet(str(out))) == at_rest
        assert summary.rows_in == summary.rows_out == len(rows)
        assert sum(summary.outcomes.values()) == len(rows)
        assert all(summary.outcomes.values())


@pytest.mark.usefixtures("protobuf")
def test_no_row_is_dropped_for_being_older_than_the_watermark(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for number, at in enumerate(("10:00:00", "10:00:10", "10:00:00.050", "10:00:20", "10:00:01")):
        row = {"room": "r", "id": str(number), "after": [], "at": f"2026-01-01T{at}Z", "text": ""}
        path = source / f"{number}.json"
        path.write_text(json.dumps(row))
        import os

        os.utime(path, (1_700_000_000 + number,) * 2)
    run_job(spark, job(source, tmp_path / "out"))
    found = {row.id: row.outcome for row in spark.read.parquet(str(tmp_path / "out")).collect()}
    assert found == {"0": "in order", "1": "in order", "2": "late", "3": "in order", "4": "late"}


@pytest.mark.usefixtures("protobuf")
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
    run_job(spark, job(tmp_path / "in", tmp_path / "out"))
    expected = causal_sort(spark.read.schema(SCHEMA).json(str(tmp_path / "in")), **COLUMNS)
    assert results(spark.read.parquet(str(tmp_path / "out"))) == results(expected)
    with pytest.raises(MisuseError, match="it was flushed"):
        run_job(spark, job(tmp_path / "in", tmp_path / "out", flush=False))


@pytest.mark.usefixtures("protobuf")
def test_without_an_event_time_the_batch_is_the_arrival(spark: SparkSession, tmp_path: Path) -> None:
    rows = write_files(tmp_path / "in")
    order = COLUMNS | {"event_time": None, "lifetime": "1 day"}
    summary = run_job(spark, job(tmp_path / "in", tmp_path / "out", order=order))
    assert summary.rows_out == len(rows)
    assert summary.outcomes["late"] == 0  # nothing expires before the flush


@pytest.mark.usefixtures("protobuf")
def test_state_does_not_grow(spark: SparkSession, tmp_path: Path) -> None:
    """Four times the batches, and keys that come and go: the state at the end is that of a few keys."""
    summaries = []
    for factor in (1, 4):
        source = tmp_path / f"in{factor}"
        write_files(source, keys=1, rows=60 * factor, files=3 * factor)
        more = {"order": COLUMNS | {"remember": LIFETIME}, "flush": False}
        summaries.append(run_job(spark, job(source, tmp_path / f"out{factor}", **more)))
    assert summaries[1].rows_in > 3 * summaries[0].rows_in
    assert summaries[1].state_keys <= summaries[0].state_keys + 2


@pytest.mark.usefixtures("protobuf")
@pytest.mark.parametrize("form", ["csv", "json"])
def test_the_command_from_files_to_files(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    rows = write_files(tmp_path / "in", keys=1, form=form)
    assert whence(tmp_path, "--format", form, "--to-format", form, "--flush", "--json", "--key", "room") == 0
    summary = json.loads(capsys.readouterr().out)["summary"]
    assert summary["rows_in"] == summary["rows_out"] == len(rows)
    read = spark.read.option("header", "true").format(form).load(str(tmp_path / "out"))
    assert read.count() == len(rows)
    assert {"outcome", "missing", "position"} <= set(read.columns)
    assert whence(tmp_path, "--format", form, "--to-format", form, "--flush") == 0  # nothing is left to do
    assert "0 rows in, 0 out" in capsys.readouterr().out


@pytest.mark.usefixtures("protobuf")
def test_the_command_on_spans(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    shop(tmp_path / "in" / "spans.json")
    line = [
        "stream",
        tmp_path / "in",
        tmp_path / "out",
        "--format",
        "otel",
        "--lifetime",
        "1s",
        "--available-now",
    ]
    assert left([*line, "--flush"]) == 0
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert {row.span_id: row.position for row in rows} == {"a": 1, "b": 2, "c": 3, "m": 1, "p": 1, "q": 2}


# What needs no state, and so no protobuf


def test_what_is_held_back_comes_out_as_it_was(spark: SparkSession) -> None:
    schema = """id string, after array<string>, flag boolean, small tinyint, large bigint, single float,
        exact double, amount decimal(38,10), day date, at timestamp, local timestamp_ntz, raw binary,
        tags map<string,int>, parts array<struct<name: string, value: double>>, `odd.name` string"""
    at = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    rows: list[tuple[Any, ...]] = [
        ("a", ["b", None], True, -128, 2**63 - 1, 0.1, float("inf"), Decimal("12345.0000000001"),
         date(1582, 10, 15), at, at.replace(tzinfo=None), b"\x00\xff", {"x": None, "y": 1},
         [(None, 1.5), None], "\u4e16\n\"'\\\x01"),
        ("b", None, None, None, None, None, None, None, None, None, None, None, None, None, None),
    ]  # fmt: skip
    table = spark.createDataFrame(rows, schema)
    order = describe(
        table, key=None, id_="id", depends_on="after", lifetime="1s", event_time="at", clock=None,
        origin=None, policy="emit", lifetime_max=None, remember=None,
    )  # fmt: skip
    ended = packed(table, order).select(
        "payload",
        F.lit("late").alias("outcome"),
        F.array(F.lit("x")).alias("missing"),
        F.lit(1).cast("bigint").alias("position"),
        F.lit(0).cast("bigint").alias("epoch_us"),
    )
    back = unpacked(ended, table.schema, order)
    assert back.columns == [*table.columns, "outcome", "missing", "position", "epoch"]
    assert back.drop("outcome", "missing", "position", "epoch").collect() == table.collect()


def test_without_protobuf(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    stream = spark.readStream.schema(SCHEMA).json(str(tmp_path))
    with pytest.raises(ExtraMissingError, match="protobuf"):
        causal_order(stream, **COLUMNS)


@pytest.mark.usefixtures("protobuf")
def test_mistakes(spark: SparkSession, tmp_path: Path) -> None:
    stream = spark.readStream.schema(SCHEMA + ", odd map<int,string>").json(str(tmp_path))
    with pytest.raises(SchemaError, match=r"'odd'.*cannot be held back"):
        causal_order(stream, **COLUMNS)
    with pytest.raises(SchemaError, match=r"'nobody' \(id\).*missing"):
        causal_order(stream, **(COLUMNS | {"id": "nobody"}))
    with pytest.raises(MisuseError, match="not a stream"):
        causal_order(spark.createDataFrame([], SCHEMA), **COLUMNS)
    with pytest.raises(MisuseError, match="is a stream"):
        causal_sort(stream, id="id", depends_on="after")
    with pytest.raises(MisuseError, match="it is for data that ends"):
        run_job(spark, job(tmp_path, tmp_path / "out", available_now=False))
    with pytest.raises(MisuseError, match="not on this machine"):
        run_job(spark, job(tmp_path, tmp_path / "out", checkpoint="s3://bucket/x"))


def test_sources_that_cannot_be_read(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder"):
        run_job(spark, job(tmp_path / "none", tmp_path / "out", schema=None))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.parquet").write_bytes(b"this is no Parquet")
    with pytest.raises(DataError, match=r"parquet at .*x\.parquet is not a Parquet file"):
        run_job(spark, job(tmp_path / "in", tmp_path / "out", schema=None, source_format="parquet"))
    with pytest.raises(DataError, match="nosuch"):
        run_job(spark, job(tmp_path / "in", tmp_path / "out", schema=None, source_format="nosuch"))


def left(line: list[object]) -> int:
    with pytest.raises(SystemExit) as exit_:
        main([str(each) for each in line])
    return int(exit_.value.code or 0)


def whence(folder: Path, *more: str) -> int:
    order = ["--id", "id", "--depends-on", "after", "--event-time", "at", "--lifetime", LIFETIME]
    return left(["stream", folder / "in", folder / "out", *order, "--available-now", *more])


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--format", "parquet"), "no such folder"),
        (("--option", "novalue"), "Write NAME=VALUE"),
    ],
)
def test_the_commands_mistakes_are_two_lines(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], words: str
) -> None:
    assert whence(tmp_path, *more) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert "fix: " in said.err
    assert "Traceback" not in said.err
    assert said.out == ""


def test_the_command_needs_to_know_the_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert left(["stream", tmp_path, tmp_path / "out", "--lifetime", "1s"]) == 2
    assert "nothing says how rows are known" in capsys.readouterr().err


def test_durations() -> None:
    from whence.spark.order_columns import duration_us

    given = {
        "10s": 10**7,
        "1.5 minutes": 9 * 10**7,
        "500 ms": 500_000,
        "2 hours": 72 * 10**8,
        "7us": 7,
        "1d": 864 * 10**8,
    }
    assert {text: duration_us("x", text) for text in given} == given
    assert duration_us("x", timedelta(seconds=1)) == 10**6
    for wrong in ("", "10", "s", "10 parsecs", "-1s"):
        with pytest.raises(MisuseError, match="not a duration"):
            duration_us("x", wrong)
