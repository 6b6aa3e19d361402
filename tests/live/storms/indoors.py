"""Storms in memory: the same faults, members and judge, in virtual time (storms/virtual.py)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest.mock import patch

from live.storms import storm_member
from live.storms.storm_member import Settings
from live.storms.virtual import VirtualProcess, World
from live.storms.weather import PORT, Proxied, Spaces


class Indoors:
    """A network of a world. With `spaces` what a fault stops is kept, as TCP does, and comes when it ends."""

    def __init__(self, world: World, names: str, *, spaces: bool) -> None:
        self.faults = Spaces.faults if spaces else Proxied.faults
        self._world = world
        self._names = names
        self._spaces = spaces

    async def start(self) -> None:
        """It is up."""

    async def stop(self) -> None:
        """It needs no end."""

    def peers_of(self, name: str) -> dict[str, str]:
        return {each: f"127.0.0.{at + 1}:{PORT}" for at, each in enumerate(self._names)}

    def space(self, name: str) -> str | None:
        return None

    async def hurt(self, one: str, other: str, fault: str, amount: float) -> None:
        pair = self._world.pairs[frozenset((one, other))]
        if fault == "cut":
            self._world.cut(pair)
        elif fault == "delay":
            pair.delay_s = amount
        elif fault == "truncate":
            pair.truncates = True
        elif fault == "refuse":
            pair.refuses = True
            self._world.cut(pair)
        elif fault == "hold":
            pair.holds = {True, False}
        else:
            ways = {True, False} if fault == "black hole" else {amount < 0.5}
            # Until all is healed: a way that opened earlier would give a connection without what it lost.
            if self._spaces:
                pair.holds |= ways
            else:
                pair.swallows |= ways

    async def heal(self, one: str, other: str) -> None:
        self._world.heal(self._world.pairs[frozenset((one, other))])


def begin(world: World, given: dict[str, Any], errors: Path) -> VirtualProcess:
    """A member in the world, in place of a process of its own."""
    settings = Settings(**given)
    process = VirtualProcess(world, settings.node)
    log = storm_member.open_log(settings)
    process.at_end.append(lambda: os.close(log))

    def write(text: str) -> None:
        if errors.parent.exists():  # otherwise the storm is over, and what it left is thrown away
            with errors.open("a") as file:
                file.write(text)

    process.run(storm_member.run(settings, log, process.orders()), write)
    return process


def patched(world: World) -> Any:
    """The clock of the members' applications."""
    return patch.object(storm_member, "time", world.clock())
