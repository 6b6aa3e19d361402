"""Claims as data, and the verdict on each: what is published beside what the runs measured.

A study's `claims.py` is a tuple of `Claim`. Each says which runs speak of it (`where`), by which measure, how
the values of these runs become one number (`take`, `against`), and how near that must be to the published
one. `judge` asks the runs. Nothing is computed from a published number but its verdict, and what no run can
say is shown as "not judged", and fails the study where it is demanded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from math import isnan, sqrt
from typing import TypeAlias

from whence.studies.estimate import Estimate, estimate, percent_change
from whence.studies.results import Derived, Label, Results, Row, farthest

Line: TypeAlias = Row | Derived
Labels: TypeAlias = Mapping[str, Label | tuple[Label, ...]]

PROMISES_KEPT = "promises_kept"  # 1 for a run that the verifier calls ok, 0 for another; none if it saw none


class Evidence(StrEnum):
    """Where a published number comes from."""

    PAPER = "paper"
    AUTHORS_PROGRAM = "authors' program"
    PROTOTYPE = "our prototype"
    INVARIANT = "invariant"  # an argument, or a promise of the protocol


class Verdict(StrEnum):
    """Whether we found what is claimed."""

    REPRODUCED = "reproduced"
    DIFFERS = "differs"
    NOT_JUDGED = "not judged"


class Relation(StrEnum):
    """How the measured value must stand to the published one."""

    EQUAL = "="
    AT_LEAST = "≥"
    AT_MOST = "≤"


class Take(StrEnum):
    """How the values of several runs become one number."""

    MEAN = "mean"
    FARTHEST = "farthest"  # from what is published: a claim about every run
    MIN = "min"
    MAX = "max"
    SUM = "sum"
    SMALLEST_STEP = "smallest step"  # from one place of `over` to the next
    SMALLEST_FALL = "smallest fall"
    RANGE = "range"


class Compared(StrEnum):
    """What is taken of runs against others. Pairs share every label that `against` does not name."""

    MORE = "% more"  # of the means, in pairs
    LESS = "% less"
    DIFFERENCE = "difference"  # in pairs
    RATIO = "ratio"  # of the two means, each over all its runs


@dataclass(frozen=True)
class Tolerance:
    """How far a measured value may be off.

    The larger of `absolute` and `relative`; or `between` two values, whatever is printed; or by a `factor`
    either way; or three standard errors of a mean, if one run has the standard deviation `deviation`.
    """

    absolute: float = 0.0
    relative: float = 0.0
    between: tuple[float, float] | None = None
    factor: float = 0.0
    deviation: float = 0.0

    def of_runs(self, runs: int) -> Tolerance:
        """The same for a mean over that many runs: without a `deviation`."""
        return Tolerance(absolute=round(3 * self.deviation / sqrt(runs), 4)) if self.deviation else self

    def centre(self, published: float) -> float:
        """The value that a measured one may be off."""
        return published if self.between is None else sum(self.between) / 2

    def allowed(self, expected: float) -> float:
        """The allowance around `expected`."""
        if self.between is not None:
            return round((self.between[1] - self.between[0]) / 2, 6)
        return max(self.absolute, self.relative * abs(expected))

    def holds(self, expected: float, measured: float, relation: Relation = Relation.EQUAL) -> bool:
        """Whether `measured` is near enough."""
        if self.factor:
            return expected <= measured * self.factor and measured <= expected * self.factor
        difference, allowed = measured - expected, self.allowed(expected)
        if relation is Relation.AT_LEAST:
            return difference >= -allowed
        if relation is Relation.AT_MOST:
            return difference <= allowed
        return abs(difference) <= allowed

    def __str__(self) -> str:
        parts = []
        if self.factor:
            parts.append(f"factor {self.factor:g}")
        if self.absolute or self.between:
            parts.append(f"± {self.allowed(0):g}")
        if self.relative:
            parts.append(f"± {self.relative * 100:g} %")
        return " or ".join(parts) or "exact"


EXACT = Tolerance()


@dataclass(frozen=True)
class Claim:
    """One number that is published or demanded, and how the runs are asked for it."""

    id: str  # paper, table or figure, what, size
    text: str
    published: float | None  # None: as many as there are runs to judge by
    source: str  # where in the paper, or the argument
    measure: str  # of a run, or of a derived line; "a + b" is the sum of two
    where: Labels = field(default_factory=dict)  # the runs that speak of it
    at: Labels = field(default_factory=dict)  # and coordinates that a scale may lack: then it is left out
    unit: str = ""
    evidence: Evidence = Evidence.PAPER
    take: Take = Take.MEAN
    over: str = ""  # the mean at each value of this label, of which `take` then takes
    against: Labels | None = None  # labels of the other runs, where these differ
    compared: Compared = Compared.DIFFERENCE
    relation: Relation = Relation.EQUAL
    tolerance: Tolerance | None = EXACT  # None: printed beside ours, and not judged
    demanded: bool = True  # False: shown beside the measurement, but the study does not fail on it
    runs_min: int = 1  # with fewer it is shown and not demanded
    total_min: float = 0.0  # of the measure, over the other runs: with less it is chance, and left out


@dataclass(frozen=True)
class Judged:
    """A claim with what the runs say of it."""

    claim: Claim
    expected: float
    measured: float | None  # None when no run could say it
    runs: int = 1
    interval: Estimate | None = None  # of the measured value, where it is a mean over runs
    note: str = ""  # why it is not demanded here

    @property
    def tolerance(self) -> Tolerance:
        """What is allowed with so many runs."""
        return (self.claim.tolerance or EXACT).of_runs(max(self.runs, 1))

    @property
    def source(self) -> str:
        """Where the number is from, and what keeps it from being demanded."""
        return f"{self.claim.source}; {self.note}" if self.note else self.claim.source

    @property
    def demanded(self) -> bool:
        """Whether the study fails without it."""
        return self.claim.demanded and not self.note

    @property
    def difference(self) -> float | None:
        """Measured minus expected."""
        return None if self.measured is None else self.measured - self.expected

    @property
    def verdict(self) -> Verdict:
        """What came of it."""
        if self.measured is None:
            return Verdict.NOT_JUDGED
        holds = not isnan(self.measured) and self.tolerance.holds(
            self.expected, self.measured, self.claim.relation
        )
        return Verdict.REPRODUCED if holds else Verdict.DIFFERS

    @property
    def words(self) -> str:
        """The verdict as a page says it: a claim that is not demanded and differs was not reproduced."""
        is_given_up = not self.demanded and self.verdict is Verdict.DIFFERS
        return "not reproduced" if is_given_up else self.verdict.value

    @property
    def failed(self) -> bool:
        """Demanded, and not so."""
        return self.demanded and self.verdict is not Verdict.REPRODUCED


def printed(claims: Iterable[Claim]) -> dict[str, float]:
    """The published numbers by their claims' ids, for tables and figures."""
    return {claim.id: claim.published for claim in claims if claim.published is not None}


