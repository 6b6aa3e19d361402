"""The verdict on each claim, and the count of them: the rules by which a measured number is called the same.

A number that a paper prints *agrees* if it lies within its rounding plus the interval, which is that of the
difference of two means where the paper averages and a prediction interval where it ran once. It is *near*
within 10 %, or within the factor that was fixed beforehand where a figure was read by eye. Else it *differs*;
it is *refuted* where the paper's statement is false and a witness shows it. A reading that was fitted to the
artefact is at best *fitted*. What cannot be said is *not judged*, with the reason.

Invariants, limits of ours and regressions (the same number as our earlier runs had) are demanded: the exit
code stands for them, and for nothing else. A regression that would not notice half or twice its number is not
demanded; one that has no other runs than those with the seeds that it was recorded with is counted by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from math import isnan, sqrt
from typing import Any, TypeAlias

from whence.studies.claims import (
    EXACT,
    PARAMETER,
    PROMISES_KEPT,
    Claim,
    Compared,
    Evidence,
    Labels,
    Ours,
    Reading,
    Relation,
    Take,
    Tolerance,
)
from whence.studies.results import (
    Derived,
    Estimate,
    Label,
    Results,
    Row,
    estimate,
    farthest,
    percent_change,
    step,
    t_975,
)

NEAR_SHARE = 0.10
WEAK_SHARE = 0.20  # of the number: a wider prediction interval is a weak test
SEEDS_MIN = 5  # of a number that scatters: with fewer an interval says nothing
SHARP_SHARE = 1 / 3  # of a number: a narrower band notices half and twice of it, wherever in it we are
NO_MEASURE = "no measure yet"
NOT_RUN = "not run at this scale"
UNRECORDED = "no earlier runs are recorded"
WEAK = "a weak test"
RUNS_OF_OURS = (Evidence.REGRESSION, Evidence.REPEATED)
DEMANDED = (Evidence.INVARIANT, Evidence.PROTOTYPE, *RUNS_OF_OURS)
Line: TypeAlias = Row | Derived


class Verdict(StrEnum):
    """What came of a claim."""

    AGREES = "agrees"
    NEAR = "near"
    DIFFERS = "differs"
    REFUTED = "refuted"
    NOT_JUDGED = "not judged"
    FITTED = "fitted"


@dataclass(frozen=True)
class Judged:
    """A claim with what the runs say of it."""

    claim: Claim
    expected: float | None
    measured: float | None  # None when no run could say it
    runs: int = 1
    interval: Estimate | None = None  # of the measured value, where it is a mean over runs
    note: str = ""  # why it is not demanded here
    missing: str = ""  # why no run says anything
    others: tuple[tuple[str, Judged], ...] = ()  # under readings that were fitted to this artefact

    @property
    def tolerance(self) -> Tolerance:
        """What is allowed with that many runs, of what is demanded."""
        return (self.claim.tolerance or EXACT).of_runs(max(self.runs, 1))

    @property
    def demanded(self) -> bool:
        """Whether the study fails without it."""
        return self.claim.demanded and not self.claim.is_printed and not self.note

    @property
    def difference(self) -> float | None:
        """Measured minus expected."""
        return None if self.measured is None or self.expected is None else self.measured - self.expected

    @property
    def half(self) -> float:
        """Half the width of the interval in which the printed number should lie, its rounding left out."""
        found, averaged = self.interval, self.claim.averaged
        if found is None or found.half is None:
            return 0.0
        if averaged == 0:
            return found.half
        return found.half * sqrt(1 + found.count / averaged)

    @property
    def verdict(self) -> Verdict:
        """What came of it."""
        return self._judged()[0]

    @property
    def reason(self) -> str:
        """Why it is not judged, or what there is to say of the verdict."""
        return self._judged()[1]

    @property
    def is_weak(self) -> bool:
        """Whether it agrees because the interval is wide: a fifth of the number, or more, either way."""
        return self.verdict in (Verdict.AGREES, Verdict.FITTED) and self.reason.startswith(WEAK)

    @property
    def failed(self) -> bool:
        """Demanded, and not so."""
        return self.demanded and self.verdict is not Verdict.AGREES

    @property
    def fits_elsewhere(self) -> str:
        """The first fitted reading that has the printed number where the main one has not; empty if none."""
        if self.verdict not in (Verdict.DIFFERS, Verdict.REFUTED):
            return ""
        return next((name for name, one in self.others if one.verdict is Verdict.FITTED), "")

    def _judged(self) -> tuple[Verdict, str]:
        if not self.claim.is_printed:
            return self._held()
        unjudged = self._unjudged()
        if unjudged:
            return Verdict.NOT_JUDGED, unjudged
        if self.measured is None:
            return _tested(self.claim)
        found, reason = self._compared(self.measured)
        if self.claim.reading is Reading.FITTED and found in (Verdict.AGREES, Verdict.NEAR):
            return Verdict.FITTED, reason
        if self.claim.refuted and found in (Verdict.DIFFERS, Verdict.NEAR):
            return Verdict.REFUTED, self.claim.refuted
        return found, reason

    def _unjudged(self) -> str:
        """Why nothing can be said; empty if something can."""
        claim = self.claim
        if claim.unjudged or not (claim.measure or claim.tested):
            return claim.unjudged or NO_MEASURE
        if not claim.measure:
            return ""
        if self.measured is None or isnan(self.measured):
            return self.missing or "no run has it"
        wanted = max(claim.runs_min, SEEDS_MIN if claim.averaged else 1)
        return f"{self.runs} of the {wanted} runs that it takes" if self.runs < wanted else ""

    def _held(self) -> tuple[Verdict, str]:
        if self.measured is None or self.expected is None:
            return Verdict.NOT_JUDGED, self.missing
        holds = not isnan(self.measured) and self.tolerance.holds(
            self.expected, self.measured, self.claim.relation
        )
        return (Verdict.AGREES if holds else Verdict.DIFFERS), self.note

    def _compared(self, measured: float) -> tuple[Verdict, str]:
        expected, relation = self.expected or 0.0, self.claim.relation
        off = measured - expected
        if relation in (Relation.MORE, Relation.LESS):
            return self._beyond(off if relation is Relation.MORE else -off)
        if (relation is Relation.AT_LEAST and off > 0) or (relation is Relation.AT_MOST and off < 0):
            return Verdict.AGREES, "a bound"
        if abs(off) <= self.claim.rounding + self.half + 1e-9 * abs(expected):
            size = max(abs(expected), abs(measured))  # of a printed 0 there is no share
            is_weak = self.half > WEAK_SHARE * size
            return Verdict.AGREES, f"{WEAK}: ± {100 * self.half / size:.0f} %" if is_weak else ""
        factor = self.claim.factor
        if factor:
            near = expected <= measured * factor and measured <= expected * factor
            reason = f"read by eye: near within the factor {factor:g}"
        else:
            near, reason = abs(off) <= NEAR_SHARE * abs(expected), ""
        return (Verdict.NEAR if near else Verdict.DIFFERS), reason

    def _beyond(self, off: float) -> tuple[Verdict, str]:
        """Of "more" and "less": by how much, in the direction that is claimed."""
        if off > self.half:
            found = self.interval
            has_none = found is not None and found.half is None and self.runs > 1  # one run says so itself
            return Verdict.AGREES, "without an interval: one run at a place" if has_none else ""
        if off < -self.half or not self.half:
            return Verdict.DIFFERS, ""
        return Verdict.NOT_JUDGED, "the difference lies inside its interval"


def _tested(claim: Claim) -> tuple[Verdict, str]:
    """What a test says: a worked example, a property, or the witness of a false statement."""
    if claim.refuted:
        return Verdict.REFUTED, f"{claim.refuted} ({claim.tested})"
    return Verdict.AGREES, f"by a test: {claim.tested}"


def judge(claims: Iterable[Claim], results: Results) -> list[Judged]:
    """The verdict on every claim, in their order, each followed by the regression that goes with it.

    Every claim of the paper is there, judged or not. A demanded claim about coordinates that this scale does
    not run is left out; one that no run can speak of is there without a measured value, and fails.
    """
    return [one for claim in claims for one in _all(claim, results)]


def _all(claim: Claim, results: Results) -> Iterator[Judged]:
    if claim.is_printed:
        main = _of_paper(claim, results)
        found = _regression(main, results, f"{claim.id}-ours")
        yield main
    elif claim.evidence is Evidence.REGRESSION:
        found = _of_ours(claim, results)
    else:
        found = _demand(claim, results)
    if found is not None:
        yield found


def _of_paper(claim: Claim, results: Results) -> Judged:
    if not claim.measure or claim.unjudged:
        return Judged(claim, claim.published, None, 0)
    expected = claim.published if claim.published is not None else claim.limit or 0.0
    found = _ask(claim, results, expected)
    others = [(name, _under(claim, labels, results, expected)) for name, labels in claim.others.items()]
    main = Judged(claim, expected, found.measured, found.runs, found.interval, "", found.missing)
    # The same number under other words: chosen when ours was known, so at best fitted.
    for name, number in claim.meanings.items():
        meant = replace(claim, published=number, reading=Reading.FITTED, meanings={}, others={}, refuted="")
        others.append((name, replace(main, claim=meant, expected=number)))
    return replace(main, others=tuple(others))


def _under(claim: Claim, labels: Labels, results: Results, expected: float) -> Judged:
    """The same claim under another reading, which was fitted to what it is about."""
    where = {name: at for name, at in {**claim.where, **labels}.items() if name not in claim.at}
    at = {**claim.at, **{name: at for name, at in labels.items() if name in claim.at}}
    other = replace(claim, where=where, at=at, reading=Reading.FITTED, others={}, refuted="")
    found = _ask(other, results, expected)
    return Judged(other, expected, found.measured, found.runs, found.interval, "", found.missing)


def _demand(claim: Claim, results: Results) -> Judged | None:
    """The verdict on an invariant or a limit of ours; None if this scale has no such runs."""
    if claim.tolerance is None:
        return None
    centre = claim.tolerance.centre(claim.published or 0.0)
    found = _ask(claim, results, centre)
    left_out = claim.at or claim.total_min
    if found.missing and found.missing != "no run has it" and left_out:
        return None
    expected = found.known if claim.published is None else centre
    return Judged(
        claim, expected, found.measured, found.known, found.interval, _too_few(claim, found), found.missing
    )


def _too_few(claim: Claim, found: AskedValue) -> str:
    if not found.runs:
        return ""  # nobody can say it: that is a failure, and no excuse
    if found.runs < claim.runs_min:
        return f"{found.runs} of the {claim.runs_min} {found.repetitions} that it takes"
    is_number = claim.evidence is not Evidence.INVARIANT and claim.relation is Relation.EQUAL
    if is_number and not claim.excuse and _is_blunt(claim, found.known):
        return f"{found.known} {found.repetitions} would not notice half of it"
    return ""


def _is_blunt(claim: Claim, runs: int) -> bool:
    """Whether a number of ours could be halved or doubled within its band."""
    tolerance, expected = (claim.tolerance or EXACT).of_runs(max(runs, 1)), claim.published or 0.0
    band = (expected * (1 - SHARP_SHARE), expected * (1 + SHARP_SHARE))
    return bool(expected) and any(tolerance.holds(expected, edge) for edge in band)


def _of_ours(claim: Claim, results: Results) -> Judged | None:
    """The verdict on a regression with no number of the paper; None if this scale has no such runs."""
    main = _of_paper(claim, results)
    if main.missing == NOT_RUN:
        return None
    if claim.ours is None:
        return replace(main, expected=None, note=UNRECORDED, missing=main.missing or UNRECORDED)
    return _regression(main, results, claim.id) or replace(main, expected=None)


def _regression(main: Judged, results: Results, name: str) -> Judged | None:
    """Whether the runs have the number that our earlier ones had, as far as that many runs can tell.

    The runs with seeds of which that number was recorded are left out, if enough others say something.
    """
    claim, ours = main.claim, main.claim.ours
    if ours is None or main.measured is None or claim.timed:
        return None
    is_other = all(_is_of_other_seed(row, results.repetition, ours) for row in results.rows)
    if not is_other:
        fresh = _of_paper(replace(claim, others={}, meanings={}), _of_other_seeds(results, ours))
        is_other = fresh.interval is not None and fresh.interval.count >= SEEDS_MIN
        main = fresh if is_other else main
    runs = main.interval.count if main.interval is not None else max(main.runs, 1)
    allowed = 3 * ours.deviation * sqrt(1 / runs + 1 / ours.runs) + 1e-6 * abs(ours.mean)
    text = f"our number for “{claim.text}”" if claim.is_printed else claim.text
    made = Claim(
        name, text, ours.mean,
        f"our earlier runs ({ours.runs}): the same within three standard errors", claim.measure,
        claim.where, claim.at, claim.unit, Evidence.REGRESSION if is_other else Evidence.REPEATED, claim.take,
        claim.over, claim.against, claim.than, claim.compared,
        tolerance=Tolerance(absolute=allowed),
    )  # fmt: skip
    # Of "% more" the number that could be halved unnoticed is the ratio behind it.
    ratio = {Compared.MORE: 100 + ours.mean, Compared.LESS: 100 - ours.mean}.get(claim.compared, ours.mean)
    is_blunt = allowed > SHARP_SHARE * abs(ratio)
    note = f"{runs} runs would not notice half of it" if is_blunt else ""
    return Judged(made, ours.mean, main.measured, main.runs, main.interval, note)


def _of_other_seeds(results: Results, ours: Ours) -> Results:
    """The runs, and what was derived of each, whose seeds are not those of a record."""
    name = results.repetition
    return replace(
        results,
        rows=tuple(row for row in results.rows if _is_of_other_seed(row, name, ours)),
        derived=tuple(line for line in results.derived if _is_of_other_seed(line, name, ours)),
    )


def _is_of_other_seed(line: Line, repetition: str, ours: Ours) -> bool:
    first, last = ours.seeds
    seed = line.labels.get(repetition)
    return first <= last and isinstance(seed, int) and not first <= seed <= last


def recordable(judged: Iterable[Judged]) -> dict[str, Ours]:
    """What `ours.toml` keeps of these runs: means with a deviation, and what came out the same in all."""
    kept = {}
    for one in judged:
        claim, found = one.claim, one.interval
        is_asked = claim.is_printed or claim.evidence is Evidence.REGRESSION
        if not is_asked or claim.timed or one.measured is None or claim.take is not Take.MEAN:
            continue
        if found is None or found.half is None or found.count < SEEDS_MIN:
            continue
        deviation = found.half * sqrt(found.count) / t_975(found.count - 1)
        kept[claim.id] = Ours(found.mean, deviation, found.count)
    return kept


@dataclass(frozen=True)
class VerdictCounts:
    """How many claims came out how: those of the paper by reading, and what is demanded."""

    claims: int
    by_reading: dict[Reading, Counter[Verdict]]
    weak: dict[Reading, int]  # agree because their interval is wide
    fitted: int  # agree or are near under a reading that was fitted to them, and not otherwise
    authors: Counter[Verdict]
    demanded: dict[Evidence, tuple[int, int]]  # that hold, of

    def text(self) -> str:
        """The headline, the same on a page and on a terminal."""
        said = [f"{self.claims} claims of the paper"] if self.claims else []
        for reading, words in ((Reading.AS_PRINTED, "as printed"), (Reading.CHOSEN, "under chosen readings")):
            counts = self.by_reading.get(reading)
            if counts:
                said.append(f"{words}: {_counted(counts, self.weak.get(reading, 0))}")
        if self.claims:
            missed = self.by_reading.get(Reading.FITTED)
            else_ = f" ({_counted(missed)})" if missed else ""
            said.append(f"under readings fitted to the same artefact: {self.fitted}{else_}")
        if self.authors:
            said.append(f"of the authors' program: {_counted(self.authors)}")
        for evidence in DEMANDED:
            good, every = self.demanded.get(evidence, (0, 0))
            if every:
                said.append(f"{_DEMANDS[evidence]}: {good} of {every} hold")
        return "; ".join(said)


_DEMANDS = {
    Evidence.INVARIANT: "invariants",
    Evidence.PROTOTYPE: "our prototype's numbers and limits",
    Evidence.REGRESSION: "regressions against our runs of other seeds",
    Evidence.REPEATED: "repetitions of our own runs",
}
_PLURALS = {
    Verdict.AGREES: "agree",
    Verdict.NEAR: "near",
    Verdict.DIFFERS: "differ",
    Verdict.REFUTED: "refuted",
    Verdict.NOT_JUDGED: "not judged",
}


def _counted(counts: Counter[Verdict], weak: int = 0) -> str:
    said = {verdict: f"{counts[verdict]} {word}" for verdict, word in _PLURALS.items()}
    if weak:
        said[Verdict.AGREES] += f" ({weak} by weak tests)"
    return ", ".join(said.values())


def tally(judged: Sequence[Judged]) -> VerdictCounts:
    """Count the verdicts."""
    paper = [one for one in judged if one.claim.evidence is Evidence.PAPER]
    by_reading: dict[Reading, Counter[Verdict]] = {}
    for one in paper:
        if one.verdict is not Verdict.FITTED:
            by_reading.setdefault(one.claim.reading, Counter())[one.verdict] += 1
    weak = Counter(one.claim.reading for one in paper if one.is_weak)
    demanded = {}
    for evidence in DEMANDED:
        asked = [one for one in judged if one.claim.evidence is evidence and one.demanded]
        demanded[evidence] = (sum(not one.failed for one in asked), len(asked))
    fitted = sum(one.verdict is Verdict.FITTED or bool(one.fits_elsewhere) for one in paper)
    authors = Counter(one.verdict for one in judged if one.claim.evidence is Evidence.AUTHORS_PROGRAM)
    return VerdictCounts(len(paper), by_reading, dict(weak), fitted, authors, demanded)


# How the runs are asked for the one number of a claim: which of them, mean or difference or ratio


@dataclass(frozen=True)
class AskedValue:
    """What the runs say of a claim; `missing` says why they say nothing."""

    measured: float | None
    runs: int = 0
    interval: Estimate | None = None  # of the measured value, where it is a mean over runs
    missing: str = ""
    known: int = 0  # runs that have the measure
    repetitions: str = "points"  # what `runs` counts


def _ask(claim: Claim, results: Results, expected: float) -> AskedValue:
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
        return _taken_over(claim.take, _places(values, claim.over), expected)
    if not values:
        return None, None
    numbers = [value for _, value in values]
    if claim.take is Take.MEAN:
        found = _known(claim, values[0][0], numbers[0]) if len(values) == 1 else estimate(numbers)
        return found.mean, found
    return _taken(claim.take, numbers, expected), None


def _known(claim: Claim, line: Line, value: float) -> Estimate:
    """One number, with the interval that a line which was derived of many runs brings along."""
    half = line.halves.get(claim.measure) if isinstance(line, Derived) else None
    return Estimate(value, half, 1 if half is None else line.runs)


def _taken(take: Take, numbers: Sequence[float], expected: float) -> float | None:
    if take is Take.FARTHEST:
        return farthest(numbers, expected)
    if take is Take.RANGE:
        return max(numbers) - min(numbers)
    return min(numbers) if take is Take.MIN else max(numbers) if take is Take.MAX else sum(numbers)


def _places(values: Iterable[tuple[Line, float]], over: str) -> list[Estimate]:
    """The mean at each value of a label, in ascending order."""
    places: dict[Label, list[float]] = {}
    for line, value in values:
        places.setdefault(line.labels[over], []).append(value)
    ordered = sorted(places.items(), key=lambda place: (isinstance(place[0], str), place[0]))
    return [estimate(numbers) for _, numbers in ordered]


def _taken_over(
    take: Take, found: Sequence[Estimate], expected: float
) -> tuple[float | None, Estimate | None]:
    """Of places, or of the steps between them, the one that is least (or most) with its interval."""
    if take is Take.SMALLEST_STEP:
        found = [step(before, after) for before, after in pairwise(found)]
    elif take is Take.SMALLEST_FALL:
        found = [step(after, before) for before, after in pairwise(found)]
    elif take is Take.MAX:
        chosen = max(found, key=lambda one: one.high, default=None)
        return (None, None) if chosen is None else (chosen.mean, chosen)
    elif take is not Take.MIN:
        means = [one.mean for one in found]
        return (_taken(take, means, expected), None) if means else (None, None)
    chosen = min(found, key=lambda one: one.low, default=None)
    return (None, None) if chosen is None else (chosen.mean, chosen)


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
