"""Tables, figures and sentences of the study of domains, from the runs: plain data, drawn by the report."""

from __future__ import annotations

from math import isqrt

from whence.studies.base import Cell, Figure, Label, Panel, Series, Table
from whence.studies.domains.claims import ACYCLIC, CYCLIC, SLOPES, slope
from whence.studies.estimate import Estimate
from whence.studies.results import Results

STAMP_WORDS = {"full": "matrix", "updates-scan": "updates, scan", "updates": "updates, list"}
MEASURES = {
    "stamp_bytes": ("stamps", "stamp bytes of a message"),
    "work": ("work", "entries touched for a message"),
    "image_bytes": ("persisted", "bytes of images for a message"),
}


def _cost(results: Results, measure: str, workload: str, **labels: Label) -> Estimate | None:
    return results.estimate(measure, part="cost", workload=workload, **labels)


def _line(
    results: Results, label: str, measure: str, workload: str, organisation: str, stamps: str
) -> Series:
    points = [
        (float(nodes), found)
        for nodes in results.values("nodes")
        if (found := _cost(results, measure, workload, organisation=organisation, stamps=stamps, nodes=nodes))
    ]
    points.sort(key=lambda point: point[0])
    return Series(label, tuple(x for x, _ in points), tuple(y for _, y in points))


def _flat_and_bus(results: Results, measure: str, workload: str) -> Panel:
    """A measure in growing systems, for each way to send stamps."""
    title, unit = MEASURES[measure]
    series = tuple(
        _line(results, f"{organisation}, {words}", measure, workload, organisation, stamps)
        for organisation in ("flat", "bus")
        for stamps, words in STAMP_WORDS.items()
    )
    return Panel(title, "servers", unit, series, x_log2=True, y_log=True)


# Figures


def figures(results: Results) -> list[Figure]:
    """What a message costs in growing systems, under two workloads; theorem 1; the planner."""
    return [
        _growth(results),
        _organisations(results),
        _broadcast(results),
        _order(results),
        _planned(results),
    ]


def _growth(results: Results) -> Figure:
    panels = tuple(_flat_and_bus(results, measure, "ping-pong") for measure in MEASURES)
    caption = (
        "Two servers that are no routers send each other messages. Flat: one domain of n. Bus: domains of √n "
        "around one of routers, three hops. A whole matrix costs n² entries flat and 3 n on the bus; Updates "
        "sends one entry a hop, and with a list of changes need not search for it. The persistent image is "
        "the paper's: the whole matrix after each change. These counts are what makes the measured times "
        "grow."
    )
    return Figure("growth", "What a message costs: flat against bus", caption, panels)


def _organisations(results: Results) -> Figure:
    panels = []
    for measure in ("stamp_bytes", "hops"):
        series = tuple(
            _line(results, organisation, measure, "ping-pong", organisation, "full")
            for organisation in ACYCLIC
        )
        unit = MEASURES[measure][1] if measure in MEASURES else "hops of a message"
        panels.append(Panel("whole matrices", "servers", unit, series, x_log2=True, y_log=measure != "hops"))
    caption = (
        "Between the same two servers, domains of √n servers each. A daisy is a chain of domains: its ends "
        "are far apart. A tree has its longest paths from leaf to leaf (section 6.2)."
    )
    return Figure("organisations", "Bus, daisy, tree", caption, tuple(panels))


def _broadcast(results: Results) -> Figure:
    panels = tuple(_flat_and_bus(results, measure, "broadcast") for measure in ("stamp_bytes", "work"))
    caption = (
        "One server sends to all others, one message each, and all answer; then again. Here Updates cannot "
        "be constant: since the last message to the same server, all the others' entries have changed."
    )
    return Figure("broadcast", "One to all", caption, panels)


def _order(results: Results) -> Figure:
    organisations = [*ACYCLIC, *CYCLIC]
    series = []
    for stamps in ("full", "updates"):
        found = [
            (name, value)
            for name in organisations
            if (value := results.estimate("causal", part="theorem", organisation=name, stamps=stamps))
        ]
        series.append(
            Series(
                STAMP_WORDS[stamps],
                tuple(name for name, _ in found),
                tuple(value for _, value in found),
                joined=False,
            )
        )
    panel = Panel("random traffic", "domains", "causal violations in a run", tuple(series))
    caption = "Theorem 1: messages overtake each other just where the domains form a cycle."
    return Figure("order", "Order and cycles", caption, (panel,))


def _planned(results: Results) -> Figure:
    series = []
    for traffic in ("uniform", "clustered"):
        found = [
            (name, value)
            for name in ("flat", "bus", "planned")
            if (value := results.estimate("measured_cost", part="plan", workload=traffic, organisation=name))
        ]
        series.append(
            Series(
                traffic, tuple(name for name, _ in found), tuple(value for _, value in found), joined=False
            )
        )
    panel = Panel("40 servers", "domains", "hops × (50 + s²) of a message", tuple(series), y_log=True)
    caption = (
        "Domains planned from the traffic matrix by simulated annealing, no router with more than half of "
        "all messages, beside one domain and a bus of √n in the order of names."
    )
    return Figure("planner", "Planned domains", caption, (panel,))


# Tables


def tables(results: Results) -> list[Table]:
    """One table for each figure."""
    made = [
        _costs(results, "growth", "ping-pong", ("flat", "bus")),
        _slopes(results),
        _costs(results, "organisations", "ping-pong", ("daisy", "tree")),
        _costs(results, "broadcast", "broadcast", ("flat", "bus")),
        _verdicts(results),
        _plans(results),
    ]
    return [table for table in made if table.rows]


