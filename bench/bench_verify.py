"""Verifier: one run of 10^6, 10^7 and 10^8 deliveries (64, 256 and 1024 nodes), from the files to the report.

    python bench/bench_verify.py [--quick] [--form flat|packed]
                                 [--only in-process,bounded,spark,blocks,duckdb] [--keep FOLDER]

Each measurement is a process of its own: CPU seconds of it and all its children after a warm-up on a small
trace (compiling the kernels and starting the JVM are not counted), and the peak memory of them all. Beside
the in-process path: the bounded one (given a fifth of what the events take), Spark as it decides itself,
Spark with as many tasks as cores, and DuckDB. The DuckDB version checks less: duplicates, created, missing,
and order per origin (fifo); causal order across origins has no affordable form in SQL. It stops at 10^7.
A correct run is proved clean without the bounded path, which is therefore asked directly. `--form packed`
writes files of version 1; `bench_scale.py` has the aims, wide runs, shares and 10^9. The traces are correct
runs in the layout of the trace writer, nodes side by side: lockstep (in each round every node broadcasts,
then delivers the round) and asynchronous (some 100 messages in flight).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cpu import measured, tree_peak_mb
from whence.cli.verify import ENVIRONMENT
from whence.trace.columns import CODED_SCHEMA, PACKED_SCHEMA
from whence.trace.reader import open_trace
from whence.trace.schema import SEGMENT_EVENTS, Kind, Manifest, Part, PromisesMade
from whence.trace.writer import PARQUET_OPTIONS
from whence.verify.bounded import Bounded, MemoryBudget
from whence.verify.report import WITNESS_MAX
from whence.verify.run import EVENT_BYTES, report_on, verify_trace
from whence.verify.segments import TraceGroups

GROUP_ROWS = 32
# How files of version 1 were written.
PACKED_OPTIONS: dict[str, Any] = {
    "compression": "zstd",
    "use_dictionary": ["run", "node", "names.list.element", "kind.list.element", "detail.list.element"],
}
PERMUTATIONS = 64  # a node's order of delivery is one of these, rotated at random
# Deliveries, nodes, order.
SIZES = (
    (10**6, 64, "lockstep"),
    (10**7, 256, "lockstep"),
    (10**7, 256, "asynchronous"),
    (10**8, 1024, "lockstep"),
)
HUGE = (10**9, 1024, "lockstep")
WIDE = (10**7, 50_000, "few speak")
SPEAKERS = 20
HUGE_BYTES = 12 << 30
DUCKDB_MAX = 2 * 10**7
PATHS = ("in-process", "bounded", "spark", "blocks", "duckdb")


class Group(NamedTuple):
    """The next events of some nodes, equally many of each: arrays over nodes and events."""

    nodes: Any
    segment: int
    first_seq: int
    kind: Any
    origin: Any
    number: Any


def lockstep(nodes: int, deliveries: int) -> Iterator[Group]:
    """In each round every node broadcasts, then delivers the round in an order of its own."""
    rng = np.random.default_rng(1)
    orders = np.array([rng.permutation(nodes) for _ in range(PERMUTATIONS)], dtype=np.int32)
    orders = np.concatenate([orders, orders], axis=1).ravel()
    rounds = max(1, deliveries // (nodes * nodes))
    per_row = max(1, SEGMENT_EVENTS // (nodes + 1))
    for segment, start in enumerate(range(0, rounds, per_row)):
        numbers = np.arange(start + 1, min(start + per_row, rounds) + 1)
        kind = np.full((len(numbers), 1 + nodes), Kind.DELIVER, dtype=np.int8)
        kind[:, 0] = Kind.BROADCAST
        for low in range(0, nodes, GROUP_ROWS):
            some = np.arange(low, min(low + GROUP_ROWS, nodes))
            begin = rng.integers(0, PERMUTATIONS, (len(some), len(numbers))) * 2 * nodes
            begin += rng.integers(0, nodes, begin.shape)
            origin = np.empty((*begin.shape, 1 + nodes), dtype=np.int32)
            origin[:, :, 0] = some[:, None]
            origin[:, :, 1:] = orders[begin[:, :, None] + np.arange(nodes)]
            one = np.repeat(numbers, nodes + 1)
            yield Group(
                some, segment, start * (nodes + 1), np.tile(kind.ravel(), (len(some), 1)),
                origin.reshape(len(some), -1), np.tile(one, (len(some), 1)),
            )  # fmt: skip


def asynchronous(nodes: int, deliveries: int, spread: int = 50) -> Iterator[Group]:
    """Nodes broadcast in turn, with some 2 * `spread` messages in flight, and deliver in orders of their own.

    Message k gets the key k + u at each node, u drawn up to `spread`, and is delivered in the order of keys;
    its origin broadcasts it after all with keys below k - 2 * `spread`. So its past comes first everywhere.
    """
    messages = max(1, deliveries // (nodes * nodes)) * nodes
    number = np.arange(messages) // nodes + 1
    kinds, origins, numbers = [], [], []
    for node in range(nodes):
        rng = np.random.default_rng(node)
        keys = np.arange(messages) + rng.random(messages) * spread
        order = np.argsort(keys)
        own = np.arange(node, messages, nodes)
        before = np.searchsorted(keys[order], own - 2 * spread)
        kinds.append(np.insert(np.full(messages, Kind.DELIVER, dtype=np.int8), before, Kind.BROADCAST))
        origins.append(np.insert((order % nodes).astype(np.int32), before, node))
        numbers.append(np.insert(number[order].astype(np.int32), before, number[own]))
    for segment, first_seq in enumerate(range(0, len(kinds[0]), SEGMENT_EVENTS)):
        for low in range(0, nodes, GROUP_ROWS):
            some = np.arange(low, min(low + GROUP_ROWS, nodes))
            kind, origin, which = (
                np.stack([each[at][first_seq : first_seq + SEGMENT_EVENTS] for at in some])
                for each in (kinds, origins, numbers)
            )
            yield Group(some, segment, first_seq, kind, origin, which.astype(np.int64))


def few_speak(nodes: int, deliveries: int) -> Iterator[Group]:
    """Rounds of a few speakers among very many nodes; the writer's buffers hold a few events of each."""
    rounds = max(1, deliveries // (nodes * SPEAKERS))
    speakers = np.arange(SPEAKERS) * (nodes // SPEAKERS)
    speaks = np.zeros(nodes, dtype=bool)
    speaks[speakers] = True
    reached = np.zeros(nodes, dtype=np.int64)
    for segment in range(rounds):
        for some in (speakers, np.flatnonzero(~speaks)):
            own = int(speaks[some[0]])
            kind = np.full((len(some), own + SPEAKERS), Kind.DELIVER, dtype=np.int8)
            origin = np.tile(np.concatenate([np.zeros(own, np.int64), speakers]), (len(some), 1))
            if own:
                kind[:, 0], origin[:, 0] = Kind.BROADCAST, some
            for low in range(0, len(some), 4096):
                part = slice(low, low + 4096)
                number = np.full(kind[part].shape, segment + 1, dtype=np.int64)
                yield Group(some[part], segment, int(reached[some[0]]), kind[part], origin[part], number)
            reached[some] += own + SPEAKERS


ORDERS = {"lockstep": lockstep, "asynchronous": asynchronous, "few speak": few_speak}


def write_trace(
    folder: Path, nodes: int, deliveries: int, order: str = "lockstep", form: str = "flat"
) -> int:
    """Write a causal run of about that many deliveries, a little at a time; returns how many there are."""
    names = [f"n{at:0{len(str(nodes - 1))}d}" for at in range(nodes)]
    folder.mkdir(parents=True)
    path = folder / "bench-00000.parquet"
    rows = events = broadcasts = 0
    schema, options = (CODED_SCHEMA, PARQUET_OPTIONS) if form == "flat" else (PACKED_SCHEMA, PACKED_OPTIONS)
    with pq.ParquetWriter(path, schema, **options) as writer:
        for group in ORDERS[order](nodes, deliveries):
            batch = (_flat if form == "flat" else _packed)(folder.name, names, group)
            writer.write_batch(batch)
            rows += batch.num_rows
            events += group.kind.size
            broadcasts += int((group.kind == Kind.BROADCAST).sum())
    _write_manifest(folder, path, names, rows, events, 2 if form == "flat" else 1)
    return events - broadcasts


def _flat(run: str, names: list[str], group: Group) -> pa.RecordBatch:
    rows, events = group.kind.shape
    total = rows * events

    def coded(codes: Any, texts: list[str]) -> Any:
        used, codes = np.unique(codes, return_inverse=True)  # as the writer does
        return pa.DictionaryArray.from_arrays(
            pa.array(codes.astype(np.int32)), pa.array([texts[at] for at in used.astype(int)])
        )

    columns: dict[str, Any] = {
        "run": coded(np.zeros(total), [run]),
        "node": coded(np.repeat(np.arange(rows), events), [names[at] for at in group.nodes]),
        "segment": pa.array(np.full(total, group.segment, dtype=np.int32)),
        "seq": pa.array(np.tile(np.arange(group.first_seq, group.first_seq + events), rows)),
        "time_us": pa.array(group.number.ravel() * 1000),
        "kind": pa.array(group.kind.ravel()),
        "origin": coded(group.origin.ravel() + 1, ["", *names]),
        "number": pa.array(group.number.ravel()),
        "peer": coded(np.zeros(total), [""]),
        "total_bytes": pa.array(np.full(total, 64, dtype=np.int32)),
        "control_bytes": pa.array(np.zeros(total, dtype=np.int32)),
        "detail": pa.nulls(total, pa.string()),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in CODED_SCHEMA.names], schema=CODED_SCHEMA)


def _packed(run: str, names: list[str], group: Group) -> pa.RecordBatch:
    rows, events = group.kind.shape
    zeros = np.zeros(rows * events, dtype=np.int32)
    lists = {
        "time_us": group.number.ravel() * 1000, "kind": group.kind.ravel(), "origin": group.origin.ravel(),
        "number": group.number.ravel(), "peer": zeros - 1, "total_bytes": zeros + 64, "control_bytes": zeros,
    }  # fmt: skip
    bounds = pa.array(np.arange(0, rows * events + 1, events, dtype=np.int32))
    name_bounds = pa.array(np.arange(0, rows * len(names) + 1, len(names), dtype=np.int32))
    columns: dict[str, Any] = {
        "run": pa.array([run] * rows),
        "node": pa.array([names[at] for at in group.nodes]),
        "segment": pa.array([group.segment] * rows, pa.int32()),
        "first_seq": pa.array([group.first_seq] * rows, pa.int64()),
        "events": pa.array([events] * rows, pa.int32()),
        "names": pa.ListArray.from_arrays(name_bounds, pa.array(names * rows)),
        **{name: pa.ListArray.from_arrays(bounds, pa.array(values)) for name, values in lists.items()},
        "detail": pa.ListArray.from_arrays(bounds, pa.nulls(rows * events, pa.string())),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in PACKED_SCHEMA.names], schema=PACKED_SCHEMA)


