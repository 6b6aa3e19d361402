"""What is demanded of the study of domains beside the paper's claims (`claims.toml`): counts, order, shapes.

The paper's figures 8, 9, 11 and 12 are not in our copy, only what it says of them: without domains the time
grows with the square of n, with the bus linearly, and domains win. Shapes are demanded of processor time:
with one message under way, that of the servers on its way is what the message takes on a machine that does
nothing else. Wall time is shown beside it, but a study must not fail because another program was compiling.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from whence.studies.claims import EXACT, Claim, Evidence, Relation, Take, Tolerance, load, with_ours
from whence.studies.domains.fit import WAY_BUS, WAY_FLAT, FittedKind
from whence.studies.domains.measures import stamp_bytes

# A claim is a row, and rows are laid out by hand.
# fmt: off

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


def _stamps(organisation: str, stamps: str) -> Iterator[Claim]:
    """Of the specification's table, the largest system by its number and all others by their difference."""
    text = f"stamp of a message, {organisation}, {stamps}"
    yield Claim(
        f"004-stamp-{organisation}-{stamps}", f"{text}, {LARGEST} servers",
        stamp_bytes(organisation, stamps, LARGEST), STAMPS, "stamp_bytes",
        where={"part": "cost", "workload": "ping-pong", "organisation": organisation, "stamps": stamps},
        at={"nodes": LARGEST}, unit="bytes", evidence=Evidence.INVARIANT, take=Take.FARTHEST)
    yield _off(text, organisation, stamps, STAMPS)


def _off(text: str, organisation: str, stamps: str, source: str) -> Claim:
    return Claim(f"004-stamp-off-{organisation}-{stamps}", f"{text}: largest difference at any size", 0,
                 source, "stamp_bytes_off",
                 where={"part": "off", "organisation": organisation, "stamps": stamps}, unit="bytes",
                 evidence=Evidence.INVARIANT, take=Take.FARTHEST)


def _slopes(organisation: str, stamps: str) -> Iterator[Claim]:
    both = zip(("work", "image_bytes"), ("clock work", "persisted bytes"), SLOPES[organisation, stamps],
               strict=True)
    for measure, words, slope in both:
        yield Claim(f"004-slope-{measure}-{organisation}-{stamps}",
                    f"{words} of a message over n, {organisation}, {stamps}: log-log slope", slope,
                    "specification: acceptance table", measure,
                    where={"part": "slope", "organisation": organisation, "stamps": stamps},
                    evidence=Evidence.INVARIANT, tolerance=Tolerance(absolute=0.05))


THEOREM = "theorem 1: global order holds just when the domain graph is acyclic"


def _acyclic(organisation: str) -> Claim:
    return Claim(f"004-theorem-1-{organisation}",
                 f"findings of the verifier, {organisation}, all runs of all parts", 0, THEOREM, FINDINGS,
                 where={"organisation": organisation}, unit="findings", evidence=Evidence.INVARIANT,
                 take=Take.SUM)


def _cyclic(organisation: str) -> Iterator[Claim]:
    where = {"part": "theorem", "organisation": organisation}
    yield Claim(f"004-theorem-1-{organisation}", f"causal violations on a {organisation} of domains", 1,
                THEOREM, "causal", where=where, unit="violations", evidence=Evidence.INVARIANT, take=Take.SUM,
                relation=Relation.AT_LEAST, excuse="existence: some run breaks order")
    yield Claim(f"004-theorem-1-{organisation}-parts",
                f"hops out of order in their own domain, on a {organisation} of domains", 0,
                "theorem 1: every part respects order while the whole does not", "domain_violations",
                where=where, unit="hops", evidence=Evidence.INVARIANT, take=Take.SUM)
    yield Claim(f"004-theorem-1-{organisation}-else",
                f"what is lost, doubled or invented on a {organisation} of domains", 0,
                "a cycle costs order and nothing else", "duplicate + created + missing + malformed",
                where=where, unit="findings", evidence=Evidence.INVARIANT, take=Take.SUM)


# The planner looks for the least, and how long the prototype looked is written nowhere: its numbers are what
# ours must reach, and a longer search that finds better domains contradicts nothing. What the cost of a plan
# is worth on both sides: `004-planner-predicted`; the account of bytes: flat and bus.
SEARCHED = "a search for the least, its length not recorded: at most"
LEAST = "a limit on one side: better domains than the prototype found are no failure"


def _cost(organisation: str, published: float, source: str, *, traffic: str = "uniform",
          tolerance: Tolerance = EXACT, relation: Relation = Relation.EQUAL, demanded: bool = True,
          runs_min: int = 1, excuse: str = "") -> Claim:
    return Claim(f"004-planner-{traffic}-{organisation}",
                 f"planner: cost of a message at 40 servers, {traffic}, {organisation}", published, source,
                 "measured_cost", where={"part": "plan", "workload": traffic, "organisation": organisation},
                 evidence=Evidence.PROTOTYPE, relation=relation, tolerance=tolerance, demanded=demanded,
                 runs_min=runs_min, excuse=excuse)


