"""What is demanded of the VCube study beside the paper's claims (`claims.toml`): invariants, our prototype.

What the paper prints is judged and not demanded; that our own numbers stay what they were is (`ours.toml`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from whence.studies.claims import PROMISES_KEPT, Claim, Evidence, Relation, Take, Tolerance, load

# A claim is a row, and rows are laid out by hand.
# fmt: off

SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)  # section 5: "from 8 up to 1024, in a power of two"
LARGE_SIZES = (2048, 4096)  # beyond the paper
CRASHES = "crashes"  # the part of the study that is its future work
TEST_INTERVAL_US, TEST_TIMEOUT_US = 200_000, 1_000_000  # of its runs
TABLES_NODES = 256  # Tables 2 and 3, Figure 6
NODES_NODES = 1024  # Figures 9 and 10
AGGREGATION, PLAIN, SINGLE, FIVE = "aggregation", "plain", "single tree", "5 bytes"
WITH = {AGGREGATION: "with aggregation", PLAIN: "without"}
WHICH = {AGGREGATION: "with", PLAIN: "without"}  # in the ids of claims
BYTES = {0: "below 100", 100: "100 to 200", 200: "200 to 300", 300: "300 to 400", 400: "above 400"}  # Table 3
DELIVERY_WITHIN_PERCENT = 3.2  # section 5.3: either way, up to 512 nodes

# What our prototype measured under R0: reduction, packets with several messages, and the standard deviation
# of one run's reduction.
PROTOTYPE_R0: Mapping[int, tuple[float, float, float]] = {
    16: (2.57, 2.49, 1.4),
    32: (4.63, 4.13, 1.3),
    64: (8.46, 7.12, 1.1),
    128: (12.93, 9.93, 0.9),
    256: (18.16, 13.02, 0.7),
    512: (23.30, 16.09, 0.5),
    1024: (27.21, 18.74, 0.5),
}


def _prototype(nodes: int) -> Iterator[Claim]:
    reduction, several, deviation = PROTOTYPE_R0[nodes]
    where = {"profile": "R0", "part": "main", "mode": AGGREGATION}
    for name, words, measure, expected in (
        ("reduction", "reduction", "reduction_percent", reduction),
        ("several", "packets with more than one message", "aggregated_percent", several),
    ):
        yield Claim(f"000-prototype-{name}-{nodes}", f"{words}, {nodes} nodes, against our prototype",
                    expected, f"the prototype's R0; 3 sd / √runs, sd {deviation}", measure, where=where,
                    at={"nodes": nodes}, unit="%", evidence=Evidence.PROTOTYPE,
                    tolerance=Tolerance(deviation=deviation))


def _plain_packets(nodes: int) -> Claim:
    return Claim(f"000-invariant-plain-packets-{nodes}",
                 f"packets without aggregation, {nodes} nodes, every run", nodes * (nodes - 1),
                 "N (N − 1), for each spanning tree has N − 1 links", "packets",
                 where={"part": ("main", "large"), "mode": PLAIN}, at={"nodes": nodes}, unit="packets",
                 evidence=Evidence.INVARIANT, take=Take.FARTHEST)


def _verified() -> Iterator[Claim]:
    for name, text, published, source, measure, take, unit in (
        ("promises", "runs with a trace that keep every promise", None,
         "causal order, no duplicates, nothing missing: judged by the verifier, which knows no protocol",
         PROMISES_KEPT, Take.SUM, "runs"),
        ("findings", "what the verifier found in all of them", 0, "nothing",
         "causal + duplicate + created + fifo + malformed", Take.SUM, "findings"),
        ("spark", "numbers in which full traces, measured by Spark, differ from the kernel's counts", 0,
         "the kernel's measures are the trace's", "spark_differs", Take.SUM, "numbers"),
        ("undelivered", "deliveries missing from any run without crashes", 0,
         "N − 1 deliveries per message at other nodes, counted by the kernel", "undelivered", Take.FARTHEST,
         "deliveries"),
    ):
        yield Claim(f"000-invariant-{name}", text, published, source, measure, unit=unit,
                    evidence=Evidence.INVARIANT, take=take)


def _crashes() -> Iterator[Claim]:
    """Our extension of the paper: what it promises."""
    where = {"part": CRASHES}
    yield Claim("000-crash-missed", "deliveries that survivors of a crash miss of each other, every run", 0,
                "docs/vcube.md: no message is lost among the survivors", "survivors_missed", where=where,
                unit="deliveries", evidence=Evidence.INVARIANT, take=Take.FARTHEST)
    yield Claim("000-crash-known", "survivors that never learn of a crash, every run", 0,
                "the detector is complete", "survivors_without_news", where=where, unit="nodes",
                evidence=Evidence.INVARIANT, take=Take.FARTHEST)
    yield Claim("000-crash-first", "the first that knows, after a crash of one node, every run",
                TEST_TIMEOUT_US / 1000,
                "the timeout, give or take an interval of tests and the round trip that was under way",
                "first_knows_ut", where=where, at={"mode": "1 crash"}, unit="u.t.",
                evidence=Evidence.INVARIANT, take=Take.FARTHEST,
                tolerance=Tolerance(absolute=TEST_INTERVAL_US / 1000 + 250))
    yield Claim("000-crash-latency", "latency after a crash that all know of, against the same before", 0,
                "the trees are as deep as before", "latency_after_ut", where=where, at={"mode": "1 crash"},
                unit="%", than="latency_before_ut", evidence=Evidence.PROTOTYPE, relation=Relation.AT_MOST,
                tolerance=Tolerance(absolute=60.0), excuse="a limit on one side: sooner is no harm")


def mean_hops(nodes: int) -> float:
    """From a source to another node over its tree of log2 N levels: half the levels, the source left out."""
    return (nodes.bit_length() - 1) / 2 * nodes / (nodes - 1)


PAPER = load(__package__)
_NUMBERS = {claim.id: claim.published for claim in PAPER}


def in_paper(name: str) -> float | None:
    """What the paper prints, by the id of the claim."""
    return _NUMBERS.get(f"000-{name}")


def printed_number(name: str) -> float:
    """The same of a number that is there."""
    found = _NUMBERS[f"000-{name}"]
    assert found is not None
    return found


CLAIMS = (
    *PAPER,
    *(_plain_packets(nodes) for nodes in (*SIZES, *LARGE_SIZES)),
    *(claim for nodes in PROTOTYPE_R0 for claim in _prototype(nodes)),
    *_verified(),
    *_crashes(),
)
