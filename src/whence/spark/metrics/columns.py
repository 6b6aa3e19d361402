"""Arrow lists as numpy columns, and back: what the steps of the measures have in common.

Names are numbers within a chunk ("codes"): a string is looked at once per chunk, not once per event. A row
that leaves a task carries the names that it uses itself, so that no row needs another to be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

Array = npt.NDArray[Any]
Values: TypeAlias = Any  # an Arrow array: its stubs know no lists in tables

NEVER = np.iinfo(np.int64).max  # stands for null in columns of times
CHUNK_BYTES = 32 << 20  # of rows that are worked on together; a key with more is worked on alone
_SLICE_ROWS = 64
_KEY_MAX = 1 << 62


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
