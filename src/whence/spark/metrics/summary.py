"""How long messages travel and are held back for the sake of order; and one row of figures for each run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from whence.spark.metrics.events import (
    COPIES,
    NEVER,
    NODE_COUNTS,
    NODE_PEAKS,
    PARTS,
    WHOLES,
    Array,
    Values,
    changes,
    codes_of_lists,
    column,
    combined,
    encoded,
    filled,
    nullable,
    numbered,
    numbers,
    unblobbed,
    whole,
)
from whence.spark.metrics.nodes import copies as copies_of
from whence.spark.metrics.nodes import work
from whence.spark.metrics.wire import figures
from whence.spark.tables import LATENCY, LATENCY_MEASURES, SUMMARY, columns_of

SHARES = (0.5, 0.99)
_LOWEST = np.iinfo(np.int64).min


def latencies(events: DataFrame) -> DataFrame:
    """LATENCY: one row for each message at each node other than its origin that received or delivered it.

    reception_us   first RECEIVE there - BROADCAST; null unless the run recorded receptions (Level.ALL)
    delivery_us    DELIVER there - BROADCAST; null if it was not delivered there
    held_us        DELIVER - first RECEIVE, both there: what the order costs, the network's share left out

    A message that no BROADCAST row tells of keeps its row, with null latencies: dropping it would make
    the means look better than the trace.
    """
    return copies_of(events).mapInArrow(_latency_rows, LATENCY)


class Copies(NamedTuple):
    """Messages at nodes other than their origins; NEVER for a time that is not known."""

    names: Values  # what the codes stand for
    row: Array  # the row of the table that each copy is from
    node: Array
    origin: Array
    number: Array
    broadcast_us: Array
    received_us: Array
    delivered_us: Array

    def measure(self, name: str) -> Array:
        """One of LATENCY_MEASURES, of each copy."""
        later, earlier = {
            "reception": (self.received_us, self.broadcast_us),
            "delivery": (self.delivered_us, self.broadcast_us),
            "held": (self.delivered_us, self.received_us),
        }[name]
        known = (later != NEVER) & (earlier != NEVER)
        return np.where(known, later - np.where(known, earlier, 0), NEVER)


def joined(table: pa.Table) -> Copies:
    """COPIES, all rows of each bucket, with the time of each message's broadcast."""
    names = column(table, "names")
    texts = encoded(names.flatten())
    bucket = numbered(
        changes(encoded(column(table, "run")).code, numbers(column(table, "bucket"))), len(names)
    )
    flat = {}
    for name in COPIES.names[3:]:
        flat[name], count = unblobbed(column(table, name))
        if name in ("node", "origin", "sent_origin"):
            flat[name] = codes_of_lists(names, texts.code, flat[name], count)
    copies, sent = (unblobbed(column(table, name))[1] for name in ("number", "sent_number"))
    row = np.repeat(np.arange(len(names)), copies)
    key = combined(
        np.concatenate((bucket[row], np.repeat(bucket, sent))),
        np.concatenate((flat["origin"], flat["sent_origin"])),
        np.concatenate((flat["number"], flat["sent_number"])),
    )
    sent_us = _looked_up(key[: len(row)], key[len(row) :], flat["sent_us"])
    return Copies(
        texts.texts,
        row,
        flat["node"],
        flat["origin"],
        flat["number"],
        sent_us,
        flat["received_us"],
        flat["delivered_us"],
    )


def _looked_up(wanted: Array, keys: Array, times_us: Array) -> Array:
    """For each key that is wanted the earliest time it has, or NEVER."""
    order = np.lexsort((times_us, keys))
    keys, times_us = np.append(keys[order], -1), np.append(times_us[order], NEVER)  # -1 is not a key
    at = np.searchsorted(keys[:-1], wanted)
    return np.where(keys[at] == wanted, times_us[at], NEVER)


def _latency_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for table in whole(batches, ("run", "bucket")):
        found = joined(table)
        columns = {
            "run": column(table, "run").take(found.row),
            "node": found.names.take(found.node),
            "origin": found.names.take(found.origin),
            "number": pa.array(found.number),
            "broadcast_us": nullable(found.broadcast_us),
            "received_us": nullable(found.received_us),
            "delivered_us": nullable(found.delivered_us),
        } | {f"{name}_us": nullable(found.measure(name)) for name in LATENCY_MEASURES}
        yield filled(columns, LATENCY)


