"""Reads OpenTelemetry spans: OTLP as JSON (one export request per line, or one in all) and as protobuf.

A span is a context of its own: it begins after its parent and after what it links to, and nothing is known
about two spans of one service beyond that. The process is the instance of the service, because that owns the
clock. Which spans are deliveries of messages, and within what they may be compared, follows the semantic
conventions for messaging; docs/audit.md has the table.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from whence.errors import ImportFormatError
from whence.foreign.mapping import SEPARATOR, LogMapping
from whence.foreign.model import EventKind, Log, Note, make_log
from whence.foreign.tables import resolution

SERVER, CLIENT, PRODUCER, CONSUMER = 2, 3, 4, 5
_FAILED = 2  # status code ERROR
_KIND_NAMES = {"SPAN_KIND_SERVER": SERVER, "SPAN_KIND_CLIENT": CLIENT, "SPAN_KIND_PRODUCER": PRODUCER,
               "SPAN_KIND_CONSUMER": CONSUMER}  # fmt: skip

# Attributes by meaning, the newest convention first.
_OPERATION = ("messaging.operation.type", "messaging.operation")
_DESTINATION = ("messaging.destination.name", "messaging.destination")
_PARTITION = (
    "messaging.destination.partition.id", "messaging.kafka.destination.partition",
    "messaging.kafka.partition",
)  # fmt: skip
_OFFSET = ("messaging.kafka.offset", "messaging.kafka.message.offset", "messaging.eventhubs.message.offset")
_KEY = (
    "messaging.gcp_pubsub.message.ordering_key", "messaging.servicebus.message.session_id",
    "messaging.aws_sqs.message.group.id", "messaging.aws.sqs.message_group_id", "aws.sqs.message_group_id",
    "messaging.rocketmq.message.group", "messaging.kafka.message.key",
)  # fmt: skip
_GROUP = (
    "messaging.consumer.group.name", "messaging.kafka.consumer.group",
    "messaging.destination.subscription.name", "messaging.eventhubs.consumer.group",
    "messaging.rocketmq.client_group",
)  # fmt: skip
_MESSAGE = ("messaging.message.id", "messaging.message_id")
_LACKING = (
    "`messaging.destination.partition.id` with `messaging.kafka.offset`",
    "an ordering key (`messaging.gcp_pubsub.message.ordering_key`, a session or group id)",
)


class Span(NamedTuple):
    """A span with its resource."""

    ref: str
    proc: str
    known_clock: bool
    name: str
    kind: int
    start: int | None
    end: int | None
    parent: str | None
    links: tuple[str, ...]
    attributes: Mapping[str, str]
    failed: bool
    request: int  # the line, or the place of the request

    def get(self, names: tuple[str, ...]) -> str | None:
        """The first of some attributes that it has."""
        return next((self.attributes[name] for name in names if name in self.attributes), None)


def read_otlp(path: Path | str, mapping: LogMapping) -> Log:
    """The log of a file of spans."""
    return log_of_spans(read_spans(path), mapping)


def read_spans(path: Path | str) -> list[Span]:
    """The spans of a file."""
    raw = Path(path).read_bytes()
    if not raw.strip():
        raise ImportFormatError(str(path), "it is empty", "Export spans as OTLP")
    try:
        requests = list(_json_requests(raw) if raw.lstrip()[:1] in b"{[" else _protobuf_requests(raw))
        spans = [span for number, request in requests for span in spans_of(request, number)]
    except (ProtobufError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ImportFormatError(
            str(path), f"it is not an OTLP export of spans ({error})",
            'Export OTLP as protobuf, or as JSON: {"resourceSpans": [...]}, one request per line',
        ) from error  # fmt: skip
    if not spans:
        raise ImportFormatError(str(path), "no span was found in it", "Export spans as OTLP")
    return spans


def _json_requests(raw: bytes) -> Iterator[tuple[int, Mapping[str, Any]]]:
    try:
        whole = json.loads(raw)
        yield from enumerate(whole if isinstance(whole, list) else [whole], 1)
    except ValueError:
        for number, line in enumerate(raw.splitlines(), 1):
            if line.strip():
                yield number, json.loads(line)


def spans_of(request: Mapping[str, Any], number: int) -> Iterator[Span]:
    """The spans of an export request in JSON's form."""
    request = request.get("trace") or request.get("result") or request  # Tempo and Jaeger wrap a trace
    for part in request["batches" if "batches" in request else "resourceSpans"]:  # Tempo said batches
        resource = _attributes(part.get("resource", {}).get("attributes", ()))
        proc, known = _instance(resource)
        for scope in part.get("scopeSpans") or part.get("instrumentationLibrarySpans") or ():
            for span in scope.get("spans", ()):
                trace, parent = span["traceId"], span.get("parentSpanId")
                links = tuple(_ref(each["traceId"], each["spanId"]) for each in span.get("links") or ())
                kind = span.get("kind", 0)
                code = (span.get("status") or {}).get("code")
                yield Span(
                    _ref(trace, span["spanId"]), proc, known, span.get("name", ""),
                    _KIND_NAMES.get(kind, 0) if isinstance(kind, str) else int(kind),
                    _stamp(span.get("startTimeUnixNano")), _stamp(span.get("endTimeUnixNano")),
                    _ref(trace, parent) if parent else None, links,
                    {**resource, **_attributes(span.get("attributes", ()))},
                    code in (_FAILED, "STATUS_CODE_ERROR"), number,
                )  # fmt: skip


