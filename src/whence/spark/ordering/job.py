"""`whence stream`: a causal order from a source to a sink, with its progress and its errors made readable.

A query is what its checkpoint says. Beside Spark's own files a checkpoint on this machine has the folder
`whence-flush`, a second source: a file in it carries a time later than any, and so ends whatever waits.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StringType, StructType

from whence.errors import DataError, MisuseError
from whence.order import OUTCOMES
from whence.spark.adapters import ADAPTERS, read_adapted
from whence.spark.ordering.columns import quoted_column
from whence.spark.ordering.stream import causal_order
from whence.spark.progress import explained, spark_failures

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

# Formats of files whose schema is found in the files, with what they are read with unless the user says
# otherwise. FAILFAST: Spark's own default turns text that it cannot read into rows of nulls, without a word.
FILES: dict[str, dict[str, str]] = {
    "parquet": {},
    "orc": {},
    "json": {"mode": "FAILFAST", "inferTimestamp": "true"},
    "csv": {"mode": "FAILFAST", "header": "true", "inferSchema": "true"},
}
FLUSH_FOLDER = "whence-flush"
_END_OF_TIME = "9999-12-31T00:00:00Z"
_POLL_SECONDS = 0.2
_ROWS_IN, _ROWS_OUT = "whence rows in", "whence rows out"  # the names of what is counted in every batch


class StreamJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job: what to order, from where to where."""

    source: str
    out: str
    checkpoint: str
    order: dict[str, Any]  # the arguments of `causal_order`
    source_format: str = "parquet"
    out_format: str = "parquet"
    source_options: dict[str, str] = {}
    schema: str | None = None  # of a source that does not know its own
    separator: str = " "  # between ids, in formats without lists
    available_now: bool = False
    flush: bool = False
    every: str = "1 second"


class StreamSummary(msgspec.Struct, kw_only=True):
    """The counts of one run of a query."""

    rows_in: int = 0
    rows_out: int = 0
    outcomes: dict[str, int] = msgspec.field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    unplaced: int = 0  # rows without a position
    batches: int = 0
    seconds: float = 0.0
    rows_per_second: float = 0.0
    # Of the newest batch. The memory is the state store's: its caches fill up to their limits, however
    # small the state is.
    state_keys: int = 0
    state_memory_bytes: int = 0


def _absolute(path: str) -> str:
    """A path as any process on this machine understands it: a Spark Connect server has its own folder."""
    return path if re.match(r"[A-Za-z][\w+.-]+:", path) else str(Path(path).absolute())


def run_job(
    spark: SparkSession, job: StreamJob, progress: Callable[[StreamSummary], None] | None = None
) -> StreamSummary:
    """Run until all that is there now has been read (`available_now`), or until interrupted."""
    is_path = job.source_format in FILES or job.source_format in ADAPTERS
    job = msgspec.structs.replace(
        job,
        source=_absolute(job.source) if is_path else job.source,
        out=_absolute(job.out),
        checkpoint=_absolute(job.checkpoint),
    )
    flush_folder = _flush_folder(job)
    summary, began = StreamSummary(), time.monotonic()
    rounds: list[Callable[[], None]] = [lambda: None]
    if job.flush and flush_folder is not None:
        folder = flush_folder
        rounds.append(lambda: _write_flush(folder))
    for prepare in rounds:
        prepare()
        _follow(_start(spark, job, flush_folder), job, summary, began, progress)
    return summary


def open_source(spark: SparkSession, job: StreamJob) -> DataFrame:
    """The source as a stream, its text columns made what the order needs."""
    where = f"{job.source_format} at {job.source}"
    if job.source_format in FILES and "://" not in job.source and not Path(job.source).exists():
        raise DataError(where, "there is no such folder", "Check the path")
    with spark_failures(where, "Check the path, the format, its options and the schema"):
        if job.source_format in ADAPTERS:
            return read_adapted(
                spark, job.source_format, job.source, streaming=True, options=job.source_options
            )
        schema = job.schema or (_inferred(spark, job) if job.source_format in FILES else None)
        reader = spark.readStream.format(job.source_format).options(**_options(job))
        if schema is not None:
            reader = reader.schema(schema)
        stream = reader.load(job.source) if job.source else reader.load()
    return _typed(stream, job)


def _options(job: StreamJob) -> dict[str, str]:
    return FILES.get(job.source_format, {}) | job.source_options


def _inferred(spark: SparkSession, job: StreamJob) -> StructType:
    """The schema of the files that are there."""
    fix = "Check that the files are of that format; where there are none yet, give --schema"
    with spark_failures(f"{job.source_format} at {job.source}", fix):
        return spark.read.format(job.source_format).options(**_options(job)).load(job.source).schema


def _typed(stream: DataFrame, job: StreamJob) -> DataFrame:
    """CSV has neither lists nor, often, times: turn such text into what it means."""
    types = {field.name: field.dataType for field in stream.schema.fields}
    depends_on, event_time = job.order.get("depends_on"), job.order.get("event_time")
    if depends_on in types and isinstance(types[depends_on], StringType):
        parts = F.split(quoted_column(depends_on), _literally(job.separator))
        stream = stream.withColumn(depends_on, F.filter(parts, lambda part: F.length(part) > 0))
        id_ = job.order.get("id")
        if id_ in types and not isinstance(types[id_], StringType):
            stream = stream.withColumn(depends_on, quoted_column(depends_on).cast(ArrayType(types[id_])))
    if event_time in types and isinstance(types[event_time], StringType):
        # Not try_cast: a column that holds no times must be an error, not rows that all came just now.
        stream = stream.withColumn(event_time, quoted_column(event_time).cast("timestamp"))
    return stream


