"""Paper 001: causal and Δ-causal barriers in opportunistic networks, every table and figure of section VI.

Buses (moderate churn) and walkers (high churn) carry each other's messages. The runs are the kernel's, over
plans that are generated to have the paper's statistics; `published` is the codes as printed, `safe` our
default, on the same plans. Beyond the paper: clocks that are wrong, traces of real contacts, and the smallest
lifetime that delivers a wanted share. docs/studies-oppnet.md says how the paper is read, and what differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple

from whence.core.rng import below, purpose, stream
from whence.overlay.contacts import ContactPlan
from whence.sim.distributions import Constant
from whence.sim.model import Contacts, Link, Periodic, Record, Scenario, Skew, Stop
from whence.studies.base import Point, Study, compile_kernel
from whence.studies.claims import load
from whence.studies.oppnet import data as oppnet_data
from whence.studies.oppnet import measures, page
from whence.studies.oppnet.claims import BUSES, CLAIMS, MODES, WALKERS
from whence.studies.results import Label

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOP_US = 2_000  # of a packet: the least transmission delay of Tables III and VI
# When a node broadcasts first, and how often. The paper starts walkers at 20 s, which with its own stay times
# gives more than the 10,557 broadcasts that it counts; 43 s gives these. Real traces: as buses.
FIRST_US = {WALKERS: 43 * SECOND_US, BUSES: 20 * SECOND_US}
INTERVAL_US = {WALKERS: MINUTE_US, BUSES: 20 * MINUTE_US}


class ExchangeRate(NamedTuple):
    """What the paper does not say of a contact."""

    rate: int  # messages per second and direction
    setup_s: int  # the longest time before the exchange begins


CHOSEN = ExchangeRate(8, 5)  # by the specification's own sweep; `region` shows how far ours bears it out


class OppnetScale(NamedTuple):
    """How much is run. Lifetimes in minutes, 0: none; seeds: how many."""

    lifetimes: Mapping[str, tuple[int, ...]]  # of the paper's scenarios
    seeds: Mapping[str, int]  # of the codes as printed
    safe_seeds: int
    region: Mapping[str, tuple[int, ...]]  # lifetimes of each plan under every exchange
    rates: tuple[int, ...]
    setups_s: tuple[int, ...]
    first_seeds: int  # of walkers that broadcast at first when the paper says
    capacities: tuple[int, ...]  # of caches; 0: as much as there is
    options: Mapping[str, Mapping[str, Any]]  # of the generators
    skewed: tuple[int, ...]  # lifetimes of walkers with wrong clocks
    skew_seeds: int
    traces: tuple[int, ...]  # lifetimes on real traces
    trace_seeds: int
    advice: Mapping[str, int]  # plan -> seeds; real traces that are not there are left out
    text: str


_ALL = {BUSES: (0, 120, 60, 40, 20, 10), WALKERS: (20, 15, 10, 5)}
SKEWS_S = (5, 30)  # either way
PRINTED_FIRST_S = 20  # of walkers
SHORT_DAY = {"duration_s": 7_200.0, "longest_day_s": 7_000.0, "shorter_by_s": 2_000.0}  # of buses
_CLOCKS = purpose("skew")
SCALES = {
    "demo": OppnetScale(
        {BUSES: _ALL[BUSES], WALKERS: (20, 5)},
        {BUSES: 5, WALKERS: 2},
        1,
        {BUSES: (0, 20), WALKERS: (5,)},
        (4, 8, 16),
        (0, 10),
        2,
        (0, 100, 20),
        {},
        (5,),
        1,
        (60,),
        1,
        {BUSES: 1, WALKERS: 1, "Infocom 2005": 1, "Intel": 1, "Cairns": 1},
        "buses: 6 lifetimes, 5 seeds; walkers: 2 lifetimes, 2 seeds; 6 ways to exchange",
    ),
    "paper": OppnetScale(
        _ALL,
        {BUSES: 20, WALKERS: 20},
        3,
        {BUSES: _ALL[BUSES], WALKERS: (5,)},
        (4, 8, 16, 32),
        (0, 5, 10),
        5,
        (0, 400, 100, 20),
        {},
        (5,),
        2,
        (60,),
        1,
        # WS16 is left to the scale `all`: a bisection of some twenty runs of up to 14 seconds each.
        {BUSES: 1, WALKERS: 1, "Infocom 2005": 1, "Intel": 1, "Cairns": 1},
        "buses: 6 lifetimes; walkers: 4; 20 seeds; 12 ways to exchange; real traces that are there, 60′",
    ),
    "tiny": OppnetScale(
        {BUSES: (0, 20), WALKERS: (5,)},
        {BUSES: 2, WALKERS: 2},
        2,
        {BUSES: (20,), WALKERS: (5,)},
        (4, 8),
        (0, 10),
        1,
        (0, 20),
        {BUSES: SHORT_DAY,
         WALKERS: {"duration_s": 1_500.0}},
        (5,),
        1,
        (60,),
        1,
        {BUSES: 1, "Intel": 1},
        "two hours of buses, 25 minutes of walkers",
    ),
}  # fmt: skip
SCALES["all"] = SCALES["paper"]._replace(
    region={BUSES: _ALL[BUSES], WALKERS: (20, 5)},
    skewed=(20, 5),
    traces=(20, 60, 240),
    advice={"WS16": 1, WALKERS: 1, "Infocom 2005": 1, BUSES: 3, "Intel": 1, "Cairns": 1},
    text="as `paper`, and more beyond it: three lifetimes on every real trace, the advice of WS16 too",
)


def scenario(
    topology: Contacts,
    lifetime: int | None,
    mode: str,
    seed: int,
    level: Literal["measures", "deliveries"],
    *,
    skew_s: int = 0,
    exchange: ExchangeRate = CHOSEN,
    first_s: int | None = None,
    capacity: int = 0,
    name: str = "oppnet",
) -> Scenario:
    """One run. `lifetime` in minutes, 0 for none; clocks are off by up to `skew_s` either way."""
    nodes, stop_us = size_of(topology, seed)
    kind = WALKERS if topology.generator == WALKERS else BUSES
    params: dict[str, Any] = {
        "mode": mode,
        "gap_us": SECOND_US // exchange.rate,
        "setup_max_us": exchange.setup_s * SECOND_US,
    }
    if capacity:
        params["capacity"] = capacity
    first_us = FIRST_US[kind] if first_s is None else first_s * SECOND_US
    if lifetime:
        params["lifetime_us"] = lifetime * MINUTE_US
    if skew_s and mode == "safe":
        params["skew_us"] = 2 * skew_s * SECOND_US
    return Scenario(
        name=name,
        protocol="oppnet",
        nodes=nodes,
        seed=seed,
        params=params,
        topology=topology,
        link=Link(delay=Constant(value_us=HOP_US)),
        workloads=[Periodic(interval_us=INTERVAL_US[kind], start_us=first_us, from_entry=True)],
        faults=[Skew(nodes="all", offsets_us=_offsets_us(nodes, skew_s, seed))] if skew_s else [],
        stop=Stop(duration_us=stop_us, drain=False),
        record=Record(level=level),
    )


def _offsets_us(nodes: int, skew_s: int, seed: int) -> list[int]:
    """Draw clocks that are off by up to `skew_s` either way, and count them from the slowest one.

    Nothing compares a clock with anything but another clock, and none may be behind true time.
    """
    span_us = 2 * skew_s * SECOND_US + 1
    drawn_us = [below(stream(seed, _CLOCKS, 0, node), 0, span_us) for node in range(nodes)]
    least_us = min(drawn_us)
    return [offset_us - least_us for offset_us in drawn_us]


def size_of(topology: Contacts, seed: int) -> tuple[int, int]:
    """How many nodes a plan has, and when it ends: a scenario must say so."""
    import msgspec

    return _size(msgspec.json.encode(topology), seed if topology.file is None else 0)


@lru_cache(maxsize=256)
def _size(encoded: bytes, seed: int) -> tuple[int, int]:
    import msgspec

    plan = _plan(msgspec.json.decode(encoded, type=Contacts), seed)
    return len(plan.nodes), plan.stop_us


def _plan(topology: Contacts, seed: int) -> ContactPlan:
    if topology.file is not None:
        from whence.mobility.sources import read_contacts

        return read_contacts(topology.file, topology.format).plan
    if topology.generator == BUSES:
        from whence.mobility.buses import BusCity, bus_plan

        return bus_plan(seed, BusCity(**topology.options))
    from whence.mobility.walkers import WalkerCity, walker_plan

    return walker_plan(seed, WalkerCity(**topology.options))


def _point(
    part: str,
    plan: str,
    lifetime: int,
    mode: str,
    skew_s: int,
    seed: int,
    run: Scenario,
    task: str = "run",
    *,
    exchange: ExchangeRate = CHOSEN,
    capacity: int = 0,
) -> Point:
    labels: dict[str, Label] = {
        "part": part,
        "plan": plan,
        "lifetime": lifetime,
        "mode": mode,
        "skew_s": skew_s,
        **exchange._asdict(),
        "capacity": capacity,
        "seed": seed,
    }
    return Point(labels, run, task)


def _generated(wanted: OppnetScale, plan: Literal["buses", "walkers"]) -> Contacts:
    return Contacts(generator=plan, options=dict(wanted.options.get(plan, {})))


def _main(wanted: OppnetScale) -> Iterator[Point]:
    plans: tuple[Literal["buses", "walkers"], ...] = ("buses", "walkers")
    for plan in plans:
        for lifetime in wanted.lifetimes[plan]:
            for mode in MODES:
                seeds = wanted.seeds[plan] if mode == "published" else wanted.safe_seeds
                for seed in range(1, seeds + 1):
                    level: Literal["measures", "deliveries"] = "deliveries" if seed == 1 else "measures"
                    run = scenario(_generated(wanted, plan), lifetime, mode, seed, level)
                    yield _point("main", plan, lifetime, mode, 0, seed, run)


def _region(wanted: OppnetScale) -> Iterator[Point]:
    """The codes as printed under every rate and set-up time: which agree with the paper's latencies?"""
    plans: tuple[Literal["buses", "walkers"], ...] = ("buses", "walkers")
    for plan in plans:
        for exchange in (ExchangeRate(rate, setup_s) for rate in wanted.rates for setup_s in wanted.setups_s):
            for lifetime in wanted.region[plan]:
                run = scenario(
                    _generated(wanted, plan), lifetime, "published", 1, "measures", exchange=exchange,
                    name="oppnet-region",
                )  # fmt: skip
                yield _point("region", plan, lifetime, "published", 0, 1, run, exchange=exchange)


