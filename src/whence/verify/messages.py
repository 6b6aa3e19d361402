"""The messages of a run, the message that each event speaks of, and the events that make no sense.

A message is identified by (origin, number) and begins with the first BROADCAST row at its origin. Its `rank`
is its place among its origin's broadcasts, from 1: the verifier orders messages by rank, never by number, so
that it stays exact when numbers have holes (which it reports).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from whence.trace.schema import LATER_LIVES, Kind
from whence.verify.kernels import BROADCAST, Array
from whence.verify.load import CHUNK, UNREADABLE, RunEvents, places_of

NEVER_BROADCAST = "it expires a message that was never broadcast"


class Messages(NamedTuple):
    """All messages of a run, ordered by (origin, rank)."""

    node: Array  # the origin, as an index into the names
    number: Array
    event: Array  # its broadcast
    rank: Array
    starts: Array  # the messages of node i are starts[i] : starts[i + 1]
    column: Array  # the origins that broadcast anything are numbered densely: the columns of a vector
    column_of_node: Array  # -1 for a node that broadcasts nothing
    to: Array  # the one node that it is for, -1 for every node

    @property
    def total(self) -> int:
        """How many messages were broadcast."""
        return len(self.node)

    @property
    def columns(self) -> int:
        """How many nodes broadcast anything."""
        return int(self.column[-1]) + 1 if len(self.column) else 0


class Ends(NamedTuple):
    """Deliveries and expiries with their messages."""

    message_limit: int  # above every message's index; from messages.total on: delivered, but never broadcast
    delivers: Array  # per event: a delivery that names a message
    # Per event: such a delivery, or an expiry of a message that was broadcast; where nothing expires this is
    # the same array.
    ends: Array


class PlacedEvents(NamedTuple):
    """Every event with its message."""

    messages: Messages
    message: Array  # per event; -1 for none; from messages.total on: delivered, but never broadcast
    message_limit: int  # above every value in `message`
    action: Array  # BROADCAST, where a message begins; the rest is for the caller to fill in
    delivers: Array  # see `Ends`
    ends: Array
    malformed: list[tuple[int, str]]  # (event, what is wrong with it), by event


def place(events: RunEvents) -> PlacedEvents:
    """Build the table of messages and look up every event's message."""
    malformed: list[tuple[int, str]] = []
    messages = find_broadcasts(events, malformed)
    total = len(events.kind)
    action = np.zeros(total, dtype=np.int8)
    action[messages.event] = BROADCAST
    message = np.full(total, -1, dtype=np.int32)
    message[messages.event] = np.arange(messages.total, dtype=np.int32)
    found = place_ends(NumberIndex(messages), events, events.node_of, message, malformed)
    malformed.sort()
    return PlacedEvents(messages, message, found.message_limit, action, found.delivers, found.ends, malformed)


class Columns(Protocol):
    """The columns that are needed to place events: those of a run, or of a part of it."""

    @property
    def kind(self) -> Array: ...
    @property
    def origin(self) -> Array: ...
    @property
    def number(self) -> Array: ...


def place_ends(
    index: NumberIndex,
    events: Columns,
    node_of: Callable[[Array], Array],
    message: Array,
    malformed: list[tuple[int, str]],
) -> Ends:
    """Fill in the `message` of every delivery and expiry; what makes no sense goes to `malformed`."""
    messages = index.messages
    delivers = events.kind == Kind.DELIVER
    expiries = places_of(events.kind, Kind.EXPIRE)
    ends = delivers.copy() if len(expiries) else delivers
    ends[expiries] = True
    unsure = _guess(index, events, ends, message)
    limit = messages.total
    if len(unsure):
        limit = _look_closer(index, events, unsure, delivers, ends, message, malformed)
    if index.addressed:
        _set_aside_misplaced(messages, node_of, message, delivers, ends, malformed)
    return Ends(limit, delivers, ends)


def find_broadcasts(events: RunEvents, malformed: list[tuple[int, str]]) -> Messages:
    """The table of messages; what is wrong with BROADCAST rows goes to `malformed`."""
    at = places_of(events.kind, Kind.BROADCAST)
    node = events.node_of(at)
    foreign = events.origin[at] != node
    if foreign.any():
        malformed += [(int(event), "a node broadcasts a message of another origin") for event in at[foreign]]
        at, node = at[~foreign], node[~foreign]
    again = _repeated(node, events.number[at])
    if again.any():
        malformed += [(int(event), "the same message is broadcast a second time") for event in at[again]]
        at, node = at[~again], node[~again]
    number = events.number[at].astype(np.int64)
    starts = np.searchsorted(node, np.arange(len(events.names) + 1)).astype(np.int32)
    rank = np.arange(1, len(at) + 1, dtype=np.int32) - starts[node]
    expected = np.where(rank == 1, 0, np.roll(number, 1)) + 1
    for event in np.flatnonzero(number != expected):
        first = events.offsets[node[event]] if rank[event] == 1 else at[event - 1]
        is_restarted = (events.kind[first : at[event]] == Kind.RESTART).any()
        if number[event] < expected[event] or not (is_restarted or number[event] > LATER_LIVES):
            why = f"this node's next broadcast should have number {expected[event]}"
            malformed.append((int(at[event]), why))
    to = events.to[at].astype(np.int32) if len(events.to) else np.full(len(at), -1, dtype=np.int32)
    for which in np.flatnonzero((to >= 0) & ~events.is_node[to]):
        malformed.append((int(at[which]), "it is sent to a node that is not there"))
    if events.timing is not None:
        unreadable = at[events.timing.lifetime_us[at] == UNREADABLE]
        malformed += [(int(event), "its lifetime is not a number of microseconds") for event in unreadable]
    broadcasting = np.diff(starts) > 0
    column_of_node = np.where(broadcasting, np.cumsum(broadcasting) - 1, -1).astype(np.int32)
    return Messages(
        node=node,
        number=number,
        event=at,
        rank=rank,
        starts=starts,
        column=column_of_node[node],
        column_of_node=column_of_node,
        to=to,
    )


