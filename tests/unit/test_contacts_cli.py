"""`whence contacts` as a user calls it, without Spark."""

from __future__ import annotations

import json

import numpy as np
import pytest

from support.positions import brute, wander
from whence.cli.main import main
from whence.mobility.paths import sampled
from whence.mobility.plan_io import load_plan
from whence.mobility.positions import find_step_us, load_positions, save_positions
from whence.mobility.readers import read_the_one
from whence.mobility.walkers import WalkerCity, walker_paths

S = 1_000_000


def whence(*args: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(arg) for arg in args])
    return ended.value.code if isinstance(ended.value.code, int) else 0


@pytest.fixture
def positions(tmp_path):
    """A file of random walks, and its rows."""
    rows = wander(6, 12, 50)
    time_us, names, x, y = (np.array(column) for column in zip(*rows, strict=True))
    order, node = np.unique(names, return_inverse=True)
    path = tmp_path / "positions.parquet"
    save_positions(tuple(map(str, order)), {"time_us": time_us, "node": node, "x": x, "y": y}, path)
    return path, rows


def test_positions_become_a_plan(positions, tmp_path, capsys) -> None:
    path, rows = positions
    out = tmp_path / "plan.parquet"
    assert whence("contacts", path, "--range", 50, "--gap", 2, "--out", out, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    plan = load_plan(out)
    named = sorted(
        (*sorted((plan.nodes[a], plan.nodes[b])), start, stop) for a, b, start, stop in plan.contacts
    )
    assert named == [row for row in brute(rows, 50.0, S, 2 * S) if row[0] != row[1]]
    assert found["sha256"] == plan.sha256
    assert found["rows"] == len(rows)
    assert found["step_s"] == 1.0
    assert found["statistics"]["contacts"] == len(plan.contacts)
    assert found["rows_per_second"] > 0


def test_a_small_piece_at_a_time_gives_the_same(positions, tmp_path, monkeypatch) -> None:
    path, _ = positions
    whence("contacts", path, "--range", 50, "--out", tmp_path / "whole.parquet")
    monkeypatch.setattr("whence.mobility.positions.PIECE_ROWS", 37)
    whence("contacts", path, "--range", 50, "--out", tmp_path / "pieces.parquet")
    assert load_plan(tmp_path / "whole.parquet") == load_plan(tmp_path / "pieces.parquet")


def test_a_plan_is_converted_and_shown(positions, tmp_path, capsys) -> None:
    path, _ = positions
    plan, events = tmp_path / "plan.csv", tmp_path / "events.txt"
    assert whence("contacts", path, "--range", 50, "--out", plan) == 0
    assert whence("contacts", plan, "--out", events, "--format", "one") == 0
    said = capsys.readouterr().out
    assert "contact, s: min / mean / sd / max" in said
    assert "per second" in said
    assert list(read_the_one(events, load_plan(plan).nodes).plan.contacts) == list(load_plan(plan).contacts)


def test_bad_rows_are_counted(tmp_path, capsys) -> None:
    path = tmp_path / "positions.parquet"
    columns = {
        "time_us": np.array([0, 0, S, S]), "node": np.array([0, 1, 0, 1]),
        "x": np.array([0.0, 1.0, float("nan"), 1.0]), "y": np.zeros(4),
    }  # fmt: skip
    save_positions(("a", "b"), columns, path)
    assert whence("contacts", path, "--range", 5) == 0
    assert "left out: 1 positions with a null or no number" in capsys.readouterr().out


def test_instants_are_made_to_last(tmp_path, capsys) -> None:
    path = tmp_path / "events.txt"
    path.write_text("0 CONN a b up\n0 CONN a b down\n500 CONN a c up\n600 CONN a c down\n")
    assert whence("contacts", path, "--from", "the-one", "--lasting", 120, "--json") == 0
    found = json.loads(capsys.readouterr().out)["statistics"]
    assert (found["instants"], found["contact_s"]["greatest"]) == (0, 120)


def test_scenarios_are_set_beside_the_tables(tmp_path, capsys) -> None:
    out = tmp_path / "plan.parquet"
    assert whence("contacts", "walkers", "--seeds", 2, "--out", out) == 0
    said = capsys.readouterr().out
    assert "Table IV" in said
    assert "14,807" in said
    assert whence("contacts", "buses", "--seeds", 1, "--json") == 0
    assert json.loads(capsys.readouterr().out)["figures"][0]["published"] == 60
    assert len(load_plan(out).nodes) > 1_900


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["positions.parquet"], "positions need a radio range"),
        (["positions.parquet", "--range", "0"], "no radio range"),
        (["positions.parquet", "--range", "50", "--day", "20240101"], "no service days"),
        (["positions.parquet", "--range", "50", "--master", "x", "--no-spark"], "--no-spark"),
        (["none.parquet", "--range", "50"], "no such file"),
        (["text.dat", "--range", "50"], "no format is named"),
        (["text.dat", "--from", "haggle", "--step", "3"], "for positions, not for haggle"),
        (["text.dat", "--from", "haggle"], "line 1"),
        (["text.dat", "--from", "pigeon"], "none of that name"),
        (["positions.parquet", "--range", "50", "--format", "one"], "nothing to write"),
        (["positions.parquet", "--range", "50", "--out", "p", "--format", "xls"], "not written so"),
        (["wrong.parquet", "--range", "50"], "column 'node'"),
        (["text.parquet", "--range", "50"], "no Parquet"),
    ],
)
def test_mistakes_are_explained(positions, tmp_path, monkeypatch, capsys, args, reason) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    monkeypatch.chdir(tmp_path)
    for name in ("text.dat", "text.parquet"):
        (tmp_path / name).write_text("hello\n")
    pq.write_table(pa.table({"time_us": [1], "x": [1.0], "y": [1.0]}), tmp_path / "wrong.parquet")
    assert whence("contacts", *args) == 2
    said = capsys.readouterr().err
    assert reason in " ".join(said.split())
    assert "fix:" in said


def test_paths_can_be_sampled_and_found_again(tmp_path) -> None:
    paths = walker_paths(2, WalkerCity(duration_s=600.0))
    save_positions(paths.nodes, sampled(paths, 600_000), tmp_path / "p.parquet")
    table = load_positions(tmp_path / "p.parquet")
    assert find_step_us(table) == 600_000
    assert table.names == list(paths.nodes)
