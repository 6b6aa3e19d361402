"""PRC's kernel: links, in-views, deliveries and what they leave in E, in logs and in the ring."""

from __future__ import annotations

import numpy as np

from whence.core import rng
from whence.kernels import prc_arrays as a
from whence.kernels.compile import Array, bare, inlined
from whence.kernels.prc_arrays import State
from whence.kernels.rng import mix64

MESSAGE = 0  # entries of the ring: a delivery on its way to all neighbours; then the hops of a handshake
ALPHA_1, ALPHA_2, BETA_1, BETA_2, PI_1, PI_2, RHO_1, RHO_2 = range(1, 9)
BUFFER, RETURN, JOIN, WELCOME = range(9, 13)

_GOLDEN = np.uint64(rng.GOLDEN)
_ONE = np.uint64(1)
_63 = np.int64(63)


@inlined
def delay_us(points: Array, at_us: int) -> int:
    """As sim/experiment.py has it."""
    last = len(points) - 1
    if at_us < points[0, 0]:
        return int(points[0, 1])
    for at in range(last):
        if at_us < points[at + 1, 0]:
            rise_us = points[at + 1, 1] - points[at, 1]
            return int(
                points[at, 1] + rise_us * (at_us - points[at, 0]) // (points[at + 1, 0] - points[at, 0])
            )
    return int(points[last, 1])


@inlined
def push(s: State, arrive_us: int, what: int, who: int, row: int) -> None:
    """Send: an entry at the end of the ring."""
    tail = s.counters[a.TAIL]
    at = tail & (len(s.ring) - 1)
    s.ring[at, a.R_TIME_US] = arrive_us
    s.ring[at, a.R_WHAT] = what << 56 | who << 24 | row
    s.counters[a.TAIL] = tail + 1


@inlined
def deliver(s: State, node: int, row: int, slot: int, now_us: int, arrive_us: int) -> None:
    """A first receipt over in-link `slot` (-1: none): tag, forward, buffer, deliver."""
    counters, person = s.counters, s.people[node]
    number = s.rows[row, a.MESSAGE_NUMBER]
    tagged = person[a.DEGREE_IN]
    for word in range(s.slots.shape[1]):
        tags = s.slots[node, word]
        if tags:  # a mask that nothing is expected in is zero already; few processes have a second word
            s.masks[row, word, node] = tags
    if slot >= 0:
        s.masks[row, slot >> 6, node] &= ~(_ONE << np.uint64(slot & _63))
        tagged -= 1
    s.rows[row, a.BITS] += tagged
    counters[a.EXPECTED] += tagged
    at = person[a.LOGGED] & (s.log.shape[1] - 1)
    s.log[node, at] = number
    s.log_us[node, at] = now_us
    person[a.LOGGED] += 1
    counters[a.BUFFERED] += person[a.BUFFERING]
    counters[a.DELIVERIES] += 1
    mixed = np.uint64(person[a.LOG_HASH]) + np.uint64(number + 1) * _GOLDEN + np.uint64(now_us)
    person[a.LOG_HASH] = np.int64(mix64(mixed))
    s.rows[row, a.IN_FLIGHT] += 1
    push(s, arrive_us, MESSAGE, node, row)


@bare
def row_for(s: State, number: int) -> int:
    """The row of a message; a new one for what only a buffer holds, neither in flight nor expected."""
    counters = s.counters
    if s.row_of[number] >= 0:
        return int(s.row_of[number])
    if counters[a.ROWS_FREE] > 0:
        counters[a.ROWS_FREE] -= 1
        row = int(s.free_rows[counters[a.ROWS_FREE]])
    else:
        row = int(counters[a.ROWS_USED])
        counters[a.ROWS_USED] += 1
    s.rows[row, a.MESSAGE_NUMBER] = number
    s.rows[row, a.IN_FLIGHT] = 0
    s.rows[row, a.BITS] = 0
    s.row_of[number] = row
    return row


@inlined
def release_row(s: State, row: int) -> None:
    """Forget a message that is neither in flight nor expected."""
    if s.rows[row, a.IN_FLIGHT] == 0 and s.rows[row, a.BITS] == 0:
        s.row_of[s.rows[row, a.MESSAGE_NUMBER]] = -1
        s.free_rows[s.counters[a.ROWS_FREE]] = row
        s.counters[a.ROWS_FREE] += 1


@bare
def find(s: State, node: int, peer: int) -> int:
    """The place of `peer` in a process's adjacency; -1 - place if it is not there, but belongs there."""
    low, high = 0, s.people[node, a.LINKED]
    while low < high:
        middle = (low + high) // 2
        if s.hot[node, middle, a.WHERE] >> a.SLOT_BITS < peer:
            low = middle + 1
        else:
            high = middle
    if low < s.people[node, a.LINKED] and s.hot[node, low, a.WHERE] >> a.SLOT_BITS == peer:
        return int(low)
    return int(-1 - low)


@bare
def is_safe(s: State, node: int, peer: int) -> bool:
    """Whether the link is used in both directions at this end."""
    at = find(s, node, peer)
    return bool(at >= 0 and s.cold[node, at, a.SLOT] >= 0 and s.hot[node, at, a.SINCE] != a.UNUSED)


