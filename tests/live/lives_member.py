"""One member of a group in its own process, which does what it is told and writes down what it was given.

Orders on standard input, one JSON list a line; each is answered by one line. What the application was given
goes, line by line and before it is done, to `log`: whoever judges the run reads that, and nothing of ours.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass, field
from typing import Any

import whence
from support.processes import Handle, orders
from whence.errors import WhenceError


@dataclass
class Settings:
    """What one member is told."""

    node: str
    options: dict[str, Any]  # of whence.join
    log: str
    limits: dict[str, Any] = field(default_factory=dict)
    reads: bool = True  # a task of its own reads, and writes down
    expires: bool = False  # also what was too late


class Member:
    """The orders."""

    def __init__(self, group: whence.Group, log: int) -> None:
        self.group = group
        self.log = log
        self.hand: list[whence.Message] = []
        self.ended = ""

    def write(self, *fields: object) -> None:
        os.write(self.log, json.dumps(fields).encode() + b"\n")

    async def read(self) -> None:
        """Write down every message."""
        try:
            async for message in self.group:
                self.write("got", message.origin, message.number, message.payload.decode())
        except WhenceError as error:
            self.ended = str(error)

    async def read_outcomes(self) -> None:
        """Write down every message, and every one that was too late."""
        try:
            async for outcome in self.group.outcomes():
                if isinstance(outcome, whence.Message):
                    self.write("got", outcome.origin, outcome.number, outcome.payload.decode())
                elif isinstance(outcome, whence.Expired):
                    self.write("expired", outcome.origin, outcome.number, outcome.reason)
        except WhenceError as error:
            self.ended = str(error)

    async def broadcast(self, payload: str, **options: Any) -> Any:
        """Write down what was acknowledged."""
        if "key" in options:
            options["key"] = options["key"].encode()
        try:
            id_ = await self.group.broadcast(payload.encode(), **options)
        except WhenceError as error:
            return {"error": type(error).__name__, "text": str(error)}
        self.write("sent", id_.origin, id_.number, payload)
        return list(id_)

    async def send(self, to: str, payload: str, **options: Any) -> Any:
        try:
            id_ = await self.group.send(to, payload.encode(), **options)
        except WhenceError as error:
            return {"error": type(error).__name__, "text": str(error)}
        self.write("sent", id_.origin, id_.number, payload, to)
        return list(id_)

    async def receive(self) -> Any:
        """Take one message, and keep it."""
        async with asyncio.timeout(20):
            message = await self.group.receive()
        self.hand.append(message)
        return message.payload.decode()

    async def done(self, payload: str) -> Any:
        [message] = [each for each in self.hand if each.payload.decode() == payload]
        self.hand.remove(message)
        self.group.done(message)
        await asyncio.sleep(0.2)  # it is written soon, and not now
        return payload

    async def again(self, payload: str) -> Any:
        [message] = [each for each in self.hand if each.payload.decode() == payload]
        self.hand.remove(message)
        self.group.again(message)
        return payload

    async def cancelled(self, payload: str, key: str | None, after_turns: int) -> Any:
        """Broadcast, and give it up after some turns of the loop."""
        given = None if key is None else key.encode()
        task = asyncio.create_task(self.group.broadcast(payload.encode(), key=given))
        for _ in range(after_turns):
            await asyncio.sleep(0)
        is_cancelled = task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return is_cancelled

    async def loop_raises(self, at: str) -> Any:
        """Iterate, and fail in the body at one message."""
        seen = []
        try:
            async for message in self.group:
                seen.append(message.payload.decode())
                if seen[-1] == at:
                    raise ValueError(at)
        except ValueError:
            await asyncio.sleep(0.2)
        return seen

    async def blackout(self, seconds: float) -> Any:
        """Cut every connection, and let none be made for a while: answered at once."""
        node = self.group._node
        transport = node.transport
        dial, host, port = transport.dial, *transport._listen  # type: ignore[union-attr]

        async def unreachable(_: Any) -> Any:
            raise OSError("blackout")

        transport.dial = unreachable  # type: ignore[method-assign,union-attr]
        transport._server.close()  # type: ignore[union-attr]
        for session in list(node.peering.strangers):
            session.channel.abort()
        for link in list(node.links.values()):
            if link.channel is not None:
                channel = link.channel
                node.peering.disconnected(link)
                channel.abort()

        async def end() -> None:
            await asyncio.sleep(seconds)
            transport.dial = dial  # type: ignore[method-assign,union-attr]
            await transport.listen()
            await transport._server.start_serving()  # type: ignore[union-attr]

        self.ending = asyncio.create_task(end())
        return [host, port]

    async def retire(self, name: str) -> Any:
        await self.group.retire(name)
        return name

    async def report(self) -> Any:
        stats = self.group.stats()
        return {
            "ended": self.ended,
            "ready": self.group._host.core.ready,
            "rejoins": stats.rejoins,
            "links": {peer: link.state for peer, link in stats.links.items()},
            "unread": self.group.unread,
            "errors": stats.peer_errors,
            "events": [[event.kind, event.peer, event.detail] for event in self.group.events()],
        }


async def run(settings: Settings) -> None:
    log = os.open(settings.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    limits = whence.Limits(
        **{"backoff_first_s": 0.02, "backoff_max_s": 0.3, "leave_timeout_s": 2.0, **settings.limits}
    )
    async with whence.join("room", node=settings.node, limits=limits, **settings.options) as group:
        member = Member(group, log)
        member.write("open", settings.node, os.getpid())
        read = member.read_outcomes if settings.expires else member.read
        reading = asyncio.create_task(read()) if settings.reads else None
        print(json.dumps("ready"), flush=True)
        async for line in orders():
            verb, *given = json.loads(line)
            options = given.pop() if given and isinstance(given[-1], dict) else {}
            print(json.dumps(await getattr(member, verb)(*given, **options)), flush=True)
    if reading is not None:
        await reading
    sys.stdout.close()


class Process(Handle):
    """The parent's handle."""

    run = staticmethod(run)

    async def ask(self, *order: Any, timeout_s: float = 60) -> Any:
        self.say(json.dumps(order))
        return await self.answer(timeout_s)


async def started(settings: Settings) -> Process:
    """A member that has entered its group."""
    process = await Process.start(settings)
    assert await process.answer() == "ready"
    return process
