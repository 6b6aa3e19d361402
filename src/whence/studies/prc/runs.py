"""The runs of the PRC study: which experiments and scenarios there are, at each scale.

A sweep runs scenarios, and an experiment with changing links is none. It goes into one as its name, whole, so
that the run's id stands for every parameter: `carry` puts it in, `carried` takes it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from whence.sim.distributions import Constant
from whence.sim.experiment import MINUTE_US, SECOND_US, Experiment, paper
from whence.sim.experiment import Point as LatencyPoint
from whence.sim.model import Link, Periodic, Random, Record, Ring, Scenario, Stop, Window

LevelName: TypeAlias = Literal["measures", "deliveries", "all"]

HOUR, GROWTH, OPENING, FRONTIER = "hour", "growth", "opening", "frontier"
BASELINES = ("reliable", "vector", "preventive", "link_memory")  # the lines of Table 1 on static links
FLOODING = ("vector", "barrier")  # what PRC is weighed against
FRONTIER_DELAY_MS = 300  # the paper's "realistic bound"
ROUNDS_MIN = 3  # broadcasts of each process in a run on static links
DELAYS_MIN = 10  # that such a run lasts: what is in transit must settle before it is sampled
WARM_UP_US = 5 * SECOND_US  # many delays: what is in transit has settled


class Base(NamedTuple):
    """Where the lines through Table 1 cross."""

    nodes: int
    degree: int
    delay_ms: int
    rate: int


class Scale(NamedTuple):
    """How much is run."""

    hours: Mapping[int, int]  # processes -> seeds
    base: Base
    nodes: tuple[int, ...]  # Table 1 against each of these three
    degrees: tuple[int, ...]
    delays_ms: tuple[int, ...]
    rates: tuple[int, ...]  # of the frontier
    prc_nodes: tuple[int, ...]
    flood_nodes: Mapping[int, int]  # processes -> degree, as Spray's views have it
    flood_rates: tuple[int, ...]
    openers: tuple[int, ...]  # sizes at which links are opened with the cores, recorded and judged
    text: str


SCALES = {
    "demo": Scale(
        {100: 3, 1_000: 1},
        Base(32, 4, 20, 100),
        (16, 32, 64),
        (4, 8, 16),
        (20, 80, 320),
        (1, 10, 100),
        (25, 50, 100, 1_000),
        {25: 8, 50: 8, 100: 10},
        (10, 100),
        (12, 24),
        "the hour with 100 and 1,000 processes; Table 1 up to 64; the frontier up to 1,000",
    ),
    "paper": Scale(
        {100: 5, 1_000: 1, 10_000: 1},
        Base(32, 4, 20, 100),
        (16, 32, 64, 128),
        (4, 8, 16, 24),
        (20, 80, 320, 1_280),
        (1, 10, 100, 1_000),
        (25, 50, 100, 1_000, 10_000),
        {25: 8, 50: 8, 100: 10},
        (10, 100),
        (12, 24, 48),
        "the hour with 100, 1,000 and 10,000 processes; Table 1 up to 128; the frontier up to 10,000",
    ),
    "tiny": Scale(
        {24: 1},
        Base(8, 4, 20, 100),
        (8, 16, 32),
        (4, 6),
        (20, 80),
        (10, 100),
        (16, 32),
        {16: 6, 32: 6},
        (10, 100),
        (12,),
        "an hour of 24 processes; Table 1 up to 32; the frontier up to 32",
    ),
}
RECEIPTS_MAX = 3 * 10**9  # of one run of the frontier: a minute or two of the kernel's time


def carry(experiment: Experiment, level: LevelName) -> Scenario:
    """A scenario that stands for an experiment in a sweep. Its other fields repeat what they can."""
    start_us, stop_us = experiment.broadcast_start_us, experiment.broadcast_stop_us
    return Scenario(
        name=msgspec.json.encode(experiment).decode(),
        nodes=experiment.nodes,
        protocol=experiment.protocol,
        seed=experiment.seed,
        params={
            "links": "dynamic",
            **experiment.params,
        },  # as the engine has it: a replay makes the same cores
        topology=Ring(),  # the real links come and go
        link=Link(delay=Constant(value_us=experiment.latency[-1].delay_us)),
        workloads=[
            Periodic(interval_us=experiment.broadcast_every_us, senders=1, start_us=start_us, stop_us=stop_us)
        ],
        stop=Stop(duration_us=experiment.duration_us),
        record=Record(level=level),
    )


def carried(scenario: Scenario) -> Experiment | None:
    """The experiment that a scenario stands for; None if it is an ordinary one."""
    if not scenario.name.startswith("{"):
        return None
    return msgspec.json.decode(scenario.name, type=Experiment)


def hour(nodes: int, seed: int) -> Scenario:
    """Section 3 of the paper."""
    return carry(paper(nodes, seed), "measures")


def rate_run(nodes: int, rate: int, seed: int) -> Scenario:
    """PRC for the frontier: half a minute of broadcasts after the joins, shuffling every minute."""
    start_us = MINUTE_US + WARM_UP_US
    stop_us = start_us + WARM_UP_US + MINUTE_US // 2
    delay_us = FRONTIER_DELAY_MS * 1_000
    return carry(
        Experiment(
            name="frontier",
            nodes=nodes,
            seed=seed,
            duration_us=stop_us,
            joins_us=MINUTE_US,
            latency=[LatencyPoint(MINUTE_US, 1_000), LatencyPoint(MINUTE_US + 1, delay_us)],
            shuffle_every_us=MINUTE_US,
            shuffle_stop_us=stop_us,
            broadcast_start_us=start_us,
            broadcast_stop_us=stop_us,
            broadcast_every_us=SECOND_US // rate,
            window_us=WARM_UP_US,
        ),
        "measures",
    )


def opening(protocol: str, nodes: int, rate: int, seed: int, level: LevelName) -> Scenario:
    """Links that open and close under traffic, with the cores: what a link costs, for the verifier too."""
    start_us, lasting_us = 3 * SECOND_US, 5 * SECOND_US
    return carry(
        Experiment(
            name="opening",
            protocol=protocol,
            nodes=nodes,
            seed=seed,
            duration_us=start_us + lasting_us + 10 * FRONTIER_DELAY_MS * 1_000 + 2 * SECOND_US,
            joins_us=SECOND_US,
            latency=[LatencyPoint(SECOND_US, 1_000), LatencyPoint(SECOND_US + 1, FRONTIER_DELAY_MS * 1_000)],
            shuffle_every_us=2 * SECOND_US,
            shuffle_stop_us=start_us + lasting_us,
            broadcast_start_us=start_us,  # all have joined: each of them must deliver everything
            broadcast_stop_us=start_us + lasting_us,
            broadcast_every_us=SECOND_US // rate,
            window_us=SECOND_US,
        ),
        level,
    )


def static(
    protocol: str, nodes: int, degree: int, delay_ms: int, rate: int, seed: int, level: LevelName
) -> Scenario:
    """A protocol of Table 1 on links that stay; every process broadcasts as often as the others."""
    settled = -(-DELAYS_MIN * delay_ms * rate // (1_000 * nodes))
    rounds = max(ROUNDS_MIN, settled)
    window_us = rounds * nodes * SECOND_US // rate
    return Scenario(
        name="prc-static",
        nodes=nodes,
        protocol=protocol,
        seed=seed,
        topology=Random(degree=degree),
        link=Link(delay=Constant(value_us=delay_ms * 1_000)),
        workloads=[Window(count=rounds, stop_us=window_us, payload_bytes=0)],
        stop=Stop(duration_us=window_us),
        record=Record(level=level, sample_every_us=max(1, window_us // 50)),
    )


def labels(part: str, protocol: str, place: Base, seed: int) -> dict[str, Any]:
    """The coordinates of a run."""
    return {"part": part, "protocol": protocol, **place._asdict(), "seed": seed}
