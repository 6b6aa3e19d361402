"""Causal order of a table at rest: `causal_sort`, with the rules of `whence.order`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Unpack

import pyarrow as pa
from pyspark.sql import DataFrame

from whence.errors import MisuseError
from whence.spark.ordering.columns import (
    GivenRows,
    OrderOptions,
    OrderSettings,
    describe,
    helpers,
    moved,
    ordered_schemas,
    quoted_column,
    settings_of,
)


def causal_sort(
    table: DataFrame, *, lifetime: str | timedelta | None = None, **options: Unpack[OrderOptions]
) -> DataFrame:
    """Give every row its place in the causal order of its key: the columns of ADDED are added.

    Without a `lifetime` the table is all there is: a row waits for whatever is in it, and goes without what
    is not. With one, the result is that of `causal_order` for a stream in order of `event_time`. Rows of one
    key must fit the memory of a worker. The result does not depend on how the table is partitioned.
    """
    if table.isStreaming:
        raise MisuseError("causal_sort", "the table is a stream", "Use causal_order for streams")
    order = describe(table, lifetime=lifetime, **options)
    at_rest = lifetime is None
    settings = settings_of(order, at_rest=at_rest)
    names, (schema, arrow_schema) = table.columns, ordered_schemas(table.schema, order)

    def sort_group(rows: pa.Table) -> pa.Table:
        return sort_rows(rows, names, settings, at_rest, arrow_schema)

    helped = table.select(*map(quoted_column, names), *helpers(order))
    return helped.groupBy(*map(quoted_column, order.key)).applyInArrow(sort_group, schema)


def sort_rows(
    rows: pa.Table, names: Sequence[str], settings: OrderSettings, at_rest: bool, schema: pa.Schema
) -> pa.Table:
    """Order the rows of one key."""
    given, order = GivenRows(rows, settings), settings.order()
    if at_rest:
        present = set(given.ids)
        order.abandon(need for need in given.needs if need and need not in present)
    endings = []
    for row in given.in_time:
        endings += order.offer(given.arrival(row, order, row))
    endings += order.end()
    return moved(rows.select(list(names)), [end.payload for end in endings], endings, settings, schema)
