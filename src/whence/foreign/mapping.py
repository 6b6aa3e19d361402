"""Mapping files: how the columns of a log become events of the model. TOML; docs/audit.md has every key.

An expression is a column, a dotted path, a template `"{topic}/{partition}@{offset}"`, or a list of these, and
nothing else: so it compiles to a Python closure here and to a Spark column in `whence.spark.audit`, with
equal results. Values are texts; what is missing or empty is no value. A template lacking a value has none; a
list has none if all of its parts lack one. (An object or list as a value is its JSON text: compact here, with
the spaces of the log on Spark.)
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from whence import plugins
from whence.errors import ConfigError
from whence.foreign.model import INT64_MAX, PLAIN_NUMBER, Contract, EventKind, Log, Note, number
from whence.toml import read_toml

FORMATS = ("csv", "jsonl", "parquet", "lines", "shiviz", "otlp", "history", "mcap")
PRESETS = ("plain", "shiviz", "kafka", "nats", "mqtt", "rosbag", "otlp", "history")
UNITS_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
KINDS = {kind.name.lower(): kind for kind in EventKind}
FIELDS = (
    "process", "context", "order", "kind", "message", "to", "sender", "send_order", "channel", "session",
    "group", "depends_on", "links", "ref", "clock", "time", "end",
)  # fmt: skip
NAME_FIELDS = ("to", "depends_on", "links")  # several names each
SEPARATOR = " | "  # between the parts of a list; a bar inside a part is doubled
LIST_SPLIT = r"[\s,;|]+"  # between the names in a cell that has several

# A time in words, in the forms that Python and Spark both read once commas are points; the basic form of ISO
# 8601; and the nanoseconds, which neither keeps.
ISO_TIME = r"^\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d(?::?\d\d)?)?)?$"
BASIC_TIME = r"^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)"
BELOW_MICROS = r"[.,]\d{6}(\d{1,3})"

_ABOUT = {
    "story",
    "source",
    "data",
    "expect",
}  # a mapping may say where it comes from and what it should find
_PLACES = re.compile(r"\{([^{}]+)\}")

Row = Mapping[str, Any]
Text = Callable[[Row], str | None]


class LineRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a line is that matches a pattern; its named groups are columns."""

    pattern: str
    kind: str = "internal"
    message: str | None = None


class KindRule(NamedTuple):
    """Which kind a row is: a constant, or by the value of a column."""

    constant: EventKind | None
    column: Any  # an expression
    values: dict[str, EventKind]
    default: EventKind | None


class LogMapping(msgspec.Struct, frozen=True, kw_only=True):
    """A mapping file together with its preset."""

    format: str | None = None
    preset: str | None = None
    time_unit: str = "s"
    pattern: str | None = None
    delimiter: str | None = None
    scope: tuple[str, ...] = ()  # attributes of spans that make a scope
    lines: tuple[LineRule, ...] = ()
    event: dict[str, Any] = {}
    own: tuple[str, ...] = ()  # the fields of `event` that the file itself gives, not its preset
    contract: Contract = Contract()


class LogReader(NamedTuple):
    """A format that a plug-in brings (`READERS`): its name, how a file becomes a log, and names of files."""

    name: str
    read: Callable[[Path, LogMapping], Log]
    suffixes: tuple[str, ...] = ()  # like ".evtx"


def plugin_readers() -> dict[str, LogReader]:
    """The formats of plug-ins, by name."""
    return plugins.declared("READERS", LogReader, FORMATS)


def load_mapping(path: Path | str) -> LogMapping:
    """A mapping from a file, or a preset from its name."""
    if not Path(path).exists() and str(path) in PRESETS:
        return mapping_of({"log": {"preset": str(path)}}, str(path))
    kind = f"a mapping, or a preset's name: {', '.join(PRESETS)}"
    return mapping_of(read_toml(Path(path), kind, ConfigError), str(path))


