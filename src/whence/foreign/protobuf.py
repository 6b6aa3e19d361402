"""OTLP's protobuf form, read into the shape of its JSON form: the few fields of spans, by their numbers.

A file is one export request, or several, each after its length: as four bytes (the collector's file exporter)
or as a varint.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any


class ProtobufError(ValueError):
    """The bytes are not the message that was asked for."""


Field = tuple[int, int, Any]  # number, wire type, value


def fields(data: bytes) -> Iterator[Field]:
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


def read_request(raw: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    """The export requests of a file, numbered."""
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
    for each, wire, value in fields(data):
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
    for number, _, value in fields(data):
        if number == 1:
            made["key"] = value.decode()
        elif number == 2:
            made["value"] = _value(value)
    return made


def _value(data: bytes) -> dict[str, Any]:
    for number, _, value in fields(data):
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
    for number, wire, value in fields(data):
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
            link = {each: inner.hex() for each, kind, inner in fields(value) if each in (1, 2) and kind == 2}
            made["links"].append({"traceId": link.get(1, ""), "spanId": link.get(2, "")})
        elif number == 15 and wire == 2:
            made["status"] = {"code": next((code for each, _, code in fields(value) if each == 3), 0)}
    if "spanId" not in made or "traceId" not in made:
        raise ProtobufError("a span has no id")
    return made
