"""Reads tables into the model by a mapping: CSV, JSON lines, Parquet, MCAP, plain lines, histories."""

from __future__ import annotations

import csv
import io
import json
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from whence.errors import ImportFormatError, missing_extra
from whence.foreign.mapping import LogMapping, Normaliser, look_up, order_of, parse, text_of
from whence.foreign.model import EventKind, History, Log, Note, make_log
from whence.foreign.shiviz import matched, read_text

Rows = Iterator[tuple[int, Mapping[str, Any]]]

_HOSTS = ("process", "host", "node")  # groups of a line that name its process, unless the mapping does


def read_table(path: Path | str, mapping: LogMapping) -> Log:
    """The log of a table; every row is an event."""
    path = Path(path)
    rows = table_rows(path, mapping.format or "csv", mapping.delimiter)
    normaliser = Normaliser(mapping)
    events = []
    first: Mapping[str, Any] | None = None
    for line, row in rows:
        if first is None:
            first = row
            require_columns(str(path), mapping, row)
        events.append(normaliser.row(row, line))
    if first is None:
        raise ImportFormatError(str(path), "it has no rows", "Check the file")
    return make_log(
        events, order=order_of(mapping), contract=mapping.contract, resolution_ns=resolution(events),
        notes=tuple(normaliser.notes()),
    )  # fmt: skip


def table_rows(path: Path, format_: str, delimiter: str | None = None) -> Rows:
    """The rows of a table, with their lines."""
    if format_ == "csv":
        return csv_rows(path, delimiter or ",")
    return {"jsonl": json_rows, "parquet": parquet_rows, "mcap": mcap_rows}[format_](path)


def require_columns(name: str, mapping: LogMapping, row: Mapping[str, Any]) -> None:
    """Refuse a CSV or Parquet file without the columns of a mapping that is not a preset's."""
    if mapping.format not in {"csv", "parquet"} or mapping.preset is not None:
        return
    for field, given in mapping.event.items():
        expression = given
        if field == "kind":
            expression = given.get("column") if isinstance(given, Mapping) else None
        for template in parse(expression) if expression else ():
            for column in template.columns:
                if column not in row and column.partition(".")[0] not in row:
                    raise ImportFormatError(
                        name, f"it has no column {column!r}, which `{field}` names",
                        f"Choose from: {', '.join(map(str, row))}",
                    )  # fmt: skip


def resolution(events: list[tuple[Any, ...]]) -> int:
    """The resolution of the times of some rows."""
    times = [each for row in events for each in (row[14], row[15]) if each is not None]
    return resolution_of(lambda unit: all(time % unit == 0 for time in times))


def resolution_of(divides: Callable[[int], bool]) -> int:
    """The largest of 1 ms and 1 us that divides every time; else 1 ns."""
    return next((unit for unit in (10**6, 10**3) if divides(unit)), 1)


def csv_rows(path: Path, delimiter: str = ",") -> Rows:
    """The rows of a CSV file with a header. If blanks follow its delimiters, they are no part of any cell."""
    text = read_text(path)
    spaced = any(
        name.startswith(" ") for name in next(csv.reader(io.StringIO(text), delimiter=delimiter), ())
    )
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=spaced)
    if not reader.fieldnames:
        raise ImportFormatError(str(path), "it has no header", "Put the names of columns into the first line")
    twice = [name for name, count in Counter(reader.fieldnames).items() if count > 1]
    if twice:
        raise ImportFormatError(str(path), f"two columns are called {twice[0]!r}", "Rename one of them")
    for row in reader:
        if None in row:
            raise ImportFormatError(
                f"{path}, line {reader.line_num}", "it has more cells than the header", "Quote"
            )
        yield reader.line_num, row


def json_rows(path: Path) -> Rows:
    """The objects of a file: one per line, or all in one list; then their number is their line."""
    whole = read_text(path)
    if whole.lstrip()[:1] == "[":
        yield from enumerate(_listed_rows(whole, path), 1)
        return
    for line, text in enumerate(whole.split("\n"), 1):
        if not text.strip():
            continue
        yield line, json_row(text, f"{path}, line {line}")


def is_json_list(path: Path) -> bool:
    """Whether a file of JSON is one list."""
    with path.open("rb") as file:
        return file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"["


