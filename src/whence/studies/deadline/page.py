"""The page of the deadline study: tables, figures, sentences from the data."""

from __future__ import annotations

from whence.studies.base import Cell, Figure, Panel, Series, Table
from whence.studies.claims import printed
from whence.studies.cuts import line
from whence.studies.deadline.claims import CLAIMS
from whence.studies.deadline.measures import rise, sizes
from whence.studies.estimate import Estimate
from whence.studies.results import Label, Results

_PRINTED = printed(CLAIMS)
PRINTED_RISE = f"{_PRINTED['002-figure-9-rise-16']:g} % to {_PRINTED['002-figure-9-rise-100']:g} %"

READING_TEXT = {
    "fitted": "fitted: 5 % loss per hop, solicitation over the LAN (chosen because it fits)",
    "face": "face value: 5 % loss end to end, solicitation over the same 100 ms",
}
FIGURE_9_CAPTION = (
    "Delivered ratio: deliveries in causal order and before the deadline, over all pairs of a message and "
    f"another member. The paper prints no values but the rise of ODCA over TDCA, {PRINTED_RISE}. The left "
    "reading was found by search because it gives that rise: no evidence that the paper was so simulated."
)
RISE_CAPTION = (
    "How much ODCA delivers more than TDCA, in percent of TDCA, seed by seed. Repairing 5 % of loss cannot "
    "add much more than 5 %: at face value there is nothing to see, whatever the algorithm."
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
    for reading in results.values("reading"):
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
    """All tables."""
    return [*(_figure_9(results, reading) for reading in results.values("reading")),
            _costs(results), _bounds(results), _printed(results)]  # fmt: skip


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
        for nodes in sorted({int(row.labels["nodes"]) for row in results.select(part="optimum")}):
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
    """Figure 9, the rise, and the cost."""
    return [
        _by_size(results, "figure-9", "Figure 9: delivered ratio", FIGURE_9_CAPTION, "ratio", bounds=True),
        Figure(
            "rise",
            "The rise of ODCA over TDCA",
            RISE_CAPTION,
            (Panel("both readings", "members", "rise, %", tuple(_rise_lines(results))),),
        ),
        _by_size(results, "cost", "Packets per message and receiver", COST_CAPTION, "packets_per_pair"),
    ]


def _by_size(
    results: Results, name: str, title: str, caption: str, measure: str, *, bounds: bool = False
) -> Figure:
    panels = []
    for reading in results.values("reading"):
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
    made = []
    for reading in results.values("reading"):
        found = sizes(results, reading)
        values = tuple(rise(results, reading, nodes) for nodes in found)
        made.append(Series(str(reading), tuple(map(float, found)), values))
    return made


# Findings


def findings(results: Results) -> list[str]:
    """What the runs showed."""
    told = []
    for reading in results.values("reading"):
        found = sizes(results, reading)
        small, large = (rise(results, reading, nodes).mean for nodes in (found[0], found[-1]))
        told.append(
            f"{READING_TEXT[str(reading)]}: soliciting raises the delivered ratio by {small:.1f} % at "
            f"{found[0]} members and by {large:.1f} % at {found[-1]}. The paper prints {PRINTED_RISE}."
        )
    told.append(
        "A shared medium of 100 Mbit/s cannot be what was simulated: with 50.5 KB per message and one "
        "message per member every 100 ms, 25 members need 101 Mbit/s."
    )
    told += _about_default(results) + _about_printed(results) + _about_optimum(results)
    return told


def _about_default(results: Results) -> list[str]:
    leads, costs = [], []
    for reading in results.values("reading"):
        for nodes in sizes(results, reading):
            ratios = [
                _mean(results, "ratio", reading=reading, nodes=nodes, variant=variant)
                for variant in ("ODCA", "default")
            ]
            cost = _mean(results, "packets_per_pair", reading=reading, nodes=nodes, variant="default")
            if ratios[0] and ratios[1] and cost:
                leads.append(100 * (ratios[1].mean - ratios[0].mean))
                costs.append(cost.mean)
    if not leads:
        return []
    return [
        f"Our default delivers {min(leads):.1f} to {max(leads):.1f} points more than ODCA at every group "
        f"size in both readings, for {min(costs):.2f} to {max(costs):.2f} packets per message and receiver."
    ]


def _about_printed(results: Results) -> list[str]:
    strict: dict[str, Label] = {"part": "printed", "variant": "ODCA as printed"}
    asked, answered = (int(results.total(what, **strict)) for what in ("solicitations", "replies"))
    loose: dict[str, Label] = {"part": "printed", "variant": "ODCA as printed, but flaw 2"}
    kinds = {"causal": "out of order", "duplicate": "twice", "late": "late"}
    wrong = ", ".join(f"{int(results.total(kind, **loose))} {text}" for kind, text in kinds.items())
    return [
        f"Figure 8 as printed answers {answered} of {asked} solicitations. If it answers, it delivers "
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
