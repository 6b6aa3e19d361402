"""The same answers from a Spark Connect server (a real one, on loopback) as from an embedded session."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from spark.sparking import scenario
from spark.standalone import INTERPRETED, await_line, end, python_without_whence, start
from support.quick_java import QUICK_JAVA
from support.running import simulate_to
from whence.spark.tables import SUMMARY

# What a user types and calls. Run as a program, with URL FOLDER COMMANDS, this module prints what it got as
# one JSON document: a process can hold but one Spark session, so the server's client needs one of its own.

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
    "seconds", "folder", "source", "out", "checkpoint", "rows_per_second", "batches", "state_bytes",
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
    from spark.streaming import command

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
    from spark.streaming import COLUMNS, SCHEMA, results
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
    from spark.streaming import results

    return [list(row) for row in results(spark.read.parquet(str(folder / "ordered")))]


def prepare(folder: Path, *, seeds: int, duration_us: int, rows: int, files: int) -> None:
    """Write the inputs."""
    from spark.streaming import write_files

    folder.mkdir()
    (folder / "grid.toml").write_text(GRID.format(seeds=seeds, duration_us=duration_us))
    write_files(folder / "in", keys=2, rows=rows, files=files)


def main() -> None:
    """What the program does."""
    from spark.cluster_job import places
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


# A Spark Connect server on loopback, and its client


_STARTED = "Spark Connect server started at: 127.0.0.1:"


class Server(NamedTuple):
    """A running server."""

    url: str
    process: subprocess.Popen[bytes]
    python: Path  # of its workers: a script


@contextmanager
def connect_server(folder: Path, *, quick: bool = False) -> Iterator[Server]:
    """A server whose Python has the libraries but not the package; `quick` starts fast and runs slowly."""
    # The package comes in a zip, so that numba finds nothing that it has compiled before.
    python = python_without_whence(folder, **({"NUMBA_OPT": "0"} if quick else {}))
    scratch = folder / "scratch"
    scratch.mkdir()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(scratch),
        "spark.sql.shuffle.partitions": "1" if quick else "2",
        "spark.ui.enabled": "false",
    }
    if quick:
        settings |= INTERPRETED
    process, log = start(
        folder,
        "connect-server",
        "org.apache.spark.deploy.SparkSubmit",
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *("--master", "local[1]" if quick else "local[2]"),
        *("--driver-java-options", f"{QUICK_JAVA} -Djava.io.tmpdir={scratch}"),
        *(word for pair in settings.items() for word in ("--conf", "=".join(pair))),
        memory="1g",
        python=python,
    )
    try:
        await_line(process, log, _STARTED)
        port = re.findall(re.escape(_STARTED) + r"(\d+)", log.read_text(errors="replace"))[0]
        yield Server(f"sc://127.0.0.1:{port}", process, python)
    finally:
        end(process)


def client(*arguments: object, program: str = __file__) -> subprocess.CompletedProcess[str]:
    """Run a Python program, with no Java and no Spark variables in its environment."""
    tests = Path(__file__).parents[1]
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SPARK_", "PYSPARK_", "JAVA_"))
    }
    return subprocess.run(
        [sys.executable, program, *map(str, arguments)],
        env=environment | {"PYTHONPATH": f"{tests}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


# The tests


pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

# A process has one session at a time, of either kind.
IN_TURN = """
import sys
from whence.spark.session import get_session
for master in (sys.argv[1], "local[1]", sys.argv[1]):
    spark = get_session("in turn", master=master)
    print(type(spark).__module__, spark.range(3).count())
    spark.stop()
"""
JUDGE = """
import os, signal, sys
from whence.errors import WhenceError
from whence.spark.session import get_session
from whence.spark.verify import verify_folder
spark = get_session("judge", master=sys.argv[1])
if len(sys.argv) > 3:
    os.kill(int(sys.argv[3]), signal.SIGKILL)
try:
    verify_folder(spark, sys.argv[2])
except WhenceError as error:
    print(type(error).__name__, error)
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with connect_server(tmp_path) as running:
        yield running


