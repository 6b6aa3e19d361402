"""PRC's kernel: the experiment of sim/dynamic.py and all its processes in one compiled function.

The rules are those of protocols/prc_handshake.py; nothing here is a decision. A delivery is one entry of
the ring; it is spread over the process's links when it arrives: a link takes part if it was used before
the entry was made and is still open, for what is in flight on a link is dropped with it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whence.kernels import prc_arrays as a
from whence.kernels.compile import bare, cached, fingerprint, inlined
from whence.kernels.prc_arrays import State
from whence.kernels.prc_links import (
    BETA_1,
    BUFFER,
    JOIN,
    MESSAGE,
    PI_1,
    RETURN,
    RHO_1,
    RHO_2,
    WELCOME,
    delay_us,
    deliver,
    expect,
    find,
    push,
    release,
    release_row,
    row_for,
    use_in,
    use_out,
)
from whence.kernels.prc_spray import introduce, join, partner_of, shuffle
from whence.kernels.rng import below, stream
from whence.sim import dynamic

_SOURCE = np.uint64(dynamic.SOURCE)
_ONE = np.uint64(1)
_63 = np.int64(63)
_WHO_MASK = (1 << 32) - 1
_ROW_MASK = (1 << 24) - 1
_JOIN, _SHUFFLE = dynamic.JOIN, dynamic.SHUFFLE


@bare
def _advance(s: State) -> int:
    counters, total = s.counters, len(s.externals)
    end_us = s.settings[a.DURATION_US]
    while True:
        head, at = counters[a.HEAD], counters[a.NEXT]
        entry = head & (len(s.ring) - 1)
        in_flight = counters[a.TAIL] - head
        is_arrival = in_flight > 0 and (
            at >= total or s.ring[entry, a.R_TIME_US] <= s.externals[at, a.E_TIME_US]
        )
        if not is_arrival and at >= total:
            break
        now_us = s.ring[entry, a.R_TIME_US] if is_arrival else s.externals[at, a.E_TIME_US]
        if now_us >= end_us:
            break
        if len(s.ring) - in_flight < s.log.shape[1] + 4 * s.hot.shape[1]:
            return a.MORE_RING
        if now_us > counters[a.TIME_US]:
            _pass_time(s, now_us)
        if is_arrival:
            what = s.ring[entry, a.R_WHAT]
            if what >> 56 == MESSAGE:
                counters[a.HEAD] = head + 1
                _spread(s, what >> 24 & _WHO_MASK, what & _ROW_MASK, head, now_us)
                continue
            needed = _missing_room(s, what >> 56 == JOIN, s.links[what >> 24 & _WHO_MASK, a.TARGET], -1)
            if what >> 56 in (BUFFER, RETURN) and _free_rows(s) < _rows_needed(s, what >> 24 & _WHO_MASK):
                needed = a.MORE_ROWS
            if needed != a.DONE:
                return needed
            counters[a.HEAD] = head + 1
            _arrive(s, what >> 56, what >> 24 & _WHO_MASK, now_us)
        else:
            needed = _external(s, at, now_us)
            if needed != a.DONE:
                return needed
            counters[a.NEXT] = at + 1
        if counters[a.FAULT]:
            return a.BROKEN
    _pass_time(s, end_us)
    return a.DONE


@bare
def _pass_time(s: State, now_us: int) -> None:
    """Integrate what all hold up to now."""
    counters, window_us = s.counters, s.settings[a.WINDOW_US]
    while counters[a.TIME_US] < now_us:
        window = counters[a.TIME_US] // window_us
        until_us = min(now_us, (window + 1) * window_us)
        lasted_us = until_us - counters[a.TIME_US]
        sums = s.windows[window]
        sums[a.W_PROCESS] += lasted_us * counters[a.PROCESSES]
        sums[a.W_EXPECTED] += lasted_us * counters[a.EXPECTED]
        sums[a.W_BUFFERED] += lasted_us * counters[a.BUFFERED]
        sums[a.W_DEGREE] += lasted_us * counters[a.DEGREE]
        sums[a.W_CONTROL] += counters[a.CONTROL]
        sums[a.W_DELIVERIES] += counters[a.DELIVERIES]
        sums[a.W_RECEIPTS] += counters[a.RECEIPTS]
        counters[a.CONTROL] = counters[a.DELIVERIES] = counters[a.RECEIPTS] = 0
        counters[a.TIME_US] = until_us


@bare
def _missing_room(s: State, links_open: bool, node: int, partner: int) -> int:
    """What must grow before processes may get new links or names."""
    if not links_open:
        return a.DONE
    limit, named = s.hot.shape[1], s.people[node, a.NAMED]
    if s.counters[a.LINKED_MAX] + 2 >= limit or s.people[node, a.LINKED] + 2 >= limit or named + 2 >= limit:
        return a.MORE_SLOTS
    gained = named + 2
    if partner >= 0:
        other = s.people[partner, a.NAMED]
        gained += other
        if (
            s.people[partner, a.LINKED] + named // 2 + 2 >= limit
            or s.people[node, a.LINKED] + other // 2 + 2 >= limit
            or named + other + 2 >= limit
        ):
            return a.MORE_SLOTS
    if s.counters[a.LINKS_USED] + gained >= len(s.links):
        return a.MORE_LINKS
    return a.DONE


@bare
def _free_rows(s: State) -> int:
    return int(s.counters[a.ROWS_FREE] + len(s.rows) - s.counters[a.ROWS_USED])


@bare
def _rows_needed(s: State, link: int) -> int:
    """How many messages that only the buffers of a link hold may come back to life."""
    row, mask, count = s.links[link], s.log.shape[1] - 1, 0
    opener, target = row[a.OPENER], row[a.TARGET]
    for at in range(row[a.AT_BETA], s.people[opener, a.LOGGED]):
        count += s.row_of[s.log[opener, at & mask]] < 0
    for at in range(row[a.AT_PI], s.people[target, a.LOGGED]):
        count += s.row_of[s.log[target, at & mask]] < 0
    return count


@bare
def _external(s: State, at: int, now_us: int) -> int:
    what, node, number = s.externals[at, a.E_WHAT], s.externals[at, a.E_NODE], s.externals[at, a.E_NUMBER]
    if what == _JOIN:
        needed = _missing_room(s, True, node, -1)
        if needed == a.DONE:
            join(s, node, now_us)
        return needed
    if what == _SHUFFLE:
        partner = partner_of(s, node)
        if partner < 0:
            return a.DONE
        needed = _missing_room(s, True, node, partner)
        if needed == a.DONE:
            shuffle(s, node, partner, number, now_us)
        return needed
    counters = s.counters
    if _free_rows(s) < 1:
        return a.MORE_ROWS
    key = stream(np.uint64(s.settings[a.SEED]), _SOURCE, 0)
    source = int(s.members[below(key, number, counters[a.MEMBERS])])
    counters[a.BROADCASTS] += 1
    deliver(s, source, row_for(s, number), -1, now_us, now_us + delay_us(s.points, now_us))
    return a.DONE


@inlined
def _spread(s: State, node: int, row: int, entry: int, now_us: int) -> None:
    """The copies of one delivery arrive at the neighbours, in the order of their names."""
    arrive_us = now_us + delay_us(s.points, now_us)
    hot, masks = s.hot[node], s.masks[row]
    receipts, copies = 0, 0
    for at in range(s.people[node, a.LINKED]):
        if hot[at, a.SINCE] > entry:
            continue
        receipts += 1
        where = hot[at, a.WHERE]
        peer, slot = where >> a.SLOT_BITS, where & 0xFFFF
        bit = _ONE << np.uint64(slot & _63)
        mask = masks[slot >> 6, peer]
        if mask & bit:
            masks[slot >> 6, peer] = mask ^ bit
            copies += 1
        else:
            deliver(s, peer, row, slot, now_us, arrive_us)
    s.counters[a.RECEIPTS] += receipts
    s.counters[a.EXPECTED] -= copies
    s.rows[row, a.BITS] -= copies
    s.rows[row, a.IN_FLIGHT] -= 1
    release_row(s, row)


@bare
def _arrive(s: State, what: int, link: int, now_us: int) -> None:
    """Control, a buffer, or somebody who joins."""
    row, counters = s.links[link], s.counters
    opener, mediator, target = row[a.OPENER], row[a.MEDIATOR], row[a.TARGET]
    arrive_us = now_us + delay_us(s.points, now_us)
    if what <= RHO_2:
        counters[a.CONTROL] += 1
        if what == BETA_1 - 1:  # α is in: Bα begins
            row[a.AT_ALPHA] = s.people[target, a.LOGGED]
            s.people[target, a.BUFFERING] += 1
        elif what == PI_1 - 1:  # β is in: Bβ begins
            row[a.AT_BETA] = s.people[opener, a.LOGGED]
            s.people[opener, a.BUFFERING] += 1
        elif what == RHO_1 - 1:  # π is in: Bπ begins
            row[a.AT_PI] = s.people[target, a.LOGGED]
        elif what == RHO_2:  # ρ is in: the next entry is Bβ, on the new link
            row[a.AT_RHO] = s.people[opener, a.LOGGED]
        push(s, arrive_us, what + 1, link, 0)
        if what == RHO_1:
            release(s, int(s.cold[mediator, find(s, mediator, target), a.LINK]), now_us)
        elif what == RHO_2:
            use_out(s, opener, target)
            release(s, int(s.cold[opener, find(s, opener, mediator), a.LINK]), now_us)
    elif what == BUFFER:
        _take_buffer(s, link, now_us, arrive_us)
    elif what == RETURN:
        _take_return(s, link, now_us, arrive_us)
    elif what == JOIN:
        use_in(s, target, opener, now_us)
        push(s, arrive_us, WELCOME, link, 0)
        use_out(s, target, opener)
        introduce(s, target, opener, now_us)
    else:
        use_in(s, opener, target, now_us)
        use_out(s, opener, target)
        s.members[counters[a.MEMBERS]] = opener
        counters[a.MEMBERS] += 1
        counters[a.PROCESSES] += 1


@bare
def _stamp(s: State, which: int, node: int, start: int, stop: int) -> int:
    """Mark what stands in an interval of a process's log; answers the mark."""
    s.counters[a.TOKEN] += 1
    mask = s.log.shape[1] - 1
    if stop - start > mask:
        s.counters[a.FAULT] = 2
    for at in range(start, stop):
        s.stamps[which, s.log[node, at & mask]] = s.counters[a.TOKEN]
    return int(s.counters[a.TOKEN])


