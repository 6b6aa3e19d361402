"""Vehicles of a GTFS timetable: trips of one service day, chained into vehicles that move along their shapes.

A vehicle is a `block_id` where the feed has them. Else trips are chained in order of departure: a trip is
driven by the vehicle that last arrived near its first stop, if one waits there; it waits for at most an hour,
and then goes out of service. Between two stops a vehicle moves evenly along the trip's shape; stops for which
the timetable has no time, or the time of the stop before, are passed on the way. A trip in `frequencies.txt`
is driven once for each of its departures there: at `start_time`, then every `headway_secs`, and the last time
before `end_time`; its times in `stop_times.txt` only say how long it takes from stop to stop. Where
`exact_times` is not 1 the operator promises the headway alone; here every departure is taken to be on time.
Times count from the first departure of the day.

A shape may pass a place twice (a loop, out and back on one street), so that the nearest point is not enough
to place a stop: among the points at which the shape comes near the stops, those are chosen that follow each
other in the order of the stops and are nearest in sum.
"""

from __future__ import annotations

import csv
import io
import re
import zipfile
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise
from math import cos, inf, radians, sqrt
from pathlib import Path
from typing import NamedTuple, TypeAlias

from whence.errors import ImportFormatError
from whence.mobility.paths import Paths, Waypoint, make_paths
from whence.mobility.readers import SECOND_US, count

Row: TypeAlias = dict[str, str]
Place: TypeAlias = tuple[float, float]  # metres east and north
Projection: TypeAlias = list[float]  # metres along a line, one for each stop

NEAR_M = 150.0  # a shape that passes a stop further away is not the shape of that trip
HEADWAYS = "frequencies.txt"
DEPARTURES_MAX = 100_000  # of one feed: more is a mistake in a headway
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_CLOCK = re.compile(r"^\s*(\d{1,3}):([0-5]\d):([0-5]\d)\s*$")
_DEGREE_M = 111_194.926_6  # one degree of latitude on a sphere of 6,371 km
_FIX = "See gtfs.org for the columns of each table"


# The tables of a feed: a zip of CSV files, read with errors that name file, line and column


