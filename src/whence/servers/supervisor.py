"""The parent of a system's servers: starts them by forking, starts again those that die, stops them all.

One thread, no event loop: a fork copies locks in whatever state other threads have them, so there are none.
All that the servers need is imported before the first fork and shared by all of them.

Three pipes keep it honest. The servers say on `states` when they are ready or why they cannot start. They
hold an end of `leash`: when the supervisor dies, however that happens, they see its end and stop. And the
supervisor holds an end of the one from the command that people see (up.py): when that dies, it stops them.
"""

from __future__ import annotations

import contextlib
import gc
import os
import selectors
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

import msgspec

from whence.core.message import NodeId
from whence.errors import WhenceError
from whence.servers.child import run_child
from whence.servers.locks import Lock
from whence.servers.requests import Refused
from whence.servers.system import System

BACKOFF_FIRST_S = 0.1
BACKOFF_MAX_S = 10.0
AT_ONCE = max(4, 2 * (os.cpu_count() or 1))  # servers that are starting
STEADY_S = 30.0  # who lived for so long begins again with the shortest back-off
STOP_TIMEOUT_S = 60.0  # then a server that does not stop is killed
_READ_BYTES = 65536
_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGQUIT)


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the supervisor tells: to the log, and to the command that people see."""

    kind: str  # "started", "ready", "died", "stopped", "failed", "killed", "up", "stopping", "down"
    server: NodeId | None = None
    pid: int = 0
    detail: str = ""
    error: Refused | None = None


@dataclass
class Child:
    """One server's process."""

    pid: int = 0  # 0: none at the moment
    began_s: float = 0.0
    was_ready: bool = False  # at least once: from then on a death is an accident
    restarts: int = 0
    backoff_s: float = BACKOFF_FIRST_S
    due_s: float | None = None  # when to start it again


