"""What Spark costs on one machine, side by side with the same work in one process.

    python bench/bench_spark.py [--quick]

1. Verification: `verify_folder` on embedded Spark against `verify_trace` in process, same trace.
2. Sweep: CPU per run beyond the simulation itself, tiny runs sharing tasks and one task per run.
3. Measures: `summary` on Spark, for scale.

CPU-seconds are those of this process and all its descendants (JVM, Python workers), read from /proc, so Linux
only; everything is warmed up first, and the start of the JVM is shown apart. Ratios are printed as JSON last.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from whence.sim.run import simulate_to
from whence.sim.scenario import from_dict, run_id
from whence.spark import sweep as sweeping
from whence.spark.metrics.summary import summary
from whence.spark.session import get_session
from whence.spark.tables import flatten, read_segments
from whence.spark.verify import verify_folder
from whence.trace.schema import Kind, Level, PromisesMade
from whence.trace.writer import TraceWriter
from whence.verify.run import verify_trace

RUNS, NODES = 8, 64


def tree_cpu_seconds() -> float:
    """User and system time of this process and everything below it."""
    parents, ticks = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            parents[int(entry.name)] = int(fields[1])
            ticks[int(entry.name)] = sum(map(int, fields[11:15]))
    total = 0
    for process, spent in ticks.items():
        above = process
        while above not in (0, os.getpid()):
            above = parents.get(above, 0)
        total += spent if above else 0
    return total / os.sysconf("SC_CLK_TCK")


def measured(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """What `work` returns, its CPU-seconds and its seconds."""
    cpu, wall = tree_cpu_seconds(), time.perf_counter()
    result = work()
    return result, tree_cpu_seconds() - cpu, time.perf_counter() - wall


def record(folder: Path, run: str, rounds: int) -> int:
    """A correct run: in each round every node broadcasts, and all deliver everything in one order."""
    names = [f"n{at:02d}" for at in range(NODES)]
    promises = PromisesMade(complete=True)
    about = {"run": run, "writer": "bench", "protocol": "made up", "parameters": {}, "promises": promises}
    with TraceWriter(folder, **about, seed=1, nodes=names, level=Level.ALL) as writer:
        event, now_us = writer.event, 0
        for number in range(1, rounds + 1):
            for origin in names:
                now_us += 10
                event(origin, now_us, Kind.BROADCAST, origin, number, None, 64)
                for name in names:
                    if name != origin:
                        event(name, now_us + 5, Kind.RECEIVE, origin, number, origin, 80, 16)
                    event(name, now_us + 5, Kind.DELIVER, origin, number, None, 64)
    return writer.close().events


def tiny(seed: int) -> Any:
    """A run of a few milliseconds."""
    return from_dict(
        {
            "nodes": 4,
            "protocol": "vector",
            "seed": seed,
            "stop": {"duration_us": 50_000},
            "workloads": [{"kind": "poisson", "interval_us": 5_000}],
        }
    )


def bench_verify(spark: Any, folder: Path, rounds: int) -> tuple[list[list[Any]], dict[str, float]]:
    events = sum(record(folder / f"run=r{at}", f"r{at}", rounds) for at in range(RUNS))
    warm = folder.parent / "warm"
    record(warm, "warm", 10)
    verify_trace(warm)
    verify_folder(spark, warm)
    ours, ours_cpu, ours_wall = measured(lambda: verify_trace(folder))
    theirs, spark_cpu, spark_wall = measured(lambda: verify_folder(spark, folder))
    assert ours == theirs, "the two must give equal reports"
    assert all(report.ok for report in ours)
    part = ours[0].events  # the measures of one run are enough to see what they cost
    table = flatten(read_segments(spark, folder, [ours[0].run]))
    _, sum_cpu, sum_wall = measured(lambda: summary(table).collect())
    rows = [
        ["verify, in process", events, ours_cpu, ours_wall, events / ours_cpu / 1e6],
        ["verify, Spark", events, spark_cpu, spark_wall, events / spark_cpu / 1e6],
        ["summary, Spark (one run)", part, sum_cpu, sum_wall, part / sum_cpu / 1e6],
    ]
    return rows, {"verify_spark_to_in_process_cpu": spark_cpu / ours_cpu}


def bench_sweep(spark: Any, folder: Path, count: int) -> tuple[list[list[Any]], dict[str, float]]:
    grid = [tiny(seed) for seed in range(count)]
    sweeping.sweep(spark, [tiny(seed) for seed in range(1000, 1008)], folder / "warm")

    def direct() -> None:
        for each in grid:
            simulate_to(each, folder / "direct" / f"run={run_id(each)}")

    direct()
    shutil.rmtree(folder / "direct")
    _, direct_cpu, direct_wall = measured(direct)
    _, shared_cpu, shared_wall = measured(lambda: sweeping.sweep(spark, grid, folder / "shared"))
    sweeping.tasks_of = lambda seconds, cores: [[at] for at in range(len(seconds))]
    _, single_cpu, single_wall = measured(lambda: sweeping.sweep(spark, grid, folder / "single"))
    rows = [
        ["simulate, in process", count, direct_cpu, direct_wall, 1e3 * direct_cpu / count],
        ["sweep, tiny runs share tasks", count, shared_cpu, shared_wall, 1e3 * shared_cpu / count],
        ["sweep, one task per run", count, single_cpu, single_wall, 1e3 * single_cpu / count],
    ]
    return rows, {
        "sweep_overhead_ms_per_run_shared": 1e3 * (shared_cpu - direct_cpu) / count,
        "sweep_overhead_ms_per_run_single": 1e3 * (single_cpu - direct_cpu) / count,
    }


def show(headings: list[str], rows: list[list[Any]]) -> None:
    print(f"{headings[0]:<30}" + "".join(f"{heading:>16}" for heading in headings[1:]))
    for name, count, *figures in rows:
        print(f"{name:<30}{count:>16,}" + "".join(f"{figure:>16.2f}" for figure in figures))
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    quick = parser.parse_args().quick
    folder = Path(tempfile.mkdtemp(prefix="whence-bench-"))
    try:
        spark, start_cpu, start_wall = measured(lambda: get_session("bench"))
        print(f"Spark start: {start_cpu:.1f} CPU-seconds, {start_wall:.1f} s, {os.cpu_count()} cores\n")
        rows, ratios = bench_verify(spark, folder / "verify", 15 if quick else 150)
        show(["", "events", "CPU s", "s", "M events/CPU s"], rows)
        more, others = bench_sweep(spark, folder / "sweep", 40 if quick else 200)
        show(["", "runs", "CPU s", "s", "CPU ms/run"], more)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps({"bench": "spark", "start_cpu_s": start_cpu} | ratios | others))


if __name__ == "__main__":
    main()
