"""The reader of timetables (GTFS): what it reads and what it refuses, on a made-up feed."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from whence.errors import ImportFormatError
from whence.mobility.gtfs import read_gtfs

S = 1_000_000


FEED = {
    "calendar.txt": "service_id,monday,tuesday,wednesday,thursday,friday,saturday,sunday,"
    "start_date,end_date\n"
    "W,1,1,1,1,1,0,0,20240101,20240107\nX,0,0,0,0,0,1,0,20240101,20240107\n",
    "calendar_dates.txt": "service_id,date,exception_type\nW,20240101,2\nX,20240103,1\n",
    "trips.txt": "route_id,service_id,trip_id,block_id,shape_id\n"
    "r,W,out,,S\nr,W,back,,\nr,W,late,,S\nr,X,sat,,S\n",
    "stops.txt": "stop_id,stop_lat,stop_lon\nA,0.0,0.0\nB,0.0,0.01\nC,0.0,0.02\n",
    "shapes.txt": "shape_id,shape_pt_lat,shape_pt_lon,shape_pt_sequence\n"
    "S,0.0,0.0,1\nS,0.0,0.02,3\nS,0.001,0.01,2\n",
    "stop_times.txt": "trip_id,arrival_time,departure_time,stop_id,stop_sequence\n"
    "out,08:00:00,08:00:00,A,1\nout,,,B,2\nout,08:10:00,08:10:00,C,3\n"
    "back,08:15:00,08:15:00,C,1\nback,08:25:00,08:25:00,A,2\n"
    "late,25:00:00,25:00:00,A,1\nlate,25:10:00,25:10:00,C,2\n"
    "sat,09:00:00,09:00:00,A,1\nsat,09:10:00,09:10:00,C,2\n",
}


def feed(tmp_path: Path, **changes: str | bytes | None) -> Path:
    path = tmp_path / "feed.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**FEED, **{f"{key}.txt": value for key, value in changes.items()}}.items():
            if text is not None:
                archive.writestr(name, text)
    return path


def test_gtfs_chains_trips_and_follows_shapes(tmp_path) -> None:
    service = read_gtfs(feed(tmp_path))
    assert service.day == "20240103"  # a Wednesday with Saturday's trips added
    assert (service.trips, service.rows, service.begin_s) == (4, 9, 8 * 3600)
    assert service.paths.nodes == ("v001", "v002")  # one waits at C for `back`, then at A for `sat`
    assert service.left_out == {"shapes that are missing (replaced by straight lines)": 1}
    first = slice(service.paths.offsets[0], service.paths.offsets[1])
    times = [300, 600, 900, 1500, 3600, 3900, 4200]
    assert list(service.paths.stop_us[first]) == [each * S for each in times]
    assert service.paths.y1[first][0] == pytest.approx(111.2, abs=0.1)  # by the shape, not by stop B
    weekday = read_gtfs(feed(tmp_path), "20240102")
    assert (weekday.trips, weekday.left_out["trips of other days"]) == (3, 1)


def test_gtfs_uses_blocks(tmp_path) -> None:
    trips = FEED["trips.txt"].replace("out,,S", "out,b1,S").replace("back,,", "back,b2,")
    service = read_gtfs(feed(tmp_path, trips=trips.replace("late,,S", "late,b1,S")), "20240102")
    assert service.paths.nodes == ("b1", "b2")


def test_gtfs_finds_stops_on_a_street_that_is_driven_twice(tmp_path) -> None:
    shapes = "shape_id,shape_pt_lat,shape_pt_lon,shape_pt_sequence\nS,0,0,1\nS,0,0.02,2\nS,0,0,3\n"
    times = (
        "trip_id,arrival_time,departure_time,stop_id,stop_sequence\n"
        "out,08:00:00,08:00:00,A,1\nout,08:10:00,08:10:00,C,2\nout,08:15:00,08:15:00,B,3\nout,08:20:00,08:20:00,A,4\n"
    )
    service = read_gtfs(feed(tmp_path, shapes=shapes, stop_times=times), "20240102")
    assert service.left_out["trips with fewer than two times"] == 2
    assert [round(x) for x in service.paths.x1] == [2224, 1112, 0]


HEADWAYS = "trip_id,start_time,end_time,headway_secs,exact_times\n"


def test_gtfs_repeats_trips_by_headway(tmp_path) -> None:
    """`out` takes 10 minutes whenever it departs; its own 08:00 is not driven."""
    rows = (
        HEADWAYS + "out,09:00:00,10:00:00,1800,1\nout,10:00:00,10:40:00,1200,0\nsat,06:00:00,07:00:00,60,\n"
    )
    trips = FEED["trips.txt"].replace("out,,S", "out,b1,S")
    service = read_gtfs(feed(tmp_path, frequencies=rows, trips=trips), "20240102")
    departures = [9 * 3600, 9.5 * 3600, 10 * 3600, 10 * 3600 + 1200]  # neither 10:00 twice nor 10:40
    assert (service.trips, service.rows, service.begin_s) == (2 + 4, 7, 8 * 3600 + 15 * 60)
    assert service.left_out["blocks of trips that are repeated by headway"] == 1
    starts = {round(at / S) for at in service.paths.start_us}
    stops = {round(at / S) for at in service.paths.stop_us}
    begin_s = service.begin_s
    assert {at - begin_s for at in departures} <= starts
    assert {at + 600 - begin_s for at in departures} <= stops
    assert 0 in starts  # `back`, as in the timetable
    assert not any(at < 0 for at in starts)
    # The first day with the most departures is Saturday's service now: 60 of `sat`.
    assert read_gtfs(feed(tmp_path, frequencies=rows), None).day == "20240103"
    assert read_gtfs(feed(tmp_path, frequencies=rows)).trips == 3 - 1 + 4 + 60


def test_gtfs_counts_a_headway_from_the_departure_at_the_first_stop(tmp_path) -> None:
    times = FEED["stop_times.txt"].replace("out,08:00:00,08:00:00", "out,07:58:00,08:00:00")
    rows = HEADWAYS + "out,09:00:00,09:01:00,60,1\n"
    service = read_gtfs(feed(tmp_path, frequencies=rows, stop_times=times), "20240102")
    assert {round(at / S) + service.begin_s for at in service.paths.start_us} >= {9 * 3600 - 120, 9 * 3600}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("none,09:00:00,10:00:00,60,0", "frequencies.txt, line 2: there is no trip 'none'"),
        ("out,10:00:00,10:00:00,60,0", "line 2: its times do not span anything"),
        ("out,,10:00:00,60,0", "line 2: its times do not span anything"),
        ("out,09:00:00,10:00:00,0,0", "line 2: a headway of 0 s is none"),
        ("out,09:00:00,10:00:00,often,0", "line 2: 'often' is not a whole number"),
        ("out,09:00:00,10:00:00,60,0\nout,09:59:59,11:00:00,60,0", "line 3: two headways of trip 'out'"),
        ("out,00:00:00,900:00:00,1,0", "line 2: it makes more than 100,000 departures"),
    ],
)
def test_gtfs_refuses_headways_that_cannot_be(tmp_path, row, reason) -> None:
    with pytest.raises(ImportFormatError) as caught:
        read_gtfs(feed(tmp_path, frequencies=f"{HEADWAYS}{row}\n"), "20240102")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"trips": None}, "trips.txt: it is not in the feed"),
        ({"stops": "stop_id,stop_lat\nA,1\n"}, "stops.txt: it has no column stop_lon"),
        (
            {"stops": FEED["stops.txt"].replace("0.01", "east")},
            "stops.txt, line 3: '0.0', 'east' is no place",
        ),
        (
            {"stops": FEED["stops.txt"].replace("0.01", "999")},
            "stops.txt, line 3: 0.0, 999 is not on the globe",
        ),
        ({"stop_times": FEED["stop_times.txt"].replace("08:10:00", "8 o'clock")}, "stop_times.txt, line 4"),
        ({"stop_times": FEED["stop_times.txt"].replace(",C,3", ",Z,3")}, "line 4: there is no stop 'Z'"),
        ({"stop_times": FEED["stop_times.txt"][:-4]}, "stop_times.txt, line 10: it has"),
        ({"calendar": FEED["calendar.txt"].replace("20240101", "January", 1)}, "'January' is no date"),
        ({"calendar": FEED["calendar.txt"].replace("20240101", "202401" + 20 * "9", 1)}, "is no date"),
        ({"trips": b"route_id,service_id,trip_id\nr,W,\xff\n"}, "trips.txt: it is not UTF-8"),
    ],
)
def test_gtfs_refuses(tmp_path, changes, reason) -> None:
    with pytest.raises(ImportFormatError) as caught:
        read_gtfs(feed(tmp_path, **changes), "20240102")
    assert reason in str(caught.value)


def test_gtfs_refuses_other_days_and_files(tmp_path) -> None:
    with pytest.raises(ImportFormatError, match="no trip runs on 20250101"):
        read_gtfs(feed(tmp_path), "20250101")
    other = tmp_path / "other.txt"
    other.write_text("not a zip")
    with pytest.raises(ImportFormatError, match="it is no zip"):
        read_gtfs(other)
    with pytest.raises(ImportFormatError, match="cannot be read"):
        read_gtfs(tmp_path / "none.zip")
    whole = feed(tmp_path).read_bytes()
    other.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ImportFormatError, match="it is no zip"):
        read_gtfs(other)