def _ref(trace: str, span: str) -> str:
    """A span by its ids, which are hexadecimal: their case means nothing."""
    return f"{trace}:{span}".lower()


def _stamp(value: object) -> int | None:
    return int(str(value)) if value not in (None, "", 0, "0") else None


def _attributes(pairs: Any) -> dict[str, str]:
    made = {}
    for pair in pairs or ():
        value = pair.get("value") or {}
        text = next(
            (str(value[name]) for name in ("stringValue", "intValue", "doubleValue") if name in value), None
        )
        if "boolValue" in value:
            text = "true" if value["boolValue"] else "false"
        if text:
            made[pair["key"]] = text
    return made


def _instance(resource: Mapping[str, str]) -> tuple[str, bool]:
    """The process of a resource, and whether its clock is known to be one."""
    namespace, name = resource.get("service.namespace"), resource.get("service.name", "unknown")
    service = f"{namespace}/{name}" if namespace else name
    host = resource.get("host.name")
    if host and "process.pid" in resource:
        host = f"{host}:{resource['process.pid']}"
    instance = resource.get("service.instance.id") or resource.get("k8s.pod.name") or host
    return f"{service}#{instance or '?'}", instance is not None


# From spans to events


class _SpanMessages:
    """Which message a span sends or takes."""

    def __init__(self, spans: Mapping[str, Span]) -> None:
        self._spans = spans
        self._given: dict[str, set[str]] = {}  # producer span -> what its consumers call its message
        for span in spans.values():
            own = _own_id(span)
            for ref in _causes(span):
                if own and is_delivery(span) and ref in spans and spans[ref].kind == PRODUCER:
                    self._given.setdefault(ref, set()).add(own)

    def sent(self, span: Span) -> str:
        given = self._given.get(span.ref, set())
        return _own_id(span) or (min(given) if len(given) == 1 else f"span {span.ref}")

    def taken(self, span: Span) -> list[str]:
        """One per link of a batch; its own id, if it has one."""
        own = _own_id(span)
        if own:
            return [own]
        made = []
        for ref in [*span.links, *([span.parent] if span.parent else [])]:
            cause = self._spans.get(ref)
            if cause is not None and cause.kind == PRODUCER:
                made.append(self.sent(cause))
            elif cause is None and ref in span.links:
                made.append(f"span {ref}")
        return list(dict.fromkeys(made))


def _own_id(span: Span) -> str | None:
    destination, partition, offset = span.get(_DESTINATION), span.get(_PARTITION), span.get(_OFFSET)
    if partition is not None and offset is not None:
        return f"{destination}/{partition}@{offset}"
    return span.get(_MESSAGE)


def _causes(span: Span) -> list[str]:
    return list(dict.fromkeys([*([span.parent] if span.parent else []), *span.links]))


def is_delivery(span: Span) -> bool:
    """Whether a span processes a message."""
    operation = span.get(_OPERATION)
    return operation in {"process", "deliver"} or (span.kind == CONSUMER and operation is None)


def is_arrival(span: Span) -> bool:
    """Whether a span receives messages."""
    return span.get(_OPERATION) == "receive" and span.kind in {CONSUMER, CLIENT}


