"""One pass through the pipeline, for the comparison of a cluster with this machine alone.

Run as a program (`python cluster_job.py MASTER OUT SEEDS`) it prints what it got as one JSON document: a
process can hold but one Spark session, so the cluster's driver needs a process of its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


def pipeline(spark: SparkSession, out: Path, seeds: int = 3) -> dict[str, Any]:
    """Sweep, verify and measure; everything that must not depend on where it ran."""
    from spark.sparking import scenario
    from whence.spark.metrics.summary import summary
    from whence.spark.sweep import sweep
    from whence.spark.tables import flatten, read_segments
    from whence.spark.verify import verify_folder

    grid = [scenario(name, nodes=4, seed=1 + seed) for name in ("fifo", "vector") for seed in range(seeds)]
    statuses = sweep(spark, grid, out)
    (out / "_verifying").touch()  # for whoever wants to disturb it
    reports = [msgspec.to_builtins(report) for report in verify_folder(spark, out)]
    (out / "_verifying").unlink()
    figures = summary(flatten(read_segments(spark, out))).orderBy("run").collect()
    return {
        "statuses": [[s.run, s.status, s.events, s.parameters_json, s.error] for s in statuses],
        "reports": reports,
        "summary": [row.asDict() for row in figures],
    }


def places(spark: SparkSession) -> list[list[str]]:
    """For each task: which executor it ran on and where that one has the package from."""

    def ask(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time

        import pyarrow as pa

        import whence
        from whence.lab import attempts as runs

        for _ in batches:
            time.sleep(0.5)  # long enough that one executor does not take all tasks
            place = {"executor": Path.cwd().name, "package": whence.__file__, "module": runs.__file__}
            yield pa.RecordBatch.from_pylist([place])

    table = spark.range(0, 6, 1, numPartitions=6)
    rows = table.mapInArrow(ask, "executor string, package string, module string").collect()
    return sorted(list(map(str, row)) for row in rows)


def main() -> None:
    """See the module."""
    from spark.standalone import INTERPRETED
    from support.quick_java import QUICK_JAVA
    from whence.spark.session import get_session

    master, out, seeds = sys.argv[1:]
    conf = INTERPRETED | {
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": QUICK_JAVA,
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.sql.shuffle.partitions": "2",
    }
    spark = get_session("cluster test", master=master, conf=conf)
    result = {"places": places(spark), "master": spark.sparkContext.master}
    result |= pipeline(spark, Path(out), int(seeds))
    spark.stop()
    sys.stdout.write(json.dumps(result))


if __name__ == "__main__":
    main()
