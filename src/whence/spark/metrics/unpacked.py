"""The events of whole nodes as numpy columns, and what each packet carried."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whence.spark.metrics.columns import (
    Array,
    Values,
    changes,
    codes_of_lists,
    column,
    encoded,
    lengths,
    numbered,
    numbers,
)
from whence.trace.schema import Kind

ID = ":[0-9]+$"  # a word that ends so is the id of a message; a node's name may have a colon in it too


class Events(NamedTuple):
    """Events of some nodes, all of each, ordered by node and `seq`. A place is a node of a run."""

    names: Values  # what the codes of nodes and origins stand for
    runs: Values  # what the codes of runs stand for
    place_run: Array
    place_node: Array
    first: Array  # where each place's events begin
    place: Array  # from here on, one for each event
    time_us: Array
    kind: Array  # as uint8
    origin: Array  # -1 for none
    number: Array
    total_bytes: Array
    control_bytes: Array
    told: Array  # events that have a detail, ...
    details: Values  # ... and what it is
    further: Further  # messages that packets carried beside their first one

    @property
    def node(self) -> Array:
        """The code of each event's node."""
        return self.place_node[self.place]


class Further(NamedTuple):
    """Messages that are named in the detail of a RECEIVE."""

    event: Array
    origin: Array
    number: Array


def unpacked(table: pa.Table) -> Events:
    """PACKED rows, sorted by run and node, in columns."""
    flat = {name: column(table, name).flatten() for name in ("time_us", "kind", "number", "origin")}
    time_us, kind, number, index = map(numbers, flat.values())
    count = lengths(column(table, "kind"))
    seq = _seqs(column(table, "seq"), numbers(column(table, "first_seq")), count)
    details = column(table, "detail").flatten()
    told, details = np.flatnonzero(details.is_valid().to_numpy(zero_copy_only=False)), details.drop_null()
    packet, words = _ids(told, details, kind)

    runs, nodes, names = encoded(column(table, "run")), column(table, "node"), column(table, "names")
    texts = encoded(pa.concat_arrays([nodes, names.flatten(), words.field(0)]))
    node, own, carried = np.split(
        texts.code, np.cumsum([len(nodes), len(texts.code) - len(nodes) - len(words)])
    )
    first_row = changes(runs.code, node)
    place = np.repeat(numbered(first_row, table.num_rows), count)
    origin = codes_of_lists(names, own, index, count)
    events = Events(
        names=texts.texts,
        runs=runs.texts,
        place_run=runs.code[first_row],
        place_node=node[first_row],
        first=changes(place),
        place=place,
        time_us=time_us,
        kind=kind.astype(np.uint8),
        origin=origin,
        number=number,
        total_bytes=numbers(column(table, "total_bytes").flatten()),
        control_bytes=numbers(column(table, "control_bytes").flatten()),
        told=told,
        details=details,
        further=Further(packet, carried, numbers(words.field(1))),
    )
    if np.all((place[1:] > place[:-1]) | (seq[1:] >= seq[:-1])):
        return events
    return _sorted(events, np.lexsort((seq, place)))


def _seqs(listed: Values, first: Array, count: Array) -> Array:
    """The `seq` of each event: one of a list, or counted from the first one of its row."""
    seq: Array = np.arange(count.sum()) + np.repeat(first - (np.cumsum(count) - count), count)
    seq[np.repeat(listed.is_valid().to_numpy(zero_copy_only=False), count)] = numbers(listed.flatten())
    return seq


def _sorted(events: Events, order: Array) -> Events:
    moved_to = np.empty(len(order), dtype=np.int64)
    moved_to[order] = np.arange(len(order))
    return events._replace(
        time_us=events.time_us[order],
        kind=events.kind[order],
        origin=events.origin[order],
        number=events.number[order],
        total_bytes=events.total_bytes[order],
        control_bytes=events.control_bytes[order],
        told=moved_to[events.told],
        further=events.further._replace(event=moved_to[events.further.event]),
    )


def _ids(told: Array, details: Values, kind: Array) -> tuple[Array, pa.StructArray]:
    """The RECEIVE events whose details name messages, one for each message, and the ids: origin, number.

    A packet with several messages is one row: the first message in `origin` and `number`, the ids of the
    others in `detail`, separated by blanks (docs/trace-format.md). Other words there tell packets apart.
    """
    received = kind[told] == Kind.RECEIVE
    packets, texts = told[received], details.filter(pa.array(received))
    words = pc.split_pattern(texts, " ")
    packets = np.repeat(packets, lengths(words))
    words = words.flatten()
    named = pc.match_substring_regex(words, ID)
    halves = pc.split_pattern(words.filter(named), ":", max_splits=1, reverse=True)
    origin, number = (pc.list_element(halves, at) for at in (0, 1))
    ids = pa.StructArray.from_arrays([origin, number.cast(pa.int64())], ["origin", "number"])
    return packets[named.to_numpy(zero_copy_only=False)], ids