def log_of_spans(found: list[Span], mapping: LogMapping) -> Log:
    """The log of spans; of a repeated span the first counts."""
    spans: dict[str, Span] = {}
    for span in found:
        spans.setdefault(span.ref, span)
    names = _SpanMessages(spans)
    processed = any(is_delivery(span) for span in spans.values())
    rows: list[tuple[Any, ...]] = []
    at: dict[str, int] = {}
    lacking = False
    for span in spans.values():
        at[span.ref] = len(rows)
        made = list(_events(span, spans, names, mapping.scope, processed))
        lacking |= any(row[3] == EventKind.DELIVER and row[6] is None for row in made)
        rows += made
    returns = [
        (at[span.ref], at[span.parent]) for span in spans.values()
        if span.kind == SERVER and span.parent in spans and spans[span.parent].kind == CLIENT
        and not spans[span.parent].failed and span.end is not None and spans[span.parent].end is not None
    ]  # fmt: skip
    clock_known = {span.proc: span.known_clock for span in found}
    procs = list(dict.fromkeys(row[0] for row in rows))
    return make_log(
        rows, order="interval", spans=True, contract=mapping.contract, resolution_ns=resolution(rows),
        clocked=np.array([clock_known[proc] for proc in procs], dtype=bool),
        returns=np.array(returns, dtype=np.int64).reshape(-1, 2),
        lacking=_LACKING if lacking else (), notes=tuple(_notes(found, spans)),
    )  # fmt: skip


def _events(
    span: Span, spans: Mapping[str, Span], names: _SpanMessages, scope_by: tuple[str, ...], processed: bool
) -> Iterator[tuple[Any, ...]]:
    """The events of a span; the first one stands for the span itself."""
    kind, messages = EventKind.INTERNAL, list[str | None]()
    scope = group = channel = rank = None
    if is_delivery(span) or is_arrival(span):
        arrives = is_arrival(span) and processed
        kind = EventKind.RECEIVE if arrives else EventKind.DELIVER
        messages = [*names.taken(span)]
        scope, channel, rank = _consumed(span)
        name = span.get(_GROUP)
        group = _joined(name, span.get(_DESTINATION)) if name and not arrives else None
        scope = None if arrives else scope
    elif span.kind == PRODUCER:
        kind, messages = EventKind.SEND, [names.sent(span)]
        _, channel, rank = _consumed(span)
    elif scope_by:
        kind, messages, scope, channel = _called(span, spans, scope_by)
    for number, message in enumerate(messages or [None]):
        yield (
            span.proc, span.ref, None, int(kind), message, (), scope, group, channel, rank, (),
            _causes(span) if number == 0 else (), span.ref if number == 0 else None, None, span.start,
            span.end, span.request, span.name,
        )  # fmt: skip


def _joined(*parts: str | None) -> str:
    return SEPARATOR.join((part or "").replace("|", "||") for part in parts)


def _consumed(span: Span) -> tuple[str | None, str | None, int | None]:
    """Scope, channel and rank of a message by partition and offset, or by ordering key."""
    destination, group = span.get(_DESTINATION), span.get(_GROUP)
    partition, offset, key = span.get(_PARTITION), span.get(_OFFSET), span.get(_KEY)
    if partition is not None and offset is not None and offset.lstrip("-").isdigit():
        scope = _joined(group, destination, partition, span.proc)
        return scope if span.known_clock else None, _joined(destination, partition), int(offset)
    if key is not None:
        scope = _joined(group, destination, key, span.proc)
        return scope if span.known_clock else None, _joined(destination, key), None
    return None, None, None


def _called(
    span: Span, spans: Mapping[str, Span], scope_by: tuple[str, ...]
) -> tuple[EventKind, list[Any], str | None, str | None]:
    """A call as a message: its CLIENT span sends, its SERVER span delivers, in a scope of attributes."""
    if span.kind == CLIENT:
        return EventKind.SEND, [f"call {span.ref}"], None, None
    parent = spans.get(span.parent or "")
    values = [span.attributes.get(name) for name in scope_by]
    if span.kind != SERVER or parent is None or parent.kind != CLIENT or None in values:
        return EventKind.INTERNAL, [], None, None
    scope = _joined(*values, span.proc) if span.known_clock else None
    return EventKind.DELIVER, [f"call {parent.ref}"], scope, _joined(*values)


def _notes(found: list[Span], spans: Mapping[str, Span]) -> Iterator[Note]:
    absent = sum(ref not in spans for span in spans.values() for ref in _causes(span))
    if absent:
        yield Note(
            "sampled", f"{absent} parents and links are not in the file: sampled, or another file's", absent
        )
    if len(found) > len(spans):
        count = len(found) - len(spans)
        yield Note("repeated-span", f"{count} spans have the id of another one; the first counts", count)
    unknown = sorted({span.proc for span in found if not span.known_clock})
    if unknown:
        told = ", ".join(unknown[:5])
        text = f"no instance is known for {told}: set service.instance.id, or clocks cannot be told apart"
        yield Note("instance", text, len(unknown))


# The protobuf form, read into the shape of the JSON form: the few fields of spans, by their numbers


