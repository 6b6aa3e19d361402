"""The state of streams without a JVM: buckets alone, and in the operator under Spark's own tester."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from support.rows import run, stream
from whence.errors import DataError
from whence.order import Arrival
from whence.spark.ordering import buckets
from whence.spark.ordering.buckets import KEY, Bucket, from_bytes, to_bytes
from whence.spark.ordering.columns import HELPERS, OrderSettings
from whence.spark.ordering.stream import BucketOrderer

HOUR_US = 3_600_000_000
END_US = 253_402_214_400_000_000
GIVEN = pa.schema(
    [
        ("text", pa.string()),
        *zip(
            (KEY, *HELPERS),
            (
                pa.string(),
                pa.int64(),
                pa.string(),
                pa.list_(pa.string()),
                pa.list_(pa.int64()),
                pa.int64(),
                pa.int64(),
            ),
            strict=True,
        ),
    ]
)
ENDED = pa.schema(
    [
        ("text", pa.string()),
        ("outcome", pa.string()),
        ("missing", pa.list_(pa.string())),
        ("position", pa.int64()),
        ("epoch", pa.timestamp("us", "UTC")),
    ]
)


def settings_of(policy: str = "emit", remember_us: int = HOUR_US, *, vector: bool = False) -> OrderSettings:
    return OrderSettings(policy, remember_us, 0, vector, False)


def table(rows: Iterable[Arrival], key: str = "k") -> pa.Table:
    """Rows as a bucket gets them, in milliseconds: Spark's timers know nothing smaller."""
    found = []
    for row in rows:
        until_us = [None if us is None else 1000 * us for us in row.needs.values()]
        values = (row.payload, key, 1000 * row.at_us, row.id, list(row.needs), until_us)
        found.append((*values, 1000 * row.lifetime_us, 0))
    columns = zip(*found, strict=True)
    return pa.table([pa.array(list(c), f.type) for c, f in zip(columns, GIVEN, strict=True)], schema=GIVEN)


def brief(rows: pa.Table) -> list[tuple[Any, ...]]:
    return [(row["text"], row["outcome"], row["missing"], row["position"]) for row in rows.to_pylist()]


def expected(arrivals: list[Arrival], policy: str = "emit") -> list[tuple[Any, ...]]:
    ties = sorted(arrivals, key=lambda row: (row.at_us, row.id or ""))
    endings = run(ties, policy, remember_us=HOUR_US)
    return [(end.payload, end.outcome, end.missing, end.position) for end in endings]


# Buckets