def _first(wanted: OppnetScale) -> Iterator[Point]:
    """Walkers whose first broadcast is 20 s after they enter, as printed."""
    for seed in range(1, wanted.first_seeds + 1):
        topology = _generated(wanted, "walkers")
        run = scenario(topology, 5, "published", seed, "measures", first_s=PRINTED_FIRST_S)
        yield _point("first", WALKERS, 5, "published", 0, seed, run)


def _capacities(wanted: OppnetScale) -> Iterator[Point]:
    """Two hours of buses with caches that hold so much; the cores, for the kernel knows no limit."""
    topology = Contacts(generator="buses", options=dict(SHORT_DAY))
    for capacity in wanted.capacities:
        run = scenario(topology, 20, "safe", 1, "deliveries", capacity=capacity, name="oppnet-capacity")
        yield _point("capacity", BUSES, 20, "safe", 0, 1, run, "cores", capacity=capacity)


def _skewed(wanted: OppnetScale) -> Iterator[Point]:
    for lifetime in wanted.skewed:
        for skew_s in SKEWS_S:
            for mode in MODES:
                for seed in range(1, wanted.skew_seeds + 1):
                    topology = _generated(wanted, "walkers")
                    run = scenario(topology, lifetime, mode, seed, "deliveries", skew_s=skew_s)
                    yield _point("skew", WALKERS, lifetime, mode, skew_s, seed, run)


