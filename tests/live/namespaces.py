"""Nodes in network namespaces of their own, on two bridges: a partition is real, and nobody is told of it.

A packet between the two sides goes nowhere, and no connection is reset: what a cut cable does. Needs root and
the program `ip`; where they are not to be had `missing` says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Collection
from types import TracebackType
from typing import Self


def missing() -> str | None:
    """Why there can be no namespaces here; None if there can."""
    if shutil.which("ip") is None:
        return "the program `ip` is not installed"
    if os.geteuid() != 0:
        return "only root may make network namespaces"
    probe = f"whence-probe-{os.getpid()}"
    done = subprocess.run(["ip", "netns", "add", probe], check=False, capture_output=True, text=True)
    if done.returncode:
        return f"no network namespaces here ({done.stderr.strip()})"
    subprocess.run(["ip", "netns", "delete", probe], check=True)
    return None


class Namespaces:
    """A namespace for each node, 10.77.0.1 and so on, and one with the two bridges."""

    def __init__(self, names: Collection[str]) -> None:
        self.names = list(names)
        self._mark = f"w{os.getpid():x}"
        self._hub = f"{self._mark}-hub"

    def __enter__(self) -> Self:
        try:
            _ip("netns", "add", self._hub)
            for bridge in ("left", "right"):
                _ip("-n", self._hub, "link", "add", bridge, "type", "bridge")
                _ip("-n", self._hub, "link", "set", bridge, "up")
            for at, name in enumerate(self.names):
                space = self._space(name)
                _ip("netns", "add", space)
                _ip("-n", self._hub, "link", "add", f"p{at}", "type", "veth", "peer", "eth0", "netns", space)
                _ip("-n", space, "address", "add", f"{self.host(name)}/16", "dev", "eth0")
                for device in ("eth0", "lo"):
                    _ip("-n", space, "link", "set", device, "up")
                _ip("-n", self._hub, "link", "set", f"p{at}", "up")
            self.split(())
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def host(self, name: str) -> str:
        """The address of a node."""
        return f"10.77.0.{self.names.index(name) + 1}"

    def within(self, name: str) -> tuple[str, ...]:
        """The command that runs another in the namespace of a node."""
        return ("ip", "netns", "exec", self._space(name))

    def split(self, right: Collection[str]) -> None:
        """Those on the right and all others cannot reach each other from now on."""
        for at, name in enumerate(self.names):
            bridge = "right" if name in right else "left"
            _ip("-n", self._hub, "link", "set", f"p{at}", "master", bridge)

    def _space(self, name: str) -> str:
        return f"{self._mark}-{name}"

    def _remove(self) -> None:
        for space in (self._hub, *map(self._space, self.names)):
            subprocess.run(["ip", "netns", "delete", space], check=False, capture_output=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
