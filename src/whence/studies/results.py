"""The runs of a study with what was measured of each, and how to ask them questions.

The seeds of a grid point are independent repetitions, so the interval is Student's:
mean +- t(0.975, n - 1) * s / sqrt(n), with the sample standard deviation s. With one repetition there
is no interval, and none is shown. Two protocols that ran on the same seeds are compared by the
differences within each seed (`paired`): what the seed did to both cancels out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import hypot, sqrt
from typing import Any, ClassVar, TypeAlias

Label: TypeAlias = str | int | float

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


def step(before: Estimate, after: Estimate) -> Estimate:
    """after - before, of runs that are not paired: the halves of their intervals add up as squares."""
    known = before.half is not None and after.half is not None
    half = hypot(before.half or 0.0, after.half or 0.0) if known else None
    return Estimate(after.mean - before.mean, half, min(before.count, after.count))


@dataclass(frozen=True)
class Row:
    """One finished run: coordinates, measures, and the verifier's report."""

    run: str
    labels: Mapping[str, Label]
    parameters: Mapping[str, Any]  # the scenario: everything needed to repeat the run
    measures: Mapping[str, float | None]
    verdict: Mapping[str, Any]  # the verifier's RunReport as plain data; empty if the run kept no trace
    counted: Mapping[str, Any] = field(default_factory=dict)  # by a kernel: its measures.json
    runs: ClassVar[int] = 1

    @property
    def judged(self) -> bool:
        """Whether the verifier has seen the run."""
        return bool(self.verdict)

    @property
    def ok(self) -> bool:
        """Whether the verifier has seen the run, and nothing that the protocol promises is broken."""
        return bool(self.verdict and self.verdict["ok"])

    def measure(self, name: str) -> float:
        """A measure that must be there."""
        value = self.measures[name]
        if value is None:
            raise ValueError(f"run {self.run} has no {name}")
        return value


@dataclass(frozen=True)
class Derived:
    """Measures that follow from several runs together, as a slope or a rise, under labels of their own."""

    labels: Mapping[str, Label]
    measures: Mapping[str, float | None]
    runs: int = 1  # how many runs, or points of a curve, it rests on
    halves: Mapping[str, float | None] = field(default_factory=dict)  # of the measures' intervals, if known


def _has(line: Row | Derived, where: Mapping[str, Label | tuple[Label, ...]]) -> bool:
    """Whether a line has these labels, or one of several."""
    for name, wanted in where.items():
        at = line.labels.get(name)
        if at not in wanted if isinstance(wanted, tuple) else at != wanted:
            return False
    return True


@dataclass(frozen=True)
class Results:
    """All finished runs of a study, in the order of its grid, and what the study derives from them."""

    rows: tuple[Row, ...]
    repetition: str = "seed"
    derived: tuple[Derived, ...] = ()
    _having: Mapping[str, Mapping[Label, list[Row]]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        having: dict[str, dict[Label, list[Row]]] = {}
        for row in self.rows:
            for name, label in row.labels.items():
                having.setdefault(name, {}).setdefault(label, []).append(row)
        object.__setattr__(self, "_having", having)

    def values(self, label: str) -> tuple[Label, ...]:
        """The values that a label takes, in the order of the grid."""
        return tuple(self._having.get(label, ()))

    def select(self, **labels: Label) -> list[Row]:
        """The runs with these labels."""
        return [row for row in self._among(labels) if _has(row, labels)]

    def lines(self, where: Mapping[str, Label | tuple[Label, ...]]) -> list[Row | Derived]:
        """The runs and the derived lines with these labels; several values of a label mean any of them."""
        every: list[Row | Derived] = [*self._among(where), *self.derived]
        return [line for line in every if _has(line, where)]

    def _among(self, where: Mapping[str, Label | tuple[Label, ...]]) -> Sequence[Row]:
        """The runs with the rarest of these labels, in the order of the grid."""
        fewest: Sequence[Row] = self.rows
        for name, wanted in where.items():
            if not isinstance(wanted, tuple):
                found = self._having.get(name, {}).get(wanted, ())
                fewest = found if len(found) < len(fewest) else fewest
        return fewest

    def column(self, measure: str, **labels: Label) -> list[float]:
        """One measure of the runs with these labels, in the order of the grid; absent values left out."""
        found = (row.measures.get(measure) for row in self.select(**labels))
        return [value for value in found if value is not None]

    def estimate(self, measure: str, **labels: Label) -> Estimate | None:
        """Mean and 95 % interval over the repetitions; None when no run has the measure."""
        values = self.column(measure, **labels)
        return estimate(values) if values else None

    def compare(
        self, measure: str, label: str, before: Label, after: Label, **labels: Label
    ) -> Estimate | None:
        """after - before in pairs that share every other label, the repetition among them."""
        others: dict[tuple[tuple[str, Label], ...], float] = {}
        for row in self.select(**labels, **{label: before}):
            value = row.measures.get(measure)
            if value is not None:
                others[_without(row.labels, label)] = value
        first, second = [], []
        for row in self.select(**labels, **{label: after}):
            value = row.measures.get(measure)
            place = _without(row.labels, label)
            if value is not None and place in others:
                first.append(others[place])
                second.append(value)
        return paired(first, second) if first else None

    def maximum(self, measure: str, **labels: Label) -> float | None:
        """The largest value; None when no run has the measure."""
        return max(self.column(measure, **labels), default=None)

    def total(self, measure: str, **labels: Label) -> float:
        """The sum over the runs."""
        return sum(self.column(measure, **labels))


def _without(labels: Mapping[str, Label], name: str) -> tuple[tuple[str, Label], ...]:
    return tuple(sorted((key, value) for key, value in labels.items() if key != name))


def farthest(values: Iterable[float], expected: float) -> float | None:
    """The value farthest from `expected`: what a claim about every run is judged by."""
    return max(values, key=lambda value: abs(value - expected), default=None)
