"""The load that every system gets: who sends what when, and what is counted."""

from __future__ import annotations

import asyncio
import os
import time
from array import array
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path

from forked import Answer, together

STAMP_BYTES = 8
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Load:
    """Every node sends `messages` payloads of `size` bytes; `rate` per second, or as fast as it may."""

    nodes: int
    size: int
    messages: int
    rate: float | None = None

    @property
    def deliveries(self) -> int:
        """Messages that one node is given, its own among them."""
        return self.nodes * self.messages


@dataclass(frozen=True)
class Place:
    """Where a round happens: a folder that is removed after it, and the broker, if there is one."""

    folder: Path
    port: int = 0
    server: int = 0  # the broker's process


class Tally:
    """What one node was given. `take` is called once per delivery, from whatever thread."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.delivered = 0
        self.delays_ns = array("q")
        self.done = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.take: Callable[[bytes], None] = self._count if load.rate is None else self._time

    def _count(self, payload: bytes) -> None:
        self.delivered += 1
        if self.delivered == self.load.deliveries:
            self._finish(payload)

    def _time(self, payload: bytes) -> None:
        sent_ns = int.from_bytes(payload[:STAMP_BYTES], "little")
        self.delays_ns.append(time.monotonic_ns() - sent_ns)
        self._count(payload)

    def _finish(self, payload: bytes) -> None:
        if len(payload) != self.load.size:
            raise ValueError(f"a payload of {len(payload)} bytes, where {self.load.size} were sent")
        self._loop.call_soon_threadsafe(self.done.set)


def bursts(load: Load, most: int) -> Iterator[tuple[float, list[bytes]]]:
    """Yield what to send next, at most `most` payloads; or none, and the seconds until the next is due."""
    filler = bytes(range(256)) * (load.size // 256 + 1)
    sent, began_s = 0, time.monotonic()
    if load.rate is None:
        same = [filler[: load.size]] * most
        while sent < load.messages:
            yield 0.0, same[: load.messages - sent]
            sent += most
        return
    rest = filler[: load.size - STAMP_BYTES]
    while sent < load.messages:
        due = min(int((time.monotonic() - began_s) * load.rate) + 1, load.messages) - sent
        if due <= 0:
            yield (sent / load.rate) - (time.monotonic() - began_s), []
            continue
        now = time.monotonic_ns().to_bytes(STAMP_BYTES, "little")
        yield 0.0, [now + rest] * min(due, most)
        sent += min(due, most)


async def produce(load: Load, most: int, send: Callable[[list[bytes]], Awaitable[None]]) -> None:
    """Send the load from a loop on which others read."""
    for wait_s, burst in bursts(load, most):
        if burst:
            await send(burst)
        await asyncio.sleep(max(wait_s, 0.0))


def produce_here(load: Load, most: int, send: Callable[[list[bytes]], None]) -> None:
    """As `produce`, in a thread of its own."""
    for wait_s, burst in bursts(load, most):
        if burst:
            send(burst)
        elif wait_s > 0:
            time.sleep(wait_s)


def cpu_of(pid: int) -> float:
    """Seconds of user and system time of a process; none of process 0, which stands for no broker."""
    if not pid:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


async def timed(
    name: str,
    place: Place,
    tally: Tally,
    barrier: Barrier,
    work: Callable[[], Awaitable[None]],
    settle: Callable[[], Awaitable[None]] | None = None,
) -> Answer:
    """Let all begin together; what the node was given, and the CPU until all are done and have settled."""
    await together(barrier)
    began_s, began_cpu_s, began_server_s = time.monotonic(), time.process_time(), cpu_of(place.server)
    await asyncio.gather(work(), tally.done.wait())
    ended_s = time.monotonic()
    await together(barrier)
    if settle is not None:
        await settle()
        await together(barrier)
    ended_cpu_s, ended_server_s = time.process_time(), cpu_of(place.server)
    if tally.delivered != tally.load.deliveries:
        raise ValueError(f"{tally.delivered} deliveries, where {tally.load.deliveries} were due")
    (place.folder / f"{name}.delays").write_bytes(tally.delays_ns.tobytes())
    return {
        "began_s": began_s,
        "ended_s": ended_s,
        "cpu_s": ended_cpu_s - began_cpu_s,
        "server_cpu_s": ended_server_s - began_server_s,
        "delivered": tally.delivered,
    }
