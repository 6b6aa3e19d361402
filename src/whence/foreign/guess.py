"""Drafts a mapping from the columns of a table, and says what it would make judgeable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from whence.foreign.judge import judge
from whence.foreign.mapping import KINDS, LogMapping, mapping_of
from whence.foreign.read import format_of, read_log
from whence.foreign.report import Audit
from whence.foreign.tables import table_rows

# Names of columns by field, the likeliest first; compared without case, blanks and underscores.
_SYNONYMS = {
    "process": (
        "process", "node", "host", "consumer", "client", "subscriber", "receiver", "member", "pod", "worker",
    ),
    "context": ("thread", "threadid", "actor", "workflow", "task", "goroutine"),
    "order": ("seq", "sequence", "place", "position", "lsn", "index", "step"),
    "kind": ("kind", "event", "type", "op", "operation", "action", "what"),
    "message": ("messageid", "message", "msgid", "msg", "eventid", "id", "uuid", "key"),
    "to": ("to", "destination", "target", "recipient"),
    "sender": ("sender", "from", "origin", "producer", "publisher", "source", "author"),
    "send_order": ("senderseq", "sendseq", "producerseq", "publishseq", "offset", "streamseq", "number", "n"),
    "session": ("session", "sessionid", "connection", "connectionid", "assignment"),
    "group": ("group", "groupid", "consumergroup", "subscription"),
    "depends_on": ("dependson", "deps", "parents", "prevevents", "previous", "causes", "after"),
    "clock": ("clock", "vectorclock", "vc"),
    "time": ("time", "timestamp", "ts", "at", "when", "start", "starttime", "begin"),
    "end": ("end", "endtime", "finish", "finished", "until"),
}  # fmt: skip
_KIND_WORDS = {
    "send": ("send", "sent", "broadcast", "publish", "produce", "commit", "emit", "write"),
    "receive": ("recv", "receiv", "arriv", "in"),
    "deliver": ("deliver", "consum", "apply", "applied", "handle", "process", "record", "out"),
    "crash": ("crash", "die", "kill"),
    "restart": ("restart", "start", "boot", "recover"),
}
_BROKERS = {"kafka": {"topic", "partition", "offset"}, "nats": {"stream", "stream_seq"}}


class Guess(msgspec.Struct, frozen=True, kw_only=True):
    """A draft, and what comes of it."""

    mapping: str  # the text of a mapping file
    audit: Audit


def guess(path: Path | str) -> Guess:
    """Draft a mapping for a file."""
    path = Path(path)
    format_ = format_of(path)
    document: dict[str, Any] = {"log": {"format": format_}}
    if format_ in {"csv", "jsonl", "parquet"}:
        delimiter = _delimiter(path) if format_ == "csv" else None
        document = _draft(format_, [row for _, row in _some(table_rows(path, format_, delimiter))])
        if delimiter not in {None, ","}:
            document["log"]["delimiter"] = delimiter
    mapping: LogMapping = mapping_of(document)
    return Guess(mapping=_toml(document), audit=judge(read_log(path, mapping), str(path)))


def _delimiter(path: Path) -> str:
    """What stands most often in the header, of what may stand between cells."""
    with path.open("rb") as file:
        header = file.readline().decode("utf-8", errors="replace")
    return max(",;\t|", key=header.count)


def _some(rows: Any, most: int = 1000) -> list[Any]:
    return [row for row, _ in zip(rows, range(most), strict=False)]


def _draft(format_: str, rows: list[Any]) -> dict[str, Any]:
    columns = list(dict.fromkeys(column for row in rows for column in row))
    for preset, needed in _BROKERS.items():
        if needed <= set(columns):
            return {"log": {"format": format_, "preset": preset}}
    by_name = {"".join(ch for ch in column.lower() if ch.isalnum()): column for column in reversed(columns)}
    event: dict[str, Any] = {}
    taken: set[str] = set()
    for field, synonyms in _SYNONYMS.items():
        found = next((by_name[each] for each in synonyms if by_name.get(each, "") not in {"", *taken}), None)
        if found is not None:
            taken.add(found)
            event[field] = found
    if "send_order" in event and "sender" not in event:
        del event["send_order"]
    event["kind"] = _kinds(rows, event["kind"]) if "kind" in event else "deliver"
    return {"log": {"format": format_}, "event": event}


def _kinds(rows: list[Any], column: str) -> dict[str, Any]:
    made: dict[str, Any] = {"column": column}
    for value in dict.fromkeys(str(row.get(column)) for row in rows):
        kind = next((kind for kind, words in _KIND_WORDS.items() if value.lower().startswith(words)), None)
        if kind is not None and value not in KINDS:
            made.setdefault(kind, []).append(value)
    return made


def _toml(document: dict[str, Any]) -> str:
    lines = []
    for table, keys in document.items():
        lines.append(f"[{table}]")
        lines += [f"{key} = {_value(value)}" for key, value in keys.items()]
        lines.append("")
    return "\n".join(lines)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_value(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return msgspec.json.encode(str(value)).decode()
