"""PRC's kernel: the experiment of sim/links_overlay.py and all its processes in one compiled function.

The rules are those of protocols/prc/prc.py; nothing here is a decision. A delivery is one entry of
the ring; it is spread over the process's links when it arrives: a link takes part if it was used before
the entry was made and is still open, for what is in flight on a link is dropped with it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whence.core import rng
from whence.kernels.compile import Array, cached, fingerprint, inlined, inner, prefetch
from whence.kernels.prc import state as a
from whence.kernels.prc.state import PrcArrays
from whence.kernels.rng import below, mix64, stream
from whence.sim import links_overlay
from whence.sim.workload import SENDER

MESSAGE = 0  # entries of the ring: a delivery on its way to all neighbours; then the hops of a handshake
ALPHA_1, ALPHA_2, BETA_1, BETA_2, PI_1, PI_2, RHO_1, RHO_2 = range(1, 9)
BUFFER, RETURN, JOIN, WELCOME = range(9, 13)

AHEAD, SOON = 8, 3  # entries of the ring before its turn that its links, and what they lead to, are asked for

_GOLDEN = np.uint64(rng.GOLDEN)
_ONE = np.uint64(1)
_63 = np.int64(63)
_USE = a.IS_UNUSED | a.IS_NEW
_LOG_TIME = (1 << a.LOG_BITS) - 1


@inlined
def delay_us(points: Array, at_us: int) -> int:
    """As `Ramp.at` has it."""
    last = len(points) - 1
    if at_us < points[0, 0]:
        return int(points[0, 1])
    if at_us >= points[last, 0]:
        return int(points[last, 1])
    at, after = 0, last  # a delay in steps has two points for each
    while after - at > 1:
        middle = (at + after) // 2
        if at_us < points[middle, 0]:
            after = middle
        else:
            at = middle
    rise_us = points[after, 1] - points[at, 1]
    return int(points[at, 1] + rise_us * (at_us - points[at, 0]) // (points[after, 0] - points[at, 0]))


@inlined
def push(s: PrcArrays, arrive_us: int, what: int, who: int, row: int) -> None:
    """Send: an entry at the end of the ring."""
    tail = s.counters[a.TAIL]
    at = tail & (len(s.ring) - 1)
    s.ring[at, a.R_TIME_US] = arrive_us
    s.ring[at, a.R_WHAT] = what << 56 | who << 24 | row
    s.counters[a.TAIL] = tail + 1


@inlined
def _log_mask(s: PrcArrays) -> int:
    """What takes the number of a delivery to its place in a process's log."""
    return int(s.log.shape[1] - a.LOG_PAD - 1)


@inlined
def deliver(s: PrcArrays, node: int, row: int, slot: int, now_us: int, arrive_us: int) -> None:
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
    s.log[node, person[a.LOGGED] & _log_mask(s)] = number << a.LOG_BITS | now_us >> a.LOG_UNIT_BITS
    person[a.LOGGED] += 1
    counters[a.BUFFERED] += person[a.BUFFERING]
    counters[a.DELIVERIES] += 1
    mixed = np.uint64(person[a.LOG_HASH]) + np.uint64(number + 1) * _GOLDEN + np.uint64(now_us)
    person[a.LOG_HASH] = np.int64(mix64(mixed))
    s.rows[row, a.IN_FLIGHT] += 1
    push(s, arrive_us, MESSAGE, node, row)


@inner
def row_for(s: PrcArrays, number: int) -> int:
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
def release_row(s: PrcArrays, row: int) -> None:
    """Forget a message that is neither in flight nor expected."""
    if s.rows[row, a.IN_FLIGHT] == 0 and s.rows[row, a.BITS] == 0:
        s.row_of[s.rows[row, a.MESSAGE_NUMBER]] = -1
        s.free_rows[s.counters[a.ROWS_FREE]] = row
        s.counters[a.ROWS_FREE] += 1


