"""Contact plans as files: Parquet, for keeping; CSV, for other tools. docs/contacts.md describes both.

Parquet: one row per interval, columns `kind` ("contact" or "presence"), `a`, `b` (names; null for presence),
`start_us`, `stop_us`; the file's metadata has under `whence.contact_plan` a JSON object with `version`,
`nodes` (all names, in order), `stop_us` and `sha256`, which is compared when the file is read.

CSV: the same columns; the names come first as rows of kind "node", and the end as a row of kind "end".
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whence.errors import ContactPlanError, WhenceError, missing_extra, writing
from whence.mobility.readers import lines_of
from whence.overlay.contacts import ContactPlan, make_plan

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = 1
_KEY = b"whence.contact_plan"
_COLUMNS = ("kind", "a", "b", "start_us", "stop_us")
_FIX = "Write it with `whence contacts ... --out`, or see docs/contacts.md"


def save_plan(plan: ContactPlan, path: Path | str) -> None:
    """Write a plan; a name that ends in .csv gives CSV, all others Parquet."""
    path = Path(path)
    save_csv(plan, path) if path.suffix == ".csv" else save_parquet(plan, path)


def load_plan(path: Path | str) -> ContactPlan:
    """Read a plan that `save_plan` wrote; raises `ContactPlanError` for anything else."""
    path = Path(path)
    return _load_csv(path) if path.suffix == ".csv" else _load_parquet(path)


def is_plan(path: Path) -> bool:
    """Whether a Parquet file is a plan (and not, for instance, a table of positions)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return _KEY in (pq.read_schema(path).metadata or {})
    except (OSError, pa.ArrowException):
        return False


def _intervals(plan: ContactPlan) -> Iterator[tuple[str, str, str | None, int, int]]:
    for node, start_us, stop_us in plan.presence:
        yield "presence", plan.nodes[node], None, start_us, stop_us
    for a, b, start_us, stop_us in plan.contacts:
        yield "contact", plan.nodes[a], plan.nodes[b], start_us, stop_us


