"""What must come out of the demonstration: what flooding costs, what is promised, what must be caught."""

from __future__ import annotations

from collections.abc import Iterator

from whence.studies.claims import PROMISES_KEPT, Claim, Evidence, Relation, Take

DELAY_US = 10_000  # of a link, on average, in every network
SIZES = (4, 6, 8, 16, 32, 64)  # of all scales
REORDERING = ("uniform", "exponential", "pareto")
CONSTANT = {"network": "constant"}


def degree(nodes: int) -> int:
    """Neighbours of each node: four, or all others in the smallest group."""
    return min(4, nodes - 1)


def packets_per_broadcast(nodes: int) -> int:
    """Flooding sends on every link but the one that a copy came over: the degrees less one per receiver."""
    return nodes * degree(nodes) - (nodes - 1)


def _flooding(nodes: int) -> Claim:
    return Claim(
        f"demo-packets-{nodes}",
        f"packets per broadcast, {nodes} nodes, both protocols",
        packets_per_broadcast(nodes),
        f"flooding a {degree(nodes)}-regular graph: n·d − (n − 1) = {nodes}·{degree(nodes)} − {nodes - 1}",
        "packets_per_broadcast",
        at={"nodes": nodes},
        unit="packets",
        evidence=Evidence.INVARIANT,
        take=Take.FARTHEST,
    )


def _mesh(nodes: int) -> Claim:
    return Claim(
        f"demo-constant-reception-{nodes}",
        f"reception latency, {nodes} nodes all linked, constant delays",
        DELAY_US / 1000,
        "every other node is one link away",
        "reception_mean_ms",
        at={**CONSTANT, "nodes": nodes},
        unit="ms",
        evidence=Evidence.INVARIANT,
        take=Take.FARTHEST,
    )


def _caught(network: str) -> Claim:
    return Claim(
        f"demo-fifo-caught-{network}",
        f"causal violations of fifo, {network} delays",
        1,
        "a reply can overtake what it answers; the verifier must catch it",
        "causal",
        where={"protocol": "fifo"},
        at={"network": network},
        unit="violations",
        evidence=Evidence.INVARIANT,
        take=Take.SUM,
        relation=Relation.AT_LEAST,
    )


def _promised() -> Iterator[Claim]:
    yield Claim(
        "demo-vector-causal",
        "causal violations of vector, all runs",
        0,
        "what it promises (Birman, Schiper and Stephenson 1991, section 5.1)",
        "causal",
        where={"protocol": "vector"},
        unit="violations",
        evidence=Evidence.INVARIANT,
        take=Take.SUM,
    )
    yield Claim(
        "demo-vector-promises",
        "runs of vector that keep every promise",
        None,
        "causal, FIFO, no duplicates, nothing invented, nothing missing: all of them",
        PROMISES_KEPT,
        where={"protocol": "vector"},
        unit="runs",
        evidence=Evidence.INVARIANT,
        take=Take.SUM,
    )
    yield Claim(
        "demo-fifo-fifo",
        "FIFO violations of fifo, all runs",
        0,
        "what it promises (Hadzilacos and Toueg 1993)",
        "fifo",
        where={"protocol": "fifo"},
        unit="violations",
        evidence=Evidence.INVARIANT,
        take=Take.SUM,
    )
    yield Claim(
        "demo-undelivered",
        "deliveries missing from any run",
        0,
        "links are reliable and graphs connected: n deliveries per broadcast, counted by Spark",
        "undelivered",
        unit="deliveries",
        evidence=Evidence.INVARIANT,
        take=Take.FARTHEST,
    )


def _constant() -> Iterator[Claim]:
    """With one delay for all packets arrival times are graph distances, which keep causal order."""
    yield Claim(
        "demo-constant-causal",
        "causal violations of fifo, constant delays",
        0,
        "arrival times are graph distances; no detour over a replier is shorter (triangle inequality)",
        "causal",
        where={"protocol": "fifo"},
        at=CONSTANT,
        unit="violations",
        evidence=Evidence.INVARIANT,
        take=Take.SUM,
    )
    yield Claim(
        "demo-constant-held",
        "deliveries that vector holds, constant delays",
        0,
        "the same argument: nothing arrives before its causal past",
        "held_percent",
        where={"protocol": "vector"},
        at=CONSTANT,
        unit="%",
        evidence=Evidence.INVARIANT,
        take=Take.MAX,
    )
    yield Claim(
        "demo-constant-apart",
        "latency of vector less that of fifo, constant delays",
        0,
        "nothing is held, so both make the same run: mean and maximum are equal seed by seed",
        "apart_us",
        at=CONSTANT,
        unit="µs",
        evidence=Evidence.INVARIANT,
        take=Take.FARTHEST,
    )


CLAIMS = (
    *(_flooding(nodes) for nodes in SIZES),
    *_promised(),
    *_constant(),
    *(_mesh(nodes) for nodes in SIZES if degree(nodes) == nodes - 1),
    *(_caught(network) for network in REORDERING),
    Claim(
        "demo-fifo-bytes",
        "control bytes of a fifo packet",
        10,
        "docs/wire-format.md: frame 5, array 1, origin 1, number 1 (below 128), payload length 2",
        "control_bytes_per_packet",
        where={"protocol": "fifo"},
        unit="bytes",
        evidence=Evidence.INVARIANT,
        take=Take.FARTHEST,
    ),
)