@inner
def find(s: PrcArrays, node: int, peer: int) -> int:
    """The place of `peer` in a process's adjacency; -1 - place if it is not there, but belongs there."""
    low, high = 0, s.people[node, a.LINKED]
    while low < high:
        middle = (low + high) // 2
        if s.hot[node, middle] >> a.PEER_BITS < peer:
            low = middle + 1
        else:
            high = middle
    if low < s.people[node, a.LINKED] and s.hot[node, low] >> a.PEER_BITS == peer:
        return int(low)
    return int(-1 - low)


@inner
def is_safe(s: PrcArrays, node: int, peer: int) -> bool:
    """Whether the link is used in both directions at this end."""
    at = find(s, node, peer)
    return bool(at >= 0 and s.cold[node, at, a.SLOT] >= 0 and not s.hot[node, at] & a.IS_UNUSED)


@inner
def connect(s: PrcArrays, one: int, mediator: int, other: int) -> int:
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


@inner
def _insert(s: PrcArrays, node: int, peer: int, link: int) -> None:
    place = -1 - find(s, node, peer)
    size = s.people[node, a.LINKED]
    for at in range(size, place, -1):
        _move(s, node, at - 1, at)
    s.hot[node, place] = peer << a.PEER_BITS | a.IS_UNUSED
    s.cold[node, place, a.LINK] = link
    s.cold[node, place, a.SLOT] = -1
    s.people[node, a.LINKED] = size + 1
    s.counters[a.LINKED_MAX] = max(s.counters[a.LINKED_MAX], size + 1)


@inlined
def _move(s: PrcArrays, node: int, source: int, target: int) -> None:
    """One column at a time: copying slices would need memory."""
    s.hot[node, target] = s.hot[node, source]
    for column in range(s.cold.shape[2]):
        s.cold[node, target, column] = s.cold[node, source, column]


@inner
def use_in(s: PrcArrays, node: int, peer: int, now_us: int) -> int:
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
    s.hot[peer, there] = node << a.PEER_BITS | slot << a.SLOT_BITS | s.hot[peer, there] & _USE
    s.people[node, a.DEGREE_IN] += 1
    s.counters[a.DEGREE] += 1
    s.counters[a.DEGREE_MAX] = max(s.counters[a.DEGREE_MAX], s.people[node, a.DEGREE_IN])
    return slot


@inner
def use_out(s: PrcArrays, node: int, peer: int) -> None:
    """Qo ← Qo ∪ peer: whatever is sent from now on goes there too."""
    at = find(s, node, peer)
    s.hot[node, at] = s.hot[node, at] & ~_USE | a.IS_NEW
    s.cold[node, at, a.SINCE] = s.counters[a.TAIL]


@inner
def expect(s: PrcArrays, node: int, number: int, slot: int) -> None:
    """E[slot] ← E[slot] ∪ m."""
    row = row_for(s, number)
    s.masks[row, slot >> 6, node] |= _ONE << np.uint64(slot & _63)
    s.rows[row, a.BITS] += 1
    s.counters[a.EXPECTED] += 1


@inner
def release(s: PrcArrays, link: int, now_us: int) -> None:
    """A handshake does not need the link any more."""
    s.links[link, a.HOLDS] -= 1
    close_if_unneeded(s, link, now_us)


@inner
def close_if_unneeded(s: PrcArrays, link: int, now_us: int) -> None:
    """Close a link that no arc joins and no handshake needs."""
    if s.links[link, a.ARCS] == 0 and s.links[link, a.HOLDS] == 0:
        one, other = s.links[link, a.OPENER], s.links[link, a.TARGET]
        _remove(s, one, other, now_us)
        _remove(s, other, one, now_us)
        s.free_links[s.counters[a.LINKS_FREE]] = link
        s.counters[a.LINKS_FREE] += 1
        s.links[link, a.ARCS] = -1


@inner
def _remove(s: PrcArrays, node: int, peer: int, now_us: int) -> None:
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


