"""Back-pressure: when a broadcast must wait, and when acknowledgements are withheld.

Two queues are bounded. What a peer has not acknowledged: `broadcast` waits while any living peer's
queue is above the soft limit. What the application has not read: acknowledgements are withheld while
it is too much, so that a slow reader slows its senders through their own queues; and this node's own
broadcasts wait as well, since they are delivered here too.

Nodes that reply to each other could wait for each other in a circle, so a task that reads the group
is treated with care when it broadcasts. It is never made to wait for its own reading; while too much
is unread here it may pass the soft limit, up to twice as much; and if it is still stuck after a moment,
this node acknowledges what it has received, so that somebody in the circle can go on. That is not done
for peers that cannot be reached (they wait for nobody), nor without any bound.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Any
from weakref import WeakSet

from whence.errors import GroupClosedError, WhenceError
from whence.live.host import Host
from whence.session.journal import Journal
from whence.session.limits import Limits
from whence.session.links import Link

RELEASE_AFTER_S = 0.25


class Flow:
    """The two bounds, and everybody who waits for them."""

    def __init__(
        self,
        host: Host,
        links: Collection[Link],
        limits: Limits,
        journal: Journal,
        wake: Callable[[], None],
    ) -> None:
        self.room = 0  # broadcasts that may leave before the queues are looked at again
        self.room_bytes = 0
        self.free = 0  # what the fullest queue can take below the soft limit; negative above it
        self.free_bytes = 0
        self.full = False  # too much waits here, unread or held: withhold acknowledgements
        self.release = False  # acknowledge once, although `full`
        self.closed: WhenceError | None = None
        self._host = host
        self._links = links
        self._limits = limits
        self._journal = journal
        self._wake = wake
        self._congested = False  # a peer's queue is above the soft limit, or was and has not emptied by half
        self._waiters: list[tuple[asyncio.Future[None], bool]] = []  # and whether its task reads
        self._readers: WeakSet[asyncio.Task[Any]] = WeakSet()

    @property
    def may_ack(self) -> bool:
        """Acknowledgements may leave."""
        return not self.full or self.release

    @property
    def waiting(self) -> bool:
        """Some broadcast waits."""
        return bool(self._waiters)

    def refresh(self) -> None:
        """Look at the queues; wake the broadcasts that may go on. Once per turn of the loop."""
        limits = self._limits
        free, free_bytes = limits.queue_messages, limits.queue_bytes
        for link in self._links:
            if link.alive:
                out = link.out
                free = min(free, limits.queue_messages - out.unacknowledged)
                free_bytes = min(free_bytes, limits.queue_bytes - out.unacknowledged_bytes())
        self.free, self.free_bytes = free, free_bytes
        if free <= 0 or free_bytes <= 0:
            self._congested = True
        elif 2 * free >= limits.queue_messages and 2 * free_bytes >= limits.queue_bytes:
            # Half the queue, so that a waiting broadcaster comes back with a batch and not one by one.
            self._congested = False
        self._judge_reading()
        self.room = free if self._may_go(reading=False) and self.closed is None else 0
        self.room_bytes = free_bytes
        if self._waiters:
            self._wake_waiters()

    def _judge_reading(self) -> None:
        host, limits = self._host, self._limits
        if self.full:
            self.full = not self._half_read()
        else:
            waiting = len(host.inbox) + host.held
            self.full = waiting >= limits.unread_messages or host.unread_bytes >= limits.unread_bytes

    def _half_read(self) -> bool:
        host, limits = self._host, self._limits
        waiting = len(host.inbox) + host.held
        return 2 * waiting <= limits.unread_messages and 2 * host.unread_bytes <= limits.unread_bytes

    def _may_go(self, *, reading: bool) -> bool:
        if not self._host.core.ready:
            return False
        if not self.full:
            return not self._congested
        limits = self._limits
        return reading and self.free > -limits.queue_messages and self.free_bytes > -limits.queue_bytes

    def _wake_waiters(self) -> None:
        staying = []
        for waiter, reading in self._waiters:
            if waiter.done():
                continue
            if self.closed is None and not self._may_go(reading=reading):
                staying.append((waiter, reading))
            else:
                waiter.set_result(None)
        self._waiters = staying

    def relieved(self) -> bool:
        """The application has read; True if acknowledgements that were withheld may leave now."""
        if not self.full or not self._half_read():
            return False
        self.refresh()
        return True

    def reads(self) -> None:
        """The running task reads the group."""
        task = asyncio.current_task()
        if task is not None:
            self._readers.add(task)

    async def wait(self) -> None:
        """Until the next broadcast may leave."""
        reading = asyncio.current_task() in self._readers
        loop = asyncio.get_running_loop()
        timers: list[asyncio.TimerHandle] = []
        try:
            while True:
                self.refresh()
                if self.closed is not None:
                    raise GroupClosedError(self.closed.what, self.closed.reason, self.closed.fix)
                if self._may_go(reading=reading):
                    return
                if not timers:
                    timers.append(loop.call_later(self._limits.warn_after_s, self._warn))
                waiter: asyncio.Future[None] = loop.create_future()
                self._waiters.append((waiter, reading))
                stuck = loop.call_later(RELEASE_AFTER_S, self._stuck, waiter) if reading else None
                try:
                    await waiter
                finally:
                    if stuck is not None:
                        stuck.cancel()
        finally:
            for timer in timers:
                timer.cancel()

    def _stuck(self, waiter: asyncio.Future[None]) -> None:
        """A task that reads waits for a peer, and the peer perhaps for our acknowledgements."""
        limits = self._limits
        bounded = len(self._host.inbox) < limits.unread_messages * limits.hard_factor
        if self.full and bounded and all(link.channel is not None for link in self._crowded()):
            self.release = True
            self._wake()
        if not waiter.done():  # it may have been woken in this very turn of the loop
            waiter.set_result(None)  # it looks again, and comes back here in another moment if it must

    def _crowded(self) -> list[Link]:
        """The peers that a broadcast may be waiting for."""
        limits = self._limits
        return [
            link
            for link in self._links
            if link.alive
            and (
                2 * link.out.unacknowledged > limits.queue_messages
                or 2 * link.out.unacknowledged_bytes() > limits.queue_bytes
            )
        ]

    def _warn(self) -> None:
        self._journal.note("waiting", None, self._why_waiting(), logging.WARNING)

    def _why_waiting(self) -> str:
        host = self._host
        after = f"broadcast has been waiting for {self._limits.warn_after_s:g} s"
        if not host.core.ready:
            return f"{after}: this node has not been let into the group yet"
        slow = [
            f"{link.peer} ({'connected' if link.channel else 'not connected'}, "
            f"{link.out.unacknowledged} messages unacknowledged)"
            for link in self._crowded()
        ]
        if slow and not self.full:
            return f"{after} for {', '.join(slow)}: is anyone iterating over the group there?"
        return (
            f"{after}: {len(host.inbox)} messages are unread here and {host.held} wait for others: "
            "is anyone iterating over the group?"
        )
