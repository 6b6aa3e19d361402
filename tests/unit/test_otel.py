"""OpenTelemetry spans: which pairs may be compared, and what is never said of them."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from support.corpus import CORPUS
from whence.errors import ImportFormatError
from whence.foreign.judge import judge
from whence.foreign.mapping import mapping_of
from whence.foreign.model import Log
from whence.foreign.otlp import read_spans
from whence.foreign.read import read_log
from whence.foreign.report import Audit

SERVER, CLIENT, PRODUCER, CONSUMER = 2, 3, 4, 5
MS = 10**6
BASE = 1_700_000_000_000_000_000


def span(
    id_: str, kind: int, start: int, end: int, parent: str = "", links: tuple[str, ...] = (), **more: Any
) -> dict[str, Any]:
    """A span from `start` to `end` in ms; further names are attributes, with `__` for a dot."""
    attributes = [
        {"key": name.replace("__", "."), "value": {"stringValue": str(value)}} for name, value in more.items()
    ]
    made: dict[str, Any] = {
        "traceId": "0" * 32, "spanId": f"{id_:>016}", "name": id_, "kind": kind, "attributes": attributes,
        "startTimeUnixNano": str(BASE + start * MS), "endTimeUnixNano": str(BASE + end * MS),
        "links": [{"traceId": "0" * 32, "spanId": f"{each:>016}"} for each in links],
    }  # fmt: skip
    return made | ({"parentSpanId": f"{parent:>016}"} if parent else {})


def request(instance: str | None, *spans: dict[str, Any]) -> dict[str, Any]:
    attributes = [{"key": "service.name", "value": {"stringValue": "svc"}}]
    if instance:
        attributes.append({"key": "service.instance.id", "value": {"stringValue": instance}})
    return {
        "resourceSpans": [{"resource": {"attributes": attributes}, "scopeSpans": [{"spans": list(spans)}]}]
    }


def read(tmp_path: Path, *requests: dict[str, Any], scope: tuple[str, ...] = ()) -> Log:
    path = tmp_path / "spans.json"
    path.write_text("".join(json.dumps(each) + "\n" for each in requests))
    return read_log(path, mapping_of({"log": {"format": "otlp", "scope": list(scope)}}))


def audited(tmp_path: Path, *requests: dict[str, Any], scope: tuple[str, ...] = ()) -> Audit:
    return judge(read(tmp_path, *requests, scope=scope))


def consumed(id_: str, start: int, offset: int, **more: Any) -> dict[str, Any]:
    return span(
        id_, CONSUMER, start, start + 1, messaging__operation__type="process",
        messaging__destination__name="t", messaging__destination__partition__id="0",
        messaging__kafka__offset=offset, **more,
    )  # fmt: skip


def keyed(id_: str, start: int, end: int, message: str, **more: Any) -> dict[str, Any]:
    return span(
        id_, CONSUMER, start, end, messaging__operation__type="process", messaging__destination__name="t",
        messaging__servicebus__message__session_id="s", messaging__message__id=message, **more,
    )  # fmt: skip


def produced(id_: str, start: int, end: int, message: str) -> dict[str, Any]:
    return span(
        id_, PRODUCER, start, end, messaging__destination__name="t", messaging__message__id=message,
        messaging__servicebus__message__session_id="s",
    )  # fmt: skip


def test_offsets_of_a_partition_out_of_order(tmp_path: Path) -> None:
    audit = audited(tmp_path, request("c", consumed("a", 1, 7), consumed("b", 3, 9), consumed("c", 5, 8)))
    assert audit.counts("broken") == {"fifo": 1}
    assert audit.counts("seen") == {"causal": 1}


def test_overlapping_spans_are_in_no_order(tmp_path: Path) -> None:
    first, second = consumed("a", 1, 9), consumed("b", 2, 8)
    first["endTimeUnixNano"] = str(BASE + 10 * MS)
    assert audited(tmp_path, request("c", first, second)).counts("broken") == {}


def test_two_instances_are_two_scopes(tmp_path: Path) -> None:
    audit = audited(tmp_path, request("c", consumed("a", 1, 9)), request("d", consumed("b", 3, 8)))
    assert (audit.verdict, audit.counts("broken")) == ("ok", {})
    assert "fifo" in audit.judged


def test_an_unknown_instance_is_no_scope_and_is_said(tmp_path: Path) -> None:
    audit = audited(tmp_path, request(None, consumed("a", 1, 9), consumed("b", 3, 8)))
    assert {"causal", "fifo"} <= set(audit.not_judged)
    assert "instance" in {note.code for note in audit.notes}


def test_an_ordering_key_and_producers_that_do_not_overlap(tmp_path: Path) -> None:
    sends = request("p", produced("1", 1, 2, "m1"), produced("2", 3, 4, "m2"))
    late = request("c", keyed("3", 10, 11, "m2"), keyed("4", 12, 13, "m1"))
    audit = audited(tmp_path, sends, late)
    assert audit.counts("broken") == {"fifo": 1}
    assert "assumed" in {note.code for note in audit.notes}
    parallel = request("p", produced("1", 1, 4, "m1"), produced("2", 3, 4, "m2"))
    assert audited(tmp_path, parallel, late).counts("broken") == {}
    two = [request("p", produced("1", 1, 2, "m1")), request("q", produced("2", 3, 4, "m2"))]
    assert audited(tmp_path, *two, late).counts("broken") == {}


def test_neither_partition_nor_key_is_not_judged_and_names_both(tmp_path: Path) -> None:
    bare = [span(id_, CONSUMER, at, at + 1, messaging__message__id=id_) for id_, at in (("a", 1), ("b", 3))]
    fifo = audited(tmp_path, request("c", *bare)).properties["fifo"]
    assert fifo.status == "not judged"
    assert "partition" in fifo.remedy
    assert "ordering" in fifo.remedy


def test_a_causal_chain_through_spans(tmp_path: Path) -> None:
    """m2 is produced by what processed m1; a second consumer of the session handles m2 first."""
    sends = request("p", produced("1", 1, 2, "m1"))
    reply = {**produced("3", 4, 5, "m2"), "parentSpanId": f"{'2':>016}"}
    relay = request("r", keyed("2", 3, 6, "m1"), reply)
    late = request("c", keyed("4", 10, 11, "m2"), keyed("5", 12, 13, "m1"))
    audit = audited(tmp_path, sends, relay, late)
    assert audit.properties["causal"].count == 1
    assert [step.by for step in audit.properties["causal"].findings[0].chain] == ["", "message", "link"]
    assert audit.verdict == "ok"  # of spans causal order is not demanded unless a contract says so


def test_receives_are_arrivals_beside_process_spans_only(tmp_path: Path) -> None:
    batch = span(
        "r", CONSUMER, 5, 6, links=("1", "2"), messaging__operation__type="receive",
        messaging__destination__name="t", messaging__servicebus__message__session_id="s",
    )  # fmt: skip
    sends = request("p", produced("1", 1, 2, "m1"), produced("2", 3, 4, "m2"))
    log = read(tmp_path, sends, request("c", batch))
    assert [log.msgs[each] for each in log.msg[log.kind == 3]] == ["m1", "m2"]
    log = read(tmp_path, sends, request("c", batch, keyed("4", 7, 8, "m1")))
    assert [log.msgs[each] for each in log.msg[log.kind == 3]] == ["m1"]
    assert [log.msgs[each] for each in log.msg[log.kind == 2]] == ["m1", "m2"]


def test_a_producer_without_an_id_is_what_its_consumer_calls_it(tmp_path: Path) -> None:
    sends = request("p", span("1", PRODUCER, 1, 2), span("2", PRODUCER, 3, 4))
    late = request("c", keyed("3", 10, 11, "m2", links=("2",)), keyed("4", 12, 13, "m1", links=("1",)))
    assert audited(tmp_path, sends, late).counts("broken") == {"fifo": 1}


def test_calls_are_messages_where_a_scope_is_given(tmp_path: Path) -> None:
    calls = request("a", span("1", CLIENT, 1, 9), span("2", CLIENT, 11, 19))
    served = request(
        "b", span("4", SERVER, 3, 4, "2", session__id="x"), span("3", SERVER, 5, 6, "1", session__id="x")
    )
    assert "fifo" not in audited(tmp_path, calls, served).judged
    assert audited(tmp_path, calls, served, scope=("session.id",)).counts("broken") == {"fifo": 1}


def test_a_child_before_its_parent_by_one_clock_is_a_finding_of_time(tmp_path: Path) -> None:
    audit = audited(tmp_path, request("a", span("1", SERVER, 10, 20), span("2", 1, 5, 6, "1")))
    assert audit.counts("seen") == {"time": 1}
    close = audited(tmp_path, request("a", span("1", SERVER, 10, 20), span("2", 1, 9, 15, "1")))
    assert close.counts("seen") == {}  # stamps are whole milliseconds: one is within the resolution


def test_repeated_spans_are_a_note(tmp_path: Path) -> None:
    audit = audited(tmp_path, request("a", span("1", SERVER, 1, 2), span("1", SERVER, 1, 2)))
    assert (audit.verdict, [note.code for note in audit.notes]) == ("unknown", ["repeated-span"])


def test_what_is_assumed_is_dropped_when_it_makes_the_times_impossible(tmp_path: Path) -> None:
    """The client gave up long before the server ended."""
    calls = request("a", span("1", CLIENT, 1, 2), span("5", CLIENT, 30, 40))
    served = request("b", span("2", SERVER, 1, 20, "1"), span("6", SERVER, 31, 32, "5"))
    codes = {note.code for note in audited(tmp_path, calls, served).notes}
    assert {"assumed", "assumed-dropped"} <= codes
    assert "time-impossible" not in codes


# Protobuf


def encoded(document: dict[str, Any]) -> bytes:
    return ParseDict(document, ExportTraceServiceRequest()).SerializeToString()


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*/spans.json")), ids=lambda path: path.parent.name)
def test_protobuf_is_read_as_json_is(path: Path, tmp_path: Path) -> None:
    text = path.read_text()
    if text.count('"resourceSpans"') > 1:
        pytest.skip("several requests, one per line: this test writes one")
    document = json.loads(text)
    for part in document["resourceSpans"]:
        for each in part["scopeSpans"][0]["spans"]:
            # The mapping of protobuf to JSON has base64 where OTLP has hexadecimal digits.
            for ids in (each, *each.get("links", ())):
                for name in ("traceId", "spanId", "parentSpanId"):
                    if name in ids:
                        ids[name] = base64.b64encode(bytes.fromhex(ids[name])).decode()
    data = encoded(document)
    expected = read_spans(path)
    for name, raw in {
        "one": data,
        "lengths": struct.pack(">I", len(data)) + data,
    }.items():
        (tmp_path / name).write_bytes(raw)
        assert read_spans(tmp_path / name) == expected


@pytest.mark.parametrize(
    "raw", [b"", b"{}", b'{"resourceSpans": [{"scopeSpans": [{"spans": [{}]}]}]}', b"\x0a\xff\x00\x01", b"[1"]
)
def test_what_is_no_export_is_refused(raw: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.otlp").write_bytes(raw)
    with pytest.raises(ImportFormatError):
        read_log(tmp_path / "x.otlp")
