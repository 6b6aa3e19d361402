"""One pass over the events of each node: its counts and peaks, and when each message arrived and left.

A node works in steps: a step is one input (a broadcast, a packet, a link, a timer, a command, a crash) with
all its effects; in the trace, the input's row and the rows behind it. A message is held *after* a step if its
first copy was taken in (received and not discarded) in that step or before, and it was not delivered, expired
or discarded up to that step's end. So a message that is delivered in the very step in which it arrives is
never held, and the peak is the largest value that the core's own gauge `len(core.explain())` has between two
inputs. A crash does not end the holding: a node comes back with its saved state.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from whence.spark.metrics.events import (
    COPIES,
    NEVER,
    NODE_COUNTS,
    NODES,
    WORK,
    Array,
    EventColumns,
    Values,
    blobs,
    changes,
    combined,
    encoded,
    filled,
    name_lists,
    offsets_of,
    packed,
    together,
    unpacked,
    whole,
)
from whence.trace.schema import Kind

INPUTS = (
    Kind.BROADCAST,
    Kind.RECEIVE,
    Kind.LINK_UP,
    Kind.LINK_DOWN,
    Kind.TIMER,
    Kind.COMMAND,
    Kind.CRASH,
    Kind.RESTART,
)
_IS_INPUT = np.zeros(256, dtype=bool)
_IS_INPUT[list(INPUTS)] = True
# What can happen to a message at a node, as bits, so that all of a step are gathered together.
_RECEIVED, _DISCARDED, _DELIVERED, _EXPIRED = 1, 2, 4, 8
_BIT = np.zeros(256, dtype=np.uint8)
_BIT[[Kind.RECEIVE, Kind.DISCARD, Kind.DELIVER, Kind.EXPIRE]] = _RECEIVED, _DISCARDED, _DELIVERED, _EXPIRED
# Origins are dealt into buckets, so that the copies of one huge run are joined with its broadcasts by several
# tasks. Each has its bucket in memory, at most 2^31 bytes a column: Arrow's limit for binary. A small run
# pays with a row for each bucket.
BUCKETS = 64


class Steps(NamedTuple):
    """The steps of all places, numbered through; events before a place's first input are a step too."""

    of: Array  # the step of each event
    opener: Array  # the event that each step begins with
    first: Array  # the first step of each place


class MessageColumns(NamedTuple):
    """One row for each message at each place where anything happened to it."""

    place: Array
    origin: Array
    number: Array
    received_us: Array  # of the first copy; NEVER if none came
    delivered_us: Array
    arrived: Array  # it was received or delivered there
    entered: Array  # the step in which it was taken in, and ...
    left: Array  # ... the one in which it was delivered, expired or thrown out; NEVER


def steps_of(events: EventColumns) -> Steps:
    """Where the steps of each node begin."""
    opens = _IS_INPUT[events.kind]
    opens[events.first] = True
    of = np.cumsum(opens) - 1
    return Steps(of, np.flatnonzero(opens), of[events.first])


def messages_of(events: EventColumns, steps: Steps) -> MessageColumns:
    """Everything that happened to messages, gathered by message."""
    event, origin, number = _named(events, steps)
    key = combined(events.place[event], origin, number)
    # Stable: what happened to a message stays in the order of the events.
    order = np.lexsort((event, key)) if len(events.further.event) else np.argsort(key, kind="stable")
    event, key = event[order], key[order]
    first = changes(key)
    bit, time_us = _BIT[events.kind[event]], events.time_us[event]
    entered, left = _stay(event, key, bit, events, steps)
    return MessageColumns(
        events.place[event[first]],
        origin[order[first]],
        number[order[first]],
        np.minimum.reduceat(np.where(bit == _RECEIVED, time_us, NEVER), first),
        np.minimum.reduceat(np.where(bit == _DELIVERED, time_us, NEVER), first),
        np.bitwise_or.reduceat(bit, first) & (_RECEIVED | _DELIVERED) > 0,
        entered,
        left,
    )


