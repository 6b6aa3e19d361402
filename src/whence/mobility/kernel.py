"""The inner loops on moving nodes: plain Python over numpy arrays, compiled by numba where it is installed.

Without numba the same source runs, with the same results, some fifty times slower. `fastmath` is off, so that
floats keep their bits. What a compiled function calls is in this file too: numba decides by the file of a
function whether what it has on disk is still right.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any, TypeVar, cast

import numpy.typing as npt

Array = npt.NDArray[Any]
F = TypeVar("F", bound=Callable[..., Any])


def jit(function: F) -> F:
    """The function as fast as this machine can have it."""
    try:
        import numba
    except ImportError:
        return function
    njit: Any = numba.njit  # its stubs do not know all of its options
    return cast(F, njit(cache=True)(function))


@jit
def within(px: float, py: float, vx: float, vy: float, range_m: float, lasting: float) -> tuple[float, float]:
    """When |p + v t| <= range_m, for t in 0 .. lasting; (1, 0) if never."""
    speed2 = vx * vx + vy * vy
    gap2 = px * px + py * py - range_m * range_m
    if speed2 == 0.0:
        return (0.0, lasting) if gap2 <= 0.0 else (1.0, 0.0)
    approach = px * vx + py * vy
    root2 = approach * approach - speed2 * gap2
    if root2 <= 0.0:  # they pass further away, or touch the range for no time
        return 1.0, 0.0
    root = sqrt(root2)
    return max((-approach - root) / speed2, 0.0), min((root - approach) / speed2, lasting)


@jit
def _keep(found: Array, count: int, one: int, other: int, began: int, ended: int) -> int:
    if not 0 <= began < ended:
        return count
    if count < found.shape[0]:
        found[count, 0], found[count, 1] = min(one, other), max(one, other)
        found[count, 2], found[count, 3] = began, ended
    return count + 1


@jit
def meet(
    one: int, other: int, offsets: Array, start_us: Array, stop_us: Array, place: Array, slope: Array,
    range_m: float, found: Array, count: int,
) -> int:  # fmt: skip
    """The contacts of one pair, appended to `found`; see `meet_all`."""
    began, ended = -1, -1  # the contact that is still growing
    at, to = offsets[one], offsets[other]
    while at < offsets[one + 1] and to < offsets[other + 1]:
        first = max(start_us[at], start_us[to])
        last = min(stop_us[at], stop_us[to])
        if first < last:
            past_at, past_to = first - start_us[at], first - start_us[to]
            px = place[0, at] + slope[0, at] * past_at - place[0, to] - slope[0, to] * past_to
            py = place[1, at] + slope[1, at] * past_at - place[1, to] - slope[1, to] * past_to
            vx, vy = slope[0, at] - slope[0, to], slope[1, at] - slope[1, to]
            enter, leave = within(px, py, vx, vy, range_m, float(last - first))
            if enter < leave:
                from_us, until_us = first + int(enter + 0.5), first + int(leave + 0.5)
                if began >= 0 and from_us <= ended + 1:  # goes on from the leg before
                    ended = max(ended, until_us)
                else:
                    count = _keep(found, count, one, other, began, ended)
                    began, ended = from_us, until_us
        if stop_us[at] < stop_us[to]:
            at += 1
        else:
            to += 1
    return _keep(found, count, one, other, began, ended)


@jit
def meet_all(
    order: Array, offsets: Array, start_us: Array, stop_us: Array, place: Array, slope: Array, range_m: float,
    found: Array,
) -> int:  # fmt: skip
    """Contacts of all pairs of nodes that move along straight legs; exact in continuous time.

    Node n's legs are `offsets[n] : offsets[n + 1]`, in order of time: at time t of a leg the node is at
    `place + slope * (t - start_us)`, rows x and y, in metres and microseconds. `order` has the nodes that
    have legs, by their first start. A pair is in contact while its distance is at most `range_m`. Rows (a, b,
    start_us, stop_us) go to `found`; returns how many there are, which may be more than fit.
    """
    count = 0
    for here in range(order.shape[0]):
        one = order[here]
        for later in range(here + 1, order.shape[0]):
            other = order[later]
            if start_us[offsets[other]] >= stop_us[offsets[one + 1] - 1]:
                break  # all that follow begin later still
            count = meet(one, other, offsets, start_us, stop_us, place, slope, range_m, found, count)
    return count


@jit
def _near(
    one: int, other: int, x: Array, y: Array, node: Array, step: Array, reach: float, found: Array, count: int
) -> tuple[int, bool]:
    """Count the pair if it is in range, and say whether all further to the right are out of it."""
    dx, dy = x[other] - x[one], y[other] - y[one]
    if dx * dx + dy * dy <= reach:
        if count < found.shape[0]:
            found[count, 0], found[count, 1] = min(node[one], node[other]), max(node[one], node[other])
            found[count, 2] = step[one]
        return count + 1, False
    return count, dx > 0.0 and dx * dx > reach


@jit
def near_pairs(
    first: int, bounds: Array, keys: Array, step: Array, node: Array, x: Array, y: Array, range_m: float,
    found: Array,
) -> tuple[int, int]:  # fmt: skip
    """Pairs of positions of one step that are at most `range_m` apart.

    Positions are sorted by band and x; band i is `bounds[i] : bounds[i + 1]` with the key `keys[i]`, and the
    band above it in the same step, if any, has the next key. Begins at band `first` and writes rows (node,
    node, step), lower node first, until `found` is full. Returns the band at which to go on, and how many
    rows there are.
    """
    count = 0
    reach = range_m * range_m
    for band in range(first, keys.shape[0]):
        before = count
        above = band + 1 < keys.shape[0] and keys[band + 1] == keys[band] + 1
        edge = bounds[band + 1]  # the first position of the band above that may be near enough
        for one in range(bounds[band], bounds[band + 1]):
            for other in range(one + 1, bounds[band + 1]):
                count, far = _near(one, other, x, y, node, step, reach, found, count)
                if far:
                    break
            if above:
                while edge < bounds[band + 2] and x[edge] < x[one] and (x[one] - x[edge]) ** 2 > reach:
                    edge += 1
                for other in range(edge, bounds[band + 2]):
                    count, far = _near(one, other, x, y, node, step, reach, found, count)
                    if far:
                        break
            if count > found.shape[0]:
                return band, before
    return keys.shape[0], count
