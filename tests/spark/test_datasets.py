"""Sweeps into tables: the same verdicts as of folders, whatever dies on the way."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from whence.cli.sql import ask
from whence.errors import PlatformError
from whence.lab.grid import expand
from whence.lab.run import run
from whence.spark import datasets
from whence.trace.dataset import Dataset
from whence.verify.run import verify_trace

GRID: dict[str, Any] = {
    "protocol": "vector", "nodes": 3, "record": {"level": "deliveries"}, "stop": {"duration_us": 30_000},
    "link": {"delay": {"kind": "uniform", "low_us": 100, "high_us": 9_000}},
    "workloads": [{"kind": "poisson", "interval_us": 3_000}],
    "grid": {"protocol": ["vector", "fifo", "reliable"], "seeds": 2},
}  # fmt: skip


def reports_in(out: str) -> dict[str, Any]:
    table = Dataset(out).read("verdicts", ["run", "report_json"])
    return {row["run"]: msgspec.json.decode(row["report_json"]) for row in table.to_pylist()}


def expected(tmp_path: Path) -> dict[str, Any]:
    found = {}
    for number, point in enumerate(expand(GRID)):
        outcome = run(point.scenario, tmp_path / f"r{number}")
        (report,) = verify_trace(tmp_path / f"r{number}", causal=True)
        found[outcome.run] = msgspec.to_builtins(report)
    return found


def test_sweep_verify_and_summary(spark: SparkSession, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    totals = datasets.sweep_tables(spark, GRID, out)
    assert (totals.runs, totals.failed, totals.skipped) == (6, 0, 0)
    assert datasets.sweep_tables(spark, GRID, out).skipped == totals.tasks
    judged = datasets.verify_tables(spark, out, causal=True)
    assert judged.runs == 6
    assert reports_in(out) == expected(tmp_path)
    assert judged.failed == sum(not each["ok"] for each in reports_in(out).values())
    assert judged.failed
    assert len(list(datasets.first_broken(Dataset(out), 1))) == 1
    datasets.summarise_tables(spark, out)
    query = "select count(*), sum(s.deliveries - v.deliveries) from summaries s join verdicts v using (run)"
    assert ask(query, out)[1] == [(6, 0)]
    assert ask("select sum(causal) > 0 from verdicts", out)[1] == [(True,)]
    assert ask("select count(*) from findings where kind = 'causal'", out)[1][0][0] > 0


@pytest.mark.parametrize("deaths", [1, 99])
def test_a_killed_worker_costs_time_only(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaths: int
) -> None:
    """The task writes its files and dies before its commit; another attempt is made."""
    out, marks = str(tmp_path / "out"), tmp_path / "marks"
    marks.mkdir()
    commit = Dataset.commit

    def dies(self: Dataset, task: str, *rest: Any) -> Any:
        seen = len(list(marks.iterdir()))
        if task.endswith("00000002") and seen < deaths:
            (marks / str(seen)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return commit(self, task, *rest)

    run_chunk = datasets.run_chunk

    def patched(*given: Any) -> Any:
        Dataset.commit = dies  # type: ignore[method-assign]  # in the worker
        try:
            return run_chunk(*given)
        finally:
            Dataset.commit = commit  # type: ignore[method-assign]

    monkeypatch.setattr(datasets, "run_chunk", patched)
    if deaths > datasets.ATTEMPTS_MAX:
        with pytest.raises(PlatformError, match="1 of 6 tasks"):
            datasets.sweep_tables(spark, GRID, out)
        monkeypatch.setattr(datasets, "run_chunk", run_chunk)
    assert datasets.sweep_tables(spark, GRID, out).runs == 6
    assert ask("select count(*) from runs", out)[1] == [(6,)]
    assert len(list((tmp_path / "out" / "runs").iterdir())) > 6  # what no commit names stays, and is ignored