def judge(claims: Iterable[Claim], results: Results) -> list[Judged]:
    """The verdict on every claim of which this scale has runs, in their order.

    A claim that no run can speak of is there too, without a measured value: it fails if it is demanded.
    """
    made = (_judged(claim, results) for claim in claims if claim.tolerance is not None)
    return [one for one in made if one is not None]


def _judged(claim: Claim, results: Results) -> Judged | None:
    """The verdict on one claim; None if this scale has no such runs."""
    where = {**claim.where, **claim.at}
    lines = results.lines(where)
    others = [] if claim.against is None else results.lines({**where, **claim.against})
    if claim.at and (not lines or (claim.against is not None and not others)):
        return None
    if claim.total_min and sum(_values(claim, others)) < claim.total_min:
        return None
    runs = sum(line.runs for line in lines)
    known = len(_values(claim, lines))
    published = known if claim.published is None else claim.published
    expected = (claim.tolerance or EXACT).centre(published)
    measured, interval = _measured(claim, lines, others, expected)
    what = f"{results.repetition}s" if any(results.repetition in line.labels for line in lines) else "points"
    note = f"{runs} of the {claim.runs_min} {what} that it takes" if runs < claim.runs_min else ""
    return Judged(claim, expected, measured, known, interval, note)


def _value(claim: Claim, line: Line) -> float | None:
    if claim.measure == PROMISES_KEPT:
        return int(line.ok) if isinstance(line, Row) and line.judged else None
    found = [line.measures.get(name) for name in claim.measure.split(" + ")]
    there = [value for value in found if value is not None]
    return sum(there) if there else None


