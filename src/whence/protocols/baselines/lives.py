"""What the baselines say and keep about members that come back, or cannot be heard.

Members tell each other, in packets that are no messages (number 0, or below):

    CUT             (0) what is delivered here, of each member: a node that comes back begins there, and is
                    told what it missed. The cut is whole, and of one moment: causally closed
    HAVE            (0) the same, and whom this node cannot hear: it is given their messages by the others
    LIFE            (-BASE) the sender's numbers go on after BASE, once what it had broadcast before is here
"""

from __future__ import annotations

import struct
from bisect import bisect_right, insort
from collections.abc import Callable
from enum import IntEnum
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

from whence.core.effects import Effects, Tell
from whence.core.group import NUMBER_MAX
from whence.core.lives import RolledBack
from whence.core.message import NodeId, Packet, Together
from whence.core.protocol import State

KEPT_MESSAGES = 8192  # of one origin: twice what it may have unacknowledged before its broadcasts wait
KEPT_BYTES = 16 << 20
SPAN_MIN = 4  # fewer messages than that are kept as they are
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
        self.hearsay: set[int] = set()  # members of which the cut at which this node began knew messages
        self.overtaken: dict[int, tuple[int, int]] = {}  # numbers between these come too late, if at all

    def hear_own(self, count: int, last: int) -> Effects:
        """A neighbour has `count` messages of this node; news if its store has fewer."""
        if 0 < self.base <= count <= last:
            return []  # of this life
        if count <= max(self.seen, self.before if self.base else last):
            return []
        had, self.seen = (self.before if self.base else last), count
        return [Tell(RolledBack("", had, count))]

    def overtaken_to(self, origin: int, number: int) -> tuple[int, int] | None:
        """First and last, up to `number`, of what was given up when its origin began a later life; once."""
        first, end = self.overtaken.get(origin, (0, 0))
        if not first < number < end:
            return None
        self.overtaken[origin] = (number, end)
        return first + 1, number

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


class Span(NamedTuple):
    """Messages of one origin whose numbers follow each other, kept as the bytes that they came in."""

    first: int
    last: int  # at the place where a packet has its number
    again: Callable[[], list[Packet]]
    at: int  # where they begin in what `again` returns
    bytes_max: int

    def packets(self) -> list[Packet]:
        return self.again()[self.at : self.at + len_of(self)]

    def after(self, number: int) -> Span:
        """Those that follow `number`."""
        skipped = max(0, number + 1 - self.first)
        return self._replace(first=self.first + skipped, at=self.at + skipped)


Entry: TypeAlias = Packet | Span


def len_of(entry: Entry) -> int:
    """How many messages."""
    return entry.last - entry.first + 1 if isinstance(entry, Span) else 1


