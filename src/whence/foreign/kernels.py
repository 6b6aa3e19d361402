"""The inner loops of the judge: plain Python over numpy arrays, compiled by numba for large logs.

There is one source: `choose_kernels` gives these functions through `numba.njit` or as they stand, by the size
of the log. Graphs are in compressed rows: the successors of node n are `to[first[n] : first[n + 1]]`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from whence.foreign.model import Array

COMPILED_NODES = 200_000  # below this, loading numba takes longer than running without it
NEVER = (1 << 63) - 1


def lower(row: Array, other: Array) -> None:
    """Lower each entry of `row` to that of `other` where that is less."""
    np.minimum(row, other, out=row)


def peel(first: Array, to: Array, waiting: Array, order: Array) -> int:
    """Put nodes into `order`, each after all its predecessors; returns how many could be.

    `waiting` has the number of predecessors of each node. The rest stands in a circle, or behind one.
    """
    count = 0
    for node in range(waiting.shape[0]):
        if waiting[node] == 0:
            order[count] = node
            count += 1
    at = 0
    while at < count:
        node = order[at]
        at += 1
        for edge in range(first[node], first[node + 1]):
            other = to[edge]
            waiting[other] -= 1
            if waiting[other] == 0:
                order[count] = other
                count += 1
    return count


def find_late(
    order: Array, first: Array, to: Array, message: Array, delivery_first: Array, column: Array, start: Array,
    end: Array, low: int, table: Array, late: Array,
) -> None:  # fmt: skip
    """Flag every delivery that starts after one ended, in the same scope, of a message sent causally later.

    A column is a scope. Against the order of causality each node gets a row of `table`: the earliest end, per
    scope, of a delivery of any message sent at this node or after it. `message[n]` is the message that node n
    sends (or -1); message m's first deliveries are `delivery_first[m] : delivery_first[m + 1]`. This call
    looks at the scopes `low` to `low + width` only: scopes are independent.
    """
    width = table.shape[1]
    for at in range(order.shape[0] - 1, -1, -1):
        node = order[at]
        row = table[node]
        row[:] = NEVER
        for edge in range(first[node], first[node + 1]):
            lower(row, table[to[edge]])
        which = message[node]
        if which < 0:
            continue
        for each in range(delivery_first[which], delivery_first[which + 1]):
            place = column[each] - low
            if 0 <= place < width:
                if row[place] < start[each]:
                    late[each] = True
                row[place] = min(row[place], end[each])


def find_overtaken(
    group_first: Array, sent: Array, sent_end: Array, start: Array, end: Array, least: Array, late: Array
) -> None:
    """Flag every delivery that starts after one ended, in the same group, of a message sent later there.

    Deliveries of one group (a scope and a channel) stand together, in the order of `sent`. A message is
    later than another if its `sent` is after the other's `sent_end`. `least` is scratch.
    """
    for group in range(group_first.shape[0] - 1):
        low, high = group_first[group], group_first[group + 1]
        so_far = NEVER
        for each in range(high - 1, low - 1, -1):
            so_far = min(so_far, end[each])
            least[each] = so_far
        for each in range(low, high):
            left, right = each, high
            while left < right:
                middle = (left + right) // 2
                if sent[middle] > sent_end[each]:
                    right = middle
                else:
                    left = middle + 1
            if left < high and least[left] < start[each]:
                late[each] = True


class RankState(NamedTuple):
    """What `scan_ranks` keeps between two calls: by lane (a session and a channel), group and channel."""

    rank: Array  # by lane: the rank that is being looked at,
    here: Array  # the earliest place of a delivery at this rank,
    above: Array  # the earliest one at a higher rank,
    above_rank: Array  # and which that was
    late: Array  # how many came too late, and of the earliest of them
    late_pos: Array
    late_rank: Array
    late_key: Array
    late_top: Array
    seen: Array  # by group: the number of the message that it had last
    grouped: Array  # its deliveries
    again: Array  # how many came again, and of the last of them
    again_rank: Array
    again_key: Array
    firsts: Array  # by channel: first deliveries, and the lowest and highest rank
    lowest: Array
    highest: Array
    rows: Array  # one number each: rows,
    messages: Array  # messages,
    mixed: Array  # rows of a message that name another channel than its first row


def fresh_ranks(lanes: int, groups: int, channels: int) -> RankState:
    """The state before the first row."""

    def full(size: int, value: int = 0) -> Array:
        return np.full(size, value, dtype=np.int64)

    return RankState(
        rank=full(lanes, NEVER), here=full(lanes, NEVER), above=full(lanes, NEVER), above_rank=full(lanes),
        late=full(lanes), late_pos=full(lanes, NEVER), late_rank=full(lanes), late_key=full(lanes),
        late_top=full(lanes), seen=full(groups), grouped=full(groups), again=full(groups),
        again_rank=full(groups), again_key=full(groups), firsts=full(channels), lowest=full(channels, NEVER),
        highest=full(channels, -NEVER), rows=full(1), messages=full(1), mixed=full(1),
    )  # fmt: skip


def scan_ranks(
    rank: Array, pos: Array, key: Array, stem: Array, lane: Array, group: Array, channel: Array, s: RankState
) -> None:
    """Look at deliveries by rank, the highest first; those of a message and a lane together, by place.

    A message is a stem and a rank. `stem`, `lane`, `group` and `channel` are by key; -1: none.
    """
    first = channel_now = lane_now = -1
    for row in range(rank.shape[0]):
        this = key[row]
        begins = row == 0 or rank[row] != rank[row - 1] or stem[this] != stem[first]
        if begins:
            s.messages[0] += 1
            first, channel_now, lane_now = this, channel[this], -1
        elif channel[this] != channel_now:
            s.mixed[0] += 1
        mine = group[this]
        if mine >= 0:
            s.grouped[mine] += 1
            if s.seen[mine] == s.messages[0]:
                s.again[mine] += 1
                s.again_rank[mine], s.again_key[mine] = rank[row], this
            s.seen[mine] = s.messages[0]
        at = lane[this]
        if at >= 0 and at != lane_now:
            lane_now = at
            s.firsts[channel_now] += 1
            s.lowest[channel_now] = min(s.lowest[channel_now], rank[row])
            s.highest[channel_now] = max(s.highest[channel_now], rank[row])
            if s.rank[at] != rank[row]:
                if s.here[at] < s.above[at]:
                    s.above[at], s.above_rank[at] = s.here[at], s.rank[at]
                s.rank[at], s.here[at] = rank[row], NEVER
            if s.above[at] < pos[row]:
                s.late[at] += 1
                if pos[row] < s.late_pos[at]:
                    s.late_pos[at], s.late_rank[at] = pos[row], rank[row]
                    s.late_key[at], s.late_top[at] = this, s.above_rank[at]
            s.here[at] = min(s.here[at], pos[row])
    s.rows[0] += rank.shape[0]


class AuditKernels(NamedTuple):
    """The loops, compiled or not."""

    peel: Callable[..., int]
    find_late: Callable[..., None]
    find_overtaken: Callable[..., None]
    scan_ranks: Callable[..., None]


def plain() -> AuditKernels:
    """The loops as they stand: no start-up cost."""
    return AuditKernels(peel, find_late, find_overtaken, scan_ranks)


@cache
def compiled() -> AuditKernels | None:
    """The loops through numba, kept on disk between processes; None where numba is not installed."""
    try:
        from numba import njit
        from numba.extending import overload
    except ImportError:
        return None

    def lower_compiled(row: Array, other: Array) -> Callable[[Array, Array], None]:
        def loop(row: Array, other: Array) -> None:  # numba knows no `out=`, but makes this SIMD
            for column in range(row.shape[0]):
                row[column] = min(row[column], other[column])

        return loop

    overload(lower)(lower_compiled)
    kept: Any = njit(cache=True)
    fresh: Any = njit()
    try:
        return AuditKernels(*map(kept, plain()))
    except RuntimeError:  # numba finds no folder that it may write to: compile anew in every process
        return AuditKernels(*map(fresh, plain()))


def choose_kernels(nodes: int) -> AuditKernels:
    """The compiled loops where they are loaded already or will pay for being loaded, else the plain ones."""
    wanted = nodes >= COMPILED_NODES or compiled.cache_info().currsize > 0
    return (compiled() if wanted else None) or plain()
