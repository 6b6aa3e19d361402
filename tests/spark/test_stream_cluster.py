"""A stream on a standalone cluster (a master and two workers on loopback) as on this machine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from test_cluster import cluster  # pytest has put this folder on the path

from spark.standalone import Cluster, python_without_whence
from spark.streaming import COLUMNS, SCHEMA, command, results, write_files
from whence.spark.ordering.sort import causal_sort

__all__ = ["cluster"]  # the fixture

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_cluster_gives_the_same_rows(
    cluster: Cluster,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    write_files(tmp_path / "in", files=3)
    python = python_without_whence(tmp_path)
    done = subprocess.run(
        command(tmp_path / "in", tmp_path / "out", "--master", cluster.master),
        env=os.environ | {"PYSPARK_PYTHON": str(python), "SPARK_DRIVER_MEMORY": "1g"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    there = spark.read.parquet(str(tmp_path / "out"))
    here = causal_sort(spark.read.schema(SCHEMA).json(str(tmp_path / "in")), **COLUMNS)
    assert results(there) == results(here)
