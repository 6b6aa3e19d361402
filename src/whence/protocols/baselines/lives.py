"""What the baselines say and keep about members that come back, or cannot be heard.

Members tell each other, in packets that are no messages (number 0, or below):

    CUT             (0) what is delivered here, of each member: a node that comes back begins there, and is
                    told what it missed. The cut is whole, and of one moment: causally closed
    HAVE            (0) the same, and whom this node cannot hear: it is given their messages by the others
    LIFE            (-BASE) the sender's numbers go on after BASE, once what it had broadcast before is here
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

from whence.core.effects import Effects, Tell
from whence.core.group import NUMBER_MAX
from whence.core.lives import RolledBack
from whence.core.message import NodeId, Packet
from whence.core.protocol import State

KEPT_MESSAGES = 8192  # of one origin: twice what it may have unacknowledged before its broadcasts wait
KEPT_BYTES = 16 << 20
_NUMBER_BYTES = 8


class Word(IntEnum):
    """What a packet says that is no message. Numbers are part of the format."""

    CUT = 0
    HAVE = 1
    LIFE = 2

    def body(self, counts: list[int], unheard: list[int] | None = None) -> bytes:
        """The payload: the kind, how many counts, the counts, members that cannot be heard."""
        numbers = [len(counts), *counts, *(unheard or [])]
        return bytes([self]) + struct.pack(f">{len(numbers)}Q", *numbers)


class Said(NamedTuple):
    """A word that was heard."""

    kind: Word
    counts: tuple[int, ...]
    unheard: tuple[int, ...]


def read_word(payload: bytes, size: int) -> Said | None:
    """Return what a packet says in a group of that size; None for what no correct node says."""
    if not payload or payload[0] > Word.LIFE or (len(payload) - 1) % _NUMBER_BYTES or len(payload) == 1:
        return None
    kind = Word(payload[0])
    length, *numbers = struct.unpack(f">{len(payload) // _NUMBER_BYTES}Q", payload[1:])
    counts, unheard = tuple(numbers[:length]), tuple(numbers[length:])
    if len(counts) != (1 if kind is Word.LIFE else size) or max(counts) >= NUMBER_MAX:
        return None
    if (unheard and kind is not Word.HAVE) or any(member >= size for member in unheard):
        return None
    return Said(kind, counts, unheard)


class Lives:
    """The later lives of members, as one of them knows them."""

    def __init__(self) -> None:
        self.base = 0  # of this node's own life
        self.before = 0  # its last number before that, as far as it knows
        self.seen = 0  # the newest number of its earlier lives that a neighbour has
        # Members whose later life is announced, and what must be accounted for before: (base, before).
        # There may be several: others have heard of a life, or of a copy of a store, that this node has not.
        self.marks: dict[int, list[tuple[int, int]]] = {}
        self.overtaken: dict[int, tuple[int, int]] = {}  # numbers between these came too late, if they come

    def hear_own(self, count: int, last: int) -> Effects:
        """A neighbour has `count` messages of this node; news if its store has fewer."""
        if 0 < self.base <= count <= last:
            return []  # of this life
        if count <= max(self.seen, self.before if self.base else last):
            return []
        had, self.seen = (self.before if self.base else last), count
        return [Tell(RolledBack("", had, count))]

    def was_overtaken(self, origin: int, number: int) -> bool:
        """Whether a message comes that was given up when its origin began a later life; once for each."""
        first, end = self.overtaken.get(origin, (0, 0))
        if not first < number < end:
            return False
        self.overtaken[origin] = (number, end)
        return True

    def save(self) -> list[Any]:
        return [
            self.base, self.before, self.seen,
            [[origin, *pair] for origin, marks in sorted(self.marks.items()) for pair in marks],
            [[origin, *pair] for origin, pair in sorted(self.overtaken.items())],
        ]  # fmt: skip

    def restore(self, saved: list[Any]) -> None:
        self.base, self.before, self.seen, marks, overtaken = saved
        for origin, base, before in marks:
            self.marks.setdefault(origin, []).append((base, before))
        self.overtaken = {origin: (first, end) for origin, first, end in overtaken}


class KeptForNeed:
    """First copies of others' messages, until all neighbours are known to have them, or there are too many.

    An origin's broadcasts wait while a member has too much of it unacknowledged, so what is older than the
    newest `KEPT_MESSAGES` was acknowledged by every member that it counts on.
    """

    def __init__(self, size: int) -> None:
        self.of: list[list[Packet]] = [[] for _ in range(size)]
        self.have: dict[int, tuple[int, ...]] = {}  # neighbour -> what it said that it has
        self.unheard: set[int] = set()  # members without a connection here
        self.wanted_by: dict[int, tuple[NodeId, ...]] = {}  # origin -> neighbours that cannot hear it
        self._wants: dict[NodeId, frozenset[int]] = {}

    def wants(self, peer: NodeId, unheard: tuple[int, ...]) -> list[int]:
        """A neighbour cannot hear these members; returns those that are new."""
        before = self._wants.get(peer, frozenset())
        self._wants[peer] = frozenset(unheard)
        if before != self._wants[peer]:
            self.wanted_by.clear()
            for each, members in sorted(self._wants.items()):
                for member in members:
                    self.wanted_by[member] = (*self.wanted_by.get(member, ()), each)
        return sorted(self._wants[peer] - before)

    def lacking(self, origin: int, at: int) -> list[Packet]:
        """What is kept of `origin` and not known to be at the member `at`."""
        have = self.have[at][origin] if at in self.have else 0
        return [packet for packet in self.of[origin] if abs(packet[1]) > have]

    def prune(self, neighbours: list[int]) -> None:
        """Forget what all neighbours have, and the oldest of what is too much."""
        haves = [self.have[at] for at in neighbours if at in self.have]
        for origin, kept in enumerate(self.of):
            if kept:
                stable = max(0, len(kept) - KEPT_MESSAGES)
                if len(haves) == len(neighbours):
                    low = min((have[origin] for have in haves), default=0)
                    while (
                        stable < len(kept) and abs(kept[stable][1]) <= low
                    ):  # in order, but for what came late
                        stable += 1
                del kept[:stable]
                self._trim(kept)

    def _trim(self, kept: list[Packet]) -> None:
        """Forget the oldest while there are too many bytes; not counted where all are small."""
        if kept and max(len(kept[0][-1]), len(kept[-1][-1])) * len(kept) > KEPT_BYTES:
            size_bytes = sum(len(packet[-1]) for packet in kept)
            while size_bytes > KEPT_BYTES:
                size_bytes -= len(kept.pop(0)[-1])

    @property
    def is_empty(self) -> bool:
        """Whether nothing was kept or said yet."""
        return not (self.have or self.unheard or self._wants or len(self))

    def __len__(self) -> int:
        return sum(map(len, self.of))

    def save(self) -> State:
        return {
            "of": [[list(packet) for packet in packets] for packets in self.of],
            "have": [[at, *counts] for at, counts in sorted(self.have.items())],
            "unheard": sorted(self.unheard),
            "wants": [[peer, *sorted(members)] for peer, members in sorted(self._wants.items())],
        }

    def restore(self, state: State, packet_of: Callable[..., Packet]) -> None:
        """`packet_of(*fields)` makes the protocol's packet."""
        for kept, packets in zip(self.of, state["of"], strict=True):
            kept += [_packet(fields, packet_of) for fields in packets]
        self.have = {at: tuple(counts) for at, *counts in state["have"]}
        self.unheard = set(state["unheard"])
        for peer, *members in state["wants"]:
            self.wants(peer, tuple(members))


def _packet(fields: list[Any], packet_of: Callable[..., Packet]) -> Packet:
    return packet_of(*(tuple(each) if isinstance(each, list | tuple) else each for each in fields))
