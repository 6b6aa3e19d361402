"""What causal order costs a stream: against a query that passes rows through, and against the core alone.

    python bench/bench_stream.py [--quick] [--only cost|state|poison]

1. The core alone: `CausalOrder` in one process, per key, saved and restored between batches, as in Spark.
2. Pass-through: the same files read, grouped by nobody, written as Parquet.
3. `causal_order` on the same files, then `causal_sort` on the table at rest.
4. The state over a long run, in which rooms come and go: keys and memory as the query's progress reports
   them, and the bytes of the state itself, read from the checkpoint.
5. Poison: rows made to make the core search. Twice the rows should cost twice the CPU.

CPU-seconds are those of this process and all its descendants (JVM, Python workers), read from /proc, so Linux
only. Ratios are printed as JSON last.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cpu import measured, show
from whence.order import Arrival, CausalOrder
from whence.spark.ordering.job import StreamJob, run_job
from whence.spark.ordering.sort import causal_sort
from whence.spark.session import get_session

SCHEMA = "room string, id string, after array<string>, at timestamp, text string"
ORDER: dict[str, Any] = {
    "key": "room", "id": "id", "depends_on": "after", "event_time": "at", "lifetime": "2s", "remember": "2s",
}  # fmt: skip
LIFETIME_US = 2_000_000
CACHE_MB = 1
BEGAN_US = 1_767_225_600_000_000


def made(rows: int, keys: int, lives: int | None = None) -> list[tuple[str, str, list[str], int]]:
    """Rows (key, id, predecessors, time): each names two; one in ten is delayed, one in 200 lost.

    A row each millisecond. After `lives` rows the keys end and others begin.
    """
    draw = random.Random(1)
    found = []
    lives = lives or rows
    for at in range(rows):
        key, number = at // lives * keys + at % keys, at % lives // keys
        before = [f"{key}-{number - back}" for back in (1, 2) if number >= back]
        delay_us = draw.randrange(500_000) if draw.random() < 0.1 else 0
        if draw.random() >= 0.005:
            found.append((f"room{key}", f"{key}-{number}", before, BEGAN_US + 1000 * at + delay_us))
    return sorted(found, key=lambda row: row[3])


def write(folder: Path, rows: list[tuple[str, str, list[str], int]], files: int) -> None:
    """As Parquet, in order of time, older files first."""
    folder.mkdir(parents=True)
    size = -(-len(rows) // files)
    kinds = (pa.string(), pa.string(), pa.list_(pa.string()), pa.timestamp("us", "UTC"), pa.string())
    for at in range(files):
        part = [(*row, "some text that is carried along") for row in rows[at * size : (at + 1) * size]]
        columns = [
            pa.array(column, kind) for column, kind in zip(zip(*part, strict=True), kinds, strict=True)
        ]
        path = folder / f"{at:05d}.parquet"
        pq.write_table(pa.table(columns, names=["room", "id", "after", "at", "text"]), path)
        os.utime(path, (1_700_000_000 + at,) * 2)


def core_alone(rows: list[tuple[str, str, list[str], int]], batches: int) -> int:
    """The same rows through the core, saved and restored between batches."""
    saved: dict[str, bytes] = {}
    size = -(-len(rows) // batches)
    ended = 0
    for at in range(batches):
        by_key: dict[str, list[tuple[str, str, list[str], int]]] = {}
        for row in rows[at * size : (at + 1) * size]:
            by_key.setdefault(row[0], []).append(row)
        for key, part in by_key.items():
            order = CausalOrder(
                "emit", remember_us=LIFETIME_US, horizon_us=LIFETIME_US, saved=saved.get(key, b"")
            )
            for _, id_, before, at_us in part:
                ended += len(order.offer(Arrival(id_, at_us, LIFETIME_US, dict.fromkeys(before), "text")))
            saved[key] = order.save()
    return ended


def passed_through(spark: Any, source: Path, out: Path, files: int) -> None:
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files).parquet(str(source))
    writer = stream.writeStream.option("checkpointLocation", f"{out}.checkpoint").trigger(availableNow=True)
    writer.start(str(out)).awaitTermination()


def ordered(
    spark: Any,
    source: Path,
    out: Path,
    files: int,
    progress: Callable[[Any], None] | None = None,
    *,
    flush: bool = True,
) -> Any:
    job = StreamJob(
        source=str(source), out=str(out), checkpoint=f"{out}.checkpoint", order=ORDER, schema=SCHEMA,
        source_options={"maxFilesPerTrigger": str(files)}, available_now=True, flush=flush,
    )  # fmt: skip
    return run_job(spark, job, progress)


def cost(folder: Path, quick: bool) -> dict[str, Any]:
    """Parts 1 to 3: CPU of the same rows by each way; the ratios."""
    count, keys, batches = (20_000, 20, 5) if quick else (200_000, 100, 10)
    figures: dict[str, float] = {}
    table: list[list[Any]] = []

    def note(name: str, work: Callable[[], Any]) -> Any:
        result, cpu, wall = measured(work)
        table.append([name, len(rows), cpu, wall, len(rows) / cpu])
        figures[name] = cpu
        return result

    rows = made(count, keys)
    write(folder / "in", rows, batches)
    note("core alone", lambda: core_alone(rows, batches))
    spark = session()
    write(folder / "warm", made(2000, 5), 2)
    passed_through(spark, folder / "warm", folder / "warm-passed", 1)
    note("pass-through", lambda: passed_through(spark, folder / "in", folder / "passed", 1))
    at_rest = spark.read.schema(SCHEMA).parquet(str(folder / "in"))
    causal_sort(spark.read.schema(SCHEMA).parquet(str(folder / "warm")), **ORDER).count()
    note("causal_sort", lambda: causal_sort(at_rest, **ORDER).write.parquet(str(folder / "sorted")))
    ordered(spark, folder / "warm", folder / "warm-ordered", 1)
    summary = note("causal_order", lambda: ordered(spark, folder / "in", folder / "out", 1))
    assert summary.rows_out == len(rows), "every row must come out once"
    show(["", "rows", "CPU s", "s", "rows/CPU s"], table)
    return {
        "rows": len(rows),
        "order_to_pass_through_cpu": figures["causal_order"] / figures["pass-through"],
        "order_to_core_cpu": figures["causal_order"] / figures["core alone"],
        "sort_to_core_cpu": figures["causal_sort"] / figures["core alone"],
    }


def state(folder: Path, quick: bool) -> dict[str, Any]:
    """Part 4: 400 rows a batch, rooms of ten batches; what is held after each generation of rooms."""
    batches, lives = (20, 4) if quick else (80, 10)
    rows = made(400 * batches, 5, 400 * lives)
    write(folder / "long", rows, batches)
    spark = session()
    # RocksDB keeps what it has read up to this limit, however small the state is. The default, 8 MB for each
    # partition, is not reached within this run.
    spark.conf.set("spark.sql.streaming.stateStore.rocksdb.blockCacheSizeMB", str(CACHE_MB))
    seen: dict[int, tuple[int, int]] = {}

    def look(so_far: Any) -> None:
        seen[so_far.batches] = (so_far.state_keys, so_far.state_memory_bytes)

    summary = ordered(spark, folder / "long", folder / "long-out", 1, look, flush=False)
    held = spark.read.format("statestore").option("stateVarName", "order")
    table = []
    for batch in range(lives, batches + 1, lives):
        stored = held.option("batchId", batch - 1).load(f"{folder / 'long-out'}.checkpoint")
        size = stored.selectExpr("coalesce(sum(length(value.blob)), 0)").first()[0]
        keys, memory = seen.get(batch, (-1, -1))  # a batch shorter than a look is missed
        table.append([batch, 400 * batch, 5 * batch // lives, keys, stored.count(), size, memory])
    headings = (
        "batch",
        "rows made",
        "rooms so far",
        "keys (progress)",
        "keys",
        "state bytes",
        "memory (progress)",
    )
    for line in (headings, *table):
        print("".join(f"{cell if isinstance(cell, str) else format(cell, ','):>18}" for cell in line))
    sizes = [row[5] for row in table]
    half = len(sizes) // 2
    return {
        "state_rows_in": summary.rows_in,
        "state_bytes_second_half_to_first": max(sizes[half:]) / max(sizes[:half]),
    }


def late_rows(count: int) -> None:
    """As many rows that come too late, with needs, as rows that wait."""
    order = CausalOrder("emit", remember_us=10**12)
    for at in range(count):
        order.offer(Arrival(f"waits{at}", 1_000, 10**9, {f"never{at}": None}, None))
    order.advance(2_000)
    for at in range(count):
        order.offer(Arrival(f"late{at}", 1, 10, {f"before{at}": None}, None))
    order.end()


def origins_without_first(count: int) -> None:
    """Vector clocks whose first numbers never come."""
    order = CausalOrder("emit", vector=True)
    for at in range(count):
        order.offer(Arrival(f"o{at}:2", 1_000 + at, 10**6, {f"o{at}:1": None}, None))
    order.end()


def one_wide_row(count: int) -> None:
    """One row that names them all, half of which come."""
    order = CausalOrder("emit", remember_us=10**12)
    order.offer(Arrival("wide", 0, 10**9, {f"x{at}": None for at in range(count)}, None))
    for at in range(0, count, 2):
        order.offer(Arrival(f"x{at}", 1, 10**6, {}, None))
    order.end()


def poison(quick: bool) -> dict[str, Any]:
    """CPU of each kind of poison, and of twice as much."""
    found: dict[str, Any] = {}
    for work, count in ((late_rows, 4_000), (origins_without_first, 2_000), (one_wide_row, 10_000)):
        size = count // 10 if quick else count
        took: list[float] = []
        for rows in (size, 2 * size):
            began = time.process_time()
            work(rows)
            took.append(time.process_time() - began)
        name = work.__name__
        print(f"{name:>24} {size:>7} rows {took[0]:.3f} s, {2 * size:>7} rows {took[1]:.3f} s")
        found |= {f"{name}_twice_to_once": took[1] / took[0]}
    return found


def session() -> Any:
    """The session of all parts."""
    return get_session("bench", conf={"spark.sql.shuffle.partitions": "2"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    parser.add_argument("--only", choices=["cost", "state", "poison"], help="one of the parts")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="whence-bench-"))
    found: dict[str, Any] = {"bench": "stream", "at": time.strftime("%Y-%m-%d")}
    try:
        if given.only in (None, "cost"):
            found |= cost(folder, given.quick)
        if given.only in (None, "state"):
            found |= state(folder, given.quick)
        if given.only in (None, "poison"):
            found |= poison(given.quick)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
