"""Writes a trace as a log that ShiViz shows: every event with a vector clock.

The file can be uploaded to ShiViz as it is (its first line is the pattern, its second the delimiter between
runs), and its events can be read with ShiViz's default pattern. Clocks are computed from the trace alone: a
delivery knows what its broadcast knew. With a window only the chosen messages' events are written and
counted, but knowledge still flows through the others, so that happened-before is what it was. A window is
a number of messages, a time, or the messages and nodes of a finding's witness.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from whence.errors import MisuseError, TraceError
from whence.trace.reader import Event, Trace
from whence.trace.schema import Kind

PATTERN = r"(?<event>.*)\n(?<host>\S*) (?<clock>{.*})"  # ShiViz's default
DELIMITER = r"^=== (?<trace>.*) ===$"

_MESSAGES = {Kind.BROADCAST, Kind.DELIVER, Kind.EXPIRE, Kind.CRASH, Kind.RESTART}
_PACKETS = _MESSAGES | {Kind.SEND, Kind.RECEIVE}

Clock = dict[str, int]
# What carries knowledge: a message (origin, number), or a packet (from, to, origin, number).
Carrier = tuple[str | int | None, ...]


class ExportReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an export."""

    file: str
    runs: int
    events: int


class ExportWindow(NamedTuple):
    """The messages to write: `messages` of them from place `start`, in order of broadcast time.

    Only those that were broadcast at `since_us` or later and before `until_us`; only those in `ids`
    (origin, number); and of all events only those at `nodes`, with the sendings of what these take. None
    means all.
    """

    start: int = 0
    messages: int | None = None
    since_us: int | None = None
    until_us: int | None = None
    ids: frozenset[tuple[str, int]] | None = None
    nodes: frozenset[str] | None = None


def export(
    trace: Trace,
    out_file: Path | str,
    *,
    run: str | None = None,
    window: ExportWindow | None = None,
    packets: bool = False,
) -> ExportReport:
    """Write one run or all; `packets` adds send and receive events (the trace must have them)."""
    out_file = Path(out_file)
    if window is not None and _is_empty(window):
        raise MisuseError(
            "the window of messages",
            f"{window} is empty",
            "Start at 0 or later, take 1 message or more, and end later than it begins",
        )
    runs = trace.runs if run is None else [run]
    written = 0
    try:
        with out_file.open("w", encoding="utf-8") as file:
            file.write(f"{PATTERN}\n{DELIMITER if len(runs) > 1 else ''}\n")
            for each in runs:
                if len(runs) > 1:
                    file.write(f"=== {each} ===\n")
                for host, clock, text in _clocked(trace, each, window, _PACKETS if packets else _MESSAGES):
                    file.write(f"{text}\n{host} {json.dumps(clock)}\n")
                    written += 1
    except OSError as error:
        raise TraceError(
            str(out_file), f"it cannot be written ({error.strerror})", "Check the path"
        ) from error
    return ExportReport(file=str(out_file), runs=len(runs), events=written)


def _clocked(
    trace: Trace, run: str, window: ExportWindow | None, kinds: set[Kind]
) -> Iterator[tuple[str, Clock, str]]:
    """The events (host, clock, text) of a run, each after all that happened before it."""
    rows: dict[str, list[Event]] = {}
    for event in trace.events(run=run):
        if event.kind in kinds:
            rows.setdefault(event.node, []).append(event)
    chosen = _chosen(rows, window)
    host_of = _hosts(trace, rows)
    nodes = set(rows) if window is None or window.nodes is None else window.nodes
    taken = {_takes(event) for node in nodes for event in rows.get(node, ())} - {None}
    walk = _Walk(rows)
    for event, clock, knows in walk.events():
        if chosen is not None and (event.origin, event.number) not in chosen:
            continue
        if event.node not in nodes and _emits(event) not in taken:
            continue
        clock[event.node] = clock.get(event.node, 0) + 1
        named = {host_of[node]: count for node, count in sorted(clock.items())}
        yield host_of[event.node], named, _text(event, knows)