def _guess(index: NumberIndex, events: Columns, ends: Array, message: Array) -> Array:
    """Fill in the message of deliveries and expiries where numbers are dense; returns the events left over.

    In chunks that stay in the processor's cache: temporary arrays over all events would cost more than the
    work itself.
    """
    messages = index.messages
    if messages.total == 0:
        return np.flatnonzero(ends)
    before, count = messages.starts - 1, index.count
    unsure: list[Array] = []
    for low in range(0, len(ends), CHUNK):
        part = slice(low, low + CHUNK)
        origin, number = events.origin[part], events.number[part]
        right = (number > 0) & (number <= count[origin]) & ends[part]
        guess = before[origin] + number
        if not index.dense:
            right &= messages.number[np.where(right, guess, 0)] == number
        np.copyto(message[part], guess, where=right, casting="unsafe")
        unsure.append(low + np.flatnonzero(ends[part] & ~right))
    return np.concatenate(unsure) if unsure else np.empty(0, dtype=np.int64)


def _look_closer(
    index: NumberIndex, events: Columns, at: Array, delivers: Array, ends: Array, message: Array,
    malformed: list[tuple[int, str]],
) -> int:  # fmt: skip
    """Place the events `at`, whose number was no help; returns the limit of message indices."""
    messages = index.messages
    nameless = events.origin[at] < 0
    malformed += [(int(event), "it names no message") for event in at[nameless]]
    delivers[at[nameless]] = ends[at[nameless]] = False
    at = at[~nameless]
    found = index.search(events.origin[at], events.number[at])
    expired = at[(found < 0) & ~delivers[at]]
    malformed += [(int(event), NEVER_BROADCAST) for event in expired]
    ends[expired] = False
    created = (found < 0) & delivers[at]
    ids = np.stack([events.origin[at[created]].astype(np.int64), events.number[at[created]]])
    distinct, which = np.unique(ids, axis=1, return_inverse=True)
    found[created] = messages.total + which.reshape(-1)
    message[at] = found
    return messages.total + int(distinct.shape[1])


def _set_aside_misplaced(
    messages: Messages, node_of: Callable[[Array], Array], message: Array, delivers: Array, ends: Array,
    malformed: list[tuple[int, str]],
) -> None:  # fmt: skip
    """A message with a destination ends there and nowhere else; what it does elsewhere counts for nothing."""
    at = np.flatnonzero(ends & (message >= 0) & (message < messages.total))
    to = messages.to[message[at]]
    wrong = at[(to >= 0) & (to != node_of(at))]
    malformed += [(int(event), "it ends at a node that it was not sent to") for event in wrong]
    delivers[wrong] = ends[wrong] = False


def _repeated(node: Array, number: Array) -> Array:
    """Flag the (node, number) pairs that were there before."""
    again = np.zeros(len(node), dtype=bool)
    ascending = (np.diff(number) > 0) | (np.diff(node) != 0)
    if not ascending.all():  # otherwise there are none: the usual case
        order = np.lexsort((np.arange(len(node)), number, node))
        same = (np.diff(node[order]) == 0) & (np.diff(number[order]) == 0)
        again[order[1:][same]] = True
    return again


class NumberIndex:
    """Finds messages by (origin, number) where numbers are not dense; sorted when it is first needed."""

    def __init__(self, messages: Messages) -> None:
        self.messages = messages
        self.addressed = bool((messages.to >= 0).any())  # some messages are for one node only
        self.dense = bool((messages.number == messages.rank).all())  # the usual case: 1, 2, 3 ...
        self.count = np.append(np.diff(messages.starts), np.int32(0))  # of each origin; the last: of no name

    @cached_property
    def _sorted(self) -> tuple[Array, Array, Array]:
        messages = self.messages
        distinct = np.unique(messages.number)
        keys = messages.node.astype(np.int64) * len(distinct) + np.searchsorted(distinct, messages.number)
        order = np.argsort(keys, kind="stable")
        return distinct, keys[order], order

    def search(self, origin: Array, number: Array) -> Array:
        """The index of each (origin, number) among the messages; -1 where there is no such message."""
        if self.messages.total == 0:
            return np.full(len(origin), -1, dtype=np.int32)
        distinct, keys, order = self._sorted
        place_of_number = np.minimum(np.searchsorted(distinct, number), len(distinct) - 1)
        wanted = origin.astype(np.int64) * len(distinct) + place_of_number
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        hit = (keys[at] == wanted) & (distinct[place_of_number] == number)
        return np.where(hit, order[at], -1).astype(np.int32)
