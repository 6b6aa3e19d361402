"""Paper 003: PRC-broadcast. Figures 5a and 5b, Table 1 measured, and the frontier to vector and barrier.

    hour        the paper's experiment, in the kernel
    degrees     its first minutes over many seeds, for joins alone decide the views
    smooth      its traffic second by second
    large       ten times its largest group, for some minutes
    growth      the protocols of Table 1 on static links, counted, along the number of processes, the degree
                and the messages in transit
    routes      the ways of control that Table 1 names besides, and graphs that hold nothing
    opening     PRC and preventive broadcast with their cores while links open and close, recorded and judged
                by the verifier
    churn       PRC while processes come and go under traffic
    frontier    what PRC, vector clocks and causal barriers cost as broadcasts become more frequent

An hour has two profiles: `text`, as the paper describes it, and `authors`, as its authors' program does it.
docs/studies-prc.md says how the paper is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

from whence.sim.distributions import Constant, Ramp
from whence.sim.model import (
    Anyone,
    Crash,
    Link,
    Overlay,
    Random,
    Record,
    Scenario,
    Stop,
    Window,
    node_names,
)
from whence.studies.base import Point, Study, compile_kernel
from whence.studies.claims import load
from whence.studies.prc import measures, page
from whence.studies.prc.claims import CLAIMS
from whence.studies.prc.measures import (
    AUTHORS,
    BASELINES,
    CHURN,
    DEGREES,
    FLOODING,
    FRONTIER,
    GROWTH,
    HOUR,
    HOUR_DELAYS,
    LARGE,
    MINUTE_US,
    OPENING,
    PROFILES,
    ROUTES,
    SECOND_US,
    SMOOTH,
    TEXT,
)

LevelName: TypeAlias = Literal["measures", "deliveries", "all"]
Sampling: TypeAlias = Literal["spray", "authors"]

FRONTIER_DELAY_MS = 300  # the paper's "realistic bound"
JOIN_BATCH, JOIN_EVERY_US = 10, 100_000  # of the authors' program
CHURN_DELAY_US = 50_000
ROUNDS_MIN = 3  # broadcasts of each process in a run on static links
DELAYS_MIN = 10  # that such a run lasts: what is in transit must settle before it is sampled
VIEW_MINUTES = 9  # after which the views are known
LARGE_MINUTES = 4
WARM_UP_US = 5 * SECOND_US  # many delays: what is in transit has settled


class Base(NamedTuple):
    """Where the lines through Table 1 cross."""

    nodes: int
    degree: int
    delay_ms: int
    rate: int


class PrcScale(NamedTuple):
    """How much is run."""

    hours: Mapping[int, int]  # processes -> seeds, in each profile
    views: Mapping[int, int]  # processes -> seeds of the first minutes
    smooth: Mapping[int, int]  # processes -> seeds of an hour second by second
    large: tuple[int, ...]  # processes of a few minutes
    seeds: int  # of Table 1
    base: Base
    nodes: tuple[int, ...]  # Table 1 against each of these three
    degrees: tuple[int, ...]
    delays_ms: tuple[int, ...]
    rates: tuple[int, ...]  # of the frontier
    prc_nodes: tuple[int, ...]
    flood_nodes: Mapping[int, int]  # processes -> degree, as Spray's views have it
    flood_rates: tuple[int, ...]
    openers: tuple[int, ...]  # sizes at which links are opened with the cores, recorded and judged
    churns: int  # seeds of runs in which processes come and go
    routes: tuple[int, ...]  # processes of the ways of control: powers of two
    text: str


SCALES = {
    "demo": PrcScale(
        {100: 20, 1_000: 3},
        {100: 20, 1_000: 20},
        {100: 5},
        (),
        3,
        Base(40, 4, 20, 100),
        (16, 40, 128),
        (4, 8, 32),
        (20, 80, 320),
        (1, 10, 100),
        (25, 50, 100, 1_000),
        {25: 8, 50: 8, 100: 10},
        (10, 100),
        (12, 24),
        3,
        (4, 8, 16, 32, 64),
        "the hour with 100 and 1,000 processes, views over 20 seeds; Table 1 to 128; the frontier to 1,000",
    ),
    "paper": PrcScale(
        {100: 20, 1_000: 10, 10_000: 1},
        {100: 20, 1_000: 20, 10_000: 20},
        {100: 5, 1_000: 5},
        (100_000,),
        3,
        Base(40, 4, 20, 100),
        (16, 40, 64, 128),
        (4, 8, 16, 32),
        (20, 80, 320, 1_280),
        (1, 10, 100, 1_000),
        (25, 50, 100, 1_000, 10_000),
        {25: 8, 50: 8, 100: 10},
        (10, 100),
        (12, 24, 48),
        10,
        (4, 8, 16, 32, 64, 128, 256),
        "the hour with 100, 1,000 and 10,000 processes, minutes with 100,000, views over 20 seeds; Table 1 "
        "to 128; the frontier to 10,000",
    ),
    "tiny": PrcScale(
        {24: 1},
        {24: 2},
        {24: 1},
        (),
        1,
        Base(8, 4, 20, 100),
        (8, 16, 32),
        (4, 6),
        (20, 80),
        (10, 100),
        (16, 32),
        {16: 6, 32: 6},
        (10, 100),
        (12,),
        1,
        (4, 8),
        "an hour of 24 processes; Table 1 up to 32; the frontier up to 32",
    ),
}
RATE_SEEDS, RATE_SEEDS_NODES = 5, 100  # of the frontier: several up to this size
RECEIPTS_MAX = 3 * 10**9  # of one run of the frontier: a minute or two of the kernel's time


def changing(
    *,
    nodes: int,
    duration_us: int,
    joins_us: int,
    delays: Sequence[tuple[int, int]],
    shuffle_every_us: int,
    shuffle_stop_us: int,
    broadcast_start_us: int,
    broadcast_stop_us: int,
    broadcast_every_us: int,
    window_us: int = MINUTE_US,
    seed: int = 1,
    protocol: str = "prc",
    params: Mapping[str, Any] | None = None,
    departures: Sequence[tuple[int, int]] = (),  # (time_us, node)
    join_batch: int = 1,
    sampling: Sampling = "spray",
    level: LevelName = "measures",
    name: str = "prc",
) -> Scenario:
    """Return a run over links that open and close; `delays` are the points of a ramp, (at_us, delay_us)."""
    names = node_names(nodes)
    return Scenario(
        name=name,
        nodes=nodes,
        protocol=protocol,
        seed=seed,
        params=dict(params or {}),
        topology=Overlay(
            joins_us=joins_us,
            join_batch=join_batch,
            shuffle_every_us=shuffle_every_us,
            shuffle_stop_us=shuffle_stop_us,
            sampling=sampling,
        ),
        link=Link(delay=Ramp(points=tuple(delays))),
        workloads=[
            Anyone(
                interval_us=broadcast_every_us,
                start_us=broadcast_start_us,
                stop_us=broadcast_stop_us,
                payload_bytes=0,
            )
        ],
        faults=[Crash(nodes=[names[node]], at_us=at_us) for at_us, node in departures],
        stop=Stop(duration_us=duration_us, drain=False),
        record=Record(level=level, window_us=window_us),
    )


def hour(
    nodes: int,
    seed: int = 1,
    profile: str = TEXT,
    *,
    minutes: int = 60,
    broadcasts: tuple[int, int] = (2, 50),  # from one minute to another
    every_us: int = SECOND_US // 10,
    window_us: int = MINUTE_US,
) -> Scenario:
    """Section 3: an hour, the delay at 1 ms, rising to 2.5 s between the 15th and the 40th minute.

    Of `minutes` fewer than 60 the hour's first. In the authors' program ten processes join every 100 ms, the
    delay rises in steps, and links in use are not exchanged.
    """
    by_authors = profile == AUTHORS
    return changing(
        name=f"prc-{nodes}",
        nodes=nodes,
        seed=seed,
        duration_us=minutes * MINUTE_US,
        joins_us=max(1, nodes // JOIN_BATCH) * JOIN_EVERY_US if by_authors else MINUTE_US,
        join_batch=JOIN_BATCH if by_authors else 1,
        sampling="authors" if by_authors else "spray",
        delays=HOUR_DELAYS[profile].points,
        shuffle_every_us=MINUTE_US,
        shuffle_stop_us=50 * MINUTE_US,
        broadcast_start_us=broadcasts[0] * MINUTE_US,
        broadcast_stop_us=broadcasts[1] * MINUTE_US,
        broadcast_every_us=every_us,
        window_us=window_us,
    )


def churn(nodes: int, seed: int, level: LevelName) -> Scenario:
    """Processes come during the first half of the broadcasts, and every third leaves during the second."""
    start_us, lasting_us = SECOND_US, 8 * SECOND_US
    leavers = range(2, nodes, 3)
    gap_us = lasting_us // 2 // len(leavers)
    return changing(
        name="prc-churn",
        nodes=nodes,
        seed=seed,
        duration_us=start_us + lasting_us + 5 * SECOND_US,
        joins_us=start_us + lasting_us // 2,
        delays=[(0, CHURN_DELAY_US)],
        shuffle_every_us=SECOND_US,
        shuffle_stop_us=start_us + lasting_us,
        broadcast_start_us=start_us,
        broadcast_stop_us=start_us + lasting_us,
        broadcast_every_us=SECOND_US // 20,
        window_us=SECOND_US,
        params={"timeout_us": SECOND_US // 2},
        departures=[(start_us + lasting_us // 2 + at * gap_us, node) for at, node in enumerate(leavers)],
        level=level,
    )


def rate_run(nodes: int, rate: int, seed: int) -> Scenario:
    """PRC for the frontier: half a minute of broadcasts after the joins, shuffling every minute."""
    start_us = MINUTE_US + WARM_UP_US
    stop_us = start_us + WARM_UP_US + MINUTE_US // 2
    return changing(
        name="prc-frontier",
        nodes=nodes,
        seed=seed,
        duration_us=stop_us,
        joins_us=MINUTE_US,
        delays=[(MINUTE_US, 1_000), (MINUTE_US + 1, FRONTIER_DELAY_MS * 1_000)],
        shuffle_every_us=MINUTE_US,
        shuffle_stop_us=stop_us,
        broadcast_start_us=start_us,
        broadcast_stop_us=stop_us,
        broadcast_every_us=SECOND_US // rate,
        window_us=WARM_UP_US,
    )


def opening(protocol: str, nodes: int, rate: int, seed: int, level: LevelName) -> Scenario:
    """Links that open and close under traffic, with the cores: what a link costs, for the verifier too."""
    start_us, lasting_us = 3 * SECOND_US, 5 * SECOND_US
    return changing(
        name="prc-opening",
        protocol=protocol,
        nodes=nodes,
        seed=seed,
        duration_us=start_us + lasting_us + 10 * FRONTIER_DELAY_MS * 1_000 + 2 * SECOND_US,
        joins_us=SECOND_US,
        delays=[(SECOND_US, 1_000), (SECOND_US + 1, FRONTIER_DELAY_MS * 1_000)],
        shuffle_every_us=2 * SECOND_US,
        shuffle_stop_us=start_us + lasting_us,
        broadcast_start_us=start_us,  # all have joined: each of them must deliver everything
        broadcast_stop_us=start_us + lasting_us,
        broadcast_every_us=SECOND_US // rate,
        window_us=SECOND_US,
        level=level,
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


def labels(part: str, protocol: str, place: Base, seed: int, profile: str = TEXT) -> dict[str, Any]:
    """The coordinates of a run."""
    return {"part": part, "protocol": protocol, "profile": profile, **place._asdict(), "seed": seed}


def _hours(wanted: PrcScale) -> list[Point]:
    found = []
    for profile in PROFILES:
        for part, sizes, make in (
            (HOUR, wanted.hours, hour),
            (DEGREES, wanted.views, partial(hour, minutes=VIEW_MINUTES, every_us=10 * MINUTE_US)),
            (SMOOTH, wanted.smooth, partial(hour, window_us=SECOND_US)),
        ):
            for nodes, seeds in sizes.items():
                for seed in range(1, seeds + 1):
                    at = labels(part, "prc", Base(nodes, 0, 0, 10), seed, profile)
                    found.append(Point(at, make(nodes, seed, profile)))
    for nodes in wanted.large:
        run = hour(nodes, minutes=LARGE_MINUTES, broadcasts=(LARGE_MINUTES - 2, LARGE_MINUTES - 1))
        found.append(Point(labels(LARGE, "prc", Base(nodes, 0, 0, 10), 1), run))
    return found


def _growth(wanted: PrcScale) -> list[Point]:
    """Lines along three axes through one base point, which they share."""
    base = wanted.base
    places = [base._replace(nodes=nodes) for nodes in wanted.nodes]
    places += [base._replace(degree=degree) for degree in wanted.degrees]
    places += [base._replace(delay_ms=delay_ms) for delay_ms in wanted.delays_ms]
    return [
        Point(
            labels(GROWTH, protocol, place, seed),
            static(protocol, *place, seed, "deliveries" if place == base else "measures"),
        )
        for place in dict.fromkeys(places)
        for protocol in BASELINES
        for seed in range(1, wanted.seeds + 1)
    ]


def _routes(wanted: PrcScale) -> list[Point]:
    """The ways of control, all in one point of each size."""
    return [
        Point(
            labels(ROUTES, "prc", Base(nodes, 0, 0, 0), 1),
            Scenario(
                name="prc-routes",
                nodes=nodes,
                protocol="prc",
                workloads=[Window(count=1, stop_us=1)],
                stop=Stop(duration_us=1),
                record=Record(level="measures"),
            ),
            task="routes",
        )
        for nodes in wanted.routes
    ]


def _churns(wanted: PrcScale) -> list[Point]:
    nodes = wanted.openers[-1]
    place = Base(nodes, 0, CHURN_DELAY_US // 1_000, 20)
    return [
        Point(labels(CHURN, "prc", place, seed), churn(nodes, seed, "deliveries"))
        for seed in range(1, wanted.churns + 1)
    ]


def _openings(wanted: PrcScale) -> list[Point]:
    found = []
    for nodes in wanted.openers:
        for protocol in ("prc", "preventive"):
            for rate in (10, 40) if nodes == wanted.openers[-1] else (10,):
                is_small = nodes == wanted.openers[0]
                run = opening(protocol, nodes, rate, 1, "all" if is_small else "deliveries")
                found.append(
                    Point(labels(OPENING, protocol, Base(nodes, 0, FRONTIER_DELAY_MS, rate), 1), run)
                )
    return found


def _frontier(wanted: PrcScale) -> list[Point]:
    found = []
    for nodes in wanted.prc_nodes:
        for rate in wanted.rates:
            if rate * 40 * nodes * 15 <= RECEIPTS_MAX:
                place = Base(nodes, 0, FRONTIER_DELAY_MS, rate)
                for seed in range(1, 1 + (RATE_SEEDS if nodes <= RATE_SEEDS_NODES else 1)):
                    found.append(Point(labels(FRONTIER, "prc", place, seed), rate_run(nodes, rate, seed)))
    for nodes, degree in wanted.flood_nodes.items():
        for rate in wanted.flood_rates:
            for protocol in FLOODING:
                place = Base(nodes, degree, FRONTIER_DELAY_MS, rate)
                found.append(
                    Point(labels(FRONTIER, protocol, place, 1), static(protocol, *place, 1, "measures"))
                )
    return found


def _grid(scale: str) -> list[Point]:
    wanted = SCALES[scale]
    parts = (_hours, _growth, _routes, _openings, _churns, _frontier)
    return [point for part in parts for point in part(wanted)]


STUDY = Study(
    name="prc",
    title="PRC-broadcast: causal order with a memory of what is in transit only",
    paper="paper 003, PRC-broadcast, section 3 (Figures 5a and 5b) and Table 1",
    summary=(
        "An overlay changes all the time, and every message carries one number. What a process remembers is "
        "what it still expects over its links: it grows with delay, rate and degree, and ends at nothing. "
        "This page repeats the paper's hour, measures its Table 1 instead of quoting it, and shows where "
        "vector clocks or causal barriers cost less."
    ),
    scales={name: scale.text for name, scale in SCALES.items()},
    claims=(*load(__package__), *CLAIMS),
    grid=_grid,
    preparation=partial(compile_kernel, "prc"),
    runners={"run": measures.run_point, "routes": measures.run_routes},
    derive=measures.derive,
    derived=measures.derived,
    tables=page.tables,
    figures=page.figures,
    headline=page.hours,
    findings=page.findings,
)
