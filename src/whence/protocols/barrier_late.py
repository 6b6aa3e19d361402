"""Which messages have come here, for as long as a late one can be told from a copy.

A first arrival after the deadline is an outcome of its own (`Expire`), a copy of what was delivered or has
ended is not. The registries of the order cannot tell the two: they know of each source the newest delivered
number, and what lies below it was delivered or skipped. So the layer below keeps the ids of what came with a
deadline until `late_us` after it. This is exact for what is late by `late_us` at the most, and bounded: ids
of the messages that were alive in the last `late_us`. Whatever is later is only discarded.
"""

from __future__ import annotations

from heapq import heappop, heappush

from whence.protocols.barrier_wire import NEVER_US, Key


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
