"""One process of a live PRC group, told over its standard input what to do; `Churn` is the parent of many.

Lines: "quiet" (broadcast no more), "still" (exchange no links any more), "report", "leave".
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import whence
from support.living import free_ports
from support.processes import Handle, Talker, orders, until


@dataclass
class Settings:
    """What one process is told."""

    node: str
    listen: str
    contact: str | None
    trace: str | None = None
    is_victim: bool = False  # it will be killed: no broadcast that it has recorded may be lost
    pause_s: float = 0.05
    shuffle_s: float = 0.4
    timeout_us: int = 3_000_000
    patience_s: float = 20.0  # a machine that is busy is not a fault


class Churn:
    """Processes that come and go; everything about them is drawn from one seed."""

    def __init__(self, seed: int, **options: Any) -> None:
        self.draw = random.Random(seed)
        self.options = options
        self.there: dict[str, Process] = {}
        self.joined = self.left = self.killed = 0
        self._asked: Counter[str] = Counter()  # whom newcomers hang on, and so must stay

    async def join(self, count: int = 1, *, is_victim: bool = False) -> list[str]:
        """So many processes more, side by side, each through a contact drawn at random."""
        contacts = sorted(self.there)
        new: dict[str, Process] = {}
        asked: list[str] = []
        for port in free_ports(count):
            name = f"p{self.joined:03d}"
            self.joined += 1
            contact = None
            if contacts:
                asked.append(self.draw.choice(contacts))
                contact = self.there[asked[-1]].settings.listen
            settings = Settings(name, f"127.0.0.1:{port}", contact, is_victim=is_victim, **self.options)
            self._asked.update(asked[-1:])
            new[name] = await Process.start(settings)
        for process in new.values():
            try:
                assert await process.answer() == {"in": True}
                # Until then it hangs on its contact alone: the graph of safe links must stay connected.
                while contacts[1:] and len((await process.report())["safe"]) < 2:  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.05)
            except BaseException:
                for each in new.values():
                    if each.process.returncode is None:
                        await each.kill()
                raise
        self._asked.subtract(asked)
        self.there.update(new)
        return list(new)

    async def leave(self, name: str | None = None) -> None:
        self.left += 1
        await self.there.pop(name or self.draw.choice(self._free(is_victim=False))).end()

    async def kill(self, name: str) -> None:
        self.killed += 1
        await self.there.pop(name).kill()

    def _free(self, *, is_victim: bool) -> list[str]:
        """Who may go now: nobody that a newcomer has been sent to."""
        there = self.there.items()
        return sorted(n for n, each in there if each.settings.is_victim == is_victim and not self._asked[n])

    async def reports(self) -> dict[str, dict[str, Any]]:
        answers = await asyncio.gather(*(each.report() for each in self.there.values()))
        return dict(zip(self.there, answers, strict=True))

    async def until(
        self, condition: Callable[[dict[str, dict[str, Any]]], bool], timeout_s: float = 40.0
    ) -> dict[str, dict[str, Any]]:
        """The first reports of all for which the condition holds."""
        return await until(self.reports, condition, timeout_s)

    async def quiet(self) -> dict[str, dict[str, Any]]:
        """Stop the traffic; wait until all have the same, and each has been seen to hold nothing.

        Links are exchanged as before, so somebody is always opening one; what is kept for it must not stay.
        """
        for process in self.there.values():
            process.say("quiet")
        emptied: set[str] = set()

        def calm(found: dict[str, dict[str, Any]]) -> bool:
            ends = {json.dumps(self._ends(each)) for each in found.values()}
            if len(ends) == 1 and not any(each["space"] for each in found.values()):
                emptied.update(name for name, each in found.items() if not each["entries"])
            return emptied == set(found)

        return await self.until(calm, 120.0)

    async def still(self, timeout_s: float) -> dict[str, dict[str, Any]]:
        """Stop the exchange of links as well; wait until nobody holds anything at all."""
        for process in self.there.values():
            process.say("still")
        return await self.until(
            lambda found: not any(each["entries"] or each["pending"] for each in found.values()), timeout_s
        )

    def _ends(self, report: dict[str, Any]) -> dict[str, int]:
        """Of those that are there: up to which message everything was delivered."""
        return {origin: last for origin, (_, last) in report["delivered"].items() if origin in self.there}

    async def storm(self, seconds: float, every_s: float, at_once: int = 1) -> None:
        """Join, leave and `kill -9`, `at_once` side by side, so that the size stays about the same."""
        end_s = asyncio.get_running_loop().time() + seconds
        await asyncio.gather(*(self._gusts(end_s, every_s) for _ in range(at_once)))

    async def _gusts(self, end_s: float, every_s: float) -> None:
        while asyncio.get_running_loop().time() < end_s:
            await asyncio.sleep(every_s)
            victims = self._free(is_victim=True)
            if self.draw.random() < 0.5 and victims:
                await self.kill(self.draw.choice(victims))
                await self.join(is_victim=True)
            else:
                await self.leave()
                await self.join()

    async def end(self) -> None:
        """Have all leave, side by side."""
        await asyncio.gather(*(each.end() for each in self.there.values()))

    async def __aenter__(self) -> Churn:
        return self

    async def __aexit__(self, *exc: object) -> None:
        for each in self.there.values():
            if each.process.returncode is None:
                await each.kill()


def report_of(group: whence.Group, talker: Talker) -> dict[str, Any]:
    node: Any = group._node
    swarm, core, stats = node.membership.overlay, node.host.core, group.stats()
    return {
        "node": group.node,
        "delivered": dict(sorted(talker.seen.items())),
        "entries": stats.control_entries,
        "space": core.expecting() + core.buffered(),  # the paper's: for messages
        "pending": len(swarm.planned) + len(swarm.given),  # of the overlay
        "safe": swarm.safe_links(),
        "arcs": len(swarm.view.arcs),
        "opened": swarm.opened,
        "closed": swarm.closed,
        "held": stats.held_messages,
        "peer_errors": stats.peer_errors,
        "discards": stats.discards,
        "error": talker.error,
    }


def rest(group: whence.Group) -> None:
    """The overlay decides nothing new any more."""
    node: Any = group._node
    node.membership.overlay.shuffle = lambda: None


async def run(settings: Settings) -> None:
    joining = whence.join(
        "room",
        node=settings.node,
        listen=settings.listen,
        contact=settings.contact,
        protocol="prc",
        trace=settings.trace,
        shuffle_s=settings.shuffle_s,
        timeout_us=settings.timeout_us,
        limits=whence.Limits(
            backoff_first_s=0.05,
            connect_timeout_s=settings.patience_s,
            handshake_timeout_s=settings.patience_s,
            silence_s=settings.patience_s,
        ),
    )
    async with joining as group:
        print(json.dumps({"in": True}), flush=True)

        def pause_s() -> float:
            return settings.pause_s * random.uniform(0.5, 1.5)

        talker = Talker(group, pause_s, is_victim=settings.is_victim)
        async for line in orders():
            if line == "quiet":
                talker.is_quiet.set()
            elif line == "still":
                rest(group)
            else:
                print(json.dumps(report_of(group, talker)), flush=True)
        await talker.fall_silent()
    await talker.read_out()


class Process(Handle):
    """The parent's handle."""

    run = staticmethod(run)