def _write_manifest(folder: Path, path: Path, names: list[str], rows: int, events: int, version: int) -> None:
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    part = Part(file=path.name, rows=rows, events=events, size_bytes=path.stat().st_size, sha256=sha256)
    manifest = Manifest(
        version=version, run=folder.name, writer="bench", protocol="synthetic", parameters={}, seed=None,
        promises=PromisesMade(complete=True), nodes=names, level="deliveries", events=events, trace_hash="",
        software="bench",
        parts=[part],
    )  # fmt: skip
    (folder / "bench.manifest.json").write_bytes(msgspec.json.encode(manifest))


# One measurement: a process of its own


def judge_in_process(folder: Path) -> bool:
    return verify_trace(folder, memory_bytes=1 << 50)[0].ok


def judge_bounded(folder: Path) -> bool:
    """In a fifth of what the events would take, but no less than the tables of messages need."""
    trace = open_trace(folder, dense=False)
    (run,) = trace.runs
    memory_bytes = min(trace.event_count * EVENT_BYTES // 5 + (64 << 20), 2 << 30)
    bounded = Bounded(
        TraceGroups(trace, run, timed=False), trace.nodes(run), timed=False, witness_max=WITNESS_MAX,
        budget=MemoryBudget.of(memory_bytes),
    )  # fmt: skip
    return report_on(bounded.analyse(), run, "", trace.promises(run), WITNESS_MAX).ok


def judge_by_spark(folder: Path) -> bool:
    from whence.spark.session import get_session
    from whence.spark.verify import verify_folder

    return verify_folder(get_session("bench verify"), folder)[0].ok


def judge_in_blocks(folder: Path) -> bool:
    from whence.spark.session import cores_of, get_session
    from whence.spark.verify import verify_folder

    spark = get_session("bench verify")
    return verify_folder(spark, folder, blocks=cores_of(spark))[0].ok


def judge_by_duckdb(folder: Path) -> bool:
    """Less than the verifier: no causal order, late, malformed; all rows are taken to have the same names."""
    import duckdb

    base = duckdb.connect()
    base.execute("set threads = 2; set memory_limit = '6GB'")
    base.execute(
        f"create temp table e as select node, unnest(kind) k, unnest(origin) o, unnest(number) n, "
        f"first_seq + unnest(range(events)) s from read_parquet('{folder}/*.parquet')"
    )
    base.execute("create temp table m as select distinct o, n from e where k = 1")
    base.execute("create temp table d as select node, o, n, count(*) c from e where k = 4 group by all")
    asked = (
        "select count(*) from d where c > 1",
        "select count(*) from d anti join m using (o, n)",
        "select (select count(*) from m) * (select count(distinct node) from e)"
        " - (select count(*) from d semi join m using (o, n))",
        "select count(*) from (select n, max(n) over (partition by node, o order by s rows between unbounded "
        "preceding and 1 preceding) as highest from e where k = 4) where highest > n",
    )
    return all(base.execute(each).fetchone() == (0,) for each in asked)


JUDGES: dict[str, Callable[[Path], bool]] = {
    "in-process": judge_in_process,
    "bounded": judge_bounded,
    "spark": judge_by_spark,
    "blocks": judge_in_blocks,
    "duckdb": judge_by_duckdb,
}


def measure(path: str, folder: Path, warm: Path) -> None:
    """Print one JSON line: CPU seconds, seconds, peak MB."""
    judge = JUDGES[path]
    judge(warm)
    ok, cpu, wall = measured(lambda: judge(folder))
    assert ok, "a correct run was found broken"
    print(json.dumps({"cpu_s": round(cpu, 3), "wall_s": round(wall, 3), "peak_mb": tree_peak_mb()}))


def child(path: str, folder: Path, warm: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", path, str(folder), str(warm)]
    environment = {**ENVIRONMENT, **os.environ}  # as `whence verify` has it
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="stop at 10^6 deliveries")
    parser.add_argument("--form", choices=("flat", "packed"), default="flat", help="of the files")
    parser.add_argument("--only", default=",".join(PATHS), help="the paths to measure")
    parser.add_argument("--keep", type=Path, help="write the traces here, use those that are there")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure[0], Path(options.measure[1]), Path(options.measure[2]))
        return
    cases = [
        (size, only) for size in (SIZES[:1] if options.quick else SIZES) for only in options.only.split(",")
    ]
    with tempfile.TemporaryDirectory(prefix="whence-bench-") as scratch:
        folder = options.keep or Path(scratch)
        rows = run_cases(cases, folder, options.form)
        print_table(rows)
    print(json.dumps({"bench": "verify", "rows": rows, "growth": growth(rows)}))


