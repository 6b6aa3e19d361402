"""Verifier: deliveries per CPU-second at 10^5, 10^6 and 10^7 deliveries, from the files to the report.

    python bench/bench_verify.py [--quick] [--nodes 64] [--spark]

CPU time of this process (all threads), best of three; compiling the kernels is shown apart, because it
happens once per machine. `--spark` measures the Spark path beside it, as wall time: its CPU is spent in other
processes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from whence.trace.columns import PACKED_SCHEMA
from whence.trace.schema import SEGMENT_EVENTS, Kind, Manifest, Part, PromisesMade
from whence.verify.report import RunReport
from whence.verify.run import verify_trace


def synthetic_rows(nodes: int, rounds: int, run: str) -> pa.Table:
    """A causal run: in each round every node broadcasts, then delivers the round in its own order."""
    rng = np.random.default_rng(1)
    names = [f"n{i:0{len(str(nodes - 1))}d}" for i in range(nodes)]
    batches = []
    for node in range(nodes):
        origin = np.empty((rounds, 1 + nodes), dtype=np.int32)
        origin[:, 0] = node
        origin[:, 1:] = np.argsort(rng.random((rounds, nodes)), axis=1)
        kind = np.full((rounds, 1 + nodes), Kind.DELIVER, dtype=np.int8)
        kind[:, 0] = Kind.BROADCAST
        number = np.repeat(np.arange(1, rounds + 1, dtype=np.int64), 1 + nodes)
        batches.append(_packed(run, names, node, kind.ravel(), origin.ravel(), number))
    return pa.Table.from_batches(batches)


def _packed(
    run: str, names: list[str], node: int, kind: np.ndarray, origin: np.ndarray, number: np.ndarray
) -> pa.RecordBatch:
    total = len(kind)
    starts = np.arange(0, total, SEGMENT_EVENTS)
    bounds = pa.array(np.append(starts, total).astype(np.int32))
    zeros = np.zeros(total, dtype=np.int32)
    lists = {
        "time_us": np.arange(total, dtype=np.int64) * 10, "kind": kind, "origin": origin, "number": number,
        "peer": zeros - 1, "total_bytes": zeros + 64, "control_bytes": zeros,
    }  # fmt: skip
    columns: dict[str, pa.Array] = {
        "run": pa.array([run] * len(starts)),
        "node": pa.array([names[node]] * len(starts)),
        "segment": pa.array(np.arange(len(starts), dtype=np.int32)),
        "first_seq": pa.array(starts.astype(np.int64)),
        "events": pa.array(np.diff(np.append(starts, total)).astype(np.int32)),
        "names": pa.array([names] * len(starts), pa.list_(pa.string())),
        **{name: pa.ListArray.from_arrays(bounds, pa.array(values)) for name, values in lists.items()},
        "detail": pa.ListArray.from_arrays(bounds, pa.nulls(total, pa.string())),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in PACKED_SCHEMA.names], schema=PACKED_SCHEMA)


def write_trace(folder: Path, nodes: int, deliveries: int) -> int:
    """Write a trace of about that many deliveries; returns how many there are."""
    rounds = max(1, deliveries // (nodes * nodes))
    table = synthetic_rows(nodes, rounds, folder.name)
    folder.mkdir(parents=True)
    path = folder / "bench-00000.parquet"
    pq.write_table(table, path, compression="zstd", row_group_size=16)
    events = rounds * nodes * (nodes + 1)
    part = Part(
        file=path.name,
        rows=table.num_rows,
        events=events,
        size_bytes=path.stat().st_size,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
    )
    manifest = Manifest(
        run=folder.name, writer="bench", protocol="synthetic", parameters={}, seed=None, software="bench",
        promises=PromisesMade(complete=True), nodes=sorted(set(table.column("node").to_pylist())),
        level="deliveries", events=events, trace_hash="", parts=[part],
    )  # fmt: skip
    (folder / "bench.manifest.json").write_bytes(msgspec.json.encode(manifest))
    return rounds * nodes * nodes


def best_of(
    repeats: int, clock: Callable[[], float], work: Callable[[], list[RunReport]]
) -> tuple[float, list[RunReport]]:
    """The shortest of several runs, in seconds, and the last result."""
    seconds, result = [], []
    for _ in range(repeats):
        start = clock()
        result = work()
        seconds.append(clock() - start)
    return min(seconds), result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="stop at 10^6 deliveries")
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--spark", action="store_true", help="measure the Spark path too")
    options = parser.parse_args()
    sizes = [10**5, 10**6] if options.quick else [10**5, 10**6, 10**7]
    rows: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="whence-bench-") as scratch:
        folders = {size: Path(scratch) / f"{size}" for size in sizes}
        counts = {size: write_trace(folders[size], options.nodes, size) for size in sizes}
        start = time.process_time()
        verify_trace(folders[10**6])  # compiles the kernels, or loads them
        print(f"{options.nodes} nodes; first call (import, compile or load kernels): "
              f"{time.process_time() - start:.1f} CPU-s")  # fmt: skip
        for size in sizes:
            seconds, reports = best_of(3, time.process_time, lambda size=size: verify_trace(folders[size]))
            assert all(report.ok for report in reports)
            row = {"deliveries": counts[size], "cpu_s": seconds, "m_per_cpu_s": counts[size] / seconds / 1e6}
            if options.spark:
                from whence.spark.session import get_session
                from whence.spark.verify import verify_folder

                spark = get_session("bench verify")
                wall_s, by_spark = best_of(
                    2, time.perf_counter, lambda size=size, spark=spark: verify_folder(spark, folders[size])
                )
                assert by_spark == reports
                row["spark_wall_s"] = wall_s
            rows.append(row)
    print_table(rows)
    print(json.dumps({"bench": "verify", "nodes": options.nodes, "rows": rows, "growth": growth(rows)}))


def growth(rows: list[dict[str, float]]) -> list[float]:
    """CPU time per delivery, relative to the row before: 1.0 is linear."""
    cost = [row["cpu_s"] / row["deliveries"] for row in rows]
    return [round(after / before, 3) for before, after in pairwise(cost)]


def print_table(rows: list[dict[str, float]]) -> None:
    print(f"{'deliveries':>12} {'CPU s':>8} {'M/CPU-s':>8} {'cost vs row above':>18} {'Spark wall s':>13}")
    for row, ratio in zip(rows, [None, *growth(rows)], strict=True):
        ratio_text = "" if ratio is None else f"{ratio:.2f}x"
        spark_text = f"{row['spark_wall_s']:.1f}" if "spark_wall_s" in row else ""
        print(
            f"{row['deliveries']:>12,.0f} {row['cpu_s']:>8.3f} {row['m_per_cpu_s']:>8.1f} {ratio_text:>18} "
            f"{spark_text:>13}"
        )


if __name__ == "__main__":
    main()
