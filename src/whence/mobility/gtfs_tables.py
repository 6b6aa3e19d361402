"""The tables of a GTFS feed: a zip of CSV files, read with errors that name file, line and column."""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections import defaultdict
from collections.abc import Collection, Iterator
from math import cos, radians
from pathlib import Path
from typing import TypeAlias

from whence.errors import ImportFormatError
from whence.mobility.gtfs_shapes import Line, Place, line_of

Row: TypeAlias = dict[str, str]
_CLOCK = re.compile(r"^\s*(\d{1,3}):([0-5]\d):([0-5]\d)\s*$")
_DEGREE_M = 111_194.926_6  # one degree of latitude on a sphere of 6,371 km
_FIX = "See gtfs.org for the columns of each table"


class Feed:
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
            raise self.wrong(self._table, f"{text!r} is no time of day", "Write times as HH:MM:SS")
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

    def lines(self, table: str, wanted: Collection[str]) -> dict[str, Line]:
        """The shapes that are wanted."""
        points: dict[str, list[tuple[int, Place]]] = defaultdict(list)
        columns = ("shape_id", "shape_pt_lat", "shape_pt_lon", "shape_pt_sequence")
        for row in self.rows(table, columns, optional=True):
            if row["shape_id"] in wanted:
                where = self.place(row["shape_pt_lat"], row["shape_pt_lon"])
                points[row["shape_id"]].append((self.whole(row["shape_pt_sequence"]), where))
        return {name: line_of([place for _, place in sorted(found)]) for name, found in points.items()}


def open_feed(path: Path) -> Feed:
    """Open a zipped feed."""
    try:
        return Feed(path, zipfile.ZipFile(path))
    except OSError as error:
        raise ImportFormatError(
            str(path), f"it cannot be read ({error.strerror})", "Check the path"
        ) from error
    except zipfile.BadZipFile as error:
        raise ImportFormatError(str(path), f"it is no zip ({error})", "Give a zipped GTFS feed") from error
