"""Every measure against a few lines of plain Python over the same events."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import mean
from typing import Any

import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession

from whence.lab.attempts import simulated
from whence.sim.model import Window
from whence.spark import tables
from whence.spark.metrics.summary import latencies, summary
from whence.spark.metrics.wire import buffer_peaks, dependencies, packing, traffic
from whence.studies.vcube.grid import scenario
from whence.trace.reader import Event, open_trace
from whence.trace.schema import Kind


def plain_latencies(events: Iterable[Event]) -> dict[tuple[str, str, str, int], tuple[int | None, ...]]:
    """(run, node, origin, number) -> broadcast, received, delivered, reception, delivery, held."""
    sent: dict[Any, int] = {}
    received: dict[Any, int] = {}
    delivered: dict[Any, int] = {}
    for event in events:
        key = (event.run, event.node, event.origin, event.number)
        if event.kind == Kind.BROADCAST:
            sent[event.run, event.origin, event.number] = event.time_us
        elif event.kind == Kind.RECEIVE and event.origin is not None and event.node != event.origin:
            received.setdefault(key, event.time_us)
        elif event.kind == Kind.DELIVER and event.node != event.origin:
            delivered.setdefault(key, event.time_us)
    rows = {}
    for key in received.keys() | delivered.keys():
        start, came, left = sent.get((key[0], *key[2:])), received.get(key), delivered.get(key)
        rows[key] = (start, came, left, _minus(came, start), _minus(left, start), _minus(left, came))
    return rows


def _minus(later: int | None, earlier: int | None) -> int | None:
    return None if later is None or earlier is None else later - earlier


def plain_held_peaks(events: Iterable[Event]) -> dict[tuple[str, str], int]:
    """By walking through each node's events with a set of what it holds, looking at the end of each step."""
    inputs = {
        Kind.BROADCAST, Kind.RECEIVE, Kind.LINK_UP, Kind.LINK_DOWN, Kind.TIMER, Kind.CRASH, Kind.RESTART,
    }  # fmt: skip
    by_node: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for event in events:
        by_node[event.run, event.node].append(event)
    peaks = {}
    for key, rows in by_node.items():
        holding: set[Any] = set()
        seen: set[Any] = set()
        packet: Any = None
        peak = 0
        for row in sorted(rows, key=lambda row: row.seq):
            message = (row.origin, row.number)
            if row.kind in inputs:
                peak = max(peak, len(holding))
                packet = None
            if row.kind == Kind.RECEIVE and row.origin is not None and message not in seen:
                packet = message
                seen.add(message)
                holding.add(message)
            elif row.kind in (Kind.DELIVER, Kind.EXPIRE):
                holding.discard(message)
                seen.add(message)
            elif row.kind == Kind.DISCARD and packet is not None:
                # The only discards in these traces are of the packet that has just come.
                holding.discard(packet)
                seen.discard(packet)
        peaks[key] = max(peak, len(holding))
    return peaks


pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def events(spark: SparkSession, folder: Path) -> DataFrame:
    return tables.flatten(tables.read_segments(spark, folder)).cache()


@pytest.fixture(scope="module")
def plain(folder: Path) -> list[Event]:
    return list(open_trace(folder).events())


def made(spark: SparkSession, *rows: tuple[object, ...]) -> DataFrame:
    """Events of one node `b`: (kind, time, origin, number, ...), numbered in the order given."""
    full = [
        ("r", "b", seq, row[1], int(row[0]), *row[2:], *[None, 0, 0, None][len(row) - 4 :])
        for seq, row in enumerate(rows)
    ]
    return spark.createDataFrame(full, tables.EVENTS)


def percentile(values: list[int], share: float) -> float:
    """Linear between the two nearest ranks."""
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def test_latencies(events: DataFrame, plain: list[Event]) -> None:
    table = latencies(events)
    tables.require(table, tables.LATENCY, "latency")
    rows = {tuple(row)[:4]: tuple(row)[4:] for row in table.collect()}
    assert rows == plain_latencies(plain)
    assert any(row[5] > 0 for row in rows.values()), "the network must have made messages wait"


