"""The page of the VCube study: what the paper prints beside R0 and R1.

Captions and notes say what holds whatever comes out; sentences, tables and figures are made from the runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from whence.studies.base import Cell, Figure, Panel, Series, Table
from whence.studies.cuts import X, drawable, points
from whence.studies.results import Estimate, Label, Results, estimate, percent_change
from whence.studies.vcube import words
from whence.studies.vcube.claims import (
    AGGREGATION,
    BYTES,
    CRASHES,
    FIVE,
    NODES_NODES,
    PLAIN,
    PROTOTYPE_R0,
    SINGLE,
    TABLES_NODES,
    WHICH,
    WITH,
    in_paper,
    printed_number,
)
from whence.studies.vcube.crashes import CASES
from whence.studies.vcube.findings import R0, readings, residuals, table_sizes
from whence.studies.vcube.measures import BUFFER_EDGES, LARGEST_MAX
from whence.studies.vcube.measures import WINDOW_PARTS as PARTS
from whence.studies.vcube.runs import DEPENDENCY_EDGES, LARGE, MAIN, SEVERAL, Runs

MESSAGES = {"1": "1", "2": "2", "3": "3", "4": "4", "5": "5", "more": "6 to 15"}  # Table 2
BEYOND_MEASURES = ("reduction_percent", "aggregated_percent", "dependencies_max", "largest_max")
BEYOND_COLUMNS = (
    *("packets saved, %", "with several messages, %", "most dependencies", "largest packet, messages"),
    *("delivery sooner with aggregation, %", "buffered at most"),
)


# The paper's tables, and tables for its figures


def tables(results: Results) -> list[Table]:
    """All tables of the page; each has the name of the section it stands in."""
    runs = Runs(results)
    made = [
        *_table_1(runs),
        *_table_2(runs),
        *_table_3(runs),
        *_figure_1(runs),
        *_figure_6(runs),
        *_noted([table for profile in runs.main for table in _figure_7(runs, profile)], words.FIGURE_7_NOTE),
        *_noted([_figure_8(runs, profile) for profile in runs.main], words.FIGURE_8_NOTE),
        *_figure_9(runs),
        *_figure_10(runs),
        *_noted([_figure_11(runs, profile) for profile in runs.main], words.FIGURE_11_NOTE),
        *readings(results),
        residuals(runs),
        _large(runs),
        _several(runs),
        _crashes(runs),
        Table("reading", "How the paper is read", words.READING_COLUMNS, words.READING),
    ]
    return [table for table in made if table.rows]


def _noted(made: Sequence[Table], note: str) -> list[Table]:
    """Tables of one section, with a note under the last."""
    shown = [table for table in made if table.rows]
    return [*shown[:-1], *(replace(table, note=note) for table in shown[-1:])]


def _minus(measured: Estimate | None, expected: float | None) -> Cell:
    """How far off; a number of points that is not an estimate."""
    return None if measured is None or expected is None else round(measured.mean - expected, 2)


# Table 1


def _table_1(runs: Runs) -> list[Table]:
    sizes = table_sizes(runs, AGGREGATION, PLAIN)
    packets = tuple(
        (
            nodes,
            runs.mean("packets", R0, nodes, PLAIN),
            in_paper(f"table-1-aggregated-packets-{nodes}"),
            *(runs.mean("packets", profile, nodes, AGGREGATION) for profile in runs.main),
        )
        for nodes in sizes
    )
    columns = ("nodes", "without", "with, paper", *(f"with, {profile}" for profile in runs.main))
    return [
        Table("table-1", "Packets sent, with and without aggregation", columns, packets),
        _beside_paper(
            runs, sizes, "Reduction of packets by aggregation, %", "reduction", "reduction_percent"
        ),
        _beside_paper(runs, sizes, "Packets with more than one message, %", "several", "aggregated_percent"),
    ]


def _beside_paper(runs: Runs, sizes: Sequence[int], title: str, name: str, measure: str) -> Table:
    """One measure over the sizes, beside what the paper prints and what the prototype had."""
    rows = []
    for nodes in sizes:
        paper = in_paper(f"table-1-{name}-{nodes}")
        prototype = PROTOTYPE_R0[nodes][0 if name == "reduction" else 1]
        row: list[Cell] = [nodes, paper, prototype]
        for profile in runs.main:
            found = runs.mean(measure, profile, nodes, AGGREGATION)
            row += [found, _minus(found, paper)]
        rows.append(tuple(row))
    heads = [head for profile in runs.main for head in (profile, f"{profile} − paper")]
    return Table("table-1", title, ("nodes", "paper", "prototype R0", *heads), tuple(rows))


# Tables 2 and 3, Figure 6: one size


class _Line(NamedTuple):
    """One row of a table for one group size: its name, its measure, and the claim that prints it."""

    name: str
    measure: str
    claim: str = ""


def _lines(runs: Runs, nodes: int, wanted: int, lines: Sequence[_Line], mode: str) -> list[list[Cell]]:
    """The printed number and each profile's estimate, for each line.

    What the paper prints for the size `wanted` says nothing about another.
    """
    return [
        [
            in_paper(line.claim) if nodes == wanted else None,
            *(runs.mean(line.measure, profile, nodes, mode) for profile in runs.main),
        ]
        for line in lines
    ]


def _heads(runs: Runs, *groups: str) -> tuple[str, ...]:
    return tuple(f"{group}{who}" for group in groups for who in ("paper", *runs.main))


def _table_2(runs: Runs) -> list[Table]:
    nodes = runs.at_size(R0, TABLES_NODES, AGGREGATION)
    if nodes is None:
        return []
    every = [_Line(name, f"packets_of_{key}", f"table-2-all-{key}") for key, name in MESSAGES.items()]
    several = [
        _Line(name, f"aggregated_of_{key}", f"table-2-several-{key}") for key, name in MESSAGES.items()
    ]
    left, right = (_lines(runs, nodes, TABLES_NODES, lines, AGGREGATION) for lines in (every, several))
    rows = [(line.name, *one, *other) for line, one, other in zip(every, left, right, strict=True)]
    line = _Line("largest packet", "largest_packet", "text-largest-packet-256")
    (largest,) = _lines(runs, nodes, TABLES_NODES, [line], AGGREGATION)
    rows.append((line.name, *largest, *(None for _ in largest)))
    title = f"Messages per packet, {nodes} nodes: % of all packets, and of those with several messages"
    columns = ("messages", *_heads(runs, "all: ", "several: "))
    return [Table("table-2", title, columns, tuple(rows), words.TABLE_2_NOTE)]


def _table_3(runs: Runs) -> list[Table]:
    nodes = runs.at_size(R0, TABLES_NODES, AGGREGATION, PLAIN)
    if nodes is None:
        return []
    halves = []
    for mode in (AGGREGATION, PLAIN):
        lines = [_Line(name, f"bytes_above_{low}", f"table-3-{mode}-{low}") for low, name in BYTES.items()]
        above = "text-1400" if mode == AGGREGATION else ""
        lines.append(_Line("of these above 1400", "bytes_over_1400", above))
        halves.append(_lines(runs, nodes, TABLES_NODES, lines, mode))
    rows = tuple((line.name, *left, *right) for line, left, right in zip(lines, *halves, strict=True))
    columns = ("bytes of a packet", *_heads(runs, "with: ", "without: "))
    title = f"Packets by size, {nodes} nodes, % with and without aggregation"
    return [Table("table-3", title, columns, rows, words.TABLE_3_NOTE)]


def _figure_6(runs: Runs) -> list[Table]:
    nodes = runs.at_size(R0, TABLES_NODES, AGGREGATION)
    if nodes is None:
        return []
    lines = [
        _Line("0 dependencies, %", "dependencies_from_0", "figure-6-0"),
        _Line("1 to 4 dependencies, %", "dependencies_from_1", "figure-6-1-4"),
        _Line("5 to 9 dependencies, %", "dependencies_from_5", "figure-6-5-9"),
        _Line("more than 12, %", "dependencies_over_12", "figure-6-over-12"),
        _Line("most of any message", "dependencies_max", "figure-6-max"),
    ]
    cells = _lines(runs, nodes, TABLES_NODES, lines, AGGREGATION)
    rows = tuple((line.name, *row) for line, row in zip(lines, cells, strict=True))
    title = f"Dependencies of messages, {nodes} nodes, with aggregation"
    return [Table("figure-6", title, ("messages with", *_heads(runs, "")), rows, words.FIGURE_6_NOTE)]


# Figures over all sizes


def _figure_1(runs: Runs) -> list[Table]:
    rows = tuple(
        (
            nodes,
            *(runs.mean("reception_ut", R0, nodes, mode) for mode in (PLAIN, AGGREGATION, SINGLE)),
            runs.change("reception_ut", R0, nodes, AGGREGATION, SINGLE),
        )
        for nodes in runs.sizes(R0, AGGREGATION, PLAIN, SINGLE)
    )
    trees = ("tree per source", "tree per source, aggregating", "one fixed tree")
    columns = ("nodes", *trees, "one tree later by, %")
    return [Table("figure-1", "Mean reception latency under R0, u.t.", columns, rows, words.FIGURE_1_NOTE)]


def _figure_7(runs: Runs, profile: str) -> list[Table]:
    latencies, waits = [], []
    for nodes in runs.sizes(profile, AGGREGATION, PLAIN):
        row: list[Cell] = [nodes]
        for measure, paper in (
            ("reception_ut", in_paper(f"figure-7-reception-{nodes}")),
            ("delivery_ut", _sooner(nodes)),
        ):
            row += [
                *_both(runs, measure, profile, nodes),
                runs.change(measure, profile, nodes, PLAIN, AGGREGATION),
                paper,
            ]
        latencies.append(tuple(row))
        waits.append(
            (
                nodes,
                *_both(runs, "held_ut", profile, nodes),
                runs.change("held_ut", profile, nodes, AGGREGATION, PLAIN),
                in_paper(f"figure-7-held-{nodes}"),
                *_both(runs, "queued_ut", profile, nodes),
                runs.change("queued_ut", profile, nodes, AGGREGATION, PLAIN),
                (in_paper("figure-7-queue") if nodes == 1024 else None),
            )
        )
    change = ("change, %", "paper")
    heads = ("reception with", "without", *change, "delivery with", "without", *change)
    more = ("longer without, %", "paper")
    others = ("held with", "without", *more, "queue with", "without", *more)
    return [
        Table("figure-7", f"Latencies under {profile}, u.t.", ("nodes", *heads), tuple(latencies)),
        Table("figure-7", f"Waiting under {profile}, u.t.", ("nodes", *others), tuple(waits)),
    ]


def _sooner(nodes: int) -> float | None:
    """The printed change of delivery latency by aggregation."""
    paper = in_paper(f"figure-7-delivery-{nodes}")
    return None if paper is None else -paper


def _both(runs: Runs, measure: str, profile: str, nodes: int) -> list[Estimate | None]:
    return [runs.mean(measure, profile, nodes, mode) for mode in (AGGREGATION, PLAIN)]


def _figure_8(runs: Runs, profile: str) -> Table:
    rows = []
    for nodes in runs.paired_sizes(profile):
        changes = [
            runs.within(profile, nodes, AGGREGATION, f"pair_plain_{what}_ut", f"pair_{what}_ut")
            for what in ("reception", "delivery", "held")
        ]
        copies = runs.mean("pair_copies", profile, nodes, AGGREGATION)
        rows.append((nodes, copies, *changes, in_paper(f"figure-8-held-{nodes}")))
    columns = ("nodes", "copies a run", "reception, %", "delivery, %", "held, %", "held, paper")
    title = f"Messages in packets of two against the same ones alone, under {profile}"
    return Table("figure-8", title, columns, tuple(rows))


def _figure_11(runs: Runs, profile: str) -> Table:
    rows = []
    for nodes in runs.sizes(profile, AGGREGATION, SINGLE):
        row: list[Cell] = [nodes, len(runs.rows(profile, nodes, SINGLE, more=True))]
        for measure in ("aggregated_messages", "delayed_messages"):
            row += [runs.mean(measure, profile, nodes, mode, more=True) for mode in (AGGREGATION, SINGLE)]
            row.append(runs.change(measure, profile, nodes, AGGREGATION, SINGLE, more=True))
        rows.append(tuple(row))
    trees = ("many trees", "one tree", "change, %")
    columns = ("nodes", "runs", f"aggregated, {trees[0]}", *trees[1:], f"delayed, {trees[0]}", *trees[1:])
    title = f"Aggregated and delayed messages a run, under {profile}"
    return Table("figure-11", title, columns, tuple(rows))


# Figures 9 and 10: one size


def _figure_9(runs: Runs) -> list[Table]:
    nodes = runs.at_size(R0, NODES_NODES, AGGREGATION, PLAIN)
    if nodes is None:
        return []
    rows = []
    for mode in (AGGREGATION, PLAIN):
        lines = [
            _Line(
                "nodes that never buffer over 50",
                "nodes_buffering_at_most_50",
                f"figure-9-at-most-50-{WHICH[mode]}",
            ),
            _Line("nodes that never buffer over 250", "nodes_buffering_at_most_250"),
            _Line("most that a node buffers", "buffered_max"),
        ]
        cells = _lines(runs, nodes, NODES_NODES, lines, mode)
        if nodes == NODES_NODES:
            cells[1][0] = _at_most_250(mode)
        rows += [(line.name, WITH[mode], *row) for line, row in zip(lines, cells, strict=True)]
    rows.sort(key=lambda row: str(row[0]), reverse=True)
    title = f"Buffered messages, {nodes} nodes"
    return [
        Table("figure-9", title, ("what", "aggregation", *_heads(runs, "")), tuple(rows), words.FIGURE_9_NOTE)
    ]


def _at_most_250(mode: str) -> float:
    """All nodes but the tail that is printed."""
    return NODES_NODES - printed_number(f"figure-9-over-250-{WHICH[mode]}")


def _figure_10(runs: Runs) -> list[Table]:
    nodes = runs.at_size(R0, NODES_NODES, AGGREGATION, FIVE)
    if nodes is None:
        return []
    fifty = [
        _Line("50 bytes: nodes with 7 to 11, %", "largest_7_to_11_percent", "figure-10-50-bytes"),
        _Line("50 bytes: largest of all", "largest_max", "figure-10-50-max"),
    ]
    five = [
        _Line("5 bytes: nodes with 8 to 12, %", "largest_8_to_12_percent", "figure-10-5-bytes"),
        _Line("5 bytes: largest of all", "largest_max"),
    ]
    rows = []
    for lines, mode in ((fifty, AGGREGATION), (five, FIVE)):
        cells = _lines(runs, nodes, NODES_NODES, lines, mode)
        rows += [(line.name, *row) for line, row in zip(lines, cells, strict=True)]
    title = f"Messages in a node's largest packet, {nodes} nodes"
    return [Table("figure-10", title, ("what", *_heads(runs, "")), tuple(rows))]


# Tables beyond the paper: larger groups, several messages a node, crashes


def _mean(runs: Runs, measure: str, nodes: int, mode: str, part: str) -> Estimate | None:
    found = runs.of_part(measure, R0, nodes, mode, part)
    return estimate(list(found.values())) if found else None


def _cells(runs: Runs, nodes: int, part: str) -> tuple[Cell, ...]:
    early, late = (runs.of_part("delivery_ut", R0, nodes, mode, part) for mode in (AGGREGATION, PLAIN))
    seeds = [seed for seed in early if seed in late]
    change = percent_change([late[seed] for seed in seeds], [early[seed] for seed in seeds])
    sooner = None if change is None else Estimate(-change.mean, change.half, change.count)
    means = (_mean(runs, measure, nodes, AGGREGATION, part) for measure in BEYOND_MEASURES)
    return (*means, sooner, _mean(runs, "buffered_max", nodes, AGGREGATION, part))


def _large(runs: Runs) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for part in (MAIN, LARGE):
        for nodes in runs.part_sizes(R0, part, AGGREGATION):
            if part == LARGE or nodes >= 512:
                count = len(runs.of_part("packets", R0, nodes, AGGREGATION, part))
                rows.append((nodes, count, *_cells(runs, nodes, part)))
    title = "Groups beyond the paper's, under R0"
    shown = rows if runs.part_sizes(R0, LARGE, AGGREGATION) else []
    return Table("large", title, ("nodes", "runs", *BEYOND_COLUMNS), tuple(shown), words.LARGE_NOTE)


def _several(runs: Runs) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for nodes in runs.part_sizes(R0, SEVERAL, AGGREGATION):
        for part, name in ((MAIN, "one"), (SEVERAL, "four")):
            rows.append((nodes, name, *_cells(runs, nodes, part)))
    title = "Several messages a node, under R0"
    return Table(
        "several", title, ("nodes", "messages a node", *BEYOND_COLUMNS), tuple(rows), words.SEVERAL_NOTE
    )


def _crashes(runs: Runs) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for nodes in runs.part_sizes(R0, CRASHES, "no crash"):
        for case in CASES:
            measures = (
                *(
                    "first_knows_ut",
                    "all_know_ut",
                    "latency_before_ut",
                    "latency_during_ut",
                    "latency_after_ut",
                ),
                *("data_packets_per_broadcast", "tests_per_node_and_second", "survivors_missed"),
            )
            rows.append((nodes, case, *(_mean(runs, measure, nodes, case, CRASHES) for measure in measures)))
    columns: tuple[Label, ...] = (
        *("nodes", "case", "first knows after, u.t.", "all know after, u.t."),
        *("latency before, u.t.", "until all know", "after", "packets a broadcast", "tests", "missed"),
    )
    title = "Crashes: detection, latency, packets"
    return Table("crashes", title, tuple(map(str, columns)), tuple(rows), words.CRASHES_NOTE)


# The page's first table


def headline(results: Results) -> Table:
    """The paper's main claims beside what was measured."""
    runs = Runs(results)
    large = max(runs.sizes(R0, AGGREGATION, PLAIN), default=0)
    middle = runs.at_size(R0, TABLES_NODES, AGGREGATION) or large
    faster = []
    for profile in runs.main:
        found = runs.change("delivery_ut", profile, large, PLAIN, AGGREGATION)
        faster.append(None if found is None else Estimate(-found.mean, found.half, found.count))

    def line(name: str, nodes: int, measure: str, claim: str) -> tuple[Cell, ...]:
        means = (runs.mean(measure, profile, nodes, AGGREGATION) for profile in runs.main)
        return (f"{name}, {nodes} nodes, %", in_paper(claim), *means)

    alone, free = ("table-2-all-1", "figure-6-0") if middle == TABLES_NODES else ("", "")
    rows = (
        line("packets saved", large, "reduction_percent", f"table-1-reduction-{large}"),
        line("packets with several messages", large, "aggregated_percent", f"table-1-several-{large}"),
        (
            f"delivery faster with aggregation, {large} nodes, %",
            in_paper(f"figure-7-delivery-{large}"),
            *faster,
        ),
        line("packets of one message", middle, "packets_of_1", alone),
        line("messages without dependencies", middle, "dependencies_from_0", free),
    )
    title = "The paper at a glance: means over the runs, with 95 % intervals"
    return Table("glance", title, ("what", *_heads(runs, "")), rows)