class KeptForNeed:
    """First copies of others' messages, until all neighbours are known to have them, or there are too many.

    An origin's broadcasts wait while a member has too much of it unacknowledged, so what is older than the
    newest `KEPT_MESSAGES` was acknowledged by every member that it counts on.
    """

    def __init__(self, size: int) -> None:
        self.of: list[list[Entry]] = [[] for _ in range(size)]  # of each origin, in the order of numbers
        self.untold = 0  # how many were kept since neighbours were told what is here
        self._bytes_max = 0  # all that is kept has no more
        self.have: dict[int, tuple[int, ...]] = {}  # neighbour -> what it said that it has
        self.unheard: set[int] = set()  # members without a connection here
        self.wanted_by: dict[int, tuple[NodeId, ...]] = {}  # origin -> neighbours that cannot hear it
        self._wants: dict[NodeId, frozenset[int]] = {}

    def add(self, packet: Packet) -> None:
        """Keep a first copy."""
        self._insert(packet[0], packet, len(packet[-1]))
        self.untold += 1

    def _insert(self, origin: int, entry: Entry, bytes_max: int) -> None:
        of = self.of[origin]
        self._bytes_max += bytes_max
        if of and _number(entry) < _number(of[-1]):  # another node has brought a later one before
            insort(of, entry, key=_number)
        else:
            of.append(entry)

    def add_run(self, packets: list[Packet], first: int, stop: int, *, ascending: bool = True) -> None:
        """Keep packets of one origin among those that arrived together; `ascending`: so their numbers are."""
        count = stop - first
        if count >= SPAN_MIN and isinstance(packets, Together):
            origin, number = packets[first][:2]
            last = number + count - 1
            if packets[stop - 1][1] == last and (ascending or _follow(packets[first:stop])):
                again, bytes_max = packets.again()
                self._insert(origin, Span(number, last, again, first, bytes_max), bytes_max)
                self.untold += count
                return
        for packet in packets[first:stop]:
            self.add(packet)

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
        return list(chain.from_iterable(map(_packets, self._after(origin, have))))

    def _after(self, origin: int, number: int) -> list[Entry]:
        """What is kept of `origin` beyond a number."""
        of = self.of[origin]
        entries = of[bisect_right(of, number, key=_number) :]
        if entries and isinstance(span := entries[0], Span):
            entries[0] = span.after(number)
        return entries

    def prune(self, neighbours: list[int]) -> None:
        """Forget what all neighbours have, and the oldest of what is too much."""
        haves = [self.have[at] for at in neighbours if at in self.have]
        for origin, kept in enumerate(self.of):
            if kept:
                if len(haves) == len(neighbours):
                    low = min((have[origin] for have in haves), default=0)
                    kept[:] = self._after(origin, low)
                if kept and _number(kept[-1]) - _first(kept[0]) >= KEPT_MESSAGES:
                    _drop_oldest(kept, sum(map(len_of, kept)) - KEPT_MESSAGES)
        if self._bytes_max > KEPT_BYTES:
            self._bytes_max = sum(map(_trim, self.of))

    @property
    def is_empty(self) -> bool:
        """Whether nothing was kept or said yet."""
        return not (self.have or self.unheard or self._wants or len(self))

    def __len__(self) -> int:
        return sum(map(len_of, chain.from_iterable(self.of)))

    def save(self) -> State:
        return {
            "of": [[list(packet) for entry in entries for packet in _packets(entry)] for entries in self.of],
            "have": [[at, *counts] for at, counts in sorted(self.have.items())],
            "unheard": sorted(self.unheard),
            "wants": [[peer, *sorted(members)] for peer, members in sorted(self._wants.items())],
            "untold": self.untold,
        }

    def restore(self, state: State, packet_of: Callable[..., Packet]) -> None:
        """`packet_of(*fields)` makes the protocol's packet."""
        for fields in chain.from_iterable(state["of"]):  # earlier releases kept them in the order of arrival
            self.add(_packet(fields, packet_of))
        self.untold = state.get("untold", 0)
        self.have = {at: tuple(counts) for at, *counts in state["have"]}
        self.unheard = set(state["unheard"])
        for peer, *members in state["wants"]:
            self.wants(peer, tuple(members))


def _number(entry: Entry) -> int:
    """Its place among those of its origin: the last number; that of a mark is negative."""
    number: int = entry[1]
    return abs(number)


def _first(entry: Entry) -> int:
    return entry.first if isinstance(entry, Span) else _number(entry)


def _follow(packets: list[Packet]) -> bool:
    """Whether each number is one more than that before."""
    numbers = [packet[1] for packet in packets]
    return numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def _packets(entry: Entry) -> list[Packet]:
    return entry.packets() if isinstance(entry, Span) else [entry]


def _drop_oldest(kept: list[Entry], count: int) -> None:
    """Forget that many messages."""
    while count > 0:
        entry = kept.pop(0)
        if isinstance(entry, Span) and count < len_of(entry):
            kept.insert(0, entry.after(entry.first + count - 1))
        count -= len_of(entry)


def _trim(kept: list[Entry]) -> int:
    """Forget the oldest while the payloads have too many bytes; returns no less than what the rest has."""
    bytes_max = sum(entry.bytes_max if isinstance(entry, Span) else len(entry[-1]) for entry in kept)
    if bytes_max <= KEPT_BYTES:
        return bytes_max
    sizes = [len(packet[-1]) for entry in kept for packet in _packets(entry)]
    size_bytes = sum(sizes)
    dropped = 0
    while size_bytes > KEPT_BYTES:
        size_bytes -= sizes[dropped]
        dropped += 1
    _drop_oldest(kept, dropped)
    return size_bytes


def _packet(fields: list[Any], packet_of: Callable[..., Packet]) -> Packet:
    return packet_of(*(tuple(each) if isinstance(each, list | tuple) else each for each in fields))
