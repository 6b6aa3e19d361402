"""Buckets give the rows that the operator of version 0.1 gave, in the shapes of bench/bench_stream.py."""

from __future__ import annotations

import json
import sys
from hashlib import sha256
from pathlib import Path
from zlib import crc32

import pyarrow as pa
import pytest

from whence.spark.ordering.buckets import KEY, Bucket
from whence.spark.ordering.columns import HELPERS, OrderSettings

ROOT = Path(__file__).parents[2]
LIFETIME_US, END_US = 2_000_000, 253_402_214_400_000_000
TEXTS, TIME = pa.list_(pa.string()), pa.timestamp("us", "UTC")
OWN = {"room": pa.string(), "id": pa.string(), "after": TEXTS, "at": TIME, "text": pa.string()}
ENDED = pa.schema(
    [*OWN.items(), ("outcome", pa.string()), ("missing", TEXTS), ("position", pa.int64()), ("epoch", TIME)]
)
GIVEN = pa.schema(
    [
        *OWN.items(), (KEY, pa.string()),
        (HELPERS[0], pa.int64()), (HELPERS[1], pa.string()), (HELPERS[2], TEXTS),
        (HELPERS[3], pa.list_(pa.int64())), (HELPERS[4], pa.int64()), (HELPERS[5], pa.int64()),
    ]
)  # fmt: skip


def table(rows: list[tuple[str, str, list[str], int]]) -> pa.Table:
    found = [
        (key, id_, after, us, "some text that is carried along", key, us, id_, after, None, LIFETIME_US, 0)
        for key, id_, after, us in rows
    ]
    columns = list(zip(*found, strict=True)) or [()] * len(GIVEN)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, GIVEN, strict=True)], schema=GIVEN)


@pytest.mark.parametrize("size", ["quick", pytest.param("full", marks=pytest.mark.slow)])
@pytest.mark.parametrize("at", range(5))
def test_the_rows_of_a_shape(size: str, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "bench"), *sys.path])
    import bench_stream as bench

    name = list(bench.SHAPES)[at]
    keys, each, batches = bench.SHAPES[name]
    if size == "quick":
        keys, each = (keys // 10, each) if keys > 1 else (keys, each // 10)
    rows = bench.made(keys * each * batches, keys)
    step = -(-len(rows) // batches)
    saved: list[list[bytes]] = [[], []]
    ended, newest_us = [], 0
    for batch in range(batches + 1):  # the last one is the flush
        part, buckets = rows[batch * step : (batch + 1) * step], []
        for place in (0, 1):
            bucket = Bucket(
                OrderSettings("emit", LIFETIME_US, LIFETIME_US, False, False), ENDED, "", saved[place]
            )
            mine = [row for row in part if crc32(row[0].encode()) % 2 == place]
            ended.append(bucket.step(table(mine[::-1]), newest_us if part else END_US))
            saved[place] = [*saved[place], bucket.changes()] if batch % 2 else [bucket.save()]
            buckets.append(bucket)
        newest_us = max(bucket.newest_us for bucket in buckets)
    found = pa.concat_tables(ended)
    names = ENDED.names
    texts = sorted(zip(*(map(str, found.column(name).to_pylist()) for name in names), strict=True))
    golden = json.loads((ROOT / "tests/golden/data/stream-shapes.json").read_text())[size][name]
    assert len(texts) == golden["rows"]
    assert sha256(repr(texts).encode()).hexdigest() == golden["sha256"]
