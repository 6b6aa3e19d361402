"""Reads ShiViz and GoVector logs: events of hosts, each with a JSON vector clock.

A host is a context, and its events are in the order of its own clock, as in ShiViz; lines in another order
are a note. Sends and deliveries are recognised by the mapping's patterns, with message ids where the log has
them: a clock alone never says which message was delivered.

Layouts that are recognised without help:

    clock first   host {"host": 1}          clock last   event text
                  event text                             host {"host": 1}

    one line      ... host] {"host": 1} event text

A text may go on over further lines. Lines like `=== name ===` separate executions. A file may begin, as one
that is uploaded to ShiViz does, with the pattern in its first line and the delimiter in its second. Lines
that belong to no event are counted.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import structs

from whence.errors import ImportFormatError
from whence.foreign.mapping import KINDS, LineRule, LogMapping, Normaliser, mapping_of
from whence.foreign.model import EventKind, Log, Note, make_log

DELIMITER = r"^=== ?(?P<trace>.*?) ?===\s*$"
_CLOCK_LINE = re.compile(r'^(?P<host>\S+)\s+(?P<clock>\{\s*(?:"|\}).*)$')
_CLOCK_INSIDE = re.compile(r'^(?P<before>.*?)(?P<clock>\{\s*"[^{}]*\})(?P<after>.*)$')
_JS_GROUP = re.compile(r"\(\?<(?![=!])")  # (?<name> but not a look-behind
_FIX = 'Give the layout as for ShiViz: pattern = "(?<event>.*)\\n(?<host>\\S*) (?<clock>{.*})"'
_DRAFT = "whence log guess drafts a mapping"
_RECEIVES = re.compile(r"\b(?:receiv|recv|deliver|got)", re.IGNORECASE)
_SENDS = re.compile(r"\b(?:send|sent|broadcast|publish|post|put|request)", re.IGNORECASE)
_EXPORTED = re.compile(r"(?:broadcast|deliver|expire|send|receive) .+:\d|(?:crash|restart)\b")


# From text to events


class LogEvent(NamedTuple):
    """One event of a log."""

    host: str
    clock: dict[str, int]
    text: str
    line: int  # of its clock, from 1


class Execution(NamedTuple):
    """One of the executions in a log."""

    label: str
    events: list[LogEvent]


class ParsedLog(NamedTuple):
    """A whole log. Every line that is not blank is in exactly one of the counts."""

    layout: str
    executions: list[Execution]
    lines: int
    blank_lines: int
    delimiter_lines: int
    event_lines: int
    unparsed_lines: list[int]


class _LogSection(NamedTuple):
    """The lines between two delimiters."""

    label: str
    first_line: int  # number of lines[0], from 1
    lines: list[str]


def parse_log(name: str, text: str, pattern: str | None, delimiter: str | None) -> ParsedLog:
    """Parse a log; every line that is not blank ends in an event, a delimiter, or `unparsed_lines`."""
    lines = [line.rstrip("\r") for line in text.split("\n")]
    if lines and lines[-1] == "":
        lines.pop()
    header = 0
    if pattern is None and lines and "(?<host>" in lines[0]:
        header, pattern = 2, lines[0]
        delimiter = delimiter or (lines[1] if len(lines) > 1 else None) or None
    split = _compile(name, delimiter) if delimiter else re.compile(DELIMITER)
    sections = _sections(lines, header, split)
    executions: list[Execution] = []
    unparsed: list[int] = []
    layout = "pattern" if pattern is not None else _layout(name, sections)
    for section in sections:
        if pattern is not None:
            events, left_out = _by_pattern(name, section, _compile(name, pattern))
            unparsed += left_out
        else:
            read = {"clock first": _clock_first, "clock last": _clock_last, "one line": _one_line}[layout]
            events, left_out = read(name, section)
            unparsed += left_out
        if events:
            executions.append(Execution(section.label, events))
    if not executions:
        raise ImportFormatError(name, "no event was found in it", _FIX)
    blank = sum(not line.strip() for line in lines[header:])
    delimiters = sum(bool(split.match(line)) for line in lines[header:])
    return ParsedLog(
        layout=layout,
        executions=executions,
        lines=len(lines) - header,
        blank_lines=blank,
        delimiter_lines=delimiters,
        event_lines=len(lines) - header - blank - delimiters - len(unparsed),
        unparsed_lines=unparsed,
    )


def _error(name: str, line: int, reason: str) -> ImportFormatError:
    return ImportFormatError(f"{name}, line {line}", reason, _FIX)


def _compile(name: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(_JS_GROUP.sub("(?P<", pattern), re.MULTILINE)
    except re.error as error:
        raise ImportFormatError(
            name, f"the pattern {pattern!r} is not valid ({error})", "Correct it"
        ) from error


def _sections(lines: list[str], header: int, split: re.Pattern[str]) -> list[_LogSection]:
    sections = [_LogSection("", header + 1, [])]
    for number, line in enumerate(lines[header:], header + 1):
        found = split.match(line)
        if found:
            label = found.groupdict().get("trace") or str(len(sections))
            sections.append(_LogSection(label, number + 1, []))
        else:
            sections[-1].lines.append(line)
    return sections


def _layout(name: str, sections: list[_LogSection]) -> str:
    """Where the clocks stand: seen from the first line with text, and whether any line is just a clock."""
    lines = [line for section in sections for line in section.lines if line.strip()]
    if lines and _is_clock(lines[0]):
        return "clock first"
    if any(_is_clock(line) for line in lines):
        return "clock last"
    if any(_CLOCK_INSIDE.match(line) for line in lines):
        return "one line"
    raise ImportFormatError(name, "no line in it has a vector clock", f"{_FIX}; for another text: {_DRAFT}")


def _is_clock(line: str) -> bool:
    """Whether a line is "host {clock}" and nothing else."""
    try:
        return _clock_line("", 0, line, text_may_begin=False) is not None
    except ImportFormatError:
        return False


def _clock(name: str, line: int, host: str, text: str) -> dict[str, int]:
    try:
        clock = json.loads(text)
    except ValueError as error:
        raise _error(name, line, f"its clock is not JSON ({error})") from error
    if not isinstance(clock, dict) or not all(type(count) is int and count >= 0 for count in clock.values()):
        raise _error(name, line, "its clock is not an object of non-negative integers")
    if clock.get(host, 0) < 1:
        raise _error(name, line, f"its clock has no entry for its own host {host!r}")
    return clock


def _clock_line(name: str, line: int, text: str, text_may_begin: bool) -> tuple[str, dict[str, int]] | None:
    """The host and clock of a line that is one; None for a line of text.

    A line that looks like a clock but is a wrong one is an error, except where a text has to begin: an
    event's text may well be `Received {"key": "x"}`.
    """
    found = _CLOCK_LINE.match(text)
    if found is None:
        return None
    try:
        return found["host"], _clock(name, line, found["host"], found["clock"])
    except ImportFormatError:
        if text_may_begin:
            return None
        raise


def _clock_first(name: str, section: _LogSection) -> tuple[list[LogEvent], list[int]]:
    events: list[LogEvent] = []
    left_out: list[int] = []
    after_clock = False
    for number, line in enumerate(section.lines, section.first_line):
        found = _clock_line(name, number, line, after_clock)
        after_clock = found is not None
        if found is not None:
            events.append(LogEvent(*found, "", number))
        elif line.strip() and events:
            last = events[-1]
            events[-1] = last._replace(text=f"{last.text}\n{line}" if last.text else line)
        elif line.strip():
            left_out.append(number)
    return events, left_out


def _clock_last(name: str, section: _LogSection) -> tuple[list[LogEvent], list[int]]:
    events: list[LogEvent] = []
    waiting: list[tuple[int, str]] = []
    for number, line in enumerate(section.lines, section.first_line):
        found = _clock_line(name, number, line, not waiting)
        if found is not None:
            events.append(LogEvent(*found, "\n".join(text for _, text in waiting), number))
            waiting = []
        elif line.strip():
            waiting.append((number, line))
    return events, [number for number, _ in waiting]


def _one_line(name: str, section: _LogSection) -> tuple[list[LogEvent], list[int]]:
    events: list[LogEvent] = []
    left_out: list[int] = []
    for number, line in enumerate(section.lines, section.first_line):
        if not line.strip():
            continue
        found = _CLOCK_INSIDE.match(line)
        # The host is the last word before the clock that the clock has an entry for, as in [akka://x/host].
        words = re.findall(r"[^\s\[\]()/]+", found["before"]) if found else []
        host = next((word for word in reversed(words) if found and f'"{word}"' in found["clock"]), "")
        if found is None or not host:
            left_out.append(number)
            continue
        text = f"{found['before'].strip()} {found['after'].strip()}".strip()
        events.append(LogEvent(host, _clock(name, number, host, found["clock"]), text, number))
    return events, left_out


def _by_pattern(
    name: str, section: _LogSection, pattern: re.Pattern[str]
) -> tuple[list[LogEvent], list[int]]:
    """The events that a user's pattern finds, and the lines outside of all of them."""
    missing = {"host", "clock", "event"} - set(pattern.groupindex)
    if missing:
        raise ImportFormatError(name, f"the pattern has no group {min(missing)!r}", _FIX)
    starts = [0, *accumulate(len(line) + 1 for line in section.lines)]
    covered: set[int] = set()
    events: list[LogEvent] = []
    for found in pattern.finditer("\n".join(section.lines)):
        first, last = (
            bisect_right(starts, at) - 1 for at in (found.start(), max(found.end() - 1, found.start()))
        )
        covered.update(range(first, last + 1))
        line = section.first_line + bisect_right(starts, found.start("clock")) - 1
        host = found["host"]
        events.append(LogEvent(host, _clock(name, line, host, found["clock"]), found["event"], line))
    left_out = [
        section.first_line + at for at, line in enumerate(section.lines) if line.strip() and at not in covered
    ]
    return events, left_out


