"""What a study is: a grid of scenarios, and what to make of the runs. Plain data in, plain data out.

A study says what to run (`grid`), what to compute from one run (`derive`), and what to show and to
demand of all (`claims`, `tables`, `figures`, `findings`). It draws nothing and writes nothing:
`studies/run.py` carries it out, `report/` draws it. docs/studies.md shows how to write one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TypeAlias

from whence.errors import missing_extra
from whence.sim.model import Scenario
from whence.sim.outcome import Runner
from whence.studies.claims import Claim
from whence.studies.results import Derived, Estimate, Label, Results, Row
from whence.studies.verdicts import Judged, VerdictCounts, judge, tally
from whence.studies.witness import Witness

Cell: TypeAlias = str | int | float | bool | Estimate | None


@dataclass(frozen=True)
class Point:
    """One run of a grid: its coordinates, the scenario that they stand for, and what is done with it.

    `task` names a function of the study's `measures.py`, as `Study.runners` has it. Most points are one run;
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


def _nothing(row: Row) -> Mapping[str, float | None]:
    return {}


@dataclass(frozen=True, kw_only=True)
class Study:
    """One study, as data. Register it in `studies/registry.py`."""

    name: str
    title: str
    paper: str  # what it reproduces, as one cites it
    summary: str  # what it shows, in a sentence or two
    scales: Mapping[str, str]  # name of a scale -> what it runs; the first is the default
    grid: Callable[[str], list[Point]]  # every run of a scale, each with labels of its own
    tables: Callable[[Results], list[Table]]
    figures: Callable[[Results], list[Figure]]
    headline: Callable[[Results], Table] | None = None  # the small table for a reader in a hurry
    findings: Callable[[Results], list[str]] = lambda results: []  # what the runs showed, in sentences
    claims: tuple[Claim, ...] = ()  # what must come out, in the order of the page
    opened: Mapping[str, Label] = field(default_factory=dict)  # of these runs one violation is told
    repetition: str = "seed"  # the label that numbers repetitions of one point
    # Once on this machine before the first run, as compiling a kernel.
    preparation: Callable[[], None] | None = None
    # What carries out the points of each task, for a study that measures more than a sweep does. Workers
    # import it: it must be a function of a module, not of a class or another function.
    runners: Mapping[str, Runner] = field(default_factory=dict)
    # What to measure at a scale after the simulations, while nothing else runs; its rows have the grid's
    # labels.
    measurement: Callable[[str], Measurement] | None = None
    # Measures of one run that follow from what Spark, the verifier and a kernel measured.
    derive: Callable[[Row], Mapping[str, float | None]] = _nothing
    # Measures of several runs together that claims speak of, as slopes and rises.
    derived: Callable[[Results], Iterable[Derived]] = lambda results: ()

    def judge(self, results: Results) -> list[Judged]:
        """Return the verdict on every claim."""
        return judge(self.claims, replace(results, derived=tuple(self.derived(results))))


def compile_kernel(name: str) -> None:
    """Compile the kernel that a study of this name cannot do without, if it is not compiled yet."""
    try:
        kernel = import_module(f"whence.kernels.{name}.kernel")
    except ImportError as error:
        raise missing_extra(f"study {name!r}", "numba", "lab") from error
    kernel.warm_up()


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
    """A run that did not finish, or a part of the report that could not be made."""

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
        """Whether every invariant and every regression that is demanded holds."""
        return not any(one.failed for one in self.judged)

    @property
    def tally(self) -> VerdictCounts:
        """How many claims came out how."""
        return tally(self.judged)
