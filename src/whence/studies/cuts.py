"""Tables and figures made the same way in every study: cuts through a grid, and series of points."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias, TypeVar

from whence.studies.base import Cell, Figure, Series, Table
from whence.studies.results import Estimate, Label, Results

X: TypeAlias = float | str
Made = TypeVar("Made")


def points(label: str, found: Iterable[tuple[X, Estimate | float | None]], *, joined: bool = True) -> Series:
    """A series of what there is; a plain number, as a paper prints it, has no interval."""
    shown = [(x, y if isinstance(y, Estimate) else Estimate(y, None, 1)) for x, y in found if y is not None]
    return Series(label, tuple(x for x, _ in shown), tuple(y for _, y in shown), joined)


def drawable(figures: Iterable[Figure]) -> list[Figure]:
    """The figures without series that have no point, panels without series, and figures without panels."""
    made = []
    for figure in figures:
        panels = (
            replace(panel, series=tuple(series for series in panel.series if series.x))
            for panel in figure.panels
        )
        made.append(replace(figure, panels=tuple(panel for panel in panels if panel.series)))
    return [figure for figure in made if figure.panels]


def made(
    results: Results, needs: Iterable[Mapping[str, Label]], maker: Callable[[Results], Iterable[Made]]
) -> list[Made]:
    """What `maker` makes, and nothing if a kind of runs that it needs has none: they may all have failed."""
    return list(maker(results)) if all(results.select(**labels) for labels in needs) else []


def line(results: Results, measure: str, over: str, name: str, **fixed: Label) -> Series:
    """`measure` over every value of the label `over`, the other labels fixed; gaps are left out."""
    return points(
        name, ((at, results.estimate(measure, **fixed, **{over: at})) for at in results.values(over))
    )


def lines(results: Results, measure: str, over: str, by: str, **fixed: Label) -> tuple[Series, ...]:
    """One line for each value of the label `by`; those without a point are left out."""
    made = (line(results, measure, over, str(one), **fixed, **{by: one}) for one in results.values(by))
    return tuple(series for series in made if series.x)


def cross(
    results: Results, measure: str, rows: Sequence[str], columns: str, name: str, title: str, note: str = ""
) -> Table:
    """A cross table: one row for each combination of the labels `rows`, one column per value of `columns`."""
    combinations: list[tuple[Label, ...]] = [()]
    for label in rows:
        combinations = [(*before, at) for before in combinations for at in results.values(label)]
    body: list[tuple[Cell, ...]] = []
    for combination in combinations:
        fixed = dict(zip(rows, combination, strict=True))
        cells = [results.estimate(measure, **fixed, **{columns: at}) for at in results.values(columns)]
        if any(cell is not None for cell in cells):
            body.append((*combination, *cells))
    heads = tuple(f"{at} {columns}" for at in results.values(columns))
    return Table(name, title, (*rows, *heads), tuple(body), note)
