"""How the runs are asked for the one number of a claim: which of them, mean or difference or ratio."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import sqrt
from typing import Any, TypeAlias

from whence.studies.claims import PARAMETER, PROMISES_KEPT, Claim, Compared, Take
from whence.studies.results import (
    Derived,
    Estimate,
    Label,
    Results,
    Row,
    estimate,
    farthest,
    percent_change,
    t_975,
)

Line: TypeAlias = Row | Derived
NOT_RUN = "not run at this scale"


@dataclass(frozen=True)
class AskedValue:
    """What the runs say of a claim; `missing` says why they say nothing."""

    measured: float | None
    runs: int = 0
    interval: Estimate | None = None  # of the measured value, where it is a mean over runs
    missing: str = ""
    known: int = 0  # runs that have the measure
    repetitions: str = "points"  # what `runs` counts


def ask(claim: Claim, results: Results, expected: float) -> AskedValue:
    """The number of one claim."""
    where = {**claim.where, **claim.at}
    lines = results.lines(where)
    others = [] if claim.against is None else results.lines({**where, **claim.against})
    if not lines or (claim.against is not None and not others):
        return AskedValue(None, missing=NOT_RUN)
    if claim.total_min and sum(_values(claim, others)) < claim.total_min:
        return AskedValue(None, missing=f"fewer than {claim.total_min:g} of them at this scale")
    measured, interval = _measured(claim, lines, others, expected)
    seeded = any(results.repetition in line.labels for line in lines)
    return AskedValue(
        measured,
        sum(line.runs for line in lines),
        interval,
        "" if measured is not None else "no run has it",
        len(_values(claim, lines)),
        f"{results.repetition}s" if seeded else "points",
    )


def _parameter(row: Row, path: str) -> float | None:
    found: Any = row.parameters
    for name in path.split("."):
        if isinstance(found, Mapping):
            found = found.get(name)
        elif isinstance(found, Sequence) and not isinstance(found, str):
            found = found[int(name)] if int(name) < len(found) else None
    return found if isinstance(found, int | float) else None


def _value(claim: Claim, line: Line) -> float | None:
    if claim.measure.startswith(PARAMETER):
        return _parameter(line, claim.measure[1:]) if isinstance(line, Row) else None
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
    if claim.against is None and not claim.than:
        values = [(line, value) for line in lines if (value := _value(claim, line)) is not None]
    elif claim.compared is Compared.RATIO:
        return _ratio(_values(claim, lines), _values(claim, others))
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
    """Values of runs that share every label but those in `against`; runs without a partner are left out.

    Without `against`: two measures of the same run.
    """
    if claim.than:
        other = replace(claim, measure=claim.than)
        return [
            (line, value, there)
            for line in lines
            if (value := _value(claim, line)) is not None and (there := _value(other, line)) is not None
        ]

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


def _ratio(above: Sequence[float], below: Sequence[float]) -> tuple[float | None, Estimate | None]:
    """The ratio of two means of independent runs; its relative variance is the sum of theirs."""
    if not above or not below:
        return None, None
    up, down = estimate(above), estimate(below)
    if not down.mean:
        return None, None
    ratio, count = up.mean / down.mean, min(up.count, down.count)
    if up.half is None or down.half is None or not up.mean:
        return ratio, Estimate(ratio, None, count)
    shares = [one.half / t_975(one.count - 1) / one.mean for one in (up, down) if one.half is not None]
    error = abs(ratio) * sqrt(sum(share * share for share in shares))
    return ratio, Estimate(ratio, t_975(count - 1) * error, count)