@inner
def _expect_nothing(s: PrcArrays, node: int, slot: int, since_us: int, now_us: int) -> None:
    """E ← E \\ slot. Only what was delivered lately can be in it.

    The peer of a used link has our copy after one delay and its own is here after two. What was tagged when
    the link was opened may have been delivered up to five delays before its copy comes.
    """
    delay = delay_us(s.points, now_us)
    reach_us = 2 * delay if now_us - since_us > 8 * delay else 8 * delay
    mask, bit = _log_mask(s), _ONE << np.uint64(slot & _63)
    logged, oldest = s.people[node, a.LOGGED], (now_us - reach_us) >> a.LOG_UNIT_BITS
    at = logged - 1
    while at >= 0 and at >= logged - 1 - mask and s.log[node, at & mask] & _LOG_TIME >= oldest:
        row = s.row_of[s.log[node, at & mask] >> a.LOG_BITS]
        if row >= 0 and s.masks[row, slot >> 6, node] & bit:
            s.masks[row, slot >> 6, node] ^= bit
            s.rows[row, a.BITS] -= 1
            s.counters[a.EXPECTED] -= 1
            release_row(s, row)
        at -= 1


# The overlay's decisions, as overlay/spray.py and sim/links_overlay.py make them


_CONTACT, _SHUFFLER = np.uint64(links_overlay.CONTACT), np.uint64(links_overlay.SHUFFLER)
_BEGINS, _ANSWERS = np.uint64(links_overlay.BEGINS), np.uint64(links_overlay.ANSWERS)

ELIGIBLE, CHOSEN, WAS, BECOMES = range(4)  # rows of `scratch`


@inner
def join(s: PrcArrays, node: int, now_us: int) -> None:
    """The process asks a member."""
    key = stream(np.uint64(s.settings[a.SEED]), _CONTACT, s.settings[a.NODES])
    contact = int(s.members[below(key, node, s.counters[a.MEMBERS])])
    _take(s, node, contact)
    link = connect(s, node, -1, contact)
    push(s, now_us + delay_us(s.points, now_us), JOIN, link, 0)


@inner
def introduce(s: PrcArrays, contact: int, joiner: int, now_us: int) -> None:
    """Each node that the contact names over a safe link names the joiner; if none, the contact does."""
    if s.people[contact, a.NAMED] == 0:
        _take(s, contact, joiner)
        s.links[s.cold[contact, find(s, contact, joiner), a.LINK], a.ARCS] += 1
        return
    s.counters[a.TOKEN] += 1
    count = 0
    for at in range(s.people[contact, a.NAMED]):
        if _is_safe_between(s, contact, s.arcs[contact, at]):
            s.scratch[WAS, count] = s.arcs[contact, at]
            count += 1
    for at in range(count):
        node = int(s.scratch[WAS, at])
        _take(s, node, joiner)
        _open(s, node, contact, joiner, now_us, False)


@inner
def _take(s: PrcArrays, node: int, name: int) -> None:
    s.arcs[node, s.people[node, a.NAMED]] = name
    s.people[node, a.NAMED] += 1


@inner
def _open(s: PrcArrays, opener: int, mediator: int, target: int, now_us: int, is_counted: bool) -> None:
    """A pair has got an arc; `is_counted` if a link that was there before knows of it already."""
    at = find(s, opener, target)
    if at >= 0:
        link = int(s.cold[opener, at, a.LINK])
        if not is_counted or s.links[link, a.MADE] == s.counters[a.TOKEN]:
            s.links[link, a.ARCS] += 1
        return
    link = connect(s, opener, mediator, target)
    s.counters[a.OPENED] += 1
    s.links[link, a.HOLDS] = 1
    s.links[s.cold[opener, find(s, opener, mediator), a.LINK], a.HOLDS] += 1
    s.links[s.cold[mediator, find(s, mediator, target), a.LINK], a.HOLDS] += 1
    push(s, now_us + delay_us(s.points, now_us), ALPHA_1, link, 0)


@inner
def _is_safe_between(s: PrcArrays, node: int, other: int) -> bool:
    return is_safe(s, node, other) and is_safe(s, other, node)