def _costs(results: Results, name: str, workload: str, organisations: tuple[str, ...]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for organisation in organisations:
        for stamps, words in STAMP_WORDS.items():
            for nodes in sorted(results.values("nodes"), key=float):
                where = {"organisation": organisation, "stamps": stamps, "nodes": nodes}
                cells = [
                    _cost(results, measure, workload, **where)
                    for measure in ("hops", "stamp_bytes", "wire_bytes", "work", "image_bytes", "log_bytes")
                ]
                if cells[0] is not None:
                    rows.append((organisation, words, nodes, *cells))
    columns = (
        *("domains", "stamps", "servers", "hops", "stamp bytes", "control bytes on our wire", "clock work"),
        *("persisted images, bytes", "our log, bytes"),
    )
    note = (
        "Each per message. Stamp bytes and images by the paper's account, 4 bytes an entry; our wire and our "
        "log as MessagePack. Our log keeps the input instead of the image: it grows with the stamp, not with "
        "the matrix."
    )
    return Table(name, f"Costs of a message, {workload}", columns, tuple(rows), note)


def _slopes(results: Results) -> Table:
    def measured(measure: str, organisation: str, stamps: str) -> float | None:
        found = slope(results, measure, organisation, stamps)
        return None if found is None else round(found, 4)

    rows = tuple(
        (
            organisation,
            STAMP_WORDS[stamps],
            work,
            measured("work", organisation, stamps),
            image,
            measured("image_bytes", organisation, stamps),
        )
        for (organisation, stamps), (work, image) in SLOPES.items()
    )
    columns = (
        "domains",
        "stamps",
        "work, expected",
        "work, measured",
        "persisted, expected",
        "persisted, measured",
    )
    return Table(
        "growth", "Growth with n: slopes on logarithmic axes", columns, rows, "Over the square sizes."
    )


def _verdicts(results: Results) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for organisation in (*ACYCLIC, *CYCLIC):
        chosen = results.select(part="theorem", organisation=organisation)
        if chosen:
            deliveries = sum(int(row.verdict["deliveries"]) for row in chosen)
            late = int(results.total("causal", part="theorem", organisation=organisation))
            rows.append((organisation, len(chosen), deliveries, late))
    return Table(
        "order",
        "What the verifier found",
        ("domains", "runs", "deliveries", "causal violations"),
        tuple(rows),
    )


def _plans(results: Results) -> Table:
    rows = tuple(
        (traffic, name, *(
            results.estimate(measure, part="plan", workload=traffic, organisation=name)
            for measure in ("predicted_cost", "measured_cost", "hops")
        ))
        for traffic in ("uniform", "clustered")
        for name in ("flat", "bus", "planned")
    )  # fmt: skip
    columns = ("traffic", "domains", "predicted cost", "measured cost", "hops")
    note = (
        "Cost of a message: 50 for each hop, and the entries of its stamp. Clustered: 10 clusters of 4, 95 % "
        "inside."
    )
    return Table("planner", "Planned against given domains, 40 servers", columns, rows, note)


def headline(results: Results) -> Table:
    """The largest square system."""
    rows_of_bus = results.select(part="cost", workload="ping-pong", organisation="bus", stamps="full")
    sizes = [int(row.labels["nodes"]) for row in rows_of_bus]
    nodes = max((size for size in sizes if isqrt(size) ** 2 == size), default=0)
    rows = tuple(
        (organisation, STAMP_WORDS[stamps], *(
            _cost(results, measure, "ping-pong", organisation=organisation, stamps=stamps, nodes=nodes)
            for measure in MEASURES
        ))
        for organisation in ("flat", "bus")
        for stamps in STAMP_WORDS
    )  # fmt: skip
    columns = ("domains", "stamps", "stamp bytes", "clock work", "persisted images, bytes")
    return Table("headline", f"A message between {nodes} servers", columns, rows)


# Sentences


def findings(results: Results) -> list[str]:
    """What the runs showed."""
    return [sentence for sentence in (_saved(results), _theorem(results), _plan(results)) if sentence]


def _saved(results: Results) -> str:
    found = {
        (organisation, stamps): slope(results, "work", organisation, stamps)
        for organisation in ("flat", "bus")
        for stamps in ("full", "updates")
    }
    if any(value is None for value in found.values()):
        return ""
    return (
        f"The clock work of a message grows with n to the power {found['flat', 'full']:.2f} in one domain "
        f"and {found['bus', 'full']:.2f} on the bus; with Updates and a list of changes to the power "
        f"{found['flat', 'updates']:.2f} and {found['bus', 'updates']:.2f}: between two servers it costs "
        "nothing to be one of many."
    )


def _theorem(results: Results) -> str:
    good = sum(results.total("causal", part="theorem", organisation=name) for name in ACYCLIC)
    judged = sum(len(results.select(part="theorem", organisation=name)) for name in ACYCLIC)
    bad = {name: int(results.total("causal", part="theorem", organisation=name)) for name in CYCLIC}
    return (
        f"On acyclic domains the verifier found {good:.0f} violations in {judged} runs with duplicates "
        f"and heavy-tailed "
        f"delays; on a triangle of two-server domains {bad['triangle']}, on a ring {bad['ring']}."
    )


def _plan(results: Results) -> str:
    parts = []
    for traffic in ("uniform", "clustered"):
        costs = [
            results.estimate("measured_cost", part="plan", workload=traffic, organisation=name)
            for name in ("flat", "bus", "planned")
        ]
        if None not in costs:
            flat, bus, made = (cost.mean for cost in costs if cost is not None)
            parts.append(f"{made:.0f} instead of {bus:.0f} on the bus and {flat:.0f} flat ({traffic})")
    return f"A planned system of 40 servers costs {', '.join(parts)} per message." if parts else ""
