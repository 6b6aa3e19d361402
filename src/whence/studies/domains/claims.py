"""What must come out of the study of domains: the specification's table, theorem 1, the planner's figures."""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt, log

from whence.overlay.domain_graph import domain_graph, organised
from whence.sim.model import node_names
from whence.studies.claims import Expectation, Relation, Tolerance
from whence.studies.results import Results, farthest

KINDS = ("causal", "duplicate", "created", "fifo", "missing", "malformed")
ACYCLIC, CYCLIC = ("flat", "bus", "daisy", "tree"), ("triangle", "ring")
SLOPE_WITHIN = Tolerance(absolute=0.05)
# Clock work and persisted bytes over n, log-log: the specification's acceptance table.
SLOPES = {
    ("flat", "full"): (2.0, 2.0),
    ("flat", "updates-scan"): (2.0, 2.0),
    ("flat", "updates"): (0.0, 2.0),
    ("bus", "full"): (1.0, 1.0),
    ("bus", "updates-scan"): (1.0, 1.0),
    ("bus", "updates"): (0.0, 1.0),
}
UNIFORM_FLAT, UNIFORM_BUS, UNIFORM_PLANNED = 1650, 219, 158
CLUSTERED_PLANNED = (71, 79)


def expectations(results: Results) -> list[Expectation]:
    """Everything, in the order of the page."""
    return [*_bytes(results), *_slopes(results), *_paths(results), *_theorem(results), *_planner(results)]


def slope(results: Results, measure: str, organisation: str, stamps: str) -> float | None:
    """Of a measure of ping-pong over the square sizes, on logarithmic axes, by least squares."""
    points: list[tuple[float, float]] = []
    for nodes in results.values("nodes"):
        found = results.estimate(
            measure, part="cost", workload="ping-pong", organisation=organisation, stamps=stamps, nodes=nodes
        )
        if found is not None and found.mean > 0 and isqrt(int(nodes)) ** 2 == nodes:
            points.append((log(float(nodes)), log(found.mean)))
    if len(points) < 2:
        return None
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    fitted = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    return round(fitted, 9) + 0.0  # rounding errors of a constant are no slope, and 0 has no sign


def _column(results: Results, measure: str, organisation: str, stamps: str, nodes: int) -> list[float]:
    return results.column(
        measure, part="cost", workload="ping-pong", organisation=organisation, stamps=stamps, nodes=nodes
    )


def _sizes(results: Results) -> list[int]:
    rows = results.select(part="cost", workload="ping-pong", organisation="flat", stamps="full")
    return sorted(int(row.labels["nodes"]) for row in rows)


def _bytes(results: Results) -> Iterator[Expectation]:
    """Of the specification's table, the largest system by its number and all others by their difference."""
    squares = [nodes for nodes in _sizes(results) if isqrt(nodes) ** 2 == nodes]
    source = "specification: 4 n², 12 n (three hops in domains of √n), or one entry of 4 bytes a hop"
    for organisation, stamps in SLOPES:
        per_hop = 4 if organisation == "flat" else 12

        def wanted(nodes: int, per_hop: int = per_hop, stamps: str = stamps) -> int:
            size = nodes if per_hop == 12 else nodes**2
            return per_hop * size if stamps == "full" else per_hop

        for nodes in squares[-1:]:
            found = _column(results, "stamp_bytes", organisation, stamps, nodes)
            yield Expectation(
                f"stamp of a message, {organisation}, {stamps}, {nodes} servers",
                wanted(nodes),
                farthest(found, wanted(nodes)),
                source,
                unit="bytes",
            )
        sizes = squares if organisation == "bus" else _sizes(results)
        yield _difference(
            f"stamp of a message, {organisation}, {stamps}",
            [
                value - wanted(nodes)
                for nodes in sizes
                for value in _column(results, "stamp_bytes", organisation, stamps, nodes)
            ],
            source,
        )


def _difference(name: str, found: list[float], source: str) -> Expectation:
    return Expectation(f"{name}: largest difference at any size", 0, farthest(found, 0), source, unit="bytes")


