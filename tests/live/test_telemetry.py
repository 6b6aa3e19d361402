"""Counters for Prometheus and OpenTelemetry, spans that are linked, and a log that cannot be flooded."""

from __future__ import annotations

import asyncio
import logging
import urllib.request

import pytest

import whence
from support.living import free_ports, in_a_loop, loopback
from whence.live import telemetry
from whence.session.journal import Journal

pytest.importorskip("prometheus_client")
pytest.importorskip("opentelemetry.sdk")


@in_a_loop
async def test_prometheus_scrapes_what_stats_say() -> None:
    from prometheus_client import CollectorRegistry, start_http_server

    registry, (port,) = CollectorRegistry(), free_ports(1)
    peers = loopback(("ann", "bob"))
    ann = whence.join("room", node="ann", peers=peers, protocol="vector")
    bob = whence.join("room", node="bob", peers=peers, protocol="vector")
    async with ann as at_ann, bob as at_bob:
        telemetry.prometheus(at_ann, registry)
        server, _ = start_http_server(port, "127.0.0.1", registry)
        for _ in range(3):
            await at_ann.broadcast(b"x")
            await at_bob.receive()
        address = f"http://127.0.0.1:{port}/metrics"
        text = (await asyncio.to_thread(urllib.request.urlopen, address)).read().decode()
        assert 'whence_broadcasts_total{group="room",node="ann"} 3.0' in text
        assert 'whence_unread_messages{group="room",node="ann"} 3.0' in text
        assert 'whence_link_connected{group="room",node="ann",peer="bob"} 1.0' in text
        await asyncio.to_thread(server.shutdown)
        server.server_close()


@in_a_loop
async def test_opentelemetry_observes_the_same() -> None:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    (port,) = free_ports(1)
    async with whence.join("room", node="ann", listen=f"127.0.0.1:{port}") as group:
        telemetry.opentelemetry(group, provider.get_meter("test"))
        await group.broadcast(b"x")
        data = await asyncio.to_thread(reader.get_metrics_data)
    found = {
        metric.name: [point.value for point in metric.data.data_points]
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
    }
    assert found["whence.broadcasts"] == [1]
    assert found["whence.log_next"] == [2]


@in_a_loop
async def test_a_trace_crosses_the_group() -> None:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    peers = loopback(("ann", "bob"))
    ann = whence.join("room", node="ann", peers=peers, protocol="fifo", codec="json")
    bob = whence.join("room", node="bob", peers=peers, protocol="fifo", codec="json")
    async with ann as at_ann, bob as at_bob:
        with trace.get_tracer("test").start_as_current_span("order") as order:
            await at_ann.broadcast({"n": 1})
        with (await at_bob.receive()).processed():
            pass
    (span,) = [each for each in exporter.get_finished_spans() if each.name == "process"]
    assert [link.context.span_id for link in span.links] == [order.get_span_context().span_id]
    assert span.attributes["messaging.message.id"] == "ann:1"


def test_the_log_says_each_warning_once_until_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    journal = Journal("ann", lambda: 0.0)
    with caplog.at_level(logging.WARNING, "whence.live"):
        for _ in range(64):
            journal.note("waiting", "bob", "there is no room", logging.WARNING)
        assert len(caplog.records) == 1
        assert caplog.records[0].whence_source == "bob"
        journal.recovered("bob")
        journal.note("waiting", "bob", "there is no room", logging.WARNING)
    assert len(caplog.records) == 2
    assert len(journal.events) == 65