class _Walk:
    """Goes through a run's events in an order in which every cause precedes its effect."""

    def __init__(self, rows: dict[str, list[Event]]) -> None:
        self._rows = rows
        self._at = dict.fromkeys(sorted(rows), 0)
        self._clocks: dict[str, Clock] = {node: {} for node in rows}
        self._known: dict[Carrier, list[Clock]] = {}  # what each occurrence of a carrier carried
        self._coming = Counter(
            carrier for events in rows.values() for event in events if (carrier := _emits(event)) is not None
        )
        self._taken: Counter[Carrier] = Counter()

    def events(self) -> Iterator[tuple[Event, Clock, bool]]:
        """Each event with its node's clock, to be advanced by the caller, and whether its cause is known."""
        forced = False
        while True:
            moved = False
            for node, events in sorted(self._rows.items()):
                while self._at[node] < len(events):
                    event = events[self._at[node]]
                    source = self._source(event)
                    if source is None and not forced and self._coming[_takes(event) or ()]:
                        break  # its cause is still to come
                    knows = source is not None or _takes(event) is None
                    forced = False
                    moved = True
                    self._at[node] += 1
                    yield event, self._merged(node, source or {}), knows
                    self._emit(event)
            if all(self._at[node] == len(events) for node, events in self._rows.items()):
                return
            forced = not moved  # all wait in a circle: the first passes without its cause

    def _source(self, event: Event) -> Clock | None:
        """The clock that an event takes over, if it is known by now."""
        carrier = _takes(event)
        if carrier is None:
            return None
        # The n-th receipt of a packet takes from its n-th sending; what the network doubled, from the last.
        place = 0 if event.kind is not Kind.RECEIVE else min(self._taken[carrier], self._coming[carrier] - 1)
        known = self._known.get(carrier, [])
        return known[place] if 0 <= place < len(known) else None

    def _merged(self, node: str, source: Clock) -> Clock:
        clock = self._clocks[node]
        for other, count in source.items():
            if count > clock.get(other, 0):
                clock[other] = count
        return clock

    def _emit(self, event: Event) -> None:
        takes, emits = _takes(event), _emits(event)
        if takes is not None:
            self._taken[takes] += 1
        if emits is not None:
            self._known.setdefault(emits, []).append(dict(self._clocks[event.node]))


def _emits(event: Event) -> Carrier | None:
    if event.kind is Kind.BROADCAST:
        return (event.origin, event.number)
    if event.kind is Kind.SEND:
        return (event.node, event.peer, event.origin, event.number)
    return None


def _takes(event: Event) -> Carrier | None:
    if event.kind is Kind.DELIVER:
        return (event.origin, event.number)
    if event.kind is Kind.RECEIVE:
        return (event.peer, event.node, event.origin, event.number)
    return None


def _chosen(rows: dict[str, list[Event]], window: ExportWindow | None) -> set[tuple[str | None, int]] | None:
    if window is None:
        return None
    since_us = window.since_us if window.since_us is not None else -(1 << 63)
    until_us = window.until_us if window.until_us is not None else 1 << 63
    broadcasts = sorted(
        (event.time_us, event.node, event.number, event.origin or "")
        for events in rows.values()
        for event in events
        if event.kind is Kind.BROADCAST and since_us <= event.time_us < until_us
    )
    last = None if window.messages is None else window.start + window.messages
    chosen: set[tuple[str | None, int]] = {
        (origin, number) for _, _, number, origin in broadcasts[window.start : last]
    }
    return chosen if window.ids is None else _named(chosen, rows, window.ids)


def _named(
    chosen: set[tuple[str | None, int]], rows: dict[str, list[Event]], ids: frozenset[tuple[str, int]]
) -> set[tuple[str | None, int]]:
    """The named ones among the chosen, and those of them that no node broadcast: they are findings, too."""
    events = (event for of_node in rows.values() for event in of_node)
    sent = {(event.origin, event.number) for event in events if event.kind is Kind.BROADCAST}
    return {each for each in ids if each in chosen or each not in sent}


def _is_empty(window: ExportWindow) -> bool:
    since_us, until_us = window.since_us, window.until_us
    backwards = since_us is not None and until_us is not None and until_us <= since_us
    return window.start < 0 or (window.messages is not None and window.messages < 1) or backwards


def _hosts(trace: Trace, rows: dict[str, list[Event]]) -> dict[str, str]:
    """Node names as ShiViz takes them: without white space."""
    hosts = {node: "_".join(node.split()) or "_" for node in rows}
    if len(set(hosts.values())) < len(hosts):
        raise TraceError(str(trace.path), "two nodes differ only in white space", "ShiViz cannot show them")
    return hosts


def _text(event: Event, knows: bool) -> str:
    words = [event.kind.name.lower()]
    if event.origin is not None:
        words.append(f"{event.origin}:{event.number}")
    if event.peer is not None:
        words.append(f"{'to' if event.kind is Kind.SEND else 'from'} {event.peer}")
    if not knows:
        words.append("(its origin had not broadcast it)")
    if event.detail:
        words.append(" ".join(event.detail.split()))
    return " ".join(words)
