"""Replay: recorded runs with every option come out identical, and whatever is altered is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from simulation.altered import Alter, rewritten
from support.running import simulate_to
from support.simulating import random_scenario
from whence.core.effects import Effects
from whence.errors import MisuseError, TraceError
from whence.protocols.baselines.vector import Vector
from whence.sim.files import from_dict
from whence.sim.model import Scenario
from whence.sim.replay import replay
from whence.trace.reader import Event, open_trace
from whence.trace.schema import Kind, Level


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return from_dict(
        {
            "nodes": 5,
            "protocol": "vector",
            "seed": 4,
            "topology": {"kind": "random", "degree": 2},
            "link": {
                "delay": {"kind": "exponential", "mean_us": 2_000},
                "loss": 0.1,
                "duplicate": 0.2,
                "retransmit_us": 1_000,
            },
            "workloads": [
                {"kind": "poisson", "interval_us": 5_000},
                {"kind": "replies", "probability": 0.2, "depth": 2},
            ],
            "faults": [
                {"kind": "crash", "nodes": "n2", "at_us": 9_000, "restart_us": 14_000},
                {"kind": "skew", "nodes": "all", "offset_us": 5_000, "drift_ppm": 1_000, "drawn": True},
            ],
            "record": {"sample_every_us": 4_000},
            "stop": {"duration_us": 30_000},
        }
    )


@pytest.fixture(scope="module")
def folder(scenario: Scenario, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("replay") / "trace"
    simulate_to(scenario, folder)
    return folder


@pytest.mark.parametrize("seed", range(40))
def test_a_simulated_trace_replays_identically(seed: int, tmp_path: Path) -> None:
    manifest = simulate_to(random_scenario(seed), tmp_path)
    report = replay(tmp_path)
    assert report.mismatches == []
    assert report.unexplained == []
    assert report.ok
    assert report.events == manifest.events
    inputs_and_effects = report.inputs + report.effects
    samples = sum(event.kind is Kind.SAMPLE for event in open_trace(tmp_path).events())
    assert inputs_and_effects + samples == manifest.events


def test_the_report_names_the_run(folder: Path, scenario: Scenario) -> None:
    report = replay(folder)
    assert report.ok
    assert report.protocol == "vector"
    assert report.nodes == ["n0", "n1", "n2", "n3", "n4"]
    assert msgspec.json.decode(msgspec.json.encode(report))["ok"] is True


# Every alteration of an event is found. Each takes the list of events and returns the altered one.


def first(events: list[Event], kind: Kind, skip: int = 20) -> int:
    return [at for at, event in enumerate(events) if event.kind is kind][skip]


def with_event(events: list[Event], kind: Kind, skip: int = 20, **fields: Any) -> list[Event]:
    at = first(events, kind, skip)
    return [*events[:at], events[at]._replace(**fields), *events[at + 1 :]]


def swapped_deliveries(events: list[Event]) -> list[Event]:
    """Exchange two deliveries of one node that carry different messages."""
    places = [at for at, event in enumerate(events) if event.kind is Kind.DELIVER and event.node == "n1"]
    one, two = places[5], places[6]
    assert events[one][5:] != events[two][5:]
    events[one], events[two] = (
        events[one]._replace(origin=events[two].origin, number=events[two].number),
        events[two]._replace(origin=events[one].origin, number=events[one].number),
    )
    return events


def another_link(events: list[Event]) -> list[Event]:
    """Link a node to one that is no neighbour of it."""
    linked = {event.peer for event in events if event.kind is Kind.LINK_UP and event.node == events[0].node}
    stranger = next(name for name in ("n1", "n2", "n3", "n4") if name not in linked)
    assert events[0].kind is Kind.LINK_UP
    return [events[0]._replace(peer=stranger), *events[1:]]


ALTERATIONS: dict[str, Alter] = {
    "delivery of another message": lambda events: with_event(events, Kind.DELIVER, number=999),
    "delivery of another size": lambda events: with_event(events, Kind.DELIVER, total_bytes=999),
    "delivery by another origin": lambda events: with_event(events, Kind.DELIVER, origin="n9"),
    "deliveries exchanged": swapped_deliveries,
    "delivery left out": lambda events: [
        event for at, event in enumerate(events) if at != first(events, Kind.DELIVER)
    ],
    "delivery twice": lambda events: [
        *events[: first(events, Kind.DELIVER) + 1], *events[first(events, Kind.DELIVER) :],
    ],
    "send to another peer": lambda events: with_event(events, Kind.SEND, peer="n9"),
    "send of another size": lambda events: with_event(events, Kind.SEND, control_bytes=1),
    "receive of another message": lambda events: with_event(events, Kind.RECEIVE, number=998),
    "receive from another peer": lambda events: with_event(events, Kind.RECEIVE, peer="n9"),
    "receive left out": lambda events: [
        event for at, event in enumerate(events) if at != first(events, Kind.RECEIVE)
    ],
    "broadcast of another number": lambda events: with_event(events, Kind.BROADCAST, skip=3, number=77),
    "broadcast of another size": lambda events: with_event(events, Kind.BROADCAST, skip=3, total_bytes=77),
    "discard for another reason": lambda events: with_event(events, Kind.DISCARD, detail="malformed"),
    "discard of another message": lambda events: with_event(events, Kind.DISCARD, number=997),
    "link to another peer": another_link,
    "link to itself": lambda events: with_event(events, Kind.LINK_UP, skip=0, peer=events[0].node),
    "another gauge": lambda events: with_event(events, Kind.SAMPLE, skip=3, number=10**6),
    "effect as first event": lambda events: [events[0]._replace(kind=Kind.DELIVER), *events],
}  # fmt: skip


@pytest.mark.parametrize("name", ALTERATIONS)
def test_an_altered_trace_is_found_out(name: str, folder: Path, tmp_path: Path) -> None:
    report = replay(rewritten(folder, tmp_path, ALTERATIONS[name]))
    assert not report.ok
    assert report.mismatch_count >= 1
    assert report.mismatches


def test_a_difference_says_where_and_what(folder: Path, tmp_path: Path) -> None:
    events = list(open_trace(folder).events())
    altered = events[first(events, Kind.DELIVER)]
    report = replay(rewritten(folder, tmp_path, lambda events: with_event(events, Kind.DELIVER, number=999)))
    found = report.mismatches[0]
    assert (found.node, found.seq) == (altered.node, altered.seq)
    assert found.expected == f"DELIVER {altered.origin}:999 64 bytes (0 control)"
    assert found.got == f"DELIVER {altered.origin}:{altered.number} 64 bytes (0 control)"


def test_another_protocol_is_found_out(folder: Path) -> None:
    assert not replay(folder, make=lambda me, members: Vector(me, members, relay=False)).ok
    assert replay(folder, make=Vector).ok


def test_what_was_recorded_with_a_broken_core_does_not_replay(scenario: Scenario, tmp_path: Path) -> None:
    """A trace cannot pass for one of the registered protocol's."""

    class Silent(Vector):
        def broadcast(self, payload: bytes, now_us: int) -> Effects:
            return (
                super().broadcast(payload, now_us)[:1]
                if self.last == 2
                else super().broadcast(payload, now_us)
            )

    simulate_to(scenario, tmp_path, make=Silent)
    assert not replay(tmp_path).ok


