"""Drafts a mapping from what a file looks like, and says what it would make judgeable.

A draft is a beginning: names of columns, and some of their values, are all that it goes by; of a text, where
its lines name a host, a time, a message, and which words tell a kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from whence.errors import ImportFormatError
from whence.foreign.judge import judge
from whence.foreign.mapping import LogMapping, look_up, mapping_of, names_in, text_of
from whence.foreign.model import number
from whence.foreign.read import format_of, read_log, require_something
from whence.foreign.report import Audit
from whence.foreign.shiviz import read_text
from whence.foreign.tables import table_rows

# Names of columns by field, the likeliest first; compared without case, blanks and underscores, whole or by
# what comes after the last point.
_SYNONYMS = {
    "process": (
        "process", "consumer", "consumerid", "client", "clientid", "subscriber", "receiver", "node", "nodeid",
        "host", "hostname", "replica", "replicaid", "member", "pod", "podname", "worker", "workerid", "sink",
        "server", "device", "deviceid", "instance", "peer", "peerid", "view", "ws", "conn", "phone",
    ),
    "context": ("thread", "threadid", "actor", "workflow", "task", "goroutine"),
    "kind": ("kind", "event", "eventtype", "type", "op", "operation", "action", "direction", "dir", "what"),
    "message": (
        "messageid", "msgid", "eventid", "opid", "id", "uuid", "mid", "message", "msg", "op", "hash", "key",
    ),
    "to": ("to", "target", "recipient", "recipients"),
    "sender": ("sender", "from", "origin", "producer", "publisher", "author", "user", "source"),
    "channel": (
        "messagegroupid", "orderingkey", "partitionkey", "topic", "stream", "queue", "room", "roomid",
        "channel", "channelid", "subject", "table", "shard",
    ),
    "send_order": (
        "sequencenumber", "offset", "streamseq", "lsn", "scn", "senderseq", "sendseq", "producerseq",
        "publishseq", "seq", "sequence", "number", "n",
    ),
    "order": ("place", "position", "line", "index", "step", "seq", "sequence"),
    "session": ("session", "sessionid", "connection", "connectionid", "assignment", "epoch"),
    "group": ("group", "groupid", "consumergroup", "subscription"),
    "depends_on": (
        "dependson", "deps", "dependencies", "parents", "parent", "prevevents", "previous", "prev", "causes",
        "replyto", "inreplyto", "replytomessageid", "threadts", "references", "after",
    ),
    "clock": ("clock", "vectorclock", "vc", "vv", "versionvector"),
    "time": ("time", "timestamp", "ts", "tst", "tsms", "at", "when", "start", "starttime", "begin", "date",
             "datetime", "receivedat"),
    "end": ("end", "endtime", "finish", "finished", "until"),
}  # fmt: skip
# What a broker counts, for all senders together.
_OF_A_CHANNEL = {"sequencenumber", "offset", "streamseq", "lsn", "scn"}
_KIND_WORDS = {
    "send": ("send", "sent", "broadcast", "publish", "produc", "commit", "emit", "outgoing", "outbound"),
    "receive": ("recv", "receiv", "arriv", "got", "in", "incoming", "inbound"),
    "deliver": ("deliver", "consum", "appl", "handl", "process", "record", "display", "out"),
    "crash": ("crash", "die", "kill"),
    "restart": ("restart", "start", "boot", "recover"),
}
_WAYS = {"out": "send", "in": "deliver"}  # of a column of directions
_PRESETS = {
    "kafka": {"topic", "partition", "offset"},
    "nats": {"stream", "stream_seq"},
    "mqtt": {"client", "topic", "publisher", "qos", "seq"},
}
_TABLES = ("csv", "jsonl", "parquet")
_REDIS_ID = re.compile(r"\d{10,}-\d+")
_KINDS_MAX = 20  # different values of a column of kinds ...
_KIND_WORDS_MAX = 3  # ... and words in one
_DEPTH = 3  # of objects in objects


class Guess(msgspec.Struct, frozen=True, kw_only=True):
    """A draft, and what comes of it."""

    mapping: str  # the text of a mapping file
    audit: Audit


def guess(path: Path | str) -> Guess:
    """Draft a mapping for a file."""
    path = Path(path)
    require_something(path)
    format_ = format_of(path)
    document: dict[str, Any] = {"log": {"format": format_}}
    if format_ in _TABLES:
        delimiter = _delimiter(path) if format_ == "csv" else None
        document = _draft(format_, [row for _, row in _some(table_rows(path, format_, delimiter))])
        if delimiter not in {None, ","}:
            document["log"]["delimiter"] = delimiter
    elif format_ == "shiviz":
        try:
            read_log(path)
        except ImportFormatError:
            document = _draft_lines(path)
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
    columns = list(dict.fromkeys(column for row in rows for column in _columns(row)))
    log: dict[str, Any] = {"format": format_}
    for preset, needed in _PRESETS.items():
        if needed <= set(columns):
            return {"log": {**log, "preset": preset}}
    event = _fields(columns, rows)
    _name_by_causes(event, columns, rows)
    kinds = _kinds(rows, event.pop("kind", None), columns)
    _number_sends(event, rows, "send" in kinds)
    event["kind"] = kinds if "column" in kinds else "deliver"
    if "clock" in event and not all(isinstance(look_up(row, event["clock"]), str | dict) for row in rows):
        del event["clock"]
    if "time" in event:
        log["time_unit"] = _unit(rows, event["time"])
    return {"log": log, "event": event}


def _columns(row: Mapping[str, Any], above: str = "", depth: int = 0) -> Iterator[str]:
    """The paths to all values of a row; a vector clock is one value."""
    for name, value in row.items():
        inner = isinstance(value, dict) and depth < _DEPTH and _plain(name) not in _SYNONYMS["clock"]
        if inner:
            yield from _columns(value, f"{above}{name}.", depth + 1)
        else:
            yield f"{above}{name}"


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _fields(columns: list[str], rows: list[Any]) -> dict[str, Any]:
    """The likeliest column of each field; a whole name goes before what comes after a point."""
    names = {_plain(column.rpartition(".")[2]): column for column in reversed(columns)}
    names |= {_plain(column): column for column in reversed(columns)}
    event: dict[str, Any] = {}
    taken: set[str] = set()
    for field, synonyms in _SYNONYMS.items():
        found = next((names[each] for each in synonyms if names.get(each, "") not in {"", *taken}), None)
        if found is not None and any(text_of(look_up(row, found)) is not None for row in rows):
            taken.add(found)
            event[field] = found
    return event


def _name_by_causes(event: dict[str, Any], columns: list[str], rows: list[Any]) -> None:
    """The column that has what messages name as their causes is the one that names messages."""
    if "depends_on" not in event:
        return
    named = {name for row in rows for name in names_in(text_of(look_up(row, event["depends_on"])))}
    has = {
        column: len(named & {text_of(look_up(row, column)) for row in rows})
        for column in [event.get("message"), *columns] if column not in {None, event["depends_on"]}
    }  # fmt: skip
    best = max(has, key=lambda column: has[column], default=None)
    if best is not None and has[best] > has.get(event.get("message"), 0):
        event["message"] = best


def _number_sends(event: dict[str, Any], rows: list[Any], sends: bool) -> None:
    """Say what numbers the sends, within what, and how that names a message; or leave it out."""
    channel, sender, ranked = (event.pop(field, None) for field in ("channel", "sender", "send_order"))
    first = text_of(look_up(rows[0], event["message"])) if rows and "message" in event else None
    if ranked is None and channel and first and _REDIS_ID.fullmatch(first):
        ranked = event["message"]
        event["message"] = f"{{{channel}}}/{{{ranked}}}"
    of_channel = ranked is not None and _plain(ranked.rpartition(".")[2]) in _OF_A_CHANNEL
    within = [channel] if channel and of_channel else [sender, channel]
    within = [each for each in within if each]
    if ranked is None or sends or not within:
        if ranked is not None and "order" not in event:
            event["order"] = ranked  # it counts the rows of a process, then
        if sender:
            event["sender"] = sender
        return
    event.pop("order", None)
    event["channel"] = within if len(within) > 1 else within[0]
    event["send_order"] = ranked
    names = [text_of(look_up(row, event["message"])) for row in rows] if "message" in event else []
    if len(set(names)) < len(rows) and "{" not in event.get("message", ""):  # of a row of a table, perhaps
        event["message"] = "/".join(f"{{{each}}}" for each in [*within, ranked])


def _kinds(rows: list[Any], likely: str | None, columns: list[str]) -> dict[str, Any]:
    """The column whose values say what a row is, with their meaning; nothing if there is none."""
    for column in [likely, *columns] if likely else columns:
        values = {text_of(look_up(row, column)) or "" for row in rows}
        if len(values) > _KINDS_MAX or any(len(value.split()) > _KIND_WORDS_MAX for value in values):
            continue
        meant = {value: _meaning(column, value) for value in sorted(values)}
        if not {"send", "deliver", "receive"} & set(meant.values()):
            continue
        if column != likely and "send" not in meant.values():
            continue
        if "deliver" not in meant.values():  # what arrives is all that there is to judge
            meant = {value: "deliver" if kind == "receive" else kind for value, kind in meant.items()}
        made: dict[str, Any] = {"column": column}
        for value, kind in meant.items():
            if kind is not None and value != kind:
                made.setdefault(kind, []).append(value)
        return made
    return {}


def _meaning(column: str, value: str) -> str | None:
    """The kind that a value means: by its words, or by a column of directions or of yes and no."""
    name, lower = _plain(column), value.lower()
    if name in {"dir", "direction"} and lower.startswith(("in", "out")):
        return _WAYS["in" if lower.startswith("in") else "out"]
    if name in {"outgoing", "isoutgoing", "fromme", "sentbyme"} and lower in {"true", "false", "1", "0"}:
        return "send" if lower in {"true", "1"} else "deliver"
    for word in re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", value).lower()):
        for kind, words in _KIND_WORDS.items():
            if any(word == each if len(each) < 4 else word.startswith(each) for each in words):
                return kind
    return None


def _unit(rows: list[Any], column: str) -> str:
    """The unit of numbers that are times since 1970, by their size."""
    found = [number(text_of(look_up(row, column))) for row in rows]
    largest = max((abs(int(each)) for each in found if each is not None), default=0)
    sizes = {"ns": 10**17, "us": 10**14, "ms": 10**11}
    return next((unit for unit, least in sizes.items() if largest > least), "s")


def _toml(document: dict[str, Any]) -> str:
    lines = []
    for table, keys in document.items():
        for each in keys if isinstance(keys, list) else [keys]:
            lines.append(f"[[{table}]]" if isinstance(keys, list) else f"[{table}]")
            lines += [f"{key} = {_value(value)}" for key, value in each.items()]
            lines.append("")
    return "\n".join(lines)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_value(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if "\\" in str(value) and "'" not in str(value):
        return f"'{value}'"
    return msgspec.json.encode(str(value)).decode()


# Texts

_LINES_MAX = 1_000
_MOST = 0.8  # of the lines that a pattern must fit

# Who wrote a line, the surest first.
_HOSTS = (
    r"\b(?:host|node|process|pod|instance|client|consumer|service)=\"?(?P<host>[^\s\",]+)",
    r"^\[pod/(?P<host>[^/]+)/",
    r"^(?P<host>[\w.-]+)\s+\| ",
    r"^[A-Z][a-z]{2} +\d+ [\d:]{8} (?P<host>\S+) ",
    r"\[(?P<host>[A-Za-z][\w.-]*)\](?!.*\[[A-Za-z][\w.-]*\])",
    r"^(?:\S+[ T]\S+ )?(?P<host>[A-Za-z][\w.-]*): ",
)
_TIMES = (
    r"\b(?:ts|time|timestamp)=\"?(?P<time>\d[^\s\",]+)",
    r"(?P<time>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)",
)
_VERBS = {
    "send": r"\b(?:sen[dt]|sending|publish\w*|broadcast\w*|produc(?:e|ed|ing)|queued|emit\w*)\b",
    "deliver": r"\b(?:deliver\w*|consum(?:e|ed|ing)|handl(?:e|ed|ing)|receiv(?:e|ed|ing)|appl(?:y|ied)|got|"
    r"stored|process(?:ed|ing))\b",
}
# What names a message: a key, or the first word with a digit after the verb.
_IDS = (
    r".*?\b(?:\w*[Ii][Dd]|msg|message|seq)[=:]\s*\"?(?P<msg>[^\s\",;]+)",
    r".*?\b(?P<msg>[A-Za-z]+[=:#]\d+)\b",
    r".*?\b(?P<msg>[\w:-]*\d[\w:-]*)",
)
_FIX = "Write a mapping with [[lines]], each with a pattern that has (?P<msg>...), and a kind"


def _draft_lines(path: Path) -> dict[str, Any]:
    """The tables of a mapping for a text."""
    lines = [line for line in read_text(path).split("\n") if line.strip()][:_LINES_MAX]
    rules = [
        {"pattern": f"(?i){verb}{ids}", "kind": kind}
        for kind, verb in _VERBS.items()
        for ids in [_fitting(_IDS, [line for line in lines if re.search(f"(?i){verb}", line)], f"(?i){verb}")]
        if ids is not None
    ]
    if not rules:
        raise ImportFormatError(str(path), "none of its lines says that a message is sent or delivered", _FIX)
    of_events = [line for line in lines if any(re.search(rule["pattern"], line) for rule in rules)]
    log: dict[str, Any] = {"format": "lines"}
    parts = [each for each in (_fitting(_TIMES, of_events), _fitting(_HOSTS, of_events)) if each is not None]
    if parts:  # each is sought from the beginning of the line, whichever comes first
        log["pattern"] = "^" + "".join(map(_ahead, parts))
    return {"log": log, "lines": rules}


def _ahead(pattern: str) -> str:
    return f"(?={pattern[1:]})" if pattern.startswith("^") else f"(?=.*?{pattern})"


def _fitting(patterns: Sequence[str], lines: list[str], before: str = "") -> str | None:
    """The first of some patterns that fits most of some lines."""
    for pattern in patterns if lines else ():
        if sum(re.search(before + pattern, line) is not None for line in lines) >= _MOST * len(lines):
            return pattern
    return None
