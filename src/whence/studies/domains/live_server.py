"""The live measurements, from the inside: the servers, and the parent that forks and asks them.

    python -m whence.studies.domains.live_server     standard input: a `LivePlan`; output: `Progress` lines

The parent is a separate process because a fork of the study's process would take Spark's threads and memory
along; forked from here a server costs about 3 MB and 10 ms. Standard input is its lifeline
(`whence.servers.processes`): it stays open as long as the result is wanted.

A server is a member of a live group, and its agent sends back what it receives (paper 004, section 6.1). The
parent asks over the server's line (`ServerCommand`, one line of JSON each way); one of the servers is asked
to be the paper's main agent, which takes the time. When the line ends, however that came about, so does the
server: nothing may outlive a measurement.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

import whence
from whence.core.message import Message, NodeId
from whence.errors import InvariantError, PlatformError, WhenceError
from whence.live.group import Group
from whence.live.join import Joining
from whence.servers.processes import Ended, Process, Processes, Said, allow_files
from whence.session.limits import Limits
from whence.session.records import Output
from whence.studies.domains.live import LiveBatch, LivePlan, LiveSample, LiveSystem, Progress

# Below the ports that the kernel gives to outgoing connections, of which there are thousands here.
PORTS = range(10_000, 32_000)
START_TRIES = 3
REPLY_S = 300.0
WARM_PINGS = 20
LOCAL_PINGS = 50
ASK, ANSWER = b"?", b"!"
NEVER_S = 86_400.0


class ServerCommand(msgspec.Struct, frozen=True):
    """What the parent asks for: `connect`, `cpu`, or `rounds` of one message to each of `to` and back."""

    kind: str
    to: tuple[NodeId, ...] = ()
    rounds: int = 0
    timeout_s: float = 0.0


class ServerReply(msgspec.Struct, frozen=True):
    """What a server replies: processor time since its start, or the wall time of each round."""

    cpu_ns: int = 0
    wall_ns: tuple[int, ...] = ()
    error: str = ""


_encode = msgspec.json.encode
_reply = msgspec.json.Decoder(ServerReply).decode


class Member(msgspec.Struct, frozen=True):
    """The node that a server is."""

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
        # A server that is not there is dialled once; those that are there are started in such an order
        # that each finds those that it dials.
        backoff_first_s=0.05 if member.all_there else NEVER_S,
        backoff_max_s=1.0 if member.all_there else NEVER_S,
    )
    joining: Joining = whence.join(
        "study-domains",
        node=member.node,
        peers=member.peers,
        protocol="domains",
        limits=limits,
        store=member.store,
        **member.params,
    )
    return joining


class Mirror:
    """Sends back what it is asked; as the main agent, asks and takes the time."""

    def __init__(self, group: Group, *, durable: bool) -> None:
        self.group = group
        self.durable = durable
        self.answers: asyncio.Queue[tuple[NodeId, bytes]] = asyncio.Queue()
        self.asked = 0

    async def react(self) -> None:
        """Forever."""
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


async def _obey(command: ServerCommand, agent: Mirror) -> ServerReply:
    if command.kind == "connect":
        await agent.group.wait_connected(command.timeout_s)
    elif command.kind == "rounds":
        async with asyncio.timeout(command.timeout_s):
            return ServerReply(wall_ns=await agent.rounds(command.to, command.rounds))
    return ServerReply(cpu_ns=time.process_time_ns())


class ParentLine(asyncio.Protocol):
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

    def say(self, reply: ServerReply) -> None:
        """One line."""
        self.transport.write(msgspec.json.encode(reply) + b"\n")


async def _serve(member: Member, end: socket.socket) -> None:
    _, line = await asyncio.get_running_loop().create_connection(ParentLine, sock=end)
    decode = msgspec.json.Decoder(ServerCommand).decode
    try:
        group = await joining(member).__aenter__()
    except WhenceError as error:
        line.say(ServerReply(error=str(error)))
        await asyncio.sleep(NEVER_S)  # the parent has heard, and ends it
        return
    agent = Mirror(group, durable=member.store is not None)
    reacting = asyncio.create_task(agent.react())
    line.say(ServerReply())  # it listens
    while True:
        command = decode(await line.commands.get())
        try:
            reply = await _obey(command, agent)
        except (WhenceError, TimeoutError) as error:
            reply = ServerReply(error=str(error) or f"no answer in time: {_troubles(group)}")
        if reacting.done():
            reply = ServerReply(error=f"its agent has ended: {reacting.exception()}")
        line.say(reply)


def _troubles(group: Group) -> str:
    return "; ".join(event.detail for event in group.events()[-3:]) or "no event"


def run_server(member: Member, end: socket.socket) -> int:
    """Be the server; returns only if it fails."""
    # A peer that is not there yet, or dies in another order, is no news here; errors go over the line.
    logging.getLogger("whence.live").setLevel(logging.ERROR)
    asyncio.run(_serve(member, end))
    return 1


# The parent


class AbandonedError(Exception):
    """The result is not wanted any more."""


class Fleet:
    """All servers that run, of one system or of several."""

    def __init__(self, lifeline_fd: int) -> None:
        self._processes = Processes(lifeline_fd)

    def start(self, system: LiveSystem, folder: Path | None) -> dict[NodeId, Process]:
        """All servers of a system, connected. A port that was taken meanwhile is a reason to try again."""
        for left in reversed(range(START_TRIES)):
            try:
                return self._start(system, folder)
            except PlatformError:
                if not left:
                    raise
        raise AssertionError("there is at least one try")

    def _start(self, system: LiveSystem, folder: Path | None) -> dict[NodeId, Process]:
        names = system.names
        peers = {name: f"127.0.0.1:{port}" for name, port in zip(names, free_ports(len(names)), strict=True)}
        params = {"domains": system.organisation, "stamps": system.stamps}
        started: dict[NodeId, Process] = {}
        try:
            # The smaller name dials the larger: a server finds all that it dials.
            for name in reversed(system.running):
                store = None if folder is None else folder / f"{name}.db"
                member = Member(name, peers, params, system.all_there, store)
                started[name] = self._fork(member)
                if not system.all_there:
                    self.replies([started[name]])
            if system.all_there:
                self.replies(started.values())
                self.ask(started.values(), ServerCommand("connect", timeout_s=REPLY_S))
        except BaseException:
            self._processes.end(started.values())
            raise
        return started

    def _fork(self, member: Member) -> Process:
        return self._processes.fork(member.node, lambda line: run_server(member, line))

    def ask(self, servers: Iterable[Process], command: ServerCommand) -> list[ServerReply]:
        """The replies of all, in their order."""
        asked = list(servers)
        for server in asked:
            server.ask(_encode(command))
        return self.replies(asked)

    def replies(self, servers: Iterable[Process]) -> list[ServerReply]:
        """One line from each; a server that cannot go on, or is gone, is an error that names it."""
        asked = list(servers)
        found: dict[int, ServerReply] = {}
        until_s = time.monotonic() + REPLY_S
        while len(found) < len(asked):
            happened = self._processes.wait(until_s - time.monotonic())
            if not happened and time.monotonic() >= until_s:
                missing = [server.name for server in asked if server.pid not in found]
                raise PlatformError(f"servers {missing[:5]}", f"no reply in {REPLY_S:g} s", "Repeat")
            for happening in happened:
                if isinstance(happening, Said):
                    found[happening.process.pid] = _checked(happening)
                elif isinstance(happening, Ended):
                    name = happening.process.name
                    raise PlatformError(
                        f"server {name!r}", "its process has ended", "Look at what it printed"
                    )
                else:
                    raise AbandonedError
        return [found[server.pid] for server in asked]

    def end(self) -> None:
        """End every server; returns when they are gone. They have nothing to save."""
        self._processes.end(list(self._processes.running.values()))


def _checked(said: Said) -> ServerReply:
    reply = _reply(said.line)
    if reply.error:
        raise PlatformError(f"server {said.process.name!r}", reply.error, "Repeat; close what uses its port")
    return reply


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that were free a moment ago."""
    ports: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        if len(ports) == count:
            break
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
    return ports


