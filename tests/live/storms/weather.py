"""The networks of a storm, and what can be done to them.

`Proxied`: a TCP proxy before every connection of a listed group, one per pair. `Spaces`: every member in a
network namespace, for protocols whose members tell each other their addresses or speak in datagrams; a fault
is a route that leads nowhere.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from typing import Any, Protocol
from uuid import uuid4

from support.living import Mesh

PORT = 7400


class Network(Protocol):
    """Where the members live."""

    faults: tuple[str, ...]  # between two members

    async def start(self) -> None:
        """Bring it up."""

    async def stop(self) -> None:
        """Take it down."""

    def peers_of(self, name: str) -> dict[str, str]:
        """The addresses to give to one member."""

    def space(self, name: str) -> str | None:
        """The network namespace of a member, where it has one."""

    async def hurt(self, one: str, other: str, fault: str, amount: float) -> None:
        """Begin a fault between two members."""

    async def heal(self, one: str, other: str) -> None:
        """End all faults between two members."""


class Proxied:
    """A proxy per pair, in this process."""

    faults = ("cut", "delay", "truncate", "black hole", "half-open", "refuse", "hold")

    def __init__(self, names: str) -> None:
        self.mesh = Mesh(names)

    async def start(self) -> None:
        await self.mesh.__aenter__()

    async def stop(self) -> None:
        await self.mesh.__aexit__()

    def peers_of(self, name: str) -> dict[str, str]:
        return self.mesh.peers_of(name)

    def space(self, name: str) -> str | None:
        return None

    async def hurt(self, one: str, other: str, fault: str, amount: float) -> None:
        proxy = self.mesh.proxies[min(one, other), max(one, other)]
        if fault == "cut":
            proxy.cut(reset=amount < 0.5)
        elif fault == "delay":
            proxy.delay_s = amount
        elif fault == "truncate":
            proxy.truncates = True
        elif fault in ("black hole", "half-open"):
            # Until all is healed: a way that opened earlier would give a connection without what it lost.
            proxy.swallows |= {True, False} if fault == "black hole" else {amount < 0.5}
        elif fault == "refuse":
            proxy.open = False
            proxy.cut()
        elif fault == "hold":
            proxy.held.clear()

    async def heal(self, one: str, other: str) -> None:
        self.mesh.proxies[min(one, other), max(one, other)].heal()


def can_make_spaces() -> bool:
    """Whether this machine lets us make network namespaces."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    return (
        _ip("netns", "add", "whence-try").returncode == 0
        and _ip("netns", "del", "whence-try").returncode == 0
    )


def _ip(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["ip", *words], capture_output=True, check=False)


class Spaces:
    """A namespace per member, on one bridge in a namespace of its own."""

    faults = ("black hole", "half-open")

    def __init__(self, names: str) -> None:
        self._names = names
        self._tag = f"wh{uuid4().hex[:8]}"  # no process's id: a storm that was killed leaves its spaces

    def _space(self, name: str) -> str:
        return f"{self._tag}-{name}"

    def _address(self, name: str) -> str:
        return f"10.77.0.{self._names.index(name) + 1}"

    async def start(self) -> None:
        hub = self._space("hub")
        await self._run("netns", "add", hub)
        await self._run("-n", hub, "link", "add", "br0", "type", "bridge")
        await self._run("-n", hub, "link", "set", "br0", "up")
        for name in self._names:
            space = self._space(name)
            await self._run("netns", "add", space)
            await self._run(
                "-n", hub, "link", "add", f"v{name}", "type", "veth", "peer", "name", "e0", "netns", space
            )
            await self._run("-n", hub, "link", "set", f"v{name}", "master", "br0", "up")
            await self._run("-n", space, "addr", "add", f"{self._address(name)}/24", "dev", "e0")
            for device in ("lo", "e0"):
                await self._run("-n", space, "link", "set", device, "up")

    async def stop(self) -> None:
        for name in (*self._names, "hub"):
            _ip("netns", "del", self._space(name))

    async def _run(self, *words: str) -> None:
        process = await asyncio.create_subprocess_exec("ip", *words, stderr=asyncio.subprocess.PIPE)
        _, problem = await process.communicate()
        if process.returncode and b"File exists" not in problem and b"No such process" not in problem:
            raise OSError(f"ip {' '.join(words)}: {problem.decode()}")

    def peers_of(self, name: str) -> dict[str, str]:
        return {each: f"{self._address(each)}:{PORT}" for each in self._names}

    def space(self, name: str) -> str | None:
        return self._space(name)

    async def hurt(self, one: str, other: str, fault: str, amount: float) -> None:
        pairs = [(one, other), (other, one)]
        if fault == "half-open":
            pairs = pairs[:1] if amount < 0.5 else pairs[1:]
        for here, there in pairs:
            await self._run("-n", self._space(here), "route", "add", "blackhole", self._address(there))

    async def heal(self, one: str, other: str) -> None:
        for here, there in ((one, other), (other, one)):
            await self._run("-n", self._space(here), "route", "del", "blackhole", self._address(there))


def network_of(kind: str, names: str) -> Any:
    """The network of a kind."""
    return Spaces(names) if kind == "spaces" else Proxied(names)
