"""Reads ShiViz and GoVector logs: events of hosts, each with a JSON vector clock.

How a log becomes a trace. Event n of host h (its clock says `h: n`) becomes the broadcast of message h:n and
its delivery at h. Before it stand the deliveries of what h has learned since its previous event: the newest
event of every other host whose entry grew, but for those that are in the past of another one that h delivers
here. So an event happened before another in the log just when its message precedes the other's in the trace.

What cannot be true stands out when such a trace is verified: a clock that names an event which is not in the
log is a `created` message; a clock that takes back what an earlier or a delivered event knew makes h deliver
an older event after it, a `causal` (or `duplicate`) finding; a host whose numbers skip is `malformed`.

Layouts that are recognised without help:

    clock first   host {"host": 1}          clock last   event text
                  event text                             host {"host": 1}

    one line      ... host] {"host": 1} event text

A text may go on over further lines. Lines like `=== name ===` separate executions. A file may begin, as one
that is uploaded to ShiViz does, with the pattern in its first line and the delimiter in its second.
"""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import msgspec

from whence.errors import ImportFormatError
from whence.trace.schema import Kind, Level, PromisesMade
from whence.trace.writer import TraceWriter

__all__ = ["Execution", "ImportReport", "ImportedRun", "LogEvent", "import_log", "trace_rows"]

PROMISES = PromisesMade(causal=True, fifo=True, no_duplicates=True, complete=False)
DELIMITER = r"^=== ?(?P<trace>.*?) ?===\s*$"
_CLOCK_LINE = re.compile(r'^(?P<host>\S+)\s+(?P<clock>\{\s*(?:"|\}).*)$')
_CLOCK_INSIDE = re.compile(r'^(?P<before>.*?)(?P<clock>\{\s*"[^{}]*\})(?P<after>.*)$')
_JS_GROUP = re.compile(r"\(\?<(?![=!])")  # (?<name> but not a look-behind
_FIX = 'Give the layout with --pattern, as for ShiViz: "(?<event>.*)\\n(?<host>\\S*) (?<clock>{.*})"'


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
    """A whole log; see `ImportReport` for the counts."""

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
            events = {"clock first": _clock_first, "clock last": _clock_last, "one line": _one_line}[layout](
                name, section
            )
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
    raise ImportFormatError(name, "no line in it has a vector clock", _FIX)


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


def _clock_first(name: str, section: _LogSection) -> list[LogEvent]:
    events: list[LogEvent] = []
    after_clock = False
    for number, line in enumerate(section.lines, section.first_line):
        found = _clock_line(name, number, line, after_clock)
        after_clock = found is not None
        if found is not None:
            events.append(LogEvent(*found, "", number))
        elif line.strip():
            if not events:
                raise _error(name, number, "its text stands before any clock")
            last = events[-1]
            events[-1] = last._replace(text=f"{last.text}\n{line}" if last.text else line)
    return events


def _clock_last(name: str, section: _LogSection) -> list[LogEvent]:
    events: list[LogEvent] = []
    waiting: list[str] = []
    for number, line in enumerate(section.lines, section.first_line):
        found = _clock_line(name, number, line, not waiting)
        if found is not None:
            events.append(LogEvent(*found, "\n".join(waiting), number))
            waiting = []
        elif line.strip():
            waiting.append(line)
    if waiting:
        raise _error(name, section.first_line + len(section.lines) - 1, "its text is not followed by a clock")
    return events


def _one_line(name: str, section: _LogSection) -> list[LogEvent]:
    events: list[LogEvent] = []
    for number, line in enumerate(section.lines, section.first_line):
        if not line.strip():
            continue
        found = _CLOCK_INSIDE.match(line)
        if found is None:
            raise _error(name, number, "there is no vector clock in it")
        # The host is the last word before the clock that the clock has an entry for, as in [akka://x/host].
        words = re.findall(r"[^\s\[\]()/]+", found["before"])
        host = next((word for word in reversed(words) if f'"{word}"' in found["clock"]), "")
        if not host:
            raise _error(name, number, "no word before its clock is a host of that clock")
        text = f"{found['before'].strip()} {found['after'].strip()}".strip()
        events.append(LogEvent(host, _clock(name, number, host, found["clock"]), text, number))
    return events


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


# From a log to a trace


class ImportedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of the log, as it was written."""

    run: str
    folder: str
    hosts: int
    events: int


class ImportReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an import. Every line that is not blank is in exactly one of the counts."""

    source: str
    layout: str
    lines: int
    blank_lines: int
    delimiter_lines: int
    event_lines: int  # lines that belong to an event, further lines of its text included
    unparsed_lines: list[int]  # with a pattern of the user only: numbers of the lines that it left out
    runs: list[ImportedRun]