@inner
def _is_given(s: PrcArrays, node: int, peer: int) -> bool:
    """Whether a safe link may be exchanged: the authors' program leaves out what a handshake needs."""
    if not is_safe(s, node, peer):
        return False
    return not s.settings[a.BY_AUTHORS] or s.links[s.cold[node, find(s, node, peer), a.LINK], a.HOLDS] == 0


@inner
def partner_of(s: PrcArrays, node: int) -> int:
    """The process behind the oldest arc over a link that both use; -1 if there is none."""
    for at in range(s.people[node, a.NAMED]):
        if _is_given(s, node, s.arcs[node, at]) and is_safe(s, s.arcs[node, at], node):
            return int(s.arcs[node, at])
    return -1


@inner
def shuffle(s: PrcArrays, node: int, partner: int, number: int, now_us: int) -> None:
    """Half of the safe arcs go to the partner, half of the partner's come back."""
    s.counters[a.TOKEN] += 1
    key = stream(np.uint64(s.settings[a.SEED]), _SHUFFLER, node)
    given = _give(s, node, partner, stream(key, _BEGINS, number), True, 0)
    both = given + _give(s, partner, node, stream(key, _ANSWERS, number), False, given)
    moves = s.scratch
    for at in range(both):
        taker = partner if at < given else node
        becomes = int(moves[BECOMES, at])
        _take(s, taker, becomes)
        place = find(s, taker, becomes)
        if place >= 0:
            s.links[s.cold[taker, place, a.LINK], a.ARCS] += 1
    for at in range(both):
        giver = node if at < given else partner
        s.links[s.cold[giver, find(s, giver, moves[WAS, at]), a.LINK], a.ARCS] -= 1
    for at in range(both):
        if moves[WAS, at] == moves[BECOMES, at]:
            giver, taker = (node, partner) if at < given else (partner, node)
            _open(s, taker, giver, int(moves[BECOMES, at]), now_us, True)
    for at in range(both):
        giver = node if at < given else partner
        place = find(s, giver, moves[WAS, at])
        if place >= 0:
            close_if_unneeded(s, int(s.cold[giver, place, a.LINK]), now_us)


@inner
def _give(s: PrcArrays, node: int, partner: int, key: np.uint64, begins: bool, start: int) -> int:
    """Take half of the safe arcs out of the view; they stand in `scratch` from `start` on."""
    arcs: Array = s.arcs[node]
    eligible, chosen = s.scratch[ELIGIBLE], s.scratch[CHOSEN]
    size, count = 0, 0
    for at in range(s.people[node, a.NAMED]):
        if _is_given(s, node, arcs[at]):
            eligible[size] = at
            size += 1
    wanted = size // 2 if begins and s.settings[a.BY_AUTHORS] else (size + 1) // 2
    if begins:
        first = 0
        while arcs[eligible[first]] != partner:
            first += 1
        chosen[0] = eligible[first]
        count = 1
        for at in range(first, size - 1):
            eligible[at] = eligible[at + 1]
        size -= 1
    while count < wanted:
        place = below(key, count, size)
        chosen[count] = eligible[place]
        size -= 1
        eligible[place] = eligible[size]
        count += 1
    for at in range(count):
        name = arcs[chosen[at]]
        s.scratch[WAS, start + at] = name
        s.scratch[BECOMES, start + at] = node if name == partner else name
        arcs[chosen[at]] = -1
    kept = 0
    for at in range(s.people[node, a.NAMED]):
        if arcs[at] >= 0:
            arcs[kept] = arcs[at]
            kept += 1
    s.people[node, a.NAMED] = kept
    return count


_SOURCE = np.uint64(SENDER)
_WHO_MASK = (1 << 32) - 1
_ROW_MASK = (1 << 24) - 1
_JOIN, _SHUFFLE = links_overlay.JOIN, links_overlay.SHUFFLE
_SHUFFLE_MESSAGES = links_overlay.SHUFFLE_MESSAGES


