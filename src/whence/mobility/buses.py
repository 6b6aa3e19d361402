"""City buses on lines that meet at a hub: the bus scenario of paper 001 (section VI-A, Table I).

The original (routes and timetables of Vannes) is not available; published are 60 buses from 05:30 to 19:45, a
radio range of 200 m, and the figures of Table I. docs/oppnet-scenarios.md says how the rest was chosen.

A line is a straight street from the hub, at the origin, to a terminus. Its buses go out and back all day,
evenly spaced over the round trip: hub, way out, terminus, way back. Some are school buses, which run in the
morning or in the afternoon only. Times are counted from 05:30.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from typing import NamedTuple

from whence.core.rng import below, purpose, shuffled, stream, uniform
from whence.errors import ParameterError
from whence.mobility.paths import Paths, Stay, Waypoint, contact_plan, make_paths
from whence.overlay.contacts import ContactPlan

_LINE = purpose("bus line")
_LENGTHS = purpose("bus line lengths")
_DAY = purpose("bus day")
_SCHOOL = purpose("school buses")
_SECOND_US = 1_000_000


@dataclass(frozen=True)
class BusCity:
    """The network and its day. What the paper states is marked; the rest is fitted to Table I."""

    duration_s: float = 51_300.0  # paper: 14 h 15'
    range_m: float = 200.0  # paper
    step_s: float = 1.0  # the least contact of Table I; 0: continuous
    buses: int = 60  # paper
    lines: int = 30
    school_buses: int = 5
    length_min_m: float = 2_500.0
    length_max_m: float = 11_500.0
    speed: float = 6.0  # m/s on the way, stops included
    hub_s: float = 120.0  # at the hub in each round trip
    terminus_s: float = 120.0
    longest_day_s: float = 50_880.0  # paper: 14 h 08'
    shortest_day_s: float = 1_560.0  # paper: 26', of a school bus
    school_longer_by_s: float = 4_080.0  # at most, for other school buses
    shorter_by_s: float = 20_400.0  # at most, for a bus that is not a school bus


class _BusLine(NamedTuple):
    """A street from the hub, in the direction (x, y), and the clock of its round trips."""

    x: float
    y: float
    length_m: float
    round_s: float
    phase: float


def bus_paths(seed: int, city: BusCity | None = None) -> Paths:
    """One path per bus; `L07-2` is the second bus of line 7."""
    city = city or BusCity()
    if not 0 <= city.school_buses <= city.buses or city.lines < 1 or city.speed <= 0:
        raise ParameterError("bus city", "it has no lines, no speed, or too few buses", "Check its numbers")
    school = shuffled(stream(seed, _SCHOOL), city.buses)[: city.school_buses]
    tracks: dict[str, list[Stay]] = {}
    for bus in range(city.buses):
        place, number = bus % city.lines, bus // city.lines
        on_line = len(range(place, city.buses, city.lines))
        line = _line(seed, place, city)
        start_s, stop_s = _school_day(seed, bus, school, city) if bus in school else _day(seed, bus, city)
        tracks[f"L{place + 1:02d}-{number + 1}"] = [_ride(line, number / on_line, start_s, stop_s, city)]
    return make_paths(tracks)


def bus_plan(seed: int, city: BusCity | None = None) -> ContactPlan:
    """The contacts of the buses, computed in continuous time and then looked at every `step_s`."""
    city = city or BusCity()
    stop_us, step_us = int(city.duration_s * _SECOND_US), int(city.step_s * _SECOND_US)
    return contact_plan(bus_paths(seed, city), city.range_m, stop_us, step_us or None)


def _line(seed: int, line: int, city: BusCity) -> _BusLine:
    key = stream(seed, _LINE, line)
    # Directions go round a square rather than a circle: no sine, whose last bits differ between machines.
    side, along = divmod(4.0 * line / city.lines, 1.0)
    sides = ((1.0, 2 * along - 1), (1 - 2 * along, 1.0), (-1.0, 1 - 2 * along), (2 * along - 1, -1.0))
    x, y = sides[int(side)]
    far = sqrt(x * x + y * y)
    # Lengths are spread evenly and then dealt out, so that seeds differ in which bus is where, not in the
    # network's size; squared: many short lines, a few long ones.
    share = (shuffled(stream(seed, _LENGTHS), city.lines)[line] + uniform(key, 0)) / city.lines
    length_m = city.length_min_m + (city.length_max_m - city.length_min_m) * share * share
    round_s = city.hub_s + city.terminus_s + 2 * length_m / city.speed
    return _BusLine(x / far, y / far, length_m, round_s, uniform(key, 1))


def _day(seed: int, bus: int, city: BusCity) -> tuple[float, float]:
    """When a bus starts and stops running."""
    key = stream(seed, _DAY, bus)
    share = uniform(key, 0)
    missing_s = city.duration_s - city.longest_day_s + city.shorter_by_s * share * sqrt(share)
    begin_s = missing_s * uniform(key, 1)
    return begin_s, city.duration_s - (missing_s - begin_s)


def _school_day(seed: int, bus: int, school: list[int], city: BusCity) -> tuple[float, float]:
    """As `_day`, for a school bus: some time after 07:00 or 16:00; the first one runs for the least time."""
    key = stream(seed, _DAY, bus)
    begin_s = (5_400.0, 37_800.0)[below(key, 1, 2)] + 3_600.0 * uniform(key, 2)
    more_s = 0.0 if bus == school[0] else city.school_longer_by_s * uniform(key, 0)
    return begin_s, min(begin_s + city.shortest_day_s + more_s, city.duration_s)


def _ride(line: _BusLine, offset: float, start_s: float, stop_s: float, city: BusCity) -> list[Waypoint]:
    """Waypoints of a bus that is `offset` round trips ahead of the line's clock."""
    way_s = line.length_m / city.speed
    marks = (  # time within the round trip, distance from the hub
        (0.0, 0.0), (city.hub_s, 0.0), (city.hub_s + way_s, line.length_m),
        (line.round_s - way_s, line.length_m), (line.round_s, 0.0),
    )  # fmt: skip
    begin_s = (int(start_s / line.round_s) - line.phase - offset - 1) * line.round_s
    corners: list[tuple[float, float]] = []
    while begin_s < stop_s:
        corners += [(begin_s + mark_s, far_m) for mark_s, far_m in marks[:-1]]
        begin_s += line.round_s
    corners.append((begin_s, 0.0))
    inside = [corner for corner in corners if start_s < corner[0] < stop_s]
    ridden = [(start_s, _at(corners, start_s)), *inside, (stop_s, _at(corners, stop_s))]
    points: list[Waypoint] = []
    for at_s, far_m in ridden:
        at_us = int(at_s * _SECOND_US + 0.5)
        if not points or at_us > points[-1][0]:
            points.append((at_us, line.x * far_m, line.y * far_m))
    return points


def _at(corners: list[tuple[float, float]], at_s: float) -> float:
    """The distance from the hub at a time, between the corners around it."""
    for (t0, far0), (t1, far1) in pairwise(corners):
        if t0 <= at_s < t1:
            return far0 + (far1 - far0) * (at_s - t0) / (t1 - t0)
    return corners[-1][1]
