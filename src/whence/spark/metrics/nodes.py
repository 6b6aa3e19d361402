"""One pass over the events of each node: its counts and peaks, and when each message came and left."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from whence.spark.metrics.between import COPIES, NODE_COUNTS, NODES, WORK
from whence.spark.metrics.columns import Array, Values, blobs, encoded, filled, name_lists, offsets_of, whole
from whence.spark.metrics.holding import Messages, Steps, held_peaks, messages_of, steps_of
from whence.spark.metrics.packed import packed, together
from whence.spark.metrics.unpacked import Events, unpacked
from whence.trace.schema import Kind

# Origins are dealt into buckets, so that the copies of one huge run are joined with its broadcasts by several
# tasks. Each has its bucket in memory, at most 2^31 bytes a column: Arrow's limit for binary. A small run
# pays with a row for each bucket.
BUCKETS = 64


def nodes(events: DataFrame) -> DataFrame:
    """NODES: one row for each node that has events."""
    return packed(events).mapInArrow(_nodes, NODES)


def copies(events: DataFrame) -> DataFrame:
    """COPIES, all of a bucket in one partition."""
    return _by_bucket(packed(events).mapInArrow(_copies, COPIES))


def work(events: DataFrame) -> DataFrame:
    """WORK: NODES and COPIES of one pass."""
    return _by_bucket(packed(events).mapInArrow(_work, WORK))


def _by_bucket(rows: DataFrame) -> DataFrame:
    return together(rows, "run", "bucket").sortWithinPartitions("run", "bucket")


def _nodes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for events, steps, messages in _passes(batches):
        yield filled(_node_rows(events, steps, messages), NODES)


def _copies(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for events, _, messages in _passes(batches):
        yield filled(_copy_rows(events, messages), COPIES)


def _work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for events, steps, messages in _passes(batches):
        rows = _node_rows(events, steps, messages)
        del rows["node"]  # in WORK it is that of a copy; a run's figures do not name nodes
        yield filled(rows, WORK)
        yield filled(_copy_rows(events, messages), WORK)


def _passes(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Events, Steps, Messages]]:
    for table in whole(batches, ("run", "node")):
        events = unpacked(table)
        steps = steps_of(events)
        yield events, steps, messages_of(events, steps)


def _node_rows(events: Events, steps: Steps, messages: Messages) -> dict[str, Values]:
    kind, origin = events.kind, events.origin
    delivered, sent = kind == Kind.DELIVER, kind == Kind.SEND
    counted = (
        kind == Kind.BROADCAST,
        delivered,
        delivered & (origin >= 0) & (origin != events.node),
        sent,
        np.where(sent, events.total_bytes, 0),
        np.where(sent, events.control_bytes, 0),
        kind == Kind.DISCARD,
        kind == Kind.RECEIVE,
    )
    counts = {
        name: np.add.reduceat(values.astype(np.int64), events.first)
        for name, values in zip(NODE_COUNTS, counted, strict=True)
    }
    # Where deliveries were recorded but receptions were not, nobody knows what was held.
    recorded = (counts["receptions"] > 0) | (counts["remote"] == 0)
    return {
        "run": events.runs.take(events.place_run),
        "node": events.names.take(events.place_node),
        "held_peak": pa.array(held_peaks(messages, steps), mask=~recorded),
        "entries_peak": _entries_peaks(events),
    } | {name: pa.array(values) for name, values in counts.items()}


def _entries_peaks(events: Events) -> Values:
    """For each place the largest SAMPLE of the gauge "entries"; null where none was taken."""
    gauge = encoded(events.details)
    entries = gauge.texts.index("entries").as_py()  # -1 if it is none of them
    sampled = events.told[(gauge.code == entries) & (events.kind[events.told] == Kind.SAMPLE)]
    peaks = np.full(len(events.first), np.iinfo(np.int64).min)
    np.maximum.at(peaks, events.place[sampled], events.number[sampled])
    without = np.ones(len(peaks), dtype=bool)
    without[events.place[sampled]] = False
    return pa.array(peaks, mask=without)


def _copy_rows(events: Events, messages: Messages) -> dict[str, Values]:
    """A row for each run and bucket: the copies of its messages that came, and the broadcasts."""
    mine = messages.origin == events.place_node[messages.place]
    came = np.flatnonzero(messages.arrived & ~mine)
    sent = np.flatnonzero((events.kind == Kind.BROADCAST) & (events.origin == events.node))
    bucket = np.array([zlib.crc32(name.encode()) % BUCKETS for name in events.names.to_pylist()], np.int64)
    places = events.place_run * BUCKETS
    of_came = places[messages.place[came]] + bucket[messages.origin[came]]
    of_sent = places[events.place[sent]] + bucket[events.origin[sent]]
    groups = np.unique(np.concatenate((of_came, of_sent)))
    came, row_came = _by_row(came, np.searchsorted(groups, of_came))
    sent, row_sent = _by_row(sent, np.searchsorted(groups, of_sent))

    node, origin = events.place_node[messages.place[came]], messages.origin[came]
    names, index = name_lists(
        np.concatenate((row_came, row_came, row_sent)),
        np.concatenate((node, origin, events.origin[sent])),
        len(groups),
        events.names,
        to_arrow_schema(COPIES).field("names").type,
    )
    of_node, of_origin, of_sender = np.split(index, (len(came), 2 * len(came)))
    at_came, at_sent = offsets_of(row_came, len(groups)), offsets_of(row_sent, len(groups))
    listed = {
        "node": (at_came, of_node),
        "origin": (at_came, of_origin),
        "number": (at_came, messages.number[came]),
        "received_us": (at_came, messages.received_us[came]),
        "delivered_us": (at_came, messages.delivered_us[came]),
        "sent_origin": (at_sent, of_sender),
        "sent_number": (at_sent, events.number[sent]),
        "sent_us": (at_sent, events.time_us[sent]),
    }
    return {
        "run": events.runs.take(groups // BUCKETS),
        "bucket": pa.array(groups % BUCKETS, pa.int32()),
        "names": names,
    } | {name: blobs(offsets, values) for name, (offsets, values) in listed.items()}


def _by_row(index: Array, row: Array) -> tuple[Array, Array]:
    order = np.argsort(row, kind="stable")
    return index[order], row[order]
