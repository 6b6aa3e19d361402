"""Sweep, verify, summarise and ask on an S3 server (moto, a process of its own); a task is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark.standalone import free_port
from support.systems import until
from whence.cli.sql import ask
from whence.spark import datasets
from whence.trace.dataset import Dataset

pytest.importorskip("moto", reason="no S3 server: pip install 'moto[server]'")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

GRID: dict[str, Any] = {
    "protocol": "vector", "nodes": 3, "record": {"level": "deliveries"}, "stop": {"duration_us": 30_000},
    "workloads": [{"kind": "poisson", "interval_us": 3_000}],
    "link": {"delay": {"kind": "uniform", "low_us": 100, "high_us": 9_000}},
    "grid": {"protocol": ["vector", "fifo"], "seeds": 8},
}  # fmt: skip


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The address of an S3 server on loopback with a bucket `lab`."""
    where = f"127.0.0.1:{free_port()}"
    host, port = where.split(":")
    command = [sys.executable, "-m", "moto.server", "-H", host, "-p", port]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:

        def answers() -> bool:
            try:
                with urllib.request.urlopen(f"http://{where}/moto-api/", timeout=5):
                    return True
            except OSError:
                return False

        try:
            until(answers, 120)
            request = urllib.request.Request(f"http://{where}/lab", method="PUT")
            urllib.request.urlopen(request, timeout=30).close()
            yield where
        finally:
            server.kill()


def address(endpoint: str, path: str) -> str:
    return f"s3://key:secret@lab/{path}?scheme=http&region=us-east-1&endpoint_override={endpoint}"


def test_sweep_and_verify_with_a_killed_task(
    spark: SparkSession, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, mark = address(endpoint, "killed"), tmp_path / "killed"
    run_chunk = datasets.run_chunk

    def dies_once(*given: Any) -> Any:
        if given[1] == 2 and not mark.exists():
            commit = Dataset.commit

            def dies(*_: Any) -> Any:
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)

            Dataset.commit = dies  # type: ignore[method-assign]  # files are written, the commit is not
            try:
                return run_chunk(*given)
            finally:
                Dataset.commit = commit  # type: ignore[method-assign]
        return run_chunk(*given)

    monkeypatch.setattr(datasets, "run_chunk", dies_once)
    assert datasets.sweep_tables(spark, GRID, out).runs == 16
    assert mark.exists()
    local = str(tmp_path / "local")
    monkeypatch.setattr(datasets, "run_chunk", run_chunk)
    datasets.sweep_tables(spark, GRID, local)
    for where in (out, local):
        assert datasets.verify_tables(spark, where, causal=True).runs == 16
        assert datasets.summarise_tables(spark, where).runs == 16
    for query in (
        "select run, trace_hash, rows from runs order by 1",
        "select run, ok, report_json from verdicts order by 1",
        "select * from findings order by run, kind, node, seq, message",
        "select * from summaries order by run",
        "select run, node, seq, kind, origin, number from segments order by 1, 2, 3",
    ):
        there, here = ask(query, out), ask(query, local)
        assert there == here, query
        assert here[1], query
    assert datasets.sweep_tables(spark, GRID, out).skipped == 16


def test_an_address_that_does_not_answer_is_named_without_its_secret(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="lab") as caught:
        Dataset(address(f"127.0.0.1:{free_port()}", "x") + "&connect_timeout=1").commits()
    assert "secret" not in str(caught.value)
