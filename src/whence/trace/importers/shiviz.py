"""Reads ShiViz and GoVector logs: events of hosts, each with a JSON vector clock.

How a log becomes a trace. Event n of host h (its clock says `h: n`) becomes the broadcast of message h:n and
its delivery at h. Before it stand the deliveries of what h has learned since its previous event: the newest
event of every other host whose entry grew, but for those that are in the past of another one that h delivers
here. So an event happened before another in the log just when its message precedes the other's in the trace.

What cannot be true stands out when such a trace is verified: a clock that names an event which is not in the
log is a `created` message; a clock that takes back what an earlier or a delivered event knew makes h deliver
an older event after it, a `causal` (or `duplicate`) finding; a host whose numbers skip is `malformed`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from whence.errors import ImportFormatError
from whence.trace.importers.shiviz_lines import Execution, LogEvent, parse_log
from whence.trace.schema import Kind, Level, PromisesMade
from whence.trace.writer import TraceWriter

PROMISES = PromisesMade(causal=True, fifo=True, no_duplicates=True, complete=False)


class ImportedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of the log, as it was written."""

    run: str
    folder: str
    hosts: int
    events: int


class ImportReport(msgspec.Struct, frozen=True, kw_only=True):
    """What an import found. Every line that is not blank is in exactly one of the counts."""

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


__all__ = ["Execution", "ImportReport", "ImportedRun", "LogEvent", "import_log", "trace_rows"]
