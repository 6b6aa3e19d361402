"""What can be asked of a running server, over its administration socket and by `whence mom`."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from whence.core.message import Message, MessageId
from whence.errors import MisuseError
from whence.live.durable import DurableMembership
from whence.live.group import Group
from whence.protocols.domains.domains import DomainPacket, Domains
from whence.servers.admin import Tails
from whence.servers.letters import opened_letter
from whence.servers.post import Post
from whence.servers.requests import ClockShown, DeadLetters, DeadShown, HeldShown, Queued, RouteShown, Status
from whence.servers.system import read_system
from whence.session.records import Done

HELD_SHOWN = 100
_decode = msgspec.msgpack.Decoder(DomainPacket).decode


class Office:
    """One server that runs, as it is administered."""

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
        """The messages at which agents failed for good."""
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
        """Let whoever sends to `names` wait, for so many seconds or until told otherwise."""
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
