"""A run of the deadline study through the kernel and through the cores: the same counts, the same trace."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from whence.sim.model import Scenario
from whence.sim.run import open_writer
from whence.studies.deadline import compiled as deadline_compiled
from whence.studies.deadline import measures as deadline_runner
from whence.studies.deadline.grid import SCALES, VARIANTS, DeadlineStudy, scenario
from whence.trace.measures import Value
from whence.trace.schema import Level, Manifest, Recorder

Way = Callable[[Scenario, Recorder, Level], dict[str, Value]]


def counted(way: Way, chosen: Scenario, folder: Path, level: Level) -> tuple[dict[str, Value], Manifest]:
    with open_writer(chosen, folder, level) as writer:
        return way(chosen, writer, level), writer.close()


@pytest.mark.parametrize("level", [Level.MEASURES, Level.DELIVERIES])
@pytest.mark.parametrize("reading", ["fitted", "face"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_both_ways_count_and_record_the_same(
    variant: str, reading: str, level: Level, tmp_path: Path
) -> None:
    chosen = scenario(reading, 9, variant, 3, 900_000)
    by_kernel, kernel_trace = counted(deadline_compiled.run, chosen, tmp_path / "kernel", level)
    by_cores, cores_trace = counted(deadline_runner.run_cores, chosen, tmp_path / "cores", level)
    assert by_kernel == by_cores
    assert kernel_trace.events == cores_trace.events > 0
    assert kernel_trace.trace_hash == cores_trace.trace_hash


@pytest.mark.parametrize("reading", ["fitted", "face"])
def test_the_optimum_is_the_same(reading: str, tmp_path: Path) -> None:
    chosen = scenario(reading, 4, "TDCA", 2, 900_000)
    in_kernel, in_cores = (
        partial(run, find_optimum=True) for run in (deadline_compiled.run, deadline_runner.run_cores)
    )
    by_kernel, _ = counted(in_kernel, chosen, tmp_path / "kernel", Level.MEASURES)
    by_cores, _ = counted(in_cores, chosen, tmp_path / "cores", Level.MEASURES)
    assert by_kernel == by_cores
    assert "optimum" in by_kernel


def test_the_kernel_runs_all_of_the_paper_scale_but_what_is_printed() -> None:
    refused = {
        point.labels["part"]
        for point in DeadlineStudy().grid("paper")
        if deadline_compiled.refusal(point.scenario) is not None
    }
    assert refused == {"printed"}
    assert len(SCALES["paper"].sizes) == 7


def test_a_run_goes_through_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_cores(*_values: object) -> None:
        raise AssertionError("the cores were asked")

    monkeypatch.setattr(deadline_runner, "run_cores", no_cores)
    chosen = scenario("fitted", 4, "default", 1, 900_000)
    assert deadline_runner.simulate_to(chosen, tmp_path / "run").trace_hash
    monkeypatch.setattr(deadline_runner, "find_spec", lambda name: None)
    with pytest.raises(AssertionError, match="the cores were asked"):
        deadline_runner.simulate_to(chosen, tmp_path / "again")
