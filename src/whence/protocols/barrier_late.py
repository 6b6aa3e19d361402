"""Which messages have come here, for as long as a late one can be told from a copy.

A first arrival after the deadline is an outcome of its own (`Expire`), a copy of what was delivered or has
ended is not. The registries of the order cannot tell the two: they know of each source the newest delivered
number, and what lies below it was delivered or skipped. So the layer below keeps the ids of what came with a
deadline until `late_us` after it. This is exact for what is late by `late_us` at the most, and bounded: ids
of the messages that were alive in the last `late_us`. Whatever is later is only discarded.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

from whence.core.effects import Discard, Expire, Reason
from whence.core.message import NodeId
from whence.protocols.barrier_wire import NEVER_US, BarrierPacket, Key, as_number, named

LATE_US = 10_000_000  # how long after its deadline a late message can be told from a copy, by default


class Arrivals:
    """Ids with their deadlines. `now_us` is the node's own clock."""

    def __init__(self, late_us: int) -> None:
        self.late_us = late_us
        self.deadlines_us: dict[Key, int] = {}
        self._oldest: list[tuple[int, Key]] = []

    def __contains__(self, key: Key) -> bool:
        return key in self.deadlines_us

    def __len__(self) -> int:
        return len(self.deadlines_us)

    def note(self, key: Key, deadline_us: int) -> None:
        """A message has come for the first time."""
        self.deadlines_us[key] = deadline_us
        if deadline_us < NEVER_US:
            heappush(self._oldest, (deadline_us, key))

    def forget(self, now_us: int) -> None:
        """Drop what died longer than `late_us` ago."""
        while self._oldest and self._oldest[0][0] + self.late_us < now_us:
            deadline_us, key = heappop(self._oldest)
            if self.deadlines_us.get(key) == deadline_us:  # else a liar gave it another deadline later
                del self.deadlines_us[key]

    def is_first(self, key: Key, deadline_us: int, now_us: int) -> bool:
        """Whether a message has certainly not come before; False if that is no longer known."""
        return key not in self.deadlines_us and deadline_us + self.late_us >= now_us

    def end(self, packet: BarrierPacket, peer: NodeId, refused: Reason, now_us: int) -> Discard | Expire:
        """What becomes of a message that is refused: an outcome if it comes late, for the first time."""
        id_ = named(packet)
        if refused is Reason.EXPIRED and id_ is not None:
            key, deadline_us = (packet.origin, packet.number), as_number(packet.deadline_us)
            if self.is_first(key, deadline_us, now_us):
                self.note(key, deadline_us)
                return Expire(id_, Reason.EXPIRED)
        return Discard(id_, peer, refused)

    def save(self) -> list[list[Any]]:
        """Plain data."""
        return [[*key, deadline_us] for key, deadline_us in self.deadlines_us.items()]

    def restore(self, saved: list[list[Any]]) -> None:
        """Become what `save` described."""
        for origin, number, deadline_us in saved:
            self.note((origin, number), deadline_us)