def mapping_of(document: Mapping[str, Any], name: str = "mapping") -> LogMapping:
    """A mapping from the tables of its file, laid over those of its preset."""
    given = {key: value for key, value in document.items() if key not in _ABOUT}
    _known(name, given, {"log", "lines", "event", "scope", "contract"}, "table")
    log = dict(given.get("log", {}))
    _known(f"{name} [log]", log, {"format", "preset", "time_unit", "pattern", "delimiter", "scope"}, "key")
    preset = _preset(name, log)
    within = dict(given.get("scope", {}))
    attributes = within.pop("attributes", ())  # of spans
    event = {**preset.get("event", {}), **given.get("event", {}), **within}
    _known(f"{name} [event]", event, set(FIELDS), "field")
    merged = {**preset.get("log", {}), **log}
    rules = given.get("lines") or preset.get("lines", [])
    contract = contract_of({**preset.get("contract", {}), **given.get("contract", {})}, f"{name} [contract]")
    unit = merged.get("time_unit", "s")
    _one_of(f"{name} time_unit", unit, tuple(UNITS_NS))
    if merged.get("format", "csv") not in FORMATS:
        _one_of(f"{name} format", merged["format"], (*FORMATS, *plugin_readers()))
    if merged.get("format") == "csv" and len(merged.get("delimiter", ",")) != 1:
        raise ConfigError(f"{name} delimiter", "of CSV it is one character", 'Write it like ";"')
    made = LogMapping(
        format=merged.get("format"), preset=log.get("preset"), time_unit=unit, pattern=merged.get("pattern"),
        delimiter=merged.get("delimiter"),
        scope=tuple(merged.get("scope") or attributes or _span_scope(merged, event)),
        lines=tuple(_line_rule(name, each) for each in rules), event=event, contract=contract,
        own=(*given.get("event", {}), *within),
    )  # fmt: skip
    for field, expression in event.items():
        if field == "kind":
            kind_rule(expression, name)
        else:
            parse(expression, f"{name} {field}")
    return made


def _span_scope(log: Mapping[str, Any], event: Mapping[str, Any]) -> list[str]:
    """The attributes that make a session of spans."""
    if log.get("format") != "otlp" or "session" not in event:
        return []
    return [column for template in parse(event["session"]) for column in template.columns]


def _preset(name: str, log: Mapping[str, Any]) -> dict[str, Any]:
    implied = {"shiviz": "shiviz", "otlp": "otlp", "history": "history", "mcap": "rosbag"}
    preset = log.get("preset") or implied.get(log.get("format", ""))
    if preset is None:
        return {}
    _one_of(f"{name} preset", preset, PRESETS)
    return tomllib.loads((files("whence.foreign") / "presets" / f"{preset}.toml").read_text("utf-8"))


def contract_of(table: Mapping[str, Any], name: str = "contract") -> Contract:
    """A contract from its table."""
    _known(name, table, {"order", "delivery", "complete", "members", "max_skew", "require"}, "key")
    skew = table.get("max_skew")
    return Contract(
        order=table.get("order"),
        delivery=table.get("delivery"),
        complete=tuple(table.get("complete", ())),
        members=tuple(map(str, table.get("members", ()))),
        max_skew_ns=None if skew is None else duration_ns(skew, name),
        require=tuple(table.get("require", ())),
    )


def duration_ns(value: object, name: str) -> int:
    """`"5ms"`, `"1 s"`, or a number of seconds."""
    found = re.fullmatch(r"\s*([\d.]+)\s*(ns|us|ms|s)?\s*", str(value))
    if found is None:
        raise ConfigError(name, f"{value!r} is not a time", 'Write it like "5ms"')
    return int(Decimal(found[1]) * UNITS_NS[found[2] or "s"])


def _line_rule(name: str, table: Any) -> LineRule:
    try:
        rule = msgspec.convert(table, LineRule)
        re.compile(rule.pattern)
    except (msgspec.ValidationError, re.error) as error:
        raise ConfigError(
            f"{name} [[lines]]", str(error), "Give pattern, kind and perhaps message"
        ) from error
    _one_of(f"{name} [[lines]] kind", rule.kind, tuple(KINDS))
    return rule


def _known(name: str, given: Mapping[str, Any], known: set[str], what: str) -> None:
    for key in given:
        if key not in known:
            raise ConfigError(name, f"{what} {key!r} is unknown", f"Choose from: {', '.join(sorted(known))}")


