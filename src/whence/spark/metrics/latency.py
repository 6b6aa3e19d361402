"""How long messages travel, and how long they are held back for the sake of order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from whence.spark.metrics.events import (
    COPIES,
    NEVER,
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
from whence.spark.tables import LATENCY, LATENCY_MEASURES


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
