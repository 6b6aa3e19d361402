"""Ctrl-C and a full disk while Spark works: one sentence, what is finished is kept, going on works."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from whence.cli.main import EXIT_INTERRUPTED, KEPT
from whence.errors import DiskError
from whence.spark.progress import explained

GRID = """
nodes = 8
protocol = "vector"
[link]
delay = { kind = "uniform", low_us = 1_000, high_us = 90_000 }
[[workloads]]
kind = "periodic"
interval_us = 2_000
[stop]
duration_us = 2_000_000
[grid]
seed = [1, 2, 3, 4, 5, 6, 7, 8]
"""
PROGRESS = ("starting Spark", "simulating", "measuring", "verifying")


def started(*line: object) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "whence", *map(str, line)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(out: Path) -> dict[Path, int]:
    """The runs that are finished, and when they were."""
    return {path: path.stat().st_mtime_ns for path in out.rglob("run=*/status.json")}


def interrupted_and_resumed(name: str, out: Path, *line: object) -> None:
    first = started(*line)
    while first.poll() is None and not finished(out):
        time.sleep(0.05)
    first.send_signal(signal.SIGINT)
    _, errors = first.communicate(timeout=60)
    assert first.returncode == EXIT_INTERRUPTED, errors
    said = [line for line in errors.splitlines() if not line.startswith(PROGRESS)]
    assert said == [f"interrupted: {KEPT[name]}"]
    before = finished(out)
    assert before
    second = started(*line)
    output, errors = second.communicate(timeout=400)
    assert second.returncode in (0, 1), errors  # 1: a study whose numbers differ at a tiny scale
    assert "Traceback" not in errors + output
    after = finished(out)
    assert len(after) > len(before)
    assert {path: after[path] for path in before} == before  # none was run again


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_interrupted_sweep_goes_on(tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(GRID)
    out = tmp_path / "out"
    interrupted_and_resumed("sweep", out, "sweep", tmp_path / "grid.toml", "--out", out)
    assert len(finished(out)) == 8


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_interrupted_study_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "out"
    interrupted_and_resumed("study", out, "study", "deadline", "--scale", "tiny", "--out", out)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 300 kB."""
    path = tmp_path / "small"
    path.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "none", str(path)], check=False)
    if made.returncode:
        pytest.skip("tmpfs cannot be mounted here")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_full_disk_ends_a_sweep_in_two_lines(small: Path, tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(GRID)
    sweep = started("sweep", tmp_path / "grid.toml", "--out", small / "out")
    output, errors = sweep.communicate(timeout=300)
    assert sweep.returncode in (1, 2), errors  # 1: there was room for the records of what failed
    assert "No space left" in errors + output
    assert ("fix: " in errors) == (sweep.returncode == 2)
    assert "Traceback" not in errors


def test_a_full_disk_under_spark_is_a_typed_error() -> None:
    said = "SparkException: Job aborted\nCaused by: java.io.IOException: No space left on device"
    problem = explained(RuntimeError(said), "the query", "Check it")
    assert isinstance(problem, DiskError)
    assert "No space left on device" in problem.reason
    assert "SPARK_LOCAL_DIRS" in problem.fix
