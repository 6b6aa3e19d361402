"""Paper 004: causality domains in a message-oriented middleware; what clocks cost, and what a cycle does to
order.

Parts. **cost**: two servers that are no routers send each other messages (ping-pong), or one server sends to
all and all answer (broadcast), in growing systems; every entry of every stamp, clock and persistent image is
counted. **tree-law**: trees of domains up to depth 3. **theorem**: random traffic over links that reorder and
duplicate, on acyclic domains and on cycles; the verifier judges. **plan**: domains planned from a traffic
matrix beside one domain and the paper's bus. **wire**: uniform traffic, in bytes on the wire, with Updates
and without. **live**: the turn-around times of the paper's figures 8, 9, 11 and 12, on real server processes
(`live`).
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, NamedTuple

from whence.core.rng import purpose, shuffled, stream
from whence.overlay.domain_graph import Groups
from whence.sim.distributions import Constant, Pareto
from whence.sim.model import Link, Periodic, Poisson, Record, Replies, Scenario, Stop, Workload, node_names
from whence.studies.base import Measurement, Point, Study
from whence.studies.domains import live, measures, page
from whence.studies.domains.claims import CLAIMS
from whence.studies.domains.trees import TREE, TREE_DEPTHS, deep_tree, tree_servers
from whence.studies.results import Label

ORGANISATIONS = ("flat", "bus", "daisy", "tree")
STAMPS = ("full", "updates-scan", "updates")
PINGS = 50
TREE_PINGS = 10
ROUNDS = 3
PLAN_NODES = 40
CLUSTERS, INSIDE = 10, 0.95
CYCLES: dict[str, tuple[int, list[list[str]]]] = {
    "triangle": (3, [["n0", "n1"], ["n1", "n2"], ["n2", "n0"]]),
    "ring": (8, [["n0", "n1", "n2"], ["n2", "n3", "n4"], ["n4", "n5", "n6"], ["n6", "n7", "n0"]]),
}
_CLUSTER = purpose("study domains, clusters")


class DomainsScale(NamedTuple):
    """How much is run."""

    nodes: tuple[int, ...]  # of the cost part
    broadcast: tuple[int, ...]
    theorem_seeds: int
    plan_seeds: int
    plan_steps: int
    uniform: tuple[int, ...]  # servers, of Updates under uniform traffic
    text: str


SCALES = {
    "demo": DomainsScale(
        (16, 36, 64, 100, 144),
        (16, 36, 64),
        6,
        2,
        8_000,
        (16, 24, 64),
        "16 to 144 servers; 6 seeds of each domain graph; 10 to 100 real servers",
    ),
    "paper": DomainsScale(
        (16, 25, 36, 49, 64, 81, 100, 121, 144, 150),
        (16, 36, 64, 100, 144),
        40,
        5,
        20_000,
        (16, 24, 64, 100, 144),
        "16 to 150 servers, every square; 40 seeds of each domain graph; 10 to 150 real servers",
    ),
    "tiny": DomainsScale(
        (16, 64, 144), (16,), 3, 1, 300, (16,), "16, 64 and 144 servers; 3 seeds; 4 and 9 real servers"
    ),
}


def end_points(nodes: int) -> tuple[str, str]:
    """Two servers that are routers in none of the organisations: the second one and the last."""
    names = node_names(nodes)
    return names[1], names[-1]


def cost_scenario(nodes: int, organisation: str, stamps: str, workload: str) -> Scenario:
    """Two end points, or one against all; links are as good as links can be: only counts matter."""
    one, other = end_points(nodes)
    loads: list[Workload]
    if workload == "ping-pong":
        loads = [Periodic(interval_us=1_000_000, senders=[one], to=[other], count=PINGS)]
    else:
        loads = [
            Periodic(interval_us=1_000_000, senders=[one], to=[name], count=ROUNDS)
            for name in node_names(nodes)
            if name != one
        ]
    return Scenario(
        name="domains",
        protocol="domains",
        nodes=nodes,
        params={"domains": organisation, "stamps": stamps},
        link=Link(delay=Constant(value_us=1_000)),
        workloads=[*loads, Replies(probability=1.0, to="origin")],
        stop=Stop(duration_us=1_000_000 * (PINGS + 1)),
        record=Record(level="deliveries"),
    )


def tree_scenario(depth: int) -> Scenario:
    """Two servers in the farthest leaves of a tree of domains send each other messages."""
    groups, (one, other) = deep_tree(depth)
    return Scenario(
        name="domains",
        protocol="domains",
        nodes=tree_servers(depth),
        params={"domains": [list(group) for group in groups], "stamps": "full"},
        link=Link(delay=Constant(value_us=1_000)),
        workloads=[
            Periodic(interval_us=1_000_000, senders=[one], to=[other], count=TREE_PINGS),
            Replies(probability=1.0, to="origin"),
        ],
        stop=Stop(duration_us=1_000_000 * (TREE_PINGS + 1)),
        record=Record(level="deliveries"),
    )


def uniform_scenario(nodes: int, domains: Any, stamps: str, seed: int) -> Scenario:
    """All servers send to all: what Updates saves when everything changes between two messages of a pair."""
    return Scenario(
        name="domains",
        protocol="domains",
        nodes=nodes,
        seed=seed,
        params={"domains": domains, "stamps": stamps},
        workloads=[Poisson(interval_us=10_000, count=100)],
        stop=Stop(duration_us=60_000_000),
        record=Record(level="deliveries"),
    )


def theorem_scenario(organisation: str, stamps: str, seed: int) -> Scenario:
    """All servers send to all over links with heavy tails that reorder and duplicate."""
    nodes, params = 16, {"domains": organisation, "stamps": stamps, "size": 4}
    if organisation in CYCLES:
        nodes, groups = CYCLES[organisation]
        params = {"domains": groups, "stamps": stamps, "unsafe_cycles": True}
    return Scenario(
        name="domains",
        protocol="domains",
        nodes=nodes,
        seed=seed,
        params=params,
        link=Link(delay=Pareto(min_us=500, shape=0.9, max_us=3_000_000), duplicate=0.15),
        workloads=[
            Poisson(interval_us=20_000, count=10),
            Replies(probability=0.6, depth=5, count=30),
        ],
        stop=Stop(duration_us=400_000, drain_max_us=10**10),
        record=Record(level="deliveries"),
    )


def _clusters() -> list[list[str]]:
    names = node_names(PLAN_NODES)
    order = shuffled(stream(1, _CLUSTER), PLAN_NODES)
    return [sorted(names[server] for server in order[at::CLUSTERS]) for at in range(CLUSTERS)]


def plan_workloads(traffic: str) -> list[Workload]:
    """Uniform: all to all. Clustered: most of it among the servers of a hidden cluster."""
    if traffic == "uniform":
        return [Poisson(interval_us=10_000, count=100)]
    inside = round(100 * INSIDE)
    within = [Poisson(interval_us=10_000, senders=group, to=group, count=inside) for group in _clusters()]
    return [*within, Poisson(interval_us=10_000, count=100 - inside)]


@lru_cache(maxsize=4)
def planned(traffic: str, steps: int) -> Groups:
    """The plan for the traffic that the workloads have on average."""
    from whence.overlay.planner import TrafficMatrix, plan

    names = node_names(PLAN_NODES)
    others = PLAN_NODES - 1
    counts = {(a, b): 100 * 1000 // others for a in names for b in names if a != b}
    if traffic == "clustered":
        inside = round(100 * INSIDE)
        counts = dict.fromkeys(counts, (100 - inside) * 1000 // others)
        for group in _clusters():
            for a in group:
                for b in group:
                    if a != b:
                        counts[a, b] += inside * 1000 // (len(group) - 1)
    return plan(TrafficMatrix(counts), steps=steps).groups


def plan_scenario(organisation: str, traffic: str, seed: int, steps: int) -> Scenario:
    """The traffic on one domain, on the bus or on the planned domains; whole matrices, as the formula
    counts."""
    domains: Any = organisation
    if organisation == "planned":
        domains = [list(group) for group in planned(traffic, steps)]
    return Scenario(
        name="domains",
        protocol="domains",
        nodes=PLAN_NODES,
        seed=seed,
        params={"domains": domains, "stamps": "full"},
        workloads=plan_workloads(traffic),
        stop=Stop(duration_us=60_000_000),
        record=Record(level="deliveries"),
    )


def _point(
    part: str, workload: str, organisation: str, stamps: str, nodes: int, seed: int, scenario: Scenario
) -> Point:
    labels: dict[str, Label] = {
        "part": part,
        "workload": workload,
        "organisation": organisation,
        "stamps": stamps,
        "nodes": nodes,
        "seed": seed,
    }
    return Point(labels, scenario)


def _cost(scale: DomainsScale) -> list[Point]:
    return [
        _point("cost", workload, organisation, stamps, nodes, 1,
               cost_scenario(nodes, organisation, stamps, workload))
        for workload, sizes in (("ping-pong", scale.nodes), ("broadcast", scale.broadcast))
        for nodes in sizes
        for organisation in (ORGANISATIONS if workload == "ping-pong" else ("flat", "bus"))
        for stamps in STAMPS
    ]  # fmt: skip


def _theorem(scale: DomainsScale) -> list[Point]:
    points = []
    for organisation in (*ORGANISATIONS, *CYCLES):
        for stamps in ("full", "updates"):
            for seed in range(1, scale.theorem_seeds + 1):
                scenario = theorem_scenario(organisation, stamps, seed)
                points.append(
                    _point("theorem", "random", organisation, stamps, scenario.nodes, seed, scenario)
                )
    return points


def _plan(scale: DomainsScale) -> list[Point]:
    return [
        _point("plan", traffic, organisation, "full", PLAN_NODES, seed,
               plan_scenario(organisation, traffic, seed, scale.plan_steps))
        for traffic in ("uniform", "clustered")
        for organisation in ("flat", "bus", "planned")
        for seed in range(1, scale.plan_seeds + 1)
    ]  # fmt: skip


def _trees() -> list[Point]:
    return [
        _point(TREE, "ping-pong", name, "full", tree_servers(depth), 1, tree_scenario(depth))
        for name, depth in TREE_DEPTHS.items()
    ]


def _wire(scale: DomainsScale) -> list[Point]:
    """Uniform traffic: bytes on the wire at 40 servers, and stamps of Updates in growing systems."""
    points = []
    for organisation in ("flat", "bus", "planned"):
        for stamps in ("full", "updates"):
            for seed in range(1, scale.plan_seeds + 1):
                domains: Any = organisation
                if organisation == "planned":
                    domains = [list(group) for group in planned("uniform", scale.plan_steps)]
                made = uniform_scenario(PLAN_NODES, domains, stamps, seed)
                points.append(_point("wire", "uniform", organisation, stamps, PLAN_NODES, seed, made))
    for nodes in scale.uniform:
        made = uniform_scenario(nodes, "flat", "updates", 1)
        points.append(_point("wire", "uniform", "flat", "updates", nodes, 1, made))
    return points


def _grid(scale: str) -> list[Point]:
    wanted = SCALES[scale]
    return [*_cost(wanted), *_trees(), *_theorem(wanted), *_plan(wanted), *_wire(wanted)]


def _measurement(scale: str) -> Measurement:
    plan = live.PLANS[scale]
    return Measurement(plan.steps, partial(live.measure, plan))


STUDY = Study(
    name="domains",
    title="Causality domains: the clock of a domain instead of the clock of the system",
    paper="paper 004, preserving causality in a scalable message-oriented middleware",
    summary=(
        "Servers send each other point-to-point messages in causal order. With one matrix clock for all, "
        "a message costs the square of the number of servers; with domains of sqrt(n) servers linked by "
        "routers it costs in proportion to n. Order holds just when the domains form no cycle. Domains can "
        "be planned from traffic. Turn-around times are measured on real server processes."
    ),
    scales={name: scale.text for name, scale in SCALES.items()},
    claims=CLAIMS,
    grid=_grid,
    runners={"run": measures.run_point},
    measurement=_measurement,
    derive=measures.derive,
    derived=measures.derived,
    tables=page.tables,
    figures=page.figures,
    headline=page.headline,
    findings=page.findings,
)
