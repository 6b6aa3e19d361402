"""Causal order of a table at rest: `causal_sort`, with the rules of `whence.order`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, StructField, StructType

from whence.errors import MisuseError
from whence.spark.ordering.columns import (
    ADDED,
    OrderColumns,
    OrderRow,
    OrderSettings,
    arrivals,
    describe,
    in_time,
    quoted_column,
    settings_of,
)

_HELPERS = ("__at_us", "__id", "__needs", "__needs_us", "__lifetime_us", "__tie")


def causal_sort(
    table: DataFrame,
    *,
    key: str | Sequence[str] | None = None,
    id: str | None = None,  # noqa: A002 - the name that a caller expects
    depends_on: str | None = None,
    lifetime: str | timedelta | None = None,
    event_time: str | None = None,
    clock: str | None = None,
    origin: str | None = None,
    policy: str = "emit",
    lifetime_max: str | timedelta | None = None,
    remember: str | timedelta | None = None,
) -> DataFrame:
    """Give every row its place in the causal order of its key: the columns of ADDED are added.

    Without a `lifetime` the table is all there is: a row waits for whatever is in it, and goes without what
    is not. With one, the result is that of `causal_order` for a stream in order of `event_time`. Rows of one
    key must fit the memory of a worker. The result does not depend on how the table is partitioned.
    """
    if table.isStreaming:
        raise MisuseError("causal_sort", "the table is a stream", "Use causal_order for streams")
    order = describe(
        table,
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
    at_rest = lifetime is None
    settings = settings_of(order, at_rest=at_rest)
    names, schema = table.columns, sorted_schema(table.schema, order)
    arrow_schema = to_arrow_schema(schema, timezone="UTC")  # what Spark wants back, in whatever zone it is

    def sort_group(rows: pa.Table) -> pa.Table:
        return sort_rows(rows, names, settings, at_rest, arrow_schema)

    helped = table.select(*map(quoted_column, names), *helpers(order))
    return helped.groupBy(*map(quoted_column, order.key)).applyInArrow(sort_group, schema)


def helpers(order: OrderColumns) -> list[Column]:
    """The five columns of an order, under separate names; predecessors and their deadlines apart."""
    columns = (
        F.unix_micros(order.at),
        order.id,
        F.transform(order.needs, lambda need: need["id"]),
        F.transform(order.needs, lambda need: need["deadline_us"]),
        order.lifetime_us,
        order.tie,
    )
    return [column.alias(name) for name, column in zip(_HELPERS, columns, strict=True)]


def sorted_schema(schema: StructType, order: OrderColumns) -> StructType:
    """The table's columns, and what the order adds."""
    missing = StructField("missing", ArrayType(order.id_type))
    return StructType([*schema.fields, *(missing if field.name == "missing" else field for field in ADDED)])


def sort_rows(
    rows: pa.Table, names: Sequence[str], settings: OrderSettings, at_rest: bool, schema: pa.Schema
) -> pa.Table:
    """Order the rows of one key; their own columns are moved, never converted."""
    columns = [rows.column(name).to_pylist() for name in _HELPERS]
    given = [OrderRow(*row) for row in zip(*columns, range(rows.num_rows), strict=True)]
    order = settings.order()
    if at_rest:
        present = {row.id for row in given}
        order.abandon(need for row in given for need in row.needs or () if need not in present and need)
    endings = []
    for arrival in arrivals(in_time(given, settings.numeric), order):
        endings += order.offer(arrival)
    endings += order.end()
    moved = rows.select(list(names)).take(pa.array([end.payload for end in endings], pa.int64()))
    added: dict[str, list[Any]] = {
        "outcome": [end.outcome for end in endings],
        "missing": [list(map(int, end.missing)) if settings.numeric else end.missing for end in endings],
        "position": [end.position for end in endings],
        "epoch": [end.epoch_us for end in endings],
    }
    for name in ADDED.names:
        moved = moved.append_column(name, pa.array(added[name], schema.field(name).type))
    return moved.cast(schema)
