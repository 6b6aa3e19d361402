"""Real data through the pipeline: runs over Haggle contacts and ShiViz logs, judged, measured and ordered.

Run as a program (`python real_data_job.py MASTER OUT PARTITIONS`) it prints what it got as one JSON document:
a process can hold but one Spark session.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from support.real_data import DATA, INFOCOM, INTEL, LABORATORY, LOGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
        **{log: _log(spark, out / log, LOGS / log, partitions) for log in logs},
    }


def _log(spark: SparkSession, out: Path, path: Path, partitions: int) -> dict[str, Any]:
    """A log as a trace, judged; and as a table, in order."""
    from whence.spark.adapters import ORDERS, read_adapted
    from whence.spark.ordering.sort import causal_sort
    from whence.spark.verify import verify_folder
    from whence.trace.importers.shiviz import import_log

    import_log(path, out)
    table = read_adapted(spark, "shiviz", str(path)).repartition(partitions)
    rows = causal_sort(table, **ORDERS["shiviz"]).collect()
    return {"reports": _plain(verify_folder(spark, out)), "order": sorted(map(str, rows))}


def _plain(reports: Any) -> Any:
    return msgspec.to_builtins(reports)


def main() -> None:
    """See the module."""
    from whence.spark.session import get_session

    master, out, partitions = sys.argv[1:]
    options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    conf = {
        "spark.driver.memory": "1g",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": options,
        "spark.driver.extraJavaOptions": options,
    }
    spark = get_session("real data", master=master, conf=conf)
    found = results(spark, Path(out), partitions=int(partitions), contacts=ALL_CONTACTS, logs=ALL_LOGS)
    spark.stop()
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