@bare
def connect(s: State, one: int, mediator: int, other: int) -> int:
    """A new link, up at both ends and used at neither; one arc joins the pair."""
    counters = s.counters
    if counters[a.LINKS_FREE] > 0:
        counters[a.LINKS_FREE] -= 1
        link = int(s.free_links[counters[a.LINKS_FREE]])
    else:
        link = int(counters[a.LINKS_USED])
        counters[a.LINKS_USED] += 1
    row = s.links[link]
    for column in range(s.links.shape[1]):
        row[column] = 0
    row[a.OPENER], row[a.MEDIATOR], row[a.TARGET], row[a.ARCS] = one, mediator, other, 1
    row[a.MADE] = counters[a.TOKEN]
    _insert(s, one, other, link)
    _insert(s, other, one, link)
    return link


@bare
def _insert(s: State, node: int, peer: int, link: int) -> None:
    place = -1 - find(s, node, peer)
    size = s.people[node, a.LINKED]
    for at in range(size, place, -1):
        _move(s, node, at - 1, at)
    s.hot[node, place, a.SINCE] = a.UNUSED
    s.hot[node, place, a.WHERE] = peer << a.SLOT_BITS
    s.cold[node, place, a.LINK] = link
    s.cold[node, place, a.SLOT] = -1
    s.people[node, a.LINKED] = size + 1
    s.counters[a.LINKED_MAX] = max(s.counters[a.LINKED_MAX], size + 1)


@inlined
def _move(s: State, node: int, source: int, target: int) -> None:
    """One column at a time: copying slices would need memory."""
    for column in range(s.hot.shape[2]):
        s.hot[node, target, column] = s.hot[node, source, column]
    for column in range(s.cold.shape[2]):
        s.cold[node, target, column] = s.cold[node, source, column]


@bare
def use_in(s: State, node: int, peer: int, now_us: int) -> int:
    """Qi ← Qi ∪ peer: a slot of the in-view, told to the peer's end. Answers the slot."""
    slot = 0
    for word in range(s.slots.shape[1]):
        if s.slots[node, word] != ~np.uint64(0):
            while s.slots[node, word] >> np.uint64(slot & _63) & _ONE:
                slot += 1
            break
        slot += 64
    s.slots[node, slot >> 6] |= _ONE << np.uint64(slot & _63)
    at, there = find(s, node, peer), find(s, peer, node)
    s.cold[node, at, a.SLOT] = slot
    s.cold[node, at, a.SLOT_US] = now_us
    s.hot[peer, there, a.WHERE] = node << a.SLOT_BITS | slot
    s.people[node, a.DEGREE_IN] += 1
    s.counters[a.DEGREE] += 1
    s.counters[a.DEGREE_MAX] = max(s.counters[a.DEGREE_MAX], s.people[node, a.DEGREE_IN])
    return slot


@bare
def use_out(s: State, node: int, peer: int) -> None:
    """Qo ← Qo ∪ peer: whatever is sent from now on goes there too."""
    s.hot[node, find(s, node, peer), a.SINCE] = s.counters[a.TAIL]


@bare
def expect(s: State, node: int, number: int, slot: int) -> None:
    """E[slot] ← E[slot] ∪ m."""
    row = row_for(s, number)
    s.masks[row, slot >> 6, node] |= _ONE << np.uint64(slot & _63)
    s.rows[row, a.BITS] += 1
    s.counters[a.EXPECTED] += 1


@bare
def release(s: State, link: int, now_us: int) -> None:
    """A handshake does not need the link any more."""
    s.links[link, a.HOLDS] -= 1
    close_if_unneeded(s, link, now_us)


@bare
def close_if_unneeded(s: State, link: int, now_us: int) -> None:
    """Close a link that no arc joins and no handshake needs."""
    if s.links[link, a.ARCS] == 0 and s.links[link, a.HOLDS] == 0:
        one, other = s.links[link, a.OPENER], s.links[link, a.TARGET]
        _remove(s, one, other, now_us)
        _remove(s, other, one, now_us)
        s.free_links[s.counters[a.LINKS_FREE]] = link
        s.counters[a.LINKS_FREE] += 1
        s.links[link, a.ARCS] = -1


@bare
def _remove(s: State, node: int, peer: int, now_us: int) -> None:
    at = find(s, node, peer)
    slot = s.cold[node, at, a.SLOT]
    if slot >= 0:
        _expect_nothing(s, node, slot, s.cold[node, at, a.SLOT_US], now_us)
        s.slots[node, slot >> 6] &= ~(_ONE << np.uint64(slot & _63))
        s.people[node, a.DEGREE_IN] -= 1
        s.counters[a.DEGREE] -= 1
    size = s.people[node, a.LINKED] - 1
    for place in range(at, size):
        _move(s, node, place + 1, place)
    s.people[node, a.LINKED] = size


@bare
def _expect_nothing(s: State, node: int, slot: int, since_us: int, now_us: int) -> None:
    """E ← E \\ slot. Only what was delivered lately can be in it.

    The peer of a used link has our copy after one delay and its own is here after two. What was tagged when
    the link was opened may have been delivered up to five delays before its copy comes.
    """
    delay = delay_us(s.points, now_us)
    reach_us = 2 * delay if now_us - since_us > 8 * delay else 8 * delay
    mask, bit = s.log.shape[1] - 1, _ONE << np.uint64(slot & _63)
    logged = s.people[node, a.LOGGED]
    at = logged - 1
    while at >= 0 and at >= logged - s.log.shape[1] and s.log_us[node, at & mask] >= now_us - reach_us:
        row = s.row_of[s.log[node, at & mask]]
        if row >= 0 and s.masks[row, slot >> 6, node] & bit:
            s.masks[row, slot >> 6, node] ^= bit
            s.rows[row, a.BITS] -= 1
            s.counters[a.EXPECTED] -= 1
            release_row(s, row)
        at -= 1
