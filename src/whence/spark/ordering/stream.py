"""Causal order of a stream: `causal_order`, an operator for Structured Streaming.

    key, id, predecessors, lifetime, time --> one row per row, with outcome, missing, position, epoch

The rules are those of `whence.order`; this module carries buckets of them (`buckets`) into
`transformWithState`:

    rows --mapInArrow--> one Arrow blob per bucket --transformWithState--> a blob --mapInArrow--> rows

so that Spark makes a Python object and reads a state for each bucket, and not for each cell and key. What
Spark makes difficult, and what is done about it (docs/stream.md):

- Rows older than the watermark are dropped by Spark before an operator sees them, without a word. The
  watermark is therefore taken from the stream, and then the column that carries it is left behind: no row
  is dropped, and one that is too old ends as `late`.
- Rows of a batch come in any order: they are sorted by time first. Between them the clock of the key is
  their own time, not the batch's, so that batch boundaries do not decide what expires.
- One timer per bucket wakes it; it may be early, never late, so it is moved only when it has to be.
- At the end of the data nothing moves the watermark. `flush` is a second stream, of times: the watermark
  takes note of them, the order does not see them.

`BucketOrderer` is sent as code (`shipping.by_value`): the bodies of its methods name nothing of the package
but what they import. `whence stream` keeps its buckets in another way, as `versions`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from typing import Any, Unpack

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from whence.errors import MisuseError, missing_extra
from whence.spark.ordering.columns import (
    OrderOptions,
    OrderSettings,
    describe,
    duration_us,
    nulls_of,
    ordered_schemas,
    placed_rows,
    settings_of,
)
from whence.spark.shipping import by_value, find_shipped

by_value(__name__)

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
BUCKETS = 32

_BUCKET, _AT, _IS_ROW = "__bucket", "__at", "__is_row"
_PACKED = "bucket int, blob binary"
_ENDED = StructType([StructField("blob", BinaryType())])
_STATE = StructType([StructField("blob", BinaryType()), StructField("timer_ms", LongType())])


class BucketOrderer(StatefulProcessor):
    """The orders of the keys of each bucket.

    Spark calls the timer's callback by keyword and its tester by position: names and order are Spark's own.
    """

    def __init__(self, settings: OrderSettings, schema: pa.Schema, maker: str) -> None:
        # Without their class, which the driver's Python need not have.
        self._fields: tuple[Any, ...] = tuple(settings)
        self._schema, self._maker = schema, maker

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called once by Spark, before anything else."""
        self._handle = handle
        self._state = handle.getValueState("bucket", _STATE)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        """The rows of one bucket in one batch: a blob from each partition."""
        find_shipped()
        from whence.spark.ordering.buckets import from_bytes

        given = pa.concat_tables([from_bytes(bytes(row.blob)) for row in rows])
        return self._step(given.combine_chunks(), timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        """The watermark has passed the time for which the bucket's timer was set."""
        return self._step(None, timerValues)

    def _step(self, rows: pa.Table | None, timer_values: Any) -> Iterator[Row]:
        find_shipped()
        from whence.spark.ordering.buckets import Bucket, to_bytes
        from whence.spark.ordering.columns import OrderSettings

        stored = self._state.get()
        saved, timer_ms = ([bytes(stored[0])], stored[1]) if stored is not None else ([], None)
        bucket = Bucket(OrderSettings(*self._fields), self._schema, self._maker, saved)
        watermark_ms = timer_values.getCurrentWatermarkInMs()
        if timer_ms is not None and timer_ms <= watermark_ms:
            timer_ms = None  # it fires now, or has fired
        ended = bucket.step(rows, 1000 * watermark_ms)
        if not bucket.keys:
            if stored is not None:
                self._state.clear()
        else:
            self._state.update((bucket.save(), self._timer(bucket.wake_us, timer_ms)))
        return iter([Row(blob=to_bytes(ended))] if ended.num_rows else [])

    def _timer(self, wake_us: int | None, timer_ms: int | None) -> int | None:
        """A timer must fire as soon as something can happen, or when all of a key is forgotten."""
        wanted_ms = None if wake_us is None else wake_us // 1000 + 1
        if wanted_ms is None or (timer_ms is not None and timer_ms <= wanted_ms):
            return timer_ms
        if timer_ms is not None:
            self._handle.deleteTimer(timer_ms)
        self._handle.registerTimer(wanted_ms)
        return wanted_ms


def causal_order(
    stream: DataFrame,
    *,
    lifetime: str | timedelta,
    delay: str | timedelta = "0s",
    flush: DataFrame | None = None,
    buckets: int = BUCKETS,
    **options: Unpack[OrderOptions],
) -> DataFrame:
    """Put the rows of a stream into causal order, per key.

    A row is known by its `id` and names its predecessors in `depends_on` (an array of ids, or of structs of
    id and deadline), or it carries a vector `clock` of its `origin`. It waits for them until its
    `event_time` plus its `lifetime` (a duration, or a column of seconds or intervals); then `policy` says
    whether it is emitted without them or dropped, that is: given out without a position. `event_time`
    should be the time of arrival; without one it is the time of the batch. `delay`: how far the watermark
    stays behind the newest time of all keys; a key whose rows lag behind another's waits that much longer.

    `lifetime_max`: the largest lifetime, if they differ. `remember`: how long after its end an id is known,
    the largest lifetime by default. `flush`: a stream with one column of timestamps; the order goes on as
    if a row of that time had come. `buckets`: into how many parts of the state the keys are put, and so how
    many tasks can share them; it is fixed for a checkpoint.
    """
    if not stream.isStreaming:
        raise MisuseError("causal_order", "the table is not a stream", "Use causal_sort for tables at rest")
    try:
        import_module("google.protobuf")  # Spark's state protocol needs it, and would say so late and darkly
    except ImportError as error:
        raise missing_extra("causal_order", "protobuf", "spark") from error
    if buckets < 1:
        raise MisuseError(f"buckets={buckets}", "there must be one", "Give at least 1")
    order = describe(stream, lifetime=lifetime, **options)
    session = stream.sparkSession
    if "RocksDB" not in str(session.conf.get(_PROVIDER, "")):
        session.conf.set(_PROVIDER, ROCKSDB)  # transformWithState runs on no other
    (schema, arrow_schema), settings = ordered_schemas(stream.schema, order), settings_of(order)
    rows = placed_rows(stream, order, buckets, _BUCKET).withColumn(_AT, order.at)
    timed = _timed(rows, flush, f"{duration_us('delay', delay)} microseconds")
    said = (
        f"{buckets} buckets by {', '.join(order.key) or 'no key'}, {settings}, {stream.schema.simpleString()}"
    )
    ended = (
        timed.mapInArrow(_pack, _PACKED)
        .groupBy("bucket")
        .transformWithState(
            statefulProcessor=BucketOrderer(settings, arrow_schema, said),
            outputStructType=_ENDED,
            outputMode="append",
            timeMode="eventtime",
        )
    )
    return ended.mapInArrow(_unpack, schema)


def _pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of each bucket as one blob."""
    find_shipped()
    from whence.spark.ordering.buckets import to_bytes

    held = list(batches)
    if not held:
        return
    rows = pa.Table.from_batches(held).combine_chunks()
    buckets = rows.column(_BUCKET).to_numpy()
    places = np.argsort(buckets, kind="stable")
    found, firsts = np.unique(buckets[places], return_index=True)
    moved = rows.drop_columns([_BUCKET]).take(places)
    for bucket, first, last in zip(found, firsts, [*firsts[1:], len(places)], strict=True):
        blob = to_bytes(moved.slice(first, last - first))
        yield pa.RecordBatch.from_pydict(
            {"bucket": pa.array([bucket], pa.int32()), "blob": pa.array([blob], pa.binary())}
        )


def _unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of blobs."""
    find_shipped()
    from whence.spark.ordering.buckets import from_bytes

    for batch in batches:
        for blob in batch.column(0):
            yield from from_bytes(blob.as_buffer()).to_batches()


def _timed(rows: DataFrame, flush: DataFrame | None, delay: str) -> DataFrame:
    """Let times move the watermark, and then hide them from Spark, which would drop what is older."""
    marked = rows.withColumn(_IS_ROW, F.lit(True))
    if flush is not None:
        if not flush.isStreaming or len(flush.columns) != 1:
            raise MisuseError("flush", "it is not a stream of one column", "Give a stream of timestamps")
        times = flush.select(
            *nulls_of(marked, _AT, _IS_ROW),
            F.col(flush.columns[0]).cast("timestamp").alias(_AT),
            F.lit(False).alias(_IS_ROW),
        )
        marked = marked.unionByName(times)
    # The condition names the time: Spark would move any other filter to where the watermark does not see
    # the row.
    kept = marked.withWatermark(_AT, delay).where(f"{_IS_ROW} or {_AT} is null")
    return kept.drop(_AT, _IS_ROW)
