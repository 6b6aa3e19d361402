"""Positions to contacts on Spark: which nodes were within range of each other, and from when to when.

    intervals = intervals_of_files(spark, "positions.parquet", 50.0, step_us=1_000_000)
    plan = collect_plan(intervals)

POSITIONS are cut into pieces of time, and these dealt out to tasks, which read the files themselves where the
footers say which part has which times. A task buckets its positions in a grid, a
numba kernel finds the pairs in range (`whence.mobility.sampled`, which says what a contact is), and each
pair's steps are joined into intervals as far as the task has them. What goes on over the border of pieces is
joined in SQL, as islands between gaps. `intervals_by_join` says the same in DataFrame operations alone; the
tests hold one against the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from whence.errors import ContactPlanError
from whence.mobility.positions import TimeGroup, time_groups, usable_rows
from whence.mobility.readers import in_order
from whence.mobility.sampled import check_measure, intervals, plan_of
from whence.overlay.contacts import ContactPlan
from whence.spark.tables import INTERVALS, POSITIONS, columns_of, require

TASK_ROWS = 500_000  # positions for a task: a second of work, some 100 MB
TASKS_MIN = 4
PIECES_PER_TASK = 8  # pieces are dealt out by a hash: of many small ones every task gets about as much
READ_ROWS_MAX = 5 * TASK_ROWS  # for a task that reads files itself: two of the usual 2**20 rows fit
READ_AGAIN_MAX = 2.0  # times that a row may be read on average before it is cheaper to shuffle


class Positions(NamedTuple):
    """A table of positions, summed up."""

    rows: int
    left_out: int  # rows with a null, or a coordinate that is not a finite number
    first_us: int
    last_us: int


def read_positions(spark: SparkSession, path: Path | str) -> DataFrame:
    """POSITIONS of a Parquet file or folder; other kinds of whole numbers, names and numbers are cast."""
    found = spark.read.parquet(f"file://{Path(path).resolve()}")
    cast = [
        F.col(field.name).cast(field.dataType) for field in POSITIONS.fields if field.name in found.columns
    ]
    table = found.select(*cast)
    require(table, POSITIONS, "positions")
    return table


def look_over(positions: DataFrame) -> Positions:
    """Count the positions and find the span of time that they cover."""
    require(positions, POSITIONS, "positions")
    usable = _usable()
    row = positions.agg(
        F.count(F.lit(1)).alias("rows"),
        F.count(F.when(usable, 1)).alias("usable"),
        F.min(F.when(usable, F.col("time_us"))).alias("first"),
        F.max(F.when(usable, F.col("time_us"))).alias("last"),
    ).collect()[0]
    if row.usable:
        _check_first(row.first)
    return Positions(row.rows, row.rows - row.usable, row.first or 0, row.last or 0)


def _check_first(first_us: int) -> None:
    if first_us < 0:
        raise ContactPlanError("positions", f"the time {first_us} us is negative", "Count from 0 or 1970")


def find_step_us(positions: DataFrame) -> int:
    """The least time between two different times in the table."""
    require(positions, POSITIONS, "positions")
    # All times go to one task, but only once each: a day in seconds is 86,400 rows.
    before = F.lag("time_us").over(Window.orderBy("time_us"))
    times = positions.where(_usable()).select("time_us").distinct()
    least = times.select((F.col("time_us") - before).alias("step")).agg(F.min("step").alias("step")).collect()
    if least[0].step is None:
        raise ContactPlanError("positions", "there are not two different times", "Give the step")
    return int(least[0].step)


def intervals_of_files(
    spark: SparkSession, path: Path | str, range_m: float, *, step_us: int, gap_us: int | None = None
) -> DataFrame:
    """INTERVALS of a Parquet file or folder: as `contact_intervals`, cheaper if it is in order of time.

    Rows that go through Spark cost most of the work. So where the footers say that row groups have few times
    in common, each task reads its own piece of time; otherwise rows are shuffled.
    """
    check_measure(range_m, step_us, gap_us)
    groups = time_groups(Path(path))
    positions = read_positions(spark, path)  # has the columns, or says so before a task does
    pieces = None if groups is None else read_pieces(groups, step_us)
    if not pieces:
        return contact_intervals(positions, range_m, step_us=step_us, gap_us=gap_us)
    _check_first(pieces[0][0])
    source, schema = Path(path).resolve(), to_arrow_schema(INTERVALS)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers: list[Any] = [each for batch in batches for each in batch.column(0).to_pylist()]
        for number in numbers:
            table, _ = usable_rows(source, pieces[number])
            yield from _intervals_of(table, range_m, step_us, gap_us, schema).to_batches()

    tasks = spark.range(0, len(pieces), 1, len(pieces))
    return join_islands(tasks.mapInArrow(work, INTERVALS), step_us, gap_us)


def read_pieces(groups: list[TimeGroup], step_us: int) -> list[tuple[int, int]] | None:
    """Pieces of time, for tasks that read the row groups with these times; None if that reads too much."""
    pieces: list[tuple[int, int]] = []
    begin_us, rows = 0, 0
    for group in sorted(groups, key=lambda group: group.first_us):
        border_us = group.first_us // step_us * step_us  # a step is never cut
        if rows >= TASK_ROWS and border_us > begin_us:
            pieces.append((begin_us, border_us))
            begin_us, rows = border_us, 0
        elif not rows:
            begin_us = border_us
        rows += group.rows
    if not rows:
        return None
    pieces.append((begin_us, max(group.last_us for group in groups) + 1))
    read = [
        sum(each.rows for each in groups if each.first_us < stop_us and each.last_us >= start_us)
        for start_us, stop_us in pieces
    ]
    total = sum(each.rows for each in groups)
    too_much = max(read) > READ_ROWS_MAX or sum(read) > READ_AGAIN_MAX * total
    return None if too_much else pieces


def contact_intervals(
    positions: DataFrame,
    range_m: float,
    *,
    step_us: int,
    gap_us: int | None = None,
    piece_us: int | None = None,
    seen: Positions | None = None,
) -> DataFrame:
    """INTERVALS of contact and presence; `whence.mobility.sampled` says what step and gap mean.

    `seen` is what `look_over` said, if it was asked already: it decides the number of tasks. `piece_us` is
    the length of a piece of time; by default a task has several.
    """
    require(positions, POSITIONS, "positions")
    check_measure(range_m, step_us, gap_us)
    found = look_over(positions) if seen is None else seen
    tasks = max(found.rows // TASK_ROWS, TASKS_MIN)
    if piece_us is None:
        piece_us = (found.last_us - found.first_us) // (tasks * PIECES_PER_TASK) + 1
    steps = max(piece_us // step_us, 1)
    piece = F.expr(f"time_us div {step_us * steps}")  # whole numbers: `/` would go through doubles
    schema = to_arrow_schema(INTERVALS)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if rows := list(batches):  # a task may have got no piece
            table = pa.Table.from_batches(rows)
            yield from _intervals_of(table, range_m, step_us, gap_us, schema).to_batches()

    # Not groupBy and applyInArrow: that sorts all rows by piece, which costs more than the kernel. A task
    # takes its pieces together; it does not matter to it that they are not neighbours.
    usable = positions.where(_usable()).select(*POSITIONS.names)
    dealt = usable.repartition(tasks, piece)
    return join_islands(dealt.mapInArrow(work, INTERVALS), step_us, gap_us)


def join_islands(parts: DataFrame, step_us: int, gap_us: int | None) -> DataFrame:
    """INTERVALS in which those of one pair that are at most a gap apart are one."""
    slack_us = 0 if gap_us is None else gap_us - step_us
    pair = Window.partitionBy("a", "b").orderBy("start_us")
    # The greatest stop so far, not the last: a part that bridges a gap may have another one within it.
    before = F.max("stop_us").over(pair.rowsBetween(Window.unboundedPreceding, -1))
    fresh = F.coalesce(F.col("start_us") - before > slack_us, F.lit(True))
    marked = parts.withColumn("fresh", fresh.cast("int"))
    numbered = marked.withColumn("island", F.sum("fresh").over(pair))
    grouped = numbered.groupBy("a", "b", "island")
    return grouped.agg(F.min("start_us").alias("start_us"), F.max("stop_us").alias("stop_us")).select(
        columns_of(INTERVALS)
    )


def intervals_by_join(
    positions: DataFrame, range_m: float, *, step_us: int, gap_us: int | None = None
) -> DataFrame:
    """The same as `contact_intervals` by a self-join on cells of a grid: slower, and without a kernel."""
    require(positions, POSITIONS, "positions")
    check_measure(range_m, step_us, gap_us)
    start = F.expr(f"time_us div {step_us} * {step_us}").alias("start_us")
    latest = F.max(F.struct("time_us", "x", "y")).alias("latest")
    seen = positions.where(_usable()).groupBy("node", start).agg(latest)
    cells = seen.select("node", "start_us", "latest.x", "latest.y").select(
        "*", *(F.floor(F.col(axis) / F.lit(range_m * (1 + 1e-9))).alias(f"c{axis}") for axis in ("x", "y"))
    )
    around = F.array(
        *(F.struct(F.lit(i).alias("i"), F.lit(j).alias("j")) for i in (-1, 0, 1) for j in (-1, 0, 1))
    )
    moved = cells.withColumn("to", F.explode(around)).select(
        F.col("node").alias("a"), "start_us", F.col("x").alias("ax"), F.col("y").alias("ay"),
        (F.col("cx") + F.col("to.i")).alias("cx"), (F.col("cy") + F.col("to.j")).alias("cy"),
    )  # fmt: skip
    dx, dy = F.col("x") - F.col("ax"), F.col("y") - F.col("ay")
    met = moved.join(cells, ["start_us", "cx", "cy"]).where(
        (F.col("a") <= F.col("node")) & (dx * dx + dy * dy <= F.lit(range_m * range_m))
    )
    stop = (F.col("start_us") + F.lit(step_us)).alias("stop_us")
    return join_islands(met.select("a", F.col("node").alias("b"), "start_us", stop), step_us, gap_us)


def collect_plan(found: DataFrame) -> ContactPlan:
    """The plan of INTERVALS, here in this process; its time 0 is the first start."""
    require(found, INTERVALS, "intervals")
    table: pa.Table = found.toArrow()
    every = pc.unique(table.column("a")).to_pylist()  # also those that meet no other: they are present
    names = sorted(map(str, every), key=in_order)
    index = pa.array(names, pa.string())
    ends = [pc.index_in(table.column(each), index).to_numpy() for each in ("a", "b")]
    times = [table.column(each).to_numpy() for each in ("start_us", "stop_us")]
    return plan_of(names, np.column_stack([*ends, *times]).astype(np.int64))


def _usable() -> Any:
    finite = [F.col(axis).between(-1e12, 1e12) for axis in ("x", "y")]  # NaN is greater than all numbers here
    return F.col("time_us").isNotNull() & F.col("node").isNotNull() & finite[0] & finite[1]


def _intervals_of(
    rows: pa.Table, range_m: float, step_us: int, gap_us: int | None, schema: pa.Schema
) -> pa.Table:
    """INTERVALS of one piece of time."""
    if not rows.num_rows:
        return schema.empty_table()
    nodes = rows.column("node").combine_chunks().dictionary_encode()
    names = np.array(nodes.dictionary.to_pylist(), dtype=object)
    # Codes in the order of names, so that the lower code is the name that comes first.
    order = np.argsort(names)
    code = np.empty(order.size, dtype=np.int64)
    code[order] = np.arange(order.size)
    time_us, x, y = (rows.column(name).to_numpy() for name in ("time_us", "x", "y"))
    found = intervals(time_us, code[nodes.indices.to_numpy()], x, y, range_m, step_us, gap_us)
    ordered = pa.array(names[order], pa.string())
    ends = [ordered.take(found[:, each]) for each in (0, 1)]
    return pa.Table.from_arrays([*ends, pa.array(found[:, 2]), pa.array(found[:, 3])], schema=schema)
