"""A run of the deadline study through the kernel and through the cores: the same counts, the same trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from whence.lab.run import path_of, run
from whence.protocols.deadline.tdca import Tdca
from whence.studies.deadline.grid import SCALES, STUDY, VARIANTS, scenario
from whence.studies.deadline.measures import DeadlineTally, counted, run_point
from whence.trace.schema import Level


@pytest.mark.parametrize("level", [Level.MEASURES, Level.DELIVERIES])
@pytest.mark.parametrize("reading", ["fitted", "face"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_both_ways_count_and_record_the_same(
    variant: str, reading: str, level: Level, tmp_path: Path
) -> None:
    chosen = scenario(reading, 9, variant, 3, 900_000)
    by_kernel = counted(chosen, tmp_path / "kernel", level)
    by_cores = counted(chosen, tmp_path / "cores", level, cores=True)
    assert (by_kernel.path, by_cores.path) == ("kernel", "core")
    assert by_kernel.measures == by_cores.measures
    assert by_kernel.manifest is not None
    assert by_kernel.manifest.events > 0
    assert by_kernel.manifest == by_cores.manifest


@pytest.mark.parametrize("reading", ["fitted", "face"])
def test_the_optimum_is_the_same(reading: str) -> None:
    chosen = scenario(reading, 4, "TDCA", 2, 900_000)
    by_kernel = counted(chosen, None, Level.MEASURES, optimum=True)
    by_cores = counted(chosen, None, Level.MEASURES, optimum=True, cores=True)
    assert by_kernel.measures == by_cores.measures
    assert "optimum" in by_kernel.measures


def test_the_past_in_a_packet_is_what_its_origin_had_accepted() -> None:
    """The optimum is computed with it."""
    chosen = scenario("fitted", 6, "TDCA", 4, 900_000)
    accepted: dict[tuple[int, int], tuple[int, ...]] = {}

    class Noting(Tdca):
        def broadcast_within(self, payload, lifetime_us, now_us):
            effects = super().broadcast_within(payload, lifetime_us, now_us)
            past = list(self.accepted)
            past[self.my_index] -= 1
            accepted[self.my_index, self.last] = tuple(past)
            return effects

    tally = DeadlineTally(chosen, optimum=True)
    run(chosen, observers=[tally], make=lambda me, members: Noting(me, members, **chosen.params))
    assert tally._pasts == accepted
    assert len(accepted) > 20


def test_the_kernel_runs_all_of_the_paper_scale_but_what_is_printed_or_troubled() -> None:
    refused = {
        point.labels["part"]
        for point in STUDY.grid("paper")
        if path_of(point.scenario, kernel="always")[0] == "core"
    }
    assert refused == {"printed", "trouble"}
    assert len(SCALES["paper"].sizes) == 7


def test_a_run_goes_through_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = scenario("fitted", 4, "default", 1, 900_000)
    assert run_point(chosen, tmp_path / "run").path == "kernel"
    monkeypatch.setattr("whence.lab.run.find_spec", lambda name: None)
    without = run_point(chosen, tmp_path / "again")
    assert (without.path, without.why) == ("core", "the cores are asked for: an observer watches them")
