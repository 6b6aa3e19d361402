"""OpenTelemetry spans for tests, as a collector's file exporter writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def span(
    trace: str, id_: str, start_us: int, parent: str = "", links: tuple[tuple[str, str], ...] = ()
) -> dict[str, Any]:
    made: dict[str, Any] = {
        "traceId": trace,
        "spanId": id_,
        "name": f"do {id_}",
        "startTimeUnixNano": str(1000 * start_us),
        "endTimeUnixNano": str(1000 * (start_us + 50)),
    }
    if parent:
        made["parentSpanId"] = parent
    if links:
        made["links"] = [{"traceId": linked, "spanId": to} for linked, to in links]
    return made


def request(service: str, *spans: dict[str, Any]) -> dict[str, Any]:
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {}, "spans": list(spans)}]}]}


def write(path: Path, *requests: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in requests))
    return path


def shop(path: Path) -> Path:
    """Two traces, the second linked to the first; children are exported before their parents, as is usual."""
    return write(
        path,
        request("stock", span("t1", "c", 30, "b")),
        request("shop", span("t1", "b", 20, "a"), span("t1", "a", 10)),
        request("mail", span("t2", "m", 40, links=(("t1", "c"),))),
        request("bank", span("t3", "p", 5), span("t3", "q", 6, "gone")),
    )
