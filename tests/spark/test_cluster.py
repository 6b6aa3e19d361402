"""The same pipeline on a standalone cluster (a master and two workers on loopback) as on this machine."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark import cluster_job
from spark.standalone import Cluster, kill, python_without_whence, run_on, standalone

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with standalone(tmp_path) as running:
        yield running


def assert_equal_rows(there: dict[str, Any], spark: SparkSession, folder: Path, seeds: int) -> None:
    """What the cluster found is what this machine finds, row by row."""
    here = json.loads(json.dumps(cluster_job.pipeline(spark, folder, seeds)))
    assert there.keys() == here.keys()
    for table in ("statuses", "reports", "summary"):
        assert len(there[table]) == len(here[table]) == 2 * seeds
        for remote, local in zip(there[table], here[table], strict=True):
            assert remote == local


def test_a_cluster_gives_the_same_rows(cluster: Cluster, spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "cluster-out"
    there = run_on(cluster.master, out, python_without_whence(tmp_path))
    places = there.pop("places")
    assert there.pop("master") == cluster.master
    # The package came to the executors in the zip that the session ships, and both took part.
    assert all(".zip/whence/" in path for place in places for path in place[1:]), places
    assert len({place[0] for place in places}) == 2, places
    assert_equal_rows(there, spark, tmp_path / "local-out", 3)
    # Only the run folders and the sweep's own are there, and nothing half-made.
    assert {path.name.partition("=")[0] for path in out.iterdir()} == {"run", "_failed", "_sweep.lock"}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("stage", ["sweep", "verify"])
def test_a_worker_that_dies_costs_time_and_no_results(
    stage: str, cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    out, seeds = tmp_path / "cluster-out", 12

    def kill_a_worker() -> None:
        deadline_s = time.monotonic() + 200
        # The sweep has finished a run, and others are under way; or the verification has begun.
        while not any(out.glob("run=*/status.json") if stage == "sweep" else out.glob("_verifying")):
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        kill(cluster.workers[0])

    there = run_on(cluster.master, out, python_without_whence(tmp_path), seeds=seeds, meanwhile=kill_a_worker)
    assert cluster.workers[0].poll() is not None
    del there["places"], there["master"]
    assert_equal_rows(there, spark, tmp_path / "local-out", seeds)