def _one_of(name: str, value: object, known: Sequence[str]) -> None:
    if value not in known:
        raise ConfigError(name, f"{value!r} is not one", f"Choose from: {', '.join(known)}")


# Expressions


class Template(NamedTuple):
    """Texts and columns in turn; a lone column is a template of one part."""

    parts: tuple[tuple[bool, str], ...]  # (is a column, the column or the text)

    @property
    def columns(self) -> list[str]:
        """The columns it reads."""
        return [text for is_column, text in self.parts if is_column]


Expression = tuple[Template, ...]  # more than one: a list


def parse(expression: Any, name: str = "expression") -> Expression:
    """An expression in parts."""
    if isinstance(expression, list) and expression:
        return tuple(template for each in expression for template in parse(each, name))
    if not isinstance(expression, str) or not expression:
        raise ConfigError(name, f"{expression!r} is not an expression", "Give a column, a template or a list")
    if "{" not in expression:
        return (Template(((True, expression),)),)
    parts: list[tuple[bool, str]] = []
    at = 0
    for found in _PLACES.finditer(expression):
        if found.start() > at:
            parts.append((False, expression[at : found.start()]))
        parts.append((True, found[1]))
        at = found.end()
    if at < len(expression):
        parts.append((False, expression[at:]))
    if not any(is_column for is_column, _ in parts):
        raise ConfigError(name, f"{expression!r} has no column", "Write columns as {column}")
    return (Template(tuple(parts)),)


def look_up(row: Row, path: str) -> Any:
    """A column, or what lies at a dotted path."""
    if path in row:
        return row[path]
    value: Any = row
    for key in path.split("."):
        if not isinstance(value, Mapping) or key not in value:
            return None
        value = value[key]
    return value


def text_of(value: Any) -> str | None:
    """A value as text; None for what is missing or empty."""
    if value is None or value == "":
        return None
    if isinstance(value, str | bool):
        return value if isinstance(value, str) else str(value).lower()
    if isinstance(value, dict | list):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=text_of)
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    return _text_of_bytes(value) if isinstance(value, bytes) else str(value)


