"""The page of the deadline study: tables, figures, sentences from the data."""

from __future__ import annotations

from whence.studies.base import Cell, Figure, Panel, Series, Table
from whence.studies.claims import load, printed
from whence.studies.cuts import drawable, line, made, points
from whence.studies.deadline.measures import MapCell, cells, contour, map_axis, map_rise, rise, sizes
from whence.studies.results import Estimate, Label, Results

_PRINTED = printed(load(__package__))
PRINTED_ENDS = _PRINTED["002-figure-9-rise-low"], _PRINTED["002-figure-9-rise-high"]
PRINTED_RISE = f"{_PRINTED['002-figure-9-rise-low']:g} % to {_PRINTED['002-figure-9-rise-high']:g} %"

CONTROL_TEXT = {"LAN": "a LAN", "same": "the same path as messages"}
LEAST_RISE = 5  # percent, of which a multiple says something
READING_TEXT = {
    "fitted": "fitted: 5 % loss per hop, solicitation over the LAN (chosen because it fits)",
    "face": "face value: 5 % loss end to end, solicitation over the same 100 ms",
}
FIGURE_9_CAPTION = (
    "Delivered ratio: deliveries in causal order and before the deadline, over all pairs of a message and "
    f"another member. The paper prints no values but the rise of ODCA over TDCA, {PRINTED_RISE}. The fitted "
    "reading was found by search because it gives that rise: no evidence that the paper was so simulated. "
    "Messages of the first 200 ms and the last 300 ms of a run do not count: at first nothing precedes a "
    "message, and at the end a loss is not noticed for want of a later one."
)
RISE_CAPTION = (
    "How much ODCA delivers more than TDCA, in percent of TDCA, seed by seed. At face value solicitations "
    "and replies take as long as what they ask for, and come too late; over a faster path the same loss "
    "gives another picture (the map below)."
)
MAP_CAPTION = (
    "The rise of ODCA over TDCA against the deviation of the delay, which the paper does not print, in the "
    "smallest and the largest group; beside it one against the other. The printed ends are the level lines, "
    "and the single point on the right. Delays that spread over the deadlines bring messages too late, which "
    "soliciting over a faster path makes good: a rise far above 5 % needs no loss above 5 %, but it needs "
    "that path."
)
MAP_NOTE = (
    "Rise of ODCA over TDCA in %, means of the seeds, by size of the group. Loss: 5 % between any two "
    "members, or at each hop of the grid. Control: solicitations and replies over a LAN, or over the same "
    "path as messages. Base: lifetimes are exponential from so long after the broadcast on. The printed ends "
    f"are {PRINTED_RISE}."
)
CONTOUR_NOTE = (
    "The deviation of the delay at which the rise passes the printed ends, between the deviations that were "
    "run; empty where it does not. A network gives both ends only if the two columns agree."
)
TROUBLE_NOTE = (
    "The fitted reading, cores, every run judged by the verifier. Crashes: a quarter of the members stop for "
    "good in the middle; what they miss counts. Clocks: each is off by up to 10 ms, either way. Drift: "
    "each is too fast or too slow, and up to 10 ms off when the run ends. Duplicates: "
    "20 % of packets come twice. Small buffers: 500 KB instead of 128 MB. Peak: the fullest buffer of a "
    "member when it sent something."
)
LARGE_NOTE = (
    "Each member sends more seldom, so that the group sends as much as one of 100 does: with the printed "
    "interval 1,000 members would send 10,000 messages a second."
)
MISSES_NOTE = (
    "Of all pairs, at TDCA, which repairs nothing. Lost: the packet. Too late: it comes after its deadline. "
    "In order: it came in time, and was not delivered for the sake of causal order."
)
COST_CAPTION = (
    "Packets per message and receiver: 1 is one packet to each other member. Solicitations and replies are "
    "counted one by one; a reply carries every message that fits."
)
COST_NOTE = (
    "Control: solicitations and replies among these packets. Latency: from broadcast to delivery at another "
    "member, of what is delivered. Overtaken: came in time, but something that follows it had to go first."
)
BOUND_NOTE = (
    "Direct: pairs whose one packet arrives in time. Relay: pairs that are reached in time if everybody who "
    "has a message pushes it at once over the path of solicitations and replies (a sample of messages). The "
    "optimum is what TDCA's receivers could have delivered at the most of what came to them, in order, had "
    "they known the whole run: a maximum antichain at each of them. The bounds hold for protocols whose "
    "origins send one packet to each receiver; our default sends two, and may pass them."
)
PRINTED_NOTE = (
    "Figure 8 as printed, on the same workload, judged by the verifier. Its SOLICIT-RECV demands that every "
    "entry of a stored vector lies strictly between two others, which none does; the last line answers as "
    "our correction does and leaves the other eight flaws as they are."
)


