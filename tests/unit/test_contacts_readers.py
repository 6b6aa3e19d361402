"""Readers of foreign traces: what they read and what they refuse, on made-up and on real files."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from whence.errors import ContactPlanError, ImportFormatError, MisuseError
from whence.mobility.gtfs import read_gtfs
from whence.mobility.haggle import read_haggle
from whence.mobility.ns2 import read_ns2
from whence.mobility.paths import contact_plan
from whence.mobility.plan_io import is_plan, load_plan, save_plan
from whence.mobility.sociopatterns import read_sociopatterns
from whence.mobility.sources import read_contacts, write_contacts
from whence.mobility.the_one import read_the_one, write_the_one
from whence.mobility.walkers import WalkerCity, walker_plan
from whence.overlay.contacts import make_plan

S = 1_000_000
DATA = Path("/work/shared/data")
INTEL, LAB = (
    f"haggle_one_intel/Datasets__haggle-one-{name}__haggle-one-{name}__haggle-one-{name}.tsv"
    for name in ("intel", "computer-lab")
)


def real(name: str) -> Path:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"the real data set {path} is not on this machine")
    return path


@pytest.fixture
def file(tmp_path):
    def write(text: str | bytes) -> Path:
        path = tmp_path / "trace.txt"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


# The ONE


def test_the_one_follows_each_direction(file) -> None:
    text = (
        "0 CONN 2 9 up\n185 CONN 9 2 up\n# note\n\n200.5 CONN 2 9 down\n300 CONN 9 2 down\n"
        "300 C m1 2 9 10\n310 CONN 10 2 up\n"
    )
    reading = read_the_one(file(text))
    assert reading.plan.nodes == ("2", "9", "10")
    assert list(reading.plan.contacts) == [(0, 1, 0, 300 * S), (0, 2, 310 * S, 310 * S)]
    assert reading.plan.joined == 1
    assert (reading.lines, reading.rows) == (8, 5)
    assert reading.left_out == {
        "comments": 1,
        "blank lines": 1,
        "events C": 1,
        "ends of contacts that are up at the end of the file": 1,
    }
    assert reading.rows + 3 == reading.lines


def test_the_one_accepts_a_down_in_the_other_direction(file) -> None:
    assert list(read_the_one(file("1 CONN a b up\n2 CONN b a down\n")).plan.contacts) == [(0, 1, S, 2 * S)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1 CONN a b down\n", "line 1: a and b go down, but are not up"),
        ("1 CONN a b up\n2 CONN a b up\n", "line 2: a and b are up already"),
        ("5 CONN a b up\n4 CONN a b down\n", "line 2: its time 4 is before"),
        ("-1 CONN a b up\n", "line 1: its time -1 is negative"),
        ("nan CONN a b up\n", "line 1: its time 'nan' is not a number"),
        ("1e999999999 CONN a b up\n", "line 1: its time 1e999999999 is negative or too large"),
        ("x CONN a b up\n", "line 1: its time 'x' is not a number"),
        ("1 CONN a b up\n2 CONN a b\n", "line 2: it has 4 columns"),
        ("1 CONN a b sideways\n", "line 1"),
        ("1 CONN a a up\n", "line 1: node 'a' meets itself"),
        ("1 up\n", "line 1: it is no connection event"),
        ("# nothing\n", "there is no connection event in it"),
        (b"1 CONN a b up\n2 CONN \xff b up\n", "line 2: it is not UTF-8"),
        ("1 CONN a c up\n", "line 1: there is no node 'c'"),
    ],
)
def test_the_one_refuses(file, text, reason) -> None:
    with pytest.raises(ImportFormatError) as caught:
        read_the_one(file(text), ["a", "b"])
    assert reason in str(caught.value)
    assert caught.value.fix


def test_the_one_round_trip_keeps_instants_and_microseconds(tmp_path) -> None:
    rows = [
        (0, 1, 1, 1),
        (0, 1, 1_500_000, 2_000_001),
        (1, 2, 2_000_001, 3_000_000),
        (0, 2, 3_000_000, 3_000_000),
    ]
    plan = make_plan(["a", "b", "c"], rows)
    assert write_the_one(plan, tmp_path / "one.txt") == 8
    assert read_the_one(tmp_path / "one.txt").plan == plan


# Haggle and SocioPatterns


def test_haggle_leaves_out_devices_that_took_no_part(file) -> None:
    text = "1\t2\t100\t160\t1\t0\n2 1 150 200 1 0\n1 77 90 90 1 0\n2 1 300 300 2 100\n2 2 5 5 1 0\n"
    reading = read_haggle(file(text))
    assert list(reading.plan.contacts) == [(0, 1, 0, 100 * S), (0, 1, 200 * S, 200 * S)]
    assert reading.begin_s == 100
    assert reading.left_out == {"sightings of devices that took no part": 1, "devices that saw themselves": 1}
    assert read_haggle(file(text), external=True).plan.nodes == ("1", "2", "77")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1 2 100 160 1 0\n1 2 100 160 1\n", "line 2: it has 5 columns"),
        ("1 2 100 x 1 0\n", "line 1: its end 'x'"),
        ("1 2 100 160 one 0\n", "line 1: its count 'one'"),
        ("1 2 100 90 1 0\n", "line 1: it ends at 90, before it starts"),
        ("1 2 -5 90 1 0\n", "line 1: its start -5 is negative"),
        ("", "there is no sighting in it"),
        ("1 2 3 4 5 6\n\xe4 2 3 4 5 6\n".encode("latin-1"), "line 2: it is not UTF-8"),
    ],
)
def test_haggle_refuses(file, text, reason) -> None:
    with pytest.raises(ImportFormatError) as caught:
        read_haggle(file(text))
    assert reason in str(caught.value)


def test_sociopatterns_joins_slots(file) -> None:
    reading = read_sociopatterns(file("1000 5 7\n1020 7 5\n1060 5 7\n1060 5 12 A B\n"))
    assert reading.plan.nodes == ("5", "7", "12")
    assert list(reading.plan.contacts) == [(0, 1, 0, 40 * S), (0, 1, 60 * S, 80 * S), (0, 2, 60 * S, 80 * S)]
    assert (reading.rows, reading.plan.joined, reading.begin_s) == (4, 1, 980)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1000 5 7\n1020 5\n", "line 2: it has 2 columns"),
        ("1000 5 7\n1010 5 7\n", "line 2: its time 1010"),
        ("1000 5 5\n", "line 1: badge '5' meets itself"),
        ("now 5 7\n", "line 1: its time 'now'"),
        ("\n", "there is no contact"),
    ],
)
def test_sociopatterns_refuses(file, text, reason) -> None:
    with pytest.raises(ImportFormatError) as caught:
        read_sociopatterns(file(text))
    assert reason in str(caught.value)


# ns-2

NS2 = """# two nodes
$node_(0) set X_ 0.0
$node_(0) set Y_ 0.0
$node_(0) set Z_ 0.0
$god_ set-dist 0 1 1
$ns_ at 10.0 "$node_(0) setdest 100.0 0.0 1.0"
$ns_ at 60.0 "$node_(0) setdest 50.0 100.0 2.0"
$ns_ at 20.0 "$node_(1) create 50.0 0.0"
$ns_ at 90.0 "$node_(1) destroy"
"""


def test_ns2_walks_waits_turns_and_leaves(file) -> None:
    moved = read_ns2(file(NS2))
    assert moved.left_out == {"comments": 1, "commands to god_": 1}
    assert moved.rows + 2 == moved.lines
    points = {name: at for at, name in enumerate(moved.paths.nodes)}
    legs = slice(moved.paths.offsets[points["0"]], moved.paths.offsets[points["0"] + 1])
    assert list(moved.paths.stop_us[legs]) == [10 * S, 60 * S, 110 * S]  # it turns at (50, 0)
    assert list(zip(moved.paths.x1[legs], moved.paths.y1[legs], strict=True)) == [(0, 0), (50, 0), (50, 100)]
    plan = contact_plan(moved.paths, 10.0)
    # Node 0 is within 10 m of (50, 0) from 50 s, and leaves at 2 m/s from 60 s.
    assert list(plan.contacts) == [(0, 1, 50 * S, 65 * S)]
    assert [row[1:] for row in plan.presence if row.node == 1] == [(20 * S, 90 * S)]


def test_ns2_without_tcl_is_the_same(file) -> None:
    plain = "0 create 0 0 0\n10 setdest 0 100 0 1\n60 setdest 0 50 100 2\n20 create 1 50 0\n90 destroy 1\n"
    assert contact_plan(read_ns2(file(plain)).paths, 10.0) == contact_plan(read_ns2(file(NS2)).paths, 10.0)


def test_ns2_nodes_may_come_back(file) -> None:
    text = "0 create a 0 0\n5 destroy a\n8 create a 1 0\n9 setdest a 1 1 0\n20 destroy a\n0 create b 0 0\n"
    plan = contact_plan(read_ns2(file(text), stop_s=30).paths, 5.0)
    assert list(plan.contacts) == [(0, 1, 0, 5 * S), (0, 1, 8 * S, 20 * S)]
    assert plan.stop_us == 30 * S


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('$ns_ at 1 "$node_(3) setdest 1 2 3"\n', "line 1: there is no node '3'"),
        ("0 create 1 0 0\n5 create 1 0 0\n", "line 2: node '1' is there already"),
        ("0 create 1 0 0\n5 destroy 1\n6 setdest 1 1 1 1\n", "line 3: there is no node '1'"),
        ("0 create 1 0\n", "line 1: create has 1 numbers, not 2"),
        ("0 create 1 0 zero\n", "line 1: its number 'zero' is not"),
        ("0 create 1 0 nan\n", "line 1: its number nan"),
        ("0 create 1 0 0\n5 setdest 1 9 9 -1\n", "line 2: its speed -1.0 is negative"),
        ("-3 create 1 0 0\n", "line 1: its time -3"),
        ("hello world\n", "line 1: it is no movement"),
        ('$ns_ at 1 "$node_(3) setdest 1 2', "line 1: it is no movement"),
        ("", "there is no movement"),
    ],
)
def test_ns2_refuses(file, text, reason) -> None:
    with pytest.raises(ImportFormatError) as caught:
        read_ns2(file(text))
    assert reason in str(caught.value)


# GTFS

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


def test_gtfs_refuses_other_days_and_files(tmp_path, file) -> None:
    with pytest.raises(ImportFormatError, match="no trip runs on 20250101"):
        read_gtfs(feed(tmp_path), "20250101")
    with pytest.raises(ImportFormatError, match="it is no zip"):
        read_gtfs(file("not a zip"))
    with pytest.raises(ImportFormatError, match="cannot be read"):
        read_gtfs(tmp_path / "none.zip")
    whole = feed(tmp_path).read_bytes()
    with pytest.raises(ImportFormatError, match="it is no zip"):
        read_gtfs(file(whole[: len(whole) // 2]))


# Plans as files


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_plans_come_back(tmp_path, suffix) -> None:
    odd = make_plan(
        ["a,b", 'q"', "ü", "never met"], [(0, 1, 5, 5), (1, 2, 6, 9)], [(0, 0, 9), (1, 0, 9), (2, 1, 9)], 12
    )
    for plan in (odd, make_plan([], []), walker_plan(1, WalkerCity(duration_s=900.0))):
        save_plan(plan, tmp_path / f"plan.{suffix}")
        assert load_plan(tmp_path / f"plan.{suffix}") == plan


def test_a_changed_plan_is_noticed(tmp_path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "plan.parquet"
    save_plan(make_plan(["a", "b"], [(0, 1, 5, 9)]), path)
    assert is_plan(path)
    table = pq.ParquetFile(path).read()
    pq.write_table(table.set_column(4, "stop_us", pa.array([9, 9, 8])), path)
    with pytest.raises(ContactPlanError, match="sha256"):
        load_plan(path)
    pq.write_table(table.drop_columns(["b"]), path)
    with pytest.raises(ContactPlanError, match="no column 'b'"):
        load_plan(path)
    pq.write_table(table.replace_schema_metadata({}), path)
    with pytest.raises(ContactPlanError, match="no metadata"):
        load_plan(path)
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(ContactPlanError, match="damaged"):
        load_plan(path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a,b\n", "line 1"),
        ("kind,a,b,start_us,stop_us\nnode,a,,,\n", "no row of kind 'end'"),
        ("kind,a,b,start_us,stop_us\nnode,a,,,\nend,,,,9\npresence,z,,0,9\n", "line 4: there is no node 'z'"),
        ("kind,a,b,start_us,stop_us\nnode,a,,,\nend,,,,9\npresence,a,,0,x\n", "line 4: '0' or 'x'"),
        ("kind,a,b,start_us,stop_us\nnode,a,,,\nend,,,,9\nvisit,a,,0,9\n", "line 4: its kind is 'visit'"),
        ("kind,a,b,start_us,stop_us\nnode,a,,\n", "line 2: it has 4 cells"),
        ("kind,a,b,start_us,stop_us\nend,,,,9\nnode,a,,,\npresence,a,,3,2\n", "line 4: it lasts from 3 to 2"),
    ],
)
def test_csv_plans_are_checked(tmp_path, text, reason) -> None:
    path = tmp_path / "plan.csv"
    path.write_text(text)
    with pytest.raises(ContactPlanError) as caught:
        load_plan(path)
    assert reason in str(caught.value)


def test_formats_are_named_correctly(file, tmp_path) -> None:
    path = file("1 CONN a b up\n")
    with pytest.raises(MisuseError, match="none of that name"):
        read_contacts(path, "carrier-pigeon")
    with pytest.raises(MisuseError, match="has contacts already"):
        read_contacts(path, "the-one", range_m=50.0)
    with pytest.raises(MisuseError, match="no service days"):
        read_contacts(path, "the-one", day="20240101")
    with pytest.raises(MisuseError, match="not written so"):
        write_contacts(make_plan([], []), tmp_path / "x", "smoke")


# The real files


@pytest.mark.parametrize(
    ("name", "format_", "nodes", "rows", "contacts"),
    [
        ("haggle_infocom05/contacts.Exp3.dat", "haggle", 41, 22_459, 17_712),
        (INTEL, "the-one", 9, 2 * 1_364, 1_001),
        (LAB, "haggle", 12, 2 * 4_228, 2_789),
        ("gesis_ws16/tij_WS16.dat", "sociopatterns", 138, 153_371, 53_164),
        ("gtfs_cairns/cairns_gtfs.zip", "gtfs", 59, 17_709, 3_290),
    ],
)
def test_real_files(name, format_, nodes, rows, contacts, tmp_path) -> None:
    """Nodes and rows are what the data sets' own READMEs say; contacts are after joining both directions."""
    reading = read_contacts(real(name), format_)
    assert (len(reading.plan.nodes), reading.rows, len(reading.plan.contacts)) == (nodes, rows, contacts)
    write_the_one(reading.plan, tmp_path / "one.txt")
    again = read_the_one(tmp_path / "one.txt", reading.plan.nodes).plan
    assert list(again.contacts) == list(reading.plan.contacts)
