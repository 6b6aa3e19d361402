"""The engine (`sim/engine.py`) on the kernel's arrays: what happens next, and to whom."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whence.kernels.calendar import KEY, TIME_US, first, insert, packed, receiver_of, remove_first, sender_of
from whence.kernels.compile import cached, fingerprint, inner
from whence.kernels.deadline import state as a
from whence.kernels.deadline.state import (
    DeadlineArrays,
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
from whence.kernels.rng import draw, uniform
from whence.protocols.deadline.odca import WANTS_MAX
from whence.protocols.deadline.tdca import NAMED_MAX
from whence.protocols.deadline.wire import UINT_MAX_BYTES

_LOW_MESSAGE = (1 << a.MESSAGE_BITS) - 1


# V and W


@inner
def _advance(s: DeadlineArrays, node: int, member: int, newest: int) -> None:
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
def _raise(s: DeadlineArrays, node: int, member: int, newest: int, end_us: int) -> None:
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
def deliver(s: DeadlineArrays, node: int, message: int, now_us: int) -> None:
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
def _purge(s: DeadlineArrays, node: int, now_us: int) -> None:
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
def _expire(s: DeadlineArrays, node: int, message: int, now_us: int) -> None:
    """It came, or waited, too long; nobody needs to wait for it any more."""
    s.flags[node, message] = (s.flags[node, message] | a.CAME) & ~a.LAPSED
    _advance(s, node, s.messages[message, a.ORIGIN], 0)
    s.counters[a.EXPIRIES] += 1
    log(s, now_us, a.EXPIRED, node, message)


# CHECK-MSGS


@inner
def _end(s: DeadlineArrays, node: int, message: int, now_us: int) -> None:
    """The turn of a message that waits has come."""
    dequeue(s, node, message)
    if is_late(s, message, now_us):
        _expire(s, node, message, now_us)
    else:
        deliver(s, node, message, now_us)


@inner
def _drain(s: DeadlineArrays, node: int, now_us: int) -> None:
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
def _force(s: DeadlineArrays, node: int, message: int, now_us: int) -> None:
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
def pass_time(s: DeadlineArrays, node: int, now_us: int) -> None:
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
def arm(s: DeadlineArrays, node: int, now_us: int) -> None:
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
def take(s: DeadlineArrays, node: int, message: int, now_us: int) -> None:
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
def _come_too_late(s: DeadlineArrays, node: int, message: int, now_us: int) -> None:
    """The first copy of a message of which a follower is delivered already."""
    s.flags[node, message] &= ~a.HOLE
    if is_late(s, message, now_us):
        s.counters[a.EXPIRIES] += 1
        log(s, now_us, a.EXPIRED, node, message)
    else:
        s.counters[a.OVERTAKINGS] += 1
        log(s, now_us, a.OVERTAKEN, node, message)


@inner
def _hold(s: DeadlineArrays, node: int, message: int, now_us: int) -> None:
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


# ODCA's part of the kernel: asking and answering (`protocols/deadline/odca.py`), and the links.


CONTROL_NUMBER = 1 << 30  # added to the number of a packet on the control path: it may tie with others


@inner
def ship(s: DeadlineArrays, node: int, to: int, kind: int, content: int, length: int, now_us: int) -> None:
    """Give a packet to a link: chance may take it, else it arrives after a drawn delay (links_static.py)."""
    counters, is_control = s.counters, kind != a.MESSAGE
    path = 1 if is_control and s.settings[a.SEPARATE] else 0
    counters[a.SENT] += 1
    if is_control:
        counters[a.CONTROL] += 1
    link = s.links[path, node, to]
    number = link[a.SENT_COUNT]
    link[a.SENT_COUNT] = number + 1
    loss = s.loss[path, node, to]
    if loss and uniform(np.uint64(link[a.LOSS_DRAWS]), number) < loss:
        counters[a.LOST] += 1
        return
    packet = counters[a.PACKETS_USED]
    if packet >= len(s.packets):
        counters[a.OVERFLOWS] += 1
        return
    counters[a.PACKETS_USED] = packet + 1
    at = a.DELAY_KIND + 3 * path
    delay_us = draw(
        s.settings[at], s.settings[at + 1], s.settings[at + 2], np.uint64(link[a.DELAY_DRAWS]), number
    )
    s.packets[packet, TIME_US] = now_us + delay_us + link[a.EXTRA_US]
    s.packets[packet, KEY] = packed(to, node, number + path * CONTROL_NUMBER)
    s.packets[packet, a.KIND] = kind
    s.packets[packet, a.CONTENT] = content
    s.packets[packet, a.LENGTH] = length
    insert(s.packets, s.heap, s.buckets, counters, packet)


@inner
def _put(s: DeadlineArrays, value: int) -> None:
    """Put a number into the pool."""
    at = s.counters[a.POOL_USED]
    if at >= len(s.pool):
        s.counters[a.OVERFLOWS] += 1
        return
    s.pool[at] = value
    s.counters[a.POOL_USED] = at + 1


# Asking


@inner
def wait(s: DeadlineArrays, node: int, message: int, now_us: int) -> None:
    """Ask the sender of a message that has to wait for what it follows."""
    sender = s.messages[message, a.ORIGIN]
    if not s.settings[a.EXACT]:
        first = s.counters[a.POOL_USED]
        _put(s, message)
        for member in range(len(s.nodes)):
            _put(s, s.accepted[node, member])
        ship(s, node, sender, a.WINDOW, first, len(s.nodes) + 1, now_us)
        return
    for member in range(len(s.nodes)):
        frontier, newest = s.frontier[node, member], s.after[message, member]
        for number in range(max(frontier, newest - NAMED_MAX) + 1, newest + 1):
            other = s.first[member] + number - 1
            if not s.flags[node, other] & (a.QUEUED | a.RESOLVED) and s.asked[node, other] == 0:
                _ask(s, node, sender, other, 1, now_us)
    send_questions(s, node, now_us)


@inner
def _ask(s: DeadlineArrays, node: int, peer: int, message: int, times: int, now_us: int) -> None:
    s.asked[node, message] = times
    at = s.counters[a.QUESTIONS]
    s.question_to[at] = peer
    s.question_for[at] = message
    s.counters[a.QUESTIONS] = at + 1
    if times < s.settings[a.PULLS]:
        push_due(s, node, now_us + s.settings[a.RETRY_US], a.RETRY, message)


@inner
def retry(s: DeadlineArrays, node: int, message: int, now_us: int) -> None:
    """A message that was asked for has not come: ask another."""
    member, times = s.messages[message, a.ORIGIN], s.asked[node, message]
    if times == 0:
        return
    peer = member
    if times > 1:
        peer = (member + times - 1) % len(s.nodes)
        if peer == node:
            peer = member
    _ask(s, node, peer, message, times + 1, now_us)


@inner
def send_questions(s: DeadlineArrays, node: int, now_us: int) -> None:
    """One packet for each who is asked, in the order in which they were thought of."""
    count = s.counters[a.QUESTIONS]
    for at in range(count):
        peer = s.question_to[at]
        if peer < 0:
            continue
        first = s.counters[a.POOL_USED]
        for further in range(at, count):
            if s.question_to[further] != peer:
                continue
            s.question_to[further] = -1
            _put(s, s.question_for[further])
            if s.counters[a.POOL_USED] - first == WANTS_MAX:
                ship(s, node, peer, a.WANTS, first, WANTS_MAX, now_us)
                first = s.counters[a.POOL_USED]
        if s.counters[a.POOL_USED] > first:
            ship(s, node, peer, a.WANTS, first, s.counters[a.POOL_USED] - first, now_us)
    s.counters[a.QUESTIONS] = 0


# Answering


@inner
def answer(s: DeadlineArrays, node: int, peer: int, packet: int, now_us: int) -> None:
    """Reply with what is wanted and here and not late, in stamp order."""
    begin = s.packets[packet, a.CONTENT]
    count = 0
    if s.packets[packet, a.KIND] == a.WANTS:
        for at in range(begin, begin + s.packets[packet, a.LENGTH]):
            message = s.pool[at]
            if s.flags[node, message] & (a.QUEUED | a.STORED):
                count = _choose(s, count, message, now_us)
    else:
        upper = s.pool[begin]
        for member in range(len(s.nodes)):
            first = s.first[member] + s.pool[begin + 1 + member]
            for message in range(first, s.first[member] + s.after[upper, member]):
                if s.flags[node, message] & a.STORED:
                    count = _choose(s, count, message, now_us)
    _reply(s, node, peer, count, now_us)


@inner
def _choose(s: DeadlineArrays, count: int, message: int, now_us: int) -> int:
    """Put a message among the chosen ones, in stamp order, unless it is late; how many they are."""
    if is_late(s, message, now_us):
        return count
    stamp, at = s.messages[message, a.STAMP], count
    while at > 0:
        other = s.chosen[at - 1]
        its = s.messages[other, a.STAMP]
        if its < stamp or (its == stamp and other < message):
            break
        s.chosen[at] = other
        at -= 1
    s.chosen[at] = message
    return count + 1


@inner
def _reply(s: DeadlineArrays, node: int, peer: int, count: int, now_us: int) -> None:
    """The chosen messages in packets of at most `reply_bytes` (`reply_packets` of deadline_wire.py)."""
    size = len(s.nodes)
    integers = size + 8 + (size if s.settings[a.DEADLINES] else 0)
    limit_bytes = s.settings[a.REPLY_BYTES]
    taken = taken_bytes = 0
    first = s.counters[a.POOL_USED]
    for at in range(count):
        message = s.chosen[at]
        more_bytes = s.messages[message, a.PAYLOAD_BYTES] + UINT_MAX_BYTES * integers
        if limit_bytes and taken and taken_bytes + more_bytes > limit_bytes:
            ship(s, node, peer, a.REPLY, first, taken, now_us)
            taken = taken_bytes = 0
            first = s.counters[a.POOL_USED]
        _put(s, message)
        taken += 1
        taken_bytes += more_bytes
    if taken:
        ship(s, node, peer, a.REPLY, first, taken, now_us)


@inner
def _broadcast(s: DeadlineArrays, message: int) -> None:
    """B-SEND."""
    now_us, node = s.messages[message, a.BROADCAST_US], s.messages[message, a.ORIGIN]
    log(s, now_us, a.BROADCAST, node, message)
    pass_time(s, node, now_us)
    stamp = max(now_us, s.nodes[node, a.GREATEST_STAMP] + 1)
    s.nodes[node, a.GREATEST_STAMP] = stamp
    s.messages[message, a.STAMP] = stamp
    deadline_us = now_us + s.messages[message, a.LIFETIME_US]
    s.messages[message, a.DEADLINE_US] = deadline_us
    size = len(s.nodes)
    for member in range(size):
        s.after[message, member] = s.accepted[node, member]
        if s.settings[a.DEADLINES]:
            end_us = s.ends_us[node, member]
            s.left[message, member] = 1 + max(0, end_us - stamp) if end_us else 0
    number = s.messages[message, a.NUMBER]
    s.accepted[node, node] = number
    s.frontier[node, node] = number
    s.ends_us[node, node] = deadline_us
    keep(s, node, message)
    log(s, now_us, a.DELIVER, node, message)
    for _ in range(s.settings[a.COPIES]):
        for to in range(size):
            if to != node:
                ship(s, node, to, a.MESSAGE, message, 1, now_us)
    arm(s, node, now_us)


@inner
def _receive(s: DeadlineArrays, packet: int) -> None:
    """B-RECV, SOLICIT-RECV and RPY-RECV."""
    now_us, key = s.packets[packet, TIME_US], s.packets[packet, KEY]
    node, kind, content = receiver_of(key), s.packets[packet, a.KIND], s.packets[packet, a.CONTENT]
    pass_time(s, node, now_us)
    if kind == a.MESSAGE:
        take(s, node, content, now_us)
    elif kind == a.REPLY:
        for at in range(content, content + s.packets[packet, a.LENGTH]):
            take(s, node, s.pool[at], now_us)
    else:
        answer(s, node, sender_of(key), packet, now_us)
    arm(s, node, now_us)


@inner
def _next_timer(s: DeadlineArrays) -> int:
    """The node whose timer fires next, the first of several."""
    found = 0
    for node in range(1, len(s.nodes)):
        if s.nodes[node, a.FIRES_US] < s.nodes[found, a.FIRES_US]:
            found = node
    return found


def _make_advance() -> Callable[[DeadlineArrays], bool]:
    changes_with_the_text = fingerprint()

    def advance(s: DeadlineArrays) -> bool:
        """Run to the end; False if something had no room."""
        if not changes_with_the_text:
            return False
        counters, end_us = s.counters, s.settings[a.END_US]
        while counters[a.OVERFLOWS] == 0:
            packet = first(s.packets, s.heap, s.buckets, counters)
            arrive_us = s.packets[packet, TIME_US] if packet >= 0 else a.NEVER_US
            node = _next_timer(s)
            fire_us = s.nodes[node, a.FIRES_US]
            start_us, message = a.NEVER_US, -1
            if counters[a.STARTED] < len(s.starts):
                message = s.starts[counters[a.STARTED]]
                start_us = s.messages[message, a.BROADCAST_US]
            if min(arrive_us, fire_us, start_us) >= end_us:
                return True
            # At one time: what arrives, then timers, then broadcasts.
            if arrive_us <= fire_us and arrive_us <= start_us:
                remove_first(s.packets, s.heap, counters)
                _receive(s, packet)
            elif fire_us <= start_us:
                s.nodes[node, a.ARMED_US] = a.NEVER_US
                s.nodes[node, a.FIRES_US] = a.NEVER_US
                pass_time(s, node, fire_us)
                arm(s, node, fire_us)
            else:
                counters[a.STARTED] += 1
                _broadcast(s, message)
        return False

    return cached(advance)


advance = _make_advance()
