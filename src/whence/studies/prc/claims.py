"""What must come out of the PRC study: the hour, Table 1 as exponents, the cost of a link, the frontier.

Growth that is linear in the limit shows a smaller exponent at small sizes: the message's own number, or a
group in which not every process has broadcast yet, is a constant beside it.
"""

from __future__ import annotations

from collections.abc import Iterator

from whence.studies.claims import EXACT, PROMISES_KEPT, Claim, Evidence, Relation, Take, Tolerance
from whence.studies.prc.measures import AXES

HOURS = (24, 100, 1_000, 10_000)  # processes of an hour at any scale; the first for tests
LAW_PERCENT = 3.0
VIEWS = {100: 10.0, 1_000: 13.5, 10_000: 15.0}  # section 3
FLAT, LINEAR = 0.0, 1.0
# measure, protocol, axis, exponent, Table 1's term
TABLE_1 = (
    ("numbers_per_message", "reliable", "nodes", FLAT, "O(1)"),
    ("numbers_per_message", "vector", "nodes", LINEAR, "O(N)"),
    ("numbers_per_message", "preventive", "nodes", FLAT, "O(1)"),
    ("numbers_per_message", "link_memory", "nodes", FLAT, "O(1)"),
    ("work_per_delivery", "reliable", "nodes", FLAT, "O(1)"),
    ("work_per_delivery", "vector", "nodes", LINEAR, "O(W N), and W is 0 over FIFO links"),
    ("work_per_delivery", "preventive", "nodes", FLAT, "O(1)"),
    ("work_per_delivery", "link_memory", "nodes", FLAT, "O(Qi)"),
    ("work_per_delivery", "link_memory", "degree", LINEAR, "O(Qi)"),
    ("space", "reliable", "nodes", LINEAR, "O(N)"),
    ("space", "vector", "nodes", LINEAR, "O(N)"),
    ("space", "preventive", "nodes", LINEAR, "O(N)"),
    ("space", "link_memory", "nodes", FLAT, "O(Qi M)"),
    ("space", "link_memory", "degree", LINEAR, "O(Qi M)"),
    ("space", "link_memory", "delay_ms", LINEAR, "O(Qi M)"),
)
WORDS = {
    "numbers_per_message": "numbers on a message",
    "work_per_delivery": "work of a delivery",
    "space": "entries of a process",
}


def _every_run(name: str, text: str, published: float, source: str, measure: str, nodes: int, unit: str, *,
               tolerance: Tolerance = EXACT) -> Claim:  # fmt: skip
    """A claim about every hour of a size."""
    return Claim(
        f"003-{name}-{nodes}",
        f"{text}, {nodes:,} processes",
        published,
        source,
        measure,
        at={"part": "hour", "nodes": nodes},
        unit=unit,
        take=Take.FARTHEST,
        tolerance=tolerance,
    )


def _largest(name: str, text: str, published: float, source: str, measure: str, nodes: int, unit: str, *,
             part: str = "hour", tolerance: Tolerance = EXACT) -> Claim:  # fmt: skip
    """A claim about the largest of all hours of a size."""
    return Claim(
        f"003-{name}-{nodes}",
        f"{text}, {nodes:,} processes",
        published,
        source,
        measure,
        at={"part": part, "nodes": nodes},
        unit=unit,
        take=Take.MAX,
        relation=Relation.AT_MOST,
        tolerance=tolerance,
    )


def _hour(nodes: int) -> Iterator[Claim]:
    yield _every_run(
        "law", "E off rate x delay x safe degree, the farthest minute", 0,
        "a copy is awaited for one delay on average", "law_off_percent", nodes, "%",
        tolerance=Tolerance(absolute=LAW_PERCENT),
    )  # fmt: skip
    yield _largest(
        "early", "space per link before the delay rises, the largest minute", 0.01,
        "nothing but messages in transit: 10 per second x 1 ms", "early_per_link", nodes, "entries",
        tolerance=Tolerance(relative=LAW_PERCENT / 100),
    )  # fmt: skip
    for name, measure, text, unit in (
        ("figure-5a-ends-0", "space_end", "space from minute 52 on", "entries"),
        ("left", "left", "entries of all processes when the hour ends", "entries"),
        ("figure-5b-ends-0", "control_end", "control traffic from minute 52 on", "per s"),
        ("undelivered", "undelivered", "deliveries missing", "deliveries"),
    ):
        yield _every_run(name, text, 0, "Figures 5a and 5b end at 0", measure, nodes, unit)
    yield _every_run(
        "control-per-link", "control hops for a link", 8, "section 3: two hops each for α, β, π, ρ",
        "hops_per_link", nodes, "hops",
    )  # fmt: skip
    yield _largest(
        "figure-5b-falls", "control traffic at 2.5 s over that at 1 ms", 1,
        "Figure 5b: it falls as the delay grows, for only safe links are shuffled", "control_ratio", nodes,
        "ratio", part="fall",
    )  # fmt: skip
    yield _largest(
        "figure-5b-smooth", "control traffic, its slope while the delay rises", 0,
        "Figure 5b: it falls all the way", "control_slope", nodes, "per s and minute",
    )  # fmt: skip
    if nodes in VIEWS:
        yield from _views(nodes)


