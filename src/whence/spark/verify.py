"""The verifier on Spark: each run, or block of a run's columns, is judged in one task by the very function
that judges a trace in process, so the reports are equal. A large run is first shared out by its nodes
(`verify/shares.py`): most are clean, and that is proved by many tasks sooner than by one. What is not proved
is placed by one task for all blocks. Knows no protocol: import-linter keeps it so.

On one machine the in-process verifier needs less CPU (docs/spark.md). This is for traces that do not fit one
machine, for the many runs of a sweep on a cluster, and for pipelines that go on with the verdicts as a table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from whence.errors import PlatformError, TraceError
from whence.spark.progress import Tasks, spark_failures, watched
from whence.spark.session import cores_of, is_local, is_remote
from whence.spark.tables import (
    FINDINGS,
    MANIFESTS,
    SEGMENTS,
    VERDICTS,
    columns_of,
    require,
    table_of,
)
from whence.trace.reader import Trace, TraceSource, open_trace
from whence.trace.schema import PromisesMade
from whence.verify.analysis import PAST_BYTES, WHOLE, Block
from whence.verify.certificate import Proof
from whence.verify.kernels import COMPILED_EVENTS, choose_kernels
from whence.verify.load import columns_needed
from whence.verify.report import WITNESS_MAX, RunReport
from whence.verify.run import (
    clean_report,
    default_memory_bytes,
    merge_blocks,
    promised,
    report_on,
    require_verifiable,
    verify_table,
    verify_trace,
)
from whence.verify.shares import (
    Cut,
    Cuttable,
    Share,
    agreed,
    count_share,
    follow_share,
    judge_block,
    place_run,
)

BLOCK_NODES = 2_000  # a run of more nodes is split by columns: the vectors are most of its work
EVENTS_PER_SECOND = 5_000_000  # about, to give tasks their share
TASK_SECONDS_MAX = 2.0  # of estimated work for runs that share a task

SHARED_EVENTS = 100_000_000  # a smaller run is proved clean by one task before two jobs are under way
WORKERS_FIX = "Check that the workers have the Python and the packages of this machine (docs/cluster.md)"

# What a task says of a share of the work.
DONE = table_of("number bigint, result binary")
# What a task says of a job: its result, or an error's kind, subject, reason and fix.
PERFORMED = StructType(
    [
        StructField("number", LongType()),
        StructField("result_json", StringType()),
        StructField("error", ArrayType(StringType())),
    ]
)


def verify(
    segments: DataFrame,
    manifests: DataFrame,
    *,
    witness_max: int | None = WITNESS_MAX,
    complete: bool | None = None,
    causal: bool | None = None,
    timed: bool = True,
) -> DataFrame:
    """VERDICTS: one row for each run that has a manifest or rows.

    `witness_max`, `complete` and `causal` are those of `whence.verify.run.verify_trace`. `timed=False`
    leaves the events' times behind, where no run promises to be timely or has lives: fewer bytes are
    shuffled.
    """
    require(segments, SEGMENTS, "segments")
    require(manifests, MANIFESTS, "manifests")

    def judge(rows: pa.Table, about: pa.Table) -> pa.Table:
        return _verdict(rows, about, witness_max, complete, causal)

    # Only what the verifier reads is shuffled: without times a quarter of a full trace.
    rows = segments.select(*columns_needed(timed)).groupBy("run")
    return rows.cogroup(manifests.groupBy("run")).applyInArrow(judge, VERDICTS)


def verify_folder(
    spark: SparkSession,
    folder: Trace | Path | str,
    *,
    runs: Collection[str] | None = None,
    witness_max: int | None = WITNESS_MAX,
    complete: bool | None = None,
    causal: bool | None = None,
    blocks: int | None = None,
    memory_bytes: int | None = None,
    progress: Tasks | None = None,
) -> list[RunReport]:
    """Verify a trace folder, or a sweep's folder: `verify_trace`'s reports, sorted by run.

    `runs` limits it to those named: a sweep's folder may hold runs of other grids too. A run is one task, or
    `blocks` tasks: by default as many as there are cores for a very large or very wide run, else one. They
    share out its nodes to prove that it is clean; where that fails one places it, and they judge a block of
    its columns each.
    Tasks read the Parquet files themselves, from storage that driver and workers share, which costs half of
    what rows through the JVM cost. `memory_bytes` is what one task may use. `progress` receives Spark's
    tasks, of which a small run has only a part.
    """
    trace = folder if isinstance(folder, Trace) else open_trace(folder, dense=False)
    wanted = sorted(trace.runs if runs is None else set(runs))
    for run in wanted:
        require_verifiable(trace, run)
    cores = cores_of(spark)
    asked = _Asked(witness_max, complete, causal)
    clean: dict[str, RunReport] = {}
    for run in wanted:
        shares = min(blocks or shares_for(trace, run, cores), len(trace.nodes(run)))
        promises = asked.promises(trace, run)
        if shares > 1 and not promises.timely:
            proof = _proved_by_shares(spark, _of_run(trace, run), run, shares, memory_bytes, progress)
            if proof is not None:
                clean[run] = clean_report(proof, run, trace.of_run(run)[0].protocol, promises)
    left = {run: blocks or blocks_for(trace, run, cores) for run in wanted if run not in clean}
    memory_bytes = memory_bytes or default_memory_bytes() // min(cores, max(1, sum(left.values())))
    judged = _judged(spark, trace, left, asked, memory_bytes, progress)
    return [clean[run] if run in clean else judged[run] for run in wanted]


class _Asked(NamedTuple):
    """What a report is to demand and to spell out."""

    witness_max: int | None
    complete: bool | None
    causal: bool | None

    def promises(self, trace: Trace, run: str) -> PromisesMade:
        """The promises of a run, or what is demanded in their place."""
        return promised(trace.promises(run), self.complete, self.causal)


def _judged(
    spark: SparkSession,
    trace: Trace,
    blocks: Mapping[str, int],
    asked: _Asked,
    memory_bytes: int,
    progress: Tasks | None,
) -> dict[str, RunReport]:
    """The reports on runs that were not proved clean, each in so many blocks of columns."""
    parts = {run: _of_run(trace, run) for run in blocks}
    wide = [_VerifyJob(run, WHOLE) for run, count in blocks.items() if count > 1]
    # Where nothing is cut, no folder that tasks may write to is needed.
    with _scratch(spark, trace) if wide else nullcontext(trace.path) as scratch:
        folders = {job.run: scratch / str(number) for number, job in enumerate(wide)}

        def place(job: _VerifyJob) -> Cuttable:
            part, folder = parts[job.run], folders[job.run]
            return place_run(part, job.run, asked.promises(part, job.run), folder, memory_bytes)

        placed = _performed(spark, trace, wide, place, Cuttable, progress)
        cut = {job.run: how for job, how in zip(wide, placed, strict=True)}

        def judge(job: _VerifyJob) -> RunReport:
            part = parts[job.run]
            if cut.get(job.run) == "placed":
                promises = asked.promises(part, job.run)
                found = judge_block(folders[job.run], asked.witness_max, promises.clock_slack_us, job.block)
                return report_on(
                    found, job.run, part.of_run(job.run)[0].protocol, promises, asked.witness_max
                )
            (report,) = verify_trace(
                part, run=job.run, memory_bytes=memory_bytes, block=job.block, **asked._asdict()
            )
            return report

        counts = {run: 1 if cut.get(run) == "not" else count for run, count in blocks.items()}
        jobs = [_VerifyJob(run, Block(at, count)) for run, count in counts.items() for at in range(count)]
        reports: dict[str, list[RunReport]] = {}
        for report in _performed(spark, trace, jobs, judge, RunReport, progress):
            reports.setdefault(report.run, []).append(report)
    return {run: merge_blocks(found, asked.witness_max) for run, found in reports.items()}


@contextmanager
def _scratch(spark: SparkSession, trace: Trace) -> Iterator[Path]:
    """A folder that all tasks see, for as long as they work."""
    local = not is_remote(spark) and is_local(str(spark.sparkContext.master))
    beside = trace.path.parent if trace.path.is_file() else trace.path
    with TemporaryDirectory(prefix=".whence-verify-", dir=None if local else beside.resolve()) as folder:
        yield Path(folder)


def shares_for(trace: Trace, run: str, cores: int) -> int:
    """As many shares as cores where a run takes a task many seconds; else one."""
    return cores if sum(manifest.events for manifest in trace.of_run(run)) >= SHARED_EVENTS else 1


def _proved_by_shares(
    spark: SparkSession, trace: Trace, run: str, shares: int, memory_bytes: int | None, progress: Tasks | None
) -> Proof | None:
    """Proof that a run is clean, by tasks that follow a share of its nodes each; None if it is not proved."""
    events = sum(manifest.events for manifest in trace.of_run(run))
    allowed = memory_bytes or default_memory_bytes() // min(shares, cores_of(spark))
    cut = Cut.of(trace.nodes(run), shares)
    with _scratch(spark, trace) as scratch:

        def count(share: int) -> bytes:
            kernels = choose_kernels(COMPILED_EVENTS)
            if not kernels.are_compiled:
                return msgspec.json.encode(None)
            return msgspec.json.encode(count_share(kernels, trace, run, cut, share, scratch, allowed))

        counted = _in_tasks(spark, trace, shares, count, progress)
        found = [msgspec.json.decode(each, type=Share | None) for each in counted]
        proof = agreed(found, events)
        whole = [share for share in found if share is not None]
        if proof is None:
            return None

        def follow(share: int) -> bytes:
            return msgspec.json.encode(follow_share(choose_kernels(COMPILED_EVENTS), whole, share, scratch))

        followed = _in_tasks(spark, trace, shares, follow, progress)
    return proof if all(msgspec.json.decode(each, type=bool) for each in followed) else None


def _in_tasks(
    spark: SparkSession, trace: Trace, count: int, work: Callable[[int], bytes], progress: Tasks | None
) -> list[bytes]:
    """The results of `work` for 0, 1, 2 ..., a task each."""

    def perform(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers: list[Any] = batch.column(0).to_pylist()
            rows = [{"number": number, "result": work(number)} for number in numbers]
            yield pa.RecordBatch.from_pylist(rows, schema=to_arrow_schema(DONE))

    partitions = spark.range(0, count, 1, numPartitions=count)
    with spark_failures(f"verifying {trace.path}", WORKERS_FIX), watched(spark, progress):
        rows = partitions.mapInArrow(perform, DONE).collect()
    return [bytes(row.result) for row in sorted(rows, key=lambda row: int(row.number))]


class _VerifyJob(NamedTuple):
    """A run, or a block of its columns."""

    run: str
    block: Block


def blocks_for(trace: Trace, run: str, cores: int) -> int:
    """As many blocks as cores where vectors are most of the work, or too large for one task; else one."""
    events = sum(manifest.events for manifest in trace.of_run(run))
    # A run of broadcasts has one past per broadcast with an entry per origin: about one entry per delivery.
    wide = len(trace.nodes(run)) > BLOCK_NODES or 2 * events > PAST_BYTES
    return cores if wide else 1


def _of_run(trace: Trace, run: str) -> Trace:
    """The part of an opened and checked trace that one run needs."""
    sources = [
        TraceSource(each.folder.resolve(), each.manifest)
        for each in trace.sources
        if each.manifest.run == run
    ]
    return Trace(trace.path.resolve(), sources, [])  # absolute, because a task has another working directory


def _shared(seconds: list[float], target: float) -> list[list[int]]:
    """Jobs in tasks of about `target` seconds: starting a task costs more than to judge a small run."""
    tasks: list[list[int]] = [[]]
    so_far = 0.0
    for number, each in enumerate(seconds):
        if tasks[-1] and so_far + each > target:
            tasks.append([])
            so_far = 0.0
        tasks[-1].append(number)
        so_far += each
    return tasks


def _performed(
    spark: SparkSession,
    trace: Trace,
    jobs: list[_VerifyJob],
    work: Callable[[_VerifyJob], Any],
    kind: Any,
    progress: Tasks | None,
) -> list[Any]:
    """What `work` makes of each job, in their order; small ones share a task."""
    if not jobs:
        return []
    seconds = [0.01 + sum(each.events for each in trace.of_run(job.run)) / EVENTS_PER_SECOND for job in jobs]
    tasks = _shared(seconds, min(TASK_SECONDS_MAX, sum(seconds) / (4 * cores_of(spark))))

    def perform(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers: list[Any] = batch.column(0).to_pylist()
            for task in numbers:
                for number in tasks[task]:
                    row: dict[str, Any] = {"number": number, "result_json": None, "error": None}
                    try:
                        row["result_json"] = msgspec.json.encode(work(jobs[number])).decode()
                    except (TraceError, PlatformError) as error:
                        row["error"] = [type(error).__name__, error.what, error.reason, error.fix]
                    yield pa.RecordBatch.from_pylist([row], schema=to_arrow_schema(PERFORMED))

    # range: partition i holds exactly the number i. mapInArrow: Spark Connect has it too.
    partitions = spark.range(0, len(tasks), 1, numPartitions=len(tasks))
    with spark_failures(f"verifying {trace.path}", WORKERS_FIX), watched(spark, progress):
        rows = sorted(partitions.mapInArrow(perform, PERFORMED).collect(), key=lambda row: int(row.number))
    for row in rows:
        if row.error is not None:
            error = PlatformError if row.error[0] == PlatformError.__name__ else TraceError
            raise error(f"run {jobs[row.number].run!r} in {trace.path}: {row.error[1]}", *row.error[2:])
    return [msgspec.json.decode(row.result_json, type=kind) for row in rows]


def findings(verdicts: DataFrame) -> DataFrame:
    """FINDINGS: what the reports spell out, one row each."""
    require(verdicts, VERDICTS, "verdicts")
    each = StructType([field for field in FINDINGS.fields if field.name != "run"])
    report = F.from_json("report_json", StructType([StructField("findings", ArrayType(each))]))
    return (
        verdicts.select("run", F.explode(report["findings"]).alias("finding"))
        .select("run", "finding.*")
        .select(columns_of(FINDINGS))
    )


def _verdict(
    rows: pa.Table, about: pa.Table, witness_max: int | None, complete: bool | None, causal: bool | None
) -> pa.Table:
    """Judge one run; bad data becomes an `error`, so that one bad run does not end the job for all."""
    verdict: dict[str, Any]
    described = about.to_pylist()
    if not described:
        run = rows.column("run")[0].as_py()
        verdict = {"run": run, "ok": False, "error": "the run has rows but no manifest"}
    else:
        run, protocol, promises_json, nodes = (described[0][name] for name in MANIFESTS.names)
        promises = promised(msgspec.json.decode(promises_json, type=PromisesMade), complete, causal)
        try:
            report = verify_table(rows, promises, nodes, witness_max, run=run, protocol=protocol)
        except TraceError as error:
            verdict = {"run": run, "ok": False, "error": f"{error.what}: {error.reason}"}
        else:
            text = msgspec.json.encode(report).decode()
            verdict = {"run": run, "ok": report.ok, "report_json": text}
    return pa.Table.from_pylist([verdict], schema=to_arrow_schema(VERDICTS))
