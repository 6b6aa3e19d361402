"""The same answers from a Spark Connect server (a real one, on loopback) as from an embedded session."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support import connect_job
from support.connect_server import Server, client, connect_server

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with connect_server(tmp_path) as running:
        yield running


def compare(server: Server, spark: SparkSession, folder: Path, **sizes: int) -> None:
    """Everything the client got is what the embedded session gets, row by row."""
    for name in ("there", "here"):
        connect_job.prepare(folder / name, **sizes)
    done = client(server.url, folder / "there")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr == "", "a client says nothing"
    there = json.loads(done.stdout)
    # The server's Python has no Whence: it came in the zip that the session ships.
    assert all(".zip/whence/" in path for place in there.pop("places") for path in place[1:])
    assert "already has one on sc://127.0.0.1" in there.pop("elsewhere")
    here = connect_job.commands([], folder / "here")
    here["functions"] = connect_job.functions(spark, folder / "here")
    assert there.keys() == here.keys()
    for name, found in here.items():
        assert there[name] == found, name
    # And it is an answer: fifo broke causal order, every row came out, the table at rest says the same.
    runs, rows = 2 * sizes["seeds"], len(here["functions"]["stream"])
    assert [here[name][0] for name in ("sweep", "verify", "metrics", "stream")] == [0, 1, 0, 0]
    assert len(here["verify"][1]) == len(here["sweep"][1]["runs"]) == len(here["metrics"][1]["runs"]) == runs
    assert here["blocks"] == here["verify"]
    assert here["functions"]["findings"]
    assert here["stream"][1]["summary"]["rows_out"] == rows > sizes["rows"]
    assert here["functions"]["sort"] == here["functions"]["stream"]


def test_a_server_gives_the_same_rows(server: Server, spark: SparkSession, tmp_path: Path) -> None:
    compare(server, spark, tmp_path, seeds=1, duration_us=40_000, rows=20, files=1)
