"""Traces of live groups that remember: verification and replay."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from live.test_log_kill import Storm, judge
from live.test_log_live import node
from support.living import free_ports, take
from whence.errors import TraceError
from whence.sim.replay import replay
from whence.verify.run import verify_trace


@pytest.mark.parametrize("durable", [False, True])
def test_traces_of_nodes_that_come_and_go_are_verified_and_replayed(tmp_path: Path, durable: bool) -> None:
    trace = tmp_path / "trace"

    async def main() -> None:
        ports = free_ports(3)

        def member(name: str, at: int, *contacts: int) -> Any:
            store = {"store": tmp_path / f"{name}.db"} if durable else {}
            return node(name, ports[at], *(ports[each] for each in contacts), trace=trace, **store)

        async with member("a", 0) as a:
            for number in range(20):
                await a.broadcast(b"early %d" % number)
            async with member("b", 1, 0) as b, member("c", 2, 0) as c:
                for number in range(60):
                    for group in (a, b, c):
                        await group.broadcast(b"%d" % number)
                    if number % 7 == 0:
                        await asyncio.sleep(0.01)
                for group in (a, b, c):
                    assert len(await take(group, 200)) == 200

    asyncio.run(main())
    [report] = verify_trace(trace)
    assert report.ok, report
    assert report.broadcasts == 200
    assert report.deliveries == 600
    replayed = replay(trace)
    assert replayed.ok, replayed.mismatches[:3]
    assert replayed.effects > 600


def test_the_trace_of_a_node_goes_on_over_its_lives(tmp_path: Path) -> None:
    trace = tmp_path / "trace"

    async def main() -> None:
        ports = free_ports(2)
        async with node("b", ports[1], trace=trace) as b:
            for life in range(3):
                async with node("a", ports[0], ports[1], trace=trace, store=tmp_path / "a.db") as a:
                    await a.wait_connected(20)
                    for number in range(10):
                        await a.broadcast(b"%d of %d" % (number, life))
                        await b.broadcast(b"%d" % number)
                    await b.broadcast(b"last", copies=1)
            assert len(await take(b, 63)) == 63

    asyncio.run(main())
    [report] = verify_trace(trace)
    assert report.ok, report
    assert report.broadcasts == 63
    assert report.deliveries == 126
    replayed = replay(trace)
    assert replayed.ok, replayed.mismatches[:3]
    assert replayed.effects > 126


def test_the_trace_of_a_killed_node_is_verified_and_its_replay_refused(tmp_path: Path) -> None:
    """What it sent last may be missing in its trace, but nothing that it logged."""
    storm = Storm(tmp_path, 3, seed=2, trace=True, pause_s=0.1)
    found = storm.do(storm.run(4, 0.2, 0.5))
    said = judge(found)
    [report] = verify_trace(tmp_path / "trace")
    assert report.ok, report
    assert report.broadcasts == said
    assert report.deliveries == 3 * said
    with pytest.raises(TraceError, match="was killed"):
        replay(tmp_path / "trace")
