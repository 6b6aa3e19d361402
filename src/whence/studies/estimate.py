"""From a few seeds to a mean with a 95 % confidence interval.

The seeds of a grid point are independent repetitions, so the interval is Student's:
mean +- t(0.975, n - 1) * s / sqrt(n), with the sample standard deviation s. With one repetition there
is no interval, and none is shown. Two protocols that ran on the same seeds are compared by the
differences within each seed (`paired`): what the seed did to both cancels out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

# t(0.975, df) for df = 1 .. 30; beyond, the expansion below is right to four digits.
_T_975 = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
    2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
    2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
)  # fmt: skip
_Z_975 = 1.959964


def t_975(degrees: int) -> float:
    """The 97.5 % quantile of Student's t."""
    if degrees < 1:
        raise ValueError("a t interval needs at least two values")
    if degrees <= len(_T_975):
        return _T_975[degrees - 1]
    z = _Z_975  # Cornish-Fisher: the first two terms in 1 / degrees
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


@dataclass(frozen=True)
class Estimate:
    """A mean over repetitions; `half` is half the width of its 95 % interval, None for one value."""

    mean: float
    half: float | None
    count: int

    @property
    def low(self) -> float:
        return self.mean - (self.half or 0.0)

    @property
    def high(self) -> float:
        return self.mean + (self.half or 0.0)


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and interval of independent repetitions."""
    count = len(values)
    if not count:
        raise ValueError("there is no mean of no values")
    # Around the first value, so that equal values give exactly that value and a zero interval.
    anchor = values[0]
    mean = anchor + sum(value - anchor for value in values) / count
    if count == 1:
        return Estimate(mean, None, 1)
    deviation = sqrt(sum((value - mean) ** 2 for value in values) / (count - 1))
    return Estimate(mean, t_975(count - 1) * deviation / sqrt(count), count)


def paired(first: Sequence[float], second: Sequence[float]) -> Estimate:
    """The mean of second - first, value by value (the same seed at the same place)."""
    return estimate([after - before for before, after in zip(first, second, strict=True)])


def percent_change(first: Sequence[float], second: Sequence[float]) -> Estimate | None:
    """100 (sum of second / sum of first - 1), with the interval of a ratio of two means.

    The interval is the usual one for a ratio estimator: that of second - ratio x first, which has mean
    zero, over the mean of first. A mean of the runs' own ratios would count a run with one copy as much
    as a run with a thousand.
    """
    total = sum(first)
    if not total:
        return None
    count, ratio = len(first), sum(second) / total
    if count == 1:
        return Estimate(100 * (ratio - 1), None, 1)
    rest = [late - ratio * early for early, late in zip(first, second, strict=True)]
    deviation = sqrt(sum(value * value for value in rest) / (count - 1))
    return Estimate(100 * (ratio - 1), 100 * t_975(count - 1) * deviation * sqrt(count) / total, count)
