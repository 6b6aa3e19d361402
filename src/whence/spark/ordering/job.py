"""`whence stream`: a causal order from a source to a sink, with its progress and its errors made readable.

    source + ticks --> repartition by key --> one mapInArrow (`versions.order_partition`) --> sink

A query is what its checkpoint says, and the state beside it (`CHECKPOINT/whence`, or another `--state`).
Spark runs no batch without data, so there is a second source, the folder `CHECKPOINT/whence-ticks`: a file in
it carries a time, up to which all partitions end what waits. One is put there when a batch has moved time
beyond a deadline and no other batch follows, and one that is later than any by `--flush`.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

from whence.errors import DataError, MisuseError, PlatformError
from whence.order import OUTCOMES
from whence.spark.adapters import ADAPTERS, read_adapted
from whence.spark.ordering.columns import (
    describe,
    duration_us,
    nulls_of,
    ordered_schemas,
    placed_rows,
    quoted_column,
    settings_of,
)
from whence.spark.ordering.kafka import ROW_ID, as_records, is_topic, options_of, read_topic
from whence.spark.ordering.versions import TICK, StateHeader, StateStore
from whence.spark.progress import explained, spark_failures
from whence.spark.shipping import find_shipped
from whence.trace.dataset import open_place

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
STATE_FOLDER, TICKS_FOLDER = "whence", "whence-ticks"  # in a checkpoint
_END_OF_TIME_US = 253_402_214_400_000_000  # 9999-12-31
_POLL_SECONDS = 0.2
_LOOKS_PER_REPORT = 3
_QUIET_SECONDS = 1.0  # without a batch: then time moves on without one
_PLACE = "__place"


class StreamJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job: what to order, from where to where."""

    source: str
    out: str
    checkpoint: str
    state: str | None = None  # a path or URL of Arrow's; None: beside the checkpoint
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
    # After the newest batch.
    state_keys: int = 0
    state_rows: int = 0  # that wait
    state_bytes: int = 0


def _absolute(path: str) -> str:
    """A path as any process on this machine understands it: a Spark Connect server has its own folder."""
    return path if re.match(r"[A-Za-z][\w+.-]+:", path) else str(Path(path).absolute())


def run_job(
    spark: SparkSession, job: StreamJob, progress: Callable[[StreamSummary], None] | None = None
) -> StreamSummary:
    """Run until all that is there now has been read (`available_now`), or until interrupted."""
    is_path = not is_topic(job.source) and (job.source_format in FILES or job.source_format in ADAPTERS)
    job = msgspec.structs.replace(
        job,
        source=_absolute(job.source) if is_path else job.source,
        out=_absolute(job.out),
        checkpoint=_absolute(job.checkpoint),
    )
    if job.flush and not job.available_now:
        raise MisuseError("--flush", "it is for data that ends", "Give --available-now as well")
    run = _Run(spark, job)
    run.tick_if_due(run.store.newest_batch())  # what the last run left behind when it was stopped
    run.follow(progress)
    if job.flush:
        run.store.mark_flushed()
        run.tick(_END_OF_TIME_US)
        run.follow(progress)
    elif job.available_now and run.tick_if_due(run.store.newest_batch()):
        run.follow(progress)
    return run.summary


def open_source(spark: SparkSession, job: StreamJob) -> DataFrame:
    """The source as a stream, its text columns made what the order needs."""
    where = f"{job.source_format} at {job.source}"
    if job.source_format in FILES and ":/" not in job.source and not Path(job.source).exists():
        raise DataError(where, "there is no such folder", "Check the path")
    if is_topic(job.source):
        return _typed(read_topic(spark, job.source, job.source_options, job.schema), job)
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