# The paper's figures, and one for each of its tables


def figures(results: Results) -> list[Figure]:
    """All figures of the page, in the order of the paper; one without a point is left out."""
    runs = Runs(results)
    return drawable(
        [
            _plot_table_1(runs),
            _plot_table_2(runs),
            _plot_table_3(runs),
            _plot_figure_1(runs),
            _plot_figure_6(runs),
            _plot_figure_7(runs),
            _figure_7_change(runs),
            _plot_figure_8(runs),
            _plot_figure_9(runs),
            _plot_figure_10(runs),
            _plot_figure_11(runs),
        ]
    )


def _over_sizes(
    runs: Runs, label: str, measure: str, profile: str, mode: str, *, more: bool = False
) -> Series:
    sizes = runs.sizes(profile, mode)
    return points(label, ((nodes, runs.mean(measure, profile, nodes, mode, more=more)) for nodes in sizes))


def _by_profile(runs: Runs, measures: Sequence[tuple[X, str]], nodes: int | None, mode: str) -> list[Series]:
    """One series for each profile: several measures of one group size."""
    if nodes is None:
        return []
    return [
        points(profile, ((x, runs.mean(measure, profile, nodes, mode)) for x, measure in measures))
        for profile in runs.main
    ]


# The tables


def _plot_table_1(runs: Runs) -> Figure:
    shown = table_sizes(runs, AGGREGATION)
    panels = []
    for title, measure, name in (
        ("fewer packets with aggregation", "reduction_percent", "reduction"),
        ("packets with more than one message", "aggregated_percent", "several"),
    ):
        paper = points("paper", ((nodes, in_paper(f"table-1-{name}-{nodes}")) for nodes in shown))
        ours = [_over_sizes(runs, profile, measure, profile, AGGREGATION) for profile in runs.main]
        panels.append(Panel(title, "nodes", "% of packets", (paper, *ours), x_log2=True))
    return Figure("table-1", "Table 1: packets", words.TABLE_1_CAPTION, tuple(panels))