def _deliveries(size: int, nodes: int, order: str) -> int:
    each = nodes * (SPEAKERS if order == "few speak" else nodes)
    return max(1, size // each) * each


def run_cases(cases: list[tuple[tuple[int, int, str], str]], folder: Path, form: str) -> list[dict[str, Any]]:
    warm = folder / f"warm-{form}"
    if not warm.exists():
        write_trace(warm, 64, 300_000, "lockstep", form)
    rows: list[dict[str, Any]] = []
    for (size, nodes, order), path in cases:
        if path == "duckdb" and (size > DUCKDB_MAX or find_spec("duckdb") is None):
            continue
        trace = folder / f"{size}-{nodes}-{order.replace(' ', '-')}-{form}"
        if not trace.exists():
            write_trace(trace, nodes, size, order, form)
        deliveries = _deliveries(size, nodes, order)
        row = {
            "path": path, "nodes": nodes, "order": order, "deliveries": deliveries,
            **child(path, trace, warm),
        }  # fmt: skip
        row["m_per_cpu_s"] = round(deliveries / row["cpu_s"] / 1e6, 2)
        base = next(
            (
                r["cpu_s"]
                for r in rows
                if (r["deliveries"], r["order"], r["path"]) == (deliveries, order, "in-process")
            ),
            None,
        )
        row["against_in_process"] = None if base is None else round(row["cpu_s"] / base, 2)
        rows.append(row)
        print(f"  {row}", file=sys.stderr)
    return rows


def growth(rows: list[dict[str, Any]]) -> list[float]:
    """CPU time per delivery in process, relative to the size before: 1.0 is linear."""
    cost = [row["cpu_s"] / row["deliveries"] for row in rows if row["path"] == "in-process"]
    return [round(after / before, 3) for before, after in pairwise(cost)]


def print_table(rows: list[dict[str, Any]]) -> None:
    widths = (11, 6, 12, 14, 9, 8, 9, 8, 7)
    heads = ("path", "nodes", "order", "deliveries", "CPU s", "M/CPU-s", "s", "peak MB", "ratio")
    print(" ".join(f"{head:>{width}}" for head, width in zip(heads, widths, strict=True)))
    for row in rows:
        ratio = "" if row["against_in_process"] is None else f"{row['against_in_process']:.2f}x"
        print(
            f"{row['path']:>11} {row['nodes']:>6} {row['order']:>12} {row['deliveries']:>14,} "
            f"{row['cpu_s']:>9.2f} {row['m_per_cpu_s']:>8.2f} {row['wall_s']:>9.1f} "
            f"{row['peak_mb']:>8,} {ratio:>7}"
        )


if __name__ == "__main__":
    main()
