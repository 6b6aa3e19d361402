"""What Spark costs on one machine, side by side with the same work in one process.

    python bench/bench_spark.py [--quick]

1. Measures: `summary` of a run whose messages wait: the first query of the session, then the same again; of
   the packed trace and of its flat view.
2. Verification: `verify_folder` on embedded Spark against `verify_trace` in process, same trace.
3. Sweep: CPU per run beyond the simulation itself, tiny runs sharing tasks and one task per run.

CPU-seconds are those of this process and all its descendants (JVM, Python workers), read from /proc, so Linux
only; verification and sweeps are warmed up first, and the start of the JVM is shown apart. Ratios are printed
as JSON last.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

from cpu import measured, show
from whence.lab.run import run
from whence.sim.files import from_dict, run_id
from whence.spark import sweep as sweeping
from whence.spark.metrics.summary import summary
from whence.spark.session import get_session
from whence.spark.tables import flatten, read_segments
from whence.spark.verify import verify_folder
from whence.trace.schema import Kind, Level, PromisesMade
from whence.trace.writer import TraceWriter
from whence.verify.run import verify_trace

RUNS, NODES = 8, 64


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


def record_waiting(folder: Path, run: str, rounds: int) -> int:
    """A run over links of random delay: what overtakes is held until what its sender sent before has come."""
    names = [f"n{at:02d}" for at in range(NODES)]
    rng = random.Random(1)
    sent = [(20_000 * at + rng.randrange(20_000), name, at + 1) for at in range(rounds) for name in names]
    about = {
        "run": run,
        "writer": "bench",
        "protocol": "made up",
        "parameters": {},
        "promises": PromisesMade(),
    }
    with TraceWriter(folder, **about, seed=1, nodes=names, level=Level.ALL) as writer:
        event = writer.event
        for name in names:
            held: dict[str, set[int]] = {origin: set() for origin in names}
            following = dict.fromkeys(names, 1)
            delays_us = (0 if origin == name else rng.randrange(100, 60_000) for _, origin, _ in sent)
            arrivals = ((at + delay, *rest) for (at, *rest), delay in zip(sent, delays_us, strict=True))
            for now_us, origin, number in sorted(arrivals):
                if origin == name:
                    event(name, now_us, Kind.BROADCAST, origin, number, None, 64)
                else:
                    event(name, now_us, Kind.RECEIVE, origin, number, origin, 80, 16)
                held[origin].add(number)
                while following[origin] in held[origin]:
                    event(name, now_us, Kind.DELIVER, origin, following[origin], None, 64)
                    following[origin] += 1
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


def bench_summary(spark: Any, folder: Path, rounds: int) -> tuple[list[list[Any]], dict[str, float]]:
    events = record_waiting(folder, "w", rounds)
    segments = read_segments(spark, folder)
    flat = flatten(segments)
    expected, *first = measured(lambda: summary(segments).collect())
    rows = [["summary, first query", events, *first, events / first[0] / 1e6]]
    per_million = {}
    for name, table in (("summary", segments), ("summary, flat view", flat)):
        summary(table).collect()
        found, *spent = measured(lambda table=table: [summary(table).collect() for _ in range(3)])
        assert all(each == expected for each in found), "both must give equal figures"
        cpu, wall = (figure / 3 for figure in spent)
        rows.append([f"{name}, again", events, cpu, wall, events / cpu / 1e6])
        per_million[name] = 1e6 * cpu / events
    return rows, {
        "summary_cpu_s_per_million_events": per_million["summary"],
        "summary_flat_to_packed_cpu": per_million["summary, flat view"] / per_million["summary"],
        "summary_first_to_again_cpu": first[0] / (per_million["summary"] * events / 1e6),
    }


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
    rows = [
        ["verify, in process", events, ours_cpu, ours_wall, events / ours_cpu / 1e6],
        ["verify, Spark", events, spark_cpu, spark_wall, events / spark_cpu / 1e6],
    ]
    return rows, {"verify_spark_to_in_process_cpu": spark_cpu / ours_cpu}


def bench_sweep(spark: Any, folder: Path, count: int) -> tuple[list[list[Any]], dict[str, float]]:
    grid = [tiny(seed) for seed in range(count)]
    sweeping.sweep(spark, [tiny(seed) for seed in range(1000, 1008)], folder / "warm")

    def direct() -> None:
        for each in grid:
            run(each, folder / "direct" / f"run={run_id(each)}", kernel="never")

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    quick = parser.parse_args().quick
    folder = Path(tempfile.mkdtemp(prefix="whence-bench-"))
    try:
        spark, start_cpu, start_wall = measured(lambda: get_session("bench"))
        print(f"Spark start: {start_cpu:.1f} CPU-seconds, {start_wall:.1f} s, {os.cpu_count()} cores\n")
        rounds = 15 if quick else 150
        rows, ratios = bench_summary(spark, folder / "summary", rounds)
        verified, verify_ratios = bench_verify(spark, folder / "verify", rounds)
        show(["", "events", "CPU s", "s", "M events/CPU s"], rows + verified)
        more, others = bench_sweep(spark, folder / "sweep", 40 if quick else 200)
        show(["", "runs", "CPU s", "s", "CPU ms/run"], more)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps({"bench": "spark", "start_cpu_s": start_cpu} | ratios | verify_ratios | others))


if __name__ == "__main__":
    main()
