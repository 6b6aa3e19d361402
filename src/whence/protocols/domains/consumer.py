"""The message consumer of paper 004, section 5: one domain as one of its servers sees it.

It owns the clock of the domain and the messages that came too early. A message that may be delivered is
merged into the clock and handed on immediately, before the next one is looked at: a router stamps it for the
next domain right there, and no later message can come between (section 4.2: chains must not cross over).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from whence.core.effects import Reason
from whence.core.holdback import HoldBack, Key
from whence.core.message import Packet
from whence.core.protocol import State
from whence.protocols.domains.clock import MatrixClock, Stamp

HandOn: TypeAlias = Callable[[Packet], None]


class Early(NamedTuple):
    """A message that waits: the `number`-th from `source` to this server, its stamp and its packet."""

    source: int
    number: int
    stamp: Stamp
    packet: Packet


class Consumer:
    """Servers are known by their places in the domain."""

    def __init__(self, clock: MatrixClock) -> None:
        self.clock = clock
        self.holdback: HoldBack[Early] = HoldBack()
        self.held = self.holdback.held  # (source, count) -> the message, since when

    def refuse(self, source: int, count: int, stamp: Stamp) -> Reason | None:
        """Why a message ends here; None for one that can be delivered, now or later."""
        if count < 1:
            return Reason.MALFORMED
        if count <= self.clock.delivered(source) or (source, count) in self.held:
            return Reason.DUPLICATE
        return self.clock.problem(source, count, stamp)

    # rule 004 section 5: the message consumer: merge and hand on, or hold
    def accept(
        self, source: int, count: int, stamp: Stamp, packet: Packet, now_us: int, hand_on: HandOn
    ) -> None:
        """Hand on the message and all that waited for it, or keep it."""
        obstacle = self.clock.obstacle(source, count, stamp)
        if obstacle is not None:
            early = Early(source, count, stamp, packet)
            self.holdback.hold((source, count), early, now_us, obstacle)
            return
        self.clock.merge(source, count, stamp)
        hand_on(packet)
        if self.held:
            for early in self.holdback.release((source, count), self._obstacle):
                self.clock.merge(early.source, early.number, early.stamp)
                hand_on(early.packet)

    def _obstacle(self, early: Early) -> Key | None:
        return self.clock.obstacle(early.source, early.number, early.stamp)

    def missing(self, source: int, count: int) -> list[tuple[int, int]]:
        """What a held message waits for, as (k, c): what has not come, else the first obstacle."""
        delivered, held = self.clock.delivered, self.held
        gaps = [
            (source, gap) for gap in range(delivered(source) + 1, count) if (source, gap) not in self.held
        ]
        obstacle = self._obstacle(held[source, count][0])
        if obstacle is not None and not gaps:
            k, needed = obstacle
            gaps = [(k, gap) for gap in range(delivered(k) + 1, needed + 1) if (k, gap) not in held]
            gaps = gaps or [obstacle]
        return gaps

    def broken_rule(self) -> str | None:
        """Return the invariant that does not hold; None if all do."""
        return self.holdback.broken_rule(lambda key: key[1] <= self.clock.delivered(key[0]))

    def entries(self) -> int:
        """Entries of control information."""
        return self.clock.memory_entries() + sum(
            self.clock.stamp_entries(early.stamp) for early, _ in self.held.values()
        )

    def save(self) -> State:
        return {
            "clock": self.clock.save(),
            "held": [
                [source, count, list(stamp), plain(packet), since_us]
                for (source, count, stamp, packet), since_us in self.held.values()
            ],
            "waiters": self.holdback.save_waiters(),
        }

    def restore(self, state: State, packet_of: Callable[..., Packet]) -> None:
        """`packet_of(*fields)` makes the protocol's packet."""
        self.clock.restore(state["clock"])
        for source, count, stamp, fields, since_us in state["held"]:
            early = Early(source, count, tuple(stamp), restored(fields, packet_of))
            self.held[source, count] = (early, since_us)
        self.holdback.restore_waiters(state["waiters"])


def plain(packet: Packet) -> list[Any]:
    """A packet as plain data, for `save`."""
    return [list(each) if isinstance(each, tuple) else each for each in packet]


def restored(fields: Sequence[Any], packet_of: Callable[..., Packet]) -> Packet:
    """The packet that `plain` made plain data of; its stamp comes back as a tuple."""
    return packet_of(*(tuple(each) if isinstance(each, list | tuple) else each for each in fields))
