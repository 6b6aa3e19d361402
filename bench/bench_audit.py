"""The auditor on Spark: Parquet and JSON lines through a mapping, beside the same on our own format.

    python bench/bench_audit.py [--rows 10000000] [--master 'local[2]'] [--memory 4g] [--folder DIR]
                                [--formats parquet,jsonl,trace]

The log is what the consumers of a topic were handed: 64 partitions, 4 groups, offsets in order, but two
records in 10,000 change places and one comes again. Every finding must be counted exactly. Beside it: a trace
of ours with that many deliveries (256 nodes), judged by the verifier on Spark. Each measurement is a process
of its own, after a warm-up on a small log; CPU seconds and the peak of memory are those of the driver, the
JVM and its Python workers together. Files are made before, and are not counted; with --folder they stay there
and are used again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench_verify import write_trace
from cpu import measured, tree_peak_mb

PARTITIONS, GROUPS, CHUNK = 64, 4, 1_000_000
LANES = PARTITIONS * GROUPS
PERIOD = 10_000  # of offsets, in which two change places and one comes again
SWAP, AGAIN = 10, 100
WARM_ROWS = 200_000
NODES = 256


def columns(first: int, count: int) -> dict[str, Any]:
    """Rows `first` onwards: row i is of lane i % 256, a partition as a group reads it."""
    at = np.arange(first, first + count)
    lane, offset = at % LANES, at // LANES
    turn = offset % PERIOD
    handed = offset + (turn == SWAP) - (turn == SWAP + 1) - (turn == AGAIN)
    return {"partition": lane % PARTITIONS, "group": lane // PARTITIONS, "offset": handed}


def expected(rows: int) -> dict[str, int]:
    """How many are late, and how many come again."""
    turns = (np.arange(0, rows, LANES) // LANES) % PERIOD
    full = rows // LANES
    assert rows % LANES == 0, "rows must be a multiple of 256"
    return {
        "fifo": LANES * int(np.sum(turns[:full] == SWAP + 1)),
        "duplicate": LANES * int(np.sum(turns == AGAIN)),
    }


def write_parquet(path: Path, rows: int) -> None:
    with_schema: pq.ParquetWriter | None = None
    for first in range(0, rows, CHUNK):
        made = columns(first, min(CHUNK, rows - first))
        count = len(made["offset"])
        names = pa.array([f"g{group}" for group in range(GROUPS)])
        groups = pa.DictionaryArray.from_arrays(made["group"].astype(np.int8), names)
        table = pa.table({
            "topic": pa.repeat("orders", count), "partition": made["partition"].astype(np.int32),
            "offset": made["offset"], "group": groups.cast(pa.string()), "consumer": groups.cast(pa.string()),
            "assignment": np.ones(count, np.int32), "place": np.arange(first, first + count),
        })  # fmt: skip
        with_schema = with_schema or pq.ParquetWriter(path, table.schema, compression="zstd")
        with_schema.write_table(table)
    assert with_schema is not None
    with_schema.close()


def write_jsonl(path: Path, rows: int) -> None:
    with path.open("w") as file:
        for first in range(0, rows, CHUNK):
            made = columns(first, min(CHUNK, rows - first))
            lists = (made[name].tolist() for name in ("partition", "group", "offset"))
            file.writelines(
                f'{{"topic":"orders","partition":{partition},"offset":{offset},"group":"g{group}",'
                f'"consumer":"g{group}","assignment":1,"place":{first + at}}}\n'
                for at, (partition, group, offset) in enumerate(zip(*lists, strict=True))
            )


def judge(session: Any, path: Path, rows: int) -> int:
    """Judge a log or a trace; returns how many rows that were."""
    if path.is_dir():
        from whence.spark.verify import verify_folder

        (report,) = verify_folder(session, path)
        assert report.ok
        return report.deliveries
    from whence.foreign.mapping import mapping_of
    from whence.spark.audit.judge import audit_log

    document = {"log": {"preset": "kafka", "format": path.suffix[1:]}, "event": {"order": "place"}}
    audit = audit_log(session, path, mapping_of(document), large_bytes=0)
    found = {name: audit.properties[name].count for name in ("fifo", "duplicate")}
    assert found == expected(rows), (found, expected(rows))
    return rows


def measure(given: argparse.Namespace, path: Path, warm: Path) -> None:
    from whence.spark.session import get_session

    session = get_session("bench audit", master=given.master, conf={"spark.driver.memory": given.memory})
    judge(session, warm, WARM_ROWS - WARM_ROWS % LANES)
    rows, cpu, wall = measured(lambda: judge(session, path, given.rows))
    size = path.stat().st_size if path.is_file() else sum(each.stat().st_size for each in path.iterdir())
    print(json.dumps({
        "format": path.suffix[1:] or "trace", "rows": rows, "file_mb": size >> 20, "cpu_s": round(cpu, 1),
        "rows_per_cpu_s": round(rows / cpu), "peak_mb": tree_peak_mb(), "wall_s": round(wall, 1),
    }))  # fmt: skip


WRITE = {"parquet": write_parquet, "jsonl": write_jsonl}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--memory", default="4g", help="of the driver, which is all of a local Spark")
    parser.add_argument("--folder", type=Path, default=None, help="where to put the files, and to keep them")
    parser.add_argument("--formats", default="parquet,jsonl,trace")
    parser.add_argument("--measure", nargs=2, type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.rows -= given.rows % LANES
    if given.measure:
        measure(given, *given.measure)
        return
    with tempfile.TemporaryDirectory() as made:
        folder = given.folder or Path(made)
        for name in given.formats.split(","):
            path, warm = (_file(folder, name, rows) for rows in (given.rows, WARM_ROWS))
            options = ["--rows", str(given.rows), "--master", given.master, "--memory", given.memory]
            command = [sys.executable, __file__, *options, "--measure", str(path), str(warm)]
            subprocess.run(command, check=True)


def _file(folder: Path, name: str, rows: int) -> Path:
    """A log or a trace of that many rows, made unless it is there."""
    rows -= rows % LANES
    path = folder / (f"trace-{rows}" if name == "trace" else f"log-{rows}.{name}")
    if not path.exists():
        if name == "trace":
            write_trace(path, NODES, rows)
        else:
            WRITE[name](path, rows)
    return path


if __name__ == "__main__":
    main()
