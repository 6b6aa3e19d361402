"""The child processes of this one: forked, heard, told to stop; none of them outlives it.

One thread, no event loop: a fork copies locks in whatever state other threads have them, so there must be
none. All that the children need is imported before the first fork and shared by all of them.

    line       a socket pair for each child. The child says on it, in lines, what state it is in or what it
               was asked for; and it is a leash: when the parent dies, however that happens, the child sees
               the end of its line, and ends.
    lifeline   the parent hangs on one, too: a file that its own parent keeps open. Its end is a
               `Lifeline` with no data; a byte on it means that the parent shall live without.
    signals    SIGCHLD and those given wake the parent; they come as `Ended` and `Signalled`, in turn.

Here are also the locks of the processes of a system: the kernel frees them however their holder ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import resource
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, NoReturn, TypeAlias

from whence.errors import PlatformError

SPARE_FILES = 512  # beside one for each child
_READ_BYTES = 65536
_FAILED = 70  # exit code of a child whose program has failed (EX_SOFTWARE)
_TRIES = 20
_PAUSE_S = 0.01


class Process:
    """A child, as its parent knows it."""

    def __init__(self, name: str, pid: int, line: socket.socket) -> None:
        self.name = name
        self.pid = pid
        self.line = line
        self.rest = b""  # of a line that is not whole yet
        self.speaks = True  # the child has not closed its end

    def ask(self, line: bytes) -> None:
        """Write a line to the child, without waiting for what it says to it."""
        with contextlib.suppress(ConnectionError):  # it is dying, which is told when it is dead
            self.line.sendall(line + b"\n")


class Said(NamedTuple):
    """A child has said a line."""

    process: Process
    line: bytes


class Ended(NamedTuple):
    """A child has ended, with an exit code, or by the signal `-code`. All that it said was heard before."""

    process: Process
    code: int


class Lifeline(NamedTuple):
    """The lifeline has ended (no data), or this process shall live without it. It is not heard again."""

    data: bytes


class Signalled(NamedTuple):
    """This process was sent a signal."""

    number: int


Happening: TypeAlias = Said | Ended | Lifeline | Signalled


class Processes:
    """All children of this process: it must have no others. Made once, in the main thread."""

    def __init__(self, lifeline_fd: int, signals: Iterable[int] = ()) -> None:
        self.running: dict[int, Process] = {}  # by process id
        self._lifeline_fd = lifeline_fd
        self._signals = {signal.SIGCHLD, *signals}
        self._wake_fd, self._wake_end = os.pipe()
        for fd in (self._wake_fd, self._wake_end):
            os.set_blocking(fd, False)
        # The interpreter writes the number of each signal to the pipe: nothing happens between two lines.
        signal.set_wakeup_fd(self._wake_end, warn_on_full_buffer=False)
        for number in self._signals:
            signal.signal(number, lambda number, frame: None)
        # All of them, always: a child that dies is noticed while another one is waited for.
        self._select = selectors.DefaultSelector()
        for fd in (self._wake_fd, lifeline_fd):
            self._select.register(fd, selectors.EVENT_READ)
        gc.collect()
        gc.freeze()  # the collector must not write to pages that the children share

    # Starting

    def fork(self, name: str, body: Callable[[socket.socket], int]) -> Process:
        """Start a child: `body`, given its end of the line, returns the exit code."""
        ours, theirs = socket.socketpair()
        # Held back, or a signal could reach the child while the handlers are still the parent's.
        signal.pthread_sigmask(signal.SIG_BLOCK, self._signals)
        try:
            pid = os.fork()
            if pid == 0:
                run_and_exit(lambda: self._become(body, ours, theirs))
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, self._signals)
        theirs.close()
        process = self.running[pid] = Process(name, pid, ours)
        self._select.register(ours, selectors.EVENT_READ, process)
        return process

    def _become(
        self, body: Callable[[socket.socket], int], ours: socket.socket, theirs: socket.socket
    ) -> int:
        """In the child: let go of all that is the parent's."""
        signal.set_wakeup_fd(-1)
        for number in self._signals:
            signal.signal(number, signal.SIG_DFL)  # until the child has its own handlers
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self._signals)
        self._select.close()
        for fd in (self._wake_fd, self._wake_end, self._lifeline_fd):
            os.close(fd)
        # A child that held the line of another one would keep it alive.
        for process in self.running.values():
            process.line.close()
        ours.close()
        return body(theirs)

    # Hearing

    def wait(self, timeout_s: float | None) -> list[Happening]:
        """Return what has happened, in order; an empty list after `timeout_s` (None: never)."""
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = None if until_s is None else max(0.0, until_s - time.monotonic())
            ready = self._select.select(left_s)
            happened = [each for key, _ in ready for each in self._happened(key)]
            if happened or not ready:  # half a line is nothing yet
                return happened

    def _happened(self, key: selectors.SelectorKey) -> list[Happening]:
        if key.fd == self._wake_fd:
            return self._hear_signals()
        if key.fd == self._lifeline_fd:
            self._select.unregister(self._lifeline_fd)
            return [Lifeline(os.read(self._lifeline_fd, 1))]
        return self._hear(key.data)

    def _hear_signals(self) -> list[Happening]:
        numbers = b""
        with contextlib.suppress(BlockingIOError):
            numbers = os.read(self._wake_fd, _READ_BYTES)
        happened: list[Happening] = [Signalled(each) for each in numbers if each != signal.SIGCHLD]
        while self.running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            process = self.running[pid]
            happened += self._hear(process)
            happened.append(Ended(process, os.waitstatus_to_exitcode(status)))
            self._forget(process)
        return happened

    def _hear(self, process: Process) -> list[Happening]:
        """The lines that are whole by now."""
        said: list[Happening] = []
        while process.speaks:
            try:
                data = process.line.recv(_READ_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except ConnectionError:
                data = b""
            if not data:
                self._stop_listening(process)
            *lines, process.rest = (process.rest + data).split(b"\n")
            said += [Said(process, line) for line in lines]
        return said

    # Ending

    def send_signal(self, process: Process, number: int) -> None:
        """Send a signal to a child that has not ended."""
        if process.pid in self.running:
            os.kill(process.pid, number)

    def end(self, processes: Iterable[Process]) -> None:
        """Kill these children; returns when they are gone."""
        ended = [process for process in processes if process.pid in self.running]
        for process in ended:
            os.kill(process.pid, signal.SIGKILL)
        for process in ended:
            os.waitpid(process.pid, 0)
            self._forget(process)

    def _forget(self, process: Process) -> None:
        self._stop_listening(process)
        process.line.close()
        del self.running[process.pid]

    def _stop_listening(self, process: Process) -> None:
        if process.speaks:
            process.speaks = False
            self._select.unregister(process.line)


def allow_files(processes: int) -> None:
    """Allow as many open files as the parent of that many children has, and a child of its links."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = processes + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def run_and_exit(body: Callable[[], int]) -> NoReturn:
    """In a process that was just forked: run `body` and exit with its code, whatever happens.

    The frames above are the parent's, and so are its exit handlers: they must not run here.
    """
    code = _FAILED
    try:
        code = body()
    except BaseException:  # noqa: BLE001 - the last frame of this process: it must not run on as its parent
        traceback.print_exc()
    finally:
        try:
            sys.stderr.flush()
            sys.stdout.flush()
        finally:
            os._exit(code)


def redirect(log_fd: int) -> None:
    """Standard output and error of this process go to `log_fd` from now on; there is nothing to read."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for fd, place in ((nothing, 0), (log_fd, 1), (log_fd, 2)):
        os.dup2(fd, place)
    os.close(nothing)


class Lock:
    """A locked file that says the process id of its holder. The kernel frees it however the holder ends."""

    def __init__(self, path: Path, what: str, fix: str) -> None:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # what servers keep is private
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise PlatformError(
                str(path), error.strerror or str(error), "Set `folder` to one that may be written"
            ) from error
        if not self._try_hard():
            holder = os.pread(self._fd, 32, 0).decode(errors="replace").strip()
            os.close(self._fd)
            raise PlatformError(what, f"it runs already (process {holder or 'unknown'})", fix)
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, b"%d\n" % os.getpid(), 0)

    def _try_hard(self) -> bool:
        """More than once: a process that asks `holder_of` has the file for a moment."""
        for _ in range(_TRIES):
            with contextlib.suppress(OSError):
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            time.sleep(_PAUSE_S)
        return False

    def close(self) -> None:
        """Free it; in a child after a fork, let go of the copy, which does not free it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def holder_of(path: Path) -> int | None:
    """Return the id of the process that holds a lock; None if no process does."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        text = os.pread(fd, 32, 0).strip()
        return int(text) if text.isdigit() else None
    else:
        return None
    finally:
        os.close(fd)
