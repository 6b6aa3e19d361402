"""VCube's kernel: when a message is passed on, and when it is delivered (protocols/vcube.py)."""

from __future__ import annotations

from whence.kernels import vcube_arrays as a
from whence.kernels.compile import inlined
from whence.kernels.vcube_arrays import State
from whence.kernels.vcube_network import DELIVER, DELIVERIES, message_event, tally_delivery

# Pending messages


@inlined
def _pend(s: State, node: int, message: int, now_us: int) -> int:
    counters, pending = s.counters, s.pending
    entry = counters[a.PENDING_FREE]
    if entry >= 0:
        counters[a.PENDING_FREE] = pending[entry, a.P_NEXT]
        counters[a.PENDING_FREED] -= 1
    else:
        entry = counters[a.PENDING_USED]
        counters[a.PENDING_USED] += 1
    pending[entry, a.P_MESSAGE] = message
    pending[entry, a.P_ORDER] = s.nodes[node, a.ARRIVALS]
    pending[entry, a.P_SINCE_US] = now_us
    pending[entry, a.P_LEVEL] = 0
    pending[entry, a.P_HELD] = 0
    if s.settings[a.REPEATED]:
        s.place[node, message] = entry
    return int(entry)


@inlined
def _forget(s: State, node: int, entry: int) -> None:
    """It is neither held nor blocked any more."""
    if s.settings[a.REPEATED]:
        s.place[node, s.pending[entry, a.P_MESSAGE]] = -1
    s.pending[entry, a.P_NEXT] = s.counters[a.PENDING_FREE]
    s.counters[a.PENDING_FREE] = entry
    s.counters[a.PENDING_FREED] += 1


