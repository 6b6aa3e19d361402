"""The contract of an order by causal barriers (paper 001), and the memory that tells late from repeated.

An order is the part of a core that knows nothing of networks: the layer below gives it each message that it
has received, and it says which may be delivered. `safe.py` is the corrected algorithm, `published.py` the
printed one.

`Arrivals`: a first arrival after the deadline is an outcome of its own (`Expire`), a copy of what was
delivered or has ended is not. The registries of the order cannot tell the two: they know of each source the
newest delivered number, and what lies below it was delivered or skipped. So the layer below keeps the ids of
messages with a deadline until `late_us` after it. This is exact for what is late by `late_us` at most, and
bounded: ids of the messages that were alive in the last `late_us`. A message that is later is only discarded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from heapq import heappop, heappush
from typing import Any, ClassVar

from whence.core.effects import Discard, Effects, Expire, Reason
from whence.core.message import NodeId, State, Waiting
from whence.errors import InvariantError, ParameterError
from whence.protocols.barrier.wire import NEVER_US, BarrierPacket, Key, as_number, named

LIFETIME_MAX_US = 10**15  # 31 years; times and deadlines stay far below NEVER_US
LATE_US = 10_000_000  # how long after its deadline a late message can be told from a copy, by default


class Arrivals:
    """Ids of messages that arrived, with their deadlines. `now_us` is the node's own clock."""

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


class BarrierOrder(ABC):
    """One node's registries. `now_us` is the node's own clock, never decreasing."""

    mode: ClassVar[str]
    pins: ClassVar[bool]  # whether the layer below must keep what is pending
    pending: Mapping[Key, object]  # what is held

    def __init__(self, me: NodeId, lifetime_us: int | None) -> None:
        self.me = me
        self.lifetime_us = lifetime_us  # of messages that are given none of their own
        self.last = 0
        self.cut: dict[NodeId, int] = {}  # what a late joiner was not given: the newest number of each source

    @abstractmethod
    def broadcast(
        self, payload: bytes, lifetime_us: int | None, now_us: int, effects: Effects
    ) -> BarrierPacket:
        """Make the next message of this node and deliver it here; the layer below sends it."""

    @abstractmethod
    def refuse(self, packet: BarrierPacket, now_us: int) -> Reason | None:
        """Why a message that came from a neighbour must not be accepted; None if it may be."""

    @abstractmethod
    def receive(self, packet: BarrierPacket, now_us: int, effects: Effects) -> None:
        """Deliver a message that was not refused, and what waited for it; or hold it."""

    @abstractmethod
    def advance(self, now_us: int, effects: Effects) -> None:
        """Time has passed: do all that was due by `now_us`. Called before every other input."""

    @abstractmethod
    def next_us(self) -> int | None:
        """When `advance` has something to do; None if only a message can change anything."""

    @abstractmethod
    def is_pending(self, key: Key) -> bool:
        """Whether the message is held: its payload is still needed."""

    @abstractmethod
    def evicted(self, key: Key) -> None:
        """The layer below has dropped the payload of a message (never of a pending one, if `pins`)."""

    @abstractmethod
    def registries(self) -> tuple[int, int, int]:
        """Entries of the causal barrier, the co-delivered and the pending registry (Figures 6 and 11)."""

    @abstractmethod
    def explain(self) -> list[Waiting]:
        """As in `Protocol`."""

    @abstractmethod
    def entries(self) -> int:
        """As in `Protocol`."""

    @abstractmethod
    def check(self) -> None:
        """As in `Protocol`."""

    @abstractmethod
    def save(self) -> State:
        """As in `Protocol`."""

    @abstractmethod
    def restore(self, state: State) -> None:
        """As in `Protocol`."""

    # rule 001 Code 9: the sender computes the deadline
    def _deadline_us(self, lifetime_us: int | None, now_us: int) -> int | None:
        """Code 9: the sender computes the deadline."""
        if lifetime_us is None:
            lifetime_us = self.lifetime_us
        return None if lifetime_us is None else now_us + lifetime_us

    def _require(self, holds: bool, rule: str) -> None:
        if not holds:
            raise InvariantError(f"{self.mode} barrier at {self.me}", rule)


def check_lifetime(what: str, lifetime_us: object) -> None:
    """Refuse what is no lifetime."""
    if (
        not isinstance(lifetime_us, int)
        or isinstance(lifetime_us, bool)
        or not 0 < lifetime_us <= LIFETIME_MAX_US
    ):
        raise ParameterError(
            what,
            f"{lifetime_us!r} is not 1 to {LIFETIME_MAX_US} whole microseconds",
            "Give it in microseconds",
        )
