"""A sweep: resumed, partly failing, killed in the middle, cut into tasks in any way."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from spark.sparking import scenario
from support.running import simulate_to
from whence.errors import MisuseError, PlatformError
from whence.lab import tasks as plan
from whence.lab.attempts import ATTEMPTS_MAX, RunStatus, perform, simulated
from whence.sim.files import Scenario, run_id, to_dict
from whence.sim.outcome import Outcome, Runner
from whence.spark import sweep as sweeping
from whence.spark.sweep import sweep
from whence.trace.reader import open_trace
from whence.trace.schema import Level

pytestmark = pytest.mark.spark

GRID = [scenario(protocol, nodes=3, seed=seed) for protocol in ("fifo", "vector") for seed in (1, 2, 3)]


def failing(on_seed: int, counter: Path) -> Runner:
    """A simulator that raises on one seed, and leaves a line in `counter` for each run."""

    def run(each: Scenario, folder: Path, level: Level | None) -> Outcome:
        with counter.open("a") as file:
            file.write(f"{each.seed}\n")
        if each.seed == on_seed:
            (folder.parent / "half").write_text("half a trace")
            raise ZeroDivisionError("the planted fault")
        return simulated(each, folder, level)

    return run


def dying(on_seed: int) -> Runner:
    """A simulator that takes its whole worker process down on one seed."""

    def run(each: Scenario, folder: Path, level: Level | None) -> Outcome:
        if each.seed == on_seed:
            os._exit(9)
        return simulated(each, folder, level)

    return run


def hashes(out: Path) -> dict[str, str]:
    return {manifest.run: manifest.trace_hash for manifest in open_trace(out).manifests}


def test_every_run_is_done_and_equals_the_direct_simulation(spark: SparkSession, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    statuses = sweep(spark, GRID, tmp_path / "out", progress=lambda done, total: told.append((done, total)))
    assert [status.run for status in statuses] == [run_id(each) for each in GRID]
    assert {status.status for status in statuses} == {"done"}
    for each, status in zip(GRID, statuses, strict=True):
        assert Path(status.folder) == tmp_path / "out" / f"run={run_id(each)}"
        assert json.loads(status.parameters_json) == to_dict(each)
        direct = simulate_to(each, tmp_path / "direct" / f"run={status.run}")
        assert status.events == direct.events > 0
    assert hashes(tmp_path / "out") == hashes(tmp_path / "direct")
    assert (told[0], told[-1]) == ((0, 6), (6, 6))
    assert told == sorted(told)
    assert not (tmp_path / "out" / "_running").exists()


def test_a_second_sweep_runs_only_what_is_new(spark: SparkSession, tmp_path: Path) -> None:
    counter = tmp_path / "runs"
    sweep(spark, GRID[:3], tmp_path / "out", runner=failing(-1, counter))
    told: list[tuple[int, int]] = []
    again = sweep(
        spark,
        GRID[:4],
        tmp_path / "out",
        runner=failing(-1, counter),
        progress=lambda *counts: told.append(counts),
    )
    assert [status.status for status in again] == ["skipped", "skipped", "skipped", "done"]
    assert len(counter.read_text().split()) == 4
    assert all(status.events > 0 and status.seconds > 0 for status in again)
    assert (told[0], told[-1]) == ((3, 4), (4, 4))


def test_equal_scenarios_are_one_run(spark: SparkSession, tmp_path: Path) -> None:
    counter = tmp_path / "runs"
    statuses = sweep(spark, [*GRID[:2], *GRID[:2]], tmp_path / "out", runner=failing(-1, counter))
    assert [status.run for status in statuses] == [run_id(each) for each in GRID[:2]]
    assert len(counter.read_text().split()) == 2


def test_no_scenarios_no_runs(spark: SparkSession, tmp_path: Path) -> None:
    assert sweep(spark, [], tmp_path / "out") == []


def test_a_failed_run_is_reported_and_the_others_go_on(spark: SparkSession, tmp_path: Path) -> None:
    out, counter = tmp_path / "out", tmp_path / "runs"
    statuses = sweep(spark, GRID, out, runner=failing(2, counter))
    assert [status.status for status in statuses] == ["done", "failed", "done"] * 2
    failed = statuses[1]
    assert json.loads(failed.parameters_json) == to_dict(GRID[1])
    assert failed.error is not None
    assert failed.error.startswith("Traceback (most recent call last)")
    assert "ZeroDivisionError: the planted fault" in failed.error
    # Half a trace must not be taken for a run: the folder holds the finished ones and can be opened.
    assert open_trace(out).runs == sorted(s.run for s in statuses if s.status == "done")
    again = sweep(spark, GRID, out)
    assert [status.status for status in again] == ["skipped", "done", "skipped"] * 2
    assert len(open_trace(out).runs) == 6
    assert not list((out / "_failed").iterdir())


def test_a_run_that_kills_its_worker_is_reported_and_the_others_go_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Two such runs share a task with others: more deaths than Spark gives one task."""
    statuses = sweep(spark, GRID, tmp_path / "out", runner=dying(2))
    assert [status.status for status in statuses] == ["done", "failed", "done"] * 2
    assert f"died {ATTEMPTS_MAX} times" in (statuses[1].error or "")


