"""Exactly once: a query that is killed again and again gives what one gives that never was."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.streaming import COLUMNS, SCHEMA, check_order, command, job, results, run_killed, write_files
from whence.spark.ordering.job import run_job
from whence.spark.ordering.sort import causal_sort

pytestmark = pytest.mark.spark


def compare(spark: SparkSession, folder: Path, *, kills: int, files: int, rows: int, seed: int) -> None:
    """Killed on one core, undisturbed on all of them, and sorted at rest: the same rows."""
    given = write_files(folder / "in", files=files, rows=rows, seed=seed)
    line = command(folder / "in", folder / "killed", "--master", "local[1]")
    # The last kill comes after the last data batch: nothing but the tick of --flush is left to do.
    assert run_killed(line, kills, seed, folder / "tmp", files) == kills
    summary = run_job(spark, job(folder / "in", folder / "calm"))
    assert summary.rows_in == summary.rows_out == len(given)
    # Through Spark, never by glob: the folder also has files of batches that were never committed.
    calm, cut = (spark.read.parquet(str(folder / name)) for name in ("calm", "killed"))
    rows_cut = cut.collect()
    assert Counter((row.room, row.id) for row in rows_cut) == Counter(
        (row["room"], row["id"]) for row in given
    )
    assert results(cut) == results(calm)
    assert results(cut) == results(causal_sort(spark.read.schema(SCHEMA).json(str(folder / "in")), **COLUMNS))
    assert check_order(rows_cut) > len(given) // 2


def test_killed_twice(spark: SparkSession, tmp_path: Path) -> None:
    compare(spark, tmp_path, kills=2, files=4, rows=30, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [2, 3])
def test_killed_ten_times(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """Twice: twenty times in all."""
    compare(spark, tmp_path, kills=10, files=25, rows=150, seed=seed)
