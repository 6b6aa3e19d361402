"""The runs of a study with what was measured of each, and how to ask them questions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from whence.studies.base import Figure, Label, Table
from whence.studies.claims import Expectation
from whence.studies.estimate import Estimate, estimate, paired
from whence.studies.witness import Witness


@dataclass(frozen=True)
class Row:
    """One finished run: coordinates, measures, and the verifier's report."""

    run: str
    labels: Mapping[str, Label]
    parameters: Mapping[str, Any]  # the scenario: everything needed to repeat the run
    measures: Mapping[str, float | None]
    verdict: Mapping[str, Any]  # the verifier's RunReport as plain data; empty if the run kept no trace
    counted: Mapping[str, Any] = field(default_factory=dict)  # by a kernel: its measures.json

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
class Results:
    """All finished runs of a study, in the order of its grid."""

    rows: tuple[Row, ...]
    repetition: str = "seed"
    _order: Mapping[str, tuple[Label, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        order: dict[str, dict[Label, None]] = {}
        for row in self.rows:
            for name, label in row.labels.items():
                order.setdefault(name, {})[label] = None
        object.__setattr__(self, "_order", {name: tuple(labels) for name, labels in order.items()})

    def values(self, label: str) -> tuple[Label, ...]:
        """The values that a label takes, in the order of the grid."""
        return self._order.get(label, ())

    def select(self, **labels: Label) -> list[Row]:
        """The runs with these labels."""
        return [row for row in self.rows if all(row.labels.get(name) == at for name, at in labels.items())]

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
    """The value farthest from `expected`: what an expectation about every run is judged by."""
    return max(values, key=lambda value: abs(value - expected), default=None)


@dataclass(frozen=True)
class Failure:
    """A run that did not finish."""

    run: str
    labels: Mapping[str, Label]
    error: str


@dataclass(frozen=True)
class StudyResult:
    """Everything that a report shows; nothing in it is computed from anything but the runs."""

    name: str
    title: str
    paper: str
    summary: str
    scale: str
    scale_text: str
    results: Results
    failures: tuple[Failure, ...]
    headline: Table | None
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...]
    expectations: tuple[Expectation, ...]
    findings: tuple[str, ...]
    witness: Witness | None
    command: str  # the command line that repeats it
    environment: Mapping[str, str | None]
    seconds: Mapping[str, float]  # wall time of each phase

    @property
    def holds(self) -> bool:
        """Whether every demanded expectation was reproduced."""
        return not any(one.failed for one in self.expectations)
