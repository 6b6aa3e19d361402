"""The message consumer of paper 004, section 5: one domain as one of its servers sees it.

It owns the clock of the domain and the messages that came too early. A message that may be delivered is
merged into the clock and handed on at once, before the next one is looked at: a router stamps it for the next
domain right there, and no later message can come between (section 4.2: chains must not cross over).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from whence.core.effects import Reason
from whence.core.message import Packet
from whence.core.protocol import State
from whence.protocols.domains.clock import FullClock, Stamp

HandOn: TypeAlias = Callable[[Packet], None]


class Held(NamedTuple):
    """A message that waits: its stamp, the packet that brought it, and since when."""

    stamp: Stamp
    packet: Packet
    since_us: int


class Consumer:
    """Servers are known by their places in the domain."""

    def __init__(self, clock: FullClock) -> None:
        self.clock = clock
        self.held: dict[tuple[int, int], Held] = {}  # (source, count)
        # Each held message waits under the first (k, c) that it was found to miss, and is looked at again
        # when that one is delivered: it cannot become deliverable earlier.
        self.waiters: dict[tuple[int, int], list[tuple[int, int]]] = {}

    def refuse(self, source: int, count: int, stamp: Stamp) -> Reason | None:
        """Why a message ends here; None for one that can be delivered, now or later."""
        if count < 1:
            return Reason.MALFORMED
        if count <= self.clock.delivered(source) or (source, count) in self.held:
            return Reason.DUPLICATE
        return self.clock.problem(source, count, stamp)

    def accept(
        self, source: int, count: int, stamp: Stamp, packet: Packet, now_us: int, hand_on: HandOn
    ) -> None:
        """Hand on the message and all that waited for it, or keep it."""
        obstacle = self.clock.obstacle(source, count, stamp)
        if obstacle is not None:
            self.held[source, count] = Held(stamp, packet, now_us)
            self.waiters.setdefault(obstacle, []).append((source, count))
            return
        self.clock.merge(source, count, stamp)
        hand_on(packet)
        if self.waiters:
            self._release(source, count, hand_on)

    def _release(self, source: int, count: int, hand_on: HandOn) -> None:
        stack = self.waiters.pop((source, count), [])[::-1]
        while stack:
            key = stack.pop()
            stamp, packet, _ = self.held[key]
            obstacle = self.clock.obstacle(*key, stamp)
            if obstacle is not None:
                self.waiters.setdefault(obstacle, []).append(key)
                continue
            del self.held[key]
            self.clock.merge(*key, stamp)
            hand_on(packet)
            stack += self.waiters.pop(key, [])[::-1]

    def missing(self, source: int, count: int) -> list[tuple[int, int]]:
        """What a held message waits for, as (k, c): what has not come, else the first obstacle."""
        delivered, held = self.clock.delivered, self.held
        gaps = [
            (source, gap) for gap in range(delivered(source) + 1, count) if (source, gap) not in self.held
        ]
        obstacle = self.clock.obstacle(source, count, held[source, count].stamp)
        if obstacle is not None and not gaps:
            k, needed = obstacle
            gaps = [(k, gap) for gap in range(delivered(k) + 1, needed + 1) if (k, gap) not in held]
            gaps = gaps or [obstacle]
        return gaps

    def broken_rule(self) -> str | None:
        """The invariant that does not hold; None if all do."""
        delivered = self.clock.delivered
        for source, count in self.held:
            if count <= delivered(source):
                return f"message {count} from {source} is held and delivered"
        waiting = sorted(key for keys in self.waiters.values() for key in keys)
        if waiting != sorted(self.held):
            return "each held message waits in exactly one place"
        for k, needed in self.waiters:
            if needed <= delivered(k):
                return f"message {needed} from {k} is delivered and waited for"
        return None

    def entries(self) -> int:
        """Entries of control information."""
        return self.clock.memory_entries() + sum(
            self.clock.stamp_entries(held.stamp) for held in self.held.values()
        )

    def save(self) -> State:
        return {
            "clock": self.clock.save(),
            "held": [
                [source, count, list(held.stamp), plain(held.packet), held.since_us]
                for (source, count), held in self.held.items()
            ],
            "waiters": [[list(key), [list(each) for each in keys]] for key, keys in self.waiters.items()],
        }

    def restore(self, state: State, packet_of: Callable[..., Packet]) -> None:
        """`packet_of(*fields)` makes the protocol's packet."""
        self.clock.restore(state["clock"])
        for source, count, stamp, fields, since_us in state["held"]:
            self.held[source, count] = Held(tuple(stamp), restored(fields, packet_of), since_us)
        for (k, needed), keys in state["waiters"]:
            self.waiters[k, needed] = [(source, count) for source, count in keys]


def plain(packet: Packet) -> list[Any]:
    """A packet as plain data, for `save`."""
    return [list(each) if isinstance(each, tuple) else each for each in packet]


def restored(fields: Sequence[Any], packet_of: Callable[..., Packet]) -> Packet:
    """The packet that `plain` made plain data of; its stamp comes back as a tuple."""
    return packet_of(*(tuple(each) if isinstance(each, list | tuple) else each for each in fields))
