"""Spark reads through S3A what tasks wrote through Arrow, with the jars of `make jars`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from spark.jars import jars
from spark.test_s3 import GRID, address, endpoint  # noqa: F401 - a fixture
from whence.lab.chunks import run_chunk
from whence.trace.dataset import Dataset

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SESSION = """
import json, sys
from pyspark.sql import SparkSession
settings = json.loads(sys.argv[1])
making = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
making = making.config("spark.sql.shuffle.partitions", "2")
for name, value in settings.items():
    making = making.config(name, value)
spark = making.getOrCreate()
"""


def in_spark(settings: dict[str, str], code: str) -> Any:
    """What the code prints last, as JSON, in a JVM of its own: jars are loaded when it starts."""
    command = [sys.executable, "-c", SESSION + code, json.dumps(settings)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
    said = [line for line in done.stderr.splitlines() if not line.lstrip().startswith("at ")]
    assert done.returncode == 0, "\n".join(said)[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_s3a_reads_what_tasks_wrote_through_arrow(endpoint: str) -> None:  # noqa: F811
    settings = {
        "spark.driver.extraClassPath": ":".join(map(str, jars("s3a"))),  # `spark.jars` would be copied
        "spark.hadoop.fs.s3a.endpoint": f"http://{endpoint}",
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": "key",
        "spark.hadoop.fs.s3a.secret.key": "secret",
    }
    dataset = Dataset(address(endpoint, "s3a"))
    run_chunk(GRID, 0, 6, None, dataset)
    files = [f"s3a://lab/s3a/{file.path}" for file in dataset.files("segments")]
    code = f"""
rows = spark.read.parquet(*{files!r}).groupBy("run").count().orderBy("run").collect()
spark.createDataFrame(rows).coalesce(1).write.parquet("s3a://lab/counted")
again = spark.read.parquet("s3a://lab/counted").orderBy("run").collect()
print(json.dumps([[row["run"], row["count"]] for row in again]))
"""
    expected = [[row["run"], row["rows"]] for row in dataset.read("runs", ["run", "rows"]).to_pylist()]
    assert in_spark(settings, code) == sorted(expected)
    assert len(expected) == 6