def both(
    server: Server, spark: SparkSession, folder: Path, there: list[str], here: list[str], **sizes: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the commands and functions say there, by the server, and here, in the embedded session."""
    for name in ("there", "here"):
        prepare(folder / name, **sizes)
    done = client(server.url, folder / "there", ",".join(there))
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr == "", "a client says nothing"
    remote: dict[str, Any] = json.loads(done.stdout)
    assert "already has one on sc://127.0.0.1" in remote["elsewhere"]
    assert remote["plan"] == SUMMARY.simpleString()
    local = commands(here, [], folder / "here")
    local["functions"] = functions(spark, folder / "here", whole="metrics" in here)
    # It is an answer: fifo broke causal order, and vector did not.
    assert (local["sweep"][0], local["verify"][0]) == (0, 1)
    assert [report["ok"] for report in local["verify"][1]].count(False) == sizes["seeds"]
    return remote, local


def test_a_server_gives_the_same_rows(tmp_path: Path, spark: SparkSession) -> None:
    """Without what costs a server most: measures are planned only, and there is no stream."""
    with connect_server(tmp_path, quick=True) as server:
        there, here = both(
            server, spark, tmp_path, ["sweep", "verify", "blocks"], ["sweep", "verify"],
            seeds=1, duration_us=50_000, rows=20, files=1,
        )  # fmt: skip
    assert there["sweep"] == here["sweep"]
    assert there["verify"] == there["blocks"] == here["verify"]
    assert there["functions"] == here["functions"]


@pytest.mark.slow
def test_a_server_gives_the_same_rows_and_measures(
    server: Server, spark: SparkSession, tmp_path: Path
) -> None:
    names = ["sweep", "verify", "blocks", "metrics", "stream"]
    sizes = {"seeds": 4, "duration_us": 500_000, "rows": 60, "files": 4}
    there, here = both(server, spark, tmp_path, names, names, **sizes)
    # The server's Python has no Whence: it came in the zip that the session ships.
    assert all(".zip/whence/" in path for place in there["places"] for path in place[1:])
    for name in (*names, "functions"):
        assert there[name] == here[name], name
    assert here["blocks"] == here["verify"]
    assert here["functions"]["findings"]
    assert len(here["metrics"][1]["runs"]) == 8
    given = ordered(spark, tmp_path / "there")
    assert given == ordered(spark, tmp_path / "here") == here["functions"]["sort"]
    assert there["stream"][1]["summary"]["rows_out"] == len(given)


@pytest.mark.slow
def test_sessions_in_turn(server: Server, tmp_path: Path) -> None:
    program = tmp_path / "in_turn.py"
    program.write_text(IN_TURN)
    done = client(server.url, program=str(program))
    assert (done.returncode, done.stderr) == (0, "")
    remote, classic = "pyspark.sql.connect.session 3", "pyspark.sql.session 3"
    assert done.stdout.splitlines() == [remote, classic, remote]


@pytest.mark.slow
@pytest.mark.parametrize("trouble", ["no library", "killed"])
def test_a_server_that_cannot(server: Server, tmp_path: Path, trouble: str) -> None:
    simulate_to(scenario(nodes=2), tmp_path / "trace")
    program = tmp_path / "judge.py"
    program.write_text(JUDGE)
    if trouble == "killed":
        done = client(server.url, tmp_path / "trace", server.process.pid, program=str(program))
        assert done.stdout.startswith("PlatformError"), done.stdout + done.stderr
        assert "the Spark Connect server is gone" in done.stdout
        assert done.stderr == ""
    else:  # its workers' Python, a script, finds another module of that name first
        (tmp_path / "hidden").mkdir()
        (tmp_path / "hidden" / "msgspec.py").write_text("raise ModuleNotFoundError('no msgspec here')")
        script = server.python.read_text().replace('PYTHONPATH="', f'PYTHONPATH="{tmp_path / "hidden"}:')
        server.python.write_text(script)
        done = client(server.url, tmp_path / "trace", program=str(program))
        assert "no msgspec here" in done.stdout, done.stdout + done.stderr
        assert "Check that the workers have the Python and the packages" in done.stdout
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    main()
