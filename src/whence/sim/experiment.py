"""The experiment of paper 003 (section 3) as data: a group that joins, shuffles its links and broadcasts.

experiment = paper(10_000)                                # Figures 5a and 5b
experiment = load(Path("examples/experiments/prc.toml"))  # the same from a file

All links have the same delay at a time, which follows `latency` (linear between its points, never
falling), so no packet overtakes another. `sim/dynamic.py` runs it with the protocol's cores,
`kernels/prc/kernel.py` compiled.
"""

from __future__ import annotations

import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from whence.errors import ScenarioError
from whence.sim.distributions import Micros, PositiveMicros
from whence.sim.model import NODES_MAX, SEED_MAX

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US


class Point(Struct, frozen=True, forbid_unknown_fields=True):
    """From `at_us` on the delay goes in a straight line to that of the next point."""

    at_us: Micros
    delay_us: PositiveMicros


class Departure(Struct, frozen=True, forbid_unknown_fields=True):
    """A process crashes for good; its neighbours notice at once, and what was in flight is lost."""

    at_us: Micros
    node: Annotated[int, Meta(ge=0)]


class Experiment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run, complete: the same experiment gives the same events, always and everywhere."""

    nodes: Annotated[int, Meta(ge=1, le=NODES_MAX)]
    duration_us: PositiveMicros
    joins_us: PositiveMicros  # processes join one after the other, evenly, in this time
    latency: list[Point]
    shuffle_every_us: PositiveMicros
    shuffle_stop_us: Micros
    broadcast_start_us: Micros
    broadcast_stop_us: Micros
    broadcast_every_us: PositiveMicros
    window_us: PositiveMicros = MINUTE_US  # of the series
    seed: Annotated[int, Meta(ge=0, le=SEED_MAX)] = 1
    protocol: str = "prc"
    params: dict[str, Any] = field(default_factory=dict)
    departures: list[Departure] = field(default_factory=list)
    name: str = "experiment"


def paper(nodes: int, seed: int = 1) -> Experiment:
    """Section 3: an hour, the delay at 1 ms, rising to 2.5 s between the 15th and the 40th minute."""
    return Experiment(
        name=f"prc-{nodes}",
        nodes=nodes,
        seed=seed,
        duration_us=60 * MINUTE_US,
        joins_us=MINUTE_US,
        latency=[Point(15 * MINUTE_US, 1_000), Point(40 * MINUTE_US, 2_500_000)],
        shuffle_every_us=MINUTE_US,
        shuffle_stop_us=50 * MINUTE_US,
        broadcast_start_us=2 * MINUTE_US,
        broadcast_stop_us=50 * MINUTE_US,
        broadcast_every_us=SECOND_US // 10,
    )


def load(path: Path) -> Experiment:
    """Read an experiment from a TOML file."""
    try:
        return checked(msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Experiment))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ScenarioError(
            str(path), str(error), "See docs/prc.md for the fields of an experiment"
        ) from error


def checked(experiment: Experiment) -> Experiment:
    """The same experiment, if it can be run."""
    points = experiment.latency
    if not points:
        raise ScenarioError("experiment field 'latency'", "it has no point", "Give at_us and delay_us")
    for one, other in pairwise(points):
        if other.at_us <= one.at_us or other.delay_us < one.delay_us:
            raise ScenarioError(
                "experiment field 'latency'",
                f"the point at {other.at_us} comes before another, or falls",
                "Order the points; the delay must never fall, or packets would overtake",
            )
    for at, departure in enumerate(experiment.departures):
        if departure.node >= experiment.nodes:
            raise ScenarioError(
                f"experiment field 'departures[{at}].node'",
                f"there is no process {departure.node}",
                "Use less",
            )
    return experiment


def delay_us(points: list[Point], at_us: int) -> int:
    """The delay of what is sent at a time."""
    before = points[0]
    for point in points:
        if at_us < point.at_us:
            if point is before:
                return point.delay_us
            rise_us = point.delay_us - before.delay_us
            return before.delay_us + rise_us * (at_us - before.at_us) // (point.at_us - before.at_us)
        before = point
    return before.delay_us


def join_us(experiment: Experiment, node: int) -> int:
    """When a process asks to join; the first one founds the group at time 0."""
    return experiment.joins_us * node // experiment.nodes


class Window(Struct, frozen=True, kw_only=True):
    """What happened in [start_us, stop_us): sums, so that two ways to run can be held together exactly.

    `_us` sums are integrals over time in microseconds: divide by `process_us` for the mean of a process.
    """

    start_us: int
    stop_us: int
    process_us: int  # of how many processes took part
    expected_us: int  # of all entries in E
    buffered_us: int  # of all entries in buffers
    degree_us: int  # of the sizes of all in-views: the safe degree
    control: int  # α, β, π, ρ received, every hop
    deliveries: int
    receipts: int  # copies of messages that arrived


class Series(Struct, frozen=True, kw_only=True):
    """What a run gives: Figures 5a and 5b are its windows."""

    windows: list[Window]
    broadcasts: int
    deliveries: int
    receipts: int
    control: int
    opened: int  # handshakes that were begun
    degree_max: int
    expected_left: int  # entries in E when the run ended
    buffered_left: int
    logs: list[int]  # for each process a hash of what it delivered, when and in which order
