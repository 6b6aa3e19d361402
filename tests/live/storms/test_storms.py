"""Storms: random faults on real processes, judged from what the applications wrote down.

A storm is drawn from its seed: kill -9, restart with the store, without it, with an old copy of it, SIGSTOP,
blackouts, and broadcasts in between. When the faults end, all living members must exchange messages
within 30 s. The checker reads the logs of the applications and nothing of ours:

    no id names two payloads; no process is given a message twice; the messages of one opening of an origin
    are given in the order in which it was told their numbers

Not judged yet: that what was acknowledged was given to all that were there throughout.

A seed is in the name of its test: a failure repeats as far as processes do.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from live.test_lives import POINT_TO_POINT, Room
from live.test_lives_blackout import QUICK
from support.living import in_a_loop

PROTOCOLS = ["vector", "fifo", "barrier", "matrix", "domains"]
SEEDS = int(os.environ.get("WHENCE_STORMS", "2"))  # storms of each kind
STORM_S = float(os.environ.get("WHENCE_STORM_S", "15"))
LIMITS = {**QUICK, "queue_messages": 64}


class Storm:
    """One room, its faults and its words."""

    def __init__(self, room: Room, seed: str) -> None:
        self.room = room
        self.draw = random.Random(seed)
        self.count = 0
        self.old: set[str] = set()  # members of whose stores there is a copy
        self.told: list[str] = []  # what happened, for a failure

    async def run(self, seconds: float) -> None:
        room, draw = self.room, self.draw
        await room.start()
        await room.exchange("calm")
        loop = asyncio.get_running_loop()
        end_s = loop.time() + seconds
        while loop.time() < end_s:
            await self._speak()
            if draw.random() < 0.15:
                await self._fault()
        for node in room.names:
            if node not in room.members:
                await room.start(node)
        await asyncio.sleep(1.5)  # the last blackout ends, and who came back knows where it begins
        await room.exchange("after the storm")

    async def _speak(self) -> None:
        room, draw = self.room, self.draw
        node = draw.choice(sorted(room.members))
        self.count += 1
        given: dict[str, Any] = {"timeout": 0.3}
        payload = f"{self.count} of {node}"
        if room.protocol in POINT_TO_POINT:
            to = draw.choice([each for each in room.names if each != node])
            await room.members[node].ask("send", to, payload, given)
        else:
            await room.members[node].ask("broadcast", payload, given)
        await asyncio.sleep(draw.uniform(0, 0.05))

    async def _fault(self) -> None:
        room, draw = self.room, self.draw
        kinds = ["kill", "stop", "blackout"]
        kinds += ["lose", "copy", "old"] if room.is_durable else []
        kind = draw.choice(kinds)
        node = draw.choice(room.names)
        self.told.append(f"{kind} {node}")
        if kind == "stop" and node in room.members:
            process = room.members[node].process
            process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(draw.uniform(0.1, 2.5))
            process.send_signal(signal.SIGCONT)
        elif kind == "blackout" and node in room.members:
            await room.members[node].ask("blackout", draw.uniform(0.1, 1.0))
        elif kind in ("kill", "lose", "copy", "old"):
            await self._restart(kind, node)

    async def _restart(self, kind: str, node: str) -> None:
        room = self.room
        if len(room.members) < len(room.names) and node in room.members:
            return  # one is away already: a majority stays
        if node in room.members:
            await room.kill(node)
            await asyncio.sleep(self.draw.uniform(0, 0.5))
        if kind == "lose":
            room.lose_store(node)
        elif kind == "copy":
            room.copy_store(node, f"old-{node}-")
            self.old.add(node)
        elif kind == "old" and node in self.old:
            room.put_back(node, f"old-{node}-")
        await room.start(node)


def check_order(room: Room) -> None:
    """Each opening of an origin is heard in order."""
    for node in room.names:
        newest: dict[str, int] = {}
        for kind, *fields in room.lines(node):
            if kind == "open":
                newest = {}
            elif kind == "got":
                origin, number = fields[0], fields[1]
                assert number > newest.get(origin, 0), (node, origin, number)
                newest[origin] = number


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("protocol", PROTOCOLS)
@in_a_loop
async def test_a_storm(protocol: str, durable: bool, seed: int, tmp_path: Path) -> None:
    room = Room(tmp_path, protocol, "abc", durable=durable, limits=LIMITS)
    storm = Storm(room, f"{protocol}/{durable}/{seed}")
    try:
        await storm.run(STORM_S)
        room.check()
        check_order(room)
    except BaseException:
        print("what happened:", *storm.told, sep="\n    ")
        raise
    finally:
        for member in room.members.values():
            if member.process.returncode is None:
                await member.kill()