def import_log(
    path: Path | str,
    out_folder: Path | str,
    *,
    pattern: str | None = None,
    delimiter: str | None = None,
    overwrite: bool = False,
) -> ImportReport:
    """Turn a log into a trace folder; several executions in one log become `run=<id>` folders.

    Without `pattern` the layout is found out: a line "host {clock}" before or after the event's text, or all
    in one line. `pattern` is a regular expression with the groups host, clock and event, `delimiter` one for
    the lines between executions; both may use ShiViz's `(?<name>...)`.
    """
    path, out_folder = Path(path), Path(out_folder)
    try:
        raw = path.read_bytes()
        text = raw.decode()
    except OSError as error:
        raise ImportFormatError(
            str(path), f"it cannot be read ({error.strerror})", "Check the path"
        ) from error
    except UnicodeDecodeError as error:
        where = raw.count(b"\n", 0, error.start) + 1
        raise ImportFormatError(
            f"{path}, line {where}", "it is not UTF-8", "Convert the log to UTF-8 first"
        ) from error
    parsed = parse_log(str(path), text, pattern, delimiter)
    stem = _slug(path.stem)
    source = {"source": path.name, "sha256": hashlib.sha256(raw).hexdigest(), "layout": parsed.layout}
    runs: list[ImportedRun] = []
    for number, execution in enumerate(parsed.executions, 1):
        several = len(parsed.executions) > 1
        run = f"{stem}.{number}-{_slug(execution.label)}" if several else stem
        folder = out_folder / f"run={run}" if several else out_folder
        hosts = sorted({event.host for event in execution.events})
        with TraceWriter(
            folder, run=run, writer="import", protocol="imported", promises=PROMISES, seed=None, nodes=hosts,
            parameters={**source, "execution": execution.label}, level=Level.DELIVERIES, overwrite=overwrite,
        ) as writer:  # fmt: skip
            for node, time_us, kind, origin, count, detail in trace_rows(execution.events):
                writer.event(node, time_us, kind, origin, count, detail=detail)
        runs.append(ImportedRun(run=run, folder=str(folder), hosts=len(hosts), events=len(execution.events)))
    return ImportReport(
        source=str(path),
        layout=parsed.layout,
        lines=parsed.lines,
        blank_lines=parsed.blank_lines,
        delimiter_lines=parsed.delimiter_lines,
        event_lines=parsed.event_lines,
        unparsed_lines=parsed.unparsed_lines,
        runs=runs,
    )


def trace_rows(events: Sequence[LogEvent]) -> Iterator[tuple[str, int, Kind, str, int, str | None]]:
    """The rows (node, time_us, kind, origin, number, detail) of one execution.

    A log has no common time: `time_us` is the event's place in the log.
    """
    clock_of: dict[tuple[str, int], dict[str, int]] = {}
    for event in events:
        clock_of.setdefault((event.host, event.clock[event.host]), event.clock)
    claimed: dict[str, dict[str, int]] = {}  # host -> the clock of its previous event
    for place, event in enumerate(events):
        host, clock = event.host, event.clock
        for other, number in _learned(host, clock, claimed.get(host, {}), clock_of):
            yield host, place, Kind.DELIVER, other, number, None
        claimed[host] = clock
        yield host, place, Kind.BROADCAST, host, clock[host], event.text
        yield host, place, Kind.DELIVER, host, clock[host], None


def _learned(
    host: str, clock: dict[str, int], before: dict[str, int], clock_of: dict[tuple[str, int], dict[str, int]]
) -> list[tuple[str, int]]:
    """The events of other hosts that stand between a host's previous clock and this one."""
    grown = {
        other: clock_of.get((other, count), {other: count})
        for other, count in clock.items()
        if other != host and count > before.get(other, 0)
    }
    # An event's clock sums to more than that of any event in its past, so the newest come first here.
    kept: list[str] = []
    for other in sorted(grown, key=lambda other: (-sum(grown[other].values()), other)):
        if not any(grown[newer].get(other, 0) >= clock[other] for newer in kept):
            kept.append(other)
    expected = dict(before)
    for other in kept:
        for each, count in grown[other].items():
            expected[each] = max(expected.get(each, 0), count)
    # In a true log the clock is what was to be expected. An entry below it denies knowledge: say so last.
    denied = [other for other in sorted(expected) if other != host and clock.get(other, 0) < expected[other]]
    return [(other, clock[other]) for other in kept] + [(other, clock.get(other, 0)) for other in denied]


def _slug(label: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", label).strip("-.") or "log"