class Bench:
    """One system that stands, and what is measured on it."""

    def __init__(self, fleet: Fleet, system: LiveSystem, servers: dict[NodeId, Process]) -> None:
        self.fleet = fleet
        self.system = system
        self.servers = servers
        self.way = system.way  # asked once: a graph of thousands takes its time
        self.one, self.other = self.way[0], self.way[-1]

    def measure(self, batch: LiveBatch, round_: int) -> Iterator[LiveSample]:
        """Every workload, once."""
        others: tuple[NodeId, ...] = ()
        if batch.broadcasts and self.system.all_there:
            others = tuple(name for name in self.system.names if name != self.one)
        if round_ == 1:
            self._rounds((self.other,), WARM_PINGS)
            self._rounds(others, 1)
        yield self._sample("local", round_, (self.one,), LOCAL_PINGS, [self.one])
        yield self._sample("ping-pong", round_, (self.other,), batch.pings, self.way)
        if others:
            yield self._sample("broadcast", round_, others, batch.broadcasts, list(self.servers))

    def _rounds(self, to: tuple[NodeId, ...], count: int) -> tuple[int, ...]:
        command = ServerCommand("rounds", to, count, timeout_s=REPLY_S)
        [reply] = self.fleet.ask([self.servers[self.one]], command)
        return reply.wall_ns

    def _sample(
        self, workload: str, round_: int, to: tuple[NodeId, ...], count: int, involved: Sequence[NodeId]
    ) -> LiveSample:
        before_ns = self._cpu_ns(involved)
        wall_ns = self._rounds(to, count)
        cpu_ns = self._cpu_ns(involved) - before_ns
        return LiveSample(self.system, round_, workload, count * len(to), wall_ns, cpu_ns)

    def _cpu_ns(self, names: Sequence[NodeId]) -> int:
        replies = self.fleet.ask([self.servers[name] for name in names], ServerCommand("cpu"))
        return sum(reply.cpu_ns for reply in replies)