def _values(claim: Claim, lines: Iterable[Line]) -> list[float]:
    found = (_value(claim, line) for line in lines)
    return [value for value in found if value is not None]


def _measured(
    claim: Claim, lines: Sequence[Line], others: Sequence[Line], expected: float
) -> tuple[float | None, Estimate | None]:
    """The one number, and the interval if it is a mean."""
    if claim.against is None:
        values = [(line, value) for line in lines if (value := _value(claim, line)) is not None]
    elif claim.compared is Compared.RATIO:
        above, below = _values(claim, lines), _values(claim, others)
        return (estimate(above).mean / estimate(below).mean if above and below else None), None
    else:
        pairs = _pairs(claim, lines, others)
        if claim.compared is not Compared.DIFFERENCE:
            return _percent(claim, pairs)
        values = [(line, mine - other) for line, mine, other in pairs]
    if claim.over:
        values = _means(values, claim.over)
    if not values:
        return None, None
    numbers = [value for _, value in values]
    if claim.take is Take.MEAN:
        found = estimate(numbers)
        return found.mean, found
    return _taken(claim.take, numbers, expected), None


def _taken(take: Take, numbers: Sequence[float], expected: float) -> float | None:
    if take is Take.FARTHEST:
        return farthest(numbers, expected)
    if take is Take.SMALLEST_STEP:
        return min((after - before for before, after in pairwise(numbers)), default=None)
    if take is Take.SMALLEST_FALL:
        return min((before - after for before, after in pairwise(numbers)), default=None)
    if take is Take.RANGE:
        return max(numbers) - min(numbers)
    return min(numbers) if take is Take.MIN else max(numbers) if take is Take.MAX else sum(numbers)


def _means(values: Iterable[tuple[Line, float]], over: str) -> list[tuple[Line, float]]:
    """The mean at each value of a label, in ascending order; each with the first line there."""
    places: dict[Label, list[tuple[Line, float]]] = {}
    for line, value in values:
        places.setdefault(line.labels[over], []).append((line, value))
    ordered = sorted(places.items(), key=lambda place: (isinstance(place[0], str), place[0]))
    return [(there[0][0], estimate([value for _, value in there]).mean) for _, there in ordered]


def _pairs(claim: Claim, lines: Iterable[Line], others: Iterable[Line]) -> list[tuple[Line, float, float]]:
    """Values of runs that share every label but those in `against`; runs without a partner are left out."""

    def place(line: Line) -> tuple[tuple[str, Label], ...]:
        return tuple(sorted(pair for pair in line.labels.items() if pair[0] not in (claim.against or ())))

    known = {place(line): value for line in others if (value := _value(claim, line)) is not None}
    return [
        (line, value, known[place(line)])
        for line in lines
        if (value := _value(claim, line)) is not None and place(line) in known
    ]


def _percent(
    claim: Claim, pairs: Sequence[tuple[Line, float, float]]
) -> tuple[float | None, Estimate | None]:
    change = percent_change([other for _, _, other in pairs], [mine for _, mine, _ in pairs])
    if change is None:
        return None, None
    if claim.compared is Compared.LESS:
        change = Estimate(-change.mean, change.half, change.count)
    return change.mean, change
