"""What must come out of the study of domains: costs, theorem 1, the planner's figures, times on real servers.

The paper's figures 8, 9, 11 and 12 are not in our copy, only what it says of them: without domains the time
grows with the square of n, with the bus linearly, and domains win. Demanded is what the specification demands
of that, by processor time: with one message under way, that of the servers on its way is what the message
takes on a machine that does nothing else. Wall time is shown and judged beside it, but a study must not fail
because another program was compiling meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator

from whence.studies.claims import EXACT, Claim, Evidence, Relation, Take, Tolerance
from whence.studies.domains.fit import BUS, FLAT, LARGE_FROM, TIMES, WAY_BUS, WAY_FLAT, Kind
from whence.studies.domains.measures import stamp_bytes

ACYCLIC, CYCLIC = ("flat", "bus", "daisy", "tree"), ("triangle", "ring")
FINDINGS = "causal + duplicate + created + fifo + missing + malformed"
LARGEST = 144  # servers: the largest square of every scale
LIVE_LARGEST = (100, 150)  # servers of the largest system in which all run, by scale
# Clock work and persisted bytes over n, log-log: the specification's acceptance table.
SLOPES = {
    ("flat", "full"): (2.0, 2.0),
    ("flat", "updates-scan"): (2.0, 2.0),
    ("flat", "updates"): (0.0, 2.0),
    ("bus", "full"): (1.0, 1.0),
    ("bus", "updates-scan"): (1.0, 1.0),
    ("bus", "updates"): (0.0, 1.0),
}
STAMPS = "specification: 4 n², 12 n (three hops in domains of √n), or one entry of 4 bytes a hop"
FASTER_THAN_LINEAR = 1.3  # "clearly": half way between the square and what is still about linear
ABOUT_LINEAR = 1.1


def _stamps(organisation: str, stamps: str) -> Iterator[Claim]:
    """Of the specification's table, the largest system by its number and all others by their difference."""
    text = f"stamp of a message, {organisation}, {stamps}"
    yield Claim(
        f"004-stamp-{organisation}-{stamps}",
        f"{text}, {LARGEST} servers",
        stamp_bytes(organisation, stamps, LARGEST),
        STAMPS,
        "stamp_bytes",
        where={"part": "cost", "workload": "ping-pong", "organisation": organisation, "stamps": stamps},
        at={"nodes": LARGEST},
        unit="bytes",
        take=Take.FARTHEST,
    )
    yield _off(text, organisation, stamps, STAMPS)


def _off(text: str, organisation: str, stamps: str, source: str) -> Claim:
    return Claim(
        f"004-stamp-off-{organisation}-{stamps}",
        f"{text}: largest difference at any size",
        0,
        source,
        "stamp_bytes_off",
        where={"part": "off", "organisation": organisation, "stamps": stamps},
        unit="bytes",
        take=Take.FARTHEST,
    )


def _slopes(organisation: str, stamps: str) -> Iterator[Claim]:
    both = zip(("work", "image_bytes"), ("clock work", "persisted bytes"), SLOPES[organisation, stamps],
               strict=True)  # fmt: skip
    for measure, words, slope in both:
        yield Claim(
            f"004-slope-{measure}-{organisation}-{stamps}",
            f"{words} of a message over n, {organisation}, {stamps}: log-log slope",
            slope,
            "specification: acceptance table",
            measure,
            where={"part": "slope", "organisation": organisation, "stamps": stamps},
            tolerance=Tolerance(absolute=0.05),
        )


THEOREM = "theorem 1: global order holds just when the domain graph is acyclic"


def _acyclic(organisation: str) -> Claim:
    return Claim(
        f"004-theorem-1-{organisation}",
        f"findings of the verifier, {organisation}, all runs of all parts",
        0,
        THEOREM,
        FINDINGS,
        where={"organisation": organisation},
        unit="findings",
        take=Take.SUM,
    )


def _cyclic(organisation: str) -> Iterator[Claim]:
    where = {"part": "theorem", "organisation": organisation}
    yield Claim(
        f"004-theorem-1-{organisation}",
        f"causal violations on a {organisation} of domains",
        1,
        THEOREM,
        "causal",
        where=where,
        unit="violations",
        take=Take.SUM,
        relation=Relation.AT_LEAST,
    )
    yield Claim(
        f"004-theorem-1-{organisation}-else",
        f"what is lost, doubled or invented on a {organisation} of domains",
        0,
        "a cycle costs order and nothing else",
        "duplicate + created + missing + malformed",
        where=where,
        unit="findings",
        evidence=Evidence.INVARIANT,
        take=Take.SUM,
    )


