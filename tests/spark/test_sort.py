"""`causal_sort`: a table at rest in causal order, and what it says about wrong tables."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from support.rows import run, stream
from whence.errors import MisuseError, SchemaError
from whence.spark.ordering.sort import causal_sort

pytestmark = pytest.mark.spark

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = "room string, id string, after array<string>, at timestamp"


def table(spark: SparkSession, seeds: range, **more: Any) -> DataFrame:
    """Streams of `support.rows`, one per room."""
    rows = [
        (f"room{seed}", row.id, list(row.needs), BEGAN + timedelta(microseconds=row.at_us))
        for seed in seeds
        for row in stream(seed, **more)
    ]
    return spark.createDataFrame(rows, SCHEMA)


def placed(result: DataFrame, *columns: str) -> list[Any]:
    return sorted(
        tuple(map(str, row))
        for row in result.select("room", "id", "outcome", "missing", "position").collect()
    )


def test_the_core_says_the_same(spark: SparkSession) -> None:
    names = {"key": "room", "id": "id", "depends_on": "after", "event_time": "at"}
    for policy in ("emit", "drop"):
        result = causal_sort(
            table(spark, range(3)),
            **names,
            lifetime=timedelta(microseconds=100),
            remember="1h",
            policy=policy,
        )
        expected = [
            tuple(map(str, (f"room{seed}", end.payload, end.outcome, end.missing, end.position)))
            for seed in range(3)
            for end in run(stream(seed), policy)
        ]
        assert placed(result) == sorted(expected)


def test_partitions_make_no_difference(spark: SparkSession) -> None:
    rows = table(spark, range(4))
    names = {"key": "room", "id": "id", "depends_on": "after", "event_time": "at", "lifetime": "0.0001 s"}
    first, *others = (placed(causal_sort(rows.repartition(parts), **names)) for parts in (1, 3, 7))
    assert first == others[0] == others[1]
    spark.conf.set("spark.sql.shuffle.partitions", "5")
    try:
        assert placed(causal_sort(rows, **names)) == first
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")


def test_at_rest_the_table_is_all_there_is(spark: SparkSession) -> None:
    """No lifetime and no time: predecessors first, ties by id, and what is not in the table is missing."""
    rows = [(3, [10, 2]), (2, [1]), (10, [2]), (1, None), (4, [99]), (1, None), (5, [None, 5])]
    result = causal_sort(spark.createDataFrame(rows, "id int, after array<int>"), id="id", depends_on="after")
    assert result.schema["missing"].dataType.simpleString() == "array<int>"
    assert [(row.id, row.outcome, row.missing, row.position) for row in result.collect()] == [
        (1, "in order", [], 1),
        (1, "duplicate", [], None),
        (2, "in order", [], 2),
        (4, "predecessor expired", [99], 3),
        (5, "in order", [], 4),
        (10, "in order", [], 5),
        (3, "waited", [], 6),
    ]


@pytest.fixture(params=["UTC", "America/New_York"])
def zoned(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """A session as a server's administrator may have set it up."""
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield spark
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_every_type_of_column_comes_through(zoned: SparkSession) -> None:
    schema = "id string, after array<struct<id:string,until:timestamp>>, n decimal(20,4), m map<int,string>"
    schema += ", b binary, d interval day to second"
    rows = [
        ("b", [("a", BEGAN)], Decimal("1.2345"), {1: None}, b"\xff", timedelta(microseconds=7)),
        ("a", None, None, None, None, None),
    ]
    given = zoned.createDataFrame(rows, schema)
    result = causal_sort(given, id="id", depends_on="after")
    assert [row.id for row in result.collect()] == ["a", "b"]
    assert sorted(result.drop("outcome", "missing", "position", "epoch").collect(), key=str) == sorted(
        given.collect(), key=str
    )


@pytest.mark.parametrize("kind", ["double", "interval day to second"])
def test_lifetimes_in_a_column(spark: SparkSession, kind: str) -> None:
    """Seconds or intervals: one row waits long enough for its predecessor, the other does not."""
    rows = []
    for room, seconds in (("short", 1), ("long", 10)):
        life = float(seconds) if kind == "double" else timedelta(seconds=seconds)
        rows.append((room, "b", ["a"], BEGAN, life))
        rows.append((room, "a", [], BEGAN + timedelta(seconds=1.5), life))
    given = spark.createDataFrame(rows, f"{SCHEMA}, life {kind}")
    names = {"key": "room", "id": "id", "depends_on": "after", "event_time": "at", "lifetime": "life"}
    found = {(row.room, row.id): row.outcome for row in causal_sort(given, **names).collect()}
    assert found == {
        ("short", "b"): "predecessor expired",
        ("short", "a"): "late",
        ("long", "a"): "in order",
        ("long", "b"): "waited",
    }


def test_vector_clocks(spark: SparkSession) -> None:
    rows = [("b", {"a": 1, "b": 1}), ("a", {"a": 2}), ("a", {"a": 1}), ("c", {"a": 2, "b": 1, "c": 1})]
    given = spark.createDataFrame(rows, "host string, clock map<string,bigint>")
    result = causal_sort(given, clock="clock", origin="host").collect()
    assert [(row.host, row.clock[row.host]) for row in result] == [("a", 1), ("a", 2), ("b", 1), ("c", 1)]
    assert {row.outcome for row in result} <= {"in order", "waited"}


@pytest.mark.parametrize(
    ("more", "error", "words"),
    [
        ({"id": "no"}, SchemaError, "column 'no' (id): it is missing (got the columns room, id, after, at)"),
        ({"depends_on": "id"}, SchemaError, "expected array<string>"),
        ({"id": "at"}, SchemaError, "expected a string or an integer, got timestamp"),
        ({"event_time": "id"}, SchemaError, "expected timestamp, got string"),
        ({"lifetime": "soon"}, MisuseError, "not a duration"),
        ({"lifetime": "id"}, SchemaError, "expected a number (of seconds) or an interval"),
        ({"policy": "keep"}, MisuseError, "emit, drop"),
        ({"clock": "id"}, MisuseError, "give one of the two"),
        ({"id": None, "clock": "after"}, MisuseError, 'Give origin="..."'),
        ({"id": None, "clock": "after", "origin": "id"}, SchemaError, "expected map<string,bigint>"),
        ({"depends_on": None}, MisuseError, "no column with predecessors"),
    ],
)
def test_mistakes(spark: SparkSession, more: dict[str, Any], error: type[Exception], words: str) -> None:
    rows = spark.createDataFrame([], SCHEMA)
    with pytest.raises(error) as raised:
        causal_sort(rows, **({"id": "id", "depends_on": "after"} | more))
    assert words in str(raised.value)


def test_a_column_that_is_added_must_not_be_there(spark: SparkSession) -> None:
    rows = spark.createDataFrame([], SCHEMA + ", position int")
    with pytest.raises(SchemaError, match=r"'position'.*has it already"):
        causal_sort(rows, id="id", depends_on="after")
