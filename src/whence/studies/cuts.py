"""Cuts through a grid: lines for a figure and rows for a table, the same way in every study."""

from __future__ import annotations

from collections.abc import Sequence

from whence.studies.base import Cell, Label, Series, Table
from whence.studies.estimate import Estimate
from whence.studies.results import Results


def line(results: Results, measure: str, over: str, name: str, **fixed: Label) -> Series:
    """`measure` over every value of the label `over`, the other labels fixed; gaps are left out."""
    points: list[tuple[float | str, Estimate]] = []
    for at in results.values(over):
        found = results.estimate(measure, **fixed, **{over: at})
        if found is not None:
            points.append((at, found))
    return Series(name, tuple(at for at, _ in points), tuple(found for _, found in points))


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