def _plot_table_2(runs: Runs) -> Figure:
    nodes = runs.at_size(R0, TABLES_NODES, AGGREGATION)
    panels = []
    for title, prefix, name, keys in (
        ("all packets", "packets", "all", list(MESSAGES)),
        ("packets with several messages", "aggregated", "several", list(MESSAGES)[1:]),
    ):
        names = {key: "> 5" if key == "more" else key for key in keys}
        measures: list[tuple[X, str]] = [(names[key], f"{prefix}_of_{key}") for key in keys]
        shown = keys if nodes == TABLES_NODES else []
        paper = points("paper", ((names[key], in_paper(f"table-2-{name}-{key}")) for key in shown))
        series = (paper, *_by_profile(runs, measures, nodes, AGGREGATION))
        panels.append(Panel(f"{title}, {nodes} nodes", "messages per packet", "%", series, y_log=True))
    return Figure("table-2", "Table 2: messages per packet", words.TABLE_2_CAPTION, tuple(panels))


def _plot_table_3(runs: Runs) -> Figure:
    nodes = runs.at_size(R0, TABLES_NODES, AGGREGATION, PLAIN)
    names = dict(zip(BYTES, ("< 100", "100–200", "200–300", "300–400", "> 400"), strict=True))
    measures: list[tuple[X, str]] = [(name, f"bytes_above_{low}") for low, name in names.items()]
    panels = []
    for mode in (AGGREGATION, PLAIN):
        shown = names if nodes == TABLES_NODES else {}
        paper = points("paper", ((name, in_paper(f"table-3-{mode}-{low}")) for low, name in shown.items()))
        series = (paper, *_by_profile(runs, measures, nodes, mode))
        panels.append(Panel(f"{WITH[mode]}, {nodes} nodes", "bytes of a packet", "% of packets", series))
    return Figure("table-3", "Table 3: sizes of packets", words.TABLE_3_CAPTION, tuple(panels))