class _Run:
    """One run of a job: its query, and the time that passes without rows."""

    def __init__(self, spark: SparkSession, job: StreamJob) -> None:
        self.spark, self.job = spark, job
        self.summary, self._began = StreamSummary(), time.monotonic()
        self._root = job.state or f"{job.checkpoint}/{STATE_FOLDER}"
        self.store = StateStore(self._root)
        self._delay_us = duration_us("delay", job.order.get("delay", "0s"))
        if self.store.is_flushed() and not job.flush:
            raise MisuseError(
                f"checkpoint {job.checkpoint}",
                "its order has ended: it was flushed",
                "Begin another checkpoint and another out folder; or repeat the command with --flush",
            )
        self._columns = {name: value for name, value in job.order.items() if name != "delay"}
        stream = open_source(spark, job)
        header = StateHeader(
            query={name: _as_text(value) for name, value in job.order.items() if value is not None},
            columns=stream.schema.simpleString(),
            partitions=int(spark.conf.get("spark.sql.shuffle.partitions")),  # type: ignore[arg-type]
        )
        describe(stream, **self._columns)  # the first mistake is told before anything is written
        self._ticks = f"{job.checkpoint}/{TICKS_FOLDER}"
        if self.store.header() is None:
            self._write_tick(None)
        known = self.store.begin(header, fresh=_is_fresh(job.checkpoint))
        self._partitions = known.partitions
        self._maker = hashlib.sha256(msgspec.json.encode(known)).hexdigest()[:16]

    # Time without rows

    def tick_if_due(self, batch: int | None) -> bool:
        """Let time pass, if rows wait that have waited long enough by the times of a batch."""
        due_us = None if batch is None else self.store.due_us(batch, self._partitions, self._delay_us)
        if due_us is not None:
            self.tick(due_us)
        return due_us is not None

    def tick(self, until_us: int) -> None:
        """Let time pass in all partitions, in the next batch."""
        self._write_tick(until_us)

    def _write_tick(self, until_us: int | None) -> None:
        """Readers see a file whole or not at all. None: the folder alone, without which Spark reads nothing.

        Where the state is in the checkpoint, we see that as well; else Spark alone does, and needs a job.
        """
        if self.job.state is None:
            StateStore(self._ticks).put_tick(until_us)
            return
        with spark_failures(f"checkpoint {self.job.checkpoint}", "Check the path and its permissions"):
            ticks = self.spark.range(1 if until_us is not None else 0).coalesce(1)
            ticks.select(F.lit(until_us).cast("bigint").alias("us")).write.mode("append").json(self._ticks)

    # The query

    def start(self) -> StreamingQuery:
        """Start the query."""
        ordered = self._ordered(open_source(self.spark, self.job))
        with _every_partition_runs(self.spark):
            return _write(ordered, self.job)

    def _ordered(self, stream: DataFrame) -> DataFrame:
        """The rows in order: those of a key to one partition, a tick to all."""
        order = describe(stream, **self._columns)
        (schema, arrow_schema), count = ordered_schemas(stream.schema, order), self._partitions
        task = {
            "root": self._root,
            "maker": self._maker,
            "partitions": count,
            "retain": int(self.spark.conf.get("spark.sql.streaming.minBatchesToRetain")),  # type: ignore[arg-type]
            "delay_us": self._delay_us,
            "settings": tuple(settings_of(order)),
        }
        if is_topic(self.job.out):
            task["ids"] = ROW_ID
            schema = StructType([*schema.fields, StructField(ROW_ID, StringType())])

        def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            find_shipped()
            from whence.spark.ordering.versions import order_partition

            yield from order_partition(batches, task, arrow_schema)

        rows = placed_rows(stream, order, count, _PLACE).withColumn(TICK, F.lit(None).cast("bigint"))
        ticks = self.spark.readStream.schema("us bigint").json(self._ticks, pathGlobFilter="*.json")
        everywhere = F.explode(F.sequence(F.lit(0), F.lit(count - 1))).alias(_PLACE)
        nothing = nulls_of(rows, _PLACE, TICK)
        both = rows.unionByName(ticks.select(*nothing, F.col("us").alias(TICK), everywhere))
        return both.repartitionById(count, F.col(_PLACE)).drop(_PLACE).mapInArrow(step, schema)

    def follow(self, progress: Callable[[StreamSummary], None] | None) -> None:
        """Run the query to its end, and add up what it reports of each batch."""
        query, job = self.start(), self.job
        seen: set[int] = set()
        quiet_since, ticked, looks = time.monotonic(), -1, 0
        what = f"query from {job.source} to {job.out}"
        fix = "Fix the cause and give the same command again: it goes on where it was"
        with spark_failures(what, fix):  # even a question fails when the JVM is gone
            ended = False
            try:
                while not ended:
                    active, looks = query.isActive, looks + 1
                    # Asking for reports is dear: seldom, and for all of them only if there is a new one.
                    is_time = looks % _LOOKS_PER_REPORT == 0
                    is_due = is_time and _batch_of(query.lastProgress) not in {None, *seen}
                    for batch in map(_batch_of, query.recentProgress if is_due or not active else ()):
                        if batch is not None and batch not in seen:
                            seen.add(batch)
                            quiet_since = time.monotonic()
                            self._add(batch)
                    self._tell(progress)
                    newest, now = max(seen, default=-1), time.monotonic()
                    if not job.available_now and newest > ticked and now - quiet_since > _QUIET_SECONDS:
                        self.tick_if_due(newest)
                        ticked = newest
                    ended = not active
                    time.sleep(0 if ended else _POLL_SECONDS)
            finally:
                if not ended:  # interrupted: let the batch under way be done again at the next start
                    query.stop()
            error = query.exception()
        if error is not None:
            raise explained(error, what, fix) from error

    def _tell(self, progress: Callable[[StreamSummary], None] | None) -> None:
        summary = self.summary
        summary.seconds = time.monotonic() - self._began
        summary.rows_per_second = summary.rows_in / summary.seconds if summary.seconds else 0.0
        if progress is not None:
            progress(summary)

    def _add(self, batch: int) -> None:
        """What the tasks of a batch have counted: Spark's own numbers are of requests and whole logs."""
        summary, sizes = self.summary, self.store.sizes(batch)
        summary.batches += 1
        for each in (size.counts for size in sizes):
            summary.rows_in += each.rows_in
            summary.rows_out += sum(each.outcomes.values())
            summary.unplaced += each.unplaced
            for name, count in each.outcomes.items():
                summary.outcomes[name] += count
        summary.state_keys = sum(size.keys for size in sizes)
        summary.state_rows = sum(size.waiting for size in sizes)
        summary.state_bytes = sum(size.state_bytes for size in sizes)