def test_latency_of_what_was_never_broadcast_or_delivered_is_null(spark: SparkSession) -> None:
    events = made(
        spark, (Kind.DELIVER, 10, "a", 1), (Kind.RECEIVE, 20, "c", 7, "a"), (Kind.RECEIVE, 30, None, 0, "a")
    )
    rows = {row.origin: row for row in latencies(events).collect()}
    assert set(rows) == {"a", "c"}
    assert (rows["a"].delivered_us, rows["a"].broadcast_us, rows["a"].delivery_us) == (10, None, None)
    assert (rows["c"].received_us, rows["c"].delivered_us, rows["c"].held_us) == (20, None, None)


def test_traffic(events: DataFrame, plain: list[Event]) -> None:
    table = traffic(events)
    tables.require(table, tables.TRAFFIC, "traffic")
    rows = {row.run: row for row in table.collect()}
    assert set(rows) == {event.run for event in plain}
    for run, row in rows.items():
        counts = Counter(event.kind for event in plain if event.run == run)
        sends = [event for event in plain if event.run == run and event.kind == Kind.SEND]
        total, control = sum(s.total_bytes for s in sends), sum(s.control_bytes for s in sends)
        assert row.broadcasts == counts[Kind.BROADCAST] > 0
        assert row.deliveries == counts[Kind.DELIVER]
        assert row.packets == len(sends)
        assert (row.total_bytes, row.control_bytes, row.payload_bytes) == (total, control, total - control)
        assert row.discards == counts[Kind.DISCARD] > 0
        assert row.packets_per_broadcast == pytest.approx(len(sends) / counts[Kind.BROADCAST])
        assert row.control_bytes_per_packet == pytest.approx(control / len(sends))


def test_buffer_peaks(events: DataFrame, plain: list[Event]) -> None:
    table = buffer_peaks(events)
    tables.require(table, tables.BUFFERS, "buffers")
    rows = {(row.run, row.node): row for row in table.collect()}
    assert {key: row.held_peak for key, row in rows.items()} == plain_held_peaks(plain)
    assert max(row.held_peak for row in rows.values()) > 3
    for (run, node), row in rows.items():
        gauges = [e for e in plain if (e.run, e.node, e.kind) == (run, node, Kind.SAMPLE)]
        assert row.entries_peak == max(g.number for g in gauges if g.detail == "entries")
        # The core's own count, taken now and then, can only be lower than the peak over all steps.
        assert max(g.number for g in gauges if g.detail == "held") <= row.held_peak


def test_held_peak_is_the_cores_own_gauge(plain: list[Event]) -> None:
    """At every sample, what the definition says is held is what the core says."""
    compared = 0
    for run, node in {(event.run, event.node) for event in plain}:
        rows = sorted((e for e in plain if (e.run, e.node) == (run, node)), key=lambda e: e.seq)
        for sample in [row for row in rows if row.kind == Kind.SAMPLE and row.detail == "held"]:
            before = [row for row in rows if row.seq < sample.seq and row.kind != Kind.SAMPLE]
            holding = plain_held_now(before)
            assert len(holding) == sample.number
            compared += sample.number > 0
    assert compared > 20


def plain_held_now(rows: list[Event]) -> set[tuple[str | None, int]]:
    taken = {
        (row.origin, row.number)
        for row, after in zip(rows, [*rows[1:], None], strict=True)
        if row.kind == Kind.RECEIVE and not (after and after.kind == Kind.DISCARD)
    }
    return taken - {(row.origin, row.number) for row in rows if row.kind == Kind.DELIVER}