def _listed_rows(text: str, path: Path) -> list[dict[str, Any]]:
    rows = _json(text, str(path))
    for at, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise ImportFormatError(f"{path}, item {at}", "it is not an object", "Give a list of objects")
    made: list[dict[str, Any]] = rows
    return made


def json_row(text: str, where: str) -> dict[str, Any]:
    """The object of one line."""
    row = _json(text, where)
    if not isinstance(row, dict):
        raise ImportFormatError(where, "it is not an object", _JSON_FORMS)
    return row


_JSON_FORMS = "Give one object per line, or all in one list"


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text, parse_float=str)  # 1.50 stays what it is, as on Spark
    except ValueError as error:
        raise ImportFormatError(where, f"it is not JSON ({error})", _JSON_FORMS) from error


def parquet_rows(path: Path) -> Rows:
    """The rows of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise ImportFormatError(str(path), f"it is not Parquet ({error})", "Check the file") from error
    line = 0
    for batch in file.iter_batches():
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        for name, column in columns.items():  # a Python time has no nanoseconds
            if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
                columns[name] = column.cast(pa.timestamp("ns", "UTC")).cast(pa.string())
        for row in pa.RecordBatch.from_pydict(columns).to_pylist(maps_as_pydicts="lossy"):
            line += 1
            yield line, row


def mcap_rows(path: Path) -> Rows:
    """The messages of an MCAP recording, in the order in which they were written."""
    try:
        from mcap.exceptions import McapError
        from mcap.reader import make_reader
    except ImportError as error:
        raise missing_extra("MCAP recordings", "mcap", "mcap") from error
    with path.open("rb") as stream:
        try:
            found = make_reader(stream).iter_messages(log_time_order=False)
            for line, (_, channel, message) in enumerate(found, 1):
                about = {key.lower(): value for key, value in channel.metadata.items()}
                yield line, {
                    **about, "recorder": path.stem, "topic": channel.topic, "channel": channel.id,
                    "publisher": about.get("callerid") or about.get("publisher"),
                    "sequence": message.sequence or None,  # 0: the recorder has none
                    "log_time": message.log_time, "publish_time": message.publish_time,
                }  # fmt: skip
        except (McapError, OSError, struct.error) as error:
            raise ImportFormatError(
                str(path), f"it is not an MCAP recording ({error})", "Check the file"
            ) from error


class LineRules:
    """The patterns of a mapping; the groups that they name are columns."""

    def __init__(self, mapping: LogMapping) -> None:
        event = dict(mapping.event)
        self._shared = re.compile(mapping.pattern) if mapping.pattern else None
        self._rules = [(re.compile(rule.pattern), rule) for rule in mapping.lines]
        named = {name for pattern, _ in self._rules for name in pattern.groupindex}
        named |= set(self._shared.groupindex) if self._shared else set()
        usual = (("process", _HOSTS), ("message", ("msg",)), ("to", ("to",)), ("time", ("time",)))
        for field, groups in usual if mapping.format == "lines" else ():
            found = next((group for group in groups if group in named), None)
            if found is not None:
                event.setdefault(field, found)
        self.mapping = msgspec.structs.replace(mapping, event=event)

    def read(self, text: str) -> tuple[EventKind | None, dict[str, Any]]:
        """The kind and the columns of a line; no kind: it matches nothing."""
        around = self._shared.search(text) if self._shared else None
        kind, columns = matched(self._rules, text)
        if kind is None or (self._shared is not None and around is None):
            return None, {}
        return kind, {**(around.groupdict() if around else {}), **columns}


def read_lines(path: Path | str, mapping: LogMapping) -> Log:
    """The log of a text; lines that match no pattern are counted."""
    rules = LineRules(mapping)
    mapping = rules.mapping
    normaliser = Normaliser(mapping)
    events, left_out = [], []
    for number, whole in enumerate(read_text(path).split("\n"), 1):
        text = whole.rstrip("\r")
        if not text.strip():
            continue
        kind, row = rules.read(text)
        if kind is None:
            left_out.append(number)
        else:
            events.append(normaliser.row(row, number, kind, text))
    if not events:
        raise ImportFormatError(
            str(path), "no line matches a pattern", "Give [[lines]] with pattern and kind"
        )
    notes = normaliser.notes()
    if left_out:
        first = ", ".join(map(str, left_out[:5]))
        notes.append(Note("unmatched", f"{len(left_out)} lines match no pattern: {first}", len(left_out)))
    return make_log(
        events, order=order_of(mapping), contract=mapping.contract, resolution_ns=resolution(events),
        notes=tuple(notes),
    )  # fmt: skip


# Histories

_READS, _WRITES, _SWAP = {"r", "read"}, {"w", "write"}, "cas"


def read_history(path: Path | str, mapping: LogMapping) -> Log:
    """The operations that ended well, one event each; what ended in an unknown way is counted."""
    rows = list(json_rows(Path(path)))
    unsure = _unfinished(rows)
    events: list[tuple[Any, ...]] = []
    reads: list[tuple[int, str, str | None]] = []
    writes: list[tuple[int, str, str]] = []
    maybe: set[tuple[str, str | None]] = set()
    for place, (line, row) in enumerate(rows):
        how = row.get("type", "ok")
        operations = [_operation(each) for listed in _listed(row) for each in _parts(listed)]
        if how != "ok":  # also what Jepsen's nemesis does, which is no operation
            if place in unsure:
                maybe |= {each[1:] for each in operations if each and each[0] in _WRITES and each[2]}
            continue
        if None in operations:
            raise ImportFormatError(
                f"{path}, line {line}", f"{row!r} is not an operation", "Give [r|w, key, value]"
            )
        process = text_of(look_up(row, "process")) or "log"
        for name, key, value in filter(None, operations):
            if name in _WRITES and value is not None:
                writes.append((len(events), key, value))
            elif name in _READS:
                reads.append((len(events), key, value))
        events.append((
            process, process, line, int(EventKind.INTERNAL), None, (), None, None, None, None, (), (), None,
            None, None, None, line, json.dumps(row.get("value", row)),
        ))  # fmt: skip
    if not events:
        raise ImportFormatError(str(path), "no operation ended well", 'Give rows with type = "ok"')
    reads = [each for each in reads if (each[1], each[2]) not in maybe]
    info = sum(row.get("type") == "info" for _, row in rows)
    notes = (Note("info", f"{info} operations ended in an unknown way", info),) if info else ()
    return make_log(
        events, order="line", contract=mapping.contract, history=History(reads, writes), notes=notes
    )


def _unfinished(rows: list[tuple[int, Mapping[str, Any]]]) -> set[int]:
    """Places of what may or may not have happened: `info`, and what was invoked and never ended."""
    open_: dict[Any, int] = {}
    unsure: set[int] = set()
    for place, (_, row) in enumerate(rows):
        how, process = row.get("type", "ok"), str(row.get("process"))
        if how == "invoke":
            open_[process] = place
        else:
            open_.pop(process, None)
            if how == "info":
                unsure.add(place)
    return unsure | set(open_.values())


def _listed(row: Mapping[str, Any]) -> list[Any]:
    """The operations of a row as they are written."""
    name, value = row.get("f"), row.get("value", row.get("txn"))
    if name == "txn" or (name is None and isinstance(value, list)):
        return value if isinstance(value, list) else []
    if "key" in row:
        return [[name, row["key"], value]]
    if name == _SWAP and isinstance(value, list) and not isinstance(value[-1], list):
        return [[name, "x", value]]
    return [[name, *value]] if isinstance(value, list) else [[name, "x", value]]


def _parts(given: Any) -> list[Any]:
    """A compare-and-set that ended well has read one value and written another."""
    if isinstance(given, list) and len(given) == 3 and given[0] == _SWAP:
        values = given[2]
        if isinstance(values, list) and len(values) == 2:
            return [["r", given[1], values[0]], ["w", given[1], values[1]]]
    return [given]


def _operation(given: Any) -> tuple[str, str, str | None] | None:
    """Name, key and value; None if it is no operation on a register."""
    if not isinstance(given, list) or len(given) != 3 or str(given[0]) not in _READS | _WRITES:
        return None
    return str(given[0]), str(given[1]), text_of(given[2])
