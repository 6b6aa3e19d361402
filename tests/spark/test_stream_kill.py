"""Exactly once: a query that is killed again and again gives what one gives that never was."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.streaming import command, run_killed, write_files

pytest.importorskip("google.protobuf")
pytestmark = pytest.mark.spark


def compare(spark: SparkSession, folder: Path, *, kills: int, files: int, rows: int, seed: int) -> None:
    given = write_files(folder / "in", files=files, rows=rows, seed=seed)
    # A short start: this test is made of them.
    os.environ.setdefault("SPARK_DRIVER_MEMORY", "1g")
    assert run_killed(command(folder / "in", folder / "calm"), 0, seed) == 0
    killed = run_killed(command(folder / "in", folder / "killed"), kills, seed)
    assert killed == kills
    # Through Spark, never by glob: the folder also has files of batches that were never committed.
    calm, cut = (
        Counter(tuple(map(str, row)) for row in spark.read.parquet(str(folder / name)).collect())
        for name in ("calm", "killed")
    )
    assert sum(calm.values()) == len(given)
    assert cut == calm


def test_killed_three_times(spark: SparkSession, tmp_path: Path) -> None:
    compare(spark, tmp_path, kills=3, files=8, rows=40, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_twenty_times(spark: SparkSession, tmp_path: Path) -> None:
    compare(spark, tmp_path, kills=20, files=60, rows=300, seed=2)
