"""Start a whole system and watch it: the command's side of the supervisor, and how to stop one."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import msgspec

from whence.core.message import NodeId
from whence.errors import PlatformError, ServerDownError, WhenceError
from whence.servers.client import Client
from whence.servers.joining import load_system
from whence.servers.locks import holder_of
from whence.servers.supervisor import STOP_TIMEOUT_S, Event, Supervisor
from whence.servers.system import System

_POLL_S = 0.05


class Running:
    """A supervisor in a process of its own, and what it tells."""

    def __init__(self, system: System, servers: Sequence[NodeId], *, restart: bool = True) -> None:
        """Fork: call this before anything has started a thread or an event loop."""
        events_fd, events_end = os.pipe()
        front_fd, self._front_end = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        gc.collect()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(events_fd)
            os.close(self._front_end)
            _supervise(system, servers, restart, events_end, front_fd)
        os.close(events_end)
        os.close(front_fd)
        self._lines = os.fdopen(events_fd, "rb")

    def events(self) -> Iterator[Event]:
        """What happens, until the supervisor ends."""
        for line in self._lines:
            yield msgspec.json.decode(line, type=Event)

    def detach(self) -> None:
        """Let it run on when this process ends."""
        os.write(self._front_end, b"d")

    def stop(self, *, at_once: bool = False) -> None:
        """Tell it to stop every server; `at_once` kills those that do not."""
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.kill(self.pid, signal.SIGQUIT if at_once else signal.SIGTERM)

    def stop_on_signals(self) -> None:
        """From now on SIGTERM and Ctrl-C stop the system; a second one does so at once."""
        asked = 0

        def handle(number: int, frame: FrameType | None) -> None:
            nonlocal asked
            self.stop(at_once=asked > 0)
            asked += 1

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, handle)

    def wait(self) -> int:
        """The supervisor's exit code, when it has ended."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _supervise(
    system: System, servers: Sequence[NodeId], restart: bool, events_fd: int, front_fd: int
) -> None:
    """In the supervisor's process, which ends here. Out of the terminal's reach: Ctrl-C is the command's."""
    code = 70
    try:
        os.setsid()
        supervisor = Supervisor(system, servers, restart=restart, events_fd=events_fd, front_fd=front_fd)
        code = supervisor.run()
    except BaseException:  # noqa: BLE001 - the last frame of this process: it must not run on as its parent
        traceback.print_exc()
    finally:
        try:
            sys.stderr.flush()
        finally:
            os._exit(code)


@contextmanager
def system_up(path: Path) -> Iterator[System]:
    """Run a whole system for as long as the block takes.

    For any program: the servers are forked by a process of their own, so this one may have threads.
    """
    system = load_system(path)
    command = [sys.executable, "-m", "whence", "mom", "up", str(path), "--detach"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PlatformError(
            f"system {system.name!r}", f"it did not start: {done.stderr.strip()}", "Mend that, and try again"
        )
    try:
        yield system
    finally:
        stop_system(system, STOP_TIMEOUT_S + 5)


def stop_system(system: System, timeout_s: float, *, at_once: bool = False) -> list[NodeId]:
    """Stop the system's `up`, and servers that run without one; answers the servers that were running.

    `ServerDownError` if something still runs when the time is over.
    """
    running = [server for server in system.servers if holder_of(system.lock_of(server)) is not None]
    supervisor = holder_of(system.up_lock)
    if supervisor is not None:
        time.sleep(_POLL_S)  # one that is just starting has not written its own number yet
        supervisor = holder_of(system.up_lock)
    if supervisor is not None:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(supervisor, signal.SIGQUIT if at_once else signal.SIGTERM)
    else:
        for server in running:
            _ask_to_stop(system, server)
    deadline_s = time.monotonic() + timeout_s
    while True:
        left = [server for server in running if holder_of(system.lock_of(server)) is not None]
        if not left and holder_of(system.up_lock) is None:
            return running
        if time.monotonic() > deadline_s:
            raise ServerDownError(
                f"system {system.name!r}",
                f"after {timeout_s:g} s these still run: {', '.join(left) or 'its `whence mom up`'}",
                "Look into their logs, wait for longer with --timeout, or use --now",
            )
        time.sleep(_POLL_S)


def stop_server(system: System, server: NodeId, timeout_s: float) -> None:
    """Stop one server; `whence mom up` does not start it again."""
    with Client(system, server) as client:
        client.stop()
    deadline_s = time.monotonic() + timeout_s
    while holder_of(system.lock_of(server)) is not None:
        if time.monotonic() > deadline_s:
            raise ServerDownError(f"server {server!r}", f"it still runs after {timeout_s:g} s", "See its log")
        time.sleep(_POLL_S)


def _ask_to_stop(system: System, server: NodeId) -> None:
    try:
        with Client(system, server) as client:
            client.stop()
    except WhenceError:
        return  # it has just ended, or it is seen to run on when the time is over
