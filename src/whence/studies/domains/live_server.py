"""One server process of the live measurements: a member of a live group, an agent, and a line to its parent.

The agent on each server sends back what it receives (paper 004, section 6.1). The parent asks over a socket
(`Command`, one line of JSON each way); one of the servers is asked to be the paper's main agent, which takes
the time. When the socket closes, however that came about, the process ends at once: nothing may outlive a
measurement.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from pathlib import Path
from typing import Any, cast

import msgspec

import whence
from whence.core.message import Message, NodeId
from whence.errors import InvariantError, WhenceError
from whence.live.group import Group
from whence.live.join import Joining
from whence.session.limits import Limits
from whence.session.records import Output

ASK, ANSWER = b"?", b"!"
NEVER_S = 86_400.0


class Command(msgspec.Struct, frozen=True):
    """What the parent asks for: `connect`, `cpu`, or `rounds` of one message to each of `to` and back."""

    kind: str
    to: tuple[NodeId, ...] = ()
    rounds: int = 0
    timeout_s: float = 0.0


class Reply(msgspec.Struct, frozen=True):
    """What a server answers: processor time since its start, or the wall time of each round."""

    cpu_ns: int = 0
    wall_ns: tuple[int, ...] = ()
    error: str = ""


class Member(msgspec.Struct, frozen=True):
    """What a server is told when it is born."""

    node: NodeId
    peers: dict[NodeId, str]
    params: dict[str, Any]
    all_there: bool  # every member is a process; otherwise only those on the way between the two ends
    store: Path | None = None  # a file to be durable in


def joining(member: Member) -> Joining:
    """Into the group, with links that are silent while nothing is sent: idle servers must cost nothing."""
    limits = Limits(
        heartbeat_s=NEVER_S,
        silence_s=3 * NEVER_S,
        connect_timeout_s=60.0,
        handshake_timeout_s=60.0,
        # Who is not there is called once; the servers that are there are born in such an order that each
        # finds those that it calls.
        backoff_first_s=0.05 if member.all_there else NEVER_S,
        backoff_max_s=1.0 if member.all_there else NEVER_S,
    )
    return whence.join(
        "study-domains",
        node=member.node,
        peers=member.peers,
        protocol="domains",
        limits=limits,
        store=member.store,
        **member.params,
    )


class Agent:
    """Sends back what it is asked; as the main agent, asks and takes the time."""

    def __init__(self, group: Group, *, durable: bool) -> None:
        self.group = group
        self.durable = durable
        self.answers: asyncio.Queue[tuple[NodeId, bytes]] = asyncio.Queue()
        self.asked = 0

    async def react(self) -> None:
        """For ever."""
        group = self.group
        if self.durable:
            await group.serve(self.reaction)
            return
        async for origin, _, payload in group:
            if payload[:1] == ASK:
                await group.send(origin, ANSWER + payload[1:])
            else:
                self.answers.put_nowait((origin, payload))

    def reaction(self, state: bytes, message: Message) -> tuple[bytes, list[Output]]:
        """The same as one atomic step: what was asked, the answer and the clock are on the disk together."""
        origin, _, payload = message
        if payload[:1] == ASK:
            return state, [Output(origin, ANSWER + payload[1:])]
        self.answers.put_nowait((origin, payload))
        return state, []

    async def _ask(self, to: tuple[NodeId, ...], payload: bytes) -> None:
        if self.durable:  # each waits for the disk: together they wait once
            await asyncio.gather(*[self.group.send(name, payload) for name in to])
            return
        for name in to:
            await self.group.send(name, payload)

    async def rounds(self, to: tuple[NodeId, ...], count: int) -> tuple[int, ...]:
        """`count` times: one message to each of `to`, and all answers. Nanoseconds of each round."""
        times_ns = []
        for _ in range(count):
            self.asked += 1
            number = b"%d" % self.asked
            began_ns = time.perf_counter_ns()
            await self._ask(to, ASK + number)
            answered = [await self.answers.get() for _ in to]
            times_ns.append(time.perf_counter_ns() - began_ns)
            if sorted(answered) != sorted((name, ANSWER + number) for name in to):
                raise InvariantError("answers", "they are not one from each server that was asked")
        return tuple(times_ns)


async def _obey(command: Command, agent: Agent) -> Reply:
    if command.kind == "connect":
        await agent.group.wait_connected(command.timeout_s)
    elif command.kind == "rounds":
        async with asyncio.timeout(command.timeout_s):
            return Reply(wall_ns=await agent.rounds(command.to, command.rounds))
    return Reply(cpu_ns=time.process_time_ns())


class Line(asyncio.Protocol):
    """To the parent. Its end is the end of this process, whatever it was doing."""

    def __init__(self) -> None:
        self.commands: asyncio.Queue[bytes] = asyncio.Queue()
        self._heard = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        *lines, self._heard = (self._heard + data).split(b"\n")
        for line in lines:
            self.commands.put_nowait(line)

    def connection_lost(self, exc: Exception | None) -> None:
        os._exit(0)

    def say(self, reply: Reply) -> None:
        """One line."""
        self.transport.write(msgspec.json.encode(reply) + b"\n")


async def _serve(member: Member, end: socket.socket) -> None:
    _, line = await asyncio.get_running_loop().create_connection(Line, sock=end)
    decode = msgspec.json.Decoder(Command).decode
    try:
        group = await joining(member).__aenter__()
    except WhenceError as error:
        line.say(Reply(error=str(error)))
        await asyncio.sleep(NEVER_S)  # the parent has heard, and ends it
        return
    agent = Agent(group, durable=member.store is not None)
    reacting = asyncio.create_task(agent.react())
    line.say(Reply())  # it listens
    while True:
        command = decode(await line.commands.get())
        try:
            reply = await _obey(command, agent)
        except (WhenceError, TimeoutError) as error:
            reply = Reply(error=str(error) or f"no answer in time: {_troubles(group)}")
        if reacting.done():
            reply = Reply(error=f"its agent has ended: {reacting.exception()}")
        line.say(reply)


def _troubles(group: Group) -> str:
    return "; ".join(event.detail for event in group.events[-3:]) or "no event"


def live(member: Member, end: socket.socket) -> None:
    """The life of a forked process. Does not return."""
    # Who is not there yet, or dies in another order, is no news here; what matters goes over the line.
    logging.getLogger("whence.live").setLevel(logging.ERROR)
    try:
        asyncio.run(_serve(member, end))
    finally:
        os._exit(1)  # the parent's own buffers and exit handlers are none of ours
