"""Paths: nodes that move along straight legs, and the contacts that follow from them.

A node's path is one or more *stays*; a stay is a list of waypoints (time_us, x, y), in metres, between which
the node moves evenly. It is present from the first waypoint of a stay to the last.

    paths = make_paths({"ann": [[(0, 0.0, 0.0), (60_000_000, 90.0, 0.0)]], "bob": [[(0, 90.0, 0.0), ...]]})
    plan = contact_plan(paths, range_m=50.0)

Contacts are computed from the legs, not from samples: they begin and end at the microsecond at which the
distance passes the range, and no contact is too short to be seen (down to that microsecond).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from whence.errors import ContactPlanError
from whence.mobility.kernel import Array, meet_all
from whence.overlay.contacts import ContactPlan, make_plan

Waypoint: TypeAlias = tuple[int, float, float]
Stay: TypeAlias = Sequence[Waypoint]


@dataclass(frozen=True, eq=False)
class Paths:
    """Legs of all nodes, as columns; those of node n are `offsets[n] : offsets[n + 1]`, in order of time."""

    nodes: tuple[str, ...]
    offsets: Array
    start_us: Array
    stop_us: Array
    x0: Array
    y0: Array
    x1: Array
    y1: Array

    def stays(self) -> Iterator[tuple[int, int, int]]:
        """When nodes are there: rows (node, start_us, stop_us)."""
        for node in range(len(self.nodes)):
            first, last = int(self.offsets[node]), int(self.offsets[node + 1])
            begin = first
            for leg in range(first, last):
                if leg + 1 == last or self.start_us[leg + 1] != self.stop_us[leg]:
                    yield node, int(self.start_us[begin]), int(self.stop_us[leg])
                    begin = leg + 1


def make_paths(tracks: Mapping[str, Iterable[Stay]]) -> Paths:
    """Paths from waypoints; a stay whose times do not grow raises `ContactPlanError`."""
    columns: list[list[Any]] = [[], [], [], [], [], []]
    offsets = [0]
    for name, stays in tracks.items():
        left_us = -1
        for stay in stays:
            if stay and stay[0][0] < left_us:
                raise _backwards(name, left_us, stay[0][0])
            for (t0, x0, y0), (t1, x1, y1) in pairwise(stay):
                if t1 <= t0:
                    raise _backwards(name, t0, t1)
                for column, value in zip(columns, (t0, t1, x0, y0, x1, y1), strict=True):
                    column.append(value)
                left_us = t1
        offsets.append(len(columns[0]))
    whole = [np.array(column, dtype=np.int64) for column in columns[:2]]
    real = [np.array(column, dtype=np.float64) for column in columns[2:]]
    return Paths(tuple(tracks), np.array(offsets, dtype=np.int64), *whole, *real)


def _backwards(name: str, before_us: int, after_us: int) -> ContactPlanError:
    return ContactPlanError(
        f"path of {name!r}",
        f"a waypoint at {after_us} us follows one at {before_us} us",
        "Waypoints of a stay need growing times, and stays must not overlap",
    )


def contact_rows(paths: Paths, range_m: float) -> Array:
    """Contacts as an array of rows (a, b, start_us, stop_us), unsorted."""
    if not 0 < range_m < float("inf"):
        raise ContactPlanError("range", f"{range_m} m is no radio range", "Give a positive number of metres")
    lasting = (paths.stop_us - paths.start_us).astype(np.float64)
    place = np.stack([paths.x0, paths.y0])
    slope = np.stack([(paths.x1 - paths.x0) / lasting, (paths.y1 - paths.y0) / lasting])
    moving = np.flatnonzero(np.diff(paths.offsets))
    order = moving[np.argsort(paths.start_us[paths.offsets[moving]], kind="stable")]
    found = np.zeros((1 << 16, 4), dtype=np.int64)
    while True:
        count = meet_all(
            order, paths.offsets, paths.start_us, paths.stop_us, place, slope, float(range_m), found
        )
        if count <= found.shape[0]:
            return found[:count]
        found = np.zeros((count, 4), dtype=np.int64)


def contact_plan(
    paths: Paths, range_m: float, stop_us: int | None = None, step_us: int | None = None
) -> ContactPlan:
    """The plan of nodes that can talk while they are within `range_m` metres of each other.

    With `step_us`, as one would see it who looks at all multiples of that time only: nodes and contacts last
    from the first look that finds them until the look after the last, and what no look finds is not there.
    """
    rows = contact_rows(paths, range_m)
    stays = np.array(list(paths.stays()), dtype=np.int64).reshape(-1, 3)
    if step_us is not None:
        rows, stays = _looked_at(rows, step_us, stop_us), _looked_at(stays, step_us, stop_us)
    return make_plan(paths.nodes, rows.tolist(), stays.tolist(), stop_us)


def _looked_at(rows: Array, step_us: int, stop_us: int | None) -> Array:
    """Rows that end with start and stop, as seen at the multiples of `step_us`."""
    first = -(-rows[:, -2] // step_us) * step_us
    after = (rows[:, -1] // step_us + 1) * step_us
    if stop_us is not None:
        after = np.minimum(after, stop_us)
    seen = np.flatnonzero(first < after)
    return np.column_stack([rows[seen, :-2], first[seen], after[seen]])


def sampled(paths: Paths, step_us: int) -> dict[str, Array]:
    """Positions at every multiple of `step_us`: columns time_us, node (index), x, y, by node and time."""
    parts: list[tuple[Array, Array, Array, Array]] = []
    for node, start_us, stop_us in paths.stays():
        low, high = paths.offsets[node], paths.offsets[node + 1]
        times = np.arange(-(-start_us // step_us), stop_us // step_us + 1, dtype=np.int64) * step_us
        leg = np.clip(np.searchsorted(paths.start_us[low:high], times, "right") - 1, 0, None) + low
        share = (times - paths.start_us[leg]) / (paths.stop_us[leg] - paths.start_us[leg])
        x = paths.x0[leg] + (paths.x1[leg] - paths.x0[leg]) * share
        y = paths.y0[leg] + (paths.y1[leg] - paths.y0[leg]) * share
        parts.append((times, np.full(times.size, node, dtype=np.int64), x, y))
    names = ("time_us", "node", "x", "y")
    if not parts:
        return {name: np.zeros(0, dtype=np.int64 if at < 2 else np.float64) for at, name in enumerate(names)}
    return {name: np.concatenate([part[at] for part in parts]) for at, name in enumerate(names)}
