"""PACKED: many events of one node in a row of lists; what all measures of nodes and messages begin with.

A flat table has a row per event, and a shuffle, a sort or a join of rows costs a microsecond each. So events
are packed where they lie, before anything is shuffled, and unpacked as whole columns in the task that has all
of a node's events. A trace at rest is packed already.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from whence.errors import SchemaError
from whence.spark.cores import cores_of, is_remote
from whence.spark.metrics.between import PACKED
from whence.spark.metrics.columns import (
    Array,
    changes,
    column,
    combined,
    encoded,
    filled,
    lists,
    name_lists,
    numbered,
    numbers,
)
from whence.spark.session import is_local
from whence.spark.tables import EVENTS, SEGMENTS, require

_NUMBERS = ("seq", "time_us", "kind", "number", "total_bytes", "control_bytes")
_REQUIRED = ("run", "node", "seq", "time_us", "kind", "number")
_FLAT = ["run", "node", *_NUMBERS, "origin", "detail"]
_PACK_EVENTS = 1 << 18  # events that are packed together: enough that rows are long if nodes are mixed
_STRETCH_MIN = 64  # shorter rows are worth a sort


def packed(events: DataFrame) -> DataFrame:
    """PACKED rows of EVENTS, or of SEGMENTS without the detour over the flat view.

    All rows of a node are in one partition, one after the other.
    """
    if "first_seq" in events.columns:
        require(events, SEGMENTS, "segments")
        seq = F.lit(None).cast("array<bigint>").alias("seq")
        rows = events.where("events > 0").select(*(seq if name == "seq" else name for name in PACKED.names))
    else:
        require(events, EVENTS, "events")
        rows = events.select(*_FLAT).mapInArrow(_pack, PACKED)
    return together(rows, "run", "node").sortWithinPartitions("run", "node", "first_seq")


def together(rows: DataFrame, *keys: str) -> DataFrame:
    """All rows with equal keys in one partition; results must not depend on how many there are.

    Embedded, there is one for each core: rows are few and long, and a task that calls Python costs some 50 ms
    whatever it does. Elsewhere Spark knows better.
    """
    session = rows.sparkSession
    if is_remote(session) or not is_local(str(session.sparkContext.master)):
        return rows.repartition(*keys)
    configured = int(session.conf.get("spark.sql.shuffle.partitions") or 1)
    return rows.repartition(min(cores_of(session), configured), *keys)


def _pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(each.num_rows for each in waiting) >= _PACK_EVENTS:
            yield _packed_rows(pa.Table.from_batches(waiting))
            waiting = []
    if waiting:
        yield _packed_rows(pa.Table.from_batches(waiting))


def _packed_rows(flat: pa.Table) -> pa.RecordBatch:
    """One row for each stretch of events of one node."""
    for name in _REQUIRED:
        if flat.column(name).null_count:
            raise SchemaError(
                f"table 'events', column {name!r}", "it has nulls", "See the columns in docs/trace-format.md"
            )
    first, table = _stretches(flat.combine_chunks())
    row = numbered(first, table.num_rows)
    offsets = np.append(first, table.num_rows)
    origin = encoded(column(table, "origin"))
    schema = to_arrow_schema(PACKED)
    names, index = name_lists(row, origin.code, len(first), origin.texts, schema.field("names").type)
    made = {name: column(table, name).take(first) for name in ("run", "node")}
    made |= {
        "first_seq": column(table, "seq").take(first),
        "names": names,
        "origin": lists(offsets, index, schema.field("origin").type),
    }
    for name in (*_NUMBERS, "detail"):
        values = column(table, name)
        if name in ("total_bytes", "control_bytes"):
            values = values.fill_null(0)
        made[name] = lists(offsets, values, schema.field(name).type)
    return filled(made, PACKED)


def _stretches(table: pa.Table) -> tuple[Array, pa.Table]:
    """Where a new row begins; the events are sorted first if their nodes are mixed."""
    run, node = (encoded(column(table, name)).code for name in ("run", "node"))
    first = changes(run, node)
    if len(first) * _STRETCH_MIN <= table.num_rows or len(first) == 1:
        return first, table
    place = combined(run, node)
    order = np.lexsort((numbers(column(table, "seq")), place))
    return changes(place[order]), table.take(order)
