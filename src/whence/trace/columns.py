"""The packed row of a trace: its Arrow schema, how events become one row, and the hash over rows.

Importing this module needs pyarrow. docs/trace-format.md specifies what is here.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from whence.errors import TraceError, missing_extra
from whence.trace.schema import Kind

try:
    import numpy as np
    import pyarrow as pa
except ImportError as error:
    raise missing_extra("reading or writing a trace", "pyarrow", "trace") from error

if TYPE_CHECKING:
    from hashlib import _Hash

# What the writer buffers per event, in this order: time_us, kind, origin, number, peer, total_bytes,
# control_bytes, detail.
FIELDS = 8

_FIELDS: list[pa.Field[Any]] = [
    pa.field("run", pa.string()),
    pa.field("node", pa.string()),
    pa.field("segment", pa.int32()),
    pa.field("first_seq", pa.int64()),
    pa.field("events", pa.int32()),
    pa.field("names", pa.list_(pa.string())),
    pa.field("time_us", pa.list_(pa.int64())),
    pa.field("kind", pa.list_(pa.int8())),
    pa.field("origin", pa.list_(pa.int32())),
    pa.field("number", pa.list_(pa.int64())),
    pa.field("peer", pa.list_(pa.int32())),
    pa.field("total_bytes", pa.list_(pa.int32())),
    pa.field("control_bytes", pa.list_(pa.int32())),
    pa.field("detail", pa.list_(pa.string())),
]
PACKED_SCHEMA = pa.schema(_FIELDS)

KEY_COLUMNS = ("run", "node", "segment", "first_seq", "events", "names")
# The integer list columns, in the order of the schema and of the hash.
INTEGER_COLUMNS = ("time_us", "kind", "origin", "number", "peer", "total_bytes", "control_bytes")
LIST_COLUMNS = (*INTEGER_COLUMNS, "detail")


class Segment(NamedTuple):
    """Consecutive events of one node, as columns."""

    node: str
    first_seq: int
    names: list[str]
    integers: list[bytes]  # little-endian 64-bit integers, one per entry of INTEGER_COLUMNS
    details: Sequence[str | None]

    @property
    def events(self) -> int:
        """How many events the segment holds."""
        return len(self.details)


def pack(node: str, first_seq: int, flat: list[Any]) -> Segment:
    """Turn buffered events (FIELDS values each) into columns, with the table of the names they use."""
    time_us, kind, origin, number, peer, total_bytes, control_bytes, details = (
        flat[field::FIELDS] for field in range(FIELDS)
    )
    appearing = dict.fromkeys(origin) | dict.fromkeys(peer)  # keeps the order: origins, then peers
    names: list[str] = [name for name in appearing if name is not None]
    index: dict[str | None, int] = {None: -1}
    index.update(zip(names, range(len(names)), strict=True))
    at = index.__getitem__
    columns = (time_us, kind, map(at, origin), number, map(at, peer), total_bytes, control_bytes)
    layout = struct.Struct(f"<{len(details)}q")  # twice as fast as array("q", column)
    try:
        integers = [layout.pack(*column) for column in columns]
    except struct.error as error:
        raise TraceError(f"an event of node {node!r}", str(error), "Record 64-bit integers only") from error
    return Segment(node, first_seq, names, integers, details)


def packed_batch(run: str, numbers: Sequence[int], segments: Sequence[Segment]) -> pa.RecordBatch:
    """The packed rows of `segments`; `numbers[i]` is the `segment` number of row i."""
    lengths = [segment.events for segment in segments]
    columns: list[pa.Array[Any]] = [
        pa.array([run] * len(segments), pa.string()),
        pa.array([segment.node for segment in segments], pa.string()),
        pa.array(numbers, pa.int32()),
        pa.array([segment.first_seq for segment in segments], pa.int64()),
        pa.array(lengths, pa.int32()),
        pa.array([segment.names for segment in segments], pa.list_(pa.string())),
    ]
    offsets = pa.array(_running_sum(lengths), pa.int32())
    for at, name in enumerate(INTEGER_COLUMNS):
        kind = PACKED_SCHEMA.field(name).type.value_type
        joined = b"".join(segment.integers[at] for segment in segments)
        values = pa.array(np.frombuffer(joined, dtype="<i8"))
        try:
            columns.append(pa.ListArray.from_arrays(offsets, values.cast(kind)))
        except pa.ArrowInvalid as error:
            raise TraceError(f"column {name!r}", str(error), f"Its values must fit {kind}") from error
    details: list[str | None] = []
    for segment in segments:
        details += segment.details
    columns.append(pa.ListArray.from_arrays(offsets, pa.array(details, pa.string())))
    return pa.RecordBatch.from_arrays(columns, schema=PACKED_SCHEMA)


def update_hash(digest: _Hash, segment: Segment) -> None:
    """Add one segment to a trace hash. It depends on the events alone, not on Parquet or Arrow."""
    digest.update(_texts_bytes([segment.node]))
    digest.update(struct.pack("<2q", segment.first_seq, segment.events))
    digest.update(_texts_bytes(segment.names))
    for column in segment.integers:
        digest.update(column)
    digest.update(_texts_bytes(segment.details))


def _texts_bytes(texts: Sequence[str | None]) -> bytes:
    """Count, then the UTF-8 length of each (-1 for none), then all the bytes."""
    if texts.count(None) == len(texts):
        return struct.pack("<q", len(texts)) + struct.pack("<q", -1) * len(texts)
    encoded = [None if text is None else text.encode() for text in texts]
    lengths = [-1 if text is None else len(text) for text in encoded]
    return struct.pack(f"<{len(texts) + 1}q", len(texts), *lengths) + b"".join(filter(None, encoded))


def _running_sum(lengths: Sequence[int]) -> list[int]:
    total, sums = 0, [0]
    for length in lengths:
        total += length
        sums.append(total)
    return sums


def schema_problem(found: pa.Schema) -> str | None:
    """Why a Parquet file's schema is not PACKED_SCHEMA; None if it is. Metadata and nullability are free."""
    for wanted in PACKED_SCHEMA:
        at = found.get_field_index(wanted.name)
        if at < 0:
            return f"it has no column {wanted.name!r}"
        if found.field(at).type != wanted.type:
            return f"column {wanted.name!r} has type {found.field(at).type} instead of {wanted.type}"
    extra = sorted(set(found.names) - set(PACKED_SCHEMA.names))
    return f"it has the unknown column {extra[0]!r}" if extra else None