def save_parquet(plan: ContactPlan, path: Path) -> None:
    """Write a plan as Parquet."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise missing_extra("a contact plan in Parquet", "pyarrow", "trace") from error

    about = {"version": VERSION, "nodes": plan.nodes, "stop_us": plan.stop_us, "sha256": plan.sha256}
    kinds = [pa.string(), pa.string(), pa.string(), pa.int64(), pa.int64()]
    fields = [pa.field(name, kind, name == "b") for name, kind in zip(_COLUMNS, kinds, strict=True)]
    schema = pa.schema(fields, metadata={_KEY: json.dumps(about).encode()})
    columns: Sequence[Sequence[Any]] = list(zip(*_intervals(plan), strict=True)) or [()] * len(_COLUMNS)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    with writing(path):
        pq.write_table(pa.Table.from_arrays(arrays, schema=schema), path, compression="zstd")


def _load_parquet(path: Path) -> ContactPlan:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise missing_extra("a contact plan in Parquet", "pyarrow", "trace") from error

    try:
        table: pa.Table = pq.ParquetFile(path).read()
    except FileNotFoundError as error:
        raise ContactPlanError(str(path), "there is no such file", "Check the path") from error
    except (OSError, pa.ArrowException) as error:
        reason = f"it is no Parquet file, or a damaged one ({str(error).splitlines()[0]})"
        raise ContactPlanError(str(path), reason, _FIX) from error
    about = _about(path, (table.schema.metadata or {}).get(_KEY))
    missing = [name for name in _COLUMNS if name not in table.column_names]
    if missing:
        raise ContactPlanError(str(path), f"it has no column {missing[0]!r}", _FIX)
    columns = [table.column(name).to_pylist() for name in _COLUMNS]
    rows = enumerate(zip(*columns, strict=True), 1)
    plan = _assemble(path, "row", about["nodes"], ((at, row) for at, row in rows), about["stop_us"])
    if plan.sha256 != about["sha256"]:
        raise ContactPlanError(
            str(path), "its rows do not match its sha256", "It was changed: write it again"
        )
    return plan


def _about(path: Path, raw: bytes | None) -> dict[str, Any]:
    if raw is None:
        raise ContactPlanError(str(path), "it has no metadata of a contact plan", _FIX)
    try:
        about = json.loads(raw)
        whole = isinstance(about["nodes"], list) and type(about["stop_us"]) is int and bool(about["sha256"])
    except (ValueError, KeyError, TypeError) as error:
        raise ContactPlanError(str(path), "its metadata is not that of a contact plan", _FIX) from error
    if not whole or about.get("version") != VERSION:
        raise ContactPlanError(str(path), f"it has version {about.get('version')!r}, not {VERSION}", _FIX)
    return dict(about)


def _assemble(
    path: Path, unit: str, nodes: list[str], rows: Iterator[tuple[int, tuple[Any, ...]]], stop_us: int | None
) -> ContactPlan:
    """A plan from rows (kind, a, b, start_us, stop_us), each with its number for the error."""
    index = {name: at for at, name in enumerate(nodes)}
    contacts: list[tuple[int, int, int, int]] = []
    presence: list[tuple[int, int, int]] = []
    for number, (kind, a, b, start_us, end_us) in rows:
        where = f"{path}, {unit} {number}"
        wanted = (a, b) if kind == "contact" else (a,)
        if kind not in ("contact", "presence"):
            raise ContactPlanError(where, f"its kind is {kind!r}", "Use contact or presence")
        unknown = [name for name in wanted if name not in index]
        if unknown:
            raise ContactPlanError(where, f"there is no node {unknown[0]!r}", "List all nodes")
        if type(start_us) is not int or type(end_us) is not int or not 0 <= start_us <= end_us:
            raise ContactPlanError(where, f"it lasts from {start_us} to {end_us}", "Use 0 <= start <= stop")
        if kind == "contact":
            contacts.append((index[a], index[b], start_us, end_us))
        else:
            presence.append((index[a], start_us, end_us))
    try:
        return make_plan(nodes, contacts, presence, stop_us)
    except WhenceError as error:
        raise ContactPlanError(f"{path}, {error.what}", error.reason, error.fix) from error


def save_csv(plan: ContactPlan, path: Path) -> None:
    """Write a plan as CSV."""
    with writing(path), path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_COLUMNS)
        writer.writerows(("node", name, "", "", "") for name in plan.nodes)
        writer.writerow(("end", "", "", "", plan.stop_us))
        writer.writerows(tuple("" if cell is None else cell for cell in row) for row in _intervals(plan))


def _load_csv(path: Path) -> ContactPlan:
    reader = csv.reader(line + "\n" for line in lines_of(path))
    if tuple(next(reader, ())) != _COLUMNS:
        raise ContactPlanError(f"{path}, line 1", f"its header is not {','.join(_COLUMNS)}", _FIX)
    nodes: list[str] = []
    rows: list[tuple[int, tuple[Any, ...]]] = []
    stop_us: int | None = None
    for cells in reader:
        where = f"{path}, line {reader.line_num}"
        if len(cells) != len(_COLUMNS):
            raise ContactPlanError(where, f"it has {len(cells)} cells, not {len(_COLUMNS)}", _FIX)
        kind, a, b, start, stop = cells
        if kind == "node":
            nodes.append(a)
            continue
        try:
            times = (0 if kind == "end" else int(start), int(stop))
        except ValueError as error:
            raise ContactPlanError(where, f"{start!r} or {stop!r} is not a whole number", _FIX) from error
        if kind == "end":
            stop_us = times[1]
        else:
            rows.append((reader.line_num, (kind, a, b, *times)))
    if stop_us is None:
        raise ContactPlanError(str(path), "it has no row of kind 'end'", "It was cut short: write it again")
    return _assemble(path, "line", nodes, iter(rows), stop_us)
