"""Scenarios for the Spark tests, and its measures once more, in plain Python."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from whence.sim.files import Scenario, from_dict
from whence.trace.reader import Event
from whence.trace.schema import Kind


def scenario(protocol: str = "vector", *, nodes: int = 5, seed: int = 1, **more: Any) -> Scenario:
    """Some 150 broadcasts over a network that reorders and duplicates, sampled now and then."""
    base: dict[str, Any] = {
        "name": "spark-test",
        "nodes": nodes,
        "protocol": protocol,
        "seed": seed,
        "stop": {"duration_us": 100_000},
        "link": {"delay": {"kind": "uniform", "low_us": 500, "high_us": 30_000}, "duplicate": 0.05},
        "workloads": [
            {"kind": "poisson", "interval_us": 8_000, "payload_bytes": 40},
            {"kind": "replies", "probability": 0.1, "payload_bytes": 20},
        ],
        "record": {"level": "all", "sample_every_us": 2_000},
    }
    return from_dict(base | more)


def plain_latencies(events: Iterable[Event]) -> dict[tuple[str, str, str, int], tuple[int | None, ...]]:
    """(run, node, origin, number) -> broadcast, received, delivered, reception, delivery, held."""
    sent: dict[Any, int] = {}
    received: dict[Any, int] = {}
    delivered: dict[Any, int] = {}
    for event in events:
        key = (event.run, event.node, event.origin, event.number)
        if event.kind == Kind.BROADCAST:
            sent[event.run, event.origin, event.number] = event.time_us
        elif event.kind == Kind.RECEIVE and event.origin is not None and event.node != event.origin:
            received.setdefault(key, event.time_us)
        elif event.kind == Kind.DELIVER and event.node != event.origin:
            delivered.setdefault(key, event.time_us)
    rows = {}
    for key in received.keys() | delivered.keys():
        start, came, left = sent.get((key[0], *key[2:])), received.get(key), delivered.get(key)
        rows[key] = (start, came, left, _minus(came, start), _minus(left, start), _minus(left, came))
    return rows


def _minus(later: int | None, earlier: int | None) -> int | None:
    return None if later is None or earlier is None else later - earlier


def plain_held_peaks(events: Iterable[Event]) -> dict[tuple[str, str], int]:
    """By walking through each node's events with a set of what it holds, looking at the end of each step."""
    inputs = {
        Kind.BROADCAST, Kind.RECEIVE, Kind.LINK_UP, Kind.LINK_DOWN, Kind.TIMER, Kind.CRASH, Kind.RESTART,
    }  # fmt: skip
    by_node: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for event in events:
        by_node[event.run, event.node].append(event)
    peaks = {}
    for key, rows in by_node.items():
        holding: set[Any] = set()
        seen: set[Any] = set()
        packet: Any = None
        peak = 0
        for row in sorted(rows, key=lambda row: row.seq):
            message = (row.origin, row.number)
            if row.kind in inputs:
                peak = max(peak, len(holding))
                packet = None
            if row.kind == Kind.RECEIVE and row.origin is not None and message not in seen:
                packet = message
                seen.add(message)
                holding.add(message)
            elif row.kind in (Kind.DELIVER, Kind.EXPIRE):
                holding.discard(message)
                seen.add(message)
            elif row.kind == Kind.DISCARD and packet is not None:
                # The only discards in these traces are of the packet that has just come.
                holding.discard(packet)
                seen.discard(packet)
        peaks[key] = max(peak, len(holding))
    return peaks
