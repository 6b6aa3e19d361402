"""The runs of a study with what was measured of each, and how to ask them questions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from whence.studies.estimate import Estimate, estimate, paired

Label: TypeAlias = str | int | float


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


@dataclass(frozen=True)
class Results:
    """All finished runs of a study, in the order of its grid, and what the study derives from them."""

    rows: tuple[Row, ...]
    repetition: str = "seed"
    derived: tuple[Derived, ...] = ()
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

    def lines(self, where: Mapping[str, Label | tuple[Label, ...]]) -> list[Row | Derived]:
        """The runs and the derived lines with these labels; several values of a label mean any of them."""

        def fits(line: Row | Derived) -> bool:
            for name, wanted in where.items():
                at = line.labels.get(name)
                if at not in wanted if isinstance(wanted, tuple) else at != wanted:
                    return False
            return True

        every: list[Row | Derived] = [*self.rows, *self.derived]
        return [line for line in every if fits(line)]

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
