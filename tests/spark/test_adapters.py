"""ShiViz logs and OpenTelemetry spans as tables, in order, whatever the partitions and cores."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark.spans import shop
from support.real_data import LOGS
from whence.errors import ImportFormatError
from whence.foreign.shiviz import parse_log
from whence.spark.adapters import ORDERS, read_adapted
from whence.spark.ordering.sort import causal_sort
from whence.spark.tables import CLOCKED, SPANS, require

pytestmark = pytest.mark.spark

NAMES = ("facebook-multiple.log", "simple-reliable-broadcast.log", "simpledb.log")


def in_order(table: DataFrame, name: str, **more: Any) -> list[tuple[str, ...]]:
    ordered = causal_sort(table, **ORDERS[name], **more)
    return sorted(tuple(map(str, row)) for row in ordered.collect())


def test_spans_in_order(spark: SparkSession, tmp_path: Path) -> None:
    spans = read_adapted(spark, "otel", str(shop(tmp_path / "spans.json")))
    require(spans, SPANS, "spans")
    rows = causal_sort(spans.repartition(3), **ORDERS["otel"]).collect()
    placed = {(row.trace_id, row.span_id): row.position for row in rows}
    assert [placed["t1", id_] for id_ in "abc"] == [1, 2, 3]
    gone = next(row for row in rows if row.span_id == "q")
    assert (gone.outcome, gone.missing) == ("predecessor expired", ["gone"])
    linked = next(row for row in rows if row.span_id == "m")
    assert (linked.depends_on, linked.linked) == ([], ["t1:c"])
    assert rows[0].start.year == 1970
    # Across traces, too, where there is no key.
    order = ORDERS["otel"] | {"key": None}
    assert causal_sort(spans, **order).count() == 6


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of two executions, with clocks."""
    path = tmp_path / "made.log"
    one = ['a {"a":1}', "start", 'b {"b":1,"a":1}', "got it", 'a {"a":2,"b":1}', "back"]
    path.write_text("\n".join(["=== one ===", *one, "=== two ===", *one[:2]]) + "\n")
    return path


def test_clocks_in_order(spark: SparkSession, log: Path) -> None:
    events = read_adapted(spark, "shiviz", str(log))
    require(events, CLOCKED, "events")
    rows = causal_sort(events, **ORDERS["shiviz"]).where("execution = 'one'").orderBy("position").collect()
    assert [(row.host, row.event, row.outcome) for row in rows] == [
        ("a", "start", "in order"),
        ("b", "got it", "in order"),
        ("a", "back", "waited"),
    ]


def test_a_log_of_another_layout_needs_its_pattern(spark: SparkSession, tmp_path: Path) -> None:
    """Lines that are no events by it are left out, and the delimiter parts executions: as in ShiViz."""
    path = tmp_path / "other.log"
    lines = ['sent|b|{"b":1,"a":1}', "a remark", 'begun|a|{"a":1}', "--- next ---", 'alone|a|{"a":1}']
    path.write_text("\n".join(lines) + "\n")
    options = {
        "pattern": r"^(?<event>[^|\n]*)\|(?<host>[^|]*)\|(?<clock>\{.*\})$",
        "delimiter": r"^--- (?<trace>.*) ---$",
    }
    events = read_adapted(spark, "shiviz", str(path), options=options)
    rows = causal_sort(events, **ORDERS["shiviz"]).collect()
    assert sorted((row.execution, row.position, row.event) for row in rows) == [
        ("1", 1, "begun"),
        ("1", 2, "sent"),
        ("next", 1, "alone"),
    ]


@pytest.mark.skipif(not LOGS.exists(), reason="the shared data are not on this machine")
def test_the_order_of_real_logs_does_not_depend_on_partitions(spark: SparkSession) -> None:
    """Every event is placed, after all that its clock names, and equally whatever the partitions."""
    for name in NAMES:
        path = LOGS / name
        events = read_adapted(spark, "shiviz", str(path))
        first, *others = (in_order(events.repartition(parts), "shiviz") for parts in (1, 2, 5))
        assert first == others[0] == others[1]
        parsed = parse_log(name, path.read_text(), None, None)
        assert len(first) == sum(len(execution.events) for execution in parsed.executions)
        rows = causal_sort(events, **ORDERS["shiviz"]).where("position is not null").collect()
        place = {(row.execution, row.host, row.clock[row.host]): row.position for row in rows}
        assert len(place) == len(rows) > 0
        for row in rows:
            before = [
                place[key]
                for host, count in row.clock.items()
                if (key := (row.execution, host, count)) in place and host != row.host
            ]
            assert all(position < row.position for position in before)


ALONE = """
import sys
from whence.spark.adapters import ORDERS, read_adapted
from whence.spark.session import get_session
from whence.spark.ordering.sort import causal_sort

spark = get_session("cores", master=sys.argv[1], conf={"spark.driver.memory": "1g"})
for path in sys.argv[2:]:
    rows = causal_sort(read_adapted(spark, "shiviz", path), **ORDERS["shiviz"]).collect()
    print(*sorted(map(str, rows)), sep="\\n")
"""


@pytest.mark.slow
@pytest.mark.skipif(not LOGS.exists(), reason="the shared data are not on this machine")
def test_the_order_of_real_logs_does_not_depend_on_cores() -> None:
    paths = [str(LOGS / name) for name in (*NAMES, "CPSC416-2018W1-P1-RFS__execution1.log")]
    said = [
        subprocess.run(
            [sys.executable, "-c", ALONE, master, *paths],
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        ).stdout
        for master in ("local[1]", "local[2]")
    ]
    assert said[0] == said[1]
    assert said[0].count("\n") > 8000


def test_no_such_log(spark: SparkSession) -> None:
    with pytest.raises(ImportFormatError, match="no such file"):
        read_adapted(spark, "shiviz", "/nowhere")
