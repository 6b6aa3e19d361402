"""The rules of TDCA on the kernel's arrays: `protocols/deadline.py`, function by function."""

from __future__ import annotations

from whence.kernels import deadline_arrays as a
from whence.kernels.compile import inner
from whence.kernels.deadline_arrays import State
from whence.kernels.deadline_pull import retry, send_questions, wait
from whence.kernels.deadline_queue import (
    dequeue,
    drop,
    enqueue,
    is_late,
    is_missing,
    is_ready,
    keep,
    log,
    make_room,
    pop_due,
    push_due,
)

_LOW_MESSAGE = (1 << a.MESSAGE_BITS) - 1


# V and W


@inner
def _advance(s: State, node: int, member: int, newest: int) -> None:
    """W goes to `newest` at least, and over everything that nobody waits for."""
    before = s.frontier[node, member]
    frontier = max(before, newest)
    first, sent = s.first[member], s.first[member + 1] - s.first[member]
    while frontier < sent and s.flags[node, first + frontier] & a.RESOLVED:
        frontier += 1
    if frontier > before:
        s.frontier[node, member] = frontier
        s.nodes[node, a.MOVED] = 1


@inner
def _raise(s: State, node: int, member: int, newest: int, end_us: int) -> None:
    """V[member] becomes `newest`; what never came up to there is remembered as such."""
    first = s.first[member]
    for message in range(first + s.accepted[node, member], first + newest):
        if not s.flags[node, message] & (a.CAME | a.QUEUED):
            s.flags[node, message] |= a.HOLE
        s.flags[node, message] &= ~a.RESOLVED
    s.accepted[node, member] = newest
    s.ends_us[node, member] = end_us
    _advance(s, node, member, newest)


@inner
def deliver(s: State, node: int, message: int, now_us: int) -> None:
    """Raise V to all that the message follows, then to itself; give up what this makes stale."""
    origin, number, stamp = (
        s.messages[message, a.ORIGIN],
        s.messages[message, a.NUMBER],
        s.messages[message, a.STAMP],
    )
    jumps = False
    for member in range(len(s.nodes)):
        newest = s.after[message, member]
        if newest > s.accepted[node, member]:
            jumps = True
            end_us = 0
            if s.settings[a.DEADLINES] and s.left[message, member]:
                end_us = stamp + s.left[message, member] - 1
            _raise(s, node, member, newest, end_us)
    s.accepted[node, origin] = number
    s.flags[node, message] &= ~a.RESOLVED
    _advance(s, node, origin, number)
    s.ends_us[node, origin] = s.messages[message, a.DEADLINE_US]
    keep(s, node, message)
    log(s, now_us, a.DELIVER, node, message)
    if jumps:
        _purge(s, node, now_us)


@inner
def _purge(s: State, node: int, now_us: int) -> None:
    """What waits and is followed by something delivered is given up."""
    kept = 0
    for at in range(s.nodes[node, a.QUEUED_COUNT]):
        message = s.order[node, at]
        if s.messages[message, a.NUMBER] > s.accepted[node, s.messages[message, a.ORIGIN]]:
            s.order[node, kept] = message
            kept += 1
        else:
            s.flags[node, message] &= ~a.QUEUED
            s.nodes[node, a.USED_BYTES] -= s.messages[message, a.PAYLOAD_BYTES]
            s.counters[a.OVERTAKINGS] += 1
            log(s, now_us, a.OVERTAKEN, node, message)
    s.nodes[node, a.QUEUED_COUNT] = kept


@inner
def _expire(s: State, node: int, message: int, now_us: int) -> None:
    """It came, or waited, too long; nobody needs to wait for it any more."""
    s.flags[node, message] = (s.flags[node, message] | a.CAME) & ~a.LAPSED
    _advance(s, node, s.messages[message, a.ORIGIN], 0)
    s.counters[a.EXPIRIES] += 1
    log(s, now_us, a.EXPIRED, node, message)


# CHECK-MSGS


@inner
def _end(s: State, node: int, message: int, now_us: int) -> None:
    """The turn of a message that waits has come."""
    dequeue(s, node, message)
    if is_late(s, message, now_us):
        _expire(s, node, message, now_us)
    else:
        deliver(s, node, message, now_us)


@inner
def _drain(s: State, node: int, now_us: int) -> None:
    """Deliver what is ready, the first in stamp order; then look from the beginning again.

    The core keeps those that a member holds back together, to look at fewer of them; what it finds is the
    same.
    """
    if not s.nodes[node, a.MOVED]:
        return
    at = 0
    while at < s.nodes[node, a.QUEUED_COUNT]:
        message = s.order[node, at]
        if is_ready(s, node, message):
            _end(s, node, message, now_us)
            at = 0
        else:
            at += 1
    s.nodes[node, a.MOVED] = 0


