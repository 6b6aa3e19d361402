"""Processes that are forked from one that has loaded everything, so that a start costs little."""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

_FORKS = multiprocessing.get_context("forkserver")
# What the drivers import, which a new process reads again as its main module, and what a member needs.
_FORKS.set_forkserver_preload(
    ["live.storms.indoors", "live.storms.judge", "live.storms.weather", "whence.trace.writer"]
)


def _begin(
    body: Callable[..., None],
    given: tuple[Any, ...],
    orders: Connection,
    answers: Connection | None,
    environment: dict[str, str],
) -> None:
    """In the new process: what comes in is orders, what goes out is answers."""
    os.environ.update(environment)
    os.dup2(orders.fileno(), 0)
    sys.stdin = os.fdopen(0)
    orders.close()
    if answers is not None:
        os.dup2(answers.fileno(), 1)
        sys.stdout = os.fdopen(1, "w")
        answers.close()
    body(*given)


class Forked:
    """One process. Its standard output can be read where `heard` was awaited."""

    stdout: asyncio.StreamReader

    def __init__(self, body: Callable[..., None], *given: Any, answers: bool = False) -> None:
        theirs, self._orders = _FORKS.Pipe(duplex=False)
        self._answers, told = _FORKS.Pipe(duplex=False) if answers else (None, None)
        arguments = (body, given, theirs, told, dict(os.environ))
        self._process = _FORKS.Process(target=_begin, args=arguments, daemon=True)
        self._process.start()
        theirs.close()
        if told is not None:
            told.close()

    @classmethod
    async def heard(cls, body: Callable[..., None], *given: Any) -> Forked:
        """A process whose answers are read."""
        process = cls(body, *given, answers=True)
        assert process._answers is not None
        process.stdout = asyncio.StreamReader(limit=1 << 20)
        pipe = os.fdopen(os.dup(process._answers.fileno()), "rb", 0)
        process._answers.close()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(process.stdout), pipe
        )
        return process

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

    async def wait(self) -> int:
        """Wait until it has ended."""
        while self._process.exitcode is None:  # noqa: ASYNC110 - multiprocessing has no events
            await asyncio.sleep(0.02)
        return self._process.exitcode

    async def kill(self) -> None:
        """SIGKILL, wherever it is in its work."""
        self.send_signal(signal.SIGKILL)
        await self.wait()


def in_network(space: str | None, errors: Path, body: Callable[..., None], *given: Any) -> None:
    """In the new process: enter its network; what it complains of goes into a file."""
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    if space is not None:
        handle = os.open(f"/run/netns/{space}", os.O_RDONLY)
        if ctypes.CDLL(None, use_errno=True).setns(handle, 0) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter namespace {space}")
    body(*given)
