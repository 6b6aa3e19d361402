"""The same answers from a Spark Connect server (a real one, on loopback) as from an embedded session."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from support import connect_job
from support.connect_server import Server, client, connect_server
from support.running import simulate_to
from support.sparking import scenario
from whence.order import OUTCOMES
from whence.spark.ordering.job import _ROWS_OUT, StreamSummary, _add
from whence.spark.tables import SUMMARY

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
        connect_job.prepare(folder / name, **sizes)
    done = client(server.url, folder / "there", ",".join(there))
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr == "", "a client says nothing"
    remote: dict[str, Any] = json.loads(done.stdout)
    assert "already has one on sc://127.0.0.1" in remote["elsewhere"]
    assert remote["plan"] == SUMMARY.simpleString()
    local = connect_job.commands(here, [], folder / "here")
    local["functions"] = connect_job.functions(spark, folder / "here", whole="metrics" in here)
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


def test_what_a_query_observes_has_names() -> None:
    """A Connect client gets the values of a row and its schema, where a classic session gets the row."""
    counts = {"rows": 9, "unplaced": None} | {name: at for at, name in enumerate(OUTCOMES)}
    fields = [{"name": name, "type": "long"} for name in counts]
    apart = Row(values=list(counts.values()), schema={"type": "struct", "fields": fields})
    for observed in (apart, Row(**counts)):
        summary = StreamSummary()
        state = {"numRowsTotal": 1, "memoryUsedBytes": 1}
        _add(summary, {"stateOperators": [state], "observedMetrics": {_ROWS_OUT: observed}})
        assert (summary.rows_out, summary.unplaced) == (9, 0)
        assert list(summary.outcomes.values()) == list(range(len(OUTCOMES)))


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
    given = connect_job.ordered(spark, tmp_path / "there")
    assert given == connect_job.ordered(spark, tmp_path / "here") == here["functions"]["sort"]
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
