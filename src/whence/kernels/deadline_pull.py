"""ODCA's part of the kernel: asking and answering (`protocols/deadline_pull.py`), and the links."""

from __future__ import annotations

import numpy as np

from whence.kernels import deadline_arrays as a
from whence.kernels.calendar import KEY, TIME_US, insert, packed
from whence.kernels.compile import inner
from whence.kernels.deadline_arrays import State
from whence.kernels.deadline_queue import is_late, push_due
from whence.kernels.rng import draw, uniform
from whence.protocols.deadline_pull import WANTS_MAX
from whence.protocols.deadline_state import NAMED_MAX
from whence.protocols.deadline_wire import UINT_MAX_BYTES

CONTROL_NUMBER = 1 << 30  # added to the number of a packet on the control path: it may tie with others


@inner
def ship(s: State, node: int, to: int, kind: int, content: int, length: int, now_us: int) -> None:
    """Give a packet to a link: chance may take it, else it arrives after a drawn delay (sim/network.py)."""
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
def _put(s: State, value: int) -> None:
    """Put a number into the pool."""
    at = s.counters[a.POOL_USED]
    if at >= len(s.pool):
        s.counters[a.OVERFLOWS] += 1
        return
    s.pool[at] = value
    s.counters[a.POOL_USED] = at + 1


# Asking


@inner
def wait(s: State, node: int, message: int, now_us: int) -> None:
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
def _ask(s: State, node: int, peer: int, message: int, times: int, now_us: int) -> None:
    s.asked[node, message] = times
    at = s.counters[a.QUESTIONS]
    s.question_to[at] = peer
    s.question_for[at] = message
    s.counters[a.QUESTIONS] = at + 1
    if times < s.settings[a.PULLS]:
        push_due(s, node, now_us + s.settings[a.RETRY_US], a.RETRY, message)


@inner
def retry(s: State, node: int, message: int, now_us: int) -> None:
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
def send_questions(s: State, node: int, now_us: int) -> None:
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
def answer(s: State, node: int, peer: int, packet: int, now_us: int) -> None:
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
def _choose(s: State, count: int, message: int, now_us: int) -> int:
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
def _reply(s: State, node: int, peer: int, count: int, now_us: int) -> None:
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