# The figures


def _plot_figure_1(runs: Runs) -> Figure:
    trees = (
        ("one fixed tree", SINGLE),
        ("tree per source", PLAIN),
        ("tree per source, aggregating", AGGREGATION),
    )
    growing = tuple(_over_sizes(runs, label, "reception_ut", R0, mode) for label, mode in trees)
    nodes = runs.at_size(R0, NODES_NODES, AGGREGATION, PLAIN, SINGLE)
    within = tuple(
        points(
            label,
            (
                (100 * (part + 0.5) / PARTS, runs.mean(f"reception_start_{part}_ut", R0, nodes, mode))
                for part in range(PARTS)
            ),
        )
        for label, mode in trees
        if nodes is not None
    )
    return Figure(
        "figure-1",
        "Figure 1: one tree against many",
        words.FIGURE_1_CAPTION,
        (
            Panel("growing groups, R0", "nodes", "reception latency, u.t.", growing, x_log2=True, y_log=True),
            Panel(
                f"in the course of a run, {nodes} nodes, R0",
                "time of the broadcast, % of the window",
                "reception latency, u.t.",
                within,
                y_log=True,
            ),
        ),
    )


def _plot_figure_6(runs: Runs) -> Figure:
    nodes = runs.at_size(R0, TABLES_NODES, AGGREGATION, PLAIN)
    lows = (0, *(edge + 1 for edge in DEPENDENCY_EDGES[:-1]))
    measures: list[tuple[X, str]] = [(low, f"dependencies_from_{low}") for low in lows]
    known = {0: "figure-6-0", 1: "figure-6-1-4", 5: "figure-6-5-9"}
    panels = []
    for mode in (AGGREGATION, PLAIN):
        shown = known if mode == AGGREGATION and nodes == TABLES_NODES else {}
        paper = points("paper", ((low, in_paper(claim)) for low, claim in shown.items()), joined=False)
        series = (paper, *_by_profile(runs, measures, nodes, mode))
        title = f"{WITH[mode]}, {nodes} nodes"
        panels.append(Panel(title, "dependencies: 0, 1–4, 5–9, 10–14 …", "% of messages", series))
    return Figure("figure-6", "Figure 6: dependencies of messages", words.FIGURE_6_CAPTION, tuple(panels))