def summary(events: DataFrame) -> DataFrame:
    """SUMMARY: traffic, latency statistics and buffer peaks of each run, of EVENTS or cheaper of SEGMENTS.

    Percentiles are exact (interpolated between the two nearest values), and means are exact sums divided
    once, so that the figures do not depend on how Spark split the data. `held_share` is the share of
    remote deliveries that waited after their first reception.
    """
    parts = work(events).mapInArrow(_parts, PARTS)
    by_run = parts.repartition("run").sortWithinPartitions("run").mapInArrow(_wholes, WHOLES)
    for measure in LATENCY_MEASURES:
        # try_divide: null, not an error, where nothing was measured.
        mean = F.try_divide(f"{measure}_sum", f"{measure}_count")
        by_run = by_run.withColumn(f"{measure}_mean_us", mean)
    by_run = by_run.withColumn("held_share", F.try_divide("waited", "held_count"))
    return figures(by_run.withColumnsRenamed({name: f"{name}_max" for name in NODE_PEAKS})).select(
        columns_of(SUMMARY)
    )


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
    rows = [
        {name: values[begin:end][values[begin:end] != NEVER] for name, values in measures.items()}
        for begin, end in pairwise(begins)
    ]
    columns: dict[str, Values] = {"run": column(table, "run").take(first)}
    columns["waited"] = pa.array([np.count_nonzero(row["held"] > 0) for row in rows], pa.int64())
    for name in LATENCY_MEASURES:
        known = [row[name] for row in rows]
        occur = [np.concatenate(np.unique(values, return_counts=True)) for values in known]
        columns[f"{name}_sum"] = pa.array([int(values.sum()) for values in known], pa.int64())
        columns[f"{name}_count"] = pa.array([len(values) for values in known], pa.int64())
        columns[f"{name}_max_us"] = pa.array(
            [values.max() if len(values) else None for values in known], pa.int64()
        )
        columns[f"{name}_occur"] = pa.array([values.tobytes() for values in occur], pa.binary())
    return filled(columns, PARTS)


def _wholes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for table in whole(batches, ("run",)):
        first = changes(encoded(column(table, "run")).code)
        columns: dict[str, Values] = {"run": column(table, "run").take(first)}
        for name in set(PARTS.names) & set(WHOLES.names) - {"run"}:
            values = column(table, name)
            if name.endswith(("_peak", "_max_us")):
                known = np.logical_or.reduceat(values.is_valid().to_numpy(zero_copy_only=False), first)
                peaks = np.maximum.reduceat(numbers(values.fill_null(_LOWEST)), first)
                columns[name] = pa.array(peaks, mask=~known)
            else:
                columns[name] = pa.array(np.add.reduceat(numbers(values.fill_null(0)), first))
        for measure in LATENCY_MEASURES:
            occur = column(table, f"{measure}_occur")
            runs = [occur[begin:end].drop_null() for begin, end in pairwise([*first, len(occur)])]
            found = [
                _percentiles([np.frombuffer(part, np.int64) for part in run.to_pylist()]) for run in runs
            ]
            for at, name in enumerate(("p50_us", "p99_us")):
                columns[f"{measure}_{name}"] = pa.array([each[at] for each in found], pa.float64())
        yield filled(columns, WHOLES)


def _percentiles(parts: list[Array]) -> list[float | None]:
    """SHARES of the values that parts of a run have; none if there are no values.

    Linear between the two nearest ranks, in the arithmetic of Spark's own `percentile`.
    """
    if not any(map(len, parts)):
        return [None] * len(SHARES)
    values, counts = (np.concatenate([np.split(part, 2)[half] for part in parts]) for half in (0, 1))
    order = np.argsort(values)
    values, ranks = values[order], np.cumsum(counts[order])  # one value may be there more than once
    found: list[float | None] = []
    for share in SHARES:
        position = (int(ranks[-1]) - 1) * share
        low, high = math.floor(position), math.ceil(position)
        below, above = (float(values[np.searchsorted(ranks, rank + 1)]) for rank in (low, high))
        found.append(below + (position - low) * (above - below))
    return found
