"""The clock of a node, and what waits: timers of its core, tasks that read, messages without room."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from whence.errors import GroupClosedError, NoRoomError
from whence.session.flow import Flow, Way
from whence.session.journal import Journal
from whence.session.limits import Limits

RELEASE_AFTER_S = 0.25
WAIT, RAISE = "wait", "raise"  # what to do with a message for which there is no room
_READINGS = 10


def _reading(_: int) -> tuple[int, int]:
    """How long it took to read both clocks, and by how much they differ, in nanoseconds."""
    before_ns = time.monotonic_ns()
    wall_ns = time.time_ns()
    took_ns = time.monotonic_ns() - before_ns
    return took_ns, wall_ns - before_ns - took_ns // 2


class WallClock:
    """Microseconds of wall-clock time, anchored once, so that they never go back."""

    speed = 1.0

    def __init__(self) -> None:
        # Between two readings we may lose the processor, so the closest pair of several counts: the
        # processes of one machine must agree to a few microseconds, or deadlines would mean nothing.
        self._offset_ns = min(map(_reading, range(_READINGS)))[1]

    def now_us(self) -> int:
        """The time now."""
        return (time.monotonic_ns() + self._offset_ns) // 1000


class CoreTimers:
    """The timers of one core; `expired` is called with the key of each, not early."""

    def __init__(
        self,
        now_us: Callable[[], int],
        expired: Callable[[str], None],
        speed: float = 1.0,
    ) -> None:
        self._now_us = now_us
        self._second_us = 1e6 * speed  # of the loop's time
        loop = asyncio.get_running_loop()
        self._call_later, self._call_soon = loop.call_later, loop.call_soon
        self._expired = expired
        self._handles: dict[str, asyncio.Handle] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._handles

    def set(self, key: str, at_us: int) -> None:
        """Expire at `at_us`, and not at the time of an earlier setting."""
        self.cancel(key)
        left_us = at_us - self._now_us()
        if left_us <= 0:  # due already: in the next turn of the loop, before what is scheduled after it
            self._handles[key] = self._call_soon(self._due, key, at_us)
        else:
            self._handles[key] = self._call_later(left_us / self._second_us, self._due, key, at_us)

    def cancel(self, key: str) -> None:
        """Do not expire."""
        handle = self._handles.pop(key, None)
        if handle is not None:
            handle.cancel()

    def _due(self, key: str, at_us: int) -> None:
        if self._now_us() < at_us:  # the loop's clock is coarser, and a core must not be called early
            self.set(key, at_us)
            return
        del self._handles[key]
        self._expired(key)

    def close(self) -> None:
        """No timer expires any more."""
        for key in list(self._handles):
            self.cancel(key)


class Waiters:
    """Every task that waits."""

    def __init__(self, flow: Flow, limits: Limits, journal: Journal, wake: Callable[[], None]) -> None:
        self.arrivals: list[asyncio.Future[None]] = []  # of readers that found nothing
        # Of messages that wait for room: whether the task reads, and the one way that it waits for.
        self.broadcasts: list[tuple[asyncio.Future[None], bool, Way | None]] = []
        self._flow = flow
        self._limits = limits
        self._journal = journal
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._reading: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._warning: asyncio.TimerHandle | None = None  # set, or due already, while something waits

    # Readers

    def arrival(self) -> asyncio.Future[None]:
        """Done when something may be in the inbox, or the group is closed."""
        future = self._loop.create_future()
        self.arrivals.append(future)
        return future

    def wake_readers(self) -> None:
        """Something has arrived, or will never."""
        arrivals, self.arrivals = self.arrivals, []
        for reader in arrivals:
            if not reader.done():
                reader.set_result(None)

    def reads(self) -> None:
        """The running task reads the group."""
        task = asyncio.current_task()
        if task is not None:
            self._reading.add(task)

    # Broadcasts

    def refresh(self) -> None:
        """Look at the queues; wake the broadcasts that may go on. Once per turn of the loop."""
        flow = self._flow
        flow.refresh()
        if self.broadcasts:
            staying = []
            for waiter, reading, way in self.broadcasts:
                if waiter.done():
                    continue
                if flow.closed is None and not flow.may_go(way, reading=reading):
                    staying.append((waiter, reading, way))
                else:
                    waiter.set_result(None)
            self.broadcasts = staying

    def relieved(self) -> bool:
        """The application has read; True if acknowledgements that were withheld may leave now."""
        if not self._flow.full or not self._flow.half_read():
            return False
        self.refresh()
        return True

    async def room(
        self, way: Way | None = None, *, timeout_s: float | None = None, on_full: str = WAIT
    ) -> None:
        """Wait until the next message may leave, to all or over one way; `NoRoomError` when time is over.

        With `on_full` "raise" it may not wait at all.
        """
        flow = self._flow
        reading = asyncio.current_task() in self._reading
        waited = False
        deadline_s = None if timeout_s is None else self._loop.time() + timeout_s
        try:
            async with asyncio.timeout_at(deadline_s):
                while True:
                    if way is None and flow.room > 0:  # who woke this task has looked
                        return
                    if reading or way is not None or not self._has_queue():
                        self.refresh()
                    if flow.closed is not None:
                        raise GroupClosedError(flow.closed.what, flow.closed.reason, flow.closed.fix)
                    if flow.may_go(way, reading=reading, waited=waited):
                        return
                    if on_full == RAISE:
                        raise NoRoomError("message", *flow.why_waiting(way))
                    waited = True
                    await self._wait(way, reading=reading)
        except TimeoutError:
            reason, fix = flow.why_waiting(way)
            raise NoRoomError("message", f"after {timeout_s:g} s {reason}", fix) from None

    def _has_queue(self) -> bool:
        """Whether a broadcast of a task that does not read waits for room already.

        Another need not look at all links again: what changes them refreshes, while anything waits.
        """
        if not self.broadcasts:
            return False
        waiter, reading, way = self.broadcasts[-1]
        return not reading and way is None and not waiter.done()

    async def _wait(self, way: Way | None, *, reading: bool) -> None:
        """Wait until the queues have changed; the first that waits for long says why."""
        loop = self._loop
        if self._warning is None:
            self._warning = loop.call_later(self._limits.warn_after_s, self._warn, way)
        waiter: asyncio.Future[None] = loop.create_future()
        self.broadcasts.append((waiter, reading, way))
        stuck = loop.call_later(RELEASE_AFTER_S, self._stuck, waiter) if reading else None
        try:
            await waiter
        finally:
            if stuck is not None:
                stuck.cancel()
            if not any(not other.done() for other, _, _ in self.broadcasts):
                self._end_warning()

    def _stuck(self, waiter: asyncio.Future[None]) -> None:
        """A task that reads waits for a peer, and the peer perhaps for our acknowledgements."""
        if self._flow.may_release():
            self._flow.release = True
            self._wake()
        if not waiter.done():  # it may have been woken in this very turn of the loop
            waiter.set_result(None)  # it looks again, and comes back here in another moment if it must

    def _warn(self, way: Way | None) -> None:
        """Once, until there is room again: however many tasks wait."""
        reason, fix = self._flow.why_waiting(way)
        waits = f"a message has been waiting for {self._limits.warn_after_s:g} s"
        self._journal.note("waiting", None, f"{waits}: {reason}. {fix}", logging.WARNING)

    def _end_warning(self) -> None:
        if self._warning is not None:
            self._warning.cancel()
            self._warning = None
