"""Processes of a storm: forked from one that has loaded everything, so that a start costs little."""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import os
import signal
import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

_FORKS = multiprocessing.get_context("forkserver")
# What the driver imports, which a new process reads again as its main module, and what a member needs.
_FORKS.set_forkserver_preload(["live.storms.indoors", "live.storms.judge", "live.storms.weather"])


def _begin(given: dict[str, Any], orders: Connection, space: str | None, errors: str) -> None:
    """In the new process: enter its network, take its orders from standard input."""
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    os.dup2(orders.fileno(), 0)
    sys.stdin = os.fdopen(0)
    if space is not None:
        handle = os.open(f"/run/netns/{space}", os.O_RDONLY)
        if ctypes.CDLL(None, use_errno=True).setns(handle, 0) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter namespace {space}")
    from live.storms.storm_member import take_part

    take_part(given)


class Forked:
    """One process."""

    def __init__(self, given: dict[str, Any], space: str | None, errors: Path) -> None:
        theirs, self._orders = _FORKS.Pipe(duplex=False)
        self._process = _FORKS.Process(target=_begin, args=(given, theirs, space, str(errors)), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def returncode(self) -> int | None:
        """How it ended; None while it lives."""
        return self._process.exitcode

    def say(self, order: str) -> None:
        """Give it an order."""
        with suppress(BrokenPipeError):  # it has ended, which its return code says
            os.write(self._orders.fileno(), f"{order}\n".encode())

    def send_signal(self, number: int) -> None:
        """Send a signal, if it lives."""
        if self._process.is_alive() and self._process.pid is not None:
            os.kill(self._process.pid, number)

    async def wait(self) -> None:
        """Wait until it has ended."""
        while self._process.is_alive():  # noqa: ASYNC110 - multiprocessing has no events
            await asyncio.sleep(0.02)

    async def kill(self) -> None:
        """SIGKILL, wherever it is in its work."""
        self.send_signal(signal.SIGKILL)
        await self.wait()
