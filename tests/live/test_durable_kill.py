"""Real `kill -9` on servers under load: nothing is lost, nothing is done twice, causal order holds."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from live.durable_member import Server, Settings
from support.living import loopback
from whence.sim.replay import replay
from whence.trace.reader import check_trace
from whence.verify.run import verify_trace

CHAIN = [["a", "b", "c"], ["c", "d", "e"]]


async def storm(folder: Path, kills: int, tokens: int, hops: int, seed: int) -> list[Server]:
    """Kill servers at random moments while tokens wander; answers the servers when all is quiet."""
    draw = random.Random(seed)
    peers = loopback("abcde")
    servers = [
        Server(Settings(node, peers, str(folder), tokens, hops, params={"domains": CHAIN})) for node in peers
    ]
    await asyncio.gather(*[server.start() for server in servers])
    expected = tokens * (hops + 1) * len(servers)
    for at in range(kills):
        # By what is done and not by the clock: all the kills must hit servers that have something to do.
        due = expected * (at + draw.random()) / (kills + 1)
        while sum(server.reactions for server in servers) < due:  # noqa: ASYNC110 - other processes
            await asyncio.sleep(0.02)
        assert sum(server.reactions for server in servers) < expected, (
            f"too little load for {kills} kills: {at}"
        )
        victim = draw.choice(servers)
        await victim.kill()
        await asyncio.sleep(draw.choice([0.0, 0.0, 0.1, 0.3]))
        await victim.start()
    async with asyncio.timeout(120):
        while sum(server.reactions for server in servers) < expected:  # noqa: ASYNC110 - other processes
            await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)  # time for a duplicate to show itself
    assert [await server.suspend() for server in servers] == [0] * len(servers)
    assert sum(server.reactions for server in servers) == expected
    return servers


def judge(folder: Path, tokens: int, hops: int) -> None:
    """From the traces alone: complete, no duplicate, causal; and a replay makes them again."""
    trace = folder / "trace"
    check_trace(trace)
    [report] = verify_trace(trace, complete=True)
    assert report.ok, report
    assert report.broadcasts == report.deliveries == 5 * tokens * (hops + 1)
    replayed = replay(trace)
    assert replayed.ok, replayed.mismatches[:5]


def test_a_few_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    servers = asyncio.run(storm(tmp_path, kills=8, tokens=60, hops=30, seed=1))
    assert sum(server.kills for server in servers) == 8
    judge(tmp_path, 60, 30)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_hundred_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    kills = 0
    for seed in range(5):
        folder = tmp_path / str(seed)
        folder.mkdir()
        servers = asyncio.run(storm(folder, kills=40, tokens=200, hops=100, seed=seed))
        kills += sum(server.kills for server in servers)
        judge(folder, 200, 100)
    assert kills == 200
