"""Stops on lines: how far along its shape a trip's stops are.

A shape may pass a place twice (a loop, out and back on one street), so that the nearest point is not enough:
among the points at which the shape comes near a stop, those are chosen that follow each other in the order of
the stops and are nearest in sum.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from math import inf, sqrt
from typing import NamedTuple, TypeAlias

Place: TypeAlias = tuple[float, float]  # metres east and north
Projection: TypeAlias = list[float]  # metres along a line, one for each stop

NEAR_M = 150.0  # a shape that passes a stop further away is not the shape of that trip


class Line(NamedTuple):
    """A line through places, and how far along it each is."""

    places: list[Place]
    far_m: list[float]


def line_of(places: list[Place]) -> Line:
    """A line through places."""
    far = [0.0]
    for (x0, y0), (x1, y1) in pairwise(places):
        far.append(far[-1] + sqrt((x1 - x0) ** 2 + (y1 - y0) ** 2))
    return Line(places, far[: len(places)])


def along(line: Line, at_m: float) -> Place:
    """The place so far along the line."""
    after = min(max(bisect_right(line.far_m, at_m), 1), len(line.places) - 1)
    before_m, after_m = line.far_m[after - 1], line.far_m[after]
    (x0, y0), (x1, y1) = line.places[after - 1], line.places[after]
    share = min(max((at_m - before_m) / (after_m - before_m), 0.0), 1.0) if after_m > before_m else 0.0
    return x0 + (x1 - x0) * share, y0 + (y1 - y0) * share


def place_stops(line: Line, stops: list[Place]) -> Projection | None:
    """How far along the line the stops are, never going back; None if the line does not pass by them."""
    if len(line.places) < 2:
        return None
    # Dynamic programme over stops: for each candidate point the least sum of squares so far.
    chosen: list[list[tuple[float, float, int]]] = []  # per stop: (along, cost so far, place of predecessor)
    for stop in stops:
        row: list[tuple[float, float, int]] = []
        for at_m, off2 in _near(line, stop):
            if not chosen:
                row.append((at_m, off2, -1))
                continue
            best, origin = inf, -1
            for place, (before_m, cost, _) in enumerate(chosen[-1]):
                if before_m <= at_m and cost < best:
                    best, origin = cost, place
            if origin >= 0:
                row.append((at_m, best + off2, origin))
        if not row:
            return None
        chosen.append(row)
    at = min(range(len(chosen[-1])), key=lambda place: chosen[-1][place][1])
    far: Projection = []
    for row in reversed(chosen):
        far.append(row[at][0])
        at = row[at][2]
    return far[::-1]


def _near(line: Line, stop: Place) -> list[tuple[float, float]]:
    """Where the line comes near a stop: (metres along, squared distance), one for each leg, in order."""
    found: list[tuple[float, float]] = []
    for at in range(len(line.places) - 1):
        (x0, y0), (x1, y1) = line.places[at], line.places[at + 1]
        long_m = line.far_m[at + 1] - line.far_m[at]
        share = 0.0
        if long_m > 0:
            share = ((stop[0] - x0) * (x1 - x0) + (stop[1] - y0) * (y1 - y0)) / (long_m * long_m)
            share = min(max(share, 0.0), 1.0)
        off2 = (x0 + (x1 - x0) * share - stop[0]) ** 2 + (y0 + (y1 - y0) * share - stop[1]) ** 2
        if off2 <= NEAR_M * NEAR_M:
            found.append((line.far_m[at] + long_m * share, off2))
    return found