def test_packets_without_a_name_are_matched_in_order_on_fifo_links(
    scenario: Scenario, tmp_path: Path
) -> None:
    class Anonymous(Vector):
        """As if all its packets were pure control: the trace does not say which message they carry."""

        def message_of(self, packet: Any) -> None:
            return None

    fifo = msgspec.structs.replace(scenario.link, fifo=True, duplicate=0.0)
    simulate_to(msgspec.structs.replace(scenario, link=fifo), tmp_path, make=Anonymous)
    events = list(open_trace(tmp_path).events())
    assert {event.origin for event in events if event.kind is Kind.RECEIVE} == {None}
    report = replay(tmp_path, make=Anonymous)
    assert report.ok, report.mismatches[:3]


# The outside


def outsider(events: list[Event]) -> list[Event]:
    """A packet that nobody sent, and that the core refused."""
    place = next(at for at, event in enumerate(events) if event.kind is Kind.BROADCAST)
    event = events[place]
    received = event._replace(
        kind=Kind.RECEIVE, origin=None, number=0, peer="n9", total_bytes=33, control_bytes=33
    )
    refused = event._replace(
        kind=Kind.DISCARD, origin=None, number=0, peer="n9", total_bytes=0, detail="not a neighbour"
    )
    return [*events[:place], received, refused, *events[place:]]


def test_a_refused_packet_from_outside_is_unexplained_in_a_live_trace(folder: Path, tmp_path: Path) -> None:
    """A live run has strangers, and they leave no trace of their own."""
    flat = tmp_path / "flat"
    rewritten(folder, flat, outsider)
    report = replay(flat)
    assert not report.ok  # in a simulation there is no outside
    live = tmp_path / "live"
    rewritten(folder, live, outsider, writer="n0")
    report = replay(live)
    assert report.unexplained_count == 1
    assert (
        report.unexplained[0].event
        == "RECEIVE peer n9 33 bytes (33 control), DISCARD peer n9 'not a neighbour'"
    )
    assert report.ok


def test_a_member_whose_trace_is_missing_stops_the_others(folder: Path, tmp_path: Path) -> None:
    report = replay(
        rewritten(folder, tmp_path, lambda events: [each for each in events if each.node != "n0"])
    )
    assert not report.ok


# What cannot be replayed


def test_a_trace_without_packets_is_refused(tmp_path: Path) -> None:
    simulate_to(random_scenario(1), tmp_path, Level.DELIVERIES)
    with pytest.raises(TraceError, match="level 'all'"):
        replay(tmp_path)


def test_several_runs_need_a_choice(tmp_path: Path) -> None:
    for seed in (1, 2):
        simulate_to(random_scenario(seed), tmp_path / f"run={seed}")
    with pytest.raises(MisuseError, match="2 runs"):
        replay(tmp_path)
    trace = open_trace(tmp_path)
    assert [replay(trace, run).ok for run in trace.runs] == [True, True]
    with pytest.raises(TraceError, match="no run"):
        replay(tmp_path, "absent")


def test_no_trace_at_all(tmp_path: Path) -> None:
    with pytest.raises(TraceError):
        replay(tmp_path / "absent")
