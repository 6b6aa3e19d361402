"""Readers of foreign traces: what they read and what they refuse, on made-up and on real files."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.real_data import DATA, INFOCOM, INTEL, LABORATORY
from whence.errors import ImportFormatError, MisuseError
from whence.mobility.ns2 import read_ns2
from whence.mobility.paths import contact_plan
from whence.mobility.readers import read_haggle, read_sociopatterns, read_the_one, write_the_one
from whence.mobility.sources import read_contacts, write_contacts
from whence.overlay.contacts import make_plan

S = 1_000_000


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


# All formats


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


@pytest.mark.parametrize(
    ("name", "format_", "nodes", "rows", "contacts"),
    [
        (INFOCOM, "haggle", 41, 22_459, 17_712),
        (INTEL, "the-one", 9, 2 * 1_364, 1_001),
        (LABORATORY, "haggle", 12, 2 * 4_228, 2_789),
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
