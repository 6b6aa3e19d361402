"""The stream's operator under Spark's own tester: state, timers and time, without a JVM."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from support.rows import run, stream
from whence.order import Arrival
from whence.spark.ordering.columns import OrderSettings
from whence.spark.ordering.stream import Orderer

HOUR_US = 3_600_000_000


def operator_of(policy: str = "emit", remember_us: int = HOUR_US, *, vector: bool = False) -> Any:
    orderer = Orderer(OrderSettings(policy, remember_us, 0, vector, False))
    # Spark must not see the time of a row: it would drop what is older than the watermark.
    return TwsTester(orderer, timeMode="eventtime", eventTimeExtractor=lambda row: 1 << 60)


def packed(row: Arrival) -> Row:
    """A row as the operator gets it, in milliseconds: Spark's timers know nothing smaller."""
    until_us = [None if us is None else 1000 * us for us in row.needs.values()]
    return Row(
        at_us=1000 * row.at_us,
        id=row.id,
        needs=list(row.needs),
        needs_us=until_us,
        lifetime_us=1000 * row.lifetime_us,
        tie=0,
        payload=row.payload,
    )


def brief(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [(row.payload, row.outcome, row.missing, row.position) for row in rows]


@pytest.mark.parametrize("policy", ["emit", "drop"])
def test_batches_and_timers_make_no_difference(policy: str) -> None:
    """Any batches, and after each the watermark that Spark would have: the endings of the bare core."""
    for seed in range(40):
        draw = random.Random(f"batches {seed}")
        arrivals = stream(seed, mixed=True, told=seed % 2 == 0)
        operator = operator_of(policy)
        said, at, watermark_ms = [], 0, 0
        while at < len(arrivals):
            batch = arrivals[at : at + draw.randrange(1, 12)]
            at += len(batch)
            # Rows of one time come in any order: the shuffle sees to that.
            said += operator.test("k", [packed(row) for row in draw.sample(batch, len(batch))])
            newest_ms = max(row.at_us for row in batch)
            if newest_ms > watermark_ms:
                watermark_ms = newest_ms
                said += operator.setWatermark(watermark_ms)
        said += operator.setWatermark(253_402_214_400_000)
        ties = sorted(arrivals, key=lambda row: (row.at_us, row.id or ""))
        expected = run(ties, policy, remember_us=HOUR_US)
        assert brief(said) == [(end.payload, end.outcome, end.missing, end.position) for end in expected]


def test_one_timer_and_no_state_when_all_is_forgotten() -> None:
    operator = operator_of(remember_us=50_000)
    operator.test("k", [packed(Arrival("b", 0, 100, {"a": None}, "b"))])
    operator.test("k", [packed(Arrival("d", 5, 20, {"c": None}, "d"))])  # due earlier: the timer is moved
    assert list(operator.handle._timers.listTimers("k")) == [26]
    assert brief(operator.setWatermark(26)) == [("d", "predecessor expired", ["c"], 1)]
    assert brief(operator.setWatermark(101)) == [("b", "predecessor expired", ["a"], 2)]
    assert operator.peekValueState("order", "k") is not None
    assert operator.setWatermark(152) == []
    assert operator.peekValueState("order", "k") is None
    assert list(operator.handle._timers.listTimers("k")) == []
    later = operator.test("k", [packed(Arrival("e", 1000, 20, {}, "e"))])
    assert [(row.position, row.epoch_us) for row in later] == [(1, 1_000_000)]


def test_keys_do_not_see_each_other() -> None:
    operator = operator_of()
    assert operator.test("k", [packed(Arrival("b", 0, 100, {"a": None}, "b"))]) == []
    assert brief(operator.test("other", [packed(Arrival("a", 1, 100, {}, "a"))])) == [
        ("a", "in order", [], 1)
    ]
    assert brief(operator.test("k", [packed(Arrival("a", 2, 100, {}, "a"))])) == [
        ("a", "in order", [], 1),
        ("b", "waited", [], 2),
    ]


def test_a_timer_is_called_by_keyword_in_spark() -> None:
    """The tester calls it by position, the stream by keyword: both must work."""
    operator = operator_of()
    operator.test("k", [packed(Arrival("b", 0, 100, {"a": None}, "b"))])
    operator.handle.setGroupingKey("k")
    operator._currentWatermarkMs = 500
    said = operator.processor.handleExpiredTimer(
        key=("k",), timerValues=operator._getTimerValues(), expiredTimerInfo=None
    )
    assert brief(list(said)) == [("b", "predecessor expired", ["a"], 1)]


def test_rows_without_time_or_lifetime() -> None:
    """A row without a time came just now; one without a lifetime has the largest that is known."""
    operator = operator_of()
    operator.test("k", [packed(Arrival("a", 10, 100, {}, "a"))])
    bare = Row(at_us=None, id="c", needs=["b", None], needs_us=None, lifetime_us=None, tie=0, payload="c")
    assert operator.test("k", [bare]) == []
    assert operator.setWatermark(110) == []
    assert brief(operator.setWatermark(111)) == [("c", "predecessor expired", ["b"], 2)]


def test_vector_clocks_keep_their_state() -> None:
    operator = operator_of(remember_us=0, vector=True)
    operator.test("k", [packed(Arrival("a:1", 0, 100, {}, "a:1"))])
    operator.setWatermark(10_000)
    said = operator.test("k", [packed(Arrival("a:2", 20_000, 100, {"a:1": None}, "a:2"))])
    assert brief(said) == [("a:2", "in order", [], 2)]
