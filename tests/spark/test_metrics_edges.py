"""The measures' columns against the definitions in plain Python, on random events and at the edges."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from whence.errors import SchemaError
from whence.spark import tables
from whence.spark.metrics import events as columns
from whence.spark.metrics import events as packed
from whence.spark.metrics import nodes, summary
from whence.trace.schema import Kind

pytestmark = pytest.mark.spark

Row = tuple[Any, ...]  # of EVENTS
INPUTS = {
    Kind.BROADCAST, Kind.RECEIVE, Kind.LINK_UP, Kind.LINK_DOWN, Kind.TIMER, Kind.COMMAND,
    Kind.CRASH, Kind.RESTART,
}  # fmt: skip
ENDS = {Kind.DELIVER, Kind.EXPIRE, Kind.DISCARD}


def random_events(rng: random.Random, *, runs: int = 2, members: int = 3, each: int = 60) -> list[Row]:
    """Anything in any order: no protocol would do it, and every rule is met."""
    names = [f"n:{at}" if at == 1 else f"n{at}" for at in range(members)]  # a name with a colon, too
    rows = []
    for run in range(runs):
        for node in names:
            for seq in range(rng.randrange(1, each)):
                kind = rng.choice([*Kind, Kind.RECEIVE, Kind.RECEIVE, Kind.DELIVER, Kind.DISCARD])
                origin = rng.choice([*names, None]) if kind is not Kind.BROADCAST else node
                further = [f"{rng.choice(names)}:{rng.randrange(4)}" for _ in range(rng.randrange(3))]
                words = rng.choice([None, "buffer/p1/3", " ".join(further), " ".join(["a/b", *further])])
                detail = rng.choice(["entries", "held"]) if kind is Kind.SAMPLE else words
                number = rng.randrange(4) * rng.choice([1, 10**17])
                sizes = (rng.randrange(99), rng.randrange(9))
                rows.append(
                    (
                        f"r{run}",
                        node,
                        seq,
                        rng.randrange(10**6),
                        int(kind),
                        origin,
                        number,
                        None,
                        *sizes,
                        detail,
                    )
                )
    return rows


def arrow(rows: list[Row]) -> pa.Table:
    schema = to_arrow_schema(tables.EVENTS)
    return pa.Table.from_arrays(
        [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(schema)], schema=schema
    )


def sorted_batches(batches: Iterator[pa.RecordBatch], *keys: str) -> Iterator[pa.RecordBatch]:
    """What Spark does between two steps, in batches as small as can be."""
    table = pa.Table.from_batches(list(batches))
    return iter(table.sort_by([(key, "ascending") for key in keys]).to_batches(max_chunksize=1))


def in_process(rows: list[Row], step: Any) -> Iterator[pa.RecordBatch]:
    flat = arrow(rows).to_batches(max_chunksize=17)
    found: Iterator[pa.RecordBatch] = step(
        sorted_batches(packed._pack(iter(flat)), "run", "node", "first_seq")
    )
    return found


def by_node(rows: list[Row]) -> dict[tuple[str, str], list[Row]]:
    found = defaultdict(list)
    for row in sorted(rows, key=lambda row: row[2]):
        found[row[0], row[1]].append(row)
    return found


def named_in(row: Row) -> list[tuple[str, int]]:
    """The messages that a row tells of."""
    found = [(row[5], row[6])] if row[5] is not None else []
    if row[4] == Kind.RECEIVE and row[10]:
        halves = [word.rpartition(":") for word in row[10].split(" ")]
        found += [(origin, int(number)) for origin, colon, number in halves if colon]
    return found


def plain_peak(rows: list[Row]) -> int:
    """The definition, message by message and step by step."""
    steps: list[list[Row]] = []
    for row in rows:
        if row[4] in INPUTS:
            steps.append([row])
        elif steps:
            steps[-1].append(row)
    entered: dict[Any, int] = {}
    left: dict[Any, int] = {}
    for at, step in enumerate(steps):
        kinds = defaultdict(set)
        for row in step:
            if row[4] == Kind.RECEIVE or row[4] in ENDS:
                of_packet = row[4] == Kind.DISCARD and row[5] is None and step[0][4] == Kind.RECEIVE
                for message in named_in(step[0])[: step[0][5] is not None] if of_packet else named_in(row):
                    kinds[message].add(row[4])
        for message, happened in kinds.items():
            if Kind.RECEIVE in happened and Kind.DISCARD not in happened:
                entered.setdefault(message, at)
            gone = Kind.DISCARD in happened and Kind.RECEIVE not in happened
            if gone or happened & {Kind.DELIVER, Kind.EXPIRE}:
                left.setdefault(message, at)
    stays = [(at, left.get(message, len(steps))) for message, at in entered.items()]
    return max((sum(a <= at < b for a, b in stays) for at in range(len(steps))), default=0)


def plain_latency(rows: list[Row]) -> dict[Any, Any]:
    """(run, node, origin, number) -> broadcast, first reception, first delivery."""
    sent: dict[Any, int] = {}
    times: dict[Any, dict[Kind, int]] = {}
    for row in rows:
        run, node, _, time_us, kind = row[:5]
        if kind == Kind.BROADCAST:
            key = (run, *row[5:7])
            sent[key] = min(time_us, sent.get(key, time_us))
        elif kind in (Kind.RECEIVE, Kind.DELIVER):
            for origin, number in named_in(row):
                if origin != node:
                    of = times.setdefault((run, node, origin, number), {})
                    of[kind] = min(time_us, of.get(kind, time_us))
    return {
        key: (sent.get((key[0], *key[2:])), of.get(Kind.RECEIVE), of.get(Kind.DELIVER))
        for key, of in times.items()
    }


@pytest.mark.parametrize("seed", range(60))
def test_random_events(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    rows = random_events(rng)
    if seed % 2:
        rng.shuffle(rows)  # as an input that is partitioned by anything else
        monkeypatch.setattr(columns, "CHUNK_BYTES", 2_000)  # several chunks in one task
        monkeypatch.setattr(packed, "_PACK_EVENTS", 50)
    found = pa.Table.from_batches(in_process(rows, nodes._nodes)).to_pylist()
    places = by_node(rows)
    assert len(found) == len(places)
    for row in found:
        mine = places[row["run"], row["node"]]
        kinds = [other[4] for other in mine]
        remote = sum(r[4] == Kind.DELIVER and r[5] not in (None, row["node"]) for r in mine)
        gauge = [r[6] for r in mine if r[4] == Kind.SAMPLE and r[10] == "entries"]
        known = Kind.RECEIVE in kinds or remote == 0
        assert row["held_peak"] == (plain_peak(mine) if known else None)
        assert row["entries_peak"] == max(gauge, default=None)
        assert (row["remote"], row["discarded"]) == (remote, kinds.count(Kind.DISCARD))
        assert row["total"] == sum(r[8] for r in mine if r[4] == Kind.SEND)
    copies = sorted_batches(in_process(rows, nodes._copies), "run", "bucket")
    table = pa.Table.from_batches(summary._latency_rows(copies)).to_pylist()
    listed = {tuple(row.values())[:4]: tuple(row.values())[4:7] for row in table}
    assert len(listed) == len(table)
    assert listed == plain_latency(rows)


def test_percentiles_of_parts(spark: SparkSession) -> None:
    """They are those of Spark's own function, to the last bit."""
    rng = random.Random(1)
    groups = [[rng.randrange(30_000) for _ in range(count)] for count in (1, 2, 3, 7, 100, 101, 613, 4567)]
    table = spark.createDataFrame(
        [(at, value) for at, values in enumerate(groups) for value in values], "at int, value bigint"
    )
    exact = F.percentile("value", F.array(F.lit(0.5), F.lit(0.99))).alias("found")
    for row in table.groupBy("at").agg(exact).collect():
        values = np.array(groups[row["at"]])
        parts = [np.concatenate(np.unique(part, return_counts=True)) for part in np.array_split(values, 3)]
        assert summary._percentiles([*parts, np.array([], np.int64)]) == row.found
    assert summary._percentiles([]) == [None, None]


