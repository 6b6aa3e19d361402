"""Processes exchange messages causally while their connections are cut; the trace verifies and replays."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from support.living import Member, Mesh, run_processes
from whence.sim.replay import replay
from whence.verify.run import verify_trace

NAMES = [f"n{index}" for index in range(8)]


async def exchange(
    trace: Path, messages: int, cut_every_s: float, seed: int, protocol: str, **params: Any
) -> tuple[int, list[dict[str, Any]]]:
    async with Mesh(NAMES) as mesh:
        members = [
            Member(
                node=name,
                peers=mesh.peers_of(name),
                quota=messages // len(NAMES),
                expected=messages,
                protocol=protocol,
                params=params,
                trace=str(trace),
                pause_s=10 / messages,  # so that there is time to cut something
                seed=seed,
                limits={"queue_messages": 256, "unread_messages": 2048},
            )
            for name in NAMES
        ]
        cutting = asyncio.create_task(mesh.cut_at_random(cut_every_s, seed))
        results = await run_processes(members)
        cutting.cancel()
        return mesh.cuts, results


@pytest.mark.parametrize(
    ("messages", "protocol", "params"),
    [
        (10_000, "vector", {"relay": False}),
        (800, "vector", {"relay": True}),
        (2_000, "vcube", {}),
    ],
    ids=["10000 messages", "relayed", "vcube"],
)
def test_eight_processes_stay_causal_while_connections_are_cut(
    tmp_path: Path, messages: int, protocol: str, params: dict[str, Any]
) -> None:
    cuts, results = asyncio.run(exchange(tmp_path, messages, 0.005, 7, protocol, **params))
    assert cuts > 10
    assert sum(result["reconnects"] for result in results) > 10
    assert [result["delivered"] for result in results] == [messages] * len(NAMES)
    if params == {
        "relay": False
    }:  # what a relay still has for somebody who has everything and left is no loss
        assert not any(result["lost_frames"] for result in results)

    [report] = verify_trace(tmp_path, complete=True)
    assert report.ok, report
    assert report.broadcasts == messages
    assert report.deliveries == messages * len(NAMES)

    replayed = replay(tmp_path)
    assert replayed.ok, replayed.mismatches[:5]
    assert not replayed.unexplained_count
    assert replayed.effects > messages * len(NAMES)