def batch_problem(batch: pa.RecordBatch) -> str | None:
    """Why rows of the right types are still no trace; None if they are. Any subset of columns will do."""
    columns: dict[str, Any] = dict(zip(batch.schema.names, batch.columns, strict=True))
    for name, column in columns.items():
        if column.null_count:
            return f"column {name!r} has a null"
        if name in INTEGER_COLUMNS and column.flatten().null_count:
            return f"column {name!r} has a null inside a list"
    if "kind" in columns:
        kinds = columns["kind"].flatten().to_numpy()
        if len(kinds) and not min(Kind) <= kinds.min() <= kinds.max() <= max(Kind):
            return f"column 'kind' has a value outside of {min(Kind)} to {max(Kind)}"
    if "events" in columns:
        lengths = columns["events"].to_numpy()
        for name in columns.keys() & set(LIST_COLUMNS):
            if not (columns[name].value_lengths().to_numpy() == lengths).all():
                return f"a list in column {name!r} does not have the length that 'events' says"
    if "names" in columns:
        sizes = columns["names"].value_lengths().to_numpy()
        for name in columns.keys() & {"origin", "peer"}:
            values = columns[name].flatten().to_numpy()
            limits = sizes.repeat(columns[name].value_lengths().to_numpy())
            if ((values < -1) | (values >= limits)).any():
                return f"column {name!r} has an index outside of the row's names"
    return None