def _mean(results: Results, measure: str, **labels: Label) -> Estimate | None:
    return results.estimate(measure, **{"part": "main", **labels})


# Tables


def headline(results: Results) -> Table:
    """Figure 9 in the smallest and the largest group."""
    rows: list[tuple[Cell, ...]] = []
    for reading in _readings(results):
        found = sizes(results, reading)
        for nodes in (found[0], found[-1]):
            cells = [
                _mean(results, "ratio", reading=reading, nodes=nodes, variant=variant)
                for variant in ("TDCA", "ODCA", "default")
            ]
            packets = _mean(results, "packets_per_pair", reading=reading, nodes=nodes, variant="default")
            rows.append((reading, nodes, *cells, rise(results, reading, nodes), packets))
    columns = ("reading", "members", "TDCA", "ODCA", "our default", "rise, %", "default: packets per pair")
    return Table("glance", "Delivered ratio at a glance", columns, tuple(rows))


def tables(results: Results) -> list[Table]:
    """All tables; those of which there are no runs are left out."""
    main: list[dict[str, Label]] = [{"part": "main"}]
    return [
        *(_figure_9(results, reading) for reading in _readings(results)),
        *made(results, [{"part": "map"}], lambda them: [_map(them), _contour(them)]),
        *made(results, main, lambda them: [_misses(them), _costs(them), _bounds(them)]),
        *made(results, [{"part": "large"}], lambda them: [_large(them)]),
        *made(results, [{"part": "trouble"}], lambda them: [_trouble(them)]),
        *made(results, [{"part": "printed"}], lambda them: [_printed(them)]),
    ]


def _readings(results: Results) -> list[Label]:
    """The readings of which Figure 9 was run."""
    return [reading for reading in results.values("reading") if sizes(results, reading)]


def _map(results: Results) -> Table:
    places, spreads = map_axis(results, "nodes"), map_axis(results, "spread_ms")
    rows: list[tuple[Cell, ...]] = []
    for cell in cells(results):
        shown: list[Cell] = []
        for spread_ms in spreads:
            found = [map_rise(results, cell, spread_ms, nodes) for nodes in places]
            shown.append(" / ".join("-" if each is None else f"{each.mean:.0f}" for each in found))
        rows.append((*cell, *shown))
    sizes_text = " / ".join(map(str, places))
    columns = ("loss", "control", "base, ms", *(f"sd {spread_ms} ms" for spread_ms in spreads))
    return Table("map", f"The rise at {sizes_text} members, by network", columns, tuple(rows), MAP_NOTE)


def _contour(results: Results) -> Table:
    places = map_axis(results, "nodes")
    ends = ((places[0], PRINTED_ENDS[0]), (places[-1], PRINTED_ENDS[1]))
    rows = []
    for cell in cells(results):
        found = [contour(results, cell, nodes, percent) for nodes, percent in ends]
        rows.append((*cell, *(None if each is None else round(each) for each in found)))
    heads = tuple(f"sd, ms: {percent:g} % at {nodes}" for nodes, percent in ends)
    columns = ("loss", "control", "base, ms", *heads)
    return Table("contour", "Where the printed ends lie", columns, tuple(rows), CONTOUR_NOTE)


def _misses(results: Results) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for reading in _readings(results):
        for nodes in sizes(results, reading):
            found = [
                _mean(results, measure, reading=reading, nodes=nodes, variant="TDCA")
                for measure in ("ratio", "lost_percent", "too_late_percent", "in_order_percent")
            ]
            rows.append((reading, nodes, *found))
    columns = ("reading", "members", "TDCA", "lost, %", "too late, %", "in order, %")
    return Table("misses", "Where TDCA's misses come from", columns, tuple(rows), MISSES_NOTE)


def _large(results: Results) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for reading in results.values("reading"):
        for nodes in sorted({int(row.labels["nodes"]) for row in results.select(part="large")}):
            found = [
                results.estimate("ratio", part="large", reading=reading, nodes=nodes, variant=variant)
                for variant in ("TDCA", "ODCA", "default")
            ]
            if any(found):
                packets = results.estimate(
                    "packets_per_pair", part="large", reading=reading, nodes=nodes, variant="default"
                )
                rows.append((reading, nodes, *found, packets))
    columns = ("reading", "members", "TDCA", "ODCA", "our default", "default: packets per pair")
    return Table("large", "Larger groups", columns, tuple(rows), LARGE_NOTE)


