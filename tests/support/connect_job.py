"""What a user types and calls, for the comparison of a Spark Connect server with an embedded session.

Run as a program (`python connect_job.py URL FOLDER COMMANDS`) it prints what it got as one JSON document: a
process can hold but one Spark session, so the client of the server needs a process of its own.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GRID = """
protocol = "vector"
nodes = 5
[stop]
duration_us = {duration_us}
[link]
delay = {{ kind = "uniform", low_us = 100, high_us = 20_000 }}
[[workloads]]
kind = "poisson"
interval_us = 4_000
[grid]
protocol = ["fifo", "vector"]
seeds = {seeds}
"""
# Of a run or query, what depends on the machine and the moment.
_PASSING = (
    "seconds", "folder", "source", "out", "checkpoint", "rows_per_second", "batches", "state_memory_bytes",
)  # fmt: skip


def whence(*arguments: object) -> tuple[int, Any]:
    """`whence ARGUMENTS --json` in this process: its exit code and its document."""
    from whence.cli.main import main

    said, aside = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(said), redirect_stderr(aside):
            main([*map(str, arguments), "--json"])
    except SystemExit as left:
        code = int(left.code or 0)
    assert said.getvalue(), aside.getvalue()
    return code, json.loads(said.getvalue())


def commands(names: Iterable[str], where: list[str], folder: Path) -> dict[str, Any]:
    """The commands named, over `folder/grid.toml` and the files in `folder/in`: what must be the same."""
    from support.streaming import command

    runs = folder / "runs"
    stream = [word for word in command(folder / "in", folder / "ordered")[3:] if word != "--json"]
    lines: dict[str, list[object]] = {
        "sweep": ["sweep", folder / "grid.toml", "--out", runs],
        "verify": ["verify", runs, "--spark"],
        "blocks": ["verify", runs, "--blocks", 2],
        "metrics": ["metrics", runs],
        "stream": stream,
    }
    found = {name: whence(*lines[name], *where) for name in names}
    lasting: dict[str, Any] = json.loads(json.dumps(found), object_hook=_lasting)
    return lasting


def _lasting(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in _PASSING}


def functions(spark: SparkSession, folder: Path, *, whole: bool) -> dict[str, Any]:
    """What has no command: the order of a table at rest; verdicts as a table."""
    from support.streaming import COLUMNS, SCHEMA, results
    from whence.spark.ordering.sort import causal_sort
    from whence.spark.tables import read_manifests, read_segments
    from whence.spark.verify import findings, verify

    runs = folder / "runs"
    found: dict[str, Any] = {
        "sort": results(causal_sort(spark.read.schema(SCHEMA).json(str(folder / "in")), **COLUMNS)),
    }
    if whole:
        verdicts = verify(read_segments(spark, runs), read_manifests(spark, runs), causal=True)
        found["findings"] = sorted(map(str, findings(verdicts).collect()))
    lasting: dict[str, Any] = json.loads(json.dumps(found))
    return lasting


def ordered(spark: SparkSession, folder: Path) -> list[list[str]]:
    """What a stream has put into `folder/ordered`."""
    from support.streaming import results

    return [list(row) for row in results(spark.read.parquet(str(folder / "ordered")))]


def prepare(folder: Path, *, seeds: int, duration_us: int, rows: int, files: int) -> None:
    """Write the inputs."""
    from support.streaming import write_files

    folder.mkdir()
    (folder / "grid.toml").write_text(GRID.format(seeds=seeds, duration_us=duration_us))
    write_files(folder / "in", keys=2, rows=rows, files=files)


def main() -> None:
    """See the module."""
    from support.cluster_job import places
    from whence.errors import MisuseError
    from whence.spark.metrics.summary import summary
    from whence.spark.session import get_session
    from whence.spark.tables import flatten, read_segments

    url, folder, names = sys.argv[1], Path(sys.argv[2]), sys.argv[3].split(",")
    whole = "metrics" in names
    found = commands(names, ["--master", url], folder)
    spark = get_session("connect test", master=url)
    found["functions"] = functions(spark, folder, whole=whole)
    # Planned, not run: what Connect does not have would show.
    found["plan"] = summary(flatten(read_segments(spark, folder / "runs"))).schema.simpleString()
    found["places"] = places(spark) if whole else []
    try:
        get_session("elsewhere", master="local[1]")
    except MisuseError as error:
        found["elsewhere"] = str(error)
    spark.stop()
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
