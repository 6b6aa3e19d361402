"""How far the clocks of hosts are apart, from messages alone: for every pair an interval, at any time.

A message that host i stamps s when it leaves and host j stamps r when it comes proves one thing: when i
showed s, j showed at most r. Nothing else is used, so an interval is as wide as the delays leave it, and
half-open where messages go one way only. No order of events is ever taken from these intervals.

Rates of any two clocks differ by at most `drift_ppm`. So when i shows y, j shows at most
`r + (y - s) + drift * |y - s|`. That grows with y: along a path of messages the bounds are composed, and the
smallest over all paths is found as a shortest path is (Bellman and Ford), the length of an edge depending on
where one stands. Without drift this is the optimum of Patt-Shamir and Rajsbaum (1994). A path that leads back
to its host at an earlier reading than it began is a proof that the stamps are impossible.

`Drift.LINEAR` assumes in addition that the reading of one clock is a straight line of the other's, within the
same drift: the lines that pass between the two hulls of the stamps (Duda, Harrus, Haddad and Bernard 1987).
Hulls and lines are exact integers and fractions: floats cut off the true line.

Stamps are integers of any unit; a stamp t says that the clock showed at least t and less than
`t + resolution`. Results are rounded outwards.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from fractions import Fraction
from itertools import pairwise
from math import ceil, floor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from whence.errors import MisuseError

DRIFT_PPM = 500  # quartz is within 100; virtual machines and time servers that slew reach this
_MILLION = 1_000_000
_CYCLES_MAX = 20  # proofs of impossible stamps that are looked for
_LOOKS_MAX = 96  # readings of all clocks together at which longer circles are looked for
_STRETCHES = 200


class Drift(Enum):
    """What is known of a clock's rate."""

    BOUNDED = "bounded"  # it may change at any time, within the bound
    LINEAR = "linear"  # it is constant, within the bound


class Passage(NamedTuple):
    """One message, as the clocks of its two hosts saw it."""

    source: str
    sent: int
    target: str
    received: int
    name: str = ""


class Interval(NamedTuple):
    """Where the offset lies: what the second host's clock shows, minus what the first one's does."""

    low: int | None  # None: no message bounds it on this side
    high: int | None

    @property
    def width(self) -> int | None:
        """How uncertain it is; None where it is open."""
        return None if self.low is None or self.high is None else self.high - self.low

    @property
    def middle(self) -> int | None:
        """The best guess; the closed end of an interval that is half-open."""
        if self.low is None or self.high is None:
            return self.high if self.low is None else self.low
        return (self.low + self.high) // 2


class Impossible(NamedTuple):
    """Messages in a circle whose last one comes in before the first one left, however slow they were."""

    circle: tuple[Passage, ...]
    by: int  # how much earlier, at least


