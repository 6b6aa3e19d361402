"""Causal order of a stream: `causal_order`, an operator for Structured Streaming.

    key, id, predecessors, lifetime, time --> one row per row, with outcome, missing, position, epoch

The rules are those of `whence.order`; this module carries them into `transformWithState`. What Spark makes
difficult, and what is done about it (docs/stream.md):

- Rows older than the watermark are dropped by Spark before an operator sees them, without a word. The
  watermark is therefore taken from the stream, and then the column that carries it is left behind: no row
  is dropped, and one that is too old ends as `late`.
- Rows of a batch come in any order: they are sorted by time first. Between them the clock of the key is
  their own time, not the batch's, so that batch boundaries do not decide what expires.
- One timer per key wakes it; it may be early, never late, so it is moved only when it has to be.
- At the end of the data nothing moves the watermark. `flush` is a second stream, of times: the watermark
  takes note of them, the order does not see them.
- State is one blob per key, because each access to Spark's state is a message to the JVM. What a row
  carries is JSON in it, made and read by the JVM.

`Orderer` is sent as code (`shipping.by_value`): the bodies of its methods name nothing of the package but
what they import.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from importlib import import_module
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from whence.errors import MisuseError, SchemaError, missing_extra
from whence.order import CausalOrder, Ending
from whence.spark.ordering.columns import (
    OrderColumns,
    OrderSettings,
    describe,
    duration_us,
    quoted_column,
    settings_of,
)
from whence.spark.shipping import by_value, find_shipped

by_value(__name__)

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"

_ENDED = StructType(
    [
        StructField("payload", StringType()),
        StructField("outcome", StringType()),
        StructField("missing", ArrayType(StringType())),
        StructField("position", LongType()),
        StructField("epoch_us", LongType()),
    ]
)
# Types that survive the way into JSON and back. Without these options times would lose their microseconds,
# and maps their null values.
_PLAIN = {
    "string", "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "binary", "date",
    "timestamp", "timestamp_ntz",
}  # fmt: skip
_JSON = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "false",
}
_STATE = StructType([StructField("blob", BinaryType()), StructField("timer_ms", LongType())])


class Orderer(StatefulProcessor):
    """The order of each key.

    Spark calls the timer's callback by keyword and its tester by position: names and order are Spark's own.
    """

    def __init__(self, settings: OrderSettings) -> None:
        # Without their class, which the driver's Python need not have.
        self._fields: tuple[Any, ...] = tuple(settings)

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called once by Spark, before anything else."""
        self._handle = handle
        self._state = handle.getValueState("order", _STATE)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        """The rows of one key in one batch."""
        find_shipped()
        from whence.spark.ordering.columns import OrderRow, arrivals, in_time

        order, timer_ms = self._load()
        given = [
            OrderRow(row.at_us, row.id, row.needs, row.needs_us, row.lifetime_us, row.tie, row.payload)
            for row in rows
        ]
        endings: list[Ending] = []
        for arrival in arrivals(in_time(given, self._settings.numeric), order):
            endings += order.offer(arrival)
        self._keep(order, timer_ms)
        return _rows(endings)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        """The watermark has passed the time for which the key's timer was set."""
        order, _ = self._load()
        endings = order.advance(1000 * timerValues.getCurrentWatermarkInMs())
        if order.is_idle:
            self._state.clear()
        else:
            self._keep(order, None)
        return _rows(endings)

    @property
    def _settings(self) -> OrderSettings:
        find_shipped()
        from whence.spark.ordering.columns import OrderSettings

        return OrderSettings(*self._fields)

    def _load(self) -> tuple[CausalOrder, int | None]:
        stored = self._state.get()
        if stored is None:
            return self._settings.order(), None
        return self._settings.order(bytes(stored[0])), stored[1]

    def _keep(self, order: CausalOrder, timer_ms: int | None) -> None:
        """Save the order; a timer must fire as soon as something can happen, or when all is forgotten."""
        next_us = order.next_deadline_us
        if next_us is None and not self._settings.vector:
            next_us = order.forgotten_us
        wanted_ms = None if next_us is None else next_us // 1000 + 1
        if wanted_ms is not None and (timer_ms is None or wanted_ms < timer_ms):
            if timer_ms is not None:
                self._handle.deleteTimer(timer_ms)
            self._handle.registerTimer(wanted_ms)
            timer_ms = wanted_ms
        self._state.update((order.save(), timer_ms))


def _rows(endings: Iterable[Ending]) -> Iterator[Row]:
    return iter(
        [
            Row(
                payload=end.payload,
                outcome=end.outcome,
                missing=end.missing,
                position=end.position,
                epoch_us=end.epoch_us,
            )
            for end in endings
        ]
    )


