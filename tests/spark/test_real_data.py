"""Results on real logs and contacts do not depend on partitioning, number of cores or cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from spark.standalone import python_without_whence, standalone
from support.real_data import DATA, INFOCOM, INTEL, LABORATORY, LOGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# The pipeline over real data. Run as a program, with MASTER OUT PARTITIONS, this module prints what it got as
# one JSON document: a process can hold but one Spark session.

SMALL_LOGS = ("simple-reliable-broadcast.log", "simpledb.log")
ALL_LOGS = (*SMALL_LOGS, "facebook-multiple.log", "CPSC416-2018W1-P1-RFS__execution1.log")
ALL_CONTACTS = ((INTEL, "the-one"), (LABORATORY, "the-one"), (INFOCOM, "haggle"))


def results(
    spark: SparkSession,
    out: Path,
    *,
    partitions: int,
    contacts: Sequence[tuple[str, str]] = ALL_CONTACTS[:1],
    logs: Sequence[str] = SMALL_LOGS,
) -> dict[str, Any]:
    """Everything that must not depend on partitions, cores or machines."""
    from whence.sim.model import Contacts
    from whence.spark.metrics.summary import summary
    from whence.spark.sweep import sweep
    from whence.spark.tables import flatten, read_segments
    from whence.spark.verify import verify_folder
    from whence.studies.oppnet.grid import scenario

    spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
    grid = [
        scenario(Contacts(file=str(DATA / file), format=format_), 240, mode, 1, "deliveries")
        for file, format_ in contacts
        for mode in ("safe", "published")
    ]
    statuses = sweep(spark, grid, out / "haggle")
    events = flatten(read_segments(spark, out / "haggle").repartition(partitions))
    return {
        "runs": sorted((each.run, each.status, each.events) for each in statuses),
        "reports": _plain(verify_folder(spark, out / "haggle")),
        "in blocks": _plain(verify_folder(spark, out / "haggle", blocks=1 + partitions)),
        "summary": [row.asDict() for row in summary(events).orderBy("run").collect()],
        **{log: _log(spark, LOGS / log, partitions) for log in logs},
    }


def _log(spark: SparkSession, path: Path, partitions: int) -> dict[str, Any]:
    """A log as a table, in order."""
    from whence.spark.adapters import ORDERS, read_adapted
    from whence.spark.ordering.sort import causal_sort

    table = read_adapted(spark, "shiviz", str(path)).repartition(partitions)
    rows = causal_sort(table, **ORDERS["shiviz"]).collect()
    return {"order": sorted(map(str, rows))}


def _plain(reports: Any) -> Any:
    return msgspec.to_builtins(reports)


def main() -> None:
    """What the program does."""
    from support.quick_java import QUICK_JAVA
    from whence.spark.session import get_session

    master, out, partitions = sys.argv[1:]
    conf = {
        "spark.driver.memory": "1g",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": QUICK_JAVA,
        "spark.driver.extraJavaOptions": QUICK_JAVA,
    }
    spark = get_session("real data", master=master, conf=conf)
    found = results(spark, Path(out), partitions=int(partitions), contacts=ALL_CONTACTS, logs=ALL_LOGS)
    spark.stop()
    sys.stdout.write(json.dumps(found))


# The tests


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
    assert all(found[log]["order"] for log in SMALL_LOGS)


def test_partitions_do_not_matter(spark: SparkSession, tmp_path: Path) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    try:
        one, five = (results(spark, tmp_path / str(n), partitions=n) for n in (1, 5))
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", str(before))
    check(one)
    assert one == five


def run_on(master: str, out: Path, partitions: int, **environment: str) -> dict[str, Any]:
    tests = Path(__file__).parents[1]
    path = f"{tests}:{os.environ.get('PYTHONPATH', '')}"
    done = subprocess.run(
        [sys.executable, __file__, master, str(out), str(partitions)],
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


if __name__ == "__main__":
    main()
