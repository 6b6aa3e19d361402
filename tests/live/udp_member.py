"""Members of a datagram group as processes: broadcast with deadlines, answer, count every outcome.

Run as a program it is one member in its own process (see `UdpMember`).
"""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass, field
from typing import Any

import whence
from support.processes import results_of, take_part


@dataclass
class UdpMember:
    """What a member does: `quota` broadcasts, a share of them hurried, and replies to what it delivers."""

    node: str
    peers: dict[str, str]
    trace: str
    protocol: str = "odca"
    quota: int = 60
    pause_s: float = 0.02
    deadline_s: float = 0.5
    hurried_s: float = 0.01  # the deadline of one message in five
    reply_share: float = 0.03
    faults: dict[str, Any] = field(default_factory=dict)
    seed: int = 0


async def run_member(member: UdpMember) -> dict[str, Any]:
    """Take part until it is quiet for longer than any message lives; answers what the application saw."""
    draw = random.Random(f"{member.seed}/{member.node}")
    seen = {"messages": 0, "expired": 0}
    joining = whence.join(
        "room",
        node=member.node,
        peers=member.peers,
        protocol=member.protocol,
        trace=member.trace,
        faults=whence.LinkFaults(**member.faults),
    )
    async with joining as group:
        loop = asyncio.get_running_loop()
        last_s = loop.time()

        async def read() -> None:
            nonlocal last_s
            async for outcome in group.outcomes():
                last_s = loop.time()
                if isinstance(outcome, whence.Expired):
                    seen["expired"] += 1
                else:
                    seen["messages"] += 1
                    if outcome.origin != member.node and draw.random() < member.reply_share:
                        await group.broadcast(b"re " + outcome.payload[:20], deadline=member.deadline_s)

        reading = asyncio.create_task(read())
        await group.wait_connected(60)
        for number in range(member.quota):
            hurried = draw.random() < 0.2
            deadline_s = member.hurried_s if hurried else member.deadline_s
            await group.broadcast(f"{member.node} says {number}".encode(), deadline=deadline_s)
            await asyncio.sleep(draw.uniform(0, 2 * member.pause_s))
        while loop.time() - last_s < 2 * member.deadline_s:  # noqa: ASYNC110 - quiet is no event
            await asyncio.sleep(0.05)
        await group.leave()
        await reading
        stats = group.stats()
    return {
        **seen,
        "broadcasts": stats.broadcasts,
        "deliveries": stats.deliveries,
        "expiries": sum(stats.expiries.values()),
        "lost": stats.dropped.get("injected loss", 0),
        "packets_sent": stats.packets_sent,
        "duplicates": stats.discards.get("duplicate", 0),
        "peer_errors": stats.peer_errors,
        "states": sorted({link.state for link in stats.links.values()}),
    }


async def run_members(members: list[UdpMember]) -> list[dict[str, Any]]:
    """Each in an OS process of its own; answers their results."""
    return await results_of(__file__, members)


if __name__ == "__main__":
    print(json.dumps(take_part(run_member, UdpMember)))