def causal_order(
    stream: DataFrame,
    *,
    lifetime: str | timedelta,
    key: str | Sequence[str] | None = None,
    id: str | None = None,  # noqa: A002 - the name that a caller expects
    depends_on: str | None = None,
    event_time: str | None = None,
    clock: str | None = None,
    origin: str | None = None,
    policy: str = "emit",
    lifetime_max: str | timedelta | None = None,
    remember: str | timedelta | None = None,
    delay: str | timedelta = "0s",
    flush: DataFrame | None = None,
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
    if a row of that time had come.
    """
    if not stream.isStreaming:
        raise MisuseError("causal_order", "the table is not a stream", "Use causal_sort for tables at rest")
    try:
        import_module("google.protobuf")  # Spark's state protocol needs it, and would say so late and darkly
    except ImportError as error:
        raise missing_extra("causal_order", "protobuf", "spark") from error
    order = describe(
        stream,
        key=key,
        id_=id,
        depends_on=depends_on,
        lifetime=lifetime,
        event_time=event_time,
        clock=clock,
        origin=origin,
        policy=policy,
        lifetime_max=lifetime_max,
        remember=remember,
    )
    for field in stream.schema.fields:
        _require_plain(field.name, field.dataType)
    session = stream.sparkSession
    if "RocksDB" not in str(session.conf.get(_PROVIDER, "")):
        session.conf.set(_PROVIDER, ROCKSDB)  # transformWithState runs on no other
    rows = _timed(packed(stream, order), flush, f"{duration_us('delay', delay)} microseconds")
    keys = [f"key{at}" for at in range(max(1, len(order.key)))]
    ended = rows.groupBy(*keys).transformWithState(
        statefulProcessor=Orderer(settings_of(order)),
        outputStructType=_ENDED,
        outputMode="append",
        timeMode="eventtime",
    )
    return unpacked(ended, stream.schema, order)


def packed(stream: DataFrame, order: OrderColumns) -> DataFrame:
    """The keys, an order's columns, and all of a row as one JSON text."""
    keys = [quoted_column(name).alias(f"key{at}") for at, name in enumerate(order.key)]
    return stream.select(
        *(keys or [F.lit(0).alias("key0")]),
        order.at.alias("at"),
        order.id.alias("id"),
        F.transform(order.needs, lambda need: need["id"]).alias("needs"),
        F.transform(order.needs, lambda need: need["deadline_us"]).alias("needs_us"),
        order.lifetime_us.alias("lifetime_us"),
        order.tie.alias("tie"),
        F.to_json(F.struct(*map(quoted_column, stream.columns)), _JSON).alias("payload"),
    )


def unpacked(ended: DataFrame, schema: StructType, order: OrderColumns) -> DataFrame:
    """The rows as they were, with what the order adds."""
    # A required field would be read as null by from_json, and says so: the columns are taken as nullable.
    fields = StructType([StructField(field.name, field.dataType) for field in schema.fields])
    row = F.from_json("payload", fields, _JSON)
    return ended.select(
        row.alias("row"),
        "outcome",
        F.col("missing").cast(ArrayType(order.id_type)).alias("missing"),
        "position",
        F.timestamp_micros("epoch_us").alias("epoch"),
    ).select("row.*", "outcome", "missing", "position", "epoch")


def _timed(rows: DataFrame, flush: DataFrame | None, delay: str) -> DataFrame:
    """Let times move the watermark, and then hide them from Spark, which would drop what is older."""
    marked = rows.withColumn("is_row", F.lit(True))
    if flush is not None:
        if not flush.isStreaming or len(flush.columns) != 1:
            raise MisuseError("flush", "it is not a stream of one column", "Give a stream of timestamps")
        nothing = [
            F.lit(None).cast(field.dataType).alias(field.name)
            for field in marked.schema.fields
            if field.name not in ("at", "is_row")
        ]
        times = flush.select(
            *nothing, F.col(flush.columns[0]).cast("timestamp").alias("at"), F.lit(False).alias("is_row")
        )
        marked = marked.unionByName(times)
    # The condition names the time: Spark would move any other filter to where the watermark does not see
    # the row.
    kept = marked.withWatermark("at", delay).where("is_row or at is null")
    return kept.withColumn("at_us", F.unix_micros("at")).drop("at", "is_row")


def _require_plain(name: str, kind: DataType) -> None:
    if isinstance(kind, ArrayType):
        _require_plain(name, kind.elementType)
    elif isinstance(kind, StructType):
        for field in kind.fields:
            _require_plain(f"{name}.{field.name}", field.dataType)
    elif isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        _require_plain(name, kind.valueType)
    elif kind.simpleString() not in _PLAIN and not kind.simpleString().startswith("decimal"):
        raise SchemaError(
            f"column {name!r}",
            f"a row of type {kind.simpleString()} cannot be held back",
            "Cast or drop it first",
        )
