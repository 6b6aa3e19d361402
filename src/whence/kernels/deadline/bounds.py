"""The direct and the relay bound of `studies/deadline/bounds.py`, compiled: the same draws, the same counts.

For scenarios that `kernels.deadline.refusal` finds nothing against, and whose origins send each message once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whence.core.rng import GOLDEN
from whence.core.rng import stream as stream_of
from whence.kernels.compile import Array, cached, fingerprint, inner
from whence.kernels.deadline import state as a
from whence.kernels.deadline.kernel import links_of
from whence.kernels.rng import delay_code, draw, mix64, uniform
from whence.sim.model import Link, Scenario

NEVER_US = 1 << 62
_GOLDEN = np.uint64(GOLDEN)


def arrivals(scenario: Scenario, origin: Array, number: Array, sent_us: Array) -> Array:
    """When the origin's packet reaches each node, message by message; NEVER_US if it is lost."""
    links, loss = links_of(scenario)
    found = np.full((len(origin), scenario.nodes), NEVER_US, dtype=np.int64)
    _arrivals(_code(scenario.link), links[0], loss[0], origin, number, sent_us, found)
    return found


def relayed(
    scenario: Scenario, what: int, places: Array, origin: Array, deadline_us: Array, arrived: Array
) -> int:
    """How many pairs are reached in time if every node that has a message pushes it immediately.

    One row for each message: its place among all, its origin, its deadline, when it reaches each node.
    """
    links, loss = links_of(scenario)
    path = 0 if scenario.control is None else 1
    base = np.uint64(stream_of(scenario.seed, what))
    code = _code(scenario.control or scenario.link)
    times_us = arrived.copy()
    waiting = np.empty(scenario.nodes, dtype=np.bool_)
    return int(_relayed(code, links[path], loss[path], base, places, origin, deadline_us, times_us, waiting))


def _code(link: Link) -> Array:
    return np.array(delay_code(link.delay), dtype=np.int64)


@inner
def _further(key: np.uint64, entity: int) -> np.uint64:
    """The key of a stream that has one more entity."""
    return mix64((key ^ np.uint64(entity)) + _GOLDEN)


@inner
def _push(
    code: Array,
    links: Array,
    loss: Array,
    key: np.uint64,
    holder: int,
    since_us: int,
    times_us: Array,
    waiting: Array,
) -> None:
    """Each node that has the message sends it to all that wait for it and would have it later."""
    by_holder = _further(key, holder)
    for other in range(len(times_us)):
        if not waiting[other] or times_us[other] <= since_us:
            continue
        draws = _further(by_holder, other)
        if uniform(draws, 0) >= loss[holder, other]:
            delay_us = draw(code[0], code[1], code[2], draws, 1)
            came_us = since_us + delay_us + links[holder, other, a.EXTRA_US]
            times_us[other] = min(times_us[other], came_us)


def _make_arrivals(changes_with_the_text: int) -> Callable[..., None]:
    def fill(
        code: Array, links: Array, loss: Array, origin: Array, number: Array, sent_us: Array, found: Array
    ) -> None:
        for at in range(len(origin)):
            for to in range(found.shape[1]):
                link, index = links[origin[at], to], number[at] - 1
                chance = loss[origin[at], to]
                if changes_with_the_text == 0 or to == origin[at]:
                    continue
                if chance and uniform(np.uint64(link[a.LOSS_DRAWS]), index) < chance:
                    continue
                delay_us = draw(code[0], code[1], code[2], np.uint64(link[a.DELAY_DRAWS]), index)
                found[at, to] = sent_us[at] + delay_us + link[a.EXTRA_US]

    return cached(fill)


def _make_relayed(changes_with_the_text: int) -> Callable[..., int]:
    def count(
        code: Array,
        links: Array,
        loss: Array,
        base: np.uint64,
        places: Array,
        origin: Array,
        deadline_us: Array,
        arrived: Array,
        waiting: Array,
    ) -> int:
        reached = 0
        for at in range(len(places)):
            times_us = arrived[at]
            key = _further(base, places[at])
            for node in range(len(waiting)):
                waiting[node] = node != origin[at]
            while changes_with_the_text:
                holder = -1
                for node in range(len(waiting)):
                    if waiting[node] and (holder < 0 or times_us[node] < times_us[holder]):
                        holder = node
                if holder < 0 or times_us[holder] > deadline_us[at]:
                    break
                waiting[holder] = False
                reached += 1
                _push(code, links, loss, key, holder, times_us[holder], times_us, waiting)
        return reached

    return cached(count)


_arrivals = _make_arrivals(fingerprint())
_relayed = _make_relayed(fingerprint())
