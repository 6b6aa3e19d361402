"""What a study is: a grid of scenarios, and what to make of the runs. Plain data in, plain data out.

A study says what to run (`grid`), what to compute from one run (`derive`), and what to show and to
demand of all (`claims`, `tables`, `figures`, `findings`). It draws nothing and writes nothing:
`studies/run.py` carries it out, `report/` draws it. docs/studies.md shows how to write one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from whence.sim.model import Scenario
from whence.studies.claims import Claim, Judged, judge
from whence.studies.estimate import Estimate
from whence.studies.results import Derived, Label, Results, Row
from whence.studies.witness import Witness

if TYPE_CHECKING:
    from whence.lab.attempts import Runner

Cell: TypeAlias = str | int | float | bool | Estimate | None


@dataclass(frozen=True)
class Point:
    """One run of a grid: its coordinates, the scenario that they stand for, and what is done with it.

    `task` names a function of the study's `measures.py`, which `Study.runner` knows. Most points are one run;
    a search over runs is a task of its own, and leaves measures and no trace.
    """

    labels: Mapping[str, Label]
    scenario: Scenario
    task: str = "run"


@dataclass(frozen=True)
class Table:
    """Rows under named columns. `note` says how to read it."""

    name: str  # an identifier: letters, digits, hyphens
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.name!r}: {len(row)} cells under {len(self.columns)} columns")


@dataclass(frozen=True)
class Series:
    """One line of a panel: estimates over x, in the order of x."""

    label: str
    x: tuple[float | str, ...]  # strings make the axis one of categories
    y: tuple[Estimate, ...]
    joined: bool = True  # False: single points, between which nothing is known

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise ValueError(f"series {self.label!r}: {len(self.x)} x for {len(self.y)} y")


@dataclass(frozen=True)
class Panel:
    """One pair of axes. Equal labels in several panels get the same colour."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    x_log2: bool = False
    y_log: bool = False


@dataclass(frozen=True)
class Figure:
    """Panels side by side under one caption."""

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Measurement:
    """What a study measures on this machine besides its simulations, as times on real processes."""

    steps: int  # for a progress bar
    run: Callable[[Callable[[int], None], Path], Sequence[Row]]  # hears steps done; the study's folder


class Study(ABC):
    """One study. Subclass it, register it in `studies/registry.py`."""

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str]  # what it reproduces, as one cites it
    summary: ClassVar[str]  # what it shows, in a sentence or two
    scales: ClassVar[Mapping[str, str]]  # name of a scale -> what it runs; the first is the default
    repetition: ClassVar[str] = "seed"  # the label that numbers repetitions of one point
    claims: ClassVar[tuple[Claim, ...]] = ()  # what must come out, in the order of the page

    @abstractmethod
    def grid(self, scale: str) -> list[Point]:
        """Every run of that scale, each with labels of its own."""

    def preparation(self) -> Callable[[], None] | None:
        """What must be done once on this machine before the first run, as compiling a kernel."""
        return None

    def runner(self, task: str) -> Runner | None:
        """Return what carries out the points of a task, for a study that measures more than a sweep does.

        Workers import it: it must be a function of a module, not of a class or another function.
        """
        return None

    def measurement(self, scale: str) -> Measurement | None:
        """What to measure after the simulations, while nothing else runs; its rows have the grid's labels."""
        return None

    def derive(self, row: Row) -> Mapping[str, float | None]:
        """Measures of one run that follow from what Spark, the verifier and a kernel measured."""
        return {}

    @abstractmethod
    def tables(self, results: Results) -> list[Table]:
        """The tables of the report."""

    @abstractmethod
    def figures(self, results: Results) -> list[Figure]:
        """The figures of the report."""

    def derived(self, results: Results) -> Iterable[Derived]:
        """Measures of several runs together that claims speak of, as slopes and rises."""
        return ()

    def judge(self, results: Results) -> list[Judged]:
        """The verdict on every claim of which there are runs."""
        return judge(self.claims, replace(results, derived=tuple(self.derived(results))))

    def headline(self, results: Results) -> Table | None:
        """The one small table that a reader in a hurry should see."""
        return None

    def findings(self, results: Results) -> list[str]:
        """What the runs showed, in sentences that hold the measured numbers."""
        return []


def check_grid(study: Study, points: Sequence[Point]) -> None:
    """A grid must have runs, the same labels on all, and no coordinates twice: our own misuse."""
    if not points:
        raise ValueError(f"study {study.name!r} has an empty grid")
    names = set(points[0].labels)
    seen = set()
    for point in points:
        if set(point.labels) != names or study.repetition not in names:
            raise ValueError(f"study {study.name!r}: labels {sorted(point.labels)} are not {sorted(names)}")
        place = tuple(sorted(point.labels.items()))
        if place in seen:
            raise ValueError(f"study {study.name!r}: {dict(point.labels)} is there twice")
        seen.add(place)


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
    judged: tuple[Judged, ...]
    findings: tuple[str, ...]
    witness: Witness | None
    command: str  # the command line that repeats it
    environment: Mapping[str, str | None]
    seconds: Mapping[str, float]  # wall time of each phase

    @property
    def holds(self) -> bool:
        """Whether every demanded claim was reproduced."""
        return not any(one.failed for one in self.judged)