class Supervisor:
    """See the module. `run` returns when every server has stopped."""

    def __init__(
        self, system: System, servers: Sequence[NodeId], *, restart: bool, events_fd: int, front_fd: int
    ) -> None:
        self._system = system
        self._children = {server: Child() for server in servers}
        self._restart = restart
        self._events_fd = events_fd
        self._front_fd = front_fd
        # The smaller name dials (live/tcp.py): from the end, everybody finds those listening whom it dials.
        self._pending = sorted(servers)
        self._by_pid: dict[int, NodeId] = {}
        self._stopping_s: float | None = None  # since when
        self._told_up = False
        self._failed = False
        self._rest = b""
        self._select = selectors.DefaultSelector()
        self._log: IO[str] | None = None

    def run(self) -> int:
        """Start, watch, stop; answers the exit code."""
        try:
            lock = Lock(
                self._system.up_lock,
                f"system {self._system.name!r} in {self._system.folder}",
                f"Stop it with `whence mom down {self._system.path}`",
            )
        except WhenceError as error:
            self._tell(Event(kind="failed", error=Refused.of(error)))
            return 2
        self._lock = lock
        self._log = self._system.up_log.open("a", encoding="utf-8", buffering=1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for fd, place in ((nothing, 0), (self._log.fileno(), 1), (self._log.fileno(), 2)):
            os.dup2(fd, place)  # who reads the command's output must see its end, whatever runs on
        os.close(nothing)
        self._states_fd, self._states_end = os.pipe()
        self._leash_fd, self._leash_end = os.pipe()
        self._watch_signals()
        for fd in (self._states_fd, self._front_fd):
            os.set_blocking(fd, False)
            self._select.register(fd, selectors.EVENT_READ)
        gc.collect()
        gc.freeze()  # the collector must not write to pages that the children share
        self._start_some()
        while self._pending or any(child.pid or child.due_s is not None for child in self._children.values()):
            self._turn()
        self._tell(Event(kind="down"))
        lock.close()
        return 2 if self._failed else 0

    def _watch_signals(self) -> None:
        """Signals wake the loop through a pipe; what they mean is seen in `_turn`."""
        self._wake_fd, wake_end = os.pipe()
        self._wake_end = wake_end
        for fd in (self._wake_fd, wake_end):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda number, frame: self._stop("it was told to"))
        signal.signal(
            signal.SIGQUIT, lambda number, frame: self._stop("it was told to, at once", at_once=True)
        )
        self._select.register(self._wake_fd, selectors.EVENT_READ)

    # One turn

    def _turn(self) -> None:
        for key, _ in self._select.select(self._wait_s()):
            if key.fd == self._wake_fd:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake_fd, _READ_BYTES)
            elif key.fd == self._front_fd:
                self._hear_front()
            else:
                self._hear_states()
        self._reap()
        self._start_some()
        now_s = time.monotonic()
        for server, child in self._children.items():
            if child.due_s is not None and now_s >= child.due_s:
                child.due_s = None
                child.restarts += 1
                self._start(server)
        if self._stopping_s is not None and now_s - self._stopping_s > STOP_TIMEOUT_S:
            self._kill()

    def _wait_s(self) -> float | None:
        times_s = [child.due_s for child in self._children.values() if child.due_s is not None]
        if self._stopping_s is not None:
            times_s.append(self._stopping_s + STOP_TIMEOUT_S + 0.01)
        return max(0.0, min(times_s) - time.monotonic()) if times_s else None

    def _hear_front(self) -> None:
        """A byte: the command leaves us alone (--detach). The end: it is gone, and we stop."""
        if not os.read(self._front_fd, 1):
            self._stop("the command that started it has ended")
        self._select.unregister(self._front_fd)

    def _hear_states(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._rest += os.read(self._states_fd, _READ_BYTES)
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            event = msgspec.json.decode(line, type=Event)
            child = self._children[event.server or ""]
            if event.kind == "ready" and event.pid == child.pid:
                child.was_ready = True
            self._tell(event)
        if not self._told_up and all(child.was_ready for child in self._children.values()):
            self._told_up = True
            self._tell(Event(kind="up", pid=os.getpid()))
            os.set_blocking(self._events_fd, False)  # from here on nobody counts them

    # Starting

    def _start_some(self) -> None:
        """A few at a time: more would only take the processors from each other."""
        while self._pending and self._starting() < AT_ONCE:
            self._start(self._pending.pop())

    def _starting(self) -> int:
        return sum(bool(child.pid) and not child.was_ready for child in self._children.values())

    def _start(self, server: NodeId) -> None:
        child = self._children[server]
        child.began_s = time.monotonic()
        # Held back, or a signal could reach the child while the handler is still the supervisor's.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        pid = os.fork()
        if pid == 0:
            self._become(server, child.restarts)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        child.pid = pid
        self._by_pid[pid] = server
        self._tell(Event(kind="started", server=server, pid=pid))

    def _become(self, server: NodeId, restarts: int) -> None:
        """In the child: let go of all that is the supervisor's, and never come back."""
        signal.set_wakeup_fd(-1)
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)  # until its own loop is there
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        self._select.close()
        self._lock.close()
        if self._log is not None:
            self._log.close()
        for fd in (
            self._states_fd,
            self._leash_end,
            self._wake_fd,
            self._wake_end,
            self._events_fd,
            self._front_fd,
        ):
            os.close(fd)
        run_child(
            self._system, server, restarts=restarts, states_fd=self._states_end, leash_fd=self._leash_fd
        )

    # Endings

    def _reap(self) -> None:
        while self._by_pid:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            server = self._by_pid.pop(pid, None)
            if server is not None:
                self._hear_states()  # what it said before it ended
                self._ended(server, os.waitstatus_to_exitcode(status))

    def _ended(self, server: NodeId, code: int) -> None:
        child = self._children[server]
        pid, child.pid = child.pid, 0
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        if code == 0 or self._stopping_s is not None:
            self._tell(Event(kind="stopped", server=server, pid=pid, detail="" if code == 0 else how))
            return
        if not child.was_ready:  # a mistake in the description or a port in use does not mend itself
            self._tell(Event(kind="died", server=server, pid=pid, detail=f"{how}, before it was ready"))
            self._failed = True
            self._stop("it could not start", server)
            return
        if not self._restart:
            self._tell(Event(kind="died", server=server, pid=pid, detail=how))
            return
        if time.monotonic() - child.began_s > STEADY_S:
            child.backoff_s = BACKOFF_FIRST_S
        child.due_s = time.monotonic() + child.backoff_s
        again = f"{how}; starts again in {child.backoff_s:g} s"
        child.backoff_s = min(2 * child.backoff_s, BACKOFF_MAX_S)
        self._tell(Event(kind="died", server=server, pid=pid, detail=again))

    def _stop(self, why: str, server: NodeId | None = None, *, at_once: bool = False) -> None:
        """All together: each waits for what the others still owe it. `at_once`: no more waiting."""
        if self._stopping_s is None:
            self._stopping_s = time.monotonic()
            self._tell(Event(kind="stopping", server=server, detail=why))
            self._pending.clear()
            for child in self._children.values():
                child.due_s = None
                if child.pid:
                    os.kill(child.pid, signal.SIGTERM)
        if at_once:
            self._stopping_s = -STOP_TIMEOUT_S

    def _kill(self) -> None:
        for server, child in self._children.items():
            if child.pid:
                self._tell(
                    Event(kind="killed", server=server, pid=child.pid, detail="it did not stop in time")
                )
                os.kill(child.pid, signal.SIGKILL)
        self._stopping_s = time.monotonic()

    def _tell(self, event: Event) -> None:
        if self._log is not None:
            words = (event.server or "", event.kind, f"(process {event.pid})" if event.pid else "")
            text = " ".join(word for word in words if word)
            text += f": {event.detail}" if event.detail else ""
            text += f": {event.error.error()}" if event.error is not None else ""
            with contextlib.suppress(OSError):  # a full disk must not end those who could go on
                self._log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
        # The command was told to leave us alone, or is stopped (Ctrl-Z) and reads nothing.
        with contextlib.suppress(BrokenPipeError, BlockingIOError):
            os.write(self._events_fd, msgspec.json.encode(event) + b"\n")
