"""What the tour runs: five chapters, one for each paper, and one common workload under every protocol.

Each chapter takes scenarios from the study of its paper, at a size that the cores simulate in seconds: no
kernel is compiled, and every run leaves a trace that Spark verifies and measures.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from whence.lab.run import run
from whence.protocols import registry
from whence.sim.distributions import Constant, Exponential, Uniform
from whence.sim.model import Contacts, Full, Link, Poisson, Random, Record, Replies, Scenario, Stop, Topology
from whence.sim.outcome import Outcome
from whence.studies.base import Point, Study
from whence.studies.claims import PROMISES_KEPT, Claim, Evidence, Relation, Take
from whence.studies.deadline.grid import scenario as deadline_scenario
from whence.studies.domains.grid import cost_scenario
from whence.studies.domains.measures import derive as derive_domains
from whence.studies.domains.measures import run_point as run_domains
from whence.studies.oppnet.grid import scenario as oppnet_scenario
from whence.studies.prc.grid import changing
from whence.studies.results import Label, Row
from whence.studies.tour import page, words
from whence.studies.vcube.grid import scenario as vcube_scenario
from whence.trace.schema import Level

VCUBE, BARRIER, DEADLINE, PRC, DOMAINS, COMMON = "000", "001", "002", "003", "004", "common"
SCALES = {"tour": "five systems, each in its own environment, at a size for two cores and a minute"}
SECOND_US = 1_000_000
COMMON_NODES = 12
# Two hours of a city's buses: lifetimes of 10 and 20 minutes fit into that many times.
TWO_HOURS = {"duration_s": 7_200.0, "longest_day_s": 7_000.0, "shorter_by_s": 2_000.0}
UNORDERED = ("reliable", "fifo")
CAUSAL = (
    *("vector", "vcube", "barrier", "log", "tdca", "odca"),
    *("link_memory", "preventive", "prc", "matrix", "domains"),
)
SAFE = ("10′, safe", "20′, safe")  # cases of the barriers


def _point(chapter: str, case: str, protocol: str, nodes: int, seed: int, made: Scenario, task: str) -> Point:
    labels: dict[str, Label] = {
        "chapter": chapter,
        "case": case,
        "protocol": protocol,
        "nodes": nodes,
        "seed": seed,
    }
    return Point(labels, msgspec.structs.replace(made, name=f"tour-{chapter}-{case}"), task)


def _vcube() -> Iterator[Point]:
    for nodes, seeds in ((16, 3), (32, 3), (64, 3), (128, 3)):
        for mode in ("aggregation", "plain"):
            for seed in range(1, seeds + 1):
                made = vcube_scenario("R0", nodes, mode, seed, "all")
                yield _point(VCUBE, mode, "vcube", nodes, seed, made, "core")


def _barrier() -> Iterator[Point]:
    for lifetime in (10, 20):
        for mode in ("published", "safe"):
            for seed in (1, 2):
                topology = Contacts(generator="buses", options=dict(TWO_HOURS))
                made = oppnet_scenario(topology, lifetime, mode, seed, "deliveries")
                made = msgspec.structs.replace(made, record=Record(level="all"))
                yield _point(BARRIER, f"{lifetime}′, {mode}", "oppnet", made.nodes, seed, made, "core")


def _deadline() -> Iterator[Point]:
    for nodes in (16, 36, 64):
        for variant in ("TDCA", "ODCA"):
            for seed in (1, 2):
                made = deadline_scenario("fitted", nodes, variant, seed, 1_300_000, level="deliveries")
                yield _point(DEADLINE, variant, made.protocol, nodes, seed, made, "core")


def _prc() -> Iterator[Point]:
    """The same floods by PRC and by vectors in growing groups; and PRC over links that open and close."""
    for nodes in (8, 16, 32, 64):
        for protocol in ("prc", "vector"):
            made = Scenario(
                protocol=protocol,
                nodes=nodes,
                seed=1,
                topology=Random(degree=4),
                link=Link(delay=Uniform(low_us=10_000, high_us=30_000), fifo=True),
                workloads=[Poisson(interval_us=SECOND_US // 2, count=4, payload_bytes=64)],
                stop=Stop(duration_us=3 * SECOND_US),
                record=Record(level="all", sample_every_us=SECOND_US // 10),
            )
            yield _point(PRC, "static links", protocol, nodes, 1, made, "core")
    minute_us = 60 * SECOND_US
    for seed in (1, 2):
        made = changing(
            nodes=24,
            seed=seed,
            duration_us=4 * minute_us,
            joins_us=minute_us,
            delays=[(0, 300_000)],
            shuffle_every_us=20 * SECOND_US,
            shuffle_stop_us=3 * minute_us,
            broadcast_start_us=minute_us + 10 * SECOND_US,
            broadcast_stop_us=3 * minute_us,
            broadcast_every_us=SECOND_US,
            level="all",
        )
        yield _point(PRC, "links that open and close", "prc", 24, seed, made, "core")


def _domains() -> Iterator[Point]:
    for nodes in (16, 36, 64, 100):
        for organisation in ("flat", "bus"):
            for stamps in ("full", "updates"):
                made = cost_scenario(nodes, organisation, stamps, "ping-pong")
                yield _point(DOMAINS, f"{organisation}, {stamps}", "domains", nodes, 1, made, DOMAINS)


def common_scenario(protocol: str, seed: int) -> Scenario:
    """A conversation: messages and replies between twelve nodes, over links with exponential delays."""
    info = registry.lookup(protocol)
    params: dict[str, Any] = {}
    if info.lifetimes and protocol != "barrier":
        params["lifetime_us"] = 2 * SECOND_US
    if protocol == "domains":
        params["domains"] = "bus"
    topology: Topology = Random(degree=4) if info.any_topology and not params else Full()
    return Scenario(
        protocol=protocol,
        nodes=COMMON_NODES,
        seed=seed,
        params=params,
        topology=topology,
        link=Link(delay=Exponential(mean_us=10_000), fifo=info.fifo_links),
        workloads=[
            Poisson(interval_us=20_000 * COMMON_NODES, payload_bytes=64),
            Replies(
                probability=0.5 / (1 if info.point_to_point else COMMON_NODES - 1),
                delay=Constant(value_us=2_000),
                depth=3,
                payload_bytes=64,
            ),
        ],
        stop=Stop(duration_us=SECOND_US),
        record=Record(level="all", sample_every_us=50_000),
    )


def _common() -> Iterator[Point]:
    for protocol in (*UNORDERED, *CAUSAL):
        for seed in (1, 2, 3):
            made = common_scenario(protocol, seed)
            yield _point(COMMON, "one workload", protocol, COMMON_NODES, seed, made, "core")


def _grid(scale: str) -> list[Point]:
    return [*_barrier(), *_vcube(), *_deadline(), *_prc(), *_domains(), *_common()]


def run_core(scenario: Scenario, folder: Path, level: Level | None = None) -> Outcome:
    """Run a point through the cores."""
    return run(scenario, folder, level=level, kernel="never")


SCALED = (
    ("delivery_ms", "delivery_mean_us", 1e-3),
    ("reception_s", "reception_mean_us", 1e-6),
    ("held_s", "held_mean_us", 1e-6),
)


def derive(row: Row) -> dict[str, float | None]:
    """The numbers of one run that a chapter shows."""
    if row.labels["chapter"] == DOMAINS:
        return derive_domains(row)
    found = {
        name: None if row.measures.get(measure) is None else row.measure(measure) * factor
        for name, measure, factor in SCALED
    }
    broadcasts, deliveries = row.measures.get("broadcasts"), row.measures.get("deliveries")
    nodes, packets = int(row.labels["nodes"]), row.measures.get("packets")
    if broadcasts and deliveries is not None:
        found["delivered_percent"] = 100 * (deliveries - broadcasts) / (broadcasts * (nodes - 1))
        if packets:
            found["packets_per_message"] = packets / broadcasts
            found["reduction_percent"] = 100 * (1 - packets / (broadcasts * (nodes - 1)))
    return found


CLAIMS = (
    Claim(
        "tour-promises",
        "runs that keep every promise of their protocol",
        None,
        "judged by the verifier, which knows no protocol",
        PROMISES_KEPT,
        unit="runs",
        evidence=Evidence.INVARIANT,
        take=Take.SUM,
        where={"chapter": (VCUBE, DEADLINE, PRC, DOMAINS, COMMON)},
    ),
    Claim(
        "tour-barriers",
        "runs of barriers in safe mode that keep every promise",
        None,
        "judged by the verifier; the codes as printed break theirs, and are shown beside",
        PROMISES_KEPT,
        unit="runs",
        evidence=Evidence.INVARIANT,
        take=Take.SUM,
        where={"chapter": BARRIER, "case": SAFE},
    ),
    Claim(
        "tour-causal",
        "causal violations of protocols that promise causal order, one workload",
        0,
        "their promise",
        "causal",
        unit="violations",
        evidence=Evidence.INVARIANT,
        take=Take.SUM,
        where={"chapter": COMMON, "protocol": CAUSAL},
    ),
    Claim(
        "tour-caught",
        "causal violations of protocols without causal order, one workload",
        1,
        "a reply overtakes what it answers: the verifier must catch it",
        "causal",
        unit="violations",
        evidence=Evidence.INVARIANT,
        take=Take.SUM,
        where={"chapter": COMMON, "protocol": UNORDERED},
        relation=Relation.AT_LEAST,
        excuse="existence: some run breaks order",
    ),
)

TOUR = Study(
    name="tour",
    title="Five ways to keep causal order, and one way to prove it",
    paper="papers 000 to 004",
    summary=words.SUMMARY,
    scales=SCALES,
    claims=CLAIMS,
    grid=_grid,
    runners={"core": run_core, DOMAINS: run_domains},
    opened={"chapter": COMMON, "protocol": "fifo"},
    derive=derive,
    tables=lambda results: [page.common(results)],
    figures=lambda results: [chapter.figure for chapter in page.chapters(results)],
    findings=lambda results: [chapter.line for chapter in page.chapters(results)],
)