def _trouble(results: Results) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for trouble in results.values("trouble"):
        for variant in ("TDCA", "ODCA", "default"):
            where: dict[str, Label] = {"part": "trouble", "trouble": trouble, "variant": variant}
            found = results.select(**where)
            if found:
                kept = f"{sum(row.ok for row in found)} of {len(found)}"
                cells_ = [results.estimate(name, **where) for name in ("ratio", "latency_ms")]
                peak = max(results.column("peak_megabytes", **where), default=None)
                rows.append((str(trouble), variant, *cells_, peak, kept))
    columns = ("trouble", "variant", "delivered", "latency, ms", "peak, MB", "runs that keep every promise")
    return Table("trouble", "Crashes, clocks, duplicates, small buffers", columns, tuple(rows), TROUBLE_NOTE)


def _figure_9(results: Results, reading: Label) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for nodes in sizes(results, reading):
        cells: list[Cell] = [nodes]
        for variant in ("TDCA", "ODCA", "default"):
            cells.append(_mean(results, "ratio", reading=reading, nodes=nodes, variant=variant))
        cells += [
            rise(results, reading, nodes),
            rise(results, reading, nodes, "default"),
        ]
        for variant in ("ODCA", "default"):
            cells.append(_mean(results, "packets_per_pair", reading=reading, nodes=nodes, variant=variant))
        rows.append(tuple(cells))
    columns = (
        "members", "TDCA", "ODCA", "default", "rise of ODCA, %", "rise of default, %",
        "packets per pair, ODCA", "packets per pair, default",
    )  # fmt: skip
    title = f"Figure 9, {READING_TEXT[str(reading)]}"
    return Table(f"figure-9-{reading}", title, columns, tuple(rows), FIGURE_9_CAPTION)


def _costs(results: Results) -> Table:
    measures = ("ratio", "packets_per_pair", "control_per_pair", "latency_ms", "overtaken_percent")
    rows: list[tuple[Cell, ...]] = []
    for reading in results.values("reading"):
        for nodes in sizes(results, reading):
            if not results.select(part="main", reading=reading, nodes=nodes, variant="ODCA, exact"):
                continue
            for variant in results.values("variant"):
                cells = [
                    _mean(results, measure, reading=reading, nodes=nodes, variant=variant)
                    for measure in measures
                ]
                if cells[0] is not None:
                    rows.append((reading, nodes, variant, *cells))
    columns = (
        "reading", "members", "variant", "delivered", "packets per pair", "control per pair", "latency, ms",
        "overtaken, %",
    )  # fmt: skip
    return Table("costs", "Each improvement, and what it costs in packets", columns, tuple(rows), COST_NOTE)


def _bounds(results: Results) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for reading in results.values("reading"):
        for nodes in sizes(results, reading):
            cells = [
                _mean(results, measure, reading=reading, nodes=nodes, variant="TDCA")
                for measure in ("ratio", "direct_ratio", "relay_ratio")
            ]
            best = _mean(results, "ratio", reading=reading, nodes=nodes, variant="default")
            rows.append((reading, nodes, "as in Figure 9", *cells, None, best))
        for nodes in sorted(
            {int(row.labels["nodes"]) for row in results.select(part="optimum", reading=reading)}
        ):
            small = {"part": "optimum", "reading": reading, "nodes": nodes}
            cells = [
                results.estimate(measure, **small)
                for measure in ("ratio", "direct_ratio", "relay_ratio", "optimum_ratio")
            ]
            rows.append((reading, nodes, "small run", *cells, None))
    columns = ("reading", "members", "runs", "TDCA", "direct", "relay", "optimum without repair", "default")
    return Table(
        "bounds", "What one packet per message and receiver can bring", columns, tuple(rows), BOUND_NOTE
    )


def _printed(results: Results) -> Table:
    kinds = ("causal", "fifo", "duplicate", "late")
    rows: list[tuple[Cell, ...]] = []
    for reading in results.values("reading"):
        for variant in results.values("variant"):
            if not results.select(part="printed", reading=reading, variant=variant):
                continue
            where: dict[str, Label] = {"part": "printed", "reading": reading, "variant": variant}
            counts = [int(results.total(kind, **where)) for kind in kinds]
            asked, answered = (int(results.total(what, **where)) for what in ("solicitations", "replies"))
            rows.append((reading, variant, results.estimate("ratio", **where), asked, answered, *counts))
    columns = (
        "reading", "variant", "delivered", "solicitations", "answered", "out of causal order",
        "out of FIFO order", "delivered twice", "delivered late",
    )  # fmt: skip
    return Table("printed", "Figure 8 as printed", columns, tuple(rows), PRINTED_NOTE)


