"""PRC's kernel against the cores: the same sums, counters and logs, bit for bit, over random experiments."""

from __future__ import annotations

import random

import msgspec
import pytest

from support.hashing import HashingRecorder
from support.parts import parts
from whence.errors import MisuseError
from whence.kernels.prc import kernel as prc
from whence.lab.run import path_of, run
from whence.sim.engine import Engine
from whence.sim.model import Crash, Poisson, Record, Scenario, Stop
from whence.sim.series import RunSeries
from whence.studies.prc.grid import changing
from whence.trace.schema import Level


def in_the_cores(scenario: Scenario) -> RunSeries | None:
    engine = Engine(scenario)
    engine.run()
    return engine.series()


def drawn(seed: int) -> Scenario:
    """Joins under traffic, shuffles faster than handshakes, delays that rise: all at small sizes."""
    draw = random.Random(seed)
    duration_us = draw.choice([2_000_000, 4_000_000])
    low_us = draw.choice([1_000, 5_000, 20_000])
    points = [
        (draw.randrange(duration_us // 2), low_us),
        (duration_us // 2 + draw.randrange(1, duration_us // 2), low_us * draw.choice([1, 3, 20])),
    ]
    return changing(
        nodes=draw.choice([1, 2, 3, 4, 5, 6, 7, 9, 12]),
        seed=seed,
        duration_us=duration_us,
        joins_us=draw.choice([100_000, 500_000, duration_us // 2]),
        delays=points[: draw.choice([1, 2, 2])],
        shuffle_every_us=draw.choice([100_000, 300_000, 777_777]),
        shuffle_stop_us=draw.choice([duration_us, duration_us * 3 // 4]),
        broadcast_start_us=draw.choice([0, 100_000, duration_us // 3]),
        broadcast_stop_us=draw.choice([duration_us, duration_us * 3 // 4]),
        broadcast_every_us=draw.choice([20_000, 50_000, 100_000]),
        window_us=draw.choice([duration_us, 300_000, 1_000_000]),
        join_batch=draw.choice([1, 1, 3]),
        sampling=draw.choice(["spray", "authors"]),
        params={"timeout_us": 10**9},
    )


ALWAYS, ALL = 25, 100


def one_run(seed: int) -> int:
    """Answers how many links were opened."""
    scenario = drawn(seed)
    series = prc.run(scenario).series
    assert series is not None
    assert series == in_the_cores(scenario), seed
    if scenario.nodes > 1:
        assert sum(each.overlay for each in series.windows) > series.control
    return series.opened


def compare(seeds: range) -> None:
    assert sum(map(one_run, seeds)) > len(seeds)


@pytest.mark.parametrize("part", parts(ALL // ALWAYS, fast=1))
def test_a_hundred_random_experiments(part: int) -> None:
    compare(range(part * ALWAYS, part * ALWAYS + ALWAYS))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_a_thousand_random_experiments(part: int) -> None:
    compare(range(1_000 + part * 100, 1_000 + part * 100 + 100))


def test_more_slots_than_one_word() -> None:
    """Hubs have more than 64 links: the masks grow while the run goes on."""
    scenario = changing(
        nodes=800,
        seed=2,  # with many arcs
        duration_us=33_000_000,
        joins_us=30_000_000,
        delays=[(0, 2_000)],
        shuffle_every_us=40_000_000,
        shuffle_stop_us=0,
        broadcast_start_us=31_000_000,
        broadcast_stop_us=32_000_000,
        broadcast_every_us=500_000,
        params={"timeout_us": 10**9},
    )
    series = prc.run(scenario).series
    assert series is not None
    assert series.degree_max > 64
    assert series == in_the_cores(scenario)


def test_what_is_not_tested_is_refused() -> None:
    scenario = drawn(1)
    changes = [
        {"faults": [Crash(nodes=["n0"], at_us=1)]},
        {"params": {"timeout_us": 1}},
        {"params": {"own_after_echo": True}},
        {"protocol": "preventive"},
        {"workloads": [Poisson(interval_us=100_000)]},
        {"stop": Stop(duration_us=2_000_000)},
        {"record": Record(window_us=1_000, sample_every_us=1_000)},
    ]
    for change in changes:
        other = msgspec.structs.replace(scenario, **change)
        with pytest.raises(MisuseError, match="kernel of prc"):
            prc.run(other)
        assert path_of(other, kernel="always")[0] == "core"
    assert "every delivery" in str(prc.refusal(scenario, Level.DELIVERIES))


@pytest.mark.parametrize("seed", range(8))
def test_a_run_says_the_same_of_either_path(seed: int) -> None:
    scenario = drawn(seed)
    hashes = HashingRecorder(), HashingRecorder()
    by_kernel = run(scenario, recorder=hashes[0], kernel="always")
    by_cores = run(scenario, recorder=hashes[1], kernel="never")
    assert (by_kernel.path, by_cores.path) == ("kernel", "core")
    assert hashes[0].hexdigest() == hashes[1].hexdigest()
    for name in by_kernel.__struct_fields__:
        value = getattr(by_kernel, name)
        if value is not None and name not in ("path", "why", "promises"):
            assert value == getattr(by_cores, name), name
