"""Runs whose links open and close replay: what the overlay decided is in the trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulation.altered import Alter, rewritten
from support.running import simulate_to
from whence.sim.replay import replay
from whence.studies.prc.grid import changing
from whence.trace.reader import Event, open_trace
from whence.trace.schema import Kind
from whence.verify.run import verify_trace


def recorded(folder: Path, protocol: str, departures: list[tuple[int, int]]) -> Path:
    scenario = changing(
        protocol=protocol,
        nodes=16,
        duration_us=6_000_000,
        joins_us=1_000_000,
        delays=[(2_000_000, 2_000), (4_000_000, 90_000)],
        shuffle_every_us=400_000,
        shuffle_stop_us=4_500_000,
        broadcast_start_us=500_000,
        broadcast_stop_us=4_500_000,
        broadcast_every_us=60_000,
        params={"timeout_us": 150_000},  # shorter than a handshake at the end: attempts are aborted
        departures=departures,
        level="all",
    )
    simulate_to(scenario, folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    gone = [(2_000_000 + 300_000 * at, node) for at, node in enumerate((3, 7, 0))]
    return recorded(tmp_path_factory.mktemp("prc") / "trace", "prc", gone)


def test_links_that_open_close_time_out_and_crash_replay_identically(folder: Path) -> None:
    kinds = [event.kind for event in open_trace(folder).events()]
    assert min(kinds.count(kind) for kind in (Kind.COMMAND, Kind.TIMER, Kind.CRASH, Kind.LINK_DOWN)) > 0
    details = {str(event.detail).split("/")[0] for event in open_trace(folder).events()}
    assert {"alpha", "beta", "pi", "rho", "buffer", "return", "abort", "join", "welcome"} <= details
    report = replay(folder)
    assert report.ok, report.mismatches
    assert (report.unexplained_count, report.inputs > 5_000) == (0, True)


def test_preventive_broadcast_replays_too(tmp_path: Path) -> None:
    assert replay(recorded(tmp_path / "trace", "preventive", [])).ok


def swapped(events: list[Event]) -> list[Event]:
    """One link is opened through nobody that is safe."""
    at = max(at for at, event in enumerate(events) if '"open"' in str(event.detail))
    one, _, *rest = str(events[at].detail)[8:].strip('"]').split('","')
    detail = f'["open","{one}","n99","{rest[-1]}"]'
    return [*events[:at], events[at]._replace(detail=detail), *events[at + 1 :]]


def garbled(events: list[Event]) -> list[Event]:
    return [
        event._replace(detail="open sesame") if event.kind is Kind.COMMAND and at > 500 else event
        for at, event in enumerate(events)
    ]


def unsaid(events: list[Event]) -> list[Event]:
    at = max(at for at, event in enumerate(events) if '"open"' in str(event.detail))
    return events[:at] + events[at + 1 :]


@pytest.mark.parametrize("alter", [swapped, garbled, unsaid])
def test_an_altered_command_is_found_out_and_the_verifier_does_not_mind(
    folder: Path, tmp_path: Path, alter: Alter
) -> None:
    other = rewritten(folder, tmp_path / "altered", alter)
    assert not replay(other).ok
    [report] = verify_trace(other, complete=False)
    assert report.ok