# From events to the model


def read_text(path: Path | str) -> str:
    """The text of a log."""
    raw = Path(path).read_bytes()
    try:
        return raw.decode("utf-8-sig")  # a byte order mark is no part of a name
    except UnicodeDecodeError as error:
        where = raw.count(b"\n", 0, error.start) + 1
        raise ImportFormatError(
            f"{path}, line {where}", "it is not UTF-8", "Convert the log to UTF-8 first"
        ) from error


def read_shiviz(path: Path | str, mapping: LogMapping) -> Log:
    """The log of a file; executions in it are kept apart."""
    parsed = parse_log(str(path), read_text(path), mapping.pattern, mapping.delimiter)
    several = len(parsed.executions) > 1
    normaliser = Normaliser(mapping)
    rules = [(re.compile(rule.pattern), rule) for rule in mapping.lines]
    contract, exported = mapping.contract, _is_exported(parsed)
    if mapping.lines == mapping_of({"log": {"format": "shiviz"}}).lines:
        if exported:
            contract = structs.replace(contract, complete=tuple(dict.fromkeys((*contract.complete, "sends"))))
        else:  # "deliver the pizza at 10:30" is not about a message of a node "the pizza at 10"
            rules = [(re.compile(pattern.pattern.replace(".+?", r"\S+?")), rule) for pattern, rule in rules]
    rows = []
    for at, execution in enumerate(parsed.executions, 1):
        prefix = f"{execution.label or at}/" if several else ""
        for event in execution.events:
            kind, columns = matched(rules, event.text)
            clock = json.dumps({prefix + host: count for host, count in event.clock.items()})
            row = {**columns, "host": prefix + event.host, "clock": clock, "event": event.text}
            if several and columns.get("msg"):
                row["msg"] = prefix + columns["msg"]
            rows.append(normaliser.row(row, event.line, kind or EventKind.INTERNAL, event.text))
    notes = [*normaliser.notes(), *_line_notes(parsed), *_receive_notes(parsed, rules)]
    return make_log(rows, order="clock", contract=contract, notes=tuple(notes))


