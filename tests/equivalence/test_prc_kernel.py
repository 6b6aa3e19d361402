"""PRC's kernel against the cores: the same sums, counters and logs, bit for bit, over random experiments."""

from __future__ import annotations

import random

import pytest

from whence.errors import MisuseError
from whence.kernels import dispatch
from whence.kernels.prc import kernel as prc
from whence.sim import dynamic
from whence.sim.experiment import Departure, Experiment, Point


def drawn(seed: int) -> Experiment:
    """Joins under traffic, shuffles faster than handshakes, delays that rise: all at small sizes."""
    draw = random.Random(seed)
    duration_us = draw.choice([2_000_000, 4_000_000])
    low_us = draw.choice([1_000, 5_000, 20_000])
    points = [
        Point(draw.randrange(duration_us // 2), low_us),
        Point(duration_us // 2 + draw.randrange(1, duration_us // 2), low_us * draw.choice([1, 3, 20])),
    ]
    return Experiment(
        nodes=draw.choice([1, 2, 3, 4, 5, 6, 7, 9, 12]),
        seed=seed,
        duration_us=duration_us,
        joins_us=draw.choice([100_000, 500_000, duration_us // 2]),
        latency=points[: draw.choice([1, 2, 2])],
        shuffle_every_us=draw.choice([100_000, 300_000, 777_777]),
        shuffle_stop_us=draw.choice([duration_us, duration_us * 3 // 4]),
        broadcast_start_us=draw.choice([0, 100_000, duration_us // 3]),
        broadcast_stop_us=draw.choice([duration_us, duration_us * 3 // 4]),
        broadcast_every_us=draw.choice([20_000, 50_000, 100_000]),
        window_us=draw.choice([duration_us, 300_000, 1_000_000]),
        params={"timeout_us": 10**9},
    )


def compare(seeds: range) -> None:
    opened = 0
    for seed in seeds:
        experiment = drawn(seed)
        series = prc.run(experiment)
        assert series == dynamic.run(experiment), seed
        opened += series.opened
    assert opened > len(seeds)


@pytest.mark.parametrize("part", range(4))
def test_a_hundred_random_experiments(part: int) -> None:
    compare(range(part * 25, part * 25 + 25))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_a_thousand_random_experiments(part: int) -> None:
    compare(range(1_000 + part * 100, 1_000 + part * 100 + 100))


def test_more_slots_than_one_word() -> None:
    """Hubs have more than 64 links: the masks grow while the run goes on."""
    experiment = Experiment(
        nodes=800,
        seed=1,
        duration_us=33_000_000,
        joins_us=30_000_000,
        latency=[Point(0, 2_000)],
        shuffle_every_us=40_000_000,
        shuffle_stop_us=0,
        broadcast_start_us=31_000_000,
        broadcast_stop_us=32_000_000,
        broadcast_every_us=500_000,
        params={"timeout_us": 10**9},
    )
    series = prc.run(experiment)
    assert series.degree_max > 64
    assert series == dynamic.run(experiment)


def test_what_is_not_tested_is_refused() -> None:
    experiment = drawn(1)
    changes = [
        {"departures": [Departure(1, 0)]},
        {"params": {"timeout_us": 1}},
        {"params": {"own_after_echo": True}},
        {"protocol": "preventive"},
    ]
    for change in changes:
        other = Experiment(
            **{name: change.get(name, getattr(experiment, name)) for name in experiment.__struct_fields__}
        )
        with pytest.raises(MisuseError, match="dynamic"):
            prc.run(other)
        assert not dispatch.run_experiment(other)[1].kernel
    series, path = dispatch.run_experiment(experiment)
    assert path.kernel
    assert series == dynamic.run(experiment)
