"""Too little memory is told with the setting to change, and a job's progress is Spark's own."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark.streaming import command, write_files
from whence.cli import main as cli
from whence.errors import DataError, PlatformError
from whence.spark import progress as failures
from whence.spark import verify
from whence.spark.progress import explained, platform_problem, spark_failures, watched
from whence.spark.verify import verify_folder

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("said", "reason", "setting"),
    [
        (
            "Caused by: java.lang.OutOfMemoryError: Java heap space\n\tat x",
            "(Java heap space)",
            "DRIVER_MEMORY",
        ),
        (
            "org.apache.spark.memory.SparkOutOfMemoryError: no room",
            "too little memory (no room)",
            "DRIVER_MEMORY",
        ),
        ("  File x, line 1\nMemoryError\n", "a Python worker died", "local[1]"),
        ("Python worker exited unexpectedly (crashed)", "a Python worker died", "memoryOverhead"),
        ("ExecutorLostFailure: Command exited with exit code 137", "a Python worker died", "memoryOverhead"),
    ],
)
def test_what_was_short_of_memory(said: str, reason: str, setting: str) -> None:
    problem = explained(RuntimeError(said), "the query", "Check it")
    assert isinstance(problem, PlatformError)
    assert reason in problem.reason
    assert setting in problem.fix


def test_what_was_not(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = explained(
        RuntimeError("[NO_SUCH] Column x is not there. SQLSTATE: 42"), "the query", "Check it"
    )
    assert isinstance(problem, DataError)
    assert (problem.reason, problem.fix) == ("Column x is not there", "Check it")
    # Of a JVM that does not answer any more its log may tell the reason.
    for log, reason in (("java.lang.OutOfMemoryError: Java heap space", "heap space"), (None, "is gone")):
        monkeypatch.setattr(failures, "last_error", lambda log=log: log)
        for silence in (
            ConnectionRefusedError(111, "Connection refused"),
            RuntimeError("An error occurred while calling o47.load"),
            RuntimeError(
                "An error occurred\n: SparkException: Job 0 cancelled because SparkContext was shut down"
            ),
        ):
            silent = platform_problem(silence, "the query")
            assert silent is not None
            assert reason in silent.reason


def test_a_worker_that_dies_of_it(spark: SparkSession, tmp_path: Path) -> None:
    """A real worker, killed as the system kills for want of memory."""

    def die(batches: Iterator[Any]) -> Iterator[Any]:
        os.kill(os.getpid(), 9)
        yield from batches

    table = spark.range(1).mapInArrow(die, "id bigint")
    with pytest.raises(PlatformError, match="a Python worker died"), spark_failures("the job", "Check it"):
        table.collect()


def test_a_verification_that_runs_out_of_memory(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hungry(*_: Any, **__: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(verify, "verify_trace", hungry)
    with pytest.raises(PlatformError, match=r"verifying .*: a Python worker died.*--memory"):
        verify_folder(spark, folder)


def test_the_command_tells_it_in_two_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli._fail_spark(ConnectionRefusedError(111, "Connection refused"))
    assert ended.value.code == 2
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in said] == ["error", "fix"]


@pytest.mark.slow
def test_a_stream_with_too_little_heap(tmp_path: Path) -> None:
    """One row of 200 MB, and half a GB of heap."""
    write_files(tmp_path / "in", keys=1, rows=10, files=1)
    row = {"room": "r", "id": "x", "after": [], "at": "2026-01-01T00:00:00Z", "text": "y" * 200_000_000}
    (tmp_path / "in" / "part-00001.json").write_text(json.dumps(row) + "\n")
    done = subprocess.run(
        command(tmp_path / "in", tmp_path / "out", "--master", "local[1]"),
        env=os.environ | {"SPARK_DRIVER_MEMORY": "512m"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 2, done.stderr[-2000:]
    assert "too little memory" in done.stderr
    assert "SPARK_DRIVER_MEMORY" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_heap_below_what_spark_starts_with(tmp_path: Path) -> None:
    write_files(tmp_path / "in", keys=1, rows=2, files=1)
    line = command(tmp_path / "in", tmp_path / "out", "--master", "local[1]")
    environment = os.environ | {"SPARK_DRIVER_MEMORY": "200m"}
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 2
    assert "SPARK_DRIVER_MEMORY" in done.stderr.partition("fix: ")[2]


def test_progress_is_told_by_sparks_tasks(spark: SparkSession) -> None:
    told: list[tuple[int, int]] = []

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        time.sleep(0.6)
        yield from batches

    with watched(spark, lambda done, total: told.append((done, total))):
        spark.range(0, 4, 1, numPartitions=4).mapInArrow(work, "id bigint").collect()
    assert told[-1] == (4, 4)
    assert any(done < total == 4 for done, total in told), told
    assert told == sorted(told)
    # What comes after is nobody's any more.
    before = len(told)
    assert spark.range(3).count() == 3
    assert len(told) == before
    assert not spark.sparkContext.getLocalProperty("spark.jobGroup.id")


def test_verification_and_measures_show_it(
    spark: SparkSession, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[tuple[int, int]] = []
    assert verify_folder(spark, folder, progress=lambda done, total: told.append((done, total)))
    assert told[-1][0] == told[-1][1] > 0
    for words in (["verify", str(folder), "--spark", "--as-promised"], ["metrics", str(folder)]):
        with pytest.raises(SystemExit) as ended:
            cli.main(words)
        assert ended.value.code in (None, 0)
        assert "tasks" in capsys.readouterr().err
