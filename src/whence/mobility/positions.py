"""Tables of positions in this process, without Spark: Parquet with the columns time_us, node, x, y."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from whence.errors import ContactPlanError, SchemaError, missing_extra, writing
from whence.mobility.kernel import Array
from whence.mobility.readers import in_order
from whence.mobility.sampled import intervals, joined, plan_of
from whence.overlay.contacts import ContactPlan

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("time_us", "node", "x", "y")
PIECE_ROWS = 500_000  # worked on together
_FIX = "A table of positions has the columns time_us (whole), node (text), x and y (numbers, in metres)"


@dataclass(frozen=True)
class PositionTable:
    """Positions as columns; `node` are places in `names`."""

    names: list[str]
    time_us: Array
    node: Array
    x: Array
    y: Array
    left_out: int  # rows with a null, or a coordinate that is not a finite number


def row_count(path: Path) -> int:
    """How many rows a Parquet file or a folder of them has, from the footers alone."""
    return int(_dataset(path).count_rows())


def load_positions(path: Path | str) -> PositionTable:
    """Read a Parquet file, or a folder of them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    path = Path(path)
    data = _dataset(path)
    for name in COLUMNS:
        if name not in data.schema.names:
            raise SchemaError(f"{path}, column {name!r}", "it is missing", _FIX)
    try:
        table: pa.Table = data.to_table(columns=list(COLUMNS))
        kinds = (pa.int64(), pa.string(), pa.float64(), pa.float64())
        cast = [table.column(name).cast(kind) for name, kind in zip(COLUMNS, kinds, strict=True)]
    except (OSError, pa.ArrowException) as error:
        raise SchemaError(str(path), str(error).splitlines()[0].rstrip("."), _FIX) from error
    good: Any = pc.and_(pc.is_valid(cast[0]), pc.is_valid(cast[1]))
    for axis in cast[2:]:  # false for NaN, null for null
        good = pc.and_(good, pc.less_equal(pc.abs(axis), pa.scalar(1e12)))
    good = pc.fill_null(good, False)
    time_us, node, x, y = (each.filter(good) for each in cast)
    coded = node.combine_chunks().dictionary_encode()
    if isinstance(coded, pa.ChunkedArray):  # what a table without rows gives
        coded = pa.array([], pa.string()).dictionary_encode()
    found = [str(name) for name in coded.dictionary.to_pylist()]
    names = sorted(found, key=in_order)
    place = {name: at for at, name in enumerate(names)}
    code = np.array([place[name] for name in found], dtype=np.int64)
    times = time_us.to_numpy()
    if times.size and times.min() < 0:
        raise ContactPlanError(str(path), f"the time {times.min()} us is negative", "Count from 0 or 1970")
    numbers = code[coded.indices.to_numpy()] if times.size else np.zeros(0, dtype=np.int64)
    return PositionTable(names, times, numbers, x.to_numpy(), y.to_numpy(), table.num_rows - times.size)


def _dataset(path: Path) -> Any:
    try:
        import pyarrow as pa
        import pyarrow.dataset as ds
    except ImportError as error:
        raise missing_extra("a table of positions", "pyarrow", "trace") from error
    if not path.exists():
        raise ContactPlanError(str(path), "there is no such file", "Check the path")
    try:
        return ds.dataset(path, format="parquet")
    except (OSError, pa.ArrowException) as error:
        reason = f"it is no Parquet, or damaged ({str(error).splitlines()[0]})"
        raise ContactPlanError(str(path), reason, _FIX) from error


def save_positions(names: tuple[str, ...], columns: dict[str, Array], path: Path | str) -> None:
    """Write what `whence.mobility.paths.sampled` gives."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    named = pa.array(names, pa.string()).take(columns["node"])
    table: dict[str, Any] = {**columns, "node": named}
    with writing(path):
        pq.write_table(pa.table(table), Path(path), compression="zstd")


def find_step_us(table: PositionTable) -> int:
    """The least time between two different times in the table."""
    times = np.unique(table.time_us)
    if times.size < 2:
        raise ContactPlanError("positions", "there are not two different times", "Give the step")
    return int(np.diff(times).min())


def positions_plan(
    table: PositionTable, range_m: float, *, step_us: int, gap_us: int | None = None
) -> ContactPlan:
    """The plan of all positions; worked on piece by piece, so that memory is for the table and one piece."""
    if not table.time_us.size:
        return plan_of([], intervals(table.time_us, table.node, table.x, table.y, range_m, step_us, gap_us))
    order = np.argsort(table.time_us, kind="stable")
    step = table.time_us[order] // step_us
    parts = []
    first = 0
    while first < order.size:
        last = min(first + PIECE_ROWS, order.size)
        last = int(np.searchsorted(step, step[last - 1], "right"))  # a step is never cut
        rows = order[first:last]
        parts.append(
            intervals(
                table.time_us[rows], table.node[rows], table.x[rows], table.y[rows], range_m, step_us, gap_us
            )
        )
        first = last
    slack_us = 0 if gap_us is None else gap_us - step_us
    return plan_of(table.names, joined(np.concatenate(parts), len(table.names), slack_us))