def _views(nodes: int) -> Iterator[Claim]:
    yield _largest(
        "below-vector", "space at 300 ms", nodes,
        "section 3: less than the entries of a vector, at 10 broadcasts per second and 300 ms",
        "space_bound", nodes, "entries",
    )  # fmt: skip
    yield Claim(
        f"003-view-{nodes}",
        f"safe degree, minutes 5 to 15, mean of the runs, {nodes:,} processes",
        VIEWS[nodes],
        "section 3 says about. Spray's views hold about ln N arcs, seen from both ends 2 ln N (9.2, 13.8, "
        "18.4): ours are near that, the paper's 15 is below",
        "degree",
        at={"part": "hour", "nodes": nodes},
        unit="links",
        tolerance=Tolerance(relative=0.05),
        demanded=False,
    )
    if nodes == max(VIEWS):
        yield Claim(
            "003-control-rate-10k",
            f"control traffic, minutes 5 to 15, {nodes:,} processes",
            1,
            "section 3: 7.5 links x 8 messages / 60 s, for views of 15; ours are larger",
            "control_early",
            at={"part": "hour", "nodes": nodes},
            unit="per s",
            tolerance=Tolerance(relative=0.08),
            demanded=False,
        )


def _exponent(measure: str, protocol: str, axis: str, exponent: float, term: str) -> Claim:
    return Claim(
        f"003-table-1-{protocol}-{measure}-{axis}",
        f"Table 1: {WORDS[measure]}, {protocol}, exponent against {AXES[axis]}",
        exponent,
        f"Table 1: {term}",
        measure,
        where={"part": "exponents", "protocol": protocol, "axis": axis},
        tolerance=Tolerance(absolute=0.2),
    )


def _link(part: str, protocol: str, published: int, source: str, text: str, unit: str) -> Claim:
    return Claim(
        f"003-table-1-{protocol}-control",
        f"Table 1: {text}, {protocol}",
        published,
        source,
        "hops_per_link",
        where={"part": part, "protocol": protocol},
        unit=unit,
        take=Take.FARTHEST,
    )


def _frontier(rate: int, relation: Relation, word: str) -> Claim:
    return Claim(
        f"003-vector-{'worse' if relation is Relation.AT_MOST else 'better'}-{rate}",
        f"PRC's entries at {rate:g} broadcasts/s and 300 ms, 100 processes: {word} than a vector's",
        100,
        "section 3: 100 broadcasts per second would favour the vector of 100 entries",
        "space",
        where={"rate": rate},
        at={"part": "frontier", "protocol": "prc", "nodes": 100},
        unit="entries",
        relation=relation,
    )


def _kept(part: str, words: str) -> Claim:
    return Claim(
        f"003-promises-{part}",
        f"recorded runs over {words} that keep every promise",
        None,
        "the verifier knows no protocol",
        PROMISES_KEPT,
        where={"part": part},
        unit="runs",
        evidence=Evidence.INVARIANT,
        take=Take.SUM,
    )


BOTH = "control hops for a link, both directions"
CLAIMS = (
    *(claim for nodes in HOURS for claim in _hour(nodes)),
    *(_exponent(*line) for line in TABLE_1),
    _link("opening", "prc", 8, "section 3: α, β, π, ρ over two hops each, for both directions", BOTH, "hops"),
    _link("opening", "preventive", 6, "Table 1: 3 for each direction", BOTH, "hops"),
    _link("growth", "reliable", 0, "Table 1", "control packets for a link", "packets"),
    _link("growth", "vector", 0, "Table 1", "control packets for a link", "packets"),
    Claim(
        "003-complexity-idle-0",
        "entries of PRC's cores when everything has arrived",
        0,
        "link memory forgets a message with its last copy",
        "entries_left",
        where={"part": "opening", "protocol": "prc"},
        unit="entries",
        take=Take.FARTHEST,
    ),
    _frontier(10, Relation.AT_MOST, "less"),
    _frontier(100, Relation.AT_LEAST, "more"),
    _kept("opening", "links that open and close"),
    _kept("growth", "static links"),
)
