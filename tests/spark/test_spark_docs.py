"""The examples in docs/spark.md, and what it says about tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from whence.lab.grid import load_grid
from whence.spark import tables

pytestmark = pytest.mark.spark

TEXT = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


def test_the_python_example_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block("py"), "docs/spark.md", "exec"), {})
    said = capsys.readouterr().out
    assert said.count(" done ") == 2
    assert "held_peak_max" in said


def test_the_grid_example_loads(tmp_path: Path) -> None:
    path = tmp_path / "grid.toml"
    path.write_text(block("toml"))
    assert len(load_grid(path)) == 2 * 3 * 2 * 2 * 10


def test_every_table_is_described() -> None:
    declared = {name for name, value in vars(tables).items() if isinstance(value, StructType)} - {"STEP"}
    described = set(re.findall(r"^\| ([A-Z_]+) \|", TEXT, re.MULTILINE))
    assert described == declared
    for name in declared - {"SEGMENTS", "SUMMARY"}:
        line = re.search(rf"^\| {name} \|.*$", TEXT, re.MULTILINE)
        assert line
        for column in getattr(tables, name).names:
            assert re.search(rf"\b{column}\b", line[0]), f"{name} lacks {column}"
