"""Groups of live nodes in forked processes on loopback, for the benches."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import random
import socket
import time
from collections.abc import Awaitable, Callable
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from typing import Any

import whence

PAYLOAD = bytes(range(64))
Answer = dict[str, float]
TakePart = Callable[..., Awaitable[Answer]]  # name, peers, what `run_group` was given besides, barrier


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, below the range of outgoing connections."""
    ports: list[int] = []
    while len(ports) < count:
        port = random.SystemRandom().randrange(10_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in ports:
            ports.append(port)
    return ports


def run_group(nodes: int, take_part: TakePart, *arguments: Any) -> list[Answer]:
    """Let every member of a group take part in a process of its own; their answers."""
    names = [f"n{index}" for index in range(nodes)]
    peers = {name: f"127.0.0.1:{port}" for name, port in zip(names, free_ports(nodes), strict=True)}
    fork = multiprocessing.get_context("fork")
    barrier, queue = fork.Barrier(nodes), fork.SimpleQueue()
    processes = [
        fork.Process(target=_live, args=(queue, barrier, take_part, name, peers, *arguments))
        for name in names
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise SystemExit(f"{arguments}: a member failed, so the round does not count")
    return [queue.get() for _ in names]


def _live(results: SimpleQueue, barrier: Barrier, take_part: TakePart, *arguments: Any) -> None:
    """The life of a forked process.

    The first full collection touches every object, and so copies all memory that it shares with its parent: a
    node that was not forked has none of that, so it is done before anything is measured.
    """
    gc.collect()
    try:
        results.put(asyncio.run(take_part(*arguments, barrier)))
    except BaseException:
        barrier.abort()  # so that the others do not wait
        raise


async def together(barrier: Barrier) -> None:
    """Wait until every member is here."""
    await asyncio.to_thread(barrier.wait, 120)


async def measured(
    group: whence.Group, barrier: Barrier, work: Callable[[], Awaitable[int]], *, acknowledged: bool
) -> Answer:
    """What the member's `work` delivered, and its cost from when all are connected until all have done.

    `acknowledged`: until all that they sent is acknowledged, too.
    """
    await group.wait_connected(60)
    await together(barrier)
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    delivered = await work()
    ended_s = time.monotonic()
    await together(barrier)
    if acknowledged:
        # Copies that were relayed may still be under way, and belong to the cost.
        while any(link.unacknowledged_messages for link in group.stats().links.values()):  # noqa: ASYNC110 - we look on; nothing tells us
            await asyncio.sleep(0.01)
        await together(barrier)
    ended_cpu_s = time.process_time()
    return {
        "began_s": began_s,
        "ended_s": ended_s,
        "cpu_s": ended_cpu_s - began_cpu_s,
        "delivered": delivered,
    }