@contextmanager
def _every_partition_runs(spark: SparkSession) -> Iterator[None]:
    """Queries that start within run their tasks even for a batch without rows, which writes its state, too.

    Adaptive execution would leave them out. A query keeps the settings that it was started with.
    """
    adaptive = "spark.sql.adaptive.enabled"
    was = str(spark.conf.get(adaptive))
    spark.conf.set(adaptive, "false")
    try:
        yield
    finally:
        spark.conf.set(adaptive, was)


def _batch_of(report: Mapping[str, Any] | None) -> int | None:
    """The batch that Spark reports; it also reports that there was nothing to do, without one."""
    return int(report["batchId"]) if report is not None and "addBatch" in report["durationMs"] else None


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()


def _is_fresh(checkpoint: str) -> bool:
    """Whether a checkpoint has no batch yet; one that Arrow cannot see may be either."""
    try:
        files, base = open_place(checkpoint)
        listed: Any = files.get_file_info(fs.FileSelector(f"{base}/offsets", allow_not_found=True))
    except (PlatformError, OSError):
        return True
    return not any(str(info.base_name).isdigit() for info in listed)


def _write(table: DataFrame, job: StreamJob) -> StreamingQuery:
    if is_topic(job.out):
        key = job.order.get("key") or ()
        table = as_records(table, (key,) if isinstance(key, str) else key)
    elif job.out_format == "csv":
        table = _flat(table, job.separator)
    writer = table.writeStream.format(job.out_format).outputMode("append")
    if job.out_format == "csv":
        writer = writer.option("header", "true")
    writer = writer.option("checkpointLocation", job.checkpoint)
    writer = (
        writer.trigger(availableNow=True) if job.available_now else writer.trigger(processingTime=job.every)
    )
    with spark_failures(f"query to {job.out}", "Check the out folder and the checkpoint"):
        if is_topic(job.out):
            return writer.format("kafka").options(**options_of(job.out, source=False)).start()
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
