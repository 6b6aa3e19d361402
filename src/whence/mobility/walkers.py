"""Pedestrians in a grid of streets: the Östermalm scenario of paper 001 (section VI-B, Table IV).

The original trace (CRAWDAD kth/walkers, traceset ostermalm_001_1) is not available; what is published is a
5-hour Poisson flow of walkers, speeds from a normal distribution cut to 0.6-2.0 m/s with mean 1.3, a radio
range of 50 m, and the figures of Table IV. docs/oppnet-scenarios.md says how the rest was chosen.

A walker comes in by an entrance and leaves by one: any of them, the same one included. Before it leaves it
may have errands, each at any crossing. It walks on shortest ways, drawn street by street, at one speed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from whence.core.rng import below, chance, log, normal_quantile, purpose, stream, uniform
from whence.errors import ParameterError
from whence.mobility.paths import Paths, Stay, Waypoint, contact_plan, make_paths
from whence.overlay.contacts import ContactPlan

_ARRIVALS = purpose("walker arrivals")
_WALKER = purpose("walker steps")
_ERRANDS = purpose("walker errands")
_SPEED = purpose("walker speed")
_SECOND_US = 1_000_000
_DRAWS_MAX = 1_000  # a sensible truncated normal needs two

Crossing: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class WalkerCity:
    """The area and its walkers. What the paper states is marked; the rest is fitted to Table IV."""

    duration_s: float = 18_000.0  # paper: 5 h
    range_m: float = 50.0  # paper
    step_s: float = 0.6  # of the original trace: both least times of Table IV are multiples; 0: continuous
    columns: int = 4  # streets that run north
    rows: int = 5  # streets that run east; of the 4 x 5 crossings 14 are at the edge: the entrances
    block_x_m: float = 98.0
    block_y_m: float = 89.0
    access_m: float = 7.7  # from an entrance to its crossing
    arrivals_per_s: float = 0.1185  # 2,092 walkers in 5 h
    speed_mean: float = 1.3  # paper, as are the limits
    speed_deviation: float = 0.3
    speed_min: float = 0.6
    speed_max: float = 2.0
    errand_chance: float = 0.25  # that a walker has an errand (one more errand) before it leaves


def walker_paths(seed: int, city: WalkerCity | None = None) -> Paths:
    """One path per walker, in order of arrival; who would not be through at the end does not come."""
    city = city or WalkerCity()
    if city.columns < 2 or city.rows < 2:
        raise ParameterError("streets", f"{city.columns} x {city.rows} is not a grid", "Use 2 x 2 or more")
    tracks: dict[str, list[Stay]] = {}
    key = stream(seed, _ARRIVALS)
    end_us = int(city.duration_s * _SECOND_US)
    now_s, walker = 0.0, 0
    while True:
        now_s += -log(1.0 - uniform(key, walker)) / city.arrivals_per_s
        if now_s >= city.duration_s:
            return make_paths(tracks)
        walk = _walk(seed, walker, now_s, city)
        if walk[-1][0] <= end_us:
            tracks[f"w{walker:04d}"] = [walk]
        walker += 1


def walker_plan(seed: int, city: WalkerCity | None = None) -> ContactPlan:
    """The contacts of the walkers, computed in continuous time and then looked at every `step_s`."""
    city = city or WalkerCity()
    stop_us, step_us = int(city.duration_s * _SECOND_US), int(city.step_s * _SECOND_US)
    return contact_plan(walker_paths(seed, city), city.range_m, stop_us, step_us or None)


def _speed(seed: int, walker: int, city: WalkerCity) -> float:
    key = stream(seed, _SPEED, walker)
    for index in range(_DRAWS_MAX):
        speed = city.speed_mean + city.speed_deviation * normal_quantile(uniform(key, index))
        if city.speed_min <= speed <= city.speed_max:
            return speed
    raise ParameterError("speed", "none within the limits was drawn", "Widen the limits")


def _walk(seed: int, walker: int, arrival_s: float, city: WalkerCity) -> list[Waypoint]:
    """From an entrance over crossings to an exit."""
    key = stream(seed, _WALKER, walker)
    speed = _speed(seed, walker, city)
    edge = _edge(city)
    at, leaving = edge[below(key, 0, len(edge))], edge[below(key, 1, len(edge))]
    now_s = arrival_s
    points = [_waypoint(now_s, at, city, _outward(at, city))]
    now_s += city.access_m / speed
    points.append(_waypoint(now_s, at, city))
    for goal in [*_errands(key, city), leaving]:
        while at != goal and now_s < city.duration_s:
            at, walked_m = _street(key, len(points), at, goal, city)
            now_s += walked_m / speed
            points.append(_waypoint(now_s, at, city))
    now_s += city.access_m / speed
    points.append(_waypoint(now_s, at, city, _outward(at, city)))
    return points


def _errands(key: int, city: WalkerCity) -> list[Crossing]:
    own = stream(key, _ERRANDS)
    errands: list[Crossing] = []
    while chance(own, 2 * len(errands), city.errand_chance):
        crossing = below(own, 2 * len(errands) + 1, city.columns * city.rows)
        errands.append((crossing % city.columns, crossing // city.columns))
    return errands


def _street(key: int, draw: int, at: Crossing, goal: Crossing, city: WalkerCity) -> tuple[Crossing, float]:
    """The next crossing on a shortest way, and how far it is: all shortest ways are equally likely."""
    blocks_x, blocks_y = abs(goal[0] - at[0]), abs(goal[1] - at[1])
    if below(key, draw, blocks_x + blocks_y) < blocks_x:
        return (at[0] + (1 if goal[0] > at[0] else -1), at[1]), city.block_x_m
    return (at[0], at[1] + (1 if goal[1] > at[1] else -1)), city.block_y_m


def _edge(city: WalkerCity) -> list[Crossing]:
    crossings = [(column, row) for column in range(city.columns) for row in range(city.rows)]
    return [at for at in crossings if _outward(at, city) != (0, 0)]


def _outward(at: Crossing, city: WalkerCity) -> Crossing:
    """The way out of the area at a crossing of the edge: west or east where there is one."""
    if at[0] in (0, city.columns - 1):
        return (-1, 0) if at[0] == 0 else (1, 0)
    if at[1] in (0, city.rows - 1):
        return (0, -1) if at[1] == 0 else (0, 1)
    return (0, 0)


def _waypoint(now_s: float, at: Crossing, city: WalkerCity, out: Crossing = (0, 0)) -> Waypoint:
    x = at[0] * city.block_x_m + out[0] * city.access_m
    y = at[1] * city.block_y_m + out[1] * city.access_m
    return int(now_s * _SECOND_US + 0.5), x, y