def _named(events: EventColumns, steps: Steps) -> tuple[Array, Array, Array]:
    """The events that tell of messages, and of which: origin and number."""
    event = np.flatnonzero(_BIT[events.kind])
    origin, number = events.origin[event], events.number[event]
    # A packet can be discarded without its name (it came over a link that is none): then the name is
    # that of the packet which the step began with.
    nameless = np.flatnonzero((origin < 0) & (events.kind[event] == Kind.DISCARD))
    packet = steps.opener[steps.of[event[nameless]]]
    known = events.kind[packet] == Kind.RECEIVE
    origin[nameless[known]] = events.origin[packet[known]]
    number[nameless[known]] = events.number[packet[known]]
    event = np.concatenate((event, events.further.event))
    origin = np.concatenate((origin, events.further.origin))
    number = np.concatenate((number, events.further.number))
    named = origin >= 0
    return event[named], origin[named], number[named]


def _stay(event: Array, key: Array, bit: Array, events: EventColumns, steps: Steps) -> tuple[Array, Array]:
    """The step in which each message was taken in, and the one in which it left."""
    step = steps.of[event]
    bit = np.where(_IS_INPUT[events.kind[steps.opener[step]]], bit, 0)
    first = changes(key, step)
    step, in_step = step[first], np.bitwise_or.reduceat(bit, first)
    received, discarded = in_step & _RECEIVED > 0, in_step & _DISCARDED > 0
    taken = received & ~discarded
    # A discard in the step of its own reception ends a copy; in any other step it ends the held message.
    gone = (in_step & (_DELIVERED | _EXPIRED) > 0) | (discarded & ~received)
    message = changes(key[first])
    return (
        np.minimum.reduceat(np.where(taken, step, NEVER), message),
        np.minimum.reduceat(np.where(gone, step, NEVER), message),
    )


def held_peaks(messages: MessageColumns, steps: Steps) -> Array:
    """For each place the largest number of messages that it held after one step."""
    stays = (messages.entered < NEVER) & (messages.left > messages.entered)
    entered, left = messages.entered[stays], messages.left[stays]
    count = len(steps.opener)
    change = np.bincount(entered, minlength=count) - np.bincount(left[left < NEVER], minlength=count)
    held = np.cumsum(change)
    before = held[steps.first] - change[steps.first]  # what other places still hold at their end
    peaks: Array = np.maximum.reduceat(held, steps.first) - before
    return peaks


# The tables


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


def _passes(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[EventColumns, Steps, MessageColumns]]:
    for table in whole(batches, ("run", "node")):
        events = unpacked(table)
        steps = steps_of(events)
        yield events, steps, messages_of(events, steps)


def _node_rows(events: EventColumns, steps: Steps, messages: MessageColumns) -> dict[str, Values]:
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
    # Where deliveries were recorded but receptions were not, what was held is unknown.
    recorded = (counts["receptions"] > 0) | (counts["remote"] == 0)
    return {
        "run": events.runs.take(events.place_run),
        "node": events.names.take(events.place_node),
        "held_peak": pa.array(held_peaks(messages, steps), mask=~recorded),
        "entries_peak": _entries_peaks(events),
    } | {name: pa.array(values) for name, values in counts.items()}


def _entries_peaks(events: EventColumns) -> Values:
    """For each place the largest SAMPLE of the gauge "entries"; null where none was taken."""
    gauge = encoded(events.details)
    entries = gauge.texts.index("entries").as_py()  # -1 if it is none of them
    sampled = events.told[(gauge.code == entries) & (events.kind[events.told] == Kind.SAMPLE)]
    peaks = np.full(len(events.first), np.iinfo(np.int64).min)
    np.maximum.at(peaks, events.place[sampled], events.number[sampled])
    without = np.ones(len(peaks), dtype=bool)
    without[events.place[sampled]] = False
    return pa.array(peaks, mask=without)


def _copy_rows(events: EventColumns, messages: MessageColumns) -> dict[str, Values]:
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
