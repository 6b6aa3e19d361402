"""A chunk of a grid: some hundred small runs, simulated in memory and written as rows of tables.

A million runs as folders are a million folders. Here a task runs the points `first : first + count` of a grid
and leaves one file of events, one of runs (a row each, with what a manifest says) and one of measures.
"""

from __future__ import annotations

import hashlib
import time
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pyarrow as pa

from whence.lab.grid import Grid
from whence.lab.run import open_writer
from whence.lab.run import run as run_scenario
from whence.sim.files import run_id, to_dict
from whence.trace.dataset import Commit, Dataset
from whence.trace.measures import Value
from whence.trace.schema import Level
from whence.trace.writer import GROUP_EVENTS, PARQUET_OPTIONS

CHUNK_RUNS = 1_000
CHUNKS_MIN = 16  # of a small grid: something for every core

_RUNS: list[pa.Field[Any]] = [
    pa.field("run", pa.string()),
    pa.field("status", pa.string()),
    pa.field("error", pa.string()),
    pa.field("seconds", pa.float64()),
    pa.field("labels_json", pa.string()),
    pa.field("protocol", pa.string()),
    pa.field("seed", pa.int64()),
    pa.field("level", pa.string()),
    pa.field("parameters_json", pa.string()),
    pa.field("promises_json", pa.string()),
    pa.field("nodes", pa.list_(pa.string())),
    pa.field("software", pa.string()),
    pa.field("trace_hash", pa.string()),
    pa.field("broadcasts", pa.int64()),
    pa.field("deliveries", pa.int64()),
    pa.field("first_row", pa.int64()),  # of its events in the segments file of the same commit, ...
    pa.field("rows", pa.int64()),  # ... and how many there are
]
RUNS = pa.schema(_RUNS)
_MEASURES: list[pa.Field[Any]] = [
    pa.field("run", pa.string()),
    pa.field("measure", pa.string()),
    pa.field("place", pa.int64()),
    pa.field("value", pa.int64()),
]
MEASURES = pa.schema(_MEASURES)


def chunk_runs(points: int) -> int:
    """How many runs a chunk of a grid has: a function of the grid alone, so that a sweep can be resumed."""
    return max(1, min(CHUNK_RUNS, points // CHUNKS_MIN))


def grid_digest(data: Mapping[str, Any], level: Level | None) -> str:
    """A name for a grid and the level at which it is recorded."""
    text = msgspec.json.encode([data, None if level is None else level.name], order="sorted")
    return hashlib.sha256(text).hexdigest()[:16]


def task_of(digest: str, first: int) -> str:
    """The name of the task that runs a chunk."""
    return f"sweep-{digest}-{first:08d}"


def run_chunk(data: Mapping[str, Any], first: int, count: int, level: Level | None, out: Dataset) -> Commit:
    """Run some points of a grid and commit them; what a run raises is its result."""
    grid = Grid(data)
    rows: list[dict[str, Any]] = []
    measures: list[dict[str, Any]] = []
    batches: list[pa.RecordBatch] = []
    seen: set[str] = set()
    events = 0
    for at in range(first, first + count):
        row, measured, made = _run_point(grid, at, level)
        if row["run"] in seen:
            continue
        seen.add(row["run"])
        row["first_row"], row["rows"] = events, sum(batch.num_rows for batch in made)
        events += row["rows"]
        rows.append(row)
        measures += measured
        batches += made
    files = [out.write("runs", pa.Table.from_pylist(rows, RUNS))]
    if batches:
        table = pa.Table.from_batches(batches).unify_dictionaries()
        files.append(out.write("segments", table, row_group_size=GROUP_EVENTS, **PARQUET_OPTIONS))
    if measures:
        files.append(out.write("measures", pa.Table.from_pylist(measures, MEASURES)))
    hashes = "\n".join(f"{row['run']} {row['status']} {row['trace_hash']}" for row in rows)
    failed = sum(row["status"] == "failed" for row in rows)
    about = {"runs": len(rows), "failed": failed, "events": events}
    digest = hashlib.sha256(hashes.encode()).hexdigest()
    return out.commit(task_of(grid_digest(data, level), first), files, digest, about)


def _run_point(
    grid: Grid, at: int, level: Level | None
) -> tuple[dict[str, Any], list[dict[str, Any]], list[pa.RecordBatch]]:
    began = time.perf_counter()
    row: dict[str, Any] = {"run": f"point-{at}", "status": "failed"}
    try:
        labels, scenario = grid.point(at)
        row["run"] = run_id(scenario)
        row["labels_json"] = msgspec.json.encode(labels).decode()
        row["parameters_json"] = msgspec.json.encode(to_dict(scenario), order="sorted").decode()
        recorded = scenario.record.as_level() if level is None else level
        writer = open_writer(scenario, None, recorded)
        recorder = None if recorded is Level.MEASURES else writer
        outcome = run_scenario(scenario, recorder=recorder, level=recorded, kernel="always")
        manifest = writer.close(promises=outcome.promises)
    except Exception:  # noqa: BLE001 - whatever a run raises is its result; the other runs go on
        return row | {"error": traceback.format_exc(), "trace_hash": None}, [], []
    row |= {
        "status": "done",
        "seconds": time.perf_counter() - began,
        "promises_json": msgspec.json.encode(manifest.promises).decode(),
        "broadcasts": outcome.broadcasts,
        "deliveries": outcome.deliveries,
        **{
            name: getattr(manifest, name)
            for name in ("protocol", "seed", "level", "nodes", "software", "trace_hash")
        },
    }
    measured = [
        {"run": row["run"], "measure": name, "place": place, "value": value}
        for name, values in outcome.measures.items()
        for place, value in places(values)
    ]
    return row, measured, writer.batches


def places(values: Value) -> Iterator[tuple[int | None, int]]:
    """A measure in rows: a number, or the places of a list or a histogram."""
    if isinstance(values, int):
        yield None, values
    elif isinstance(values, list):
        yield from enumerate(values)
    else:
        yield from ((int(place), value) for place, value in values.items())