@pytest.mark.parametrize("log_from", [2, 1_000])
@pytest.mark.parametrize("policy", ["emit", "drop"])
def test_a_bucket_saved_in_any_way_gives_what_the_orders_give(
    policy: str, log_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several keys, any batches; saved as a whole or as changes, and made again from that."""
    monkeypatch.setattr(buckets, "_LOG_FROM", log_from)
    logs = 0
    for seed in range(25):
        draw = random.Random(f"buckets {seed}")
        streams = {f"k{key}": stream(100 * seed + key, 40, told=key == 1) for key in range(3)}
        said: dict[str, list[tuple[Any, ...]]] = {key: [] for key in streams}
        saved: list[bytes] = []
        at_us = 0
        while at_us < END_US:
            begin, at_us = at_us, at_us + draw.randrange(20, 200)
            if begin > 1_000:
                at_us = END_US
            parts = [
                table([row._replace(payload=f"{key}/{row.payload}") for row in rows], key)
                for key, each in streams.items()
                if (rows := [row for row in each if begin <= row.at_us < at_us])
            ]
            rows = pa.concat_tables(parts) if parts else None
            if rows is not None:  # the shuffle leaves no order
                rows = rows.take(draw.sample(range(rows.num_rows), rows.num_rows))
            bucket = Bucket(settings_of(policy), ENDED, "test", saved)
            for row in brief(bucket.step(rows, END_US if at_us == END_US else 1000 * begin)):
                key, _, name = row[0].partition("/")
                said[key].append((name, *row[1:]))
            if saved and draw.random() < 0.7:
                saved.append(bucket.changes())
                logs += 1
            else:
                saved = [bucket.save()]
        assert said == {key: expected(rows, policy) for key, rows in streams.items()}
        assert (bucket.keys, bucket.waiting) == (0, 0)
    assert logs > 50


def test_changes_of_a_hot_key_are_small() -> None:
    """100,000 ids are remembered, and a batch of 100 rows saves about 100 of them."""
    bucket, saved = Bucket(settings_of(), ENDED, "test"), []
    sizes = []
    for batch in range(12):
        count, base = (20_000, 20_000 * batch) if batch < 5 else (100, 100_000 + 100 * batch)
        rows = [Arrival(f"{base + n}", base + n, 100, {}, "x") for n in range(count)]
        bucket = Bucket(settings_of(), ENDED, "test", saved)
        bucket.step(table(rows), 0)
        saved.append(bucket.changes() if saved else bucket.save())
        sizes.append(len(saved[-1]))
    assert sum(sizes[:5]) > 1_000_000
    assert max(sizes[5:]) < 10_000
    again = Bucket(settings_of(), ENDED, "test", saved)
    twice = again.step(table([Arrival("17", 200_000, 100, {}, "x")]), 0)
    assert brief(twice) == [("x", "duplicate", [], None)]


def test_a_key_that_rests_is_not_looked_at() -> None:
    bucket = Bucket(settings_of(), ENDED, "test")
    bucket.step(table([Arrival("b", 0, 100, {"a": None}, "b")], "quiet"), 0)
    made: list[Any] = []
    bucket = Bucket(settings_of(), ENDED, "test", [bucket.save()])
    make, bucket._order = bucket._order, lambda key: made.append(key) or make(key)  # type: ignore[method-assign]
    bucket.step(table([Arrival("x", 1, 100, {}, "x")], "loud"), 50_000)
    assert made == ["loud"]
    assert brief(bucket.step(None, 100_001)) == [("b", "predecessor expired", ["a"], 1)]


def test_the_state_of_another_maker_is_refused() -> None:
    bucket = Bucket(settings_of(), ENDED, "32 buckets")
    with pytest.raises(DataError, match="made by 32 buckets, and this is 16 buckets"):
        Bucket(settings_of(), ENDED, "16 buckets", [bucket.save()])


# The operator


class Operator:
    """The operator under Spark's tester, with tables in and rows out."""

    def __init__(self, policy: str = "emit", remember_us: int = HOUR_US, *, vector: bool = False) -> None:
        orderer = BucketOrderer(settings_of(policy, remember_us, vector=vector), ENDED, "test")
        # Spark must not see the time of a row: it would drop what is older than the watermark.
        self.tester = TwsTester(orderer, timeMode="eventtime", eventTimeExtractor=lambda row: 1 << 60)

    def give(self, rows: Iterable[Arrival], key: str = "k") -> list[tuple[Any, ...]]:
        return self._read(self.tester.test(0, [Row(blob=to_bytes(table(rows, key)))]))

    def until(self, ms: int) -> list[tuple[Any, ...]]:
        return self._read(self.tester.setWatermark(ms))

    @property
    def timers(self) -> list[int]:
        return list(self.tester.handle._timers.listTimers(0))

    @staticmethod
    def _read(said: list[Row]) -> list[tuple[Any, ...]]:
        return [row for each in said for row in brief(from_bytes(each.blob))]


@pytest.mark.parametrize("policy", ["emit", "drop"])
def test_batches_and_timers_make_no_difference(policy: str) -> None:
    """Any batches, and after each the watermark that Spark would have: the endings of the bare core."""
    for seed in range(40):
        draw = random.Random(f"batches {seed}")
        arrivals = stream(seed, mixed=True, told=seed % 2 == 0)
        operator = Operator(policy)
        said, at, watermark_ms = [], 0, 0
        while at < len(arrivals):
            batch = arrivals[at : at + draw.randrange(1, 12)]
            at += len(batch)
            # Rows of one time come in any order: the shuffle sees to that.
            said += operator.give(draw.sample(batch, len(batch)))
            newest_ms = max(row.at_us for row in batch)
            if newest_ms > watermark_ms:
                watermark_ms = newest_ms
                said += operator.until(watermark_ms)
        said += operator.until(END_US // 1000)
        assert said == expected(arrivals, policy)


def test_one_timer_and_no_state_when_all_is_forgotten() -> None:
    operator = Operator(remember_us=50_000)
    operator.give([Arrival("b", 0, 100, {"a": None}, "b")])
    operator.give([Arrival("d", 5, 20, {"c": None}, "d")])  # due earlier: the timer is moved
    assert operator.timers == [26]
    assert operator.until(26) == [("d", "predecessor expired", ["c"], 1)]
    assert operator.until(101) == [("b", "predecessor expired", ["a"], 2)]
    assert operator.tester.peekValueState("bucket", 0) is not None
    assert operator.until(152) == []
    assert operator.tester.peekValueState("bucket", 0) is None
    assert operator.timers == []
    assert operator.give([Arrival("e", 1000, 20, {}, "e")]) == [("e", "in order", [], 1)]


def test_keys_of_a_bucket_do_not_see_each_other() -> None:
    operator = Operator()
    assert operator.give([Arrival("b", 0, 100, {"a": None}, "b")]) == []
    assert operator.give([Arrival("a", 1, 100, {}, "a")], "other") == [("a", "in order", [], 1)]
    assert operator.give([Arrival("a", 2, 100, {}, "a")]) == [
        ("a", "in order", [], 1),
        ("b", "waited", [], 2),
    ]


def test_a_timer_is_called_by_keyword_in_spark() -> None:
    """The tester calls it by position, the stream by keyword: both must work."""
    operator = Operator()
    operator.give([Arrival("b", 0, 100, {"a": None}, "b")])
    tester: Any = operator.tester
    tester.handle.setGroupingKey(0)
    tester._currentWatermarkMs = 500
    said = tester.processor.handleExpiredTimer(
        key=(0,), timerValues=tester._getTimerValues(), expiredTimerInfo=None
    )
    assert operator._read(list(said)) == [("b", "predecessor expired", ["a"], 1)]


def test_rows_without_time_or_lifetime() -> None:
    """A row without a time came just now; one without a lifetime has the largest that is known."""
    operator = Operator()
    operator.give([Arrival("a", 10, 100, {}, "a")])
    nothing = {name: [None] for name in GIVEN.names}
    bare = pa.table(
        nothing | {"text": ["c"], KEY: ["k"], "__id": ["c"], "__needs": [["b", None]], "__tie": [0]}
    )
    assert operator._read(operator.tester.test(0, [Row(blob=to_bytes(bare.cast(GIVEN)))])) == []
    assert operator.until(110) == []
    assert operator.until(111) == [("c", "predecessor expired", ["b"], 2)]


def test_vector_clocks_keep_their_state() -> None:
    operator = Operator(remember_us=0, vector=True)
    operator.give([Arrival("a:1", 0, 100, {}, "a:1")])
    operator.until(10_000)
    said = operator.give([Arrival("a:2", 20_000, 100, {"a:1": None}, "a:2")])
    assert said == [("a:2", "in order", [], 2)]
