"""A grid file: one base scenario and the fields that vary, multiplied out to many scenarios.

    protocol = "vector"                     # the base is a scenario file (docs/scenarios.md) ...
    nodes = 8
    ...

    [grid]                                  # ... and one more table
    protocol = ["fifo", "vector"]
    nodes = [4, 8, 16]
    link.delay.high_us = [1_000, 50_000]    # a dotted path, as deep as need be
    workloads.0.interval_us = [500, 5_000]  # numbers index lists
    seeds = 10                              # ten repetitions, from the base's seed on; or a list

Every combination is one scenario: 2 x 3 x 2 x 2 x 10 = 240 here.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from whence.errors import ScenarioError, WhenceError
from whence.sim.files import Scenario, from_dict
from whence.toml import read_toml

POINTS_MAX = 10_000_000  # more is a typing error


class GridPoint(NamedTuple):
    """One combination: what varies, and the whole scenario."""

    labels: dict[str, Any]
    scenario: Scenario


def load_grid(path: Path) -> list[GridPoint]:
    """Read a grid file; every point is checked before the first one runs."""
    try:
        return expand(read_grid(path))
    except ScenarioError as error:
        if error.what.startswith(str(path)):
            raise
        raise ScenarioError(f"{path}: {error.what}", error.reason, error.fix) from error


def read_grid(path: Path) -> dict[str, Any]:
    """What a grid file says; its points are not looked at."""
    return read_toml(path, "a grid", ScenarioError)


def expand(data: Mapping[str, Any]) -> list[GridPoint]:
    """The points of a grid in the order of its keys, the seeds running fastest."""
    grid = Grid(data)
    return [grid.point(at) for at in range(len(grid))]


class Grid:
    """The points of a grid, made when they are asked for."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._base, self._axes = _base_and_axes(data)

    def __len__(self) -> int:
        return prod(len(values) for values in self._axes.values())

    def point(self, at: int) -> GridPoint:
        """One combination; the last axis runs fastest."""
        chosen: dict[tuple[str, ...], Any] = {}
        for keys, values in reversed(self._axes.items()):
            at, place = divmod(at, len(values))
            chosen[keys] = values[place]
        return _point(self._base, dict(reversed(chosen.items())))


def _base_and_axes(data: Mapping[str, Any]) -> tuple[dict[str, Any], dict[tuple[str, ...], list[Any]]]:
    base = {key: value for key, value in data.items() if key != "grid"}
    grid = data.get("grid", {})
    if not isinstance(grid, dict):
        raise _grid_error("", "it is not a table", "Write it as [grid] with a list for each field")
    axes = dict(_axes(grid, ()))
    seeds = axes.pop(("seeds",), None)
    if seeds is not None:
        axes[("seed",)] = _seeds(seeds, base.get("seed", 1))
    for keys, values in axes.items():
        if not isinstance(values, list) or not values:
            raise _grid_error(
                ".".join(keys), "its values are not a list with something in it", "Write [1, 2]"
            )
    count = prod(len(values) for values in axes.values())
    if count > POINTS_MAX:
        raise _grid_error("", f"it has {count:,} points", f"Keep it below {POINTS_MAX:,}")
    return base, axes


def _axes(table: Mapping[str, Any], above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The paths that vary: TOML turns an unquoted dotted key into nested tables, a quoted one not."""
    for key, value in table.items():
        path = (*above, *key.split("."))
        if isinstance(value, dict):
            yield from _axes(value, path)
        else:
            yield path, value


def _seeds(given: Any, first: Any) -> Any:
    if isinstance(given, int) and not isinstance(given, bool) and isinstance(first, int):
        if given < 1:
            raise _grid_error("seeds", f"{given} is less than one", "Give a positive number, or a list")
        return list(range(first, first + given))
    return given


def _point(base: Mapping[str, Any], chosen: Mapping[tuple[str, ...], Any]) -> GridPoint:
    data: dict[str, Any] = copy.deepcopy(dict(base))
    for keys, value in chosen.items():
        _put(data, keys, value)
    labels = {".".join(keys): value for keys, value in chosen.items()}
    try:
        return GridPoint(labels, from_dict(data))
    except WhenceError as error:
        at = ", ".join(f"{key} = {value}" for key, value in labels.items())
        raise ScenarioError(f"grid point ({at}): {error.what}", error.reason, error.fix) from error


def _put(data: dict[str, Any], keys: tuple[str, ...], value: Any) -> None:
    target: Any = data
    for depth, key in enumerate(keys):
        last = depth == len(keys) - 1
        if isinstance(target, dict):
            if last:
                target[key] = value
            else:
                target = target.setdefault(key, {})
        elif isinstance(target, list) and key.isdigit() and int(key) < len(target):
            if last:
                target[int(key)] = value
            else:
                target = target[int(key)]
        else:
            raise _grid_error(
                ".".join(keys),
                f"there is nothing at {'.'.join(keys[: depth + 1])!r}",
                "See docs/scenarios.md",
            )


def _grid_error(field: str, reason: str, fix: str) -> ScenarioError:
    return ScenarioError(f"grid field '{field}'" if field else "the table [grid]", reason, fix)
