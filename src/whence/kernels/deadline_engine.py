"""The engine (`sim/engine.py`) on the kernel's arrays: what happens next, and to whom."""

from __future__ import annotations

from collections.abc import Callable

from whence.kernels import deadline_arrays as a
from whence.kernels.calendar import KEY, TIME_US, first, receiver_of, remove_first, sender_of
from whence.kernels.compile import cached, fingerprint, inner
from whence.kernels.deadline_arrays import State
from whence.kernels.deadline_pull import answer, ship
from whence.kernels.deadline_queue import keep, log
from whence.kernels.deadline_rules import arm, pass_time, take


@inner
def _broadcast(s: State, message: int) -> None:
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
def _receive(s: State, packet: int) -> None:
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
def _next_timer(s: State) -> int:
    """The node whose timer fires next, the first of several."""
    found = 0
    for node in range(1, len(s.nodes)):
        if s.nodes[node, a.FIRES_US] < s.nodes[found, a.FIRES_US]:
            found = node
    return found


def _make_advance() -> Callable[[State], bool]:
    changes_with_the_text = fingerprint()

    def advance(s: State) -> bool:
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
