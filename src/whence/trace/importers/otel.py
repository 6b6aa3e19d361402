"""Reads OpenTelemetry spans: OTLP in JSON, one export request per line or one in all, as collectors write it.

How spans become a trace. A node is a service. The start of a span is the broadcast of a message, the n-th
of its service in order of start time, and its delivery there. Before it stand the deliveries of its parent
and of what it links to, unless the service has seen them before. So a span precedes another in the trace if
the chain of parents and links says so, or if one service started them one after the other. Traces that are
linked make up one run; otherwise each trace is a separate run.

What cannot be true stands out when such a trace is verified: a parent or link that is not in the file is a
`created` message of the node `unknown`; a child that its own service started before the parent is
`malformed`; a service that sees the effect of a later span of another service before that of an earlier one
is a `causal` finding: calls that overtook each other. No clock is compared with that of another service.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from whence.errors import ImportFormatError
from whence.trace.importers.shiviz import PROMISES, ImportedRun
from whence.trace.schema import Kind, Level
from whence.trace.writer import TraceWriter

UNKNOWN = "unknown"  # the node of spans that are not in the file, and of resources without a service.name

SpanId = tuple[str, str]  # (trace, span)


class _Value(msgspec.Struct, frozen=True):
    stringValue: str | None = None


class _Attribute(msgspec.Struct):
    key: str
    value: _Value = _Value()


class _Resource(msgspec.Struct):
    attributes: list[_Attribute] = []


class _SpanLink(msgspec.Struct, rename="camel"):
    trace_id: str
    span_id: str


class _Span(msgspec.Struct, rename="camel"):
    trace_id: str
    span_id: str
    name: str = ""
    parent_span_id: str | None = None
    start_time_unix_nano: int | str = 0  # 64-bit integers are text in OTLP's JSON; some writers use numbers
    links: list[_SpanLink] | None = None


class _Scope(msgspec.Struct):
    spans: list[_Span] = []


class _ResourceSpans(msgspec.Struct, rename="camel"):
    resource: _Resource = msgspec.field(default_factory=_Resource)
    scope_spans: list[_Scope] = []


class _ExportRequest(msgspec.Struct, rename="camel"):
    resource_spans: list[_ResourceSpans]


class Span(NamedTuple):
    """One span, as far as its order is concerned."""

    id: SpanId
    service: str
    name: str
    start_us: int
    depends_on: tuple[SpanId, ...]  # the parent, then the links


class SpansReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an import."""

    source: str
    requests: int
    spans: int
    repeated: int  # spans that the file has more than once; the first is taken
    absent: int  # parents and links that are not in the file
    runs: list[ImportedRun]


def read_spans(path: Path | str) -> tuple[list[Span], int]:
    """The spans of a file, and how many export requests it has."""
    path = Path(path)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ImportFormatError(
            str(path), f"it cannot be read ({error.strerror})", "Check the path"
        ) from error
    decoder = msgspec.json.Decoder(_ExportRequest)
    spans: list[Span] = []
    requests = 0
    for where, text in _documents(raw):
        try:
            request = decoder.decode(text)
            spans += [span for part in request.resource_spans for span in _spans(part)]
        except (msgspec.DecodeError, ValueError) as error:
            raise ImportFormatError(
                f"{path}{where}",
                f"it is not an OTLP export request ({error})",
                'Export as OTLP JSON: {"resourceSpans": [...]}, one request per line',
            ) from error
        requests += 1
    if not spans:
        raise ImportFormatError(str(path), "no span was found in it", "Export spans as OTLP JSON")
    return spans, requests


def _documents(raw: bytes) -> Iterator[tuple[str, bytes]]:
    """The JSON documents of a file: one per line, or the whole."""
    lines = [(number, line) for number, line in enumerate(raw.splitlines(), 1) if line.strip()]
    try:
        msgspec.json.decode(lines[0][1] if lines else b"")
    except msgspec.DecodeError:
        yield "", raw  # spread over several lines, or no JSON at all
        return
    for number, line in lines:
        yield f", line {number}", line


