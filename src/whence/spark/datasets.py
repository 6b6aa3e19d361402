"""Sweeps, verdicts and summaries of very many runs, as tables on any file system (`trace/dataset.py`).

The driver does nothing for a run: it names chunks of the grid, and tasks make the runs, judge them and write
rows. It lists commits, one for each chunk, and never opens a file of events.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from whence import plugins
from whence.errors import PlatformError, TraceError
from whence.lab.chunks import chunk_runs, grid_digest, run_chunk, task_of
from whence.lab.grid import Grid
from whence.spark.metrics.summary import summary
from whence.spark.progress import Tasks, watched
from whence.spark.tables import FINDINGS, SEGMENTS, SUMMARY, small_table, table_of
from whence.trace.columns import FLAT_SCHEMA, packed_of
from whence.trace.dataset import Commit, Dataset, File, runs_in
from whence.trace.schema import Level, PromisesMade
from whence.verify.kernels import compiled
from whence.verify.report import WITNESS_MAX, RunReport
from whence.verify.run import promised, verify_batches

ATTEMPTS_MAX = 3  # a chunk that ended its worker that often ends the sweep

# What a task says when it has committed: its task and what it is about.
COMMITTED = table_of("task string, about_json string")
COUNTS = ("duplicate", "created", "missing", "fifo", "causal", "late", "malformed")


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """What a job over a dataset has done; of earlier jobs, too."""

    tasks: int
    skipped: int  # tasks that were committed before
    runs: int
    failed: int  # runs that raised (sweep), or that are not as promised (verify)
    events: int


def sweep_tables(
    spark: SparkSession,
    grid: Mapping[str, Any],
    out: str,
    *,
    level: Level | None = None,
    progress: Tasks | None = None,
) -> Totals:
    """Run every point of a grid (`lab/grid.py`) that is not committed in `out`."""
    points = len(Grid(grid))
    size = chunk_runs(points)
    digest = grid_digest(grid, level)
    chunks = {task_of(digest, first): first for first in range(0, points, size)}
    wanted = plugins.names()

    def perform(first: int) -> Commit:
        plugins.use(*wanted)
        return run_chunk(grid, first, min(size, points - first), level, Dataset(out))

    return _perform(spark, out, f"sweep-{digest}-", chunks, perform, progress)


def verify_tables(
    spark: SparkSession,
    out: str,
    *,
    witness_max: int | None = WITNESS_MAX,
    complete: bool | None = None,
    causal: bool | None = None,
    progress: Tasks | None = None,
) -> Totals:
    """Judge every committed run, into the tables `verdicts` and `findings`."""
    swept = Dataset(out).commits("sweep-")
    asked = msgspec.json.encode([witness_max, complete, causal])
    settings = hashlib.sha256(asked).hexdigest()[:8]
    kind = f"verify-{settings}-"
    tasks = {kind + task: task for task in swept}

    def perform(task: str) -> Commit:
        return _verify_commit(Dataset(out), swept[task], kind, witness_max, complete, causal)

    return _perform(spark, out, kind, tasks, perform, progress)


def _verify_commit(
    dataset: Dataset,
    swept: Commit,
    kind: str,
    witness_max: int | None,
    complete: bool | None,
    causal: bool | None,
) -> Commit:
    compiled()  # once for all runs of a worker
    verdicts: list[dict[str, Any]] = []
    findings: list[dict[str, Any]] = []
    events = 0
    for about, batches in _runs_of(dataset, swept):
        row: dict[str, Any] = {"run": about["run"], "ok": False, "error": None}
        promises = promised(msgspec.json.decode(about["promises_json"], type=PromisesMade), complete, causal)
        try:
            report = verify_batches(
                batches, promises, about["nodes"], witness_max, run=about["run"], protocol=about["protocol"]
            )
        except TraceError as error:
            row["error"] = f"{error.what}: {error.reason}"
        else:
            plain: dict[str, Any] = msgspec.to_builtins(report)
            row |= {name: plain[name] for name in ("ok", "nodes", "events", "broadcasts", "deliveries")}
            row |= {name: plain["counts"].get(name, 0) for name in COUNTS}
            row["report_json"] = msgspec.json.encode(report).decode()
            findings += [{"run": about["run"], **found} for found in plain["findings"]]
            events += report.events
        verdicts.append(row)
    files = [
        dataset.write("verdicts", pa.Table.from_pylist(verdicts, _arrow(VERDICT_ROWS))),
        dataset.write("findings", pa.Table.from_pylist(findings, _arrow(FINDINGS))),
    ]
    broken = sum(not row["ok"] for row in verdicts)
    about = {"runs": len(verdicts), "failed": broken, "events": events}
    return dataset.commit(kind + swept.task, files, swept.digest, about)


VERDICT_ROWS = table_of(
    {"run": "string", "ok": "boolean", "error": "string"}
    | dict.fromkeys(("nodes", "events", "broadcasts", "deliveries", *COUNTS), "bigint")
    | {"report_json": "string"}
)


def _arrow(schema: Any) -> pa.Schema:
    return to_arrow_schema(schema)


def _runs_of(dataset: Dataset, swept: Commit) -> Iterator[tuple[dict[str, Any], list[pa.RecordBatch]]]:
    """The finished runs of a commit that recorded deliveries, with their rows."""
    files = {file.table: file for file in swept.files}
    rows = [
        row
        for row in dataset.open(files["runs"]).read().to_pylist()
        if row["status"] == "done" and row["level"] != Level.MEASURES.name.lower()
    ]
    if "segments" not in files:
        yield from ((row, []) for row in rows)
        return
    bounds = [(row["first_row"], row["rows"]) for row in rows]
    batches = runs_in(dataset.open(files["segments"]), bounds, FLAT_SCHEMA.names)
    yield from zip(rows, batches, strict=True)


def read_dataset(spark: SparkSession, out: str) -> DataFrame:
    """SEGMENTS of all committed runs; tasks read the files with Arrow."""
    swept = Dataset(out).commits("sweep-")
    tasks = small_table(spark, [(task,) for task in swept], table_of("task string")).repartition(
        max(1, len(swept))
    )

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        dataset = Dataset(out)
        for batch in batches:
            names: list[Any] = batch.column(0).to_pylist()
            for task in names:
                for about, rows in _runs_of(dataset, swept[task]):
                    for piece in rows:
                        yield packed_of(about["run"], piece)

    return tasks.mapInArrow(read, SEGMENTS)


def summarise_tables(spark: SparkSession, out: str) -> Totals:
    """The figures of every committed run, into the table `summaries`; what was there is replaced."""
    dataset = Dataset(out)
    swept = dataset.commits("sweep-")
    digest = hashlib.sha256("".join(each.digest for each in swept.values()).encode()).hexdigest()
    kind = f"summary-{digest[:16]}-"
    if dataset.commits(kind):
        return _totals(dataset, kind, skipped=1, tasks=1)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = pa.Table.from_batches(batches, schema=_arrow(SUMMARY))
        if rows.num_rows:
            file = Dataset(out).write("summaries", rows)
            made = pa.RecordBatch.from_pylist(
                [{"task": file.path, "about_json": msgspec.json.encode(file).decode()}], _arrow(COMMITTED)
            )
            yield made

    written = summary(read_dataset(spark, out)).mapInArrow(write, COMMITTED).collect()
    files = [msgspec.json.decode(row.about_json, type=File) for row in written]
    about = {"runs": sum(file.rows for file in files), "failed": 0, "events": 0}
    dataset.commit(kind + "all", files, digest, about)
    return _totals(dataset, kind, skipped=0, tasks=1)


def first_broken(dataset: Dataset, most: int) -> Iterator[RunReport]:
    """Reports on the first runs that are not as promised."""
    left = most
    for file in dataset.files("verdicts"):
        table = dataset.open(file).read(columns=["ok", "report_json"])
        for row in table.filter(pc.invert(table.column("ok"))).slice(0, left).to_pylist():
            if row["report_json"] is not None:
                left -= 1
                yield msgspec.json.decode(row["report_json"], type=RunReport)
        if not left:
            return


def _perform(
    spark: SparkSession,
    out: str,
    kind: str,
    tasks: Mapping[str, Any],
    work: Callable[[Any], Commit],
    progress: Tasks | None,
) -> Totals:
    """Do the tasks that are not committed; again those whose worker died, as long as that gets anywhere."""
    dataset = Dataset(out)
    before = dataset.commits(kind)
    left = [given for task, given in tasks.items() if task not in before]
    skipped = len(tasks) - len(left)
    problem: Exception | None = None
    for _ in range(ATTEMPTS_MAX):
        if not left:
            break
        problem = _run_once(spark, left, work, progress)
        done = dataset.commits(kind)
        left = [given for task, given in tasks.items() if task not in done]
    if left:
        raise PlatformError(
            f"{kind.split('-', maxsplit=1)[0]} in {out}",
            f"{len(left)} of {len(tasks)} tasks did not end: {str(problem).strip().splitlines()[0]}",
            "Give workers more memory, or look at Spark's logs; the same command goes on where it stopped",
        ) from problem
    return _totals(dataset, kind, skipped=skipped, tasks=len(tasks), only=tasks)


def _run_once(
    spark: SparkSession, left: Sequence[Any], work: Callable[[Any], Commit], progress: Tasks | None
) -> Exception | None:
    import importlib

    from pyspark.errors import PySparkException

    py4j = importlib.import_module("py4j.protocol")  # it has no type hints
    given = list(left)

    def perform(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers: list[Any] = batch.column(0).to_pylist()
            for number in numbers:
                commit = work(given[number])
                row = {"task": commit.task, "about_json": msgspec.json.encode(commit.about).decode()}
                yield pa.RecordBatch.from_pylist([row], _arrow(COMMITTED))

    partitions = spark.range(0, len(given), 1, numPartitions=len(given))
    try:
        with watched(spark, progress):
            partitions.mapInArrow(perform, COMMITTED).collect()
    except (PySparkException, py4j.Py4JError) as error:
        return error
    return None


def _totals(
    dataset: Dataset, kind: str, *, skipped: int, tasks: int, only: Mapping[str, Any] | None = None
) -> Totals:
    found = [commit.about for task, commit in dataset.commits(kind).items() if only is None or task in only]
    runs, failed, events = (sum(each[name] for each in found) for name in ("runs", "failed", "events"))
    return Totals(tasks=tasks, skipped=skipped, runs=runs, failed=failed, events=events)
