"""Very many small runs, swept, verified and summarised as tables: the driver's work for a run, and files.

    python bench/bench_tables.py [--runs 10000 100000] [--out ROOT] [--master 'local-cluster[2,1,2048]']

For each number of runs: CPU of the driver's Python process (tasks are other processes), CPU of everything,
seconds, and files. The driver's share for one more run is the slope between two sizes: a job has fixed costs.
An embedded session's JVM is driver and executor at once and is not counted for the driver; with a cluster
(`local-cluster[...]`: executors are processes of their own) the driver's JVM is.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from cpu import measured, tree
from whence.spark.datasets import summarise_tables, sweep_tables, verify_tables
from whence.spark.session import get_session, is_local


def grid(runs: int) -> dict[str, Any]:
    """So many runs of two nodes and two messages each."""
    load = {"kind": "poisson", "interval_us": 1_000, "count": 1}
    return {
        "protocol": "vector", "nodes": 2, "record": {"level": "deliveries"}, "stop": {"duration_us": 10_000},
        "workloads": [load], "grid": {"seeds": runs},
    }  # fmt: skip


def driver_seconds(spark: Any) -> float:
    """CPU of the driver so far: this process and, where executors are other processes, its JVM."""
    if is_local(spark.sparkContext.master):
        return time.process_time()
    (jvm,) = (fields for fields in tree().values() if int(fields[1]) == os.getpid())
    return time.process_time() + sum(map(int, jvm[11:13])) / os.sysconf("SC_CLK_TCK")


def steps(spark: Any, runs: int, out: str) -> list[dict[str, Any]]:
    """One measurement for each step of the pipeline."""
    work = {
        "sweep": lambda: sweep_tables(spark, grid(runs), out),
        "verify": lambda: verify_tables(spark, out),
        "summary": lambda: summarise_tables(spark, out),
    }
    rows = []
    for step, do in work.items():
        began = driver_seconds(spark)
        totals, cpu_s, wall_s = measured(do)
        driver_s = driver_seconds(spark) - began
        assert totals.runs == runs, (step, totals)
        assert not totals.failed, (step, totals)
        rows.append({"step": step, "runs": runs, "driver_s": driver_s, "cpu_s": cpu_s, "wall_s": wall_s})
        print(f"  {rows[-1]}", file=sys.stderr)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--out", help="folder or URL; default: a temporary folder")
    parser.add_argument("--master", help="where tasks run; default: embedded")
    options = parser.parse_args()
    spark = get_session("bench tables", master=options.master)
    found: dict[int, list[dict[str, Any]]] = {}
    files: dict[int, float] = {}
    with tempfile.TemporaryDirectory(prefix="whence-bench-") as scratch:
        root = options.out or scratch
        steps(spark, 160, f"{root}/warm")
        for runs in options.runs:
            found[runs] = steps(spark, runs, f"{root}/{runs}")
            if options.out is None:
                there = [path for path in Path(root, str(runs)).rglob("*") if path.is_file()]
                files[runs] = len(there) / runs
    print(f"{'runs':>8} {'step':>8} {'driver us/run':>14} {'CPU ms/run':>11} {'s':>7}")
    for rows in found.values():
        for row in rows:
            runs = row["runs"]
            print(
                f"{runs:>8,} {row['step']:>8} {row['driver_s'] / runs * 1e6:>14.1f} "
                f"{row['cpu_s'] / runs * 1e3:>11.2f} {row['wall_s']:>7.1f}"
            )
    driver = {runs: sum(row["driver_s"] for row in rows) for runs, rows in found.items()}
    slopes = [(driver[more] - driver[less]) / (more - less) * 1e6 for less, more in pairwise(driver)]
    print(f"driver, one more run: {', '.join(f'{each:.2f} us' for each in slopes)}; files per run: {files}")
    print(json.dumps({"bench": "tables", "steps": found, "slope_us": slopes, "files_per_run": files}))


if __name__ == "__main__":
    main()
