"""Published or analytic numbers beside measured ones, and the verdict.

A measured value always comes from the runs; an expected value always names its source. Neither can
be given without the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import isnan


class Verdict(StrEnum):
    """Whether we found what was expected."""

    REPRODUCED = "reproduced"
    DIFFERS = "differs"


class Relation(StrEnum):
    """How the measured value must stand to the expected one."""

    EQUAL = "="
    AT_LEAST = "≥"
    AT_MOST = "≤"


@dataclass(frozen=True)
class Tolerance:
    """How far a measured value may be off: the larger of an absolute and a relative allowance."""

    absolute: float = 0.0
    relative: float = 0.0

    def allowed(self, expected: float) -> float:
        """The allowance around `expected`."""
        return max(self.absolute, self.relative * abs(expected))

    def __str__(self) -> str:
        parts = []
        if self.absolute:
            parts.append(f"± {self.absolute:g}")
        if self.relative:
            parts.append(f"± {self.relative * 100:g} %")
        return " or ".join(parts) or "exact"


EXACT = Tolerance()


@dataclass(frozen=True)
class Expectation:
    """One number that must come out of a study."""

    name: str
    expected: float
    measured: float | None  # None when no run could say it: that is a difference, not a pass
    source: str  # where the expected number comes from: a paper's table, or the argument
    tolerance: Tolerance = EXACT
    relation: Relation = Relation.EQUAL
    unit: str = ""
    demanded: bool = True  # False: shown beside the measurement, but the study does not fail on it

    @property
    def difference(self) -> float | None:
        """Measured minus expected."""
        return None if self.measured is None else self.measured - self.expected

    @property
    def verdict(self) -> Verdict:
        difference = self.difference
        if difference is None or isnan(difference):
            return Verdict.DIFFERS
        allowed = self.tolerance.allowed(self.expected)
        if self.relation is Relation.AT_LEAST:
            holds = difference >= -allowed
        elif self.relation is Relation.AT_MOST:
            holds = difference <= allowed
        else:
            holds = abs(difference) <= allowed
        return Verdict.REPRODUCED if holds else Verdict.DIFFERS

    @property
    def words(self) -> str:
        """The verdict as a page says it: what is not demanded and differs was not reproduced."""
        is_given_up = not self.demanded and self.verdict is Verdict.DIFFERS
        return "not reproduced" if is_given_up else self.verdict.value

    @property
    def failed(self) -> bool:
        """Demanded, and not so."""
        return self.demanded and self.verdict is Verdict.DIFFERS
