"""PRC's kernel: the overlay's decisions, as overlay/spray.py and sim/dynamic.py make them."""

from __future__ import annotations

import numpy as np

from whence.kernels import prc_arrays as a
from whence.kernels.compile import Array, bare
from whence.kernels.prc_arrays import State
from whence.kernels.prc_links import (
    ALPHA_1,
    JOIN,
    close_if_unneeded,
    connect,
    delay_us,
    find,
    is_safe,
    push,
)
from whence.kernels.rng import below, stream
from whence.sim import dynamic

_CONTACT, _SHUFFLER = np.uint64(dynamic.CONTACT), np.uint64(dynamic.SHUFFLER)
_BEGINS, _ANSWERS = np.uint64(dynamic.BEGINS), np.uint64(dynamic.ANSWERS)

ELIGIBLE, CHOSEN, WAS, BECOMES = range(4)  # rows of `scratch`


@bare
def join(s: State, node: int, now_us: int) -> None:
    """The process asks a member."""
    key = stream(np.uint64(s.settings[a.SEED]), _CONTACT, 0)
    contact = int(s.members[below(key, node, s.counters[a.MEMBERS])])
    _take(s, node, contact)
    link = connect(s, node, -1, contact)
    push(s, now_us + delay_us(s.points, now_us), JOIN, link, 0)


@bare
def introduce(s: State, contact: int, joiner: int, now_us: int) -> None:
    """Whoever the contact names over a safe link names the joiner; the contact itself, if it names nobody."""
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


@bare
def _take(s: State, node: int, name: int) -> None:
    s.arcs[node, s.people[node, a.NAMED]] = name
    s.people[node, a.NAMED] += 1


@bare
def _open(s: State, opener: int, mediator: int, target: int, now_us: int, is_counted: bool) -> None:
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


@bare
def _is_safe_between(s: State, node: int, other: int) -> bool:
    return is_safe(s, node, other) and is_safe(s, other, node)


@bare
def partner_of(s: State, node: int) -> int:
    """The process behind the oldest arc over a link that both use; -1 if there is none."""
    for at in range(s.people[node, a.NAMED]):
        if _is_safe_between(s, node, s.arcs[node, at]):
            return int(s.arcs[node, at])
    return -1


@bare
def shuffle(s: State, node: int, partner: int, number: int, now_us: int) -> None:
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


@bare
def _give(s: State, node: int, partner: int, key: np.uint64, begins: bool, start: int) -> int:
    """Take half of the safe arcs out of the view; they stand in `scratch` from `start` on."""
    arcs: Array = s.arcs[node]
    eligible, chosen = s.scratch[ELIGIBLE], s.scratch[CHOSEN]
    size, count = 0, 0
    for at in range(s.people[node, a.NAMED]):
        if is_safe(s, node, arcs[at]):
            eligible[size] = at
            size += 1
    wanted = (size + 1) // 2
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