def _slopes(results: Results) -> Iterator[Expectation]:
    for (organisation, stamps), (work, image) in SLOPES.items():
        for measure, what, wanted in (
            ("work", "clock work", work),
            ("image_bytes", "persisted bytes", image),
        ):
            yield Expectation(
                f"{what} of a message over n, {organisation}, {stamps}: log-log slope",
                wanted,
                slope(results, measure, organisation, stamps),
                "specification: acceptance table",
                SLOPE_WITHIN,
            )


def _paths(results: Results) -> Iterator[Expectation]:
    """Daisy and tree have no closed form here: the route says what whole matrices cost."""
    for organisation in ("daisy", "tree"):
        off = []
        for nodes in _sizes(results):
            names = node_names(nodes)
            graph = domain_graph(organised(organisation, names))
            path = graph.path(names[1], names[-1])
            wanted = sum(4 * len(graph.groups[domain]) ** 2 for domain, _ in path)
            off += [value - wanted for value in _column(results, "stamp_bytes", organisation, "full", nodes)]
        yield _difference(
            f"stamp of a message, {organisation}, full",
            off,
            "section 6.2: s² for each domain on the way, 4 bytes an entry",
        )


def _theorem(results: Results) -> Iterator[Expectation]:
    source = "theorem 1: global order holds just when the domain graph is acyclic"
    for organisation in (*ACYCLIC, "planned"):
        yield Expectation(
            f"findings of the verifier, {organisation}, all runs of all parts",
            0,
            sum(results.total(kind, organisation=organisation) for kind in KINDS),
            source,
            unit="findings",
        )
    for organisation in CYCLIC:
        yield Expectation(
            f"causal violations on a {organisation} of domains",
            1,
            results.total("causal", part="theorem", organisation=organisation),
            source,
            relation=Relation.AT_LEAST,
            unit="violations",
        )
        yield Expectation(
            f"what is lost, doubled or invented on a {organisation} of domains",
            0,
            sum(
                results.total(kind, part="theorem", organisation=organisation)
                for kind in ("duplicate", "created", "missing", "malformed")
            ),
            "a cycle costs order and nothing else",
            unit="findings",
        )


def _planner(results: Results) -> Iterator[Expectation]:
    rows = results.select(part="plan")
    yield Expectation(
        "planner: predicted less measured cost, every run",
        0,
        farthest([row.measure("predicted_cost") - row.measure("measured_cost") for row in rows], 0),
        "with whole matrices the formula counts what the stamps carry",
        Tolerance(absolute=1e-9),
    )
    for organisation, wanted, within in (
        ("flat", UNIFORM_FLAT, Tolerance()),
        ("bus", UNIFORM_BUS, Tolerance(absolute=2.0)),
    ):
        found = results.estimate("measured_cost", part="plan", workload="uniform", organisation=organisation)
        yield Expectation(
            f"planner: cost of a message at 40 servers, uniform, {organisation}",
            wanted,
            None if found is None else found.mean,
            "specification; drawn destinations move the bus a little",
            within,
        )
    annealed = results.estimate("measured_cost", part="plan", workload="uniform", organisation="planned")
    yield Expectation(
        "planner: cost of a message at 40 servers, uniform, planned",
        UNIFORM_PLANNED,
        None if annealed is None else annealed.mean,
        "specification: annealed 158, cap on router load not given (here 0.5)",
        relation=Relation.AT_MOST,
        demanded=_is_annealed(results),
    )
    clustered = results.estimate("measured_cost", part="plan", workload="clustered", organisation="planned")
    low, high = CLUSTERED_PLANNED
    yield Expectation(
        "planner: cost of a message at 40 servers, clustered, planned",
        (low + high) / 2,
        None if clustered is None else clustered.mean,
        "specification: 71 to 79, clustering not given; ours (10 clusters, 95 % inside) was chosen to match",
        Tolerance(absolute=(high - low) / 2),
        # Of 12 clusterings that were tried (planned cost 72 to 126) this one comes near the specification's
        # figure. Agreement with what was chosen for it proves nothing.
        demanded=False,
    )


def _is_annealed(results: Results) -> bool:
    """A scale for tests anneals for a moment only; its plans prove nothing."""
    return len(results.select(part="plan", organisation="planned", workload="uniform")) > 1
