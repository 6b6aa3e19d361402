"""`whence mom up`: starts the servers of a system, starts again those that die, stops them all.

    command  <- events -  supervisor  <- line -  server, one process each
             - front ->                - leash ->

The command that people see (`Running`) forks the supervisor, which forks the servers (`processes`). Each
server says on its line when it is ready, or why it cannot start, and stops when the supervisor is gone. The
supervisor tells the command all that happens, and stops the servers when the command is gone, unless that
has told it to run on (`--detach`).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

import msgspec

from whence.core.message import NodeId
from whence.errors import PlatformError, ServerDownError, WhenceError
from whence.servers.client import Client
from whence.servers.joining import load_system
from whence.servers.processes import (
    Ended,
    Lifeline,
    Lock,
    Process,
    Processes,
    Said,
    allow_files,
    holder_of,
    redirect,
    run_and_exit,
)
from whence.servers.requests import Refused
from whence.servers.server import AGAIN, LOG_FORMAT, Server
from whence.servers.system import System, read_system, remember

BACKOFF_FIRST_S = 0.1
BACKOFF_MAX_S = 10.0
AT_ONCE = max(4, 2 * (os.cpu_count() or 1))  # servers that are starting
STEADY_S = 30.0  # a server that lived for this long begins again with the shortest back-off
STOP_TIMEOUT_S = 60.0  # then a server that does not stop is killed
LOG_MAX_BYTES = 10_000_000  # of a server's log; it is then kept as .log.1 once
PART_MAX = 500  # of an error: a line on a pipe must stay below PIPE_BUF (4096), to arrive in one piece
_POLL_S = 0.05


class ServerEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened to a server, or to all: a line in the log, and to the command."""

    kind: str  # "started", "ready", "died", "stopped", "failed", "killed", "up", "stopping", "down"
    server: NodeId | None = None
    pid: int = 0
    detail: str = ""
    error: Refused | None = None

    def write(self, fd: int) -> None:
        """Tell the other end. It may be gone, or stopped (Ctrl-Z) and read nothing."""
        with contextlib.suppress(BrokenPipeError, BlockingIOError):
            os.write(fd, msgspec.json.encode(self) + b"\n")

    def __str__(self) -> str:
        words = (self.server or "", self.kind, f"(process {self.pid})" if self.pid else "")
        text = " ".join(word for word in words if word)
        text += f": {self.detail}" if self.detail else ""
        return text + (f": {self.error.error()}" if self.error is not None else "")


@dataclass
class Watched:
    """One server, and when to start it again."""

    process: Process | None = None
    began_s: float = 0.0
    was_ready: bool = False  # at least once: from then on a death is an accident
    restarts: int = 0
    backoff_s: float = BACKOFF_FIRST_S
    due_s: float | None = None  # when to start it again


