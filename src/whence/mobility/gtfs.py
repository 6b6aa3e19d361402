"""Vehicles of a GTFS timetable: trips of one service day, chained into vehicles that move along their shapes.

A vehicle is a `block_id` where the feed has them. Else trips are chained in order of departure: a trip is
driven by the vehicle that last arrived near its first stop, if one waits there; it waits for at most an hour,
and then goes out of service. Between two stops a vehicle moves evenly along the trip's shape; stops for which
the timetable has no time, or the time of the stop before, are passed on the way. A trip in `frequencies.txt`
is driven once for each of its departures there (`gtfs_headways.py`). Times count from the first departure of
the day.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import NamedTuple

from whence.errors import ImportFormatError
from whence.mobility.gtfs_headways import departures, note_blocks
from whence.mobility.gtfs_shapes import Line, Place, Projection, along, line_of, place_stops
from whence.mobility.gtfs_tables import Feed, Row, open_feed
from whence.mobility.paths import Paths, Waypoint, make_paths
from whence.mobility.reading import SECOND_US, count

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


@dataclass(frozen=True)
class Service:
    """The vehicles of one day."""

    paths: Paths
    day: str  # YYYYMMDD
    trips: int
    rows: int  # rows of stop_times.txt that are in the paths
    begin_s: float  # after midnight: the paths' time 0
    left_out: dict[str, int]


class _Trip(NamedTuple):
    """One run along a line, as waypoints with times in microseconds after midnight."""

    name: str
    block: str
    points: list[Waypoint]


def read_gtfs(
    path: Path | str, day: str | None = None, *, near_m: float = 300.0, wait_s: float = 3_600.0
) -> Service:
    """Read the vehicles of `day` (YYYYMMDD); by default of the first day with the most trips."""
    feed = open_feed(Path(path))
    left_out: dict[str, int] = {}
    by_service: dict[str, list[Row]] = defaultdict(list)
    for trip in feed.rows("trips.txt", ("trip_id", "service_id")):
        by_service[trip["service_id"]].append(trip)
    repeated = departures(feed, {trip["trip_id"] for trips in by_service.values() for trip in trips})
    running = _days(feed)
    chosen = day or _busiest(feed, running, by_service, repeated)
    wanted = {trip["trip_id"]: trip for name in running.get(chosen, ()) for trip in by_service.get(name, ())}
    if not wanted:
        raise feed.wrong("calendar.txt", f"no trip runs on {chosen}", "Choose a day that the feed covers")
    count(left_out, "trips of other days", sum(map(len, by_service.values())) - len(wanted))
    trips, rows = _trips(feed, wanted, repeated, left_out)
    vehicles = _by_block(trips) if all(trip.block for trip in trips) else _chained(trips, near_m, wait_s)
    begin_us = min(trip.points[0][0] for trip in trips)
    tracks = {
        name: [[(at_us - begin_us, x, y) for at_us, x, y in stay] for stay in stays]
        for name, stays in vehicles.items()
    }
    return Service(make_paths(tracks), chosen, len(trips), rows, begin_us / SECOND_US, left_out)


# Which trips run


def _days(feed: Feed) -> dict[str, set[str]]:
    """For each day the services that run on it."""
    running: dict[str, set[str]] = defaultdict(set)
    columns = ("service_id", "start_date", "end_date", *WEEKDAYS)
    for row in feed.rows("calendar.txt", columns, optional=True):
        first, last = (
            _date(feed, "calendar.txt", row["start_date"]),
            _date(feed, "calendar.txt", row["end_date"]),
        )
        for after in range((last - first).days + 1):
            at = first + timedelta(days=after)
            if row[WEEKDAYS[at.weekday()]] == "1":
                running[at.strftime("%Y%m%d")].add(row["service_id"])
    for row in feed.rows("calendar_dates.txt", ("service_id", "date", "exception_type"), optional=True):
        services = running[row["date"]]
        services.add(row["service_id"]) if row["exception_type"] == "1" else services.discard(
            row["service_id"]
        )
    return running


def _date(feed: Feed, table: str, text: str) -> date:
    try:
        return date(int(text[:4]), int(text[4:6]), int(text[6:]))
    except (ValueError, OverflowError) as error:
        raise feed.wrong(table, f"{text!r} is no date", "Write dates as YYYYMMDD") from error


def _busiest(
    feed: Feed,
    running: dict[str, set[str]],
    by_service: dict[str, list[Row]],
    repeated: dict[str, list[int]],
) -> str:
    if not running:
        raise feed.wrong("calendar.txt", "the feed has no service day", "Use a feed with a calendar")
    driven = {
        service: sum(len(repeated.get(trip["trip_id"], (trip,))) for trip in trips)
        for service, trips in by_service.items()
    }
    return min(running, key=lambda day: (-sum(driven.get(each, 0) for each in running[day]), day))


# From stop times to waypoints


def _trips(
    feed: Feed, wanted: dict[str, Row], repeated: dict[str, list[int]], left_out: dict[str, int]
) -> tuple[list[_Trip], int]:
    """All trips that can be driven, by departure, and how many rows of the timetable are in them."""
    stops = feed.places("stops.txt", "stop_id", "stop_lat", "stop_lon")
    shapes = feed.lines("shapes.txt", {trip.get("shape_id", "") for trip in wanted.values()})
    calls: dict[str, list[tuple[int, int | None, int | None, str]]] = defaultdict(list)
    needed = ("trip_id", "arrival_time", "departure_time", "stop_id", "stop_sequence")
    for row in feed.rows("stop_times.txt", needed):
        if row["trip_id"] in wanted:
            if row["stop_id"] not in stops:
                raise feed.wrong(
                    "stop_times.txt", f"there is no stop {row['stop_id']!r}", "Correct stops.txt"
                )
            arrives, leaves = feed.clock(row["arrival_time"]), feed.clock(row["departure_time"])
            calls[row["trip_id"]].append((feed.whole(row["stop_sequence"]), arrives, leaves, row["stop_id"]))
    placed: dict[tuple[str, tuple[str, ...]], tuple[Line, Projection]] = {}
    trips: list[_Trip] = []
    rows = 0
    for name, trip in wanted.items():
        called = sorted(calls.get(name, ()))
        visited = tuple(call[3] for call in called)
        key = (trip.get("shape_id", ""), visited)
        if key not in placed and len(visited) > 1:
            placed[key] = _on_shape([stops[stop] for stop in visited], shapes.get(key[0]), left_out)
        points = _drive(called, *placed[key]) if len(visited) > 1 else []
        if len(points) < 2:
            count(left_out, "trips with fewer than two times")
            continue
        rows += len(called)
        if name in repeated:
            trips += _repeat(name, points, called[0], repeated[name])
        else:
            trips.append(_Trip(name, trip.get("block_id", ""), points))
    note_blocks([wanted[name].get("block_id", "") for name in repeated.keys() & wanted.keys()], left_out)
    if not trips:
        raise feed.wrong("stop_times.txt", "no trip of that day has times", "Choose another day")
    return sorted(trips, key=lambda trip: (trip.points[0][0], trip.name)), rows


def _repeat(
    name: str, points: list[Waypoint], first: tuple[int, int | None, int | None, str], departures_s: list[int]
) -> list[_Trip]:
    """A trip at each of its departures: `points` are its own times, `first` its call at the first stop."""
    _, arrives, leaves, _ = first
    stated_s = leaves if leaves is not None else arrives
    leaves_us = points[0][0] if stated_s is None else stated_s * SECOND_US
    return [
        _Trip(
            f"{name} at {departure_s} s",
            "",
            [(at_us - leaves_us + departure_s * SECOND_US, x, y) for at_us, x, y in points],
        )
        for departure_s in departures_s
    ]


def _on_shape(places: list[Place], shape: Line | None, left_out: dict[str, int]) -> tuple[Line, Projection]:
    """The line that a trip follows, and how far along it its stops are."""
    if shape is not None:
        projected = place_stops(shape, places)
        if projected is not None:
            return shape, projected
        count(left_out, "shapes that do not pass by their stops (replaced by straight lines)")
    else:
        count(left_out, "shapes that are missing (replaced by straight lines)")
    straight = line_of(places)
    return straight, list(straight.far_m)


def _drive(
    called: list[tuple[int, int | None, int | None, str]], line: Line, far: Projection
) -> list[Waypoint]:
    """Waypoints of one trip: where times grow, evenly from one stop to the next along the line."""
    anchors: list[tuple[int, float]] = []  # time in seconds, distance along the line
    for (_, arrives, leaves, _), at_m in zip(called, far, strict=True):
        for when in (arrives, leaves):
            if when is None or (anchors and when < anchors[-1][0]):
                continue
            if not anchors or when > anchors[-1][0]:
                anchors.append((when, at_m))
    final = [when for call in called[-1:] for when in call[1:3] if when is not None]
    if final and anchors and final[0] <= anchors[-1][0]:  # not later than a stop before: it counts
        anchors[-1] = (anchors[-1][0], far[-1])
    points: list[Waypoint] = []
    for at, (when, at_m) in enumerate(anchors):
        if at:
            before_s, before_m = anchors[at - 1]
            inner = line.far_m[bisect_right(line.far_m, before_m) : bisect_left(line.far_m, at_m)]
            for each in inner:
                share = (each - before_m) / (at_m - before_m)
                _add(points, round((before_s + (when - before_s) * share) * SECOND_US), along(line, each))
        _add(points, when * SECOND_US, along(line, at_m))
    return points


def _add(points: list[Waypoint], at_us: int, place: Place) -> None:
    if not points or at_us > points[-1][0]:
        points.append((at_us, *place))


# From trips to vehicles


def _by_block(trips: Iterable[_Trip]) -> dict[str, list[list[Waypoint]]]:
    vehicles: dict[str, list[list[Waypoint]]] = {}
    for trip in trips:
        stays = vehicles.setdefault(trip.block, [[]])
        if stays[0] and trip.points[0][0] < stays[0][-1][0]:
            raise ImportFormatError(
                f"block {trip.block!r}",
                f"trip {trip.name!r} departs before the trip before it arrives",
                "Correct block_id in trips.txt, or leave it empty",
            )
        stays[0] += [point for point in trip.points if not stays[0] or point[0] > stays[0][-1][0]]
    return vehicles


def _chained(trips: Iterable[_Trip], near_m: float, wait_s: float) -> dict[str, list[list[Waypoint]]]:
    vehicles: list[list[Waypoint]] = []
    waiting: list[int] = []  # vehicles that may drive again, in order of arrival
    for trip in trips:
        start_us, x, y = trip.points[0]
        waiting = [each for each in waiting if vehicles[each][-1][0] >= start_us - wait_s * SECOND_US]
        near = [
            each
            for each in waiting
            if vehicles[each][-1][0] < start_us
            and (vehicles[each][-1][1] - x) ** 2 + (vehicles[each][-1][2] - y) ** 2 <= near_m * near_m
        ]
        if near:
            chosen = max(near, key=lambda each: (vehicles[each][-1][0], -each))
            vehicles[chosen] += trip.points
        else:
            chosen = len(vehicles)
            vehicles.append(list(trip.points))
            waiting.append(chosen)
    return {f"v{at + 1:03d}": [points] for at, points in enumerate(vehicles)}