def _spans(part: _ResourceSpans) -> Iterator[Span]:
    named = [each.value.stringValue for each in part.resource.attributes if each.key == "service.name"]
    service = next((name for name in named if name), UNKNOWN)
    for scope in part.scope_spans:
        for span in scope.spans:
            before = [(span.trace_id, span.parent_span_id)] if span.parent_span_id else []
            before += [(link.trace_id, link.span_id) for link in span.links or []]
            start_us = int(span.start_time_unix_nano) // 1000
            yield Span(
                (span.trace_id, span.span_id), service, span.name, start_us, tuple(dict.fromkeys(before))
            )


def import_spans(path: Path | str, out_folder: Path | str, *, overwrite: bool = False) -> SpansReport:
    """Turn a file of spans into a trace folder, with a `run=<trace id>` for each of several runs."""
    path, out_folder = Path(path), Path(out_folder)
    found, requests = read_spans(path)
    spans: dict[SpanId, Span] = {}
    for span in found:
        spans.setdefault(span.id, span)
    absent = {id_ for span in spans.values() for id_ in span.depends_on if id_ not in spans}
    groups = _linked(spans.values())
    about = {"source": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "layout": "otlp"}
    runs: list[ImportedRun] = []
    for run, members in sorted(groups.items()):
        folder = out_folder / f"run={run}" if len(groups) > 1 else out_folder
        services = sorted({span.service for span in members})
        with TraceWriter(
            folder, run=run, writer="import", protocol="imported", promises=PROMISES, seed=None,
            nodes=services, parameters=about, level=Level.DELIVERIES, overwrite=overwrite,
        ) as writer:  # fmt: skip
            for node, time_us, kind, origin, number, detail in trace_rows(members):
                writer.event(node, time_us, kind, origin, number, detail=detail)
        runs.append(ImportedRun(run=run, folder=str(folder), hosts=len(services), events=len(members)))
    return SpansReport(
        source=str(path),
        requests=requests,
        spans=len(spans),
        repeated=len(found) - len(spans),
        absent=len(absent),
        runs=runs,
    )


def _linked(spans: Iterable[Span]) -> dict[str, list[Span]]:
    """Spans by run: traces that are linked come together, under the first of their names."""
    above: dict[str, str] = {}

    def top(trace: str) -> str:
        while above.setdefault(trace, trace) != trace:
            trace = above[trace]
        return trace

    spans = list(spans)
    present = {span.id[0] for span in spans}
    for span in spans:
        for trace, _ in span.depends_on:
            if trace in present:
                first, second = sorted((top(span.id[0]), top(trace)))
                above[second] = first
    groups: dict[str, list[Span]] = {}
    for span in spans:
        groups.setdefault(top(span.id[0]), []).append(span)
    return groups


def trace_rows(spans: Iterable[Span]) -> Iterator[tuple[str, int, Kind, str, int, str | None]]:
    """The rows (node, time_us, kind, origin, number, detail) of one run."""
    ordered = sorted(spans, key=lambda span: (span.start_us, span.id))
    counts: dict[str, int] = {}
    message: dict[SpanId, tuple[str, int]] = {}
    for span in ordered:
        counts[span.service] = counts.get(span.service, 0) + 1
        message[span.id] = (span.service, counts[span.service])
    for span in ordered:  # what is not in the file is numbered after what a service called `unknown` may have
        for id_ in span.depends_on:
            if id_ not in message:
                counts[UNKNOWN] = counts.get(UNKNOWN, 0) + 1
                message[id_] = (UNKNOWN, counts[UNKNOWN])
    seen: dict[str, set[Any]] = {}
    for span in ordered:
        known = seen.setdefault(span.service, set())
        for id_ in sorted(span.depends_on, key=message.__getitem__):
            if message[id_] not in known:
                known.add(message[id_])
                yield span.service, span.start_us, Kind.DELIVER, *message[id_], None
        known.add(message[span.id])
        origin, number = message[span.id]
        yield span.service, span.start_us, Kind.BROADCAST, origin, number, span.name
        yield span.service, span.start_us, Kind.DELIVER, origin, number, None