# Figures


def figures(results: Results) -> list[Figure]:
    """Figure 9, the rise, the map, and the cost."""
    title = "Packets per message and receiver"
    return drawable(
        [
            _by_size(
                results, "figure-9", "Figure 9: delivered ratio", FIGURE_9_CAPTION, "ratio", bounds=True
            ),
            Figure(
                "rise",
                "The rise of ODCA over TDCA",
                RISE_CAPTION,
                (Panel("both readings", "members", "rise, %", tuple(_rise_lines(results))),),
            ),
            *made(
                results,
                [{"part": "map"}],
                lambda them: [_map_plot(them, control) for control in CONTROL_TEXT],
            ),
            _by_size(results, "cost", title, COST_CAPTION, "packets_per_pair"),
        ]
    )


def _map_plot(results: Results, control: str) -> Figure:
    """The networks with one way of solicitations."""
    places, spreads = map_axis(results, "nodes"), map_axis(results, "spread_ms")
    shown = [cell for cell in cells(results) if cell.control == control]
    panels = []
    for nodes, percent in ((places[0], PRINTED_ENDS[0]), (places[-1], PRINTED_ENDS[1])):
        lines = [
            points(_name(cell), ((at, map_rise(results, cell, at, nodes)) for at in spreads))
            for cell in shown
        ]
        lines.append(points("printed", ((at, percent) for at in (spreads[0], spreads[-1]))))
        panels.append(Panel(f"{nodes} members", "deviation of the delay, ms", "rise, %", tuple(lines)))
    both = []
    for cell in shown:
        ends = [[map_rise(results, cell, at, nodes) for at in spreads] for nodes in (places[0], places[-1])]
        pairs = [(low.mean, high.mean) for low, high in zip(*ends, strict=True) if low and high]
        both.append(points(_name(cell), pairs))
    both.append(points("printed", [PRINTED_ENDS], joined=False))
    panels.append(Panel("both", f"rise at {places[0]}, %", f"rise at {places[-1]}, %", tuple(both)))
    title = f"The map, solicitations over {CONTROL_TEXT[control]}"
    return Figure(f"map-{control.lower()}", title, MAP_CAPTION, tuple(panels))


def _name(cell: MapCell) -> str:
    return f"{cell.loss}, base {cell.base_ms} ms"


def _by_size(
    results: Results, name: str, title: str, caption: str, measure: str, *, bounds: bool = False
) -> Figure:
    panels = []
    for reading in _readings(results):
        series = [
            line(results, measure, "nodes", variant, part="main", reading=reading, variant=variant)
            for variant in ("TDCA", "ODCA", "default")
        ]
        if bounds:
            for bound in ("direct", "relay"):
                label = f"{bound} bound"
                series.append(
                    line(
                        results,
                        f"{bound}_ratio",
                        "nodes",
                        label,
                        part="main",
                        reading=reading,
                        variant="TDCA",
                    )
                )
        unit = "delivered ratio" if measure == "ratio" else "packets"
        panels.append(Panel(READING_TEXT[str(reading)].split(":")[0], "members", unit, tuple(series)))
    return Figure(name, title, caption, tuple(panels))


def _rise_lines(results: Results) -> list[Series]:
    return [
        points(str(reading), ((nodes, rise(results, reading, nodes)) for nodes in sizes(results, reading)))
        for reading in _readings(results)
    ]


# Findings


def findings(results: Results) -> list[str]:
    """What the runs showed."""
    told = []
    for reading in _readings(results):
        found = sizes(results, reading)
        ends = [rise(results, reading, nodes) for nodes in (found[0], found[-1])]
        if ends[0] and ends[1]:
            told.append(
                f"{READING_TEXT[str(reading)]}: soliciting raises the delivered ratio by {_within(ends[0])} "
                f"at {found[0]} members and by {_within(ends[1])} at {found[-1]}. "
                f"The paper prints {PRINTED_RISE}."
            )
    told += made(results, [{"part": "map"}], _about_map)
    told.append(
        "A medium of 100 Mbit/s that all share would be full with 25 members: at 50.5 KB per message and one "
        "message per member every 100 ms they need 101 Mbit/s."
    )
    told += _about_default(results) + made(results, [{"part": "printed"}], _about_printed)
    return told + made(results, [{"part": "trouble"}], _about_trouble) + _about_optimum(results)


