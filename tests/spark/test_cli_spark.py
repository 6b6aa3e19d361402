"""`whence sweep` and `whence metrics`, as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from whence.cli.main import main
from whence.trace.reader import open_trace

pytestmark = pytest.mark.spark

GRID = """
protocol = "vector"
nodes = 3
[stop]
duration_us = 50_000
[link]
delay = { kind = "uniform", low_us = 100, high_us = 20_000 }
[[workloads]]
kind = "poisson"
interval_us = 5_000
[grid]
protocol = ["fifo", "vector"]
seeds = 2
"""


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    path = tmp_path / "grid.toml"
    path.write_text(GRID)
    return path


def whence(*arguments: object) -> int:
    with pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    return int(left.value.code or 0)


def test_sweep_then_metrics(
    spark: SparkSession, grid: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert whence("sweep", grid, "--out", out) == 0
    said = capsys.readouterr()
    assert "4 runs" in said.out
    assert "4 done" in said.out
    assert "simulating 4/4 done" in said.err
    assert whence("sweep", grid, "--out", out, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert [run["status"] for run in document["runs"]] == ["skipped"] * 4
    assert [run["labels"] for run in document["runs"]] == [
        {"protocol": protocol, "seed": seed} for protocol in ("fifo", "vector") for seed in (1, 2)
    ]
    assert whence("metrics", out) == 0
    shown = capsys.readouterr().out
    assert all(run in shown for run in open_trace(out).runs)
    assert whence("metrics", out, "--json") == 0
    figures = json.loads(capsys.readouterr().out)["runs"]
    assert [row["run"] for row in figures] == open_trace(out).runs
    assert {row["protocol"] for row in figures} == {"fifo", "vector"}
    assert all(row["delivery_mean_us"] >= row["reception_mean_us"] > 0 for row in figures)


def test_a_failed_run_gives_exit_code_1(
    spark: SparkSession,
    grid: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from whence.spark import sweep as sweeping

    real = sweeping.sweep

    def planted(spark: SparkSession, scenarios: object, out: Path, **more: object) -> object:
        from whence.lab.attempts import simulated

        def run(each: object, folder: Path, level: object) -> object:
            if each.seed == 2:
                raise ValueError("the planted fault")
            return simulated(each, folder, level)

        return real(spark, scenarios, out, runner=run, **more)

    monkeypatch.setattr(sweeping, "sweep", planted)
    assert whence("sweep", grid, "--out", tmp_path / "out") == 1
    said = capsys.readouterr()
    assert "2 done, 2 failed" in said.out
    assert "protocol=fifo, seed=2): ValueError: the planted fault" in " ".join(said.err.split())
    assert "_failed" in said.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("sweep", "GRID", "--out", "OUT", "--master", "spark://127.0.0.1:9"), "one per process"),
        (("sweep", "nothing.toml", "--out", "OUT"), "No such file"),
        (("metrics", "nothing"), "no such folder"),
    ],
)
def test_mistakes_are_two_lines(
    spark: SparkSession,
    grid: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    words: str,
) -> None:
    places = {"GRID": str(grid), "OUT": str(tmp_path / "out")}
    assert whence(*(places.get(argument, argument) for argument in arguments)) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert words in said.err
    assert "fix: " in said.err
    assert "Traceback" not in said.err
