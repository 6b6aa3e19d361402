"""Turn-around times between real server processes: what is measured, and that nothing outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from whence.errors import PlatformError
from whence.studies.domains import live as domains_live
from whence.studies.domains.grid import DomainsStudy
from whence.studies.domains.live import LiveBatch, LivePlan, LiveSample, LiveSystem, Progress
from whence.studies.results import Results, Row

SMALL = LivePlan(
    (
        LiveBatch(
            tuple(
                LiveSystem(nodes, organisation, stamps)
                for nodes in (4, 9)
                for organisation, stamps in (("flat", "full"), ("bus", "full"), ("bus", "updates"))
            ),
            rounds=2,
            pings=5,
            broadcasts=1,
        ),
        LiveBatch(
            (LiveSystem(9, "daisy", "full"), LiveSystem(9, "tree", "full")), rounds=1, pings=5, broadcasts=1
        ),
        LiveBatch((LiveSystem(400, "bus", "full", all_there=False),), rounds=1, pings=5),
        LiveBatch((LiveSystem(9, "bus", "full", all_there=False, durable=True),), rounds=1, pings=3),
    )
)
LONG = LivePlan((LiveBatch((LiveSystem(9, "flat", "full"),), rounds=100_000, pings=1),))


@pytest.fixture(scope="module")
def measured() -> tuple[list[Row], list[int]]:
    """The rows of a small plan, and the progress that was told."""
    heard: list[int] = []
    return domains_live.measure(SMALL, heard.append), heard


def test_every_system_is_measured_in_every_round(measured: tuple[list[Row], list[int]]) -> None:
    rows, heard = measured
    expected = [
        (system.organisation, system.stamps, system.nodes, workload, round_)
        for batch in SMALL.batches
        for round_ in range(1, batch.rounds + 1)
        for system in batch.systems
        for workload in ("local", "ping-pong", "broadcast")[: 3 if batch.broadcasts else 2]
    ]
    names = ("organisation", "stamps", "nodes", "workload", "seed")
    assert sorted(tuple(row.labels[name] for name in names) for row in rows) == sorted(expected)
    assert len({row.run for row in rows}) == len(rows)
    assert heard[-1] == SMALL.steps
    assert heard == sorted(heard)
    for row in rows:
        assert row.measure("wall_us") > 0
        assert row.measure("cpu_us") > 0


def test_rows_carry_the_labels_of_the_grid(measured: tuple[list[Row], list[int]]) -> None:
    rows, _ = measured
    [point, *_] = DomainsStudy().grid("tiny")
    assert {tuple(row.labels) for row in rows} == {tuple(point.labels)}
    assert {row.labels["part"] for row in rows} == {"live", "live-way", "live-durable"}


def test_messages_take_the_way_of_their_domains(measured: tuple[list[Row], list[int]]) -> None:
    results = Results(tuple(measured[0]))
    for organisation, hops in (("flat", 1), ("bus", 3), ("daisy", 4), ("tree", 4)):
        assert set(results.column("live_hops", organisation=organisation, nodes=9)) == {hops}
    [far] = results.select(part="live-way", workload="ping-pong")
    assert far.parameters["processes"] == 4  # of 400
    [broadcast, *_] = results.select(part="live", workload="broadcast", nodes=9, organisation="bus")
    assert broadcast.parameters["messages"] == 8


def test_the_time_of_a_broadcast_is_divided_by_its_messages() -> None:
    sample = LiveSample(LiveSystem(9, "bus", "full"), 1, "broadcast", 24, (80_000, 160_000, 800_000), 240_000)
    measures = domains_live.row_of(sample).measures
    assert measures["round_us"] == 160
    assert measures["wall_us"] == 20
    assert measures["cpu_us"] == 10


def _session(leader: int) -> list[int]:
    """The living processes of the session that the parent leads."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended meanwhile
                continue
            if int(fields[3]) == leader and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def _eventually(condition: Callable[[], bool]) -> bool:
    until_s = time.monotonic() + 30
    while not condition() and time.monotonic() < until_s:
        time.sleep(0.05)
    return condition()


@pytest.mark.parametrize("end", ["close", "kill"])
def test_no_server_outlives_its_parent(end: str) -> None:
    with domains_live.parent_process() as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(LONG) + b"\n")
        process.stdin.flush()
        assert msgspec.json.decode(process.stdout.readline(), type=Progress).step == 1
        assert len(_session(process.pid)) == 10
        if end == "kill":
            process.kill()
    assert _eventually(lambda: not _session(process.pid))


def test_an_interrupt_ends_everything() -> None:
    script = (
        "import msgspec, sys\n"
        "from whence.studies.domains import live as domains_live\n"
        "from whence.studies.domains.live import LivePlan, measure\n"
        "plan = msgspec.json.decode(sys.argv[1], type=LivePlan)\n"
        "measure(plan, lambda done: print(done, flush=True))\n"
    )
    study = subprocess.Popen(
        [sys.executable, "-c", script, msgspec.json.encode(LONG).decode()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with study:
        assert study.stdout is not None
        assert study.stdout.readline() == b"1\n"
        [parent] = Path(f"/proc/{study.pid}/task/{study.pid}/children").read_text().split()
        assert len(_session(int(parent))) == 10
        study.send_signal(signal.SIGINT)
        study.stdout.read()
        assert study.stderr is not None
        assert b"KeyboardInterrupt" in study.stderr.read()
    assert _session(int(parent)) == []


def test_a_server_that_dies_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    parents: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def started(*arguments: object, **options: object) -> subprocess.Popen[bytes]:
        parents.append(popen(*arguments, **options))  # type: ignore[call-overload]  # passed on as they are
        return parents[-1]

    monkeypatch.setattr(subprocess, "Popen", started)

    victims: list[int] = []

    def kill_the_last(done: int) -> None:
        if not victims:
            victims.append(max(_session(parents[0].pid)))
            os.kill(victims[0], signal.SIGKILL)

    with pytest.raises(PlatformError, match=r"server 'n\d'.*has ended"):
        domains_live.measure(
            LivePlan((LiveBatch((LiveSystem(4, "bus", "full"),), rounds=100_000, pings=1),)), kill_the_last
        )
    assert _session(parents[0].pid) == []
