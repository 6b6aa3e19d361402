"""How the measured times grow: medians over rounds, ratios to the smallest system, slopes, lines, crossings.

A ratio is taken within each round and the median of these is shown: what slows the machine for a while slows
both systems of a round.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import exp, log
from statistics import median
from typing import NamedTuple

from whence.studies.results import Estimate, Results

LARGE_FROM = 50  # servers: from here on the slope counts; below, what does not grow weighs too much
TIMES = {"cpu_us": "processor time", "wall_us": "wall time"}


class FittedKind(NamedTuple):
    """What was measured: all sizes of it make one curve."""

    part: str
    workload: str
    organisation: str
    stamps: str


FLAT = FittedKind("live", "ping-pong", "flat", "full")
BUS = FittedKind("live", "ping-pong", "bus", "full")
# Only the servers of the way run: beyond 150 servers, where what does not grow no longer hides what does.
WAY_FLAT, WAY_BUS = FLAT._replace(part="live-way"), BUS._replace(part="live-way")


class Fit(NamedTuple):
    """time = base + rate * n ** power, by least squares; `share` of the variance that it explains (R²)."""

    base: float
    rate: float
    power: int
    share: float

    def at(self, nodes: float) -> float:
        """The fitted value."""
        return float(self.base + self.rate * nodes**self.power)


def kinds(results: Results, *parts: str) -> list[FittedKind]:
    """Every curve of these parts, in the order of the plan."""
    found = (
        FittedKind(*(str(row.labels[name]) for name in FittedKind._fields))
        for row in results.rows
        if row.labels["part"] in parts
    )
    return list(dict.fromkeys(found))


def rounds(results: Results, kind: FittedKind, measure: str) -> dict[int, dict[int, float]]:
    """Size -> round -> value, sizes ascending."""
    found: dict[int, dict[int, float]] = {}
    for row in results.select(**kind._asdict()):
        value = row.measures.get(measure)
        if value is not None:
            found.setdefault(int(row.labels["nodes"]), {})[int(row.labels["seed"])] = value
    return dict(sorted(found.items()))


def medians(results: Results, kind: FittedKind, measure: str) -> dict[int, float]:
    """Size -> median over the rounds."""
    return {nodes: median(found.values()) for nodes, found in rounds(results, kind, measure).items()}


def ratios(results: Results, kind: FittedKind, measure: str) -> dict[int, Estimate]:
    """Size -> time over that of the smallest system in the same round: the median, without an interval."""
    found = rounds(results, kind, measure)
    if not found:
        return {}
    first = next(iter(found.values()))
    return {
        nodes: Estimate(median(value / first[at] for at, value in values.items()), None, len(values))
        for nodes, values in found.items()
    }


def growth(results: Results, kind: FittedKind, measure: str) -> dict[int, float]:
    """The ratios as plain numbers: what slopes and lines are fitted to."""
    return {nodes: found.mean for nodes, found in ratios(results, kind, measure).items()}


def gains(results: Results, flat: FittedKind, bus: FittedKind, measure: str) -> dict[int, float]:
    """Size -> time without domains over time on the bus, in the same round; the median of these."""
    slow, fast = rounds(results, flat, measure), rounds(results, bus, measure)
    return {
        nodes: median(value / fast[nodes][at] for at, value in values.items())
        for nodes, values in slow.items()
        if nodes in fast
    }


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Base, rate and R² of the straight line through the points; they differ in x."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread_x = sum((x - mean_x) ** 2 for x, _ in points)
    spread_y = sum((y - mean_y) ** 2 for _, y in points)
    rate = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread_x
    base = mean_y - rate * mean_x
    left = sum((y - base - rate * x) ** 2 for x, y in points)
    return base, rate, 1.0 - left / spread_y if spread_y else 1.0


def fit(values: dict[int, float], power: int) -> Fit | None:
    """base + rate * n ** power over all sizes; None for fewer than three, which prove nothing."""
    if len(values) < 3:
        return None
    base, rate, share = _line([(float(nodes**power), value) for nodes, value in values.items()])
    return Fit(base, rate, power, share)


def slope(values: dict[int, float], start: int = LARGE_FROM) -> float | None:
    """On logarithmic axes over the sizes from `start` on; None if there are not two."""
    points = [(log(nodes), log(value)) for nodes, value in values.items() if nodes >= start]
    return _line(points)[1] if len(points) > 1 else None


def exponent(values: dict[int, float]) -> float | None:
    """The p of base + rate * n ** p that fits best, to a hundredth; None for fewer than four sizes."""
    if len(values) < 4:
        return None
    shares = {
        p: _line([(float(nodes) ** (p / 100), value) for nodes, value in values.items()])[2]
        for p in range(10, 401)
    }
    return max(shares, key=lambda p: shares[p]) / 100


def crossing(gained: dict[int, float]) -> float | None:
    """The number of servers from which on `gains` are above 1, between two sizes by the logarithms.

    None if they never are, or always were.
    """
    both = [(log(nodes), log(gain)) for nodes, gain in gained.items()]
    for (x0, y0), (x1, y1) in reversed(list(pairwise(both))):
        if y0 <= 0 < y1:
            return exp(x0 - y0 * (x1 - x0) / (y1 - y0))
    return None