@inner
def _force(s: State, node: int, message: int, now_us: int) -> None:
    """The time of a message has come: what it follows is delivered, if it is here, and then itself."""
    count = 0
    if not is_late(s, message, now_us):
        for at in range(s.nodes[node, a.QUEUED_COUNT]):
            other = s.order[node, at]
            if s.messages[other, a.NUMBER] <= s.after[message, s.messages[other, a.ORIGIN]]:
                s.chosen[count] = other
                count += 1
    for at in range(count):
        if s.flags[node, s.chosen[at]] & a.QUEUED:
            _end(s, node, s.chosen[at], now_us)
    if s.flags[node, message] & a.QUEUED:
        _end(s, node, message, now_us)
    _drain(s, node, now_us)


# Time


@inner
def pass_time(s: State, node: int, now_us: int) -> None:
    """Do what has become due, in its order; forget what nobody may deliver any more."""
    while s.nodes[node, a.DUE_COUNT] and s.due[node, 0] >> a.DUE_BITS <= now_us:
        entry = s.due[node, 0]
        what, message = entry >> a.MESSAGE_BITS & 3, entry & _LOW_MESSAGE
        pop_due(s, node)
        if what == a.FORCE:
            if s.flags[node, message] & a.QUEUED:
                _force(s, node, message, now_us)
        elif is_missing(s, node, message):
            if what == a.LAPSE:
                s.flags[node, message] |= a.LAPSED
                _advance(s, node, s.messages[message, a.ORIGIN], 0)
                _drain(s, node, now_us)
            else:
                retry(s, node, message, now_us)
    while s.nodes[node, a.STORED_COUNT] and s.stored[node, 0] >> a.MESSAGE_BITS <= now_us:
        drop(s, node)
    if s.counters[a.QUESTIONS]:
        send_questions(s, node, now_us)


@inner
def arm(s: State, node: int, now_us: int) -> None:
    """Set the timer to the next thing that is due."""
    next_us = a.NEVER_US
    while s.nodes[node, a.DUE_COUNT]:
        entry = s.due[node, 0]
        what, message = entry >> a.MESSAGE_BITS & 3, entry & _LOW_MESSAGE
        counts = is_missing(s, node, message)
        if what == a.FORCE:
            counts = bool(s.flags[node, message] & a.QUEUED)
        if counts:
            next_us = entry >> a.DUE_BITS
            break
        pop_due(s, node)
    if next_us != s.nodes[node, a.ARMED_US]:
        s.nodes[node, a.ARMED_US] = next_us
        s.nodes[node, a.FIRES_US] = max(next_us, now_us)


# B-RECV and RPY-RECV


@inner
def take(s: State, node: int, message: int, now_us: int) -> None:
    """A message has come, from its origin or in a reply."""
    origin, number = s.messages[message, a.ORIGIN], s.messages[message, a.NUMBER]
    flags = s.flags[node, message]
    is_old = number <= s.accepted[node, origin]
    if is_old and not flags & a.HOLE:
        s.counters[a.DUPLICATES] += 1
        return
    s.nodes[node, a.GREATEST_STAMP] = max(s.nodes[node, a.GREATEST_STAMP], s.messages[message, a.STAMP])
    if is_old:
        _come_too_late(s, node, message, now_us)
    elif flags & (a.QUEUED | a.CAME):
        s.counters[a.DUPLICATES] += 1
    elif is_late(s, message, now_us):
        _expire(s, node, message, now_us)
        _drain(s, node, now_us)
    elif is_ready(s, node, message):
        deliver(s, node, message, now_us)
        _drain(s, node, now_us)
    elif make_room(s, node, s.messages[message, a.PAYLOAD_BYTES]):
        _hold(s, node, message, now_us)
    else:
        s.counters[a.NO_ROOM] += 1


@inner
def _come_too_late(s: State, node: int, message: int, now_us: int) -> None:
    """The first copy of a message of which a follower is delivered already."""
    s.flags[node, message] &= ~a.HOLE
    if is_late(s, message, now_us):
        s.counters[a.EXPIRIES] += 1
        log(s, now_us, a.EXPIRED, node, message)
    else:
        s.counters[a.OVERTAKINGS] += 1
        log(s, now_us, a.OVERTAKEN, node, message)


@inner
def _hold(s: State, node: int, message: int, now_us: int) -> None:
    """It has to wait: until what it follows has come, is known to be late, or its own time comes."""
    enqueue(s, node, message)
    stamp, error_us = s.messages[message, a.STAMP], s.settings[a.CLOCK_ERROR_US]
    if s.settings[a.DEADLINES]:
        for member in range(len(s.nodes)):
            newest, left_us = s.after[message, member], s.left[message, member]
            other = s.first[member] + newest - 1
            if newest > s.frontier[node, member] and left_us and is_missing(s, node, other):
                late_us = stamp + left_us - error_us
                # The same entry twice does what it does once, and it may stand there a hundred times.
                if s.lapse_us[node, other] != late_us:
                    s.lapse_us[node, other] = late_us
                    push_due(s, node, late_us, a.LAPSE, other)
    force_us = s.messages[message, a.DEADLINE_US] - error_us - s.settings[a.MARGIN_US]
    push_due(s, node, force_us, a.FORCE, message)
    pass_time(s, node, now_us)
    if s.settings[a.KEEPS] and s.flags[node, message] & a.QUEUED:
        wait(s, node, message, now_us)
