"""One server of a system as a process: its node, its agents, its administration."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import msgspec

from whence.core.message import Message, MessageId, NodeId
from whence.errors import ConfigError, MisuseError, PlatformError
from whence.live.durable import DurableMembership
from whence.live.group import Group
from whence.protocols.domains.domains import DomainPacket, Domains
from whence.servers.admin import Admin, Tails
from whence.servers.joining import joining, limits_of, load_agents
from whence.servers.letters import Letter, opened_letter, sealed
from whence.servers.processes import Lock
from whence.servers.requests import ClockShown, DeadLetters, DeadShown, HeldShown, Queued, RouteShown, Status
from whence.servers.system import System, read_system, remember
from whence.session.durable import Agent
from whence.session.records import Done, Output

log = logging.getLogger("whence.servers")

AGAIN = 75  # the exit code of a server that stops in order to start anew
LOG_FORMAT = "%(asctime)s %(message)s"
HELD_SHOWN = 100
_decode = msgspec.msgpack.Decoder(DomainPacket).decode


class Post:
    """Finds the agents of a server and those elsewhere. `react` is one agent to its caller.

    An agent has a name in the whole system, and lives at one server; the server's own has none. Nobody needs
    to know where another lives: a name is looked up when something is sent to it.
    """

    def __init__(self, system: System, server: str, agents: Mapping[str, Agent]) -> None:
        self.system = system  # as it was applied last: names may move
        self.server = server
        self.agents = agents

    def who(self, message: Message) -> str:
        """The name of the agent that a message is for."""
        return opened_letter(message.payload).to

    def attempts(self, name: str) -> int:
        """How often an agent may fail at one message."""
        table = self.system.agents.get(name) if name else self.system.servers[self.server]
        return 1 if table is None else table.attempts

    def outgoing(self, to: str, payload: bytes, sender: str = "") -> Output:
        """A message to a server or an agent, as it leaves this server."""
        server = self.system.server_of(to)
        return Output(server, sealed(Letter(to if to != server else "", sender, payload)))

    def react(self, state: bytes, message: Message) -> Any:
        """Let the agent react that the message is for. A coroutine if the agent is one."""
        letter = opened_letter(message.payload)
        agent = self.agents.get(letter.to)
        if agent is None:
            what = f"agent {letter.to!r}" if letter.to else f"server {self.server!r}"
            reason = "it does not live here" if letter.to else "it has no agent of its own"
            raise ConfigError(what, reason, "Describe it, and apply; then try the dead letter again")
        answer: Any = agent(state, Message(letter.sender or message.origin, message.number, letter.payload))
        return (
            self._later(answer, letter.to) if inspect.isawaitable(answer) else self._sent(answer, letter.to)
        )

    async def _later(self, answer: Awaitable[Any], sender: str) -> Any:
        return self._sent(await answer, sender)

    def _sent(self, answer: Any, sender: str) -> Any:
        state, outputs = answer
        return state, [
            self.outgoing(to, payload, sender) if isinstance(payload, bytes) else Output(to, payload)
            for to, payload in outputs
        ]


class Office:
    """What can be asked of a running server, over its administration socket and by `whence mom`."""

    def __init__(
        self, group: Group, post: Post, tails: Tails, stop: Callable[[bool], None], restarts: int
    ) -> None:
        self.stop = stop
        self._group = group
        self._post = post
        self._tails = tails
        self._restarts = restarts
        self._began_s = time.monotonic()
        self._release: asyncio.TimerHandle | None = None  # of what is held for a time

    # Messages

    async def send(self, to: str, payload: bytes, timeout_s: float | None) -> MessageId:
        """Send to a server or an agent; returns when the message is durable."""
        server, letter = self._post.outgoing(to, payload)
        assert server is not None
        return await self._group.send(server, letter, timeout=timeout_s)

    async def revive(self, id_: MessageId) -> None:
        """Let the agent try a dead letter again."""
        await self._group.revive(id_)

    async def drop(self, id_: MessageId) -> None:
        """Forget a dead letter."""
        await self._group.drop(id_)

    def dead(self) -> DeadLetters:
        """The messages at which agents failed permanently."""
        now_us = time.time_ns() // 1000
        durable = self._post.system.durable
        letters = [
            (letter, opened_letter(letter.message.payload))
            for letter in (self._group.dead_letters if durable else ())
        ]
        return DeadLetters(
            letters=[
                DeadShown(
                    origin=dead.message.origin,
                    number=dead.message.number,
                    payload=letter.payload,
                    since_s=max(0, now_us - dead.since_us) / 1e6,
                    attempts=dead.attempts,
                    reason=dead.reason,
                    to=letter.to,
                )
                for dead, letter in letters
            ]
        )

    # The system

    async def retire(self, name: str) -> None:
        """A server is waited for no more."""
        await self._group.retire(self._post.system.require(name))

    async def flush(self) -> None:
        """Put what was traced so far on the disk, with all that was accepted before."""
        member = self._group.membership
        if isinstance(member, DurableMembership):
            await member.log.submit(Done(()))
        self._group.flush_trace()

    def hold(self, names: list[str], seconds: float | None) -> None:
        """Let the senders to `names` wait, for that many seconds or until told otherwise."""
        if self._release is not None:
            self._release.cancel()
            self._release = None
        self._group.hold(names)
        if names and seconds is not None:
            loop = asyncio.get_running_loop()
            self._release = loop.call_later(seconds, self._group.hold, ())

    async def learn(self) -> None:
        """Take over what was applied, as far as that needs no new start."""
        system = read_system(self._post.system.path)
        member = self._member()
        core = member.host.core
        if isinstance(core, Domains) and system.shape.number > core.shape.number:
            await member.learn(system.shape)
        self._post.system = system

    def _member(self) -> DurableMembership:
        member = self._group.membership
        if not isinstance(member, DurableMembership):
            raise MisuseError("apply", "servers without stores forget everything", "Start the system anew")
        return member

    def queued(self, names: list[str], leaving: list[str]) -> Queued:
        """What is here that a change could strand: on its way to `names`; all that is of `leaving`."""
        member, me = self._member(), self._post.server
        found: Counter[str] = Counter()
        for origin, to, payload in self._on_the_way(member):
            letter = opened_letter(payload)
            if to in names or letter.to in names:
                found[f"for {letter.to or to} on their way"] += 1
            elif me in leaving and origin == me:
                found[f"from {me} on their way"] += 1
        unread: list[Message] = list(member.host.undone())
        dead = [letter.message for letter in member.host.dead.values()]
        for messages, what in ((unread, "that were not taken"), (dead, "dead letters")):
            for message in messages:
                to = opened_letter(message.payload).to or me
                if to in leaving or me in leaving:
                    found[f"for {to} {what}"] += 1
        return Queued(lines=[f"{count} {what}" for what, count in sorted(found.items())])

    def _on_the_way(self, member: DurableMembership) -> Iterator[tuple[str, str, bytes]]:
        """Messages that are queued or held here for others: from, to, payload."""
        core = member.host.core
        assert isinstance(core, Domains)
        queued = (each for link in member.node.links.values() for each in link.out.unacknowledged_packets())
        for packet in (*map(_decode, queued), *core.held_packets()):
            if packet.number > 0:
                yield core.members[packet.origin], core.members[packet.to], packet.payload

    def status(self) -> Status:
        """What `whence mom status` shows."""
        system, name = self._post.system, self._post.server
        stats, graph = self._group.stats(), system.graph
        waiting = self._group.explain()
        oldest = sorted(waiting, key=lambda each: each.since_us)[:HELD_SHOWN]
        now_us = time.time_ns() // 1000
        problems = {**stats.peer_errors, **stats.discards}
        member = self._group.membership
        core = member.host.core if isinstance(member, DurableMembership) else None
        return Status(
            server=name,
            pid=os.getpid(),
            restarts=self._restarts,
            up_s=round(time.monotonic() - self._began_s, 3),
            agent=system.servers[name].agent,
            agents=sorted(each for each in self._post.agents if each),
            shape=core.shape.number if isinstance(core, Domains) else system.shape.number,
            durable=system.durable,
            queue_in=stats.unread_messages + (stats.store.in_hand if stats.store is not None else 0),
            queue_out=sum(link.unacknowledged_messages for link in stats.links.values()),
            held=len(waiting),
            held_first=[
                HeldShown(
                    message=str(each.id),
                    since_s=max(0, now_us - each.since_us) / 1e6,
                    missing=[str(id_) for id_ in each.missing],
                )
                for each in oldest
            ],
            sent=stats.broadcasts,
            delivered=stats.deliveries,
            reactions=self._tails.reactions if stats.store is None else stats.store.reactions,
            dead=len(self._group.dead_letters) if system.durable else 0,
            control_entries=stats.control_entries,
            clocks=[
                ClockShown(
                    domain=graph.names[at], servers=len(graph.groups[at]), entries=len(graph.groups[at]) ** 2
                )
                for at in graph.domains_of[name]
            ],
            routes=[
                RouteShown(to=to, hop=route.hop, domain=graph.names[route.domain])
                for to, route in sorted(graph.routes(name).items())
            ],
            links=stats.links,
            full=self._group.full,
            problems=problems,
            store=stats.store,
        )


class Server:
    """One server: make it, and `run` it until it shall stop."""

    def __init__(self, system: System, name: str, *, restarts: int = 0) -> None:
        self.system = system
        self.name: NodeId = system.require(name)
        self.restarts = restarts
        self.again = False  # it stops in order to start anew
        self._stop = asyncio.Event()

    def stop(self, again: bool = False) -> None:
        """Stop in order; the server goes on from its store at the next start, which follows if `again`."""
        self.again = again
        self._stop.set()

    async def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Be a member until `stop`, SIGTERM or SIGINT; `ready` is called when others can reach the server."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stop)
        lock = Lock(
            self.system.lock_of(self.name),
            f"server {self.name!r} of {self.system.name!r}",
            f"Stop it with `whence mom down {self.system.path} {self.name}`",
        )
        try:
            post = Post(self.system, self.name, load_agents(self.system, self.name))
            async with joining(self.system, self.name) as group:
                await self._work(group, post, ready)
        finally:
            lock.close()

    async def _work(self, group: Group, post: Post, ready: Callable[[], None]) -> None:
        tails = Tails(post.react if post.agents else None)
        office = Office(group, post, tails, self.stop, self.restarts)
        admin = Admin(
            self.system.socket_of(self.name), tails, office, limits_of(self.system).max_payload_bytes
        )
        await admin.start()
        serving = asyncio.create_task(_serve(group, tails, post, durable=self.system.durable))
        stopping = asyncio.create_task(self._stop.wait())
        try:
            log.warning("%s: started (process %d)", self.name, os.getpid())
            ready()
            await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await admin.close()
            both = (serving, stopping)
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
        if not serving.cancelled():
            serving.result()  # what the agent has raised ends the process
        if not self._stop.is_set():
            problems = [event.detail for event in group.events() if event.kind == "failed"]
            raise PlatformError(f"server {self.name!r}", (problems or ["it was closed"])[-1], "See its log")
        log.warning("%s: stops", self.name)


async def _serve(group: Group, tails: Tails, post: Post, *, durable: bool) -> None:
    """Let the agents react to each message of QueueIN, in order, until the group is closed."""
    if tails.agent is None:
        async for message in group:
            await tails.hand_over(message)
            if durable:
                group.done(message)
    elif durable:
        await group.serve_many(tails.react, post.who, post.attempts)
    else:
        states: dict[str, bytes] = {}
        async for message in group:
            name = post.who(message)
            answer = tails.react(states.get(name, b""), message)
            states[name], outputs = (await answer) if inspect.isawaitable(answer) else answer
            for to, payload in outputs:
                await group.send(to, payload)


def run_server(system: System, name: str) -> None:
    """Run one server in this process until SIGTERM or SIGINT; anew after a change that asks for it."""
    remember(system)
    while True:
        server = asyncio.run(_run(system, name))
        if not server.again:
            return
        system = read_system(system.path)


async def _run(system: System, name: str) -> Server:
    server = Server(system, name)
    await server.run()
    return server