def test_a_half_written_run_is_done_again(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    expected = sweep(spark, GRID[:3], out)
    for status, damage in zip(expected, ("no status", "half a status", "status of another"), strict=True):
        path = Path(status.folder) / "status.json"
        if damage == "no status":
            path.unlink()
        elif damage == "half a status":
            path.write_bytes(path.read_bytes()[:20])
        else:
            path.write_text(path.read_text().replace(status.run, "0" * 16))
        (Path(status.folder) / "sim-00000.parquet").write_bytes(b"half")
    again = sweep(spark, GRID[:3], out)
    assert [status.status for status in again] == ["done"] * 3
    assert [status.events for status in again] == [status.events for status in expected]
    assert open_trace(out).event_count == sum(status.events for status in again)


def test_a_finished_run_that_recorded_less_is_done_again(spark: SparkSession, tmp_path: Path) -> None:
    low = sweep(spark, GRID[:1], tmp_path / "out", level=Level.DELIVERIES)
    assert [s.status for s in sweep(spark, GRID[:1], tmp_path / "out", level=Level.DELIVERIES)] == ["skipped"]
    full = sweep(spark, GRID[:1], tmp_path / "out")
    assert (full[0].status, full[0].run) == ("done", low[0].run)
    assert full[0].events > low[0].events
    assert [s.status for s in sweep(spark, GRID[:1], tmp_path / "out", level=Level.DELIVERIES)] == ["skipped"]


@pytest.mark.parametrize(
    "tasks", [[[0, 1, 2, 3, 4, 5]], [[5], [4], [3], [2], [1], [0]], [[3, 1], [0, 5, 2, 4]]]
)
def test_results_do_not_depend_on_the_tasks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tasks: list[list[int]]
) -> None:
    monkeypatch.setattr(sweeping, "tasks_of", lambda seconds, cores: tasks)
    statuses = sweep(spark, GRID, tmp_path / "out")
    assert [status.run for status in statuses] == [run_id(each) for each in GRID]
    for each in GRID:
        simulate_to(each, tmp_path / "direct" / f"run={run_id(each)}")
    assert hashes(tmp_path / "out") == hashes(tmp_path / "direct")


def test_two_sweeps_in_one_folder_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with (tmp_path / "_sweep.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(MisuseError, match="another sweep is at work"):
            sweep(spark, GRID[:1], tmp_path)


def test_a_folder_that_cannot_be_made(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PlatformError, match="sweep into"):
        sweep(spark, GRID[:1], tmp_path / "file" / "out")


def test_storage_that_is_not_shared_is_noticed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the worker had another disk: it says done, and the driver sees nothing."""
    monkeypatch.setattr(sweeping, "VISIBLE_SECONDS_MAX", 0.0)
    monkeypatch.setattr(sweeping, "_run_once", lambda *given: None)
    with pytest.raises(PlatformError, match="does not see its result") as caught:
        sweep(spark, GRID[:1], tmp_path)
    assert "share" in caught.value.fix


def test_spark_giving_up_is_an_error_with_its_reason(spark: SparkSession, tmp_path: Path) -> None:
    def unusable(*given: Any) -> Any:
        raise SystemExit(3)  # ends the worker before any run can be claimed

    class Unpicklable:
        def __reduce__(self) -> Any:
            return (unusable, ())

    carried = Unpicklable()

    def run(each: Scenario, folder: Path, level: Level | None) -> Outcome:
        raise AssertionError(carried)

    with pytest.raises(PlatformError, match="Spark gave up"):
        sweep(spark, GRID[:1], tmp_path / "out", runner=run)


# Without Spark


def test_two_attempts_at_one_run_leave_one_result(tmp_path: Path) -> None:
    """Spark may start a task a second time while the first still runs."""
    out = tmp_path
    (out / "_running").mkdir()
    (out / "_failed").mkdir()
    each = GRID[0]
    text = msgspec.json.encode(to_dict(each)).decode()
    inner: list[RunStatus] = []

    def slow(given: Scenario, folder: Path, level: Level | None) -> Outcome:
        inner.append(perform(out, run_id(each), text, None, None))
        return simulated(given, folder, level)

    outer = perform(out, run_id(each), text, None, slow)
    assert (outer.status, inner[0].status) == ("done", "done")
    assert open_trace(out).runs == [run_id(each)]
    assert not list((out / "_running").iterdir())


def test_tasks_hold_every_run_once_the_longest_first() -> None:
    seconds = [0.01] * 50 + [5.0, 9.0, 1.5]
    tasks = plan.tasks_of(seconds, cores=2)
    assert sorted(index for task in tasks for index in task) == list(range(53))
    assert tasks[:2] == [[51], [50]], "long runs come first, alone"
    assert len(tasks) < 8, "tiny runs share tasks"
    assert plan.tasks_of([], cores=2) == []
    assert len(plan.tasks_of([0.3] * 8, cores=2)) == 8, "few runs are spread over the cores"


def test_the_estimate_knows_large_from_small() -> None:
    def estimate(**more: Any) -> float:
        return plan.estimate_seconds(scenario(**more))

    small = estimate(nodes=4)
    assert estimate(nodes=40) > 50 * small
    assert estimate(nodes=40, topology={"kind": "ring"}) < estimate(nodes=40)
    assert estimate(nodes=40, params={"relay": False}) < estimate(nodes=40)
    load = {"kind": "window", "count": 100, "stop_us": 50_000}
    assert estimate(workloads=[load]) > 10 * estimate(workloads=[load | {"count": 5}])
    burst = {"kind": "burst", "size": 10, "interval_us": 10_000, "senders": ["n0"]}
    assert estimate(workloads=[burst]) == pytest.approx(10 * estimate(workloads=[burst | {"size": 1}]))
