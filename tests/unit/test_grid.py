"""Grid files: a base scenario, the fields that vary, every combination."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from whence.errors import ScenarioError
from whence.lab.grid import expand, load_grid
from whence.sim.files import run_id

BASE = """
protocol = "vector"
nodes = 4
seed = 7
[stop]
duration_us = 100_000
[link]
delay = { kind = "uniform", low_us = 100, high_us = 20_000 }
[[workloads]]
kind = "poisson"
interval_us = 5_000
"""


def points(tmp_path: Path, grid: str) -> list[Any]:
    path = tmp_path / "grid.toml"
    path.write_text(BASE + grid)
    return load_grid(path)


def test_every_combination_the_seeds_fastest(tmp_path: Path) -> None:
    found = points(tmp_path, '[grid]\nseeds = 2\nprotocol = ["fifo", "vector"]\nnodes = [2, 3]\n')
    assert [(p.scenario.protocol, p.scenario.nodes, p.scenario.seed) for p in found] == [
        (protocol, nodes, seed) for protocol in ("fifo", "vector") for nodes in (2, 3) for seed in (7, 8)
    ]
    assert found[0].labels == {"protocol": "fifo", "nodes": 2, "seed": 7}
    assert len({run_id(point.scenario) for point in found}) == 8


@pytest.mark.parametrize("key", ["link.delay.high_us", '"link.delay.high_us"', 'link."delay.high_us"'])
def test_a_deep_field_quoted_or_not(tmp_path: Path, key: str) -> None:
    found = points(tmp_path, f"[grid]\n{key} = [1_000, 2_000]\n")
    assert [point.scenario.link.delay.high_us for point in found] == [1_000, 2_000]
    assert [point.labels for point in found] == [{"link.delay.high_us": us} for us in (1_000, 2_000)]
    assert found[0].scenario.link.delay.low_us == 100, "the rest of the base stays"


def test_an_element_of_a_list_and_whole_tables(tmp_path: Path) -> None:
    found = points(
        tmp_path,
        "[grid]\nworkloads.0.interval_us = [9, 10]\n"
        'topology = [{ kind = "full" }, { kind = "random", degree = 2 }]\nseeds = [5, 3]\n',
    )
    assert [p.scenario.workloads[0].interval_us for p in found] == [9] * 4 + [10] * 4
    assert [p.scenario.seed for p in found] == [5, 3] * 4
    assert len({run_id(p.scenario) for p in found}) == 8


def test_no_grid_is_one_point(tmp_path: Path) -> None:
    assert [point.labels for point in points(tmp_path, "")] == [{}]


@pytest.mark.parametrize(
    ("grid", "what", "reason"),
    [
        ("[grid]\nnodes = 4", "grid field 'nodes'", "not a list"),
        ("[grid]\nnodes = []", "grid field 'nodes'", "not a list with something"),
        ("[grid]\nseeds = 0", "grid field 'seeds'", "less than one"),
        ("[grid]\nnodes = [2, 0]", "grid point (nodes = 0)", ">= 1"),
        ('[grid]\nprotocol = ["vektor"]', "grid point (protocol = vektor)", "none of that name"),
        (
            "[grid]\nworkloads.3.interval_us = [1]",
            "grid field 'workloads.3.interval_us'",
            "there is nothing at",
        ),
        ("[grid]\nnodes.deep = [1]", "grid field 'nodes.deep'", "there is nothing at"),
        ("[grid]\nlink.lost = [0.1]", "scenario field 'link.lost'", "no such field"),
        ("[grid\n", "grid.toml", "not valid TOML"),
    ],
)
def test_errors_name_file_field_and_reason(tmp_path: Path, grid: str, what: str, reason: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        points(tmp_path, grid)
    assert str(tmp_path / "grid.toml") in caught.value.what
    assert what in caught.value.what
    assert reason in caught.value.reason


def test_no_such_file_and_no_text(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="No such file"):
        load_grid(tmp_path / "nothing.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ScenarioError, match="not valid TOML"):
        load_grid(tmp_path / "bytes.toml")


def test_a_grid_by_mistake_huge() -> None:
    with pytest.raises(ScenarioError, match="1,000,000,000 points"):
        expand({"grid": {"seeds": 1000, "nodes": list(range(1000)), "link.loss": [0.0] * 1000}})
    with pytest.raises(ScenarioError, match="not a table"):
        expand({"grid": [1]})