def _plot_figure_7(runs: Runs) -> Figure:
    panels = []
    for profile in runs.main:
        series = tuple(
            _over_sizes(runs, f"{what}, {word}", f"{what}_ut", profile, mode)
            for what in ("reception", "delivery")
            for mode, word in ((AGGREGATION, "aggregating"), (PLAIN, "plain"))
        )
        panels.append(Panel(profile, "nodes", "latency, u.t.", series, x_log2=True))
    return Figure("figure-7", "Figure 7: latencies", words.FIGURE_7_CAPTION, tuple(panels))


def _figure_7_change(runs: Runs) -> Figure:
    """What the paper's plot of absolute latencies hides, and its text tells."""
    shown = runs.sizes(R0, AGGREGATION, PLAIN)
    known = {
        "reception": [(nodes, in_paper(f"figure-7-reception-{nodes}")) for nodes in shown],
        "delivery": [(nodes, _sooner(nodes)) for nodes in shown],
    }
    panels = []
    for what, changes in known.items():
        ours = [
            points(
                profile,
                (
                    (nodes, runs.change(f"{what}_ut", profile, nodes, PLAIN, AGGREGATION))
                    for nodes in runs.sizes(profile, AGGREGATION, PLAIN)
                ),
            )
            for profile in runs.main
        ]
        paper = points("paper", changes, joined=False)
        panels.append(
            Panel(f"{what} latency", "nodes", "change by aggregation, %", (paper, *ours), x_log2=True)
        )
    return Figure(
        "figure-7-change", "Figure 7: what aggregation changes", words.FIGURE_7_CHANGE, tuple(panels)
    )