def _traces(wanted: OppnetScale) -> Iterator[Point]:
    for plan, path in oppnet_data.find().items():
        topology = Contacts(file=str(path), format=oppnet_data.DATA_SETS[plan].format)
        for lifetime in wanted.traces:
            for mode in MODES:
                for seed in range(1, wanted.trace_seeds + 1):
                    level: Literal["measures", "deliveries"] = "deliveries" if seed == 1 else "measures"
                    run = scenario(topology, lifetime, mode, seed, level)
                    yield _point("trace", plan, lifetime, mode, 0, seed, run)


def _advice(wanted: OppnetScale) -> Iterator[Point]:
    there = oppnet_data.find()
    for plan, seeds in wanted.advice.items():
        if plan in (BUSES, WALKERS):
            topology = _generated(wanted, "buses" if plan == BUSES else "walkers")
        elif plan in there:
            topology = Contacts(file=str(there[plan]), format=oppnet_data.DATA_SETS[plan].format)
        else:
            continue
        for seed in range(1, seeds + 1):
            run = scenario(topology, None, "safe", seed, "measures", name="oppnet-advice")
            yield _point("advice", plan, 0, "safe", 0, seed, run, "advice")


def _grid(scale: str) -> list[Point]:
    wanted = SCALES[scale]
    # The longest run of all is a bisection: it begins first.
    parts = (_advice, _main, _region, _first, _capacities, _skewed, _traces)
    return [point for part in parts for point in part(wanted)]


STUDY = Study(
    name="oppnet",
    title="Causal barriers in opportunistic networks: order without knowing the group",
    paper="paper 001, causal and Δ-causal broadcast in opportunistic networks, section VI",
    summary=(
        "Buses and walkers meet now and then, and carry each other's messages in between. Each message names "
        "its immediate predecessors, and waits where they are missing, until they come or their lifetime is "
        "over. Every table and figure of the paper's evaluation is set beside generated plans of the same "
        "statistics, the codes as printed beside our safe ones; then clocks that are wrong, traces of real "
        "contacts, and the smallest lifetime that delivers a wanted share."
    ),
    scales={name: scale.text for name, scale in SCALES.items()},
    claims=(*load(__package__), *CLAIMS),
    grid=_grid,
    preparation=partial(compile_kernel, "oppnet"),
    runners={"run": measures.run_point, "advice": measures.advise, "cores": measures.run_cores},
    derive=measures.derive,
    derived=measures.derived,
    tables=page.tables,
    figures=page.figures,
    headline=page.headline,
    findings=page.findings,
)
