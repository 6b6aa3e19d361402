"""Events as columns, packed for Spark and unpacked for numpy: what all measures of nodes begin with.

A flat table has a row per event, and a shuffle, a sort or a join of rows costs a microsecond each. So events
are packed where they lie, before anything is shuffled (PACKED: many events of one node in a row of lists),
and unpacked as whole columns (`EventColumns`) in the task that has all of a node's events. A trace at rest is
packed already.

Names are numbers within a chunk ("codes"): a string is looked at once per chunk, not once per event. A row
that leaves a task carries the names that it uses, so that no row needs another to be read.

The tables between the steps of a summary, which tasks pass on to tasks:

    EVENTS or SEGMENTS -> PACKED -by node-> NODES, COPIES (WORK) -by origins-> PARTS -by run-> WHOLES
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from whence.errors import SchemaError
from whence.spark.cores import cores_of, is_remote
from whence.spark.session import is_local
from whence.spark.tables import EVENT, EVENTS, LATENCY_MEASURES, SEGMENTS, require, table_of
from whence.trace.schema import Kind

Array = npt.NDArray[Any]
Values: TypeAlias = Any  # an Arrow array: its stubs know no lists in tables

NEVER = np.iinfo(np.int64).max  # stands for null in columns of times
CHUNK_BYTES = 32 << 20  # of rows that are worked on together; a key with more is worked on alone
_SLICE_ROWS = 64
_KEY_MAX = 1 << 62
ID = ":[0-9]+$"  # a word that ends so is the id of a message; a node's name may have a colon in it too

# Tables

# Many events of one node: event i has the `seq` of its list or, where that is null as in a trace at rest,
# `first_seq` + i.
PACKED = table_of(
    {
        "run": "string",
        "node": "string",
        "names": "array<string>",
        "first_seq": "bigint",
        "seq": "array<bigint>",
    }
    | {name: f"array<{kind}>" for name, kind in EVENT.items() if name != "peer"}
)
# The work of one node: counts, and peaks of the messages and entries that it held.
NODE_COUNTS = (
    "broadcasts",
    "deliveries",
    "remote",  # deliveries of others' messages
    "sends",
    "total",
    "control",
    "discarded",
    "receptions",
)
NODE_PEAKS = ("held_peak", "entries_peak")
_NODE = dict.fromkeys((*NODE_COUNTS, *NODE_PEAKS), "bigint")
NODES = table_of({"run": "string", "node": "string"} | _NODE)
# Many messages at nodes other than their origins, and the broadcasts of messages. Binary is 64-bit numbers:
# Spark copies them as a whole, and a list number by number.
_COPIES = {"run": "string", "bucket": "int", "names": "array<string>"}
_COPIES |= dict.fromkeys(("node", "origin", "number", "received_us", "delivered_us"), "binary")
_COPIES |= dict.fromkeys(("sent_origin", "sent_number", "sent_us"), "binary")
COPIES = table_of(_COPIES)
# Both in one pass: a row has counts and peaks, or else a bucket.
WORK = table_of(_COPIES | _NODE)
# A part of a run: counts and peaks, or else sums, and how often each latency occurs (all values, all counts).
_SUMS = {"waited": "bigint"}
_SUMS |= {f"{each}_{name}": "bigint" for each in LATENCY_MEASURES for name in ("sum", "count", "max_us")}
PARTS = table_of({"run": "string"} | _NODE | _SUMS | {f"{each}_occur": "binary" for each in LATENCY_MEASURES})
# A run: the same of all parts together.
WHOLES = table_of(
    {"run": "string"}
    | _NODE
    | _SUMS
    | {f"{each}_{name}": "double" for each in LATENCY_MEASURES for name in ("p50_us", "p99_us")}
)


# Arrow lists as numpy columns, and back


class Codes(NamedTuple):
    """Texts as numbers: `texts[code]`; -1 for null."""

    code: Array
    texts: Values


def encoded(texts: Values) -> Codes:
    """Equal texts get equal codes, from 0 on in order of appearance."""
    found = texts.dictionary_encode()
    codes = found.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return Codes(codes.astype(np.int64), found.dictionary)


def column(table: pa.Table, name: str) -> Values:
    """A column in one piece."""
    return table.column(name).combine_chunks()


def numbers(values: Values) -> Array:
    """A column of integers without nulls, as int64."""
    found: Array = values.to_numpy(zero_copy_only=False)
    return found.astype(np.int64, copy=False)


def nullable(values: Array) -> Values:
    """The other way: NEVER becomes null."""
    return pa.array(values, mask=values == NEVER)


def lengths(lists: Values) -> Array:
    """How long each list is; a null is 0 long."""
    return numbers(lists.value_lengths().fill_null(0))


def combined(*columns: Array) -> Array:
    """One number for each row, equal where all columns are, and ordered as they are, the first first."""
    key = np.zeros(len(columns[0]), dtype=np.int64)
    size = 1
    for values in columns:
        if not len(key):
            break
        low, high = int(values.min()), int(values.max())
        if size * (high - low + 1) >= _KEY_MAX:  # numbers far apart: their ranks are not
            values = np.unique(values, return_inverse=True)[1]  # noqa: PLW2901 - the same column
            key = np.unique(key, return_inverse=True)[1]
            size, low, high = int(key.max()) + 1, 0, int(values.max())
        span = high - low + 1
        key = key * span + (values - low)
        size *= span
    return key


def changes(*columns: Array) -> Array:
    """Where a row differs from the one before: the first row of each stretch of equal ones."""
    differs = np.ones(len(columns[0]), dtype=bool)
    differs[1:] = False
    for values in columns:
        differs[1:] |= values[1:] != values[:-1]
    return np.flatnonzero(differs)


def numbered(first: Array, count: int) -> Array:
    """For each of `count` rows: the number of its stretch, of those that begin at `first`."""
    begins = np.zeros(count, dtype=np.int64)
    begins[first] = 1
    return np.cumsum(begins) - 1


def offsets_of(row: Array, rows: int) -> Array:
    """Where the lists of `rows` rows begin and end in values that are sorted by `row`."""
    return np.searchsorted(row, np.arange(rows + 1))


def lists(offsets: Array, values: Values, type_: Any) -> Values:
    """A column of lists of the given type."""
    flat = pa.array(values) if isinstance(values, np.ndarray) else values
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat.cast(type_.value_type), type=type_)


def blobs(offsets: Array, values: Array) -> Values:
    """A column of binary: some 64-bit numbers in each row."""
    content: Any = np.ascontiguousarray(values, np.int64)
    bounds: Any = (offsets * 8).astype(np.int32)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def unblobbed(values: Values) -> tuple[Array, Array]:
    """The numbers of all rows, and how many each row has."""
    bounds = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    content = values.buffers()[2]
    found = np.frombuffer(content or b"", np.int64, int(bounds[-1] - bounds[0]) // 8, int(bounds[0]))
    return found, np.diff(bounds).astype(np.int64) // 8


def filled(columns: Mapping[str, Values], schema: StructType) -> pa.RecordBatch:
    """A batch of the given schema; the columns that are missing are null."""
    arrow = to_arrow_schema(schema)
    count = len(columns["run"])
    arrays = [
        columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in arrow
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow)


def name_lists(row: Array, code: Array, rows: int, texts: Values, type_: Any) -> tuple[Values, Array]:
    """For each row the list of names that it uses, and each code as an index into its row's list."""
    used = code >= 0
    found = pa.array(row[used] * len(texts) + code[used]).dictionary_encode()
    pairs = numbers(found.dictionary)
    order = np.argsort(pairs)
    rank = np.empty(len(pairs), dtype=np.int64)
    rank[order] = np.arange(len(pairs))
    offsets = offsets_of(pairs[order] // max(len(texts), 1), rows)
    index = np.full(len(code), -1, dtype=np.int64)
    index[used] = rank[numbers(found.indices)] - offsets[row[used]]
    return lists(offsets, texts.take(pairs[order] % max(len(texts), 1)), type_), index


def codes_of_lists(names: Values, name_codes: Array, index: Array, count: Array) -> Array:
    """The other way: indices into lists of names, `count` of them for each row, as codes of the names."""
    ends = np.cumsum(lengths(names))
    starts = np.concatenate(([0], ends[:-1])) if len(ends) else ends
    at = np.repeat(starts, count) + index
    code = np.full(len(index), -1, dtype=np.int64)
    known = index >= 0
    code[known] = name_codes[at[known]]
    return code


def whole(batches: Iterator[pa.RecordBatch], keys: Sequence[str]) -> Iterator[pa.Table]:
    """Rows that come sorted by `keys`, in tables of bounded size; rows with equal keys are never parted."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        for start in range(0, batch.num_rows, _SLICE_ROWS):
            rows = batch.slice(start, _SLICE_ROWS)
            if size >= CHUNK_BYTES:
                cut = _change(waiting[-1], rows, keys)
                if cut < rows.num_rows:
                    yield pa.Table.from_batches([*waiting, rows.slice(0, cut)])
                    rows, waiting, size = rows.slice(cut), [], 0
            waiting.append(rows)
            size += rows.nbytes
    if waiting:
        yield pa.Table.from_batches(waiting)


def _change(before: pa.RecordBatch, rows: pa.RecordBatch, keys: Sequence[str]) -> int:
    """The first of `rows` that has other keys than the last row before."""
    last = before.slice(before.num_rows - 1).select(list(keys)).to_pylist()[0]
    found = rows.select(list(keys)).to_pylist()
    return next((at for at, row in enumerate(found) if row != last), len(found))


# Packing

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


# Unpacking


class EventColumns(NamedTuple):
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


def unpacked(table: pa.Table) -> EventColumns:
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
    events = EventColumns(
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


def _sorted(events: EventColumns, order: Array) -> EventColumns:
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