def _text_of_bytes(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.hex()


def compile_text(expression: Any) -> Text:
    """A closure that gives an expression's text for a row."""
    templates = parse(expression)
    made = [_compile_template(template) for template in templates]
    if len(made) == 1:
        return made[0]

    def joined(row: Row) -> str | None:
        parts = [each(row) for each in made]
        if all(part is None for part in parts):
            return None
        return SEPARATOR.join((part or "").replace("|", "||") for part in parts)

    return joined


def _compile_template(template: Template) -> Text:
    if template.parts[0][0] and len(template.parts) == 1:
        column = template.parts[0][1]
        return lambda row: text_of(look_up(row, column))

    def filled(row: Row) -> str | None:
        texts = [text_of(look_up(row, text)) if column else text for column, text in template.parts]
        return None if any(text is None for text in texts) else "".join(map(str, texts))

    return filled


def compile_names(expression: Any) -> Callable[[Row], list[str]]:
    """A closure that gives the names in the cells of an expression; those of a list one after the other."""
    made = [_compile_template(template) for template in parse(expression)]
    return lambda row: [name for each in made for name in names_in(each(row))]


def names_in(text: str | None) -> list[str]:
    """The names in a cell: a JSON list, or words."""
    if text is None:
        return []
    if text.startswith("["):
        try:
            found = [text_of(each) for each in json.loads(text)]
        except ValueError:
            return []
        return [each for each in found if each is not None]
    return [each for each in re.split(LIST_SPLIT, text, flags=re.ASCII) if each]


def time_ns(text: str, unit_ns: int) -> int | None:
    """A time in nanoseconds from a number or an ISO 8601 text (UTC unless it says otherwise).

    None for what is none, and for what 64 bits do not hold, such as the year 9999.
    """
    value = number(text) if re.match(PLAIN_NUMBER, text, re.ASCII) else None
    time = _iso_ns(text) if value is None else int(value * unit_ns)
    return time if time is not None and -INT64_MAX <= time <= INT64_MAX else None


def _iso_ns(text: str) -> int | None:
    text = re.sub(BASIC_TIME, r"\1-\2-\3T\4:\5:\6", text.strip(), flags=re.ASCII)
    try:
        when = datetime.fromisoformat(text) if re.match(ISO_TIME, text, re.ASCII) else None
    except ValueError:
        return None
    if when is None:
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    whole = when - datetime(1970, 1, 1, tzinfo=UTC)
    finer = re.search(BELOW_MICROS, text)
    below = int(finer[1].ljust(3, "0")) if finer else 0
    return (whole.days * 86400 + whole.seconds) * 10**9 + whole.microseconds * 1000 + below


def kind_rule(spec: Any, name: str = "kind") -> KindRule:
    """How rows get their kind."""
    if isinstance(spec, str):
        if spec in KINDS:
            return KindRule(KINDS[spec], None, {}, None)
        return KindRule(None, spec, dict(KINDS), None)
    if not isinstance(spec, Mapping) or "column" not in spec:
        raise ConfigError(
            f"{name} kind", "it has no `column`", "Give a kind, or {column = ..., send = [...]}"
        )
    values: dict[str, EventKind] = dict(KINDS)
    _known(f"{name} kind", spec, {"column", "default", *KINDS}, "key")
    for kind, texts in spec.items():
        if kind in KINDS:
            for text in texts if isinstance(texts, list) else [texts]:
                values[text_of(text) or ""] = KINDS[kind]
    default = spec.get("default")
    if default is not None:
        _one_of(f"{name} kind default", default, tuple(KINDS))
    return KindRule(None, spec["column"], values, None if default is None else KINDS[default])


def order_of(mapping: LogMapping) -> str:
    """Where places in a context come from."""
    event = mapping.event
    return (
        "seq"
        if "order" in event
        else "clock"
        if "clock" in event
        else "interval"
        if "end" in event
        else "line"
    )


class Normaliser:
    """Turns rows into events, and counts what it could not read."""

    def __init__(self, mapping: LogMapping) -> None:
        self.mapping = mapping
        event = mapping.event
        self._text = {
            field: compile_text(event[field]) if field in event else _nothing
            for field in FIELDS
            if field not in {"kind", *NAME_FIELDS}
        }
        self._names = {
            field: compile_names(event[field]) if field in event else _no_names for field in NAME_FIELDS
        }
        self._unit_ns = UNITS_NS[mapping.time_unit]
        self._kind = kind_rule(event.get("kind", "deliver"))
        self._kind_text = _nothing if self._kind.column is None else compile_text(self._kind.column)
        channel = event.get("channel") or event.get("sender")
        self._channel = compile_text(channel) if channel else _nothing
        self._of_session = set(session_columns(mapping))
        self._wanted = set(watched_columns(mapping))
        self.had: set[str] = set()  # columns of these with a value; those of the session: in a delivery
        self._order = order_of(mapping)
        self.odd_kinds: dict[str, int] = {}
        self._odd_order = 0
        self._unread: dict[str, int] = {}

    def row(
        self, row: Row, line: int, kind: EventKind | None = None, text: str | None = None
    ) -> tuple[Any, ...]:
        """An event as `make_log` takes it."""
        get = self._text
        proc = get["process"](row) or "log"
        ctx = get["context"](row) or proc
        kind = kind if kind is not None else self._kind_of(row)
        delivers = kind in (EventKind.DELIVER, EventKind.ACK)
        t0 = self._read("time", row, self._time)
        t1 = self._read("end", row, self._time)
        clock = self._read("clock", row, _clock)
        scope = get["session"](row) if "session" in self.mapping.event else ctx
        group = get["group"](row) if "group" in self.mapping.event else proc
        if self._wanted:
            looked = self._wanted if delivers else self._wanted - self._of_session
            found = {column for column in looked if text_of(look_up(row, column)) is not None}
            self.had |= found
            self._wanted -= found
        return (
            proc, ctx, self._place(row, line, clock, ctx), int(kind), get["message"](row),
            self._names["to"](row), scope if delivers else None, group if delivers else None,
            self._channel(row), self._read("send_order", row, number), self._names["depends_on"](row),
            self._names["links"](row), get["ref"](row), clock, t0, t1, line, text,
        )  # fmt: skip

    def _read(self, field: str, row: Row, read: Callable[[str], Any]) -> Any:
        """What the text of a field means; texts that mean nothing are counted."""
        text = self._text[field](row)
        value = None if text is None else read(text)
        if text is not None and value is None:
            self._unread[field] = self._unread.get(field, 0) + 1
        return value

    def _time(self, text: str) -> int | None:
        return time_ns(text, self._unit_ns)

    def _kind_of(self, row: Row) -> EventKind:
        rule = self._kind
        if rule.constant is not None:
            return rule.constant
        text = self._kind_text(row)
        if text is None:
            return EventKind.INTERNAL if rule.default is None else rule.default
        kind = rule.values.get(text, rule.values.get(text.lower()))
        if kind is None:
            self.odd_kinds[text] = self.odd_kinds.get(text, 0) + 1
            return EventKind.INTERNAL
        return kind

    def _place(self, row: Row, line: int, clock: dict[str, int] | None, ctx: str) -> Any:
        order = self._order
        if order == "line":
            return line
        if order == "interval":
            return None
        if order == "clock":
            return None if clock is None else clock.get(ctx)
        text = self._text["order"](row)
        place = number(text)
        place = time_ns(text, 1) if place is None and text is not None else place
        self._odd_order += place is None
        return place

    def remember(self, had: Iterable[str]) -> None:
        """Columns that rows had which another one of these read."""
        self.had |= set(had)
        self._wanted -= self.had

    def notes(self) -> list[Note]:
        """What the rows did not say."""
        return reader_notes(self.mapping, self.odd_kinds, self._odd_order, self.had, self._unread)


def session_columns(mapping: LogMapping) -> list[str]:
    """The columns that tell one session from another."""
    return columns_of(mapping, "session")


def columns_of(mapping: LogMapping, field: str) -> list[str]:
    """The columns that a field is read from."""
    expression = mapping.event.get(field)
    if field == "kind" and expression:
        expression = kind_rule(expression).column
    return [column for template in parse(expression) for column in template.columns] if expression else []


def watched_columns(mapping: LogMapping) -> list[str]:
    """The columns of which a note says that no row has them: the session's, and those that the file names."""
    named = [column for field in mapping.own for column in columns_of(mapping, field)]
    return list(dict.fromkeys([*session_columns(mapping), *named]))


def reader_notes(
    mapping: LogMapping, odd_kinds: dict[str, int], odd_order: int, had: set[str], unread: dict[str, int]
) -> list[Note]:
    """Notes on what could not be read, and on columns that no row had; `had`: the others that are watched."""
    notes = []
    if odd_kinds:
        told = ", ".join(sorted(filter(None, odd_kinds))[:5])
        count = sum(odd_kinds.values())
        notes.append(Note("unknown-kind", f"kinds that the mapping does not know: {told}", count))
    if odd_order:
        notes.append(Note("order", f"{odd_order} rows have no number in `order` and no place", odd_order))
    if any(unread.values()):
        told = ", ".join(f"{count} of `{field}`" for field, count in sorted(unread.items()) if count)
        text = f"values that could not be read and were left out: {told}"
        notes.append(Note("unread", text, sum(unread.values())))
    lacking = [column for column in session_columns(mapping) if column not in had]
    if lacking:
        told = ", ".join(f"`{column}`" for column in sorted(lacking))
        text = f"no delivery has {told}: sessions that begin anew look like one, and hide what they repeat"
        notes.append(Note("session", text))
    absent = [column for column in watched_columns(mapping) if column not in {*had, *lacking}]
    if absent:
        told = ", ".join(f"`{column}`" for column in sorted(absent))
        text = f"no row that was read has a value in {told}, which the mapping names"
        notes.append(Note("absent-column", text, len(absent)))
    return notes


def _nothing(row: Row) -> str | None:
    return None


def _no_names(row: Row) -> list[str]:
    return []


def _clock(text: str) -> dict[str, int] | None:
    try:
        clock = json.loads(text)
    except ValueError:
        return None
    if not isinstance(clock, dict):
        return None
    sane = all(type(count) is int and 0 <= count <= INT64_MAX for count in clock.values())
    return clock if sane else None
