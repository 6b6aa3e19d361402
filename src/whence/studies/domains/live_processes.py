"""The parent of the servers: a small warm process that forks them, asks them, and takes them with it.

    python -m whence.studies.domains.live_processes     standard input: a `Plan`; output: `Told` lines

It is a process of its own because a fork of the study's process would take Spark's threads and memory along;
forked from here a server costs about 3 MB and 10 ms. Standard input stays open as long as somebody wants the
result: when it closes, the nursery ends, and when the nursery ends, by whatever signal, so do all servers,
each of which hangs on a socket to it (`domains_live_server`).
"""

from __future__ import annotations

import gc
import os
import random
import resource
import selectors
import signal
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from whence.core.message import NodeId
from whence.errors import PlatformError, WhenceError
from whence.studies.domains.live_plan import Batch, Plan, Sample, System, Told
from whence.studies.domains.live_server import Command, Member, Reply, live

# Below the ports that the kernel gives to outgoing connections, of which there are thousands here.
PORTS = range(10_000, 32_000)
START_TRIES = 3
REPLY_S = 300.0
WARM_PINGS = 20
LOCAL_PINGS = 50
SPARE_FILES = 512

_encode = msgspec.json.encode
_reply = msgspec.json.Decoder(Reply).decode


class AbandonedError(Exception):
    """Nobody wants the result any more."""


class Server:
    """A child, as its parent knows it."""

    def __init__(self, name: NodeId, pid: int, line: socket.socket) -> None:
        self.name = name
        self.pid = pid
        self.line = line
        self.heard = b""

    def ask(self, command: Command) -> None:
        """Without waiting for the reply."""
        self.line.sendall(_encode(command) + b"\n")


class Nursery:
    """All living servers, and the one file that tells whether anybody still listens."""

    def __init__(self, lifeline: int) -> None:
        self.lifeline = lifeline
        self.servers: list[Server] = []
        # All of them, always: a server that dies is noticed while another one is waited for.
        self.selector = selectors.DefaultSelector()
        self.selector.register(lifeline, selectors.EVENT_READ)

    # Birth

    def fork(self, member: Member) -> Server:
        """A server process; it has not said anything yet."""
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            # A child must hold nobody's line but its own, or it would keep its siblings alive.
            for other in self.servers:
                other.line.close()
            ours.close()
            self.selector.close()
            os.close(self.lifeline)
            live(member, theirs)
        theirs.close()
        server = Server(member.node, pid, ours)
        self.servers.append(server)
        self.selector.register(ours, selectors.EVENT_READ, server)
        return server

    def start(self, system: System, folder: Path | None) -> dict[NodeId, Server]:
        """All servers of a system, connected. A port that was taken meanwhile is a reason to try again."""
        for left in reversed(range(START_TRIES)):
            try:
                return self._start(system, folder)
            except PlatformError:
                if not left:
                    raise
        raise AssertionError("there is at least one try")

    def _start(self, system: System, folder: Path | None) -> dict[NodeId, Server]:
        names = system.names
        peers = {name: f"127.0.0.1:{port}" for name, port in zip(names, free_ports(len(names)), strict=True)}
        params = {"domains": system.organisation, "stamps": system.stamps}
        started: dict[NodeId, Server] = {}
        try:
            # The smaller name calls the larger: who is born later finds all that it calls.
            for name in reversed(system.running):
                store = None if folder is None else folder / f"{name}.db"
                server = self.fork(Member(name, peers, params, system.all_there, store))
                started[name] = server
                if not system.all_there:
                    self.replies([server])
            if system.all_there:
                self.replies(started.values())
                self.ask(started.values(), Command("connect", timeout_s=REPLY_S))
        except BaseException:
            self.end(started.values())
            raise
        return started

    # Questions

    def ask(self, servers: Iterable[Server], command: Command) -> list[Reply]:
        """The replies of all, in their order."""
        asked = list(servers)
        for server in asked:
            server.ask(command)
        return self.replies(asked)

    def replies(self, servers: Iterable[Server]) -> list[Reply]:
        """One line from each; a server that cannot go on, or is gone, is an error that names it."""
        asked = list(servers)
        found: dict[int, Reply] = {}
        until_s = time.monotonic() + REPLY_S
        while len(found) < len(asked):
            ready = self.selector.select(until_s - time.monotonic())
            if not ready:
                missing = [server.name for server in asked if server.pid not in found]
                raise PlatformError(f"servers {missing[:5]}", f"no reply in {REPLY_S:g} s", "Repeat")
            for key, _ in ready:
                if key.data is None:
                    raise AbandonedError
                reply = _read(key.data)
                if reply is not None:
                    found[key.data.pid] = reply
        return [found[server.pid] for server in asked]

    # Death

    def end(self, servers: Iterable[Server]) -> None:
        """These servers are over; returns when they are."""
        ended = list(servers)
        for server in ended:
            self.selector.unregister(server.line)
            server.line.close()
        for server in ended:
            os.kill(server.pid, signal.SIGKILL)  # it is dying or it is stuck; it has nothing to save
            os.waitpid(server.pid, 0)
            self.servers.remove(server)