def test_keys_of_numbers_far_apart() -> None:
    far = np.array([2**62, -(2**62), 0, 2**62])
    near = np.array([1, 0, 0, 1])
    key = columns.combined(far, near, far)
    assert key[0] == key[3]
    assert list(np.argsort(key[:3])) == [1, 2, 0]


def test_an_empty_table(spark: SparkSession) -> None:
    for schema in (tables.EVENTS, tables.SEGMENTS):
        assert summary.summary(spark.createDataFrame([], schema)).collect() == []
    assert summary.latencies(spark.createDataFrame([], tables.EVENTS)).collect() == []


def test_packed_and_flat_are_one_table(spark: SparkSession, folder: Path) -> None:
    segments = tables.read_segments(spark, folder)
    flat = tables.flatten(segments)
    assert sorted(summary.summary(segments).collect()) == sorted(summary.summary(flat).collect())
    assert sorted(summary.latencies(segments).collect(), key=str) == sorted(
        summary.latencies(flat).collect(), key=str
    )


def test_one_node_with_all_events(spark: SparkSession) -> None:
    """And nothing else: no copies, no receptions, one run beside it that has both."""
    alone = [("a", "n", seq, seq, int(Kind.BROADCAST), "n", seq, None, 8, 0, None) for seq in range(300)]
    other = [
        ("b", "m", 0, 10, int(Kind.BROADCAST), "m", 1, None, 8, 0, None),
        ("b", "n", 0, 25, int(Kind.RECEIVE), "m", 1, "m", 9, 1, None),
        ("b", "n", 1, 25, int(Kind.DISCARD), None, 0, "m", 0, 0, "no such link"),
    ]
    rows = {
        row.run: row for row in summary.summary(spark.createDataFrame(alone + other, tables.EVENTS)).collect()
    }
    assert (rows["a"].broadcasts, rows["a"].packets, rows["a"].held_peak_max) == (300, 0, 0)
    assert rows["a"].reception_mean_us is rows["a"].delivery_p99_us is rows["a"].held_share is None
    assert (rows["b"].reception_mean_us, rows["b"].reception_p50_us, rows["b"].reception_max_us) == (
        15,
        15,
        15,
    )
    assert (rows["b"].delivery_max_us, rows["b"].held_peak_max, rows["b"].discards) == (None, 0, 1)


def test_nulls_where_there_can_be_none() -> None:
    rows = [("r", "n", 0, None, int(Kind.TIMER), None, 0, None, 0, 0, None)]
    with pytest.raises(SchemaError, match=r"time_us.*nulls"):
        list(packed._pack(iter(arrow(rows).to_batches())))
