"""The one way to read a foreign log: by its mapping, or by what the file looks like."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from whence.errors import ImportFormatError
from whence.foreign.mapping import LogMapping, mapping_of, plugin_readers
from whence.foreign.model import Log
from whence.foreign.otlp import read_otlp
from whence.foreign.shiviz import read_shiviz
from whence.foreign.tables import read_history, read_lines, read_table, table_rows

_SUFFIXES = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".mcap": "mcap",
    ".pb": "otlp",
    ".binpb": "otlp",
    ".otlp": "otlp",
}
_READERS: dict[str, Callable[[Path, LogMapping], Log]] = {
    "csv": read_table, "jsonl": read_table, "parquet": read_table, "mcap": read_table, "lines": read_lines,
    "shiviz": read_shiviz, "otlp": read_otlp, "history": read_history,
}  # fmt: skip


def read_log(path: Path | str, mapping: LogMapping | None = None) -> Log:
    """A log from a file. Without a mapping it must be of a kind that needs none, or a plain table."""
    path = Path(path)
    mapping = complete_mapping(path, mapping)
    if path.is_dir():
        raise ImportFormatError(str(path), "it is a folder", "Judge folders of tables on Spark: --spark")
    read = _READERS.get(mapping.format or "")
    return (read or plugin_readers()[mapping.format or ""].read)(path, mapping)


def complete_mapping(path: Path, mapping: LogMapping | None) -> LogMapping:
    """A mapping with a format: what the file looks like, where none is given."""
    if not path.exists():
        raise ImportFormatError(str(path), "there is no such file", "Check the path")
    if mapping is not None and mapping.format is not None:
        return _delimited(path, mapping)
    require_something(path)
    format_ = format_of(path)
    if mapping is not None:
        return _delimited(path, msgspec.structs.replace(mapping, format=format_))
    if format_ in {"csv", "jsonl", "parquet"}:
        plain = _delimited(path, mapping_of({"log": {"format": format_, "preset": "plain"}}))
        _require_plain(path, plain)
        return plain
    return mapping_of({"log": {"format": format_}})


def require_something(path: Path) -> None:
    """Refuse what cannot tell its format: anything but a file with something in it."""
    if path.is_file() and path.stat().st_size:
        return
    if not path.exists():
        reason, fix = "there is no such file", "Check the path"
    elif path.is_dir():
        reason, fix = (
            "it is a folder",
            "Give a file; folders need --spark, and a mapping that states the format",
        )
    elif path.is_file():
        reason = "it is empty, so nothing tells its format"
        fix = (
            "Give a log with something in it; one still to be written needs a mapping that states the format"
        )
    else:
        reason, fix = "it is no regular file", "Write what it gives to a file first"
    raise ImportFormatError(str(path), reason, fix)


def _delimited(path: Path, mapping: LogMapping) -> LogMapping:
    """Between the cells of a .tsv there are tabs."""
    if mapping.format != "csv" or mapping.delimiter is not None or path.suffix.lower() != ".tsv":
        return mapping
    return msgspec.structs.replace(mapping, delimiter="\t")


def format_of(path: Path) -> str:
    """What a file looks like, by its name and its beginning."""
    brought = {suffix: each.name for each in plugin_readers().values() for suffix in each.suffixes}
    found = {**brought, **_SUFFIXES}.get(path.suffix.lower())
    if found is not None:
        return found
    with path.open("rb") as file:
        start = file.read(65536)
    if b'"traceID"' in start and b'"spanID"' in start:
        raise ImportFormatError(
            str(path), "it is a trace in Jaeger's own form", "Export OTLP: ask Jaeger for /api/v3/traces/ID"
        )
    first = start.lstrip().partition(b"\n")[0]
    looks = {
        "parquet": start.startswith(b"PAR1"),
        "mcap": start.startswith(b"\x89MCAP0"),
        "otlp": b'"resourceSpans"' in start or b'"scopeSpans"' in start or b"\x00" in start,
        "history": first[:1] in (b"{", b"[") and b'"f"' in first and b'"process"' in first,
        "jsonl": first[:1] == b"{" or re.match(rb"\[\s*(\{|\])", start.lstrip()) is not None,
    }
    return next((name for name, is_so in looks.items() if is_so), "shiviz")


def _require_plain(path: Path, mapping: LogMapping) -> None:
    _, row = next(table_rows(path, mapping.format or "", mapping.delimiter), (0, {}))
    lacking = [name for name in ("node", "kind", "message") if name not in row]
    if lacking:
        raise ImportFormatError(
            str(path), f"it has no column {lacking[0]!r}, and no mapping says what its columns are",
            f"Write a mapping (whence log guess {path} drafts one) and give it with --map",
        )  # fmt: skip