def _is_exported(parsed: ParsedLog) -> bool:
    """Whether every event is told as our own export tells it."""
    texts = [event.text for execution in parsed.executions for event in execution.events]
    return all(map(_EXPORTED.match, texts)) and any(text.startswith("broadcast ") for text in texts)


def matched(
    rules: list[tuple[re.Pattern[str], LineRule]], text: str
) -> tuple[EventKind | None, dict[str, Any]]:
    """What the first rule that fits says of a text: its kind, and its groups as columns."""
    for pattern, rule in rules:
        found = pattern.search(text)
        if found is not None:
            columns: dict[str, Any] = found.groupdict()
            if rule.message is not None:
                columns["msg"] = _filled(rule.message, columns)
            return KINDS[rule.kind], columns
    return None, {}


def _filled(template: str, columns: dict[str, Any]) -> str | None:
    names = re.findall(r"\{([^{}]+)\}", template)
    if not names:
        return columns.get(template)
    if any(columns.get(name) is None for name in names):
        return None
    return re.sub(r"\{([^{}]+)\}", lambda place: str(columns[place[1]]), template)


def _line_notes(parsed: ParsedLog) -> Iterator[Note]:
    if parsed.unparsed_lines:
        first = ", ".join(map(str, parsed.unparsed_lines[:5]))
        count = len(parsed.unparsed_lines)
        yield Note("clockless", f"{count} lines have no vector clock and belong to no event: {first}", count)


def _receive_notes(parsed: ParsedLog, rules: list[tuple[re.Pattern[str], LineRule]]) -> Iterator[Note]:
    """Lines without an id that look like receives, by where their clocks have learned."""
    learned = {"a send": 0, "another line": 0, "nothing": 0}
    for execution in parsed.executions:
        clock_of = {(event.host, event.clock[event.host]): event for event in execution.events}
        for event in execution.events:
            kind, columns = matched(rules, event.text)
            if columns.get("msg") or not (_RECEIVES.search(event.text) or kind in _TAKES):
                continue
            before = clock_of.get((event.host, event.clock[event.host] - 1))
            known = before.clock if before is not None else {}
            grown = [
                clock_of.get((host, count))
                for host, count in event.clock.items()
                if host != event.host and count > known.get(host, 0)
            ]
            sent = any(each is not None and _SENDS.search(each.text) for each in grown)
            learned["a send" if sent else "another line" if grown else "nothing"] += 1
    if any(learned.values()):
        told = ", ".join(f"{count} from {what}" for what, count in learned.items())
        text = f"lines without ids look like receives; their clocks have learned {told}"
        yield Note("receives", text, sum(learned.values()))


_TAKES = (EventKind.DELIVER, EventKind.RECEIVE)