@pytest.mark.parametrize(
    ("rows", "peak"),
    [
        # Delivered in the step in which it came: never held.
        ([(Kind.RECEIVE, 1, "a", 1, "a"), (Kind.DELIVER, 1, "a", 1)], 0),
        # Two wait for a third, and all three leave in one step.
        (
            [
                (Kind.RECEIVE, 1, "a", 3, "a"),
                (Kind.RECEIVE, 2, "a", 2, "a"),
                (Kind.RECEIVE, 3, "a", 1, "a"),
                (Kind.DELIVER, 3, "a", 1),
                (Kind.DELIVER, 3, "a", 2),
                (Kind.DELIVER, 3, "a", 3),
            ],
            2,
        ),
        # A second copy of a held message does not count, discarded or not.
        (
            [
                (Kind.RECEIVE, 1, "a", 2, "a"),
                (Kind.RECEIVE, 2, "a", 2, "c"),
                (Kind.DISCARD, 2, "a", 2, "c"),
                (Kind.RECEIVE, 3, "a", 2, "d"),
            ],
            1,
        ),
        # A packet that is refused is not held, even if the discard does not name it.
        ([(Kind.RECEIVE, 1, "a", 2, "a"), (Kind.DISCARD, 1, None, 0, "a")], 0),
        # A refused copy first, a good one later.
        (
            [
                (Kind.RECEIVE, 1, "a", 2, "a"),
                (Kind.DISCARD, 1, "a", 2, "a"),
                (Kind.RECEIVE, 2, "a", 2, "a"),
                (Kind.SAMPLE, 3, None, 1, None, 0, 0, "held"),
            ],
            1,
        ),
        # An expired message and one that is discarded later have left.
        (
            [
                (Kind.RECEIVE, 1, "a", 2, "a"),
                (Kind.TIMER, 2, None, 0),
                (Kind.EXPIRE, 2, "a", 2),
                (Kind.RECEIVE, 3, "a", 3, "a"),
                (Kind.TIMER, 4, None, 0),
                (Kind.DISCARD, 4, "a", 3),
                (Kind.RECEIVE, 5, "a", 4, "a"),
            ],
            1,
        ),
        # A packet that pushes another message out of the buffer.
        (
            [
                (Kind.RECEIVE, 1, "a", 2, "a"),
                (Kind.RECEIVE, 2, "a", 3, "a"),
                (Kind.DISCARD, 2, "a", 2, "a"),
            ],
            1,
        ),
        # A crash does not empty the buffer: a node comes back with its saved state.
        (
            [
                (Kind.RECEIVE, 1, "a", 2, "a"),
                (Kind.CRASH, 2, None, 0),
                (Kind.RESTART, 3, None, 0),
                (Kind.RECEIVE, 4, "a", 3, "a"),
            ],
            2,
        ),
        # Own messages are never held.
        ([(Kind.BROADCAST, 1, "b", 1), (Kind.DELIVER, 1, "b", 1)], 0),
    ],
)
def test_held_peak_by_hand(spark: SparkSession, rows: list[tuple[object, ...]], peak: int) -> None:
    assert [row.held_peak for row in buffer_peaks(made(spark, *rows)).collect()] == [peak]


def test_summary(events: DataFrame, plain: list[Event]) -> None:
    table = summary(events)
    tables.require(table, tables.SUMMARY, "summary")
    rows = {row.run: row.asDict() for row in table.collect()}
    assert set(rows) == {event.run for event in plain}
    by_run = {row.run: row.asDict() for row in traffic(events).collect()}
    waits, peaks = plain_latencies(plain), plain_held_peaks(plain)
    for run, row in rows.items():
        assert {key: row[key] for key in tables.TRAFFIC.names} == by_run[run]
        mine = [values for key, values in waits.items() if key[0] == run]
        for at, measure in enumerate(tables.LATENCY_MEASURES, 3):
            values = [value[at] for value in mine if value[at] is not None]
            assert row[f"{measure}_mean_us"] == pytest.approx(mean(values))
            assert row[f"{measure}_p50_us"] == pytest.approx(percentile(values, 0.5))
            assert row[f"{measure}_p99_us"] == pytest.approx(percentile(values, 0.99))
            assert row[f"{measure}_max_us"] == max(values)
        held = [value[5] for value in mine if value[5] is not None]
        assert row["held_share"] == pytest.approx(sum(wait > 0 for wait in held) / len(held))
        assert row["held_peak_max"] == max(peak for (other, _), peak in peaks.items() if other == run)


