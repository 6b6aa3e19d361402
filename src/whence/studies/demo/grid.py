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

from collections.abc import Iterable, Mapping
from typing import ClassVar, NamedTuple

from whence.sim.distributions import Constant, Distribution, Exponential, Pareto, Uniform
from whence.sim.model import Link, Poisson, Random, Record, Replies, Scenario, Stop
from whence.studies.base import Figure, Point, Study, Table
from whence.studies.claims import Claim
from whence.studies.demo import measures, page
from whence.studies.demo.claims import CLAIMS, DELAY_US, degree
from whence.studies.results import Derived, Results, Row

PROTOCOLS = ("fifo", "vector")
NETWORKS: Mapping[str, Distribution] = {
    "constant": Constant(value_us=DELAY_US),
    "uniform": Uniform(low_us=DELAY_US // 2, high_us=DELAY_US * 3 // 2),
    "exponential": Exponential(mean_us=DELAY_US),
    # The mean of a Pareto distribution of shape 3/2 is three times its minimum.
    "pareto": Pareto(min_us=DELAY_US // 3, shape=1.5, max_us=100 * DELAY_US),
}


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
    """FIFO against vector clocks."""

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
    claims: ClassVar[tuple[Claim, ...]] = CLAIMS

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
        return measures.derive(row)

    def derived(self, results: Results) -> Iterable[Derived]:
        return measures.apart(results)

    def tables(self, results: Results) -> list[Table]:
        return page.tables(results)

    def figures(self, results: Results) -> list[Figure]:
        return page.figures(results)

    def headline(self, results: Results) -> Table:
        return page.headline(results)

    def findings(self, results: Results) -> list[str]:
        return page.findings(results)
