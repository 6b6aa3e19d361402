"""One row of figures for each run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DoubleType

from whence.spark.metrics.columns import (
    NEVER,
    Array,
    Values,
    changes,
    column,
    encoded,
    filled,
    numbers,
    whole,
)
from whence.spark.metrics.latency import joined
from whence.spark.metrics.nodes import work
from whence.spark.metrics.traffic import figures, totals
from whence.spark.tables import LATENCY_MEASURES, NODE_COUNTS, NODE_PEAKS, PARTS, SUMMARY, columns_of

SHARES = (0.5, 0.99)
_DOUBLES = pa.list_(pa.float64())


def summary(events: DataFrame) -> DataFrame:
    """SUMMARY: traffic, latency statistics and buffer peaks of each run.

    Percentiles are exact (interpolated between the two nearest values), and means are exact sums divided
    once, so that the figures do not depend on how Spark split the data. `held_share` is the share of
    remote deliveries that waited after their first reception.
    """
    parts = work(events).mapInArrow(_parts, PARTS)
    statistics = [each for measure in LATENCY_MEASURES for each in _statistics(measure)]
    by_run = parts.groupBy("run").agg(
        *totals(),
        *(F.max(name).alias(f"{name}_max") for name in NODE_PEAKS),
        *statistics,
        F.try_divide(F.sum("waited"), F.sum("held_count")).alias("held_share"),
    )
    percentiles = arrow_udf(_percentiles, ArrayType(DoubleType()), ArrowUDFType.SCALAR)
    for measure in LATENCY_MEASURES:
        all_of_them = percentiles(F.flatten(f"{measure}_values"), F.flatten(f"{measure}_counts"))
        by_run = by_run.withColumn(f"{measure}_percentiles", all_of_them)
    for measure in LATENCY_MEASURES:
        both = F.col(f"{measure}_percentiles")
        by_run = by_run.withColumn(f"{measure}_p50_us", both[0]).withColumn(f"{measure}_p99_us", both[1])
    return figures(by_run).select(columns_of(SUMMARY))


def _statistics(measure: str) -> list[Column]:
    return [
        F.try_divide(F.sum(f"{measure}_sum"), F.sum(f"{measure}_count")).alias(f"{measure}_mean_us"),
        F.max(f"{measure}_max").alias(f"{measure}_max_us"),
        F.collect_list(f"{measure}_values").alias(f"{measure}_values"),
        F.collect_list(f"{measure}_counts").alias(f"{measure}_counts"),
    ]


def _parts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for table in whole(batches, ("run", "bucket")):
        of_copies = pc.is_valid(table.column("bucket"))
        nodes, copies = table.filter(pc.invert(of_copies)), table.filter(of_copies)
        yield filled({name: column(nodes, name) for name in ("run", *NODE_COUNTS, *NODE_PEAKS)}, PARTS)
        yield _occurrences(copies)


def _occurrences(table: pa.Table) -> pa.RecordBatch:
    """For each run in a table of COPIES, how often each latency occurs."""
    found = joined(table)
    measures = {name: found.measure(name) for name in LATENCY_MEASURES}
    first = changes(encoded(column(table, "run")).code)
    begins = [*np.searchsorted(found.row, first), len(found.row)]
    rows: list[dict[str, Any]] = []
    for begin, end in pairwise(begins):
        row: dict[str, Any] = {}
        for name, values in measures.items():
            known = values[begin:end]
            known = known[known != NEVER]
            distinct, counts = np.unique(known, return_counts=True)
            row |= {f"{name}_sum": int(known.sum()), f"{name}_count": len(known)}
            row |= {f"{name}_max": int(distinct[-1]) if len(distinct) else None}
            row |= {f"{name}_values": distinct, f"{name}_counts": counts}
            if name == "held":
                row["waited"] = int(np.count_nonzero(known > 0))
        rows.append(row)
    types = {field.name: field.type for field in to_arrow_schema(PARTS)}
    columns = {name: pa.array([row[name] for row in rows], types[name]) for name in (rows or [{}])[0]}
    return filled({"run": column(table, "run").take(first)} | columns, PARTS)


def _percentiles(values: Values, counts: Values) -> Values:
    """For each row the percentiles of values that occur so often; null where there are none."""
    rows = zip(values, counts, strict=True)
    return pa.array([_shares(numbers(each.values), numbers(times.values)) for each, times in rows], _DOUBLES)


def _shares(values: Array, counts: Array) -> list[float] | None:
    """Linear between the two nearest ranks, in the arithmetic of Spark's own `percentile`."""
    if not len(values):
        return None
    order = np.argsort(values)
    values, ranks = values[order], np.cumsum(counts[order])  # one value may be there more than once
    found = []
    for share in SHARES:
        position = (int(ranks[-1]) - 1) * share
        low, high = math.floor(position), math.ceil(position)
        below, above = (float(values[np.searchsorted(ranks, rank + 1)]) for rank in (low, high))
        found.append(below if below == above else (high - position) * below + (position - low) * above)
    return found