def carry_out(plan: LivePlan, fleet: Fleet, tell: Reporter) -> None:
    """LiveBatch after batch: start its systems, measure them in turns, end them."""
    for at, batch in enumerate(plan.batches):
        benches = []
        for place, system in enumerate(batch.systems):
            folder = Path(plan.folder) / f"batch-{at}" / f"system-{place}" if system.durable else None
            if folder is not None:
                folder.mkdir(parents=True)
            benches.append(Bench(fleet, system, fleet.start(system, folder)))
            tell.step()
        for round_ in range(1, batch.rounds + 1):
            # Up and down in turns: a load that grows or fades meanwhile favours no size.
            for bench in benches if round_ % 2 else reversed(benches):
                for sample in bench.measure(batch, round_):
                    tell.say(Progress(tell.steps, sample))
                tell.step()
        fleet.end()


class Reporter:
    """Lines to the study."""

    def __init__(self) -> None:
        self.steps = 0

    def step(self) -> None:
        """One more is done."""
        self.steps += 1
        self.say(Progress(self.steps))

    def say(self, told: Progress) -> None:
        """Now, not when a buffer is full."""
        sys.stdout.buffer.write(_encode(told) + b"\n")
        sys.stdout.buffer.flush()


def main() -> int:
    """Read the plan, carry it out."""
    plan = msgspec.json.decode(sys.stdin.buffer.readline(), type=LivePlan)
    allow_files(max(sum(len(system.running) for system in batch.systems) for batch in plan.batches))
    tell = Reporter()
    fleet = Fleet(sys.stdin.fileno())
    try:
        carry_out(plan, fleet, tell)
    except (AbandonedError, BrokenPipeError):
        return 1
    except (WhenceError, OSError) as error:
        tell.say(Progress(tell.steps, error=str(error)))
        return 1
    finally:
        fleet.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
