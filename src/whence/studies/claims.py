"""Claims as data: what a paper prints or an argument demands, and how the runs are asked for it.

A study's claims are rows: those of its paper in `studies/<study>/claims.toml` (one `[[claim]]` each, with the
fields of `Claim`), those of ours in its `claims.py`. A row says which runs speak of it (`where`), by which
measure, and how their values become one number (`take`, `against`). What follows from that number is in
`verdicts`. `ours.toml`, where there is one, has what earlier runs of ours measured: from these follow the
regressions that a study demands (`tools/ours.py` writes it).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from importlib import resources
from math import sqrt
from typing import Any, TypeAlias

import msgspec

from whence.errors import DataError
from whence.studies.results import Label

Labels: TypeAlias = Mapping[str, Label | tuple[Label, ...]]

PROMISES_KEPT = "promises_kept"  # 1 for a run that the verifier calls ok, 0 for another; none if it saw none
PARAMETER = "@"  # before a measure: it is a parameter of the runs, by its dotted name
CLAIMS_FILE, OURS_FILE = "claims.toml", "ours.toml"


class Evidence(StrEnum):
    """Where an expected number comes from."""

    PAPER = "paper"
    AUTHORS_PROGRAM = "authors' program"
    INVARIANT = "invariant"  # an argument, or a promise of the protocol
    PROTOTYPE = "prototype"  # ours: an earlier program, and limits that we set ourselves
    # Earlier runs of this program: they guard the code, and say nothing of a paper.
    REGRESSION = "our earlier runs, other seeds"
    REPEATED = "our earlier runs, the same seeds"


class Reading(StrEnum):
    """What the runs take for granted that the paper leaves open."""

    AS_PRINTED = "as printed"
    CHOSEN = "chosen"  # the text leaves it open, or contradicts itself
    FITTED = "fitted"  # chosen so that this very artefact comes out


class Relation(StrEnum):
    """How the measured value must stand to the expected one."""

    EQUAL = "="
    AT_LEAST = "≥"
    AT_MOST = "≤"
    MORE = ">"  # beyond the interval
    LESS = "<"


class Take(StrEnum):
    """How the values of several runs become one number."""

    MEAN = "mean"
    FARTHEST = "farthest"  # from what is expected: a claim about every run
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
    """How far a measured value may be off what an argument, or our earlier runs, expect.

    The larger of `absolute` and `relative`; or `between` two values, whatever is expected; or by a `factor`
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

    def centre(self, expected: float) -> float:
        """The value that a measured one may be off."""
        return expected if self.between is None else sum(self.between) / 2

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
        if relation in (Relation.AT_LEAST, Relation.MORE):
            return difference >= -allowed
        if relation in (Relation.AT_MOST, Relation.LESS):
            return difference <= allowed
        return abs(difference) <= allowed

    def __str__(self) -> str:
        parts = []
        if self.factor:
            parts.append(f"factor {self.factor:g}")
        if self.absolute or self.between:
            parts.append(f"± {self.allowed(0):.3g}")
        if self.relative:
            parts.append(f"± {self.relative * 100:g} %")
        return " or ".join(parts) or "exact"


EXACT = Tolerance()


@dataclass(frozen=True)
class Ours:
    """What earlier runs of ours measured: mean, deviation of one run, number of runs, their seeds."""

    mean: float
    deviation: float
    runs: int
    seeds: tuple[int, int] = (1, 0)  # the first and the last; none known: they may be any