def _within(found: Estimate) -> str:
    return f"{found.mean:.1f} %" + ("" if found.half is None else f" ± {found.half:.1f}")


def _about_map(results: Results) -> list[str]:
    places, spreads = map_axis(results, "nodes"), map_axis(results, "spread_ms")
    at_ends = [
        (low.mean, high.mean)
        for cell in cells(results)
        for spread_ms in spreads
        if (low := map_rise(results, cell, spread_ms, places[0]))
        and (high := map_rise(results, cell, spread_ms, places[-1]))
    ]
    no_hops = [
        found.mean
        for cell in cells(results)
        if cell.loss == "end to end"
        for spread_ms in spreads
        if (found := map_rise(results, cell, spread_ms, places[-1]))
    ]
    wanted = PRINTED_ENDS[1] / PRINTED_ENDS[0]
    ratios = [high / low for low, high in at_ends if low >= LEAST_RISE]
    told = []
    if no_hops:
        further = ": it needs no further loss" if max(no_hops) >= PRINTED_ENDS[0] else ""
        told.append(
            f"With 5 % of loss between any two members and nothing more, the rise at {places[-1]} members "
            f"goes up to {max(no_hops):.0f} % as delays spread over the deadlines{further}."
        )
    if ratios:
        told.append(
            f"The printed ends are {wanted:.1f} times apart; in the {len(ratios)} of {len(at_ends)} networks "
            f"of the map in which the smallest group's rise is {LEAST_RISE} % or more, the largest group's "
            f"is {min(ratios):.1f} to {max(ratios):.1f} times as large."
        )
    return told


def _about_trouble(results: Results) -> list[str]:
    rows = results.select(part="trouble")
    kept = sum(row.ok for row in rows)
    peak = max(row.measures.get("peak_megabytes") or 0 for row in rows)
    return [
        "Under crashes, clocks that are off or drift by up to 10 ms, duplicates and small buffers, "
        f"{kept} of {len(rows)} runs keep every promise; a buffer holds {peak:.1f} MB at the most."
    ]


def _about_default(results: Results) -> list[str]:
    leads, costs = [], []
    for reading in _readings(results):
        for nodes in sizes(results, reading):
            where: dict[str, Label] = {"part": "main", "reading": reading, "nodes": nodes}
            lead = results.compare("ratio", "variant", "ODCA", "default", **where)
            cost = _mean(results, "packets_per_pair", reading=reading, nodes=nodes, variant="default")
            if lead and cost:
                leads.append(lead)
                costs.append(cost.mean)
    if not leads:
        return []
    least, most = (100 * choose(lead.mean for lead in leads) for choose in (min, max))
    inside = sum(lead.low <= 0 for lead in leads)
    chance = f" ({inside} of the {len(leads)} differences are inside their interval)" if inside else ""
    return [
        f"Our default delivers {least:.1f} to {most:.1f} points more than ODCA over the group sizes of both "
        f"readings{chance}, for {min(costs):.2f} to {max(costs):.2f} packets per message and receiver."
    ]


def _about_printed(results: Results) -> list[str]:
    strict: dict[str, Label] = {"part": "printed", "variant": "ODCA as printed"}
    asked, answered = (int(results.total(what, **strict)) for what in ("solicitations", "replies"))
    loose: dict[str, Label] = {"part": "printed", "variant": "ODCA as printed, but flaw 2"}
    kinds = {"causal": "out of order", "duplicate": "twice", "late": "late"}
    wrong = ", ".join(f"{int(results.total(kind, **loose)):,} {text}" for kind, text in kinds.items())
    return [
        f"Figure 8 as printed answers {answered:,} of {asked:,} solicitations. If it answers, it delivers "
        f"{wrong}."
    ]


def _about_optimum(results: Results) -> list[str]:
    told = []
    for reading in results.values("reading"):
        small: dict[str, Label] = {"part": "optimum", "reading": reading}
        ours, best = (results.estimate(measure, **small) for measure in ("ratio", "optimum_ratio"))
        if ours and best and best.mean:
            told.append(
                f"Without repair, TDCA delivers {100 * ours.mean / best.mean:.2f} % of what any receiver "
                f"could have delivered in order and in time ({reading} reading, small runs)."
            )
    return told