@inner
def _advance(s: PrcArrays) -> int:
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
                _fetch_links(s, s.ring[entry + AHEAD & (len(s.ring) - 1), a.R_WHAT])
                _fetch_masks(s, s.ring[entry + SOON & (len(s.ring) - 1), a.R_WHAT])
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


@inner
def _pass_time(s: PrcArrays, now_us: int) -> None:
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
        sums[a.W_OVERLAY] += counters[a.OVERLAY]
        sums[a.W_DELIVERIES] += counters[a.DELIVERIES]
        sums[a.W_RECEIPTS] += counters[a.RECEIPTS]
        counters[a.CONTROL] = counters[a.OVERLAY] = counters[a.DELIVERIES] = counters[a.RECEIPTS] = 0
        counters[a.TIME_US] = until_us


@inner
def _missing_room(s: PrcArrays, links_open: bool, node: int, partner: int) -> int:
    """What must grow before processes may get new links or names."""
    if not links_open:
        return a.DONE
    limit, named = 64 * s.settings[a.WORDS], s.people[node, a.NAMED]
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


@inner
def _free_rows(s: PrcArrays) -> int:
    return int(s.counters[a.ROWS_FREE] + len(s.rows) - s.counters[a.ROWS_USED])


@inner
def _rows_needed(s: PrcArrays, link: int) -> int:
    """How many messages that only the buffers of a link hold may come back to life."""
    row, mask, count = s.links[link], _log_mask(s), 0
    opener, target = row[a.OPENER], row[a.TARGET]
    for at in range(row[a.AT_BETA], s.people[opener, a.LOGGED]):
        count += s.row_of[s.log[opener, at & mask] >> a.LOG_BITS] < 0
    for at in range(row[a.AT_PI], s.people[target, a.LOGGED]):
        count += s.row_of[s.log[target, at & mask] >> a.LOG_BITS] < 0
    return count


@inner
def _external(s: PrcArrays, at: int, now_us: int) -> int:
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
            s.counters[a.OVERLAY] += _SHUFFLE_MESSAGES
            shuffle(s, node, partner, number, now_us)
        return needed
    counters = s.counters
    if _free_rows(s) < 1:
        return a.MORE_ROWS
    key = stream(np.uint64(s.settings[a.SEED]), _SOURCE, 0)
    source = int(s.members[below(key, number, counters[a.MEMBERS])])
    counters[a.BROADCASTS] += 1
    s.senders[number] = source
    deliver(s, source, row_for(s, number), -1, now_us, now_us + delay_us(s.points, now_us))
    return a.DONE


@inlined
def _fetch_links(s: PrcArrays, what: int) -> None:
    """Ask for the links of an entry of the ring, if it is a delivery (it may be one of long ago)."""
    if what >> 56 == MESSAGE:
        node = what >> 24 & _WHO_MASK
        for line in range(4):
            prefetch(s.hot, node, 8 * line)
        prefetch(s.people, node, 0)


@inlined
def _fetch_masks(s: PrcArrays, what: int) -> None:
    """Ask for what the neighbours of such an entry expect."""
    if what >> 56 == MESSAGE:
        node, masks = what >> 24 & _WHO_MASK, s.masks[what & _ROW_MASK]
        for at in range(s.people[node, a.LINKED]):
            prefetch(masks, 0, s.hot[node, at] >> a.PEER_BITS)


@inlined
def _spread(s: PrcArrays, node: int, row: int, entry: int, now_us: int) -> None:
    """The copies of one delivery arrive at the neighbours, in the order of their names."""
    arrive_us = now_us + delay_us(s.points, now_us)
    hot, masks = s.hot[node], s.masks[row]
    receipts, copies = 0, 0
    for at in range(s.people[node, a.LINKED]):
        where = hot[at]
        if where & _USE:
            if where & a.IS_UNUSED or s.cold[node, at, a.SINCE] > entry:
                continue
            hot[at] = where ^ a.IS_NEW  # later entries go over it, too
        receipts += 1
        peer, slot = where >> a.PEER_BITS, where >> a.SLOT_BITS & 0xFFFF
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


