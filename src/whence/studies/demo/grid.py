"""The demonstration: FIFO against vector clocks over growing groups and ever wilder networks.

Every group floods a random regular graph of links that may reorder. All networks have the same mean
delay (`DELAY_US`) and differ in its spread. The group as a whole broadcasts at the same rate whatever
its size, and every message is answered once in a while by somebody who has delivered it: these replies
are the causality that FIFO may break.

Both protocols run on the same seeds: the same graphs, the same times of the first broadcasts, the same
delay for the k-th packet on a link. Replies follow deliveries, so from the first message that only one
of the two holds back the runs part; what is paired is the seed, not the packet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from whence.sim.distributions import Constant, Distribution, Exponential, Pareto, Uniform
from whence.sim.model import Link, Poisson, Random, Record, Replies, Scenario, Stop
from whence.studies.base import Figure, Panel, Point, Study, Table
from whence.studies.claims import Expectation, Relation
from whence.studies.cuts import cross, lines
from whence.studies.demo import page as demo_text
from whence.studies.results import Results, Row, farthest

DELAY_US = 10_000
PROTOCOLS = ("fifo", "vector")
NETWORKS: Mapping[str, Distribution] = {
    "constant": Constant(value_us=DELAY_US),
    "uniform": Uniform(low_us=DELAY_US // 2, high_us=DELAY_US * 3 // 2),
    "exponential": Exponential(mean_us=DELAY_US),
    # The mean of a Pareto distribution of shape 3/2 is three times its minimum.
    "pareto": Pareto(min_us=DELAY_US // 3, shape=1.5, max_us=100 * DELAY_US),
}
REORDERING = tuple(name for name in NETWORKS if name != "constant")


class Scale(NamedTuple):
    """How much of the grid is run."""

    sizes: tuple[int, ...]
    networks: tuple[str, ...]
    seeds: int
    duration_us: int


SCALES = {
    "demo": Scale((4, 8, 16, 32), tuple(NETWORKS), 5, 1_000_000),
    "full": Scale((4, 8, 16, 32, 64), tuple(NETWORKS), 10, 4_000_000),
    "tiny": Scale((4, 6), ("constant", "exponential"), 2, 400_000),
}


def degree(nodes: int) -> int:
    """Neighbours of each node: four, or everybody in the smallest group."""
    return min(4, nodes - 1)


def packets_per_broadcast(nodes: int) -> int:
    """Flooding sends on every link but the one that a copy came over: the degrees less one per receiver."""
    return nodes * degree(nodes) - (nodes - 1)


def scenario(protocol: str, nodes: int, network: str, seed: int, duration_us: int) -> Scenario:
    """One run of the grid."""
    return Scenario(
        name=f"demo-{protocol}-{nodes}-{network}-{seed}",
        protocol=protocol,
        nodes=nodes,
        seed=seed,
        topology=Random(degree=degree(nodes)),
        link=Link(delay=NETWORKS[network]),
        workloads=[
            # 50 broadcasts a second in the whole group, whatever its size.
            Poisson(interval_us=nodes * 20_000, payload_bytes=64),
            # Each message is answered by half a node in the mean, after one to five milliseconds.
            Replies(
                probability=0.5 / (nodes - 1),
                delay=Uniform(low_us=1_000, high_us=5_000),
                depth=3,
                payload_bytes=64,
            ),
        ],
        stop=Stop(duration_us=duration_us),
        record=Record(level="all", sample_every_us=50_000),
    )


class Demo(Study):
    """See the module."""

    name: ClassVar[str] = "demo"
    title: ClassVar[str] = "Where FIFO breaks causality, and what causal order costs"
    paper: ClassVar[str] = (
        "Hadzilacos and Toueg 1993 (FIFO broadcast); Birman, Schiper and Stephenson 1991 (vector clocks)"
    )
    summary: ClassVar[str] = (
        "Reliable FIFO flooding and vector-clock causal broadcast carry the same kind of conversation over "
        "random graphs of growing size and over networks of equal mean delay but growing spread. An "
        "independent verifier counts what each breaks; the traces say what causal order costs in latency, "
        "bytes and memory."
    )
    scales: ClassVar[Mapping[str, str]] = {
        name: f"groups of {', '.join(map(str, scale.sizes))}; {len(scale.networks)} networks; "
        f"{scale.seeds} seeds; {scale.duration_us / 1e6:g} s of broadcasts"
        for name, scale in SCALES.items()
    }

    def grid(self, scale: str) -> list[Point]:
        wanted = SCALES[scale]
        return [
            Point(
                {"network": network, "nodes": nodes, "protocol": protocol, "seed": seed},
                scenario(protocol, nodes, network, seed, wanted.duration_us),
            )
            for network in wanted.networks
            for nodes in wanted.sizes
            for protocol in PROTOCOLS
            for seed in range(1, wanted.seeds + 1)
        ]

    def derive(self, row: Row) -> Mapping[str, float | None]:
        remote = row.measure("deliveries") - row.measure("broadcasts")
        undelivered = row.measure("broadcasts") * int(row.labels["nodes"]) - row.measure("deliveries")
        milliseconds = {
            f"{name}_ms": _scaled(row.measures[f"{name}_us"], 1e-3)
            for name in ("reception_mean", "delivery_mean", "delivery_p99", "held_mean")
        }
        return {
            "remote_deliveries": remote,
            "undelivered": undelivered,
            "violations_per_1000": 1000 * row.measure("causal") / remote if remote else None,
            "held_percent": _scaled(row.measures["held_share"], 100),
            **milliseconds,
        }

    def tables(self, results: Results) -> list[Table]:
        made = [
            cross(results, measure, ("network", "protocol"), "nodes", name, title)
            for name, measure, title, _ in demo_text.MEASURES
        ]
        share = cross(
            results,
            "held_percent",
            ("network", "protocol"),
            "nodes",
            "held",
            "remote deliveries that waited, %",
        )
        return [*made, share, demo_text.costs(results)]

    def figures(self, results: Results) -> list[Figure]:
        largest = results.values("nodes")[-1]
        wildest = (
            "exponential" if "exponential" in results.values("network") else results.values("network")[-1]
        )
        return [
            Figure(
                name,
                demo_text.HEADINGS[name],
                caption,
                (
                    Panel(
                        f"growing groups, {wildest} delays",
                        "nodes",
                        title,
                        lines(results, measure, "nodes", "protocol", network=wildest),
                        x_log2=True,
                    ),
                    Panel(
                        f"wilder networks, {largest} nodes",
                        "link delay",
                        title,
                        lines(results, measure, "network", "protocol", nodes=largest),
                    ),
                ),
            )
            for name, measure, title, caption in demo_text.MEASURES
        ]

    def expectations(self, results: Results) -> list[Expectation]:
        return [
            *(_flooding(results, int(nodes)) for nodes in results.values("nodes")),
            *_verdicts(results),
            *_constant_network(results),
            *_caught(results),
            Expectation(
                "control bytes of a fifo packet",
                10,
                farthest(results.column("control_bytes_per_packet", protocol="fifo"), 10),
                "docs/wire-format.md: frame 5, array 1, origin 1, number 1 (below 128), payload length 2",
                unit="bytes",
            ),
        ]

    def headline(self, results: Results) -> Table:
        return demo_text.headline(results)

    def findings(self, results: Results) -> list[str]:
        return demo_text.findings(results)


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


# What must come out


def _flooding(results: Results, nodes: int) -> Expectation:
    expected = packets_per_broadcast(nodes)
    return Expectation(
        f"packets per broadcast, {nodes} nodes, both protocols",
        expected,
        farthest(results.column("packets_per_broadcast", nodes=nodes), expected),
        f"flooding a {degree(nodes)}-regular graph: n·d − (n − 1) = {nodes}·{degree(nodes)} − {nodes - 1}",
        unit="packets",
    )


def _verdicts(results: Results) -> list[Expectation]:
    vector = results.select(protocol="vector")
    return [
        Expectation(
            "causal violations of vector, all runs",
            0,
            results.total("causal", protocol="vector") if vector else None,
            "what it promises (Birman, Schiper and Stephenson 1991, section 5.1)",
            unit="violations",
        ),
        Expectation(
            "runs of vector that keep every promise",
            len(vector),
            sum(row.ok for row in vector) if vector else None,
            "causal, FIFO, no duplicates, nothing invented, nothing missing: all of them",
            unit="runs",
        ),
        Expectation(
            "FIFO violations of fifo, all runs",
            0,
            results.total("fifo", protocol="fifo"),
            "what it promises (Hadzilacos and Toueg 1993)",
            unit="violations",
        ),
        Expectation(
            "deliveries missing from any run",
            0,
            farthest(results.column("undelivered"), 0),
            "links are reliable and graphs connected: n deliveries per broadcast, counted by Spark",
            unit="deliveries",
        ),
    ]


def _constant_network(results: Results) -> list[Expectation]:
    """With one delay for all packets arrival times are graph distances, which keep causal order."""
    if "constant" not in results.values("network"):
        return []
    apart = [
        found.mean
        for nodes in results.values("nodes")
        for seed in results.values("seed")
        for measure in ("delivery_mean_us", "delivery_max_us")
        if (
            found := results.compare(
                measure, "protocol", "fifo", "vector", network="constant", nodes=nodes, seed=seed
            )
        )
    ]
    made = [
        Expectation(
            "causal violations of fifo, constant delays",
            0,
            results.total("causal", protocol="fifo", network="constant"),
            "arrival times are graph distances; no detour over a replier is shorter (triangle inequality)",
            unit="violations",
        ),
        Expectation(
            "deliveries that vector holds, constant delays",
            0,
            results.maximum("held_percent", protocol="vector", network="constant"),
            "the same argument: nothing arrives before its causal past",
            unit="%",
        ),
        Expectation(
            "latency of vector less that of fifo, constant delays",
            0,
            farthest(apart, 0),
            "nothing is held, so both make the same run: mean and maximum are equal seed by seed",
            unit="µs",
        ),
    ]
    meshes = [int(nodes) for nodes in results.values("nodes") if degree(int(nodes)) == int(nodes) - 1]
    made += [
        Expectation(
            f"reception latency, {nodes} nodes all linked, constant delays",
            DELAY_US / 1000,
            farthest(results.column("reception_mean_ms", network="constant", nodes=nodes), DELAY_US / 1000),
            "everybody is one link away",
            unit="ms",
        )
        for nodes in meshes
    ]
    return made


def _caught(results: Results) -> list[Expectation]:
    return [
        Expectation(
            f"causal violations of fifo, {network} delays",
            1,
            results.total("causal", protocol="fifo", network=network),
            "a reply can overtake what it answers; the verifier must catch it",
            relation=Relation.AT_LEAST,
            unit="violations",
        )
        for network in results.values("network")
        if network in REORDERING
    ]
