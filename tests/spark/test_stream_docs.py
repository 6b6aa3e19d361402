"""The examples in docs/stream.md run, and say what the page says."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from whence.order import OUTCOMES
from whence.spark.ordering.columns import ADDED

pytestmark = pytest.mark.spark

TEXT = (Path(__file__).parents[2] / "docs" / "stream.md").read_text()
SORT, STREAM = re.findall(r"^```py\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def shown(text: str) -> list[list[str]]:
    """The cells of a table that Spark printed, without its heading."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if "|" in line
    ][1:]


def test_the_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(SORT, "docs/stream.md", "exec"), {})
    rows = [
        re.split(r" *\| *", line.strip("| "))
        for line in TEXT.splitlines()
        if re.match(r"\| \w+ \|.*\[", line)
    ]
    said = [
        [cell.replace("NULL", "null").replace("...", "") for cell in row]
        for row in shown(capsys.readouterr().out)
    ]
    assert [row[0] for row in rows] == ["question", "answer", "question", "thanks"]
    for found, written in zip(said, rows, strict=True):
        assert [word.startswith(cell) for cell, word in zip(found, written, strict=True)] == [True] * 4


def test_the_stream(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # The tests' JVM was started in another folder, and stays there.
    here = re.sub(r'"(in|in/0.json|checkpoint|out)"', rf'"{tmp_path}/\1"', STREAM)
    exec(compile(here, "docs/stream.md", "exec"), {})
    assert [row[1] for row in shown(capsys.readouterr().out)] == ["question", "answer"]


@pytest.mark.slow
def test_the_notebook(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    """Its cells run one after another, as a kernel would run them."""
    cells = json.loads((Path(__file__).parents[2] / "examples" / "stream.ipynb").read_text())["cells"]
    names: dict[str, object] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), "examples/stream.ipynb", "exec"), names)
    said = [row[0] for row in shown(capsys.readouterr().out) if row[0] != "id"]
    assert said == ["question", "answer", "thanks", "question", "answer"]
    shutil.rmtree(str(names["folder"]))


def test_outcomes_and_columns_are_described() -> None:
    for name in (*OUTCOMES, *ADDED.names):
        assert re.search(rf"^\| {name} \|", TEXT, re.MULTILINE), name
