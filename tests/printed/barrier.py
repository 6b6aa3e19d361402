"""Paper 001's codes as they are printed: call-outs in the middle, barriers edited in place.

An independent transcription (with Python's sharing of mutable objects where the paper passes a map), for the
flaws that cannot happen in cores that return effects, and as the model for mode `published`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Printed:
    """Codes 1-7, and with `lifetime` Codes 8-13. `cache` maps mid to the tuple that was received."""

    def __init__(self, host_id: str, lifetime: int | None = None) -> None:
        self.host_id = host_id
        self.lifetime = lifetime
        self.now = 0
        self.st = 0
        self.c_barrier: dict[str, int] = {}
        self.co_delivered: dict[str, int] = {}
        self.pending: dict[Any, dict[str, int]] = {}
        self.cache: dict[Any, tuple[str, int, dict[str, int], Any]] = {}
        self.delivered: list[Any] = []
        self.oppnet_broadcast: Callable[[tuple[str, int, dict[str, int], Any]], None] = lambda message: None

    def co_broadcast(self, m: Any) -> None:  # Codes 2 and 9
        if self.lifetime is None:
            self.st = self.st + 1
        else:
            self.st = self.now + self.lifetime
            self.expunge_expired_predecessors(self.c_barrier)
        message = (self.host_id, self.st, self.c_barrier, m)
        self.cache[m] = message
        self.oppnet_broadcast(message)
        self.c_barrier = {}
        self.perform_delivery(self.host_id, self.st, m)

    def perform_delivery(self, src: str, st: int, m: Any) -> None:  # Code 3
        self.co_delivered[src] = st
        self.c_barrier[src] = st
        self.delivered.append(m)
        self.forget_dependency(src, st)

    def forget_dependency(self, src: str, st: int) -> None:  # Code 4
        for cb in self.pending.values():
            if src in cb and cb[src] <= st:
                del cb[src]

    def oppnet_receive(self, message: tuple[str, int, dict[str, int], Any]) -> None:  # Codes 5 and 11
        src, st, cb, m = message
        self.cache[m] = message
        if self.lifetime is not None:
            self.expunge_expired_predecessors(cb)
        for each in [each for each in cb if self.co_delivered.get(each, -1) >= cb[each]]:  # Code 6
            del cb[each]
        if cb:
            self.pending[m] = cb
        else:
            self.perform_delivery(src, st, m)
            self.check_pending_messages()

    def check_pending_messages(self) -> None:  # Codes 7 and 13
        if self.lifetime is not None:
            for cb in self.pending.values():  # Code 12
                self.expunge_expired_predecessors(cb)
            for src in [src for src, st in self.co_delivered.items() if st < self.now]:
                del self.co_delivered[src]
        msg_delivered = True
        while msg_delivered:
            msg_delivered = False
            for mid in list(self.pending):
                if not self.pending[mid]:
                    del self.pending[mid]
                    src, st, _, m = self.cache[mid]
                    self.perform_delivery(src, st, m)
                    msg_delivered = True

    def oppnet_discard(self, mid: Any) -> None:
        if mid in self.pending:
            del self.pending[mid]
            src, st, _, _ = self.cache[mid]
            self.forget_dependency(src, st)
            self.check_pending_messages()

    def purge(self) -> None:
        """The networking layer expunges what is over, the earliest deadline first."""
        over = [mid for mid, (_, st, _, _) in self.cache.items() if st < self.now]
        for mid in sorted(over, key=lambda mid: self.cache[mid][1]):
            self.oppnet_discard(mid)
            del self.cache[mid]

    def expunge_expired_predecessors(self, cb: dict[str, int]) -> None:  # Code 10
        for src in [src for src, st in cb.items() if st < self.now]:
            del cb[src]
