"""The verifier's aims, side by side: rates against an earlier checkout, wide runs, shares of one run, 10^9.

    python bench/bench_scale.py [--against CHECKOUT] [--rounds 3] [--keep FOLDER]
                                [--only rates,wide,shares,blocks,huge] [--shares 16] [--deliveries 100000000]

`rates`: 10^7 deliveries of 256 nodes, lockstep and asynchronous: files of version 1 and 2 in process (hashing
included), those of version 2 through Spark, and files of version 1 by the code of CHECKOUT (a folder with
`src` and `bench`; the code before the certificate is commit e955b7e^). Each measurement is a process of its
own; rounds alternate, the best counts, and ratios are medians of the rounds'. `wide`: 50,000 nodes of which
20 speak against the 256 nodes. `shares`: one run of 1,024 nodes through Spark, as one share and as many: CPU
of all tasks, and of the longest of both phases (the critical path), by the tasks' own clocks. `blocks`: a run
that cannot be proved clean (a member delivers nothing) through Spark, in one task and in blocks of columns:
CPU of all. `huge`: 10^9 deliveries in process with 12 GB allowed; the code before took 535 CPU-s.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from bench_verify import HUGE, HUGE_BYTES, WIDE, write_trace
from cpu import measured, tree_peak_mb
from whence.cli.verify import ENVIRONMENT

HERE = Path(__file__).resolve().parent.parent
SIZE, NODES = 10**7, 256
PARTS = ("rates", "wide", "shares", "blocks", "huge")
BLOCKS = 8


def trace_at(folder: Path, size: int, nodes: int, order: str, form: str) -> tuple[Path, int]:
    """The folder of a trace, written if it is not there, and how many deliveries it has."""
    made = folder / f"{size}-{nodes}-{order.replace(' ', '-')}-{form}"
    if not made.exists():
        write_trace(made, nodes, size, order, form)
    events = json.loads((made / "bench.manifest.json").read_bytes())["events"]
    return made, events - events // (nodes + 1)  # for a message every node has an event, its origin one more


def cpu_of(tree: Path, path: str, trace: Path, warm: Path) -> float:
    """CPU seconds of one judgement by the code of a checkout, after a warm-up."""
    command = [
        sys.executable,
        str(tree / "bench" / "bench_verify.py"),
        "--measure",
        path,
        str(trace),
        str(warm),
    ]
    environment = {**ENVIRONMENT, **os.environ, "PYTHONPATH": str(tree / "src")}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment, cwd=tree)
    return float(json.loads(done.stdout.splitlines()[-1])["cpu_s"])


def rates(folder: Path, against: Path | None, rounds: int) -> dict[str, Any]:
    """M deliveries per CPU-s of each way, and the ratio to the earlier code."""
    ways = [(HERE, "in-process", "packed"), (HERE, "in-process", "flat"), (HERE, "spark", "flat")]
    if against is not None:
        ways.insert(0, (against.resolve(), "in-process", "packed"))
    warm = {form: trace_at(folder, 300_000, 64, "lockstep", form)[0] for form in ("packed", "flat")}
    found: dict[str, Any] = {}
    for order in ("lockstep", "asynchronous"):
        traces = {form: trace_at(folder, SIZE, NODES, order, form) for form in warm}
        spent: list[list[float]] = []
        for _ in range(rounds):
            spent.append([cpu_of(tree, path, traces[form][0], warm[form]) for tree, path, form in ways])
            print(f"  {order}: {spent[-1]}", file=sys.stderr)
        for at, (tree, path, form) in enumerate(ways):
            name = f"{order}, {path}, version {1 if form == 'packed' else 2}"
            rate = traces[form][1] / min(each[at] for each in spent) / 1e6
            ratio = statistics.median(each[0] / each[at] for each in spent) if against else None
            found[f"{name}{'' if tree == HERE else ', before'}"] = {"m_per_cpu_s": rate, "ratio": ratio}
    for name, row in found.items():
        ratio = "" if row["ratio"] is None else f"{row['ratio']:8.2f}x of the code before on version 1"
        print(f"{name:48}{row['m_per_cpu_s']:8.1f} M per CPU-s{ratio}")
    return found


def wide(folder: Path, rounds: int) -> dict[str, Any]:
    """50,000 nodes against 256, per delivery."""
    warm, _ = trace_at(folder, 300_000, 64, "lockstep", "flat")
    traces = [trace_at(folder, *case, "flat") for case in (WIDE, (SIZE, NODES, "lockstep"))]
    spent = [[cpu_of(HERE, "in-process", trace, warm) for trace, _ in traces] for _ in range(rounds)]
    ns = [min(each[at] for each in spent) / deliveries * 1e9 for at, (_, deliveries) in enumerate(traces)]
    ratio = statistics.median(a / b * traces[1][1] / traces[0][1] for a, b in spent)
    print(f"{WIDE[1]:,} nodes {ns[0]:.1f} ns per delivery, {NODES} nodes {ns[1]:.1f}: {ratio:.2f}x")
    return {"wide_ns": ns[0], "narrow_ns": ns[1], "ratio": ratio}


def shares(folder: Path, deliveries: int, count: int) -> dict[str, Any]:
    """The certificate of one run through Spark, in one share and in many."""
    from whence.spark.session import get_session
    from whence.spark.verify import verify_folder

    trace, deliveries = trace_at(folder, deliveries, 1024, "lockstep", "flat")
    spark = get_session("bench scale")
    by_spark(spark, trace_at(folder, 300_000, 64, "lockstep", "flat")[0], 2)
    found = {}
    for each in (1, count):
        total_s, critical_s = by_spark(spark, trace, each)
        found[str(each)] = {"tasks_cpu_s": total_s, "critical_s": critical_s}
    _, cpu_s, wall_s = measured(lambda: verify_folder(spark, trace, blocks=count))
    one, many = found["1"], found[str(count)]
    print(
        f"shares of {deliveries:,} deliveries through Spark: 1 task {one['tasks_cpu_s']:.2f} CPU-s; {count} "
        f"tasks {many['tasks_cpu_s']:.2f} ({many['tasks_cpu_s'] / one['tasks_cpu_s']:.2f}x), critical path "
        f"{many['critical_s']:.2f} (1/{one['critical_s'] / many['critical_s']:.1f}); hash, JVM and all "
        f"{cpu_s:.2f} CPU-s ({deliveries / cpu_s / 1e6:.1f} M per CPU-s), {wall_s:.1f} s"
    )
    return found | {"all_cpu_s": cpu_s, "wall_s": wall_s}


def by_spark(spark: Any, folder: Path, count: int) -> tuple[float, float]:
    """CPU of the tasks of both phases, and of the longest of each together."""
    from whence.trace.reader import open_trace
    from whence.verify.kernels import compiled
    from whence.verify.shares import Cut, Share, agreed, count_share, follow_share

    trace = open_trace(folder, hashes=False, dense=False)
    (run,) = trace.runs
    cut = Cut.of(trace.nodes(run), count)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)

        def first(share: int) -> Share | None:
            kernels = compiled()
            return kernels and count_share(kernels, trace, run, cut, share, scratch, 1 << 40)

        counted, first_s = in_tasks(spark, count, first)
        found = [msgspec.json.decode(each, type=Share | None) for each in counted]
        assert agreed(found, trace.event_count) is not None
        whole = [each for each in found if each is not None]

        def second(share: int) -> bool:
            kernels = compiled()
            return kernels is not None and follow_share(kernels, whole, share, scratch)

        followed, second_s = in_tasks(spark, count, second)
        assert followed == [b"true"] * count
    return sum(first_s) + sum(second_s), max(first_s) + max(second_s)


def in_tasks(spark: Any, count: int, work: Any) -> tuple[list[bytes], list[float]]:
    """What each task returns, and its CPU seconds; loading the kernels is not counted."""

    def perform(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from whence.verify.kernels import compiled

        compiled()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                began = time.process_time()
                result = msgspec.json.encode(work(number))
                spent = time.process_time() - began
                yield pa.RecordBatch.from_pydict({"at": [number], "result": [result], "cpu_s": [spent]})

    partitions = spark.range(0, count, 1, numPartitions=count)
    rows = partitions.mapInArrow(perform, "at bigint, result binary, cpu_s double").collect()
    rows.sort(key=lambda row: row["at"])
    return [bytes(row["result"]) for row in rows], [row["cpu_s"] for row in rows]


def blocks(folder: Path) -> dict[str, Any]:
    """A run that is not clean, in one task and in blocks."""
    from whence.spark.session import get_session
    from whence.spark.verify import verify_folder

    clean, deliveries = trace_at(folder, SIZE, NODES, "asynchronous", "flat")
    spark = get_session("bench scale")
    found = {}
    with tempfile.TemporaryDirectory(dir=folder) as name:
        shutil.copytree(clean, name, copy_function=os.link, dirs_exist_ok=True)
        path = Path(name, "bench.manifest.json")
        about = json.loads(path.read_bytes())
        about["nodes"].append("silent")
        path.unlink()  # it is the clean run's, too
        path.write_text(json.dumps(about))
        for count in (1, 1, BLOCKS, BLOCKS):  # the second time counts: the first one loads what it needs
            reports, cpu_s, wall_s = measured(lambda: verify_folder(spark, name, blocks=count))  # noqa: B023
            assert reports[0].counts.missing == deliveries // NODES
            found[str(count)] = {"cpu_s": cpu_s, "wall_s": wall_s}
    one, many = found["1"]["cpu_s"], found[str(BLOCKS)]["cpu_s"]
    print(f"not clean, {deliveries:,} deliveries: 1 task {one:.2f} CPU-s, {BLOCKS} blocks {many:.2f} CPU-s")
    return found


def huge(folder: Path) -> dict[str, Any]:
    """10^9 deliveries in process."""
    from whence.verify.run import verify_trace

    verify_trace(trace_at(folder, 300_000, 64, "lockstep", "flat")[0])
    trace, deliveries = trace_at(folder, *HUGE, "flat")
    reports, cpu_s, wall_s = measured(lambda: verify_trace(trace, memory_bytes=HUGE_BYTES))
    assert reports[0].ok
    assert reports[0].deliveries == deliveries
    peak_mb = tree_peak_mb()
    print(
        f"{deliveries:,} deliveries: {cpu_s:.1f} CPU-s ({deliveries / cpu_s / 1e6:.1f} M per CPU-s; before: "
        f"535 CPU-s), {wall_s:.0f} s, peak {peak_mb:,} MB"
    )
    return {"deliveries": deliveries, "cpu_s": cpu_s, "wall_s": wall_s, "peak_mb": peak_mb}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--against", type=Path, help="an earlier checkout")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="rates,wide,shares", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--shares", type=int, default=16)
    parser.add_argument("--deliveries", type=int, default=10**8, help="of the run that is shared out")
    parser.add_argument("--keep", type=Path, help="write the traces here, use those that are there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="whence-bench-") as scratch:
        folder = (options.keep or Path(scratch)).resolve()
        parts = {
            "rates": lambda: rates(folder, options.against, options.rounds),
            "wide": lambda: wide(folder, options.rounds),
            "shares": lambda: shares(folder, options.deliveries, options.shares),
            "blocks": lambda: blocks(folder),
            "huge": lambda: huge(folder),
        }
        found = {name: parts[name]() for name in options.only.split(",")}
    print(json.dumps({"bench": "scale", **found}))


if __name__ == "__main__":
    main()