def _plot_figure_8(runs: Runs) -> Figure:
    panels = []
    for profile in runs.main:
        sizes = runs.paired_sizes(profile)
        series = tuple(
            points(
                f"{what}, {word}",
                ((nodes, runs.mean(f"{prefix}_{what}_ut", profile, nodes, AGGREGATION)) for nodes in sizes),
            )
            for what in ("reception", "delivery")
            for prefix, word in (("pair", "in packets of two"), ("pair_plain", "alone"))
        )
        panels.append(Panel(profile, "nodes", "latency, u.t.", series, x_log2=True))
    return Figure("figure-8", "Figure 8: aggregated messages", words.FIGURE_8_CAPTION, tuple(panels))


def _plot_figure_9(runs: Runs) -> Figure:
    nodes = runs.at_size(R0, NODES_NODES, AGGREGATION, PLAIN)
    measures: list[tuple[X, str]] = [(edge, f"nodes_buffering_at_most_{edge}") for edge in BUFFER_EDGES]
    panels = []
    for profile in runs.main:
        series = []
        for mode, word in ((AGGREGATION, "aggregating"), (PLAIN, "plain")):
            if nodes is not None:
                found = ((x, runs.mean(measure, profile, nodes, mode)) for x, measure in measures)
                series.append(points(word, found))
        if any(one.x for one in series) and nodes == NODES_NODES:
            for mode, word in ((AGGREGATION, "aggregating"), (PLAIN, "plain")):
                known = ((50, in_paper(f"figure-9-at-most-50-{WHICH[mode]}")), (250, _at_most_250(mode)))
                series.append(points(f"paper, {word}", known, joined=False))
        title = f"{profile}, {nodes} nodes"
        panels.append(Panel(title, "messages buffered at a time, at most", "nodes", tuple(series)))
    return Figure("figure-9", "Figure 9: buffered messages", words.FIGURE_9_CAPTION, tuple(panels))