@inner
def _arrive(s: PrcArrays, what: int, link: int, now_us: int) -> None:
    """Control, a buffer, or a node that joins."""
    row, counters = s.links[link], s.counters
    opener, mediator, target = row[a.OPENER], row[a.MEDIATOR], row[a.TARGET]
    arrive_us = now_us + delay_us(s.points, now_us)
    counters[a.OVERLAY] += 1
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


@inner
def _stamp(s: PrcArrays, which: int, node: int, start: int, stop: int) -> int:
    """Mark what stands in an interval of a process's log; return the mark."""
    s.counters[a.TOKEN] += 1
    mask = _log_mask(s)
    if stop - start > mask:
        s.counters[a.FAULT] = 2
    for at in range(start, stop):
        s.stamps[which, s.log[node, at & mask] >> a.LOG_BITS] = s.counters[a.TOKEN]
    return int(s.counters[a.TOKEN])


@inner
def _take_buffer(s: PrcArrays, link: int, now_us: int, arrive_us: int) -> None:
    """Bβ is in: deliver Bβ \\ Bα \\ Bπ, expect Bπ \\ Bβ, answer with it, use the link."""
    row, mask = s.links[link], _log_mask(s)
    opener, target = row[a.OPENER], row[a.TARGET]
    end = s.people[target, a.LOGGED]
    row[a.AT_BUFFER] = end
    s.people[target, a.BUFFERING] -= 1
    s.counters[a.BUFFERED] -= end - row[a.AT_ALPHA]
    known = _stamp(s, 0, target, row[a.AT_ALPHA], end)
    sent = _stamp(s, 1, opener, row[a.AT_BETA], row[a.AT_RHO])
    for at in range(row[a.AT_BETA], row[a.AT_RHO]):
        number = s.log[opener, at & mask] >> a.LOG_BITS
        if s.stamps[0, number] != known:
            deliver(s, target, row_for(s, number), -1, now_us, arrive_us)
    slot = use_in(s, target, opener, now_us)
    for at in range(row[a.AT_PI], end):
        number = s.log[target, at & mask] >> a.LOG_BITS
        if s.stamps[1, number] != sent:
            expect(s, target, number, slot)
    push(s, arrive_us, RETURN, link, 0)
    use_out(s, target, opener)


@inner
def _take_return(s: PrcArrays, link: int, now_us: int, arrive_us: int) -> None:
    """The answer is in: deliver what is new, expect what was delivered since ρ and is not in it."""
    row, mask = s.links[link], _log_mask(s)
    opener, target = row[a.OPENER], row[a.TARGET]
    end = s.people[opener, a.LOGGED]
    s.people[opener, a.BUFFERING] -= 1
    s.counters[a.BUFFERED] -= end - row[a.AT_BETA]
    known = _stamp(s, 0, opener, row[a.AT_BETA], end)
    sent = _stamp(s, 1, target, row[a.AT_PI], row[a.AT_BUFFER])
    for at in range(row[a.AT_PI], row[a.AT_BUFFER]):
        number = s.log[target, at & mask] >> a.LOG_BITS
        if s.stamps[0, number] != known:
            deliver(s, opener, row_for(s, number), -1, now_us, arrive_us)
    slot = use_in(s, opener, target, now_us)
    for at in range(row[a.AT_RHO], end):
        number = s.log[opener, at & mask] >> a.LOG_BITS
        if s.stamps[1, number] != sent:
            expect(s, opener, number, slot)
    release(s, link, now_us)


def _entry(sources: int) -> Callable[[PrcArrays], int]:
    def advance(s: PrcArrays) -> int:
        return _advance(s) if sources != 0 else a.DONE  # `sources` must be used to be in the closure

    return cached(advance)


# Run until all is done, or until something must grow; then it goes on where it stopped.
advance = _entry(fingerprint())