def _cost(organisation: str, published: float, source: str, *, traffic: str = "uniform",
          tolerance: Tolerance = EXACT, relation: Relation = Relation.EQUAL, demanded: bool = True,
          runs_min: int = 1) -> Claim:  # fmt: skip
    return Claim(
        f"004-planner-{traffic}-{organisation}",
        f"planner: cost of a message at 40 servers, {traffic}, {organisation}",
        published,
        source,
        "measured_cost",
        where={"part": "plan", "workload": traffic, "organisation": organisation},
        evidence=Evidence.PROTOTYPE,
        relation=relation,
        tolerance=tolerance,
        demanded=demanded,
        runs_min=runs_min,
    )


def _planner() -> Iterator[Claim]:
    yield Claim(
        "004-planner-predicted",
        "planner: predicted less measured cost, every run",
        0,
        "with whole matrices the formula counts what the stamps carry",
        "predicted_off",
        where={"part": "planned"},
        evidence=Evidence.INVARIANT,
        take=Take.FARTHEST,
        tolerance=Tolerance(absolute=1e-9),
    )
    drawn = "specification; drawn destinations move the bus a little"
    yield _cost("flat", 1650, drawn)
    yield _cost("bus", 219, drawn, tolerance=Tolerance(absolute=2.0))
    # A scale for tests anneals for a moment only, for one seed; its plans prove nothing.
    annealed = "specification: annealed 158, cap on router load not given (here 0.5)"
    yield _cost("planned", 158, annealed, relation=Relation.AT_MOST, runs_min=2)
    # Of 12 clusterings that were tried (planned cost 72 to 126) this one comes near the specification's
    # figure. Agreement with what was chosen for it proves nothing.
    chosen = (
        "specification: 71 to 79, clustering not given; ours (10 clusters, 95 % inside) was chosen to match"
    )
    near = Tolerance(between=(71, 79))
    yield _cost("planned", 75, chosen, traffic="clustered", tolerance=near, demanded=False)


WHICH = {"live": "live", "live-way": "live, servers of the way only"}


def _grows(kind: Kind, figure: str) -> Iterator[Claim]:
    """Figures 8 and 9 without domains, figure 11 with the bus."""
    is_flat = kind.organisation == "flat"
    says = "clearly faster than linear" if is_flat else "about linearly"
    for measure, words in TIMES.items():
        yield Claim(
            f"004-{figure.replace(' ', '-')}-{kind.part}-{measure}",
            f"{WHICH[kind.part]}, {kind.workload}, {kind.organisation}: {words} of a message over "
            f"n ≥ {LARGE_FROM}, log-log slope",
            FASTER_THAN_LINEAR if is_flat else ABOUT_LINEAR,
            f"{figure}; specification: grows {says}",
            f"{measure}_slope",
            at={**kind._asdict(), "shape": "growth", "of": measure},
            relation=Relation.AT_LEAST if is_flat else Relation.AT_MOST,
            demanded=measure == "cpu_us",
            runs_min=3,  # two sizes do not tell noise from growth
        )


def _crosses(measure: str, largest: int) -> Claim:
    """Figure 12: domains cost more hops in a small system and win in a large one."""
    return Claim(
        f"004-figure-12-{measure}-{largest}",
        f"live, ping-pong: {TIMES[measure]}, servers from which on the bus is faster",
        largest,
        "figure 12; specification: the curves cross within the measured sizes",
        f"{measure}_crossing",
        at={"shape": "crossing", "of": measure, "nodes": largest},
        unit="servers",
        relation=Relation.AT_MOST,
        demanded=measure == "cpu_us",
    )


def _straight(kind: Kind, words: str) -> Claim:
    return Claim(
        f"004-complexity-{kind.organisation}",
        f"live, servers of the way only, {words} explains of the variance",
        0.95,
        "section 6.2: C ≈ K n with √n domains, n² without",
        "share",
        at={**kind._asdict(), "shape": "line"},
        relation=Relation.AT_LEAST,
    )


CLAIMS = (
    *(claim for kind in SLOPES for claim in _stamps(*kind)),
    *(claim for kind in SLOPES for claim in _slopes(*kind)),
    *(
        _off(f"stamp of a message, {organisation}, full", organisation, "full",
             "section 6.2: s² for each domain on the way, 4 bytes an entry")
        for organisation in ("daisy", "tree")
    ),
    *(_acyclic(organisation) for organisation in (*ACYCLIC, "planned")),
    *(claim for organisation in CYCLIC for claim in _cyclic(organisation)),
    *_planner(),
    *_grows(FLAT, "figure 8"),
    *_grows(FLAT._replace(workload="broadcast"), "figure 9"),
    *_grows(BUS, "figure 11"),
    *_grows(WAY_FLAT, "figure 8"),
    *_grows(WAY_BUS, "figure 11"),
    *(_crosses(measure, largest) for measure in TIMES for largest in LIVE_LARGEST),
    _straight(WAY_FLAT, "flat: a + b n²"),
    _straight(WAY_BUS, "bus: a + b n"),
)  # fmt: skip