class ProtobufError(ValueError):
    """The bytes are not the message that was asked for."""


_Field = tuple[int, int, Any]  # number, wire type, value


def _fields(data: bytes) -> Iterator[_Field]:
    """The fields of a message, in order."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        value: Any
        if wire == 0:
            value, at = _varint(data, at)
        elif wire == 1:
            value, at = data[at : at + 8], at + 8
        elif wire == 2:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
        elif wire == 5:
            value, at = data[at : at + 4], at + 4
        else:
            raise ProtobufError(f"wire type {wire} at byte {at}")
        if at > len(data) or number == 0:
            raise ProtobufError(f"a field ends after the message, at byte {at}")
        yield number, wire, value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ProtobufError(f"a number does not end, at byte {at}")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7


def _protobuf_requests(raw: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    """The export requests of a file, numbered: one, or several, each after its length.

    A length has four bytes (the collector's file exporter) or is a varint.
    """
    for split in (_whole, _by_four_bytes, _by_varint):
        try:
            yield from list(enumerate(map(_request, split(raw)), 1))
            return
        except ProtobufError as error:
            last = error
    raise last


def _whole(raw: bytes) -> list[bytes]:
    return [raw]


def _by_four_bytes(raw: bytes) -> list[bytes]:
    return _split(
        raw,
        lambda at: (struct.unpack_from(">I", raw, at)[0], at + 4) if at + 4 <= len(raw) else (1 << 40, at),
    )


def _by_varint(raw: bytes) -> list[bytes]:
    return _split(raw, lambda at: _varint(raw, at))


def _split(raw: bytes, size_at: Callable[[int], tuple[int, int]]) -> list[bytes]:
    made, at = [], 0
    while at < len(raw):
        size, at = size_at(at)
        if at + size > len(raw):
            raise ProtobufError("a length goes beyond the file")
        made.append(raw[at : at + size])
        at += size
    return made


def _only(data: bytes, number: int) -> Iterator[bytes]:
    for each, wire, value in _fields(data):
        if each == number:
            if wire != 2:
                raise ProtobufError(f"field {number} is not a message")
            yield value


def _request(data: bytes) -> dict[str, Any]:
    parts = [_resource_spans(each) for each in _only(data, 1)]
    if not parts:
        raise ProtobufError("it has no resource spans")
    return {"resourceSpans": parts}


def _resource_spans(data: bytes) -> dict[str, Any]:
    resource = b"".join(_only(data, 1))
    return {
        "resource": {"attributes": [_attribute(each) for each in _only(resource, 1)]},
        "scopeSpans": [{"spans": [_span(span) for span in _only(each, 2)]} for each in _only(data, 2)],
    }


def _attribute(data: bytes) -> dict[str, Any]:
    made: dict[str, Any] = {"key": "", "value": {}}
    for number, _, value in _fields(data):
        if number == 1:
            made["key"] = value.decode()
        elif number == 2:
            made["value"] = _value(value)
    return made


def _value(data: bytes) -> dict[str, Any]:
    for number, _, value in _fields(data):
        if number == 1:
            return {"stringValue": value.decode()}
        if number == 2:
            return {"boolValue": bool(value)}
        if number == 3:
            return {"intValue": value - (1 << 64) if value >> 63 else value}
        if number == 4:
            return {"doubleValue": struct.unpack("<d", value)[0]}
    return {}


_SPAN_TEXT = {1: "traceId", 2: "spanId", 4: "parentSpanId"}


def _span(data: bytes) -> dict[str, Any]:
    made: dict[str, Any] = {"links": [], "attributes": []}
    for number, wire, value in _fields(data):
        if number in _SPAN_TEXT and wire == 2:
            made[_SPAN_TEXT[number]] = value.hex()
        elif number == 5 and wire == 2:
            made["name"] = value.decode()
        elif number == 6 and wire == 0:
            made["kind"] = value
        elif number in (7, 8) and wire == 1:
            made["startTimeUnixNano" if number == 7 else "endTimeUnixNano"] = int.from_bytes(value, "little")
        elif number == 9 and wire == 2:
            made["attributes"].append(_attribute(value))
        elif number == 13 and wire == 2:
            link = {each: inner.hex() for each, kind, inner in _fields(value) if each in (1, 2) and kind == 2}
            made["links"].append({"traceId": link.get(1, ""), "spanId": link.get(2, "")})
        elif number == 15 and wire == 2:
            made["status"] = {"code": next((code for each, _, code in _fields(value) if each == 3), 0)}
    if "spanId" not in made or "traceId" not in made:
        raise ProtobufError("a span has no id")
    return made