def _literally(separator: str) -> str:
    """A regular expression for just this text."""
    if not separator:
        raise MisuseError("separator", "it is empty", "Give the text between two ids")
    return re.escape(separator)


def _flush_folder(job: StreamJob) -> Path | None:
    """The folder of flush files; None where the checkpoint is not on this machine."""
    if "://" in job.checkpoint:
        if job.flush:
            raise MisuseError(
                "--flush",
                "the checkpoint is not on this machine's disk",
                "Use causal_order's `flush` in a program",
            )
        return None
    if job.flush and not job.available_now:
        raise MisuseError("--flush", "it is for data that ends", "Give --available-now as well")
    folder = Path(job.checkpoint) / FLUSH_FOLDER
    if not job.flush and folder.exists() and any(folder.iterdir()):
        raise MisuseError(
            f"checkpoint {job.checkpoint}",
            "its order has ended: it was flushed",
            "Begin another checkpoint and another out folder; or repeat the command with --flush",
        )
    return folder


def _write_flush(folder: Path) -> None:
    temporary = folder / ".end.tmp"  # Spark reads no file whose name begins with a dot
    temporary.write_text(f'{{"at": "{_END_OF_TIME}"}}\n')
    temporary.replace(folder / "end.json")


def _start(spark: SparkSession, job: StreamJob, flush_folder: Path | None) -> StreamingQuery:
    stream = open_source(spark, job)
    flush = None
    if flush_folder is not None:
        flush_folder.mkdir(parents=True, exist_ok=True)
        flush = spark.readStream.schema("at timestamp").json(str(flush_folder.resolve()))
    # Spark's own count would be of export requests and whole logs, where these are the source's rows.
    stream = stream.observe(_ROWS_IN, F.count(F.lit(1)).alias("rows"))
    ordered = causal_order(stream, **job.order, flush=flush)
    counts = [F.sum(F.when(F.col("outcome") == name, 1).otherwise(0)).alias(name) for name in OUTCOMES]
    unplaced = F.sum(F.when(F.col("position").isNull(), 1).otherwise(0)).alias("unplaced")
    counted = ordered.observe(_ROWS_OUT, F.count(F.lit(1)).alias("rows"), *counts, unplaced)
    if job.out_format == "csv":
        counted = _flat(counted, job.separator)
    writer = counted.writeStream.format(job.out_format).outputMode("append")
    if job.out_format == "csv":
        writer = writer.option("header", "true")
    writer = writer.option("checkpointLocation", job.checkpoint)
    writer = (
        writer.trigger(availableNow=True) if job.available_now else writer.trigger(processingTime=job.every)
    )
    with spark_failures(f"query to {job.out}", "Check the out folder and the checkpoint"):
        return writer.start(job.out)


def _flat(table: DataFrame, separator: str) -> DataFrame:
    """A table whose lists of text are text, and whose other structures are JSON: CSV has no more."""
    for field in table.schema.fields:
        kind = field.dataType
        if isinstance(kind, ArrayType) and not isinstance(kind.elementType, ArrayType | MapType | StructType):
            text = F.array_join(quoted_column(field.name).cast("array<string>"), separator)
        elif isinstance(kind, ArrayType | MapType | StructType):
            text = F.to_json(quoted_column(field.name))
        else:
            continue
        table = table.withColumn(field.name, text)
    return table


def _follow(
    query: StreamingQuery,
    job: StreamJob,
    summary: StreamSummary,
    began: float,
    progress: Callable[[StreamSummary], None] | None,
) -> None:
    """Wait for a query's end, and add up what it reports of each batch."""
    seen: set[int] = set()
    what = f"query from {job.source} to {job.out}"
    fix = "Fix the cause and give the same command again: it goes on where it was"
    with spark_failures(what, fix):  # even a question fails when the JVM is gone
        ended = False
        try:
            while not ended:
                active = query.isActive
                for report in query.recentProgress:
                    if report["batchId"] not in seen and report["stateOperators"]:
                        seen.add(report["batchId"])
                        _add(summary, report)
                summary.seconds = time.monotonic() - began
                summary.rows_per_second = summary.rows_in / summary.seconds if summary.seconds else 0.0
                if progress is not None:
                    progress(summary)
                ended = not active
                time.sleep(0 if ended else _POLL_SECONDS)
        finally:
            if not ended:  # interrupted: let the batch under way be done again at the next start
                query.stop()
        error = query.exception()
    if error is not None:
        raise explained(error, what, fix) from error


def _add(summary: StreamSummary, report: Mapping[str, Any]) -> None:
    summary.batches += 1
    state = report["stateOperators"][0]
    summary.state_keys = int(state["numRowsTotal"])
    summary.state_memory_bytes = int(state["memoryUsedBytes"])
    observed = {name: _by_name(row.asDict()) for name, row in (report.get("observedMetrics") or {}).items()}
    if _ROWS_IN in observed:
        summary.rows_in += observed[_ROWS_IN]["rows"] or 0
    if _ROWS_OUT in observed:
        counts = observed[_ROWS_OUT]
        summary.rows_out += counts["rows"] or 0
        summary.unplaced += counts["unplaced"] or 0
        for name in OUTCOMES:
            summary.outcomes[name] += counts[name] or 0


def _by_name(counts: Mapping[str, Any]) -> Mapping[str, Any]:
    """The counts that a query has observed; a Spark Connect client gets the values and their names apart."""
    if set(counts) != {"values", "schema"}:
        return counts
    names = [field["name"] for field in counts["schema"]["fields"]]
    return dict(zip(names, counts["values"], strict=True))
