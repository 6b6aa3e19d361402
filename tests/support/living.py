"""Live groups for tests: free ports, a proxy that can cut, stall and damage, and members as processes.

Run as a program it is one member of a group in its own process (see `Member`).
"""

from __future__ import annotations

import asyncio
import fcntl
import functools
import json
import os
import random
import socket
import struct
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import whence
from support.processes import results_of, take_part
from whence.core.group import LIFE_BITS
from whence.core.message import Message

PORTS_KEPT = 500  # that a process keeps from others: more than any test takes
QUICK = {"backoff_first_s": 0.01, "backoff_max_s": 0.2, "ack_delay_s": 0.005, "leave_timeout_s": 20.0}


def in_a_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A test that is a coroutine, run on an event loop of its own."""

    @functools.wraps(test)
    def run(*args: Any, **options: Any) -> None:
        asyncio.run(test(*args, **options))  # type: ignore[arg-type]  # a test is a coroutine function

    return run


@functools.cache
def _port_locks() -> int:
    """A file of which each process locks the bytes at the numbers of its ports: no two take the same."""
    path = Path(tempfile.gettempdir()) / f"whence-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


_mine: deque[int] = deque()  # what this process has locked, the oldest first


def _is_free(port: int) -> bool:
    """Whether no other test has taken a port, nor a program uses it; it is this process's then."""
    if port in _mine:
        return False
    try:
        fcntl.lockf(_port_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _mine.append(port)
    if len(_mine) > PORTS_KEPT:
        fcntl.lockf(_port_locks(), fcntl.LOCK_UN, 1, _mine.popleft())
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_ports(count: int) -> list[int]:
    """Ports that are free, also while their member is not there yet, or has been killed and will come back.

    Below the range from which the kernel takes the ports of outgoing connections: between our asking
    and the member's listening a proxy would otherwise be given one of them now and then.
    """
    ports: list[int] = []
    while len(ports) < count:
        port = random.SystemRandom().randrange(10_000, 32_000)
        if _is_free(port):
            ports.append(port)
    return ports


def loopback(names: Iterable[str]) -> dict[str, str]:
    """An address for each name."""
    names = list(names)
    return {name: f"127.0.0.1:{port}" for name, port in zip(names, free_ports(len(names)), strict=True)}


def quick_limits(**changes: Any) -> whence.Limits:
    """Limits that suit a test: short back-off, patient leaving."""
    return whence.Limits(**{**QUICK, **changes})


@asynccontextmanager
async def live_group(
    *names: str,
    peers: dict[str, str] | None = None,
    connected: bool = True,
    group: str = "room",
    **options: Any,
) -> AsyncIterator[list[whence.Group]]:
    """Several members in this process, on one event loop."""
    peers = peers or loopback(names)
    options = {"limits": quick_limits(), "protocol": "vector", **options}
    async with AsyncExitStack() as stack:
        groups = [
            await stack.enter_async_context(whence.join(group, node=name, peers=peers, **options))
            for name in names
        ]
        if connected:
            for each in groups:
                await each.wait_connected(30)
        yield groups
        # Side by side, because each waits for the others to take what it sent.
        await asyncio.gather(*(each.leave() for each in groups))


async def take(group: whence.Group, count: int, timeout_s: float = 20.0) -> list[Message]:
    """The next `count` messages."""
    async with asyncio.timeout(timeout_s):
        return [await group.receive() for _ in range(count)]


def in_its_life(number: int) -> int:
    """A number counted from the beginning of its life: every opening of a store begins one."""
    return number & ((1 << LIFE_BITS) - 1)


async def finish(group: whence.Group, count: int, timeout_s: float = 20.0) -> list[Message]:
    """The next `count` messages of a durable group, which need not come again."""
    messages = await take(group, count, timeout_s)
    for message in messages:
        group.done(message)
    return messages


async def eventually(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    """Wait until a condition holds; fail if it never does."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - a test looks from outside; there is no event to wait for
            await asyncio.sleep(0.01)


async def send_raw(address: str, data: bytes, timeout_s: float = 10.0) -> bytes:
    """Connect, send bytes, and answer all that comes back until the other side closes."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    answer = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            writer.write(data)
            while piece := await reader.read(65536):
                answer += piece
    except ConnectionError:
        pass  # a reset is an answer too
    finally:
        writer.transport.abort()
    return bytes(answer)


class Proxy:
    """Forwards TCP connections to `port`; can cut them, hold them, and damage what passes."""

    def __init__(self, port: int) -> None:
        self.target_port = port
        self.port = 0
        self.cuts = 0
        self.held = asyncio.Event()  # clear: nothing passes, and nobody is told
        self.held.set()
        self.damage: Callable[[bytes], bytes] | None = None
        self.open = True  # False: new connections are refused
        self.delay_s = 0.0  # of each piece, in order
        self.truncates = False  # the next piece loses its end, and the connection with it
        self.swallows: set[bool] = set()  # nothing passes to the target (True), or from it (False), unsaid
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self, *, reset: bool = True) -> None:
        """Close every connection; what is under way is lost. A reset loses the most."""
        for writer in list(self._writers):
            self.cuts += 1
            sock = writer.get_extra_info("socket")
            if reset and sock is not None and sock.fileno() >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        self._writers.clear()

    def heal(self) -> None:
        """End all faults; a connection of which something is missing ends with them."""
        if self.swallows or self.truncates:
            self.cut()
        self.delay_s, self.truncates, self.open = 0.0, False, True
        self.swallows = set()
        self.held.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.open:
            writer.transport.abort()
            return
        try:
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, there_writer}
        for source, sink, outward in ((reader, there_writer, True), (there_reader, writer, False)):
            task = asyncio.create_task(self._pump(source, sink, outward))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, outward: bool) -> None:
        try:
            while data := await source.read(65536):
                await self.held.wait()
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                if outward in self.swallows:
                    continue
                if self.truncates:
                    self.truncates = False
                    sink.write(data[: len(data) // 2])
                    await sink.drain()
                    self.cut(reset=False)
                    return
                sink.write(data if self.damage is None else self.damage(data))
                await sink.drain()
        except OSError:
            pass  # cut, by us or by an end
        finally:
            sink.close()
            self._writers.discard(sink)


class Mesh:
    """A proxy before every connection of a group: the smaller name dials, so one per pair."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = sorted(names)
        self.real = loopback(self.names)
        self.proxies = {
            (one, other): Proxy(int(self.real[other].rpartition(":")[2]))
            for one in self.names
            for other in self.names
            if one < other
        }

    async def __aenter__(self) -> Mesh:
        for proxy in self.proxies.values():
            await proxy.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        for proxy in self.proxies.values():
            await proxy.stop()

    def peers_of(self, name: str) -> dict[str, str]:
        """The addresses to give to one member."""
        return {
            other: f"127.0.0.1:{self.proxies[name, other].port}" if name < other else self.real[other]
            for other in self.names
        }

    @asynccontextmanager
    async def joined(self, **options: Any) -> AsyncIterator[list[whence.Group]]:
        """All members in this process, in the order of their names; the last leaves first."""
        options = {"limits": quick_limits(), "protocol": "vector", **options}
        async with AsyncExitStack() as stack:
            yield [
                await stack.enter_async_context(
                    whence.join("room", node=name, peers=self.peers_of(name), **options)
                )
                for name in self.names
            ]

    @property
    def cuts(self) -> int:
        return sum(proxy.cuts for proxy in self.proxies.values())

    async def cut_at_random(self, every_s: float, seed: int) -> None:
        """Cut some pair again and again, until cancelled."""
        draw = random.Random(seed)
        while True:
            await asyncio.sleep(every_s * draw.uniform(0.5, 1.5))
            self.proxies[draw.choice(sorted(self.proxies))].cut(reset=draw.random() < 0.5)


@dataclass
class Member:
    """What a member process does: broadcast `quota` messages, a share of them as replies; read `expected`."""

    node: str
    peers: dict[str, str]
    quota: int
    expected: int
    protocol: str = "vector"
    params: dict[str, Any] = field(default_factory=dict)
    trace: str | None = None
    reply_share: float = 0.5
    pause_s: float = 0.0
    seed: int = 0
    limits: dict[str, Any] = field(default_factory=dict)


async def run_member(member: Member) -> dict[str, Any]:
    """Take part until everything is delivered; answers what happened."""
    draw = random.Random(f"{member.seed}/{member.node}")
    left = member.quota
    joining = whence.join(
        "room",
        node=member.node,
        peers=member.peers,
        protocol=member.protocol,
        trace=member.trace,
        limits=quick_limits(**member.limits),
        **member.params,
    )
    async with joining as group:

        async def produce() -> None:
            nonlocal left
            while left > member.quota * member.reply_share:
                left -= 1
                await group.broadcast(f"{member.node} says {left}".encode())
                if member.pause_s:
                    await asyncio.sleep(draw.uniform(0, 2 * member.pause_s))

        producer = asyncio.create_task(produce())
        delivered = 0
        async for message in group:
            delivered += 1
            if left and (producer.done() or (message.origin != member.node and draw.random() < 0.2)):
                left -= 1
                await group.broadcast(f"re {message.id}".encode())
            if delivered == member.expected:
                break
        await producer
        stats = group.stats()
    return {
        "delivered": delivered,
        "reconnects": stats.reconnects,
        "peer_errors": stats.peer_errors,
        "lost_frames": group.stats().lost_frames,
        "discards": stats.discards,
    }


async def run_processes(members: list[Member]) -> list[dict[str, Any]]:
    """Run each member in an OS process of its own; answers their results."""
    return await results_of(__file__, members)


if __name__ == "__main__":
    print(json.dumps(take_part(run_member, Member)))
