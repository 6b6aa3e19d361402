"""The packed row of a trace: its Arrow schema, how events become one row, and the hash over rows.

Importing this module needs pyarrow. docs/trace-format.md specifies what is here.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from whence.errors import TraceError, missing_extra
from whence.trace.schema import Kind, Segment

try:
    import numpy as np
    import numpy.typing as npt
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

# The integer list columns, in the order of the schema and of the hash.
INTEGER_COLUMNS = ("time_us", "kind", "origin", "number", "peer", "total_bytes", "control_bytes")
LIST_COLUMNS = (*INTEGER_COLUMNS, "detail")
_DTYPES = {name: np.dtype(str(PACKED_SCHEMA.field(name).type.value_type)) for name in INTEGER_COLUMNS}


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
        _text_array([run] * len(segments)),
        _text_array([segment.node for segment in segments]),
        integer_array(np.array(numbers, dtype=np.int32)),
        integer_array(np.array([segment.first_seq for segment in segments], dtype=np.int64)),
        integer_array(np.array(lengths, dtype=np.int32)),
        pa.ListArray.from_arrays(
            _offsets([len(segment.names) for segment in segments]),
            _text_array([name for segment in segments for name in segment.names]),
        ),
    ]
    offsets = _offsets(lengths)
    for at, name in enumerate(INTEGER_COLUMNS):
        joined = np.frombuffer(b"".join(segment.integers[at] for segment in segments), dtype="<i8")
        limits = np.iinfo(_DTYPES[name])
        if len(joined) and not limits.min <= joined.min() <= joined.max() <= limits.max:
            raise TraceError(
                f"column {name!r}",
                f"the run recorded {int(joined.min())} to {int(joined.max())}",
                f"Values must be from {limits.min} to {limits.max}",
            )
        columns.append(pa.ListArray.from_arrays(offsets, integer_array(joined.astype(_DTYPES[name]))))
    details: list[str | None] = []
    for segment in segments:
        details += segment.details
    columns.append(pa.ListArray.from_arrays(offsets, _text_array(details)))
    return pa.RecordBatch.from_arrays(columns, schema=PACKED_SCHEMA)


# Arrays are made from buffers, and `numbers_of` reads them through DLPack: `pa.array` and `to_numpy` would
# import pandas wherever it is installed, which takes longer than to write or verify a small trace.


def _buffer(values: Any) -> pa.Buffer:
    return pa.py_buffer(values)


def integer_array(values: npt.NDArray[Any]) -> pa.Array[Any]:
    """Numbers as Arrow sees them, without a copy."""
    kind = getattr(pa, values.dtype.name)()
    return pa.Array.from_buffers(kind, len(values), [None, _buffer(values)])


def _offsets(lengths: Sequence[int]) -> Any:
    return integer_array(np.cumsum([0, *lengths], dtype=np.int32))


def _text_array(texts: Sequence[str | None]) -> pa.Array[Any]:
    nulls = texts.count(None)
    if nulls == len(texts):
        return pa.nulls(len(texts), pa.string())
    encoded = [b"" if text is None else text.encode() for text in texts]
    valid = None
    if nulls:
        valid = _buffer(np.packbits([text is not None for text in texts], bitorder="little"))
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(texts), [valid, _buffer(ends), _buffer(b"".join(encoded))])


def numbers_of(column: pa.Array[Any]) -> npt.NDArray[Any]:
    """A column of integers without nulls as numpy sees it, without a copy."""
    values: npt.NDArray[Any] = np.from_dlpack(column)
    return values


def lengths_of(column: Any) -> npt.NDArray[Any]:
    """The lengths of a column's lists."""
    return np.diff(numbers_of(column.offsets))


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
    """Why rows of the right types are still not a trace; None if they are. Any subset of columns will do."""
    columns: dict[str, Any] = dict(zip(batch.schema.names, batch.columns, strict=True))
    for name, column in columns.items():
        if column.null_count:
            return f"column {name!r} has a null"
        if name in INTEGER_COLUMNS and column.flatten().null_count:
            return f"column {name!r} has a null inside a list"
    if "kind" in columns:
        kinds = numbers_of(columns["kind"].flatten())
        if len(kinds) and not min(Kind) <= kinds.min() <= kinds.max() <= max(Kind):
            return f"column 'kind' has a value outside of {min(Kind)} to {max(Kind)}"
    if "events" in columns:
        lengths = numbers_of(columns["events"])
        for name in columns.keys() & set(LIST_COLUMNS):
            if not (lengths_of(columns[name]) == lengths).all():
                return f"a list in column {name!r} does not have the length that 'events' says"
    if "names" in columns:
        sizes = lengths_of(columns["names"])
        for name in columns.keys() & {"origin", "peer"}:
            values = numbers_of(columns[name].flatten())
            if not len(values) or (values.min() >= -1 and values.max() < sizes.min()):
                continue  # right whichever row they are in
            limits = sizes.repeat(lengths_of(columns[name]))
            if ((values < -1) | (values >= limits)).any():
                return f"column {name!r} has an index outside of the row's names"
    return None