@bare
def _take_buffer(s: State, link: int, now_us: int, arrive_us: int) -> None:
    """Bβ is in: deliver Bβ \\ Bα \\ Bπ, expect Bπ \\ Bβ, answer with it, use the link."""
    row, mask = s.links[link], s.log.shape[1] - 1
    opener, target = row[a.OPENER], row[a.TARGET]
    end = s.people[target, a.LOGGED]
    row[a.AT_BUFFER] = end
    s.people[target, a.BUFFERING] -= 1
    s.counters[a.BUFFERED] -= end - row[a.AT_ALPHA]
    known = _stamp(s, 0, target, row[a.AT_ALPHA], end)
    sent = _stamp(s, 1, opener, row[a.AT_BETA], row[a.AT_RHO])
    for at in range(row[a.AT_BETA], row[a.AT_RHO]):
        number = s.log[opener, at & mask]
        if s.stamps[0, number] != known:
            deliver(s, target, row_for(s, number), -1, now_us, arrive_us)
    slot = use_in(s, target, opener, now_us)
    for at in range(row[a.AT_PI], end):
        number = s.log[target, at & mask]
        if s.stamps[1, number] != sent:
            expect(s, target, number, slot)
    push(s, arrive_us, RETURN, link, 0)
    use_out(s, target, opener)


