"""Tables of positions in this process, without Spark: Parquet with the columns time_us, node, x, y."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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


class TimeGroup(NamedTuple):
    """Rows of a file that are read together, and the span of their times."""

    rows: int
    first_us: int
    last_us: int


def row_count(path: Path) -> int:
    """How many rows a Parquet file or a folder of them has, from the footers alone."""
    return int(_dataset(path).count_rows())


def time_groups(path: Path) -> list[TimeGroup] | None:
    """The row groups of a Parquet file or folder; None if the footers do not say their times."""
    import pyarrow as pa

    data = _dataset(path)
    if "time_us" not in data.schema.names or not pa.types.is_integer(data.schema.field("time_us").type):
        return None
    groups = [group for each in data.get_fragments() for group in each.row_groups]
    spans: list[Any] = [(group.statistics or {}).get("time_us") for group in groups]
    if not all(spans):
        return None
    return [
        TimeGroup(group.num_rows, span["min"], span["max"]) for group, span in zip(groups, spans, strict=True)
    ]


def usable_rows(path: Path, within_us: tuple[int, int] | None = None) -> tuple[pa.Table, int]:
    """Return the positions of a Parquet file or folder, and how many rows were left out.

    With `within_us` those from one time to before another: of row groups that have none, nothing is read.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    data = _dataset(path)
    for name in COLUMNS:
        if name not in data.schema.names:
            raise SchemaError(f"{path}, column {name!r}", "it is missing", _FIX)
    wanted = None
    if within_us is not None:
        wanted = (pc.field("time_us") >= within_us[0]) & (pc.field("time_us") < within_us[1])
    try:
        table: pa.Table = data.to_table(columns=list(COLUMNS), filter=wanted)
        kinds = (pa.int64(), pa.string(), pa.float64(), pa.float64())
        cast = [table.column(name).cast(kind) for name, kind in zip(COLUMNS, kinds, strict=True)]
    except (OSError, pa.ArrowException) as error:
        raise SchemaError(str(path), str(error).splitlines()[0].rstrip("."), _FIX) from error
    good: Any = pc.and_(pc.is_valid(cast[0]), pc.is_valid(cast[1]))
    for axis in cast[2:]:  # false for NaN, null for null
        good = pc.and_(good, pc.less_equal(pc.abs(axis), pa.scalar(1e12)))
    kept = pa.table(cast, names=list(COLUMNS)).filter(pc.fill_null(good, False))
    return kept, table.num_rows - kept.num_rows


def load_positions(path: Path | str) -> PositionTable:
    """Read a Parquet file, or a folder of them."""
    import pyarrow as pa

    path = Path(path)
    table, left_out = usable_rows(path)
    time_us, node, x, y = table.columns
    coded: Any = node.combine_chunks().dictionary_encode()
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
    return PositionTable(names, times, numbers, x.to_numpy(), y.to_numpy(), left_out)


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