class Supervisor:
    """Keeps servers running. `run` returns when every one of them has stopped."""

    def __init__(
        self,
        system: System,
        servers: Sequence[NodeId],
        *,
        restart: bool,
        is_all: bool,
        events_fd: int,
        front_fd: int,
        lock: Lock,
        log: IO[str],
    ) -> None:
        self._system = system
        self._servers = {server: Watched() for server in servers}
        self._restart = restart
        self._is_all = is_all  # servers that are added later are started, too
        self._events_fd = events_fd
        self._lock = lock
        self._log = log
        # The smaller name dials (live/tcp.py): started from the end, a server finds those that it dials.
        self._pending = sorted(servers)
        self._kill_at_s: float | None = None  # servers are stopping, and are killed then
        self._told_up = False
        self._failed = False
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the command's
        self._processes = Processes(front_fd, (signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP))

    def run(self) -> int:
        """Start, watch, stop; returns the exit code."""
        self._start_some()
        while self._pending or any(
            watched.process is not None or watched.due_s is not None for watched in self._servers.values()
        ):
            self._turn()
        self._tell(ServerEvent(kind="down"))
        return 2 if self._failed else 0

    # One turn

    def _turn(self) -> None:
        for happening in self._processes.wait(self._wait_s()):
            if isinstance(happening, Said):
                self._hear(happening.process, happening.line)
            elif isinstance(happening, Ended):
                self._ended(happening.process, happening.code)
            elif isinstance(happening, Lifeline):
                if not happening.data:  # else the command leaves us alone (--detach)
                    self._stop("the command that started it has ended")
            elif happening.number == signal.SIGHUP:
                self._follow_change()
            elif happening.number == signal.SIGQUIT:
                self._stop("it was told to, at once", at_once=True)
            else:
                self._stop("it was told to")
        self._start_some()
        now_s = time.monotonic()
        for server, watched in self._servers.items():
            if watched.due_s is not None and now_s >= watched.due_s:
                watched.due_s = None
                watched.restarts += 1
                self._start(server)
        if self._kill_at_s is not None and now_s >= self._kill_at_s:
            self._kill()

    def _follow_change(self) -> None:
        """`whence mom apply` has changed the system: what starts from now on follows it."""
        try:
            self._system = read_system(self._system.path)
        except WhenceError as error:
            self._tell(ServerEvent(kind="failed", error=Refused.of(error)))
            return
        for server, watched in list(self._servers.items()):
            if server not in self._system.servers and watched.process is None:
                del self._servers[server]
        if self._is_all and self._kill_at_s is None:
            for server in sorted(self._system.servers.keys() - self._servers.keys()):
                self._servers[server] = Watched()
                self._pending.append(server)

    def _wait_s(self) -> float | None:
        times_s = [watched.due_s for watched in self._servers.values() if watched.due_s is not None]
        if self._kill_at_s is not None:
            times_s.append(self._kill_at_s)
        return max(0.0, min(times_s) - time.monotonic()) if times_s else None

    def _hear(self, process: Process, line: bytes) -> None:
        event = msgspec.json.decode(line, type=ServerEvent)
        if event.kind == "ready":
            self._servers[process.name].was_ready = True
        self._tell(event)
        if not self._told_up and all(watched.was_ready for watched in self._servers.values()):
            self._told_up = True
            self._tell(ServerEvent(kind="up", pid=os.getpid()))
            os.set_blocking(self._events_fd, False)  # from here on no one counts them

    def _tell(self, event: ServerEvent) -> None:
        with contextlib.suppress(OSError):  # a full disk must not end servers that could go on
            self._log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {event}\n")
        event.write(self._events_fd)

    # Starting

    def _start_some(self) -> None:
        """A few at a time: more would only take the processors from each other."""
        while self._pending and self._starting() < AT_ONCE:
            self._start(self._pending.pop())

    def _starting(self) -> int:
        return sum(
            watched.process is not None and not watched.was_ready for watched in self._servers.values()
        )

    def _start(self, server: NodeId) -> None:
        watched = self._servers[server]
        watched.began_s = time.monotonic()
        watched.process = self._processes.fork(
            server, lambda line: self._become(server, watched.restarts, line)
        )
        self._tell(ServerEvent(kind="started", server=server, pid=watched.process.pid))

    def _become(self, server: NodeId, restarts: int, line: socket.socket) -> int:
        """In the child: let go of all that is the supervisor's."""
        self._lock.close()
        self._log.close()
        os.close(self._events_fd)
        return _run_forked(self._system, server, restarts, line)

    # Endings

    def _ended(self, process: Process, code: int) -> None:
        watched = self._servers[process.name]
        watched.process = None
        server, pid = process.name, process.pid
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        if code == AGAIN and self._kill_at_s is None:
            self._follow_change()
            self._start(server)
            return
        if server not in self._system.servers:
            del self._servers[server]
        if code == 0 or self._kill_at_s is not None:
            self._tell(ServerEvent(kind="stopped", server=server, pid=pid, detail="" if code == 0 else how))
            return
        if (
            not watched.was_ready and not self._told_up
        ):  # a mistake in the description or a port in use stays what it is
            self._tell(ServerEvent(kind="died", server=server, pid=pid, detail=f"{how}, before it was ready"))
            self._failed = True
            self._stop("it could not start", server)
            return
        if not self._restart:
            self._tell(ServerEvent(kind="died", server=server, pid=pid, detail=how))
            return
        if time.monotonic() - watched.began_s > STEADY_S:
            watched.backoff_s = BACKOFF_FIRST_S
        watched.due_s = time.monotonic() + watched.backoff_s
        again = f"{how}; starts again in {watched.backoff_s:g} s"
        watched.backoff_s = min(2 * watched.backoff_s, BACKOFF_MAX_S)
        self._tell(ServerEvent(kind="died", server=server, pid=pid, detail=again))

    def _stop(self, why: str, server: NodeId | None = None, *, at_once: bool = False) -> None:
        """All together: each waits for what the others still owe it. `at_once`: no more waiting."""
        if self._kill_at_s is None:
            self._kill_at_s = time.monotonic() + STOP_TIMEOUT_S
            self._tell(ServerEvent(kind="stopping", server=server, detail=why))
            self._pending.clear()
            for watched in self._servers.values():
                watched.due_s = None
                if watched.process is not None:
                    self._processes.send_signal(watched.process, signal.SIGTERM)
        if at_once:
            self._kill_at_s = time.monotonic()

    def _kill(self) -> None:
        for process in self._processes.running.values():
            detail = "it did not stop in time"
            self._tell(ServerEvent(kind="killed", server=process.name, pid=process.pid, detail=detail))
            self._processes.send_signal(process, signal.SIGKILL)
        self._kill_at_s = time.monotonic() + STOP_TIMEOUT_S


# In the process of a server