@dataclass(frozen=True)
class Claim:
    """One number that is published or demanded, and how the runs are asked for it."""

    id: str  # paper, table or figure, what, size
    text: str
    published: float | None  # None: no number, or as many as there are runs (`PROMISES_KEPT`)
    source: str  # where in the paper, or the argument
    measure: str = ""  # of a run, or of a derived line; "a + b" is the sum of two
    where: Labels = field(default_factory=dict)  # the runs that speak of it
    at: Labels = field(default_factory=dict)  # and coordinates that a scale may lack
    unit: str = ""
    evidence: Evidence = Evidence.PAPER
    take: Take = Take.MEAN
    over: str = ""  # the mean at each value of this label, of which `take` then takes
    against: Labels | None = None  # labels of the other runs, where these differ
    than: str = ""  # another measure of the same runs, in place of other runs
    compared: Compared = Compared.DIFFERENCE
    relation: Relation = Relation.EQUAL
    total_min: float = 0.0  # of the measure, over the other runs: with less it is chance

    # Of a number that is demanded: an invariant, or a limit of ours.
    tolerance: Tolerance | None = EXACT  # None: shown beside ours, and not judged
    demanded: bool = True  # False: shown beside the measurement, but the study does not fail on it
    runs_min: int = 1  # with fewer it is shown and not demanded; of a paper's number: not judged
    excuse: str = ""  # why it need not notice a measure that is halved or doubled

    # Of a number or statement that a paper prints.
    reading: Reading = Reading.AS_PRINTED
    limit: float | None = None  # a shape that is told in words, as the number that we judge it by
    rounding: float = 0.0  # half of the last printed digit
    averaged: int = 0  # runs that the printed number is a mean of; 1: it is of one run; 0: it has no scatter
    factor: float = 0.0  # within which it is near, where a figure was read by eye
    conditions: str = ""
    open: str = ""  # what the paper leaves open
    unjudged: str = ""  # why it is not judged: hardware, opinion, ambiguous
    tested: str = ""  # the test that judges it: a worked example, a proof
    refuted: str = ""  # the witness, where the statement is false
    others: Mapping[str, Labels] = field(
        default_factory=dict
    )  # readings fitted to this artefact: their labels
    meanings: Mapping[str, float] = field(default_factory=dict)  # other numbers that the words may stand for
    timed: bool = False  # a time of this machine: no regression follows from it
    ours: Ours | None = None

    @property
    def is_printed(self) -> bool:
        """Whether it is the paper's, or its authors' program's: a verdict, and no demand."""
        return self.evidence in (Evidence.PAPER, Evidence.AUTHORS_PROGRAM)


def load(package: str) -> tuple[Claim, ...]:
    """The claims in `claims.toml` of a study's package, with what `ours.toml` has of them."""
    rows = _read(package, CLAIMS_FILE)
    known = {entry.name for entry in fields(Claim)}
    made = []
    for row in rows.get("claim", []):
        strange = sorted(set(row) - known)
        if strange:
            what = f"claim {row.get('id')!r} in {package}/{CLAIMS_FILE}"
            raise DataError(
                what, f"unknown fields {strange}", "Use the fields of whence.studies.claims.Claim"
            )
        made.append(msgspec.convert({"published": None, **row}, Claim))
    return with_ours(package, made)


def with_ours(package: str, claims: Iterable[Claim]) -> tuple[Claim, ...]:
    """The same claims with what `ours.toml` of a study's package has of them."""
    ours = msgspec.convert(_read(package, OURS_FILE), dict[str, Ours])
    return tuple(replace(claim, ours=ours.get(claim.id)) for claim in claims)


def _read(package: str, name: str) -> dict[str, Any]:
    file = resources.files(package).joinpath(name)
    return tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def printed(claims: Iterable[Claim]) -> dict[str, float]:
    """The published numbers by their claims' ids, for tables and figures."""
    return {claim.id: claim.published for claim in claims if claim.published is not None}


def limits(claims: Iterable[Claim]) -> Iterator[Claim]:
    """The same numbers as limits of ours: what a paper prints is judged by its own rules, not demanded."""
    for claim in claims:
        if claim.tolerance is not None:
            ours = replace(claim, id=f"{claim.id}-limit", evidence=Evidence.PROTOTYPE)
            yield ours if claim.is_printed else claim