class GtfsFeed:
    """An open feed; `wrong` makes the error for the line that was read last."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path = path
        self._archive = archive
        self._names = {Path(name).name: name for name in archive.namelist()}
        self._line = 0
        self._origin: tuple[float, float] | None = None  # degrees: the first place that is read

    def wrong(self, table: str, reason: str, fix: str = _FIX) -> ImportFormatError:
        where = f", line {self._line}" if self._line else ""
        return ImportFormatError(f"{self.path}, {table}{where}", reason, fix)

    def rows(self, table: str, columns: Collection[str], *, optional: bool = False) -> Iterator[Row]:
        """The rows of a table that must have these columns; none if it is `optional` and missing."""
        self._line = 0
        if table not in self._names:
            if optional:
                return
            raise self.wrong(table, "it is not in the feed")
        try:
            text = self._archive.read(self._names[table]).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise self.wrong(table, "it is not UTF-8", "Convert it to UTF-8") from error
        except (zipfile.BadZipFile, OSError, EOFError) as error:
            raise self.wrong(table, f"it is damaged ({error})", "Fetch the feed again") from error
        reader = csv.reader(io.StringIO(text))
        header = [name.strip() for name in next(reader, [])]
        missing = [name for name in columns if name not in header]
        if missing:
            raise self.wrong(table, f"it has no column {missing[0]}")
        for cells in reader:
            self._line = reader.line_num
            if not cells:
                continue
            if len(cells) != len(header):
                raise self.wrong(table, f"it has {len(cells)} cells for {len(header)} columns")
            self._table = table
            yield dict(zip(header, cells, strict=True))
        self._line = 0

    def clock(self, text: str) -> int | None:
        """HH:MM:SS as seconds after midnight (hours may pass 24); None where the timetable has no time."""
        if not text.strip():
            return None
        found = _CLOCK.match(text)
        if found is None:
            raise self.wrong(self._table, f"{text!r} is not a time of day", "Write times as HH:MM:SS")
        return int(found[1]) * 3600 + int(found[2]) * 60 + int(found[3])

    def whole(self, text: str) -> int:
        """A whole number."""
        try:
            return int(text)
        except ValueError as error:
            raise self.wrong(self._table, f"{text!r} is not a whole number") from error

    def place(self, latitude: str, longitude: str) -> Place:
        """Metres east and north of the first place; flat, which is good for the size of a city."""
        try:
            north, east = float(latitude), float(longitude)
        except ValueError as error:
            raise self.wrong(self._table, f"{latitude!r}, {longitude!r} is no place") from error
        if not (-90 <= north <= 90 and -180 <= east <= 180):
            raise self.wrong(self._table, f"{latitude}, {longitude} is not on the globe")
        if self._origin is None:
            self._origin = (north, east)
        width_m = _DEGREE_M * cos(radians(self._origin[0]))
        return (east - self._origin[1]) * width_m, (north - self._origin[0]) * _DEGREE_M

    def places(self, table: str, key: str, latitude: str, longitude: str) -> dict[str, Place]:
        """Where everything in a table is."""
        rows = self.rows(table, (key, latitude, longitude))
        return {row[key]: self.place(row[latitude], row[longitude]) for row in rows if row[latitude].strip()}

    def lines(self, table: str, wanted: Collection[str]) -> dict[str, ShapeLine]:
        """The shapes that are wanted."""
        points: dict[str, list[tuple[int, Place]]] = defaultdict(list)
        columns = ("shape_id", "shape_pt_lat", "shape_pt_lon", "shape_pt_sequence")
        for row in self.rows(table, columns, optional=True):
            if row["shape_id"] in wanted:
                where = self.place(row["shape_pt_lat"], row["shape_pt_lon"])
                points[row["shape_id"]].append((self.whole(row["shape_pt_sequence"]), where))
        return {name: line_of([place for _, place in sorted(found)]) for name, found in points.items()}


def open_feed(path: Path) -> GtfsFeed:
    """Open a zipped feed."""
    try:
        return GtfsFeed(path, zipfile.ZipFile(path))
    except OSError as error:
        raise ImportFormatError(
            str(path), f"it cannot be read ({error.strerror})", "Check the path"
        ) from error
    except zipfile.BadZipFile as error:
        raise ImportFormatError(str(path), f"it is no zip ({error})", "Give a zipped GTFS feed") from error


# Stops on lines


class ShapeLine(NamedTuple):
    """A line through places, and how far along it each is."""

    places: list[Place]
    far_m: list[float]


def line_of(places: list[Place]) -> ShapeLine:
    """A line through places."""
    far = [0.0]
    for (x0, y0), (x1, y1) in pairwise(places):
        far.append(far[-1] + sqrt((x1 - x0) ** 2 + (y1 - y0) ** 2))
    return ShapeLine(places, far[: len(places)])


def along(line: ShapeLine, at_m: float) -> Place:
    """The place `at_m` along the line."""
    after = min(max(bisect_right(line.far_m, at_m), 1), len(line.places) - 1)
    before_m, after_m = line.far_m[after - 1], line.far_m[after]
    (x0, y0), (x1, y1) = line.places[after - 1], line.places[after]
    share = min(max((at_m - before_m) / (after_m - before_m), 0.0), 1.0) if after_m > before_m else 0.0
    return x0 + (x1 - x0) * share, y0 + (y1 - y0) * share


def place_stops(line: ShapeLine, stops: list[Place]) -> Projection | None:
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


def _near(line: ShapeLine, stop: Place) -> list[tuple[float, float]]:
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


# Trips that are repeated by headway


def departures(feed: GtfsFeed, known: Collection[str]) -> dict[str, list[int]]:
    """For each trip that is repeated its departures, in seconds after midnight; `known` are all trips."""
    windows: dict[str, list[tuple[int, int]]] = defaultdict(list)
    found: dict[str, list[int]] = defaultdict(list)
    total = 0
    for row in feed.rows(HEADWAYS, ("trip_id", "start_time", "end_time", "headway_secs"), optional=True):
        trip = row["trip_id"]
        if trip not in known:
            raise feed.wrong(HEADWAYS, f"there is no trip {trip!r}", "Correct trips.txt")
        start_s, end_s = feed.clock(row["start_time"]), feed.clock(row["end_time"])
        headway_s = feed.whole(row["headway_secs"])
        if start_s is None or end_s is None or start_s >= end_s:
            raise feed.wrong(HEADWAYS, "its times do not span anything", "Give start_time before end_time")
        if headway_s < 1:
            raise feed.wrong(HEADWAYS, f"a headway of {headway_s} s is none", "Give whole seconds from 1")
        if any(start_s < other_end_s and other_s < end_s for other_s, other_end_s in windows[trip]):
            raise feed.wrong(
                HEADWAYS, f"two headways of trip {trip!r} hold at the same time", "Let the first end before"
            )
        windows[trip].append((start_s, end_s))
        total += len(range(start_s, end_s, headway_s))
        if total > DEPARTURES_MAX:
            raise feed.wrong(
                HEADWAYS, f"it makes more than {DEPARTURES_MAX:,} departures", "Correct headway_secs"
            )
        found[trip] += range(start_s, end_s, headway_s)
    return {trip: sorted(times_s) for trip, times_s in found.items()}


def note_blocks(blocks: Collection[str], left_out: dict[str, int]) -> None:
    """One block cannot be on two runs of a trip at a time: repeated trips are chained by place."""
    named = sum(map(bool, blocks))
    if named:
        count(left_out, "blocks of trips that are repeated by headway", named)


# The vehicles of a day


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


def _days(feed: GtfsFeed) -> dict[str, set[str]]:
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


def _date(feed: GtfsFeed, table: str, text: str) -> date:
    try:
        return date(int(text[:4]), int(text[4:6]), int(text[6:]))
    except (ValueError, OverflowError) as error:
        raise feed.wrong(table, f"{text!r} is no date", "Write dates as YYYYMMDD") from error


def _busiest(
    feed: GtfsFeed,
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
    feed: GtfsFeed, wanted: dict[str, Row], repeated: dict[str, list[int]], left_out: dict[str, int]
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
    placed: dict[tuple[str, tuple[str, ...]], tuple[ShapeLine, Projection]] = {}
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


def _on_shape(
    places: list[Place], shape: ShapeLine | None, left_out: dict[str, int]
) -> tuple[ShapeLine, Projection]:
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
    called: list[tuple[int, int | None, int | None, str]], line: ShapeLine, far: Projection
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
