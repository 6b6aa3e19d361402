"""Questions to the runs of a study, cuts through its grid, and the files for machines."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from support.made_up_study import made_up_result, made_up_results
from whence.sim.model import Scenario, Stop
from whence.studies import registry, save
from whence.studies.base import Point, Series, Study, Table, check_grid
from whence.studies.cuts import cross, line, lines
from whence.studies.registry import UnknownStudyError
from whence.studies.results import Results, estimate, farthest

RESULTS = made_up_results()


def test_values_keep_the_order_of_the_grid() -> None:
    assert RESULTS.values("network") == ("constant", "exponential", "pareto")
    assert RESULTS.values("nodes") == (4, 8, 16, 32)
    assert RESULTS.values("nothing") == ()


def test_select_and_column() -> None:
    rows = RESULTS.select(protocol="fifo", nodes=8, network="pareto")
    assert [row.labels["seed"] for row in rows] == [1, 2, 3]
    assert RESULTS.column("violations", protocol="fifo", nodes=8, network="pareto") == [6.4, 8.0, 9.6]
    assert RESULTS.column("none", nodes=8) == []
    assert RESULTS.column("unknown", nodes=8) == []


def test_estimate_is_over_the_repetitions() -> None:
    found = RESULTS.estimate("latency_ms", protocol="vector", nodes=8, network="pareto")
    assert found == estimate([79.0, 80.0, 81.0])
    assert RESULTS.estimate("none", nodes=8) is None
    assert RESULTS.estimate("latency_ms", nodes=5) is None


def test_compare_pairs_by_all_other_labels() -> None:
    found = RESULTS.compare("latency_ms", "protocol", "fifo", "vector", nodes=8, network="pareto")
    assert found == estimate([10.0, 10.0, 10.0])
    whole = RESULTS.compare("latency_ms", "protocol", "fifo", "vector")
    assert whole is not None
    assert whole.count == 36  # 3 networks x 4 sizes x 3 seeds
    assert RESULTS.compare("none", "protocol", "fifo", "vector") is None


def test_compare_leaves_out_runs_without_a_partner() -> None:
    without = Results(
        tuple(row for row in RESULTS.rows if (row.labels["seed"], row.labels["protocol"]) != (2, "fifo"))
    )
    found = without.compare("latency_ms", "protocol", "fifo", "vector", nodes=8, network="pareto")
    assert found is not None
    assert found.count == 2


def test_total_maximum_farthest() -> None:
    assert RESULTS.total("violations", protocol="vector") == 0
    assert RESULTS.maximum("violations", protocol="fifo", nodes=32) == 38.4
    assert RESULTS.maximum("none") is None
    assert farthest([9.0, 10.5, 10.2], 10) == 9.0
    assert farthest([], 10) is None


def test_a_row_without_a_measure_says_so() -> None:
    with pytest.raises(ValueError, match="has no none"):
        RESULTS.rows[0].measure("none")


def test_cuts() -> None:
    series = lines(RESULTS, "latency_ms", "nodes", "protocol", network="exponential")
    assert [one.label for one in series] == ["fifo", "vector"]
    assert series[0].x == (4, 8, 16, 32)
    assert [point.mean for point in series[1].y] == [61.0, 65.0, 73.0, 89.0]
    assert line(RESULTS, "none", "nodes", "x").x == ()
    table = cross(RESULTS, "bytes", ("network", "protocol"), "nodes", "bytes", "Bytes")
    assert table.columns == ("network", "protocol", "4 nodes", "8 nodes", "16 nodes", "32 nodes")
    assert len(table.rows) == 6
    assert table.rows[1][:2] == ("constant", "vector")
    assert table.rows[0][2] == estimate([9, 9, 9])


def test_tables_and_series_have_one_cell_for_each_place() -> None:
    with pytest.raises(ValueError, match="1 cells under 2"):
        Table("t", "T", ("a", "b"), ((1,),))
    with pytest.raises(ValueError, match="1 x for 0 y"):
        Series("s", (1.0,), ())


SMALL = Study(
    name="small",
    title="s",
    paper="s",
    summary="s",
    scales={"one": "one run", "two": "two runs"},
    grid=lambda scale: [],
    tables=lambda results: [],
    figures=lambda results: [],
)


def test_grids_are_checked() -> None:
    scenario = Scenario(nodes=2, protocol="fifo", stop=Stop(duration_us=1))
    check_grid(SMALL, [Point({"seed": 1}, scenario), Point({"seed": 2}, scenario)])
    with pytest.raises(ValueError, match="empty"):
        check_grid(SMALL, [])
    with pytest.raises(ValueError, match="twice"):
        check_grid(SMALL, [Point({"seed": 1}, scenario), Point({"seed": 1}, scenario)])
    with pytest.raises(ValueError, match="labels"):
        check_grid(SMALL, [Point({"nodes": 1}, scenario)])


def test_the_registry_names_what_there_is() -> None:
    for name in registry.names():
        assert registry.lookup(name).name == name
    with pytest.raises(UnknownStudyError, match=r"there is none of that name. Did you mean 'domains'\?"):
        registry.lookup("domain")
    assert registry.check_scale(SMALL, None) == "one"
    assert registry.check_scale(SMALL, "two") == "two"
    with pytest.raises(UnknownStudyError, match="Choose from: one, two"):
        registry.check_scale(SMALL, "three")


def test_files_for_machines(tmp_path: Path) -> None:
    result = made_up_result()
    document, runs = save.save(result, tmp_path)
    read = json.loads(document.read_text())
    assert read["holds"] is False
    assert len(read["runs"]) == 72
    assert read["runs"][0]["parameters"]["topology"]["degree"] == 4
    assert [one["verdict"] for one in read["expectations"]] == [
        "agrees",
        "agrees",
        "differs",
        "not judged",
        "agrees",
        "refuted",
    ]
    assert read["witness"]["first"] == "n0:2"
    assert read["failures"][0]["run"] == "bad"
    with runs.open(newline="") as file:
        lines_read = list(csv.DictReader(file))
    assert len(lines_read) == 72
    assert lines_read[0]["run"] == result.results.rows[0].run
    assert lines_read[0]["none"] == ""
    assert float(lines_read[5]["latency_ms"]) == result.results.rows[5].measures["latency_ms"]
    before = document.read_bytes(), runs.read_bytes()
    save.save(result, tmp_path)
    assert (document.read_bytes(), runs.read_bytes()) == before
