"""The page of the study of domains: tables, figures and sentences, first of real servers, then of counts."""

from __future__ import annotations

from math import isqrt, log
from statistics import median

from whence.studies.base import Cell, Figure, Panel, Series, Table
from whence.studies.claims import printed
from whence.studies.domains.claims import ACYCLIC, CLAIMS, CYCLIC, WIRE_NODES
from whence.studies.domains.fit import (
    BUS,
    FLAT,
    LARGE_FROM,
    TIMES,
    WAY_BUS,
    WAY_FLAT,
    FittedKind,
    crossing,
    fit,
    gains,
    growth,
    kinds,
    medians,
    ratios,
    rounds,
)
from whence.studies.domains.fit import slope as slope_of
from whence.studies.domains.measures import slope
from whence.studies.domains.trees import TREE, TREE_DEPTHS, TREE_FANOUT, TREE_SERVERS, tree_servers
from whence.studies.results import Estimate, Label, Results, percent_change

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
        *live_figures(results),
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
        *live_tables(results),
        _costs(results, "growth", "ping-pong", ("flat", "bus")),
        _slopes(results),
        _costs(results, "organisations", "ping-pong", ("daisy", "tree")),
        _costs(results, "broadcast", "broadcast", ("flat", "bus")),
        _tree_law(results),
        _wire(results),
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

    wanted = printed(CLAIMS)
    rows = tuple(
        (
            organisation,
            STAMP_WORDS[stamps],
            *(
                number
                for measure in ("work", "image_bytes")
                for number in (
                    wanted[f"004-slope-{measure}-{organisation}-{stamps}"],
                    measured(measure, organisation, stamps),
                )
            ),
        )
        for organisation in ("flat", "bus")
        for stamps in STAMP_WORDS
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
            parts = int(results.total("domain_violations", part="theorem", organisation=organisation))
            rows.append((organisation, len(chosen), deliveries, late, parts))
    return Table(
        "order",
        "What the verifier found",
        ("domains", "runs", "deliveries", "causal violations", "hops out of order in their own domain"),
        tuple(rows),
        "Random traffic. On a cycle every domain by itself is in order, and the whole is not: theorem 1.",
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


def _tree_law(results: Results) -> Table:
    rows = []
    for name, depth in TREE_DEPTHS.items():
        found = results.estimate("stamp_bytes", part=TREE, organisation=name)
        if found is not None:
            servers, entries = tree_servers(depth), (2 * depth + 1) * TREE_SERVERS**2
            bound = 2 * TREE_SERVERS**2 * log(servers) / log(TREE_FANOUT)
            hops = results.estimate("hops", part=TREE, organisation=name)
            rows.append((depth, servers, 2 * depth + 1, hops, entries, found.mean / 4, bound, 3 * servers))
    columns = (
        *("depth", "servers", "domains on the way", "hops", "entries, (2d + 1) s²", "entries, measured"),
        *("2 s² ln n / ln k", "bus of √n: 3 n"),
    )
    note = "Section 6.2: 5 servers a domain, 4 sub-domains each; between the farthest leaves. One run, exact."
    return Table("tree-law", "Trees of domains", columns, tuple(rows), note)


def _wire(results: Results) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for nodes in sorted({int(row.labels["nodes"]) for row in results.select(part="wire")}):
        for organisation in ("flat", "bus", "planned"):
            for stamps in ("full", "updates"):
                where = {"part": "wire", "organisation": organisation, "stamps": stamps, "nodes": nodes}
                measures = ("wire_bytes", "stamp_bytes", "work", "image_bytes", "stamp_share")
                cells = [results.estimate(measure, **where) for measure in measures]
                if cells[0] is not None:
                    rows.append((nodes, organisation, STAMP_WORDS[stamps], *cells))
    columns = (
        *("servers", "domains", "stamps", "control bytes on our wire", "stamp bytes, 4 an entry"),
        *("clock work", "persisted images, bytes", "entries of a stamp over n²"),
    )
    note = (
        "All servers send to all. In one domain Updates sends a part of the entries and must name each: "
        "three numbers where a whole matrix has one. Small numbers are short on our wire, which the paper's "
        "account of 4 bytes an entry does not see; so there Updates can cost more than it saves."
    )
    return Table("wire", "Uniform traffic: bytes on the wire", columns, tuple(rows), note)


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
    made = (_saved(results), _on_wire(results), _theorem(results), _plan(results), live_finding(results))
    return [sentence for sentence in made if sentence]


def _saved(results: Results) -> str:
    found = {
        (organisation, stamps): slope(results, "work", organisation, stamps)
        for organisation in ("flat", "bus")
        for stamps in ("full", "updates")
    }
    if any(value is None for value in found.values()):
        return ""
    is_free = all(found[organisation, "updates"] == 0 for organisation in ("flat", "bus"))
    nothing = ": between two servers it costs nothing to be one of many" if is_free else ""
    return (
        f"The clock work of a message grows with n to the power {found['flat', 'full']:.2f} in one domain "
        f"and {found['bus', 'full']:.2f} on the bus; with Updates and a list of changes to the power "
        f"{found['flat', 'updates']:.2f} and {found['bus', 'updates']:.2f}{nothing}."
    )


def _on_wire(results: Results) -> str:
    """What Updates does to bytes when all send to all."""
    parts = []
    for organisation, words in (("flat", "in one domain"), ("bus", "on the bus")):
        where: dict[str, Label] = {"part": "wire", "organisation": organisation, "nodes": WIRE_NODES}
        rows = [results.column("wire_bytes", **where, stamps=stamps) for stamps in ("full", "updates")]
        change = percent_change(*rows) if rows[0] and len(rows[0]) == len(rows[1]) else None
        if change is not None:
            within = "" if change.half is None else f" ± {change.half:.1f}"
            parts.append(f"{change.mean:+.0f}{within} % {words}".replace("-", "−"))
    told = f"When all of {WIRE_NODES} servers send to all, Updates changes control bytes on our wire by "
    return f"{told}{' and by '.join(parts)}." if parts else ""


def _theorem(results: Results) -> str:
    good = sum(results.total("causal", part="theorem", organisation=name) for name in ACYCLIC)
    judged = sum(len(results.select(part="theorem", organisation=name)) for name in ACYCLIC)
    bad = {name: int(results.total("causal", part="theorem", organisation=name)) for name in CYCLIC}
    parts = sum(results.total("domain_violations", part="theorem", organisation=name) for name in CYCLIC)
    return (
        f"On acyclic domains the verifier found {good:.0f} violations in {judged} runs with duplicates "
        f"and heavy-tailed delays; on a triangle of two-server domains {bad['triangle']}, on a ring "
        f"{bad['ring']}. On the cycles {parts:.0f} hops overtook another one of their own domain"
        f"{': every domain by itself stayed in order' if not parts else ''}."
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


# Real servers: figures 8, 9, 11 and 12 of the paper


PARTS = {
    "live": "all servers run",
    "live-way": "the servers of the way run",
    "live-durable": "the servers of the way run, durable",
}
_LIVE_WORDS = {"full": "matrix", "updates": "updates"}
HOW = (
    "Every server is a process with TCP connections to the servers of its domains. All systems stand side by "
    "side and take turns; shown are medians over the rounds. "
)


def live_figures(results: Results) -> list[Figure]:
    """As many as were measured."""
    if not results.select(part="live"):
        return []
    return [
        _turn_around(results),
        _one_to_all(results),
        _gain(results),
        *([_beyond(results)] if results.select(part="live-way") else []),
    ]


def _ratio_series(results: Results, label: str, kind: FittedKind, measure: str) -> Series:
    found = ratios(results, kind, measure)
    return Series(label, tuple(map(float, found)), tuple(found.values()))


def _fitted(results: Results, kind: FittedKind, power: int) -> Series | None:
    """What the paper says of the shape, drawn through our processor times."""
    values = growth(results, kind, "cpu_us")
    found = fit(values, power)
    if found is None:
        return None
    y = tuple(Estimate(found.at(nodes), None, 1) for nodes in values)
    return Series(f"a + b n{'²' if power == 2 else ''}", tuple(map(float, values)), y)


def _growth_panel(results: Results, title: str, kind: FittedKind, power: int) -> Panel:
    measured = [_ratio_series(results, words, kind, measure) for measure, words in TIMES.items()]
    fitted = _fitted(results, kind, power)
    smallest = next(iter(medians(results, kind, "cpu_us")), 0)
    series = tuple(one for one in (*measured, fitted) if one is not None)
    return Panel(title, "servers", f"time of a message, {smallest} servers = 1", series)


def _turn_around(results: Results) -> Figure:
    caption = (
        "A message from one server to another and back, one at a time; the two are no routers and as far "
        "apart as two can be. "
        + HOW
        + "Processor time is that of all servers on the way. The paper's curves are not in our copy; it says "
        "“quadratic” of figure 8 and “linear” of figure 11, which the fitted lines stand for."
    )
    panels = (
        _growth_panel(results, "without domains (figure 8)", FLAT, 2),
        _growth_panel(results, "bus of √n (figure 11)", BUS, 1),
    )
    return Figure("live-turn-around", "Turn-around time on real servers", caption, panels)


def _one_to_all(results: Results) -> Figure:
    caption = (
        "One server sends a message to each other one and waits for all answers; the time is divided by the "
        "number of messages. Here servers work at the same time, on as many processors as there are, so that "
        "processor time (of all servers) may be more than wall time."
    )
    panels = (
        _growth_panel(results, "without domains (figure 9)", FLAT._replace(workload="broadcast"), 2),
        _growth_panel(results, "bus of √n", BUS._replace(workload="broadcast"), 1),
    )
    return Figure("live-broadcast", "One to all on real servers", caption, panels)


def _gain(results: Results) -> Figure:
    panels = []
    for workload, words in (("ping-pong", "there and back (figure 12)"), ("broadcast", "one to all")):
        series = []
        for kind in kinds(results, "live"):
            if kind.workload == workload:
                label = kind.organisation if kind.stamps == "full" else f"{kind.organisation}, updates"
                found = medians(results, kind, "cpu_us")
                y = tuple(Estimate(value / 1000, None, 1) for value in found.values())
                series.append(Series(label, tuple(map(float, found)), y))
        panels.append(Panel(words, "servers", "processor time of a message, ms", tuple(series), y_log=True))
    caption = (
        "With and without domains, absolute. A small system pays for the hops of the bus; in a large one the "
        "matrix of all servers costs more than three hops with small ones."
    )
    return Figure("live-gain", "What domains gain on real servers", caption, tuple(panels))


def _beyond(results: Results) -> Figure:
    caption = (
        "As figure 12, but only the servers that a message passes are processes; all others are members that "
        "never come. So there may be more of them than a machine can run, and the part that grows shows "
        "itself also on the bus."
    )
    panels = (
        _growth_panel(results, "without domains", WAY_FLAT, 2),
        _growth_panel(results, "bus of √n", WAY_BUS, 1),
    )
    return Figure("live-beyond", "Beyond 150 servers", caption, panels)


def live_tables(results: Results) -> list[Table]:
    """Every size of every curve, and how each grows."""
    found = kinds(results, *PARTS)
    if not found:
        return []
    made = [_times_grow(results, found)]
    for part, words in PARTS.items():
        chosen = [kind for kind in found if kind.part == part]
        if chosen:
            made.append(_times(results, part, words, chosen))
    return made


def _times(results: Results, part: str, words: str, chosen: list[FittedKind]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for kind in chosen:
        wall, cpu = (rounds(results, kind, measure) for measure in ("wall_us", "cpu_us"))
        wall_ratio, cpu_ratio = (ratios(results, kind, measure) for measure in ("wall_us", "cpu_us"))
        hops = medians(results, kind, "live_hops")
        for nodes, values in wall.items():
            found = list(values.values())
            rows.append((
                kind.workload, kind.organisation, _LIVE_WORDS[kind.stamps], nodes, len(found),
                round(hops[nodes]) if nodes in hops else None,
                median(found), f"{min(found):,.0f} to {max(found):,.0f}", wall_ratio[nodes].mean,
                median(cpu[nodes].values()), cpu_ratio[nodes].mean,
            ))  # fmt: skip
    columns = (
        *(
            "workload",
            "domains",
            "stamps",
            "servers",
            "rounds",
            "hops",
            "wall, µs",
            "from round to round, µs",
        ),
        *("wall, ratio", "processor, µs", "processor, ratio"),
    )
    note = (
        "Of a message there and back; hops one way. In a broadcast of all messages, divided by their number. "
        "Ratios to the smallest system of the same round, then the median. Local: to an agent on the same "
        "server, which needs no clock; what grows there is the list of links that is looked through."
    )
    return Table(part, f"Measured times: {words}", columns, tuple(rows), note)


def _times_grow(results: Results, found: list[FittedKind]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for kind in found:
        if kind.workload == "local":
            continue
        cpu, wall = (growth(results, kind, measure) for measure in ("cpu_us", "wall_us"))
        shares = [made.share if (made := fit(cpu, power)) is not None else None for power in (1, 2)]
        rows.append((
            PARTS[kind.part], kind.workload, kind.organisation, _LIVE_WORDS[kind.stamps],
            f"{min(cpu)} to {max(cpu)}", slope_of(cpu), slope_of(wall), *shares,
        ))  # fmt: skip
    columns = (
        *("which", "workload", "domains", "stamps", "servers", "processor, slope", "wall, slope"),
        *("R² of a + b n", "R² of a + b n²"),
    )
    note = (
        f"Slopes on logarithmic axes over {LARGE_FROM} servers and more; R² of processor time over all. A "
        "constant part keeps every slope below that of the clock's work."
    )
    return Table("live-growth", "How measured times grow", columns, tuple(rows), note)


def live_finding(results: Results) -> str:
    """The measured gain in one sentence; empty if nothing large was measured."""
    flat, bus = growth(results, FLAT, "cpu_us"), growth(results, BUS, "cpu_us")
    slopes = slope_of(flat), slope_of(bus)
    if slopes[0] is None or slopes[1] is None:
        return ""
    most = max(flat)
    gained = gains(results, FLAT, BUS, "cpu_us")
    where = crossing(gained)
    from_on = f"the bus is faster from {where:.0f} servers on" if where else "the curves do not cross"
    return (
        f"On real servers a message there and back takes {flat[most]:.1f} times as long in a system of "
        f"{most} as in one of {min(flat)} without domains and {bus[most]:.1f} times on the bus (processor "
        f"time; log-log slopes {slopes[0]:.2f} and {slopes[1]:.2f} from {LARGE_FROM} servers on); {from_on}, "
        f"{gained[most]:.1f} times as fast with {most}."
    )