def _run_forked(system: System, server: NodeId, restarts: int, line: socket.socket) -> int:
    """Be the server until it stops; returns the exit code."""
    path = system.log_of(server)
    if path.exists() and path.stat().st_size > LOG_MAX_BYTES:
        path.replace(path.with_suffix(".log.1"))
    log_fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    redirect(log_fd)
    os.close(log_fd)
    logging.basicConfig(level=logging.WARNING, format=LOG_FORMAT, stream=sys.stderr, force=True)

    async def main() -> bool:
        made = Server(system, server, restarts=restarts)
        # The supervisor never writes to the line: it becomes readable when the supervisor is gone.
        asyncio.get_running_loop().add_reader(line, _let_go, made, line)
        await made.run(
            ready=lambda: ServerEvent(kind="ready", server=server, pid=os.getpid()).write(line.fileno())
        )
        return made.again

    try:
        if asyncio.run(main()):
            return AGAIN
    except WhenceError as error:
        logging.getLogger("whence.servers").error("%s: %s", server, error)
        parts = [part[:PART_MAX] for part in (error.what, error.reason, error.fix)]
        refused = Refused(type=type(error).__name__, what=parts[0], reason=parts[1], fix=parts[2])
        ServerEvent(kind="failed", server=server, pid=os.getpid(), error=refused).write(line.fileno())
        return 2
    return 0


def _let_go(server: Server, line: socket.socket) -> None:
    asyncio.get_running_loop().remove_reader(line)
    server.stop()


# In the process of the command


class Running:
    """A supervisor in a separate process, and what it tells."""

    def __init__(
        self, system: System, servers: Sequence[NodeId], *, restart: bool = True, is_all: bool = True
    ) -> None:
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
            run_and_exit(lambda: _supervise(system, servers, restart, is_all, events_end, front_fd))
        os.close(events_end)
        os.close(front_fd)
        self._lines = os.fdopen(events_fd, "rb")

    def events(self) -> Iterator[ServerEvent]:
        """What happens, until the supervisor ends."""
        for line in self._lines:
            yield msgspec.json.decode(line, type=ServerEvent)

    def detach(self) -> None:
        """Let it run on when this process ends."""
        os.write(self._front_end, b"d")

    def stop(self, *, at_once: bool = False) -> None:
        """Tell it to stop every server; `at_once` kills those that do not."""
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            os.kill(self.pid, signal.SIGQUIT if at_once else signal.SIGTERM)

    def stop_on_signals(self) -> None:
        """From now on SIGTERM and Ctrl-C stop the system; a second one does so without waiting."""
        asked = 0

        def handle(number: int, frame: FrameType | None) -> None:
            nonlocal asked
            self.stop(at_once=asked > 0)
            asked += 1

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, handle)

    def wait(self) -> int:
        """Return the supervisor's exit code, when it has ended."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _supervise(
    system: System, servers: Sequence[NodeId], restart: bool, is_all: bool, events_fd: int, front_fd: int
) -> int:
    """In the supervisor's process, out of the terminal's reach: Ctrl-C is the command's."""
    os.setsid()
    try:
        lock = Lock(
            system.up_lock,
            f"system {system.name!r} in {system.folder}",
            f"Stop it with `whence mom down {system.path}`",
        )
        remember(system)
    except WhenceError as error:
        ServerEvent(kind="failed", error=Refused.of(error)).write(events_fd)
        return 2
    log = system.up_log.open("a", encoding="utf-8", buffering=1)
    redirect(log.fileno())  # a reader of the command's output must see its end, whatever runs on
    allow_files(len(servers))
    supervisor = Supervisor(
        system,
        servers,
        restart=restart,
        is_all=is_all,
        events_fd=events_fd,
        front_fd=front_fd,
        lock=lock,
        log=log,
    )
    code = supervisor.run()
    lock.close()
    return code


@contextmanager
def system_up(path: Path) -> Iterator[System]:
    """Run a whole system for as long as the block takes.

    For any program: the servers are forked by a separate process, so this one may have threads.
    """
    system = load_system(path)
    command = [sys.executable, "-m", "whence", "mom", "up", str(path), "--detach"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PlatformError(
            f"system {system.name!r}", f"it did not start: {done.stderr.strip()}", "Fix that, and try again"
        )
    try:
        yield system
    finally:
        stop_system(system, STOP_TIMEOUT_S + 5)


def stop_system(system: System, timeout_s: float, *, at_once: bool = False) -> list[NodeId]:
    """Stop the system's `up`, and servers that run without one; returns the servers that were running.

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
    asked = supervisor is None
    while True:
        left = [server for server in running if holder_of(system.lock_of(server)) is not None]
        if not left and holder_of(system.up_lock) is None:
            return running
        if not asked and holder_of(system.up_lock) is None:  # the rest was started by hand
            asked = True
            for server in left:
                _ask_to_stop(system, server)
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