@pytest.fixture(scope="module")
def aggregated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose packets carry several messages, and whose nodes broadcast more than once."""
    out = tmp_path_factory.mktemp("aggregated")
    once = scenario("R0", 16, "aggregation", 7, "all")
    several = [Window(count=3, stop_us=400_000, payload_bytes=50)]
    simulated(msgspec.structs.replace(once, workloads=several), out, None)
    return out


def test_packing(spark: SparkSession, aggregated: Path) -> None:
    table = packing(tables.flatten(tables.read_segments(spark, aggregated)))
    tables.require(table, tables.PACKING, "packing")
    carried: dict[str, list[int]] = {}
    for event in open_trace(aggregated).events():
        if event.kind is Kind.SEND:
            further = event.detail.split(" ") if event.detail else []
            carried.setdefault(event.node, []).append(1 + len(further) if event.origin else 0)
    found = {tuple(row)[1:] for row in table.collect()}
    assert found == {
        (
            node,
            len(counts),
            sum(counts),
            sum(n > 1 for n in counts),
            sum(n for n in counts if n > 1),
            max(counts),
        )
        for node, counts in carried.items()
    }
    assert any(row[3] > 0 for row in found), "some packets must carry several messages"


def test_a_packet_without_a_message_carries_none(spark: SparkSession) -> None:
    rows = packing(made(spark, (Kind.SEND, 1, None, 0, "a", 9, 9, "it asks"), (Kind.SEND, 2, "b", 1, "a")))
    assert [tuple(row)[2:] for row in rows.collect()] == [(2, 1, 0, 0, 1)]


def test_dependencies(spark: SparkSession, aggregated: Path) -> None:
    table = dependencies(tables.flatten(tables.read_segments(spark, aggregated)))
    tables.require(table, tables.DEPENDENCIES, "dependencies")
    expected: dict[tuple[str, int], int] = {}
    since: dict[str, set[str]] = {}
    for event in sorted(open_trace(aggregated).events(), key=lambda event: (event.node, event.seq)):
        heard = since.setdefault(event.node, set())
        if event.kind is Kind.DELIVER and event.origin not in (event.node, None):
            heard.add(str(event.origin))
        elif event.kind is Kind.BROADCAST:
            expected[event.node, event.number] = len(heard)
            heard.clear()
    assert {(row.origin, row.number): row.dependencies for row in table.collect()} == expected
    assert len({*expected.values()}) > 3


def test_what_was_not_recorded_is_null_not_zero(spark: SparkSession, deliveries_folder: Path) -> None:
    events = tables.flatten(tables.read_segments(spark, deliveries_folder))
    row = summary(events).first()
    assert row is not None
    assert row.deliveries > row.broadcasts > 0
    assert row.delivery_mean_us > 0
    unknown = (
        "packets",
        "total_bytes",
        "control_bytes",
        "payload_bytes",
        "discards",
        "packets_per_broadcast",
    )
    unknown += ("control_bytes_per_packet", "reception_mean_us", "held_p99_us", "held_share", "held_peak_max")
    assert [row[name] for name in unknown] == [None] * len(unknown)
    assert row.entries_peak_max > 0, "gauges are recorded at this level too"


def test_measures_do_not_depend_on_partitions(spark: SparkSession, events: DataFrame) -> None:
    whole = sorted(map(tuple, summary(events.coalesce(1)).collect()))
    split = sorted(map(tuple, summary(events.repartition(7, "seq")).collect()))
    assert whole == split


def test_words_that_tell_packets_apart_name_no_messages(spark: SparkSession) -> None:
    """What PRC writes of its control (`alpha/p1/3`), alone and before the messages of a buffer."""
    events = made(
        spark,
        (Kind.RECEIVE, 1, None, 0, "a", 9, 9, "alpha/p1/3"),
        (Kind.RECEIVE, 2, None, 0, "a", 9, 9, "buffer/p1/3 c:7 d:2"),
        (Kind.DELIVER, 2, "c", 7),
        (Kind.COMMAND, 3, None, 0, None, 0, 0, '["mediate","a","b"]'),
        (Kind.DELIVER, 3, "d", 2),
    )
    received = latencies(events).where("received_us is not null").collect()
    assert sorted((row.origin, row.number) for row in received) == [("c", 7), ("d", 2)]
    [row] = buffer_peaks(events).collect()
    assert row.held_peak == 1  # d, from the buffer's step to the command's
