"""What is done now and then: heartbeats, dead connections, peers out of reach, samples for the trace."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from whence.errors import PeerError
from whence.session.links import Link
from whence.session.wire import PING_FRAME

if TYPE_CHECKING:
    from whence.live.node import Node


async def keep_house(node: Node) -> None:
    """Look after every link twice per heartbeat, until cancelled."""
    loop = asyncio.get_running_loop()
    period_s = node.limits.heartbeat_s / 2
    due_s = loop.time() + period_s
    while True:
        await asyncio.sleep(period_s)
        now_s = loop.time()
        late = now_s - due_s > period_s
        due_s = now_s + period_s
        if late:
            continue  # we were asleep ourselves: what has arrived meanwhile is not read yet
        for link in list(node.links.values()):
            _look_after(node, link, now_s)
        node.host.sample()


def _look_after(node: Node, link: Link, now_s: float) -> None:
    limits, channel = node.limits, link.channel
    if channel is None:
        out_of_reach_s = now_s - link.lost_s
        if link.alive and limits.give_up_s is not None and out_of_reach_s > limits.give_up_s:
            error = PeerError(
                f"node {link.peer!r}",
                f"it was out of reach for {out_of_reach_s:.1f} s",
                "Check the node and the network, or raise give_up_s",
            )
            node.peering.give_up(link, error)
    elif now_s - link.heard_s > limits.silence_s:
        node.peering.silent(link)
    elif now_s - link.wrote_s >= limits.heartbeat_s and channel.writable:
        channel.write(PING_FRAME)
        link.wrote_s = now_s
