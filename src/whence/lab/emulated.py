"""One process of an emulation: some of its nodes. The parent says over standard input what the plan says.

    python -m whence.lab.emulated SETTINGS

Orders and replies are lines of JSON, `[number, verb, ...]`; every order is replied to when it is done. The
plan's clock is the parent's: it says when it began (on the machine's monotonic clock, which all processes
share) and how far it may run.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from whence.live.group import Group
from whence.live.join import make_node
from whence.live.log import LogMembership
from whence.live.node import Node
from whence.live.settings import LogSettings, NodeSettings
from whence.session.addresses import Address, parse_address
from whence.session.limits import Limits
from whence.trace.schema import Level, PromisesMade
from whence.trace.writer import TraceWriter

MEND_S = 0.05  # how often a contact without a connection is tried again
PATIENCE_S = 30.0  # for a connection to come up before time goes on
_LIMITS = Limits(heartbeat_s=60.0, silence_s=600.0, leave_timeout_s=0.5)


class Troupe(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is told when it starts."""

    run: str
    group: str
    writer: str
    folder: str
    nodes: dict[str, str]  # with the addresses at which they listen
    all_nodes: list[str]
    params: dict[str, Any]
    manifest: dict[str, Any]
    promises: PromisesMade
    seed: int
    speed: float


class PlanClock:
    """The time of a plan: it begins at 0, and runs `speed` times as fast as ours.

    It never runs past what the plan says next and has not happened yet (`next_us`): a machine that is too
    slow for the speed makes the emulation take longer, and not the contacts shorter.
    """

    def __init__(self, speed: float) -> None:
        self.speed = speed
        self.began_ns = time.monotonic_ns()
        self.next_us = 0

    def now_us(self) -> int:
        """The time now."""
        return min(self.free_us(), self.next_us)

    def free_us(self) -> int:
        """The time that it would be if nothing held it."""
        return int((time.monotonic_ns() - self.began_ns) * self.speed) // 1000


class NodesProcess:
    """The nodes of this process, and what they are told."""

    def __init__(self, troupe: Troupe) -> None:
        self.troupe = troupe
        self.clock = PlanClock(troupe.speed)
        self.nodes: dict[str, Node] = {}
        self.groups: dict[str, Group] = {}
        # Contacts under way, as each of our nodes sees them; with an address the call is ours.
        self.contacts: dict[tuple[str, str], Address | None] = {}

    async def start(self, trace: TraceWriter) -> None:
        """Every node listens."""
        for name, text in self.troupe.nodes.items():
            address = parse_address(text, name)
            settings = NodeSettings(
                group=self.troupe.group,
                node=name,
                addresses={name: address},
                listen=address,
                protocol="log",
                params={**self.troupe.params, "reads": True},
                limits=_LIMITS,
                clock=self.clock,
                log=LogSettings((), by_plan=True),
            )
            node = self.nodes[name] = make_node(settings)
            await node.listen()
            await node.start(trace)
            self.groups[name] = Group(node, None)

    async def do(self, verb: str, *given: Any) -> None:
        """Carry out one order."""
        if verb == "clock":
            self.clock.began_ns, self.clock.next_us = given
        elif verb == "near":
            self._near(*given)
        elif verb == "linked":
            await self._linked(*given)
        elif verb == "part":
            name, other = given
            self.contacts.pop((name, other), None)
            self._member(name).part_from(other)
        elif verb == "say":
            name, payload_bytes, lifetime_us = given
            deadline_s = None if lifetime_us is None else lifetime_us / 1e6
            await self.groups[name].broadcast(bytes(payload_bytes), deadline=deadline_s)

    def _near(self, name: str, other: str, address: str | None = None) -> None:
        """A contact begins; with an address it is this node that calls."""
        found = self.contacts[name, other] = None if address is None else parse_address(address, other)
        self._member(name).meet(other, found)

    async def _linked(self, name: str, other: str) -> None:
        """Let the connection come up before time goes on: a radio needs no handshake of TCP."""
        links, until_s = self.nodes[name].links, time.monotonic() + PATIENCE_S
        while other not in links and (name, other) in self.contacts and time.monotonic() < until_s:  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    def _member(self, name: str) -> LogMembership:
        member = self.nodes[name].membership
        assert isinstance(member, LogMembership)
        return member

    async def mend(self) -> None:
        """A contact whose connection could not be made, or broke, is tried again while it lasts."""
        while True:
            await asyncio.sleep(MEND_S)
            for (name, other), address in list(self.contacts.items()):
                self._member(name).meet(other, address)

    async def read(self, group: Group) -> None:
        """An application that takes everything."""
        async for _ in group:
            pass


async def serve(troupe: Troupe) -> None:
    """Do what the parent says until it says no more."""
    loop = asyncio.get_running_loop()
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    trace = TraceWriter(
        Path(troupe.folder),
        run=troupe.run,
        writer=troupe.writer,
        protocol="log",
        parameters=troupe.manifest,
        promises=troupe.promises,
        seed=troupe.seed,
        nodes=troupe.all_nodes,
        level=Level.ALL,
    )
    process = NodesProcess(troupe)
    tasks: set[asyncio.Task[None]] = set()

    async def obey(number: int, words: list[Any]) -> None:
        await process.do(*words)
        reply(number)

    with trace:
        await process.start(trace)
        reply(0)
        readers = [asyncio.create_task(process.read(group)) for group in process.groups.values()]
        readers.append(asyncio.create_task(process.mend()))
        while line := await orders.readline():
            number, *words = msgspec.json.decode(line)
            task = asyncio.create_task(obey(number, words))
            tasks.add(task)
            task.add_done_callback(_ended)
            task.add_done_callback(tasks.discard)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        await asyncio.gather(*(node.leave() for node in process.nodes.values()))


def _ended(task: asyncio.Task[None]) -> None:
    """An order that failed ends the process: the parent must not wait for its reply."""
    if not task.cancelled() and task.exception() is not None:
        sys.stderr.write(f"{task.exception()!r}\n")
        sys.stderr.flush()
        os._exit(1)


def reply(number: int) -> None:
    """An order is done."""
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(serve(msgspec.json.decode(sys.argv[1], type=Troupe)))
