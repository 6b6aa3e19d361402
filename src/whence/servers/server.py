"""One server of a system as a process: its node, its agents, its administration."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import signal
from collections.abc import Callable

from whence.core.message import NodeId
from whence.errors import PlatformError
from whence.live.group import Group
from whence.servers.admin import Admin, Tails
from whence.servers.joining import joining, limits_of, load_agents
from whence.servers.office import Office
from whence.servers.post import Post
from whence.servers.processes import Lock
from whence.servers.system import System, read_system, remember

log = logging.getLogger("whence.servers")

AGAIN = 75  # the exit code of a server that stops in order to start anew
LOG_FORMAT = "%(asctime)s %(message)s"


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
