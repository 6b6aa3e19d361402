"""One server of a system as a process: its node, its agent, its administration."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import signal
import time
from collections.abc import Callable

from whence.core.message import NodeId
from whence.errors import PlatformError
from whence.live.group import Group
from whence.servers.admin import Admin, Tails
from whence.servers.joining import joining, limits_of, load_agent
from whence.servers.processes import Lock
from whence.servers.requests import ClockShown, DeadLetters, DeadShown, HeldShown, RouteShown, Status
from whence.servers.system import System

log = logging.getLogger("whence.servers")

HELD_SHOWN = 100
LOG_FORMAT = "%(asctime)s %(message)s"


class Server:
    """One server: make it, and `run` it until it shall stop."""

    def __init__(self, system: System, name: str, *, restarts: int = 0) -> None:
        self.system = system
        self.name: NodeId = system.require(name)
        self.restarts = restarts
        self._began_s = time.monotonic()
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Stop in order; the server goes on from its store at the next start."""
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
            tails = Tails(load_agent(self.system, self.name))
            async with joining(self.system, self.name) as group:
                await self._work(group, tails, ready)
        finally:
            lock.close()

    async def _work(self, group: Group, tails: Tails, ready: Callable[[], None]) -> None:
        admin = Admin(
            self.system.socket_of(self.name),
            tails,
            status=lambda: self._status(group, tails),
            send=group.send,
            dead=lambda: _dead_letters(group, durable=self.system.durable),
            revive=group.revive,
            drop=group.drop,
            stop=self.stop,
            max_payload_bytes=limits_of(self.system).max_payload_bytes,
        )
        await admin.start()
        serving = asyncio.create_task(
            _serve(
                group, tails, durable=self.system.durable, attempts=self.system.servers[self.name].attempts
            )
        )
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
            problems = [event.detail for event in group.events if event.kind == "failed"]
            raise PlatformError(f"server {self.name!r}", (problems or ["it was closed"])[-1], "See its log")
        log.warning("%s: stops", self.name)

    def _status(self, group: Group, tails: Tails) -> Status:
        """What `whence mom status` shows."""
        stats, graph = group.stats(), self.system.graph
        waiting = group.explain()
        oldest = sorted(waiting, key=lambda each: each.since_us)[:HELD_SHOWN]
        now_us = time.time_ns() // 1000
        problems = {**stats.peer_errors, **stats.discards}
        return Status(
            server=self.name,
            pid=os.getpid(),
            restarts=self.restarts,
            up_s=round(time.monotonic() - self._began_s, 3),
            agent=self.system.servers[self.name].agent,
            durable=self.system.durable,
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
            reactions=tails.reactions if stats.store is None else stats.store.reactions,
            dead=len(group.dead_letters) if self.system.durable else 0,
            control_entries=stats.control_entries,
            clocks=[
                ClockShown(
                    domain=graph.names[at], servers=len(graph.groups[at]), entries=len(graph.groups[at]) ** 2
                )
                for at in graph.domains_of[self.name]
            ],
            routes=[
                RouteShown(to=to, hop=route.hop, domain=graph.names[route.domain])
                for to, route in sorted(graph.routes(self.name).items())
            ],
            links=stats.links,
            problems=problems,
            store=stats.store,
        )


def _dead_letters(group: Group, *, durable: bool) -> DeadLetters:
    now_us = time.time_ns() // 1000
    letters = [
        DeadShown(
            origin=letter.message.origin,
            number=letter.message.number,
            payload=letter.message.payload,
            since_s=max(0, now_us - letter.since_us) / 1e6,
            attempts=letter.attempts,
            reason=letter.reason,
        )
        for letter in (group.dead_letters if durable else ())
    ]
    return DeadLetters(letters=letters)


async def _serve(group: Group, tails: Tails, *, durable: bool, attempts: int) -> None:
    """Let the agent react to each message of QueueIN, in order, until the group is closed."""
    if tails.agent is None:
        async for message in group:
            await tails.hand_over(message)
            if durable:
                group.done(message)
    elif durable:
        await group.serve(tails.react, attempts=attempts)
    else:
        state = b""
        async for message in group:
            answer = tails.react(state, message)
            state, outputs = (await answer) if inspect.isawaitable(answer) else answer
            for to, payload in outputs:
                await group.send(to, payload)


def run_server(system: System, name: str) -> None:
    """Run one server in this process until SIGTERM or SIGINT."""

    async def run() -> None:
        await Server(system, name).run()

    asyncio.run(run())