def _plot_figure_10(runs: Runs) -> Figure:
    nodes = runs.at_size(R0, NODES_NODES, AGGREGATION, FIVE)
    measures: list[tuple[X, str]] = [
        (messages, f"largest_{messages}_percent") for messages in range(1, LARGEST_MAX + 1)
    ]
    shown = [profile for profile in runs.main if nodes in runs.sizes(profile, FIVE)]
    panels = tuple(
        Panel(
            f"{title}, {nodes} nodes, {' and '.join(shown)}",
            "messages in a node's largest packet",
            "% of nodes",
            tuple(_by_profile(runs, measures, nodes, mode)),
        )
        for mode, title in ((AGGREGATION, "messages of 50 bytes"), (FIVE, "messages of 5 bytes"))
    )
    return Figure("figure-10", "Figure 10: who aggregates", words.FIGURE_10_CAPTION, panels)


def _plot_figure_11(runs: Runs) -> Figure:
    panels = []
    for profile in runs.main:
        series = tuple(
            _over_sizes(runs, f"{word}, {trees}", f"{word}_messages", profile, mode, more=True)
            for word in ("aggregated", "delayed")
            for mode, trees in ((AGGREGATION, "many trees"), (SINGLE, "one tree"))
        )
        panels.append(Panel(profile, "nodes", "messages in a run", series, x_log2=True, y_log=True))
    return Figure(
        "figure-11", "Figure 11: one tree aggregates little", words.FIGURE_11_CAPTION, tuple(panels)
    )
