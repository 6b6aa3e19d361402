"""Results on real logs and contacts do not depend on partitioning, number of cores or cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from support import real_data_job
from support.real_data import LOGS
from support.standalone import python_without_whence, standalone

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not LOGS.exists(), reason="the shared data are not on this machine"),
]


def check(found: dict[str, Any]) -> None:
    """That there is something to compare."""
    assert found["reports"] == found["in blocks"]
    assert all(status == "done" and events > 1000 for _, status, events in found["runs"])
    assert any(report["counts"]["causal"] for report in found["reports"]), (
        "the published mode breaks the order"
    )
    assert any(report["ok"] for report in found["reports"])
    assert len(found["summary"]) == len(found["runs"])
    assert all(found[log]["order"] for log in real_data_job.SMALL_LOGS)


def test_partitions_do_not_matter(spark: SparkSession, tmp_path: Path) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    try:
        one, five = (real_data_job.results(spark, tmp_path / str(n), partitions=n) for n in (1, 5))
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", str(before))
    check(one)
    assert one == five


def run_on(master: str, out: Path, partitions: int, **environment: str) -> dict[str, Any]:
    tests = Path(real_data_job.__file__).parents[1]
    path = f"{tests}:{os.environ.get('PYTHONPATH', '')}"
    done = subprocess.run(
        [sys.executable, real_data_job.__file__, master, str(out), str(partitions)],
        env=os.environ | {"PYTHONPATH": path} | environment,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_neither_cores_nor_a_cluster_matter(tmp_path: Path) -> None:
    alone = run_on("local[1]", tmp_path / "one", 2)
    check(alone)
    assert run_on("local[2]", tmp_path / "two", 3) == alone
    with standalone(tmp_path) as cluster:
        python = str(python_without_whence(tmp_path))
        assert run_on(cluster.master, tmp_path / "cluster", 4, PYSPARK_PYTHON=python) == alone