def quickest(pair: npt.NDArray[Any], sent: npt.NDArray[Any], received: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Of many messages those to take: of each pair of hosts the quickest in each stretch of time.

    The others would hardly narrow an interval down, and never widen it.
    """
    if not len(sent):
        return np.zeros(0, dtype=np.int64)
    stretch = (sent - sent.min()) // (int(np.ptp(sent)) // _STRETCHES + 1)
    order = np.lexsort((received - sent, stretch, pair))
    first = np.append(True, (np.diff(pair[order]) != 0) | (np.diff(stretch[order]) != 0))
    chosen: npt.NDArray[Any] = order[first]
    return chosen


Bound = Callable[[int], int]  # what the other clock shows at most (at least), by what this one shows


class ClockOffsets:
    """The offsets between the hosts of some messages."""

    def __init__(
        self,
        passages: Iterable[Passage],
        *,
        drift_ppm: int = DRIFT_PPM,
        resolution: int = 1,
        drift: Drift = Drift.BOUNDED,
    ) -> None:
        if not 0 <= drift_ppm < _MILLION:
            raise MisuseError(
                f"drift of {drift_ppm} ppm", "it is not from 0 to 999,999", "Most clocks keep within 500"
            )
        self.drift_ppm = drift_ppm
        self._resolution = resolution
        by_pair: dict[tuple[str, str], list[Passage]] = {}
        for passage in passages:
            if passage.source != passage.target:
                by_pair.setdefault((passage.source, passage.target), []).append(passage)
        self.hosts = sorted({host for pair in by_pair for host in pair})
        self._tightest = {pair: _undominated(found, drift_ppm) for pair, found in sorted(by_pair.items())}
        self.impossible: list[Impossible] = []  # the messages of a circle are left out of what follows
        while len(self.impossible) < _CYCLES_MAX and (circle := self._circle()) is not None:
            self.impossible.append(circle)
            for passage in circle.circle:
                pair = (passage.source, passage.target)
                by_pair[pair] = [each for each in by_pair[pair] if each != passage]
                self._tightest[pair] = _undominated(by_pair[pair], drift_ppm)
        self.not_linear: list[tuple[str, str]] = []  # no straight line fits: the bounded drift holds
        self._use(self._of_bounded())
        if drift is Drift.LINEAR:
            self._use(self._bounds | self._of_linear(by_pair))

    # Asking

    def interval(self, first: str, second: str, at: int) -> Interval:
        """What `second` shows minus what `first` shows, when `first` shows `at`."""
        low, high = self._reach(first, at, upper=False)[0], self._reach(first, at, upper=True)[0]
        least, most = low.get(second), high.get(second)
        return Interval(None if least is None else least - at, None if most is None else most - at)

    def intervals(self, first: str, at: int) -> dict[str, Interval]:
        """The same for every host that messages connect with `first`, and `first` itself."""
        low, high = self._reach(first, at, upper=False)[0], self._reach(first, at, upper=True)[0]
        made = {}
        for host in sorted(low.keys() | high.keys()):
            least, most = low.get(host), high.get(host)
            made[host] = Interval(None if least is None else least - at, None if most is None else most - at)
        return made

    def correction(self, host: str, reference: str, at: Sequence[int]) -> list[tuple[int, int]]:
        """What to add to readings of `host` to get those of `reference`: (reading, correction) at each `at`.

        For display only. Where nothing connects the two it is 0.
        """
        if host == reference:
            return [(reading, 0) for reading in at]
        return [(reading, self.interval(host, reference, reading).middle or 0) for reading in at]

    # Bounds of one pair

    def _use(self, bounds: dict[tuple[str, str, bool], Bound]) -> None:
        self._bounds = bounds
        self._from: dict[tuple[str, bool], list[tuple[str, Bound]]] = {}
        for (host, other, upper), bound in bounds.items():
            self._from.setdefault((host, upper), []).append((other, bound))

    def _of_bounded(self) -> dict[tuple[str, str, bool], Bound]:
        bounds: dict[tuple[str, str, bool], Bound] = {}
        for (source, target), passages in self._tightest.items():
            if passages:
                most = _Cones(
                    [each.sent for each in passages],
                    [each.received + self._resolution for each in passages],
                    self.drift_ppm,
                )
                least = _Cones(
                    [-each.received - self._resolution for each in reversed(passages)],
                    [-each.sent for each in reversed(passages)],
                    self.drift_ppm,
                )
                bounds[source, target, True] = most.at
                bounds[target, source, False] = _mirrored(least)
        return bounds

    def _of_linear(self, by_pair: dict[tuple[str, str], list[Passage]]) -> dict[tuple[str, str, bool], Bound]:
        bounds: dict[tuple[str, str, bool], Bound] = {}
        for first, second in sorted(by_pair):
            above = [(each.sent, each.received + self._resolution) for each in by_pair[first, second]]
            back = by_pair.get((second, first), [])
            below = [(each.received + self._resolution, each.sent) for each in back]
            lines = SeparatingLines.between(above, below, self.drift_ppm)
            if lines is None:
                self.not_linear.append((first, second))
                continue
            bounds[first, second, True] = lines.most
            if below:
                bounds[first, second, False] = lines.least
        return bounds

    # Paths

    def _reach(self, start: str, at: int, *, upper: bool) -> tuple[dict[str, int], dict[str, str]]:
        """The most (least) that each clock can show when `start` shows `at`, and the host that binds it."""
        reading, bound_by = {start: at}, {start: ""}
        changed = [start]
        for _ in range(len(self.hosts) + 1):
            again: dict[str, None] = {}
            for host in changed:
                here = reading[host]
                for other, bound in self._from.get((host, upper), ()):
                    found = bound(here)
                    known = reading.get(other)
                    if known is None or (found < known if upper else found > known):
                        reading[other], bound_by[other] = found, host
                        if other == start:
                            return reading, bound_by
                        again[other] = None
            changed = list(again)
            if not changed:
                break
        return reading, bound_by

    def _circle(self) -> Impossible | None:
        """Messages that prove the stamps impossible. Circles of two hosts are looked for everywhere."""
        self._use(self._of_bounded())
        for (source, target), passages in self._tightest.items():
            there = self._bounds.get((source, target, True))
            back = self._bounds.get((target, source, True))
            if there is None or back is None:
                continue
            for passage in passages:
                if (by := passage.sent - back(there(passage.sent))) > 0:
                    return self._proof([source, target], passage.sent, by)
        for host in self.hosts:
            for at in self._looks(host):
                reading, bound_by = self._reach(host, at, upper=True)
                if reading[host] < at:
                    return self._proof(_path(bound_by, host), at, at - reading[host])
        return None

    def _looks(self, host: str) -> list[int]:
        stamps = sorted(
            {each.sent for (source, _), found in self._tightest.items() if source == host for each in found}
        )
        return stamps[:: 1 + len(stamps) * len(self.hosts) // _LOOKS_MAX]

    def _proof(self, hosts: list[str], at: int, by: int) -> Impossible:
        """The messages that bind along a circle of hosts, from where the first one shows `at`."""
        circle, reading = [], at
        for source, target in pairwise([*hosts, hosts[0]]):
            best = min(
                self._tightest[source, target],
                key=lambda each: (
                    (each.received - each.sent) * _MILLION + self.drift_ppm * abs(reading - each.sent)
                ),
            )
            circle.append(best)
            reading = self._bounds[source, target, True](reading)
        return Impossible(tuple(circle), by)


def _path(bound_by: dict[str, str], host: str) -> list[str]:
    """The hosts of a circle through `host`, in the order of its messages."""
    back = [host]
    while (before := bound_by[back[-1]]) not in back and before:
        back.append(before)
    return [host, *reversed(back[1:])]


def _undominated(passages: Sequence[Passage], drift_ppm: int) -> list[Passage]:
    """The messages of one pair that bound it most tightly somewhere: two passes, forwards and backwards."""
    kept = sorted(passages, key=lambda each: (each.sent, each.received))
    for way in (1, -1):
        best: Passage | None = None
        left: list[Passage] = []
        for each in kept[::way]:
            if best is None or _excess(each, best, drift_ppm) < 0:
                best = each
                left.append(each)
        kept = left[::way]
    return kept


def _excess(passage: Passage, other: Passage, drift_ppm: int) -> int:
    """How much less tight a message is than another one, where it is tightest; in millionths."""
    width = (passage.received - passage.sent) - (other.received - other.sent)
    return width * _MILLION - drift_ppm * abs(passage.sent - other.sent)


class _Cones:
    """min over k of `bound_k + (y - at_k) + drift |y - at_k|`; each k is the least at its own `at_k`."""

    def __init__(self, at: list[int], bound: list[int], drift_ppm: int) -> None:
        self._at = at
        self._bound = bound
        self._drift_ppm = drift_ppm

    def at(self, reading: int) -> int:
        """The smallest integer that is not below the minimum."""
        place = bisect_left(self._at, reading)
        near = range(max(0, place - 1), min(len(self._at), place + 1))
        return min(
            self._bound[k]
            + (reading - self._at[k])
            - (-self._drift_ppm * abs(reading - self._at[k]) // _MILLION)
            for k in near
        )


def _mirrored(cones: _Cones) -> Bound:
    """The same of clocks that run backwards: what is most for them is least for ours."""
    return lambda reading: -cones.at(-reading)


# Straight lines between two sets of points

Point = tuple[int, int]


class SeparatingLines:
    """The lines y = a + b x that lie on or below every point `above` and on or above every point `below`."""

    def __init__(self, above: list[Point], below: list[Point], low: Fraction, high: Fraction) -> None:
        self._above = above  # the lower hull of the upper points, and the other way round
        self._below = below
        self._slopes = (low, high)

    @classmethod
    def between(
        cls, above: Iterable[Point], below: Iterable[Point], drift_ppm: int
    ) -> SeparatingLines | None:
        """All that pass with a slope within the drift; None if there is none."""
        hull = _lower_hull(above)
        flipped = _lower_hull((-x, -y) for x, y in below)
        under = [(-x, -y) for x, y in reversed(flipped)]
        least, most = (Fraction(_MILLION + sign * drift_ppm, _MILLION) for sign in (-1, 1))
        steps = {least, most} | {slope for slope in [*_slopes(hull), *_slopes(under)] if least < slope < most}
        room = [(slope, _room(hull, under, slope)) for slope in sorted(steps)]
        fit = [slope for slope, free in room if free >= 0]
        if not fit:
            # No corner fits. Room is concave: between two corners it is a straight line, so there is none.
            return None
        low, high = fit[0], fit[-1]
        for (left, room_left), (right, room_right) in pairwise(room):
            if right == low and room_left < 0:
                low = left + (right - left) * -room_left / (room_right - room_left)
            if left == high and room_right < 0:
                high = right - (right - left) * -room_right / (room_left - room_right)
        return cls(hull, under, low, high)

    def most(self, x: int) -> int:
        """The highest that any of the lines is at x, rounded up."""
        return ceil(max(_ceiling(self._above, b) + b * x for b in self._tried(self._above)))

    def least(self, x: int) -> int:
        """The lowest that any of the lines is at x, rounded down."""
        return floor(min(_floor(self._below, b) + b * x for b in self._tried(self._below)))

    def _tried(self, hull: list[Point]) -> list[Fraction]:
        low, high = self._slopes
        return [low, high, *(slope for slope in _slopes(hull) if low < slope < high)]


def _lower_hull(points: Iterable[Point]) -> list[Point]:
    """The lower convex hull, from left to right (Andrew's monotone chain)."""
    hull: list[Point] = []
    for point in sorted(set(points)):
        if hull and hull[-1][0] == point[0]:
            continue
        while len(hull) > 1 and _turn(hull[-2], hull[-1], point) <= 0:
            hull.pop()
        hull.append(point)
    return hull


def _turn(first: Point, second: Point, third: Point) -> int:
    return (second[0] - first[0]) * (third[1] - first[1]) - (second[1] - first[1]) * (third[0] - first[0])


def _slopes(hull: list[Point]) -> list[Fraction]:
    return [Fraction(right[1] - left[1], right[0] - left[0]) for left, right in pairwise(hull)]


def _ceiling(above: list[Point], slope: Fraction) -> Fraction:
    """The largest a of a line of that slope that stays below the points."""
    return min(y - slope * x for x, y in above)


def _floor(below: list[Point], slope: Fraction) -> Fraction:
    return max(y - slope * x for x, y in below)


def _room(above: list[Point], below: list[Point], slope: Fraction) -> Fraction:
    """How far a line of that slope can be shifted up and down; below 0: there is none."""
    if not below:
        return Fraction(1)
    return _ceiling(above, slope) - _floor(below, slope)
