"""One durable server in its own process, made to be killed: tokens wander between the servers' agents.

It prints "reactions outputs unread" again and again; SIGTERM suspends it.

A token's payload is "<source>:<number>:<hops left>". Each server sends its share of tokens, in any number of
lives (how many have left follows from the store), and every agent passes a token on until its hops are used
up. So the number of reactions in the whole system is known: more is a duplicate, less is a loss.
"""

from __future__ import annotations

import asyncio
import json
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import whence
from support.forked import Forked
from support.processes import play
from whence.core.message import Message
from whence.session.records import Output


@dataclass
class Settings:
    """What one server is told."""

    node: str
    peers: dict[str, str]
    folder: str
    tokens: int
    hops: int
    protocol: str = "domains"
    params: dict[str, Any] = field(default_factory=dict)
    trace: bool = True
    snapshot_bytes: int = 40_000
    keys: str | None = None


def next_server(names: list[str], token: str) -> str:
    return names[crc32(token.encode()) % len(names)]


async def serve(settings: Settings) -> None:
    from whence.live import durable

    durable.SNAPSHOT_BYTES = settings.snapshot_bytes  # many snapshots in a short life
    names = sorted(settings.peers)
    folder = Path(settings.folder)

    def agent(state: bytes, message: Message) -> tuple[bytes, list[Output]]:
        reactions, outputs = json.loads(state or b"[0, 0]")
        token, _, hops = message.payload.decode().rpartition(":")
        sends = []
        if int(hops):
            following = f"{token}:{int(hops) - 1}"
            sends = [Output(next_server(names, following), following.encode())]
        return json.dumps([reactions + 1, outputs + len(sends)]).encode(), sends

    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    options = {} if settings.keys is None else {"keys": settings.keys}
    limits = whence.Limits(
        backoff_first_s=0.01, backoff_max_s=0.1, ack_delay_s=0.005, queue_messages=64, leave_timeout_s=1.0
    )
    async with whence.join(
        "tokens",
        node=settings.node,
        peers=settings.peers,
        protocol=settings.protocol,
        store=folder / f"{settings.node}.db",
        trace=folder / "trace" if settings.trace else None,
        limits=limits,
        **options,
        **settings.params,
    ) as group:
        _, outputs = json.loads(group.agent_state or b"[0, 0]")
        sent = group.stats().broadcasts - outputs
        tasks = [
            asyncio.create_task(group.serve(agent)),
            asyncio.create_task(send_tokens(group, names, settings, sent)),
            asyncio.create_task(tell(group)),
        ]
        waiting = asyncio.create_task(stop.wait())
        done, _ = await asyncio.wait([waiting, *tasks[::2]], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        for task in tasks[1:]:
            task.cancel()
    print(line(group), flush=True)


async def send_tokens(group: whence.Group, names: list[str], settings: Settings, sent: int) -> None:
    for number in range(sent, settings.tokens):
        token = f"{settings.node}:{number}:{settings.hops}"
        await group.send(next_server(names, token), token.encode())
        await asyncio.sleep(0.002)


async def tell(group: whence.Group) -> None:
    while True:
        print(line(group), flush=True)
        await asyncio.sleep(0.1)


def line(group: whence.Group) -> str:
    reactions, outputs = json.loads(group.agent_state or b"[0, 0]")
    return f"{reactions} {outputs} {group.unread}"


class Server:
    """The parent's handle: starts the process, kills it, starts it again."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.reactions = 0
        self.kills = 0
        self.process: Forked | None = None
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self.process = await Forked.heard(play, serve, self.settings)
        self._reading = asyncio.create_task(self._read(self.process))

    async def _read(self, process: Forked) -> None:
        while text := await process.stdout.readline():
            self.reactions = int(text.split()[0])

    async def kill(self) -> None:
        assert self.process is not None
        assert self._reading is not None
        await self.process.kill()
        self.kills += 1
        await self._reading

    async def suspend(self) -> int:
        assert self.process is not None
        assert self._reading is not None
        self.process.send_signal(signal.SIGTERM)
        code = await asyncio.wait_for(self.process.wait(), 60)
        await self._reading
        return code
