"""Contact plans: which nodes can talk to each other, and when.

In an opportunistic network two nodes exchange messages only while they are within radio range. A plan holds

    nodes      names; everything else names a node by its place in this tuple
    contacts   (a, b, start_us, stop_us), a < b: the pair is linked from start_us until stop_us
    presence   (node, start_us, stop_us): the node is present; nodes enter and leave (churn)
    stop_us    the end of the plan; it begins at 0

    plan = make_plan(["ann", "bob", "eve"], [(1, 0, 5_000_000, 9_000_000), (1, 2, 7_000_000, 8_000_000)])
    plan.contacts[0]          Contact(a=0, b=1, start_us=5000000, stop_us=9000000)
    plan.contacts.start_us    the column, as array('q'): numpy.frombuffer reads it without a copy
    plan.sha256               the same for equal plans, on every machine

A plan that exists is in order: contacts sorted by (start_us, a, b), those of one pair neither overlapping nor
touching; presence sorted by (start_us, node), likewise; every contact within a presence of both its nodes.

A contact with start_us == stop_us is an *instant*: real traces have them, where a device was seen by one scan
only. Nothing can be sent in it. `lasting` gives instants a length, where one knows the time between scans.
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import starmap
from typing import Generic, NamedTuple, TypeAlias, TypeVar, overload

from whence.errors import ContactPlanError

TIME_US_MAX = 2**62  # sums and differences of two times stay within 64 bits
_FIX_TIMES = "Times are microseconds from the plan's begin, start <= stop <= the plan's stop_us"


class Contact(NamedTuple):
    """Nodes a and b (a < b) are linked from start_us until stop_us."""

    a: int
    b: int
    start_us: int
    stop_us: int


class Presence(NamedTuple):
    """A node is present from start_us until stop_us."""

    node: int
    start_us: int
    stop_us: int


class ChangeKind(IntEnum):
    """The kinds of changes in a plan."""

    DOWN = 0
    LEAVE = 1
    ENTER = 2
    UP = 3


class Change(NamedTuple):
    """One thing that happens; for ENTER and LEAVE `b` is -1."""

    time_us: int
    kind: ChangeKind
    a: int
    b: int


Row = TypeVar("Row", Contact, Presence)
Quad: TypeAlias = tuple[int, int, int, int]


class _Rows(Sequence[Row], Generic[Row]):
    """Rows kept as columns: 8 bytes a number, where a list of tuples needs five times that."""

    __slots__ = ("_make", "columns")

    def __init__(self, make: Callable[..., Row], columns: tuple[array[int], ...]) -> None:
        self._make: Callable[..., Row] = make
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns[0])

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            return list(starmap(self._make, zip(*(column[index] for column in self.columns), strict=True)))
        row: Row = self._make(*(column[index] for column in self.columns))
        return row

    def __iter__(self) -> Iterator[Row]:
        return starmap(self._make, zip(*self.columns, strict=True))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Rows) and self.columns == other.columns

    __hash__ = None  # type: ignore[assignment]  # columns can be changed, so they must not be keys

    def __repr__(self) -> str:
        return f"<{len(self)} rows>"


class ContactRows(_Rows[Contact]):
    """The contacts of a plan, as a sequence and as columns."""

    def __init__(self, columns: tuple[array[int], ...]) -> None:
        super().__init__(Contact, columns)

    @property
    def a(self) -> array[int]:
        """The lower node of each."""
        return self.columns[0]

    @property
    def b(self) -> array[int]:
        """The higher node of each."""
        return self.columns[1]

    @property
    def start_us(self) -> array[int]:
        """When each begins."""
        return self.columns[2]

    @property
    def stop_us(self) -> array[int]:
        """When each ends."""
        return self.columns[3]


class PresenceRows(_Rows[Presence]):
    """The presence intervals of a plan, as a sequence and as columns."""

    def __init__(self, columns: tuple[array[int], ...]) -> None:
        super().__init__(Presence, columns)

    @property
    def node(self) -> array[int]:
        """Whose it is."""
        return self.columns[0]

    @property
    def start_us(self) -> array[int]:
        """When each begins."""
        return self.columns[1]

    @property
    def stop_us(self) -> array[int]:
        """When each ends."""
        return self.columns[2]


@dataclass(frozen=True, eq=False)
class ContactPlan:
    """A plan in order; made by `make_plan`, never by hand."""

    nodes: tuple[str, ...]
    contacts: ContactRows
    presence: PresenceRows
    stop_us: int
    joined: int  # contacts that were given, and are now part of another of the same pair

    @cached_property
    def sha256(self) -> str:
        """A digest of nodes, contacts, presence and end."""
        digest = hashlib.sha256(f"whence contact plan 1 {self.stop_us} {len(self.nodes)}\n".encode())
        for name in self.nodes:
            encoded = name.encode()
            digest.update(f"{len(encoded)}:".encode() + encoded)
        for column in (*self.contacts.columns, *self.presence.columns):
            digest.update(f"\n{len(column)} ".encode())
            digest.update(_little_endian(column))
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ContactPlan) and self.sha256 == other.sha256

    def __hash__(self) -> int:
        return hash(self.sha256)

    def changes(self) -> list[Change]:
        """All that happens, in order.

        At one instant links go down, nodes leave, nodes enter, links come up, and last an instant's link goes
        down again: so a link is never up at a node that is away.
        """
        rows: list[tuple[int, int, int, int]] = []
        for a, b, start_us, stop_us in self.contacts:
            rows.append((start_us, ChangeKind.UP, a, b))
            rows.append((stop_us, ChangeKind.DOWN if start_us < stop_us else 4, a, b))
        for node, start_us, stop_us in self.presence:
            rows.append((start_us, ChangeKind.ENTER, node, -1))
            rows.append((stop_us, ChangeKind.LEAVE, node, -1))
        rows.sort()
        return [Change(at_us, ChangeKind(rank % 4), a, b) for at_us, rank, a, b in rows]

    def lasting(self, least_us: int) -> ContactPlan:
        """The same plan with every contact at least `least_us` long, as far as both nodes stay."""
        until = _Stays(self.presence, len(self.nodes)).until
        rows = (
            (a, b, start_us, max(stop_us, min(start_us + least_us, until(a, start_us), until(b, start_us))))
            for a, b, start_us, stop_us in self.contacts
        )
        return make_plan(self.nodes, rows, self.presence, self.stop_us)

    def between(self, start_us: int, stop_us: int) -> ContactPlan:
        """The part from `start_us` until `stop_us`, as a separate plan that begins at 0."""
        if not 0 <= start_us < stop_us:
            raise ContactPlanError("between", f"{start_us} .. {stop_us} is not a span of time", _FIX_TIMES)
        contacts = (
            (a, b, max(low, start_us) - start_us, min(high, stop_us) - start_us)
            for a, b, low, high in self.contacts
            if low < stop_us and (high > start_us or low == high == start_us)
        )
        presence = (
            (node, max(low, start_us) - start_us, min(high, stop_us) - start_us)
            for node, low, high in self.presence
            if low < stop_us and high > start_us
        )
        return make_plan(self.nodes, contacts, presence, stop_us - start_us)


def make_plan(
    nodes: Iterable[str],
    contacts: Iterable[Sequence[int]],
    presence: Iterable[Sequence[int]] | None = None,
    stop_us: int | None = None,
) -> ContactPlan:
    """Put a plan in order, or raise `ContactPlanError` that names the row and the reason.

    `contacts` are rows (node, node, start_us, stop_us), `presence` rows (node, start_us, stop_us), in any
    order; what overlaps or touches is joined. Without `presence` every node is there all the time; without
    `stop_us` the plan ends with its last row.
    """
    names = _names(nodes)
    met, joined = _joined(_checked(contacts, "contact", len(names), stop_us))
    end_us = stop_us
    if presence is None:
        if end_us is None:  # an instant at the very end is still within the plan
            end_us = max((max(row[3], row[2] + 1) for row in met), default=0)
        stays = [(node, node, 0, end_us) for node in range(len(names))] if end_us else []
    else:
        pairs = ((node, node, start_us, last_us) for node, start_us, last_us in presence)
        stays, _ = _joined(_checked(pairs, "presence", len(names), stop_us))
        if end_us is None:
            end_us = max((row[3] for row in (*met, *stays)), default=0)
    columns = _columns(((row[0], row[2], row[3]) for row in stays), 3)
    plan = ContactPlan(names, ContactRows(_columns(met, 4)), PresenceRows(columns), end_us, joined)
    if presence is not None or stop_us is not None:
        _check_presence(plan)
    return plan


def _names(nodes: Iterable[str]) -> tuple[str, ...]:
    names = tuple(nodes)
    seen: set[str] = set()
    for at, name in enumerate(names):
        if not isinstance(name, str) or not name:
            raise ContactPlanError(f"node {at}", f"its name is {name!r}", "Names are texts, not empty")
        if name in seen:
            raise ContactPlanError(f"node {at}", f"the name {name!r} is taken", "Give each node its own")
        seen.add(name)
    return names


def _checked(rows: Iterable[Sequence[int]], what: str, count: int, stop_us: int | None) -> Iterator[Quad]:
    """The rows with the lower node first; the first impossible one raises."""
    last_us = TIME_US_MAX if stop_us is None else min(stop_us, TIME_US_MAX)
    for at, (one, other, start_us, end_us) in enumerate(rows):
        if not (0 <= one < count and 0 <= other < count):
            wrong = other if 0 <= one < count else one
            raise ContactPlanError(
                f"{what} {at}", f"there is no node {wrong} among {count}", "Name nodes by their place, from 0"
            )
        if (one == other) != (what == "presence"):
            raise ContactPlanError(f"{what} {at}", f"node {one} meets itself", "Leave such rows out")
        if not 0 <= start_us <= end_us <= last_us:
            limit = "" if stop_us is None else f" in a plan that ends at {stop_us}"
            raise ContactPlanError(f"{what} {at}", f"it lasts from {start_us} to {end_us}{limit}", _FIX_TIMES)
        if what == "presence" and start_us == end_us:
            raise ContactPlanError(f"{what} {at}", f"node {one} stays for no time at all", "Leave it out")
        yield (one, other, start_us, end_us) if one < other else (other, one, start_us, end_us)


def _joined(rows: Iterable[Quad]) -> tuple[list[Quad], int]:
    """Rows by start, with those of one pair joined where they overlap or touch, and how many vanished."""
    ordered = sorted(rows, key=lambda row: (row[2], row[0], row[1]))
    last: dict[tuple[int, int], int] = {}  # pair -> place of its newest row
    kept: list[Quad] = []
    for a, b, start_us, stop_us in ordered:
        place = last.get((a, b))
        if place is not None and start_us <= kept[place][3]:
            kept[place] = (a, b, kept[place][2], max(stop_us, kept[place][3]))
        else:
            last[a, b] = len(kept)
            kept.append((a, b, start_us, stop_us))
    return kept, len(ordered) - len(kept)


def _columns(rows: Iterable[tuple[int, ...]], width: int) -> tuple[array[int], ...]:
    turned = list(zip(*rows, strict=True)) or [()] * width
    return tuple(array("q", column) for column in turned)


class _Stays:
    """Until when a node stays, looked up by time."""

    def __init__(self, presence: Iterable[Sequence[int]], count: int) -> None:
        self._starts: list[list[int]] = [[] for _ in range(count)]
        self._stops: list[list[int]] = [[] for _ in range(count)]
        for node, start_us, stop_us in presence:
            self._starts[node].append(start_us)
            self._stops[node].append(stop_us)

    def until(self, node: int, at_us: int) -> int:
        """The end of the stay that `at_us` falls into; -1 if the node is away then."""
        place = bisect_right(self._starts[node], at_us) - 1
        if place < 0 or self._stops[node][place] <= at_us:
            return -1
        return self._stops[node][place]


def _check_presence(plan: ContactPlan) -> None:
    stays = _Stays(plan.presence, len(plan.nodes))
    for at, (a, b, start_us, stop_us) in enumerate(plan.contacts):
        for node in (a, b):
            if stays.until(node, start_us) < max(stop_us, start_us + 1):
                raise ContactPlanError(
                    f"contact {at} of {plan.nodes[a]!r} and {plan.nodes[b]!r}",
                    f"it lasts from {start_us} to {stop_us}, and {plan.nodes[node]!r} is away then",
                    "Cut contacts to the time that both nodes are present",
                )


def _little_endian(column: array[int]) -> bytes:
    if sys.byteorder == "little":
        return column.tobytes()
    turned = array("q", column)
    turned.byteswap()
    return turned.tobytes()