@inlined
def _sort_woken(s: State, count: int, column: int) -> None:
    """Sort WOKEN by a column of `pending`.

    The lists run from the newest to the oldest, so turned around they are nearly in order.
    """
    pending, woken = s.pending, s.scratch[a.WOKEN]
    for at in range(count // 2):
        woken[at], woken[count - 1 - at] = woken[count - 1 - at], woken[at]
    for at in range(1, count):
        entry = woken[at]
        place = at
        while place > 0 and pending[woken[place - 1], column] > pending[entry, column]:
            woken[place] = woken[place - 1]
            place -= 1
        woken[place] = entry


# CheckAgg (lines 18-21 and 23-28; rules 3 and 4)


@inlined
def check_aggregation(s: State, node: int, message: int, has_advanced: bool, now_us: int) -> tuple[int, int]:
    """Find what the message unblocks: answers how many are in FREED, and its own row if it is blocked."""
    origin = s.messages[message, a.ORIGIN]
    top = int(s.heights[node, origin])
    level, member, number = _level(s, node, message)
    entry = -1
    if level:
        entry = _pend(s, node, message, now_us)
        _block(s, node, entry, level, member, number)
    count = 0
    if has_advanced and s.heads[node, origin, a.BLOCKED] >= 0:
        for at in range(_wake_blocked(s, node, origin)):
            each = s.scratch[a.WOKEN, at]
            before = s.pending[each, a.P_LEVEL]
            s.pending[each, a.P_LEVEL] = 0
            s.nodes[node, a.BLOCKED_NOW] -= 1
            level_now, member, number = _level(s, node, s.pending[each, a.P_MESSAGE])
            if level_now < before:
                order = s.pending[each, a.P_ORDER]
                _free(s, count, s.pending[each, a.P_MESSAGE], level_now, before, order)
                count += 1
            if level_now:
                _block(s, node, each, level_now, member, number)
            elif not s.pending[each, a.P_HELD]:
                _forget(s, node, each)
    if level < top:
        _free(s, count, message, level, top, s.nodes[node, a.ARRIVALS])
        count += 1
    return count, entry


@inlined
def _free(s: State, count: int, message: int, low: int, stop: int, order: int) -> None:
    """Add a message to FREED, which is kept in order of arrival."""
    scratch = s.scratch
    place = count
    while place > 0 and scratch[a.FREED_ORDER, place - 1] > order:
        for row in range(a.FREED, a.FREED_ORDER + 1):
            scratch[row, place] = scratch[row, place - 1]
        place -= 1
    scratch[a.FREED, place] = message
    scratch[a.FREED_LOW, place] = low
    scratch[a.FREED_STOP, place] = stop
    scratch[a.FREED_ORDER, place] = order


@inlined
def _block(s: State, node: int, entry: int, level: int, member: int, number: int) -> None:
    s.nodes[node, a.BLOCKED_NOW] += 1
    s.pending[entry, a.P_LEVEL] = level
    s.pending[entry, a.P_MEMBER] = member
    s.pending[entry, a.P_COUNT] = number
    s.pending[entry, a.P_NEXT] = s.heads[node, member, a.BLOCKED]
    s.heads[node, member, a.BLOCKED] = entry


@inlined
def _wake_blocked(s: State, node: int, origin: int) -> int:
    """Take out into WOKEN whose watched dependency has come; answers how many."""
    pending, heads = s.pending, s.heads[node, origin]
    have = s.counts[node, origin, a.RECEIVED]
    entry = int(heads[a.BLOCKED])
    heads[a.BLOCKED] = -1
    count = 0
    while entry >= 0:
        following = pending[entry, a.P_NEXT]
        if pending[entry, a.P_COUNT] <= have:
            s.scratch[a.WOKEN, count] = entry
            count += 1
        else:
            pending[entry, a.P_NEXT] = heads[a.BLOCKED]
            heads[a.BLOCKED] = entry
        entry = following
    # By message, that is by (origin, number): a level builds on that of the message before.
    _sort_woken(s, count, a.P_MESSAGE if s.settings[a.REPEATED] else a.P_ORDER)
    return count


@inlined
def _level(s: State, node: int, message: int) -> tuple[int, int, int]:
    """B(p), as far as it concerns p's own children, and the dependency that sets it."""
    heights, counts, dependencies = s.heights[node], s.counts[node], s.dependencies
    origin = s.messages[message, a.ORIGIN]
    top = int(heights[origin])
    if top == 0:
        return 0, -1, -1
    previous = s.messages[message, a.NUMBER] - 1
    if counts[origin, a.RECEIVED] < previous:
        return top, int(origin), int(previous)
    level, member, number = 0, -1, -1
    if s.settings[a.REPEATED] and previous > 0:
        entry = int(s.place[node, message - 1])
        if entry >= 0 and s.pending[entry, a.P_LEVEL] > 0:
            level = int(s.pending[entry, a.P_LEVEL])
            member, number = int(s.pending[entry, a.P_MEMBER]), int(s.pending[entry, a.P_COUNT])
    start = s.messages[message, a.FIRST_DEPENDENCY]
    for at in range(start, start + s.messages[message, a.DEPENDENCIES]):
        other = int(dependencies[at, 0])
        height = int(heights[other])
        if height > level and counts[other, a.RECEIVED] < dependencies[at, 1]:
            level, member, number = min(height, top), other, int(dependencies[at, 1])
            if level == top:
                break
    return level, member, number


# CheckDelivery (lines 29-33; rule 5)


@inlined
def check_delivery(s: State, node: int, message: int, entry: int, now_us: int) -> None:
    """Deliver the message and all that waited for it, to a fixed point; or hold it."""
    pending, scratch = s.pending, s.scratch
    member, number = _obstacle(s, node, message)
    if member >= 0:
        if entry < 0:
            entry = _pend(s, node, message, now_us)
        s.nodes[node, a.HELD_NOW] += 1
        _hold(s, node, entry, member, number)
        return
    scratch[a.READY, 0] = message
    scratch[a.READY_ENTRY, 0] = entry
    count = 1
    at = 0
    while at < count:
        each, entry = scratch[a.READY, at], scratch[a.READY_ENTRY, at]
        at += 1
        since_us = now_us
        if entry >= 0:
            since_us = pending[entry, a.P_SINCE_US]
            s.nodes[node, a.HELD_NOW] -= pending[entry, a.P_HELD]
            pending[entry, a.P_HELD] = 0
            if pending[entry, a.P_LEVEL] == 0:
                _forget(s, node, entry)
        origin = s.messages[each, a.ORIGIN]
        s.counts[node, origin, a.DELIVERED] = s.messages[each, a.NUMBER]
        tally_delivery(s, node, each, since_us, now_us)
        if s.settings[a.RECORD] >= DELIVERIES:
            message_event(s, node, now_us, DELIVER, each)
        if s.heads[node, origin, a.HELD] < 0:
            continue
        for place in range(_wake_held(s, node, origin)):
            waiting = scratch[a.WOKEN, place]
            member, number = _obstacle(s, node, pending[waiting, a.P_MESSAGE])
            if member >= 0:
                _hold(s, node, waiting, member, number)
            else:
                scratch[a.READY, count] = pending[waiting, a.P_MESSAGE]
                scratch[a.READY_ENTRY, count] = waiting
                count += 1


@inlined
def _hold(s: State, node: int, entry: int, member: int, number: int) -> None:
    s.pending[entry, a.P_HELD] = 1
    s.pending[entry, a.P_AFTER] = number
    s.pending[entry, a.P_NEXT_HELD] = s.heads[node, member, a.HELD]
    s.heads[node, member, a.HELD] = entry


@inlined
def _wake_held(s: State, node: int, origin: int) -> int:
    """Take out into WOKEN, in order of arrival, what waited for this origin's newest delivery."""
    pending, heads = s.pending, s.heads[node, origin]
    have = s.counts[node, origin, a.DELIVERED]
    entry = int(heads[a.HELD])
    heads[a.HELD] = -1
    count = 0
    while entry >= 0:
        following = pending[entry, a.P_NEXT_HELD]
        if pending[entry, a.P_AFTER] <= have:
            s.scratch[a.WOKEN, count] = entry
            count += 1
        else:
            pending[entry, a.P_NEXT_HELD] = heads[a.HELD]
            heads[a.HELD] = entry
        entry = following
    _sort_woken(s, count, a.P_ORDER)
    return count


@inlined
def _obstacle(s: State, node: int, message: int) -> tuple[int, int]:
    """The first predecessor that is not delivered at the node."""
    counts, dependencies = s.counts[node], s.dependencies
    origin, previous = s.messages[message, a.ORIGIN], s.messages[message, a.NUMBER] - 1
    if counts[origin, a.DELIVERED] < previous:
        return int(origin), int(previous)
    start = s.messages[message, a.FIRST_DEPENDENCY]
    for at in range(start, start + s.messages[message, a.DEPENDENCIES]):
        if counts[dependencies[at, 0], a.DELIVERED] < dependencies[at, 1]:
            return int(dependencies[at, 0]), int(dependencies[at, 1])
    return -1, -1