@bare
def _take_return(s: State, link: int, now_us: int, arrive_us: int) -> None:
    """The answer is in: deliver what is new, expect what was delivered since ρ and is not in it."""
    row, mask = s.links[link], s.log.shape[1] - 1
    opener, target = row[a.OPENER], row[a.TARGET]
    end = s.people[opener, a.LOGGED]
    s.people[opener, a.BUFFERING] -= 1
    s.counters[a.BUFFERED] -= end - row[a.AT_BETA]
    known = _stamp(s, 0, opener, row[a.AT_BETA], end)
    sent = _stamp(s, 1, target, row[a.AT_PI], row[a.AT_BUFFER])
    for at in range(row[a.AT_PI], row[a.AT_BUFFER]):
        number = s.log[target, at & mask]
        if s.stamps[0, number] != known:
            deliver(s, opener, row_for(s, number), -1, now_us, arrive_us)
    slot = use_in(s, opener, target, now_us)
    for at in range(row[a.AT_RHO], end):
        number = s.log[opener, at & mask]
        if s.stamps[1, number] != sent:
            expect(s, opener, number, slot)
    release(s, link, now_us)


def _entry(sources: int) -> Callable[[State], int]:
    def advance(s: State) -> int:
        return _advance(s) if sources != 0 else a.DONE  # `sources` must be used to be in the closure

    return cached(advance)


# Run until all is done, or until something must grow; then it goes on where it stopped.
advance = _entry(fingerprint())
