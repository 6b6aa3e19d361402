"""Positions to contacts: how the cost grows, on Spark and in one process, side by side.

    python bench/bench_contacts.py [--quick]

1,000 nodes walk about in a square of 5 km, one position a second, range 50 m: 10^5, 10^6, 10^7 positions. One
table, one result, four ways: `whence.spark.contacts` (pieces of time and a kernel) with tasks that read the
file themselves and with rows that are shuffled, the self-join of DataFrames that the tests use as an oracle
(at 10^5 only), and `whence.mobility.positions` in this process.
DuckDB and Polars join the table too where they are installed. CPU-seconds are those of this process and all
its descendants (JVM, Python workers), from /proc, so Linux only. Everything is warmed up first. Ratios are
printed as JSON last.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from cpu import measured
from whence.mobility.positions import load_positions, positions_plan, save_positions
from whence.spark.contacts import (
    collect_plan,
    contact_intervals,
    intervals_by_join,
    intervals_of_files,
    read_positions,
)
from whence.spark.session import get_session

NODES, SIDE_M, RANGE_M, STEP_US = 1_000, 5_000.0, 50.0, 1_000_000
JOIN_ROWS_MAX = 100_000


def make(folder: Path, rows: int) -> Path:
    """Walks that turn a little every second and are thrown back by the walls."""
    steps = rows // NODES
    draw = np.random.default_rng(7)
    place = draw.uniform(0, SIDE_M, (2, NODES))
    turn = draw.uniform(0, 2 * np.pi, NODES)
    tracks = np.empty((2, steps, NODES))
    for step in range(steps):
        turn += draw.normal(0, 0.2, NODES)
        place += 1.4 * np.stack([np.cos(turn), np.sin(turn)])
        place = np.abs(place)
        place = np.where(place > SIDE_M, 2 * SIDE_M - place, place)
        tracks[:, step] = place
    columns = {
        "time_us": np.repeat(np.arange(steps, dtype=np.int64) * STEP_US, NODES),
        "node": np.tile(np.arange(NODES, dtype=np.int64), steps),
        "x": tracks[0].ravel(),
        "y": tracks[1].ravel(),
    }
    path = folder / f"positions-{rows}.parquet"
    save_positions(tuple(f"n{at:04d}" for at in range(NODES)), columns, path)
    return path


def ways(spark: Any, path: Path, rows: int) -> dict[str, Callable[[], Any]]:
    def by_spark() -> Any:
        return collect_plan(intervals_of_files(spark, path, RANGE_M, step_us=STEP_US))

    def by_shuffle() -> Any:
        return collect_plan(contact_intervals(read_positions(spark, path), RANGE_M, step_us=STEP_US))

    def by_join() -> Any:
        return collect_plan(intervals_by_join(read_positions(spark, path), RANGE_M, step_us=STEP_US))

    def here() -> Any:
        return positions_plan(load_positions(path), RANGE_M, step_us=STEP_US)

    found: dict[str, Callable[[], Any]] = {
        "Spark, kernel": by_spark,
        "Spark, shuffled": by_shuffle,
        "in process": here,
    }
    if rows <= JOIN_ROWS_MAX:
        found["Spark, self-join"] = by_join
    if find_spec("duckdb"):
        found["DuckDB, pairs only"] = lambda: duck_pairs(path)
    if find_spec("polars"):
        found["Polars, pairs only"] = lambda: polars_pairs(path)
    return found


def duck_pairs(path: Path) -> int:
    """The pairs in range of all steps, counted; joining them into contacts would come on top."""
    import duckdb

    query = f"""
        with p as (select *, floor(x / {RANGE_M})::bigint cx, floor(y / {RANGE_M})::bigint cy
                   from read_parquet('{path}')),
             q as (select time_us, node, x, y, cx + i cx, cy + j cy
                   from p, (values (-1), (0), (1)) a(i), (values (-1), (0), (1)) b(j))
        select count(*) from p join q using (time_us, cx, cy)
        where p.node < q.node and (p.x - q.x) ** 2 + (p.y - q.y) ** 2 <= {RANGE_M**2}"""
    return int(duckdb.sql(query).fetchall()[0][0])


def polars_pairs(path: Path) -> int:
    """As `duck_pairs`."""
    import polars as pl

    cells = pl.scan_parquet(path).with_columns(
        (pl.col("x") / RANGE_M).floor().cast(pl.Int64).alias("cx"),
        (pl.col("y") / RANGE_M).floor().cast(pl.Int64).alias("cy"),
    )
    shifts = [cells.with_columns(pl.col("cx") + i, pl.col("cy") + j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
    met = cells.join(pl.concat(shifts), on=["time_us", "cx", "cy"])
    far = (pl.col("x") - pl.col("x_right")) ** 2 + (pl.col("y") - pl.col("y_right")) ** 2
    near = met.filter((pl.col("node") < pl.col("node_right")) & (far <= RANGE_M**2))
    return int(near.select(pl.len()).collect().item())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="leave out 10^7")
    sizes = [100_000, 1_000_000] + ([] if parser.parse_args().quick else [10_000_000])
    folder = Path(tempfile.mkdtemp(prefix="whence-bench-"))
    figures: dict[str, dict[int, float]] = {}
    try:
        spark = get_session("bench contacts")
        warm = make(folder, 20_000)
        for work in ways(spark, warm, 20_000).values():
            work()
        print(f"{'':<22}{'positions':>12}{'contacts':>10}{'CPU s':>9}{'s':>8}{'M rows/CPU s':>14}")
        for rows in sizes:
            path = make(folder, rows)
            plans = {}
            for name, work in ways(spark, path, rows).items():
                plan, cpu, wall = measured(work)
                contacts = len(plan.contacts) if hasattr(plan, "contacts") else plan
                if hasattr(plan, "sha256"):
                    plans[name] = plan.sha256
                figures.setdefault(name, {})[rows] = cpu
                print(f"{name:<22}{rows:>12,}{contacts:>10,}{cpu:>9.2f}{wall:>8.2f}{rows / cpu / 1e6:>14.2f}")
            assert len(set(plans.values())) == 1, "all ways must give the same plan"
            time.sleep(0.2)  # let workers that end be counted as ended
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    largest = sizes[-1]
    kernel, here = figures["Spark, kernel"], figures["in process"]
    ratios = {
        "rows": largest,
        "spark_cpu_s": kernel[largest],
        "spark_to_in_process_cpu": kernel[largest] / here[largest],
        "self_join_to_kernel_cpu": figures["Spark, self-join"][JOIN_ROWS_MAX] / kernel[JOIN_ROWS_MAX],
        "growth_last_tenfold": kernel[largest] / kernel[sizes[-2]],
    }
    print(json.dumps({"bench": "contacts"} | ratios))


if __name__ == "__main__":
    main()
