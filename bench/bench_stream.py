"""What causal order costs a stream: against a query that passes rows through, and against the core alone.

    python bench/bench_stream.py [--quick] [--only shapes|cost|state|poison]

1. The core alone: `CausalOrder` in one process, per key, saved and restored between batches, as in Spark.
2. Pass-through: the same files read, grouped by nobody, written as Parquet.
3. `causal_order` on the same files, then `causal_sort` on the table at rest.
4. The state over a long run, in which rooms come and go: keys, rows that wait, and bytes, read from the
   versions beside the checkpoint.
5. Poison: rows made to make the core search. A row must not take more instructions where there are more of
   them; what more CPU it takes, tables of the same size without any order show too.
6. Shapes: few keys with many rows, many with few. The CPU of `whence stream` against pass-through, and its
   rows against those of the operator of version 0.1 (`tests/golden/data/stream-shapes.json` has their hash:
   `--record` wrote it with that operator, before it was removed).

CPU-seconds are those of this process and all its descendants (JVM, Python workers), read from /proc, so Linux
only. Ratios are printed as JSON last.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from hashlib import sha256
from heapq import heappop, heappush
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cpu import measured, show
from whence.order import Arrival, CausalOrder
from whence.spark.ordering.job import StreamJob, run_job
from whence.spark.ordering.sort import causal_sort
from whence.spark.ordering.versions import StateStore
from whence.spark.session import get_session

SCHEMA = "room string, id string, after array<string>, at timestamp, text string"
ORDER: dict[str, Any] = {
    "key": "room", "id": "id", "depends_on": "after", "event_time": "at", "lifetime": "2s", "remember": "2s",
}  # fmt: skip
LIFETIME_US = 2_000_000
BEGAN_US = 1_767_225_600_000_000
GOLDEN = Path(__file__).parents[1] / "tests/golden/data/stream-shapes.json"
# Keys and rows of each per batch, batches.
SHAPES = {
    "100 keys x 200": (100, 200, 5), "10,000 keys x 2": (10_000, 2, 5), "20,000 keys x 1": (20_000, 1, 5),
    "one key x 20,000": (1, 20_000, 5), "100 keys x 1,000": (100, 1_000, 3),
}  # fmt: skip


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
    *,
    flush: bool = True,
) -> Any:
    job = StreamJob(
        source=str(source), out=str(out), checkpoint=f"{out}.checkpoint", order=ORDER, schema=SCHEMA,
        source_options={"maxFilesPerTrigger": str(files)}, available_now=True, flush=flush,
    )  # fmt: skip
    return run_job(spark, job)


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


def digest(spark: Any, out: Path) -> dict[str, Any]:
    """All rows of a result, whatever their order, as one hash; and how many there are of each outcome."""
    table = spark.read.parquet(str(out)).toArrow()
    names = ("room", "id", "after", "at", "text", "outcome", "missing", "position", "epoch")
    rows = sorted(zip(*(map(str, table.column(name).to_pylist()) for name in names), strict=True))
    counts: dict[str, int] = {}
    for row in rows:
        counts[row[5]] = counts.get(row[5], 0) + 1
    return {"rows": len(rows), "sha256": sha256(repr(rows).encode()).hexdigest(), "outcomes": counts}


def shaped(folder: Path, name: str, quick: bool) -> Path:
    """The files of a shape."""
    keys, each, batches = SHAPES[name]
    if quick:
        keys, each = (keys // 10, each) if keys > 1 else (keys, each // 10)
    source = folder / f"shape-{keys}-{each}"
    write(source, made(keys * each * batches, keys), batches)
    return source


def shapes(folder: Path, quick: bool, record: bool, names: list[str]) -> dict[str, Any]:
    """Part 6: CPU against pass-through for each shape, and whether the rows are the recorded ones."""
    spark = session()
    recorded = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    known = recorded.setdefault("quick" if quick else "full", {})
    write(folder / "warmed", made(20_000, 50), 2)
    for _ in range(1 if record or names else 2):
        passed_through(spark, folder / "warmed", Path(tempfile.mkdtemp(dir=folder)) / "out", 1)
        ordered(spark, folder / "warmed", Path(tempfile.mkdtemp(dir=folder)) / "out", 1)
    found: dict[str, Any] = {}
    table: list[list[Any]] = []
    for name in names or SHAPES:
        source = shaped(folder, name, quick)
        out, through = source.with_suffix(".out"), source.with_suffix(".through")
        _, base, _ = measured(lambda: passed_through(spark, source, through, 1))  # noqa: B023 - run here
        summary, cpu, wall = measured(lambda: ordered(spark, source, out, 1))  # noqa: B023
        table.append([name, summary.rows_in, base, cpu, wall, summary.rows_in / cpu, cpu / base])
        rows = digest(spark, out)
        if record:
            known[name] = rows
        assert summary.rows_out == summary.rows_in, "every row must come out once"
        assert rows == known[name], f"{name}: the rows are not the recorded ones"
        found[f"order_to_pass_through_cpu, {name}"] = cpu / base
        print(f"{name}: {cpu / base:.2f} times pass-through, the recorded rows", flush=True)
        for each in (source, out, through):
            shutil.rmtree(each)
    show(["", "rows", "through CPU s", "CPU s", "s", "rows/CPU s", "ratio"], table)
    if record:
        GOLDEN.write_text(json.dumps(recorded, indent=1) + "\n")
    return found


def state(folder: Path, quick: bool) -> dict[str, Any]:
    """Part 4: 400 rows a batch, rooms of ten batches; what is held after each generation of rooms."""
    batches, lives = (20, 4) if quick else (80, 10)
    rows = made(400 * batches, 5, 400 * lives)
    write(folder / "long", rows, batches)
    spark = session()
    summary = ordered(spark, folder / "long", folder / "long-out", 1, flush=False)
    store = StateStore(f"{folder / 'long-out'}.checkpoint/whence")
    table = []
    for batch in range(lives, batches + 1, lives):
        sizes = store.sizes(batch - 1)
        keys, waiting = sum(size.keys for size in sizes), sum(size.waiting for size in sizes)
        whole = sum(len(each.bucket) for part in range(2) for each in store.versions(part, batch - 1))
        table.append([batch, 400 * batch, 5 * batch // lives, keys, waiting, whole])
    headings = ("batch", "rows made", "rooms so far", "keys", "rows that wait", "state bytes")
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


def plain_tables(count: int) -> None:
    """What memory alone costs `late_rows`: as many ids in as many dicts and one heap, and no order."""
    rows: dict[int, list[Any]] = {}
    places, waiters, awaited, gone = {}, {}, {}, {}
    heap: list[tuple[int, int, Any]] = []
    for at in range(count):
        id_, need = f"waits{at}", f"never{at}"
        rows[at] = [id_, {need: None}, {}]
        places[id_], waiters[need], awaited[need] = at, {at}, 10**9
        heappush(heap, (10**9, 0, at))
        heappush(heap, (10**9, 1, need))
    for at in range(count):
        gone[f"late{at}"] = [at, {f"before{at}": at}]
    while heap:
        _, kind, what = heappop(heap)
        if kind:
            del waiters[what], awaited[what]
        else:
            del places[rows.pop(what)[0]]


def _spent(work: Callable[[int], None], rows: int) -> float:
    began = time.process_time()
    work(rows)
    return time.process_time() - began


def _instructions(work: Callable[[int], None], rows: int) -> int:
    """How many of Python's instructions a load takes: a repeated walk shows, a slow memory does not."""
    count = 0

    def each(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return each

    sys.settrace(each)
    try:
        work(rows)
    finally:
        sys.settrace(None)
    return count


def poison(quick: bool) -> dict[str, Any]:
    """CPU and instructions for a row of each kind of poison, at 1, 2, 4 and 8 times the size."""
    found: dict[str, Any] = {}
    loads = {late_rows: 4_000, plain_tables: 4_000, origins_without_first: 2_000, one_wide_row: 10_000}
    for work, count in loads.items():
        sizes = [times * (count // 10 if quick else count) for times in (1, 2, 4, 8)]
        # The best of five: a tenth of a second is little beside what else the machine does.
        us = [min(_spent(work, rows) for _ in range(5)) / rows * 1e6 for rows in sizes]
        steps = [_instructions(work, rows) / rows for rows in (sizes[0], sizes[-1])]
        name = work.__name__
        print(
            f"{name:>24}, {sizes[0]} rows and 2, 4, 8 times: " + ", ".join(f"{each:.1f}" for each in us),
            end="",
        )
        print(f" us per row; instructions per row {steps[0]:.0f}, {steps[1]:.0f}", flush=True)
        found |= {f"{name}_us": us, f"{name}_instructions_8_to_1": steps[1] / steps[0]}
    return found


def session() -> Any:
    """The session of all parts."""
    return get_session("bench", conf={"spark.sql.shuffle.partitions": "2"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    parser.add_argument("--only", choices=["shapes", "cost", "state", "poison"], help="one of the parts")
    parser.add_argument("--shape", action="append", default=[], choices=list(SHAPES), help="these only")
    parser.add_argument("--record", action="store_true", help="take the rows of the shapes as they are now")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="whence-bench-"))
    found: dict[str, Any] = {"bench": "stream", "at": time.strftime("%Y-%m-%d")}
    try:
        if given.only in (None, "cost"):
            found |= cost(folder, given.quick)
        if given.only in (None, "shapes"):
            found |= shapes(folder, given.quick, given.record, given.shape)
        if given.only in (None, "state"):
            found |= state(folder, given.quick)
        if given.only in (None, "poison"):
            found |= poison(given.quick)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