def _read(server: Server) -> Reply | None:
    """A reply, once its line is whole."""
    try:
        data = server.line.recv(1 << 20)
    except ConnectionError:
        data = b""
    if not data:
        raise PlatformError(f"server {server.name!r}", "its process has ended", "Look at what it printed")
    server.heard += data
    if not server.heard.endswith(b"\n"):
        return None
    reply, server.heard = _reply(server.heard), b""
    if reply.error:
        raise PlatformError(f"server {server.name!r}", reply.error, "Repeat; close what uses its port")
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


# Measuring


class Bench:
    """One system that stands, and what is measured on it."""

    def __init__(self, nursery: Nursery, system: System, servers: dict[NodeId, Server]) -> None:
        self.nursery = nursery
        self.system = system
        self.servers = servers
        self.way = system.way  # asked once: a graph of thousands takes its time
        self.one, self.other = self.way[0], self.way[-1]

    def measure(self, batch: Batch, round_: int) -> Iterator[Sample]:
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
        command = Command("rounds", to, count, timeout_s=REPLY_S)
        [reply] = self.nursery.ask([self.servers[self.one]], command)
        return reply.wall_ns

    def _sample(
        self, workload: str, round_: int, to: tuple[NodeId, ...], count: int, involved: Sequence[NodeId]
    ) -> Sample:
        before_ns = self._cpu_ns(involved)
        wall_ns = self._rounds(to, count)
        cpu_ns = self._cpu_ns(involved) - before_ns
        return Sample(self.system, round_, workload, count * len(to), wall_ns, cpu_ns)

    def _cpu_ns(self, names: Sequence[NodeId]) -> int:
        replies = self.nursery.ask([self.servers[name] for name in names], Command("cpu"))
        return sum(reply.cpu_ns for reply in replies)


def carry_out(plan: Plan, nursery: Nursery, tell: Telling) -> None:
    """Batch after batch: start its systems, measure them in turns, end them."""
    for at, batch in enumerate(plan.batches):
        benches = []
        for place, system in enumerate(batch.systems):
            folder = Path(plan.folder) / f"batch-{at}" / f"system-{place}" if system.durable else None
            if folder is not None:
                folder.mkdir(parents=True)
            benches.append(Bench(nursery, system, nursery.start(system, folder)))
            tell.step()
        for round_ in range(1, batch.rounds + 1):
            # Up and down in turns: a load that grows or fades meanwhile favours no size.
            for bench in benches if round_ % 2 else reversed(benches):
                for sample in bench.measure(batch, round_):
                    tell.say(Told(tell.steps, sample))
                tell.step()
        nursery.end(list(nursery.servers))


class Telling:
    """Lines to whoever reads."""

    def __init__(self) -> None:
        self.steps = 0

    def step(self) -> None:
        """One more is done."""
        self.steps += 1
        self.say(Told(self.steps))

    def say(self, told: Told) -> None:
        """Now, not when a buffer is full."""
        sys.stdout.buffer.write(_encode(told) + b"\n")
        sys.stdout.buffer.flush()


@contextmanager
def _nursery(lifeline: int) -> Iterator[Nursery]:
    nursery = Nursery(lifeline)
    try:
        yield nursery
    finally:
        nursery.end(list(nursery.servers))


def _allow_files(servers: int) -> None:
    """One socket for each server here, one for each link there: more than many a shell allows by itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = servers + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def main() -> int:
    """Read the plan, carry it out."""
    plan = msgspec.json.decode(sys.stdin.buffer.readline(), type=Plan)
    _allow_files(max(sum(len(system.running) for system in batch.systems) for batch in plan.batches))
    tell = Telling()
    gc.freeze()  # what is here now is shared with all children, as long as no collection touches it
    try:
        with _nursery(sys.stdin.fileno()) as nursery:
            carry_out(plan, nursery, tell)
    except (AbandonedError, BrokenPipeError):
        return 1
    except (WhenceError, OSError) as error:
        tell.say(Told(tell.steps, error=str(error)))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