def _planner() -> Iterator[Claim]:
    yield Claim("004-planner-predicted", "planner: predicted less measured cost, every run", 0,
                "with whole matrices the formula counts what the stamps carry", "predicted_off",
                where={"part": "planned"}, evidence=Evidence.INVARIANT, take=Take.FARTHEST,
                tolerance=Tolerance(absolute=1e-9))
    drawn = "specification; drawn destinations move the bus a little"
    yield _cost("flat", 1650, drawn)
    yield _cost("bus", 219, drawn, tolerance=Tolerance(absolute=2.0))
    # A scale for tests anneals for a moment only, for one seed; its plans prove nothing.
    annealed = f"specification: annealed 158, cap on router load not given (here 0.5); {SEARCHED}"
    yield _cost("planned", 158, annealed, tolerance=Tolerance(relative=0.1), relation=Relation.AT_MOST,
                runs_min=2, excuse=LEAST)
    # Of 12 clusterings that were tried (planned cost 72 to 126) this one comes near the specification's
    # figure. Agreement with what was chosen for it proves nothing.
    chosen = (
        "specification: 71 to 79, clustering not given; ours (10 clusters, 95 % inside) was chosen to match"
    )
    near = Tolerance(between=(71, 79))
    yield _cost("planned", 75, chosen, traffic="clustered", tolerance=near, demanded=False)


def _power(kind: FittedKind, power: float, within: float, says: str) -> Claim:
    """How the processor time of a message grows: the p of a + b n^p, on both sides."""
    return Claim(f"004-power-{kind.part}-{kind.workload}-{kind.organisation}",
                 f"real servers, {PARTS_OF[kind.part]}, {kind.workload}, {kind.organisation}: p of a + b n^p",
                 power, f"{says}; the band is ours", "exponent", at={**kind._asdict(), "shape": "power"},
                 evidence=Evidence.PROTOTYPE, tolerance=Tolerance(absolute=within), runs_min=4, timed=True)


PARTS_OF = {"live": "all run", "live-way": "those of the way run"}


def _crosses(largest: int) -> Claim:
    """Figure 12: domains cost more hops in a small system and win in a large one."""
    return Claim(f"004-crossing-{largest}",
                 "real servers, ping-pong: servers from which on the bus takes less processor time", 35,
                 "our earlier runs; figure 12: the curves cross", "cpu_us_crossing",
                 at={"shape": "crossing", "of": "cpu_us", "nodes": largest}, unit="servers",
                 evidence=Evidence.PROTOTYPE, tolerance=Tolerance(absolute=11.5), timed=True)


def _straight(kind: FittedKind, words: str) -> Claim:
    return Claim(f"004-complexity-{kind.organisation}",
                 f"real servers of the way, {words} explains of the variance", 0.95,
                 "section 6.2: C ≈ K n with √n domains, n² without; the limit is ours", "share",
                 at={**kind._asdict(), "shape": "line"}, evidence=Evidence.PROTOTYPE,
                 relation=Relation.AT_LEAST, excuse="a limit on one side: R² ends at 1")


# Control bytes of a message on our wire, uniform traffic between 40 servers: the specification's prototype.
WIRE_NODES = 40
WIRE = {
    ("flat", "full"): 1616, ("flat", "updates"): 1480, ("bus", "full"): 136, ("bus", "updates"): 95,
    ("planned", "full"): 75, ("planned", "updates"): 45,
}


def _wire(organisation: str, stamps: str) -> Iterator[Claim]:
    is_flat = (organisation, stamps) == ("flat", "updates")
    made = Claim(f"004-wire-{organisation}-{stamps}",
                 f"control bytes on the wire of a message, 40 servers, uniform, {organisation}, {stamps}",
                 WIRE[organisation, stamps], "our prototype, other seeds", "wire_bytes",
                 where={"part": "wire", "organisation": organisation, "stamps": stamps, "nodes": WIRE_NODES},
                 unit="bytes", evidence=Evidence.PROTOTYPE, tolerance=Tolerance(relative=0.05),
                 demanded=not is_flat)
    if organisation == "planned":
        made = replace(made, source=f"{made.source}; {SEARCHED}", relation=Relation.AT_MOST, runs_min=2,
                       excuse=LEAST)
    yield made
    if is_flat:
        # The prototype's Updates saved 8 % in one domain; ours names an entry by three numbers: 9 % more.
        yield replace(made, id=f"{made.id}-ours", published=None, source="our earlier runs",
                      evidence=Evidence.REGRESSION, demanded=True)


def _tree(measure: str, text: str, unit: str) -> Claim:
    return Claim(f"004-tree-{measure}", f"{text}, trees of depth 1 to 3", 0,
                 "section 6.2, with s = 5 and k = 4", measure, where={"part": "tree law"}, unit=unit,
                 evidence=Evidence.INVARIANT, take=Take.FARTHEST)


CLAIMS = (
    *load(__package__),
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
    _power(WAY_FLAT, 2.0, 0.6, "figure 8: quadratic"),
    _power(WAY_BUS, 1.0, 0.33, "figure 11: linear"),
    *(_crosses(largest) for largest in LIVE_LARGEST),
    _straight(WAY_FLAT, "flat: a + b n²"),
    _straight(WAY_BUS, "bus: a + b n"),
    *with_ours(__package__, (claim for kind in WIRE for claim in _wire(*kind))),
    _tree("tree_servers_off", "servers off 1 + (s − 1)(k^(d+1) − 1)/(k − 1)", "servers"),
    _tree("tree_cost_off", "entries of a message off (2d + 1) s²", "entries"),
)
