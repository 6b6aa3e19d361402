"""The paper's tables, and tables for its figures: what is printed beside R0 and R1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from whence.studies import vcube_published as published
from whence.studies import vcube_text as text
from whence.studies.base import Cell, Table
from whence.studies.estimate import Estimate
from whence.studies.vcube_expect import AGGREGATION, FIVE, PLAIN, R0, SINGLE
from whence.studies.vcube_findings import residuals
from whence.studies.vcube_runs import Runs


def tables(runs: Runs) -> list[Table]:
    """All tables of the page; each has the name of the section it stands in."""
    made = [
        *_table_1(runs),
        *_table_2(runs),
        *_table_3(runs),
        *_figure_1(runs),
        *_figure_6(runs),
        *_noted(
            [table for profile in runs.profiles for table in _figure_7(runs, profile)], text.FIGURE_7_NOTE
        ),
        *_noted([_figure_8(runs, profile) for profile in runs.profiles], text.FIGURE_8_NOTE),
        *_figure_9(runs),
        *_figure_10(runs),
        *_noted([_figure_11(runs, profile) for profile in runs.profiles], text.FIGURE_11_NOTE),
        residuals(runs),
        Table("reading", "How the paper is read", text.READING_COLUMNS, text.READING),
    ]
    return [table for table in made if table.rows]


def _noted(made: Sequence[Table], note: str) -> list[Table]:
    """Tables of one section, with a note under the last."""
    shown = [table for table in made if table.rows]
    return [*shown[:-1], *(replace(table, note=note) for table in shown[-1:])]


def _minus(measured: Estimate | None, expected: float | None) -> Cell:
    """How far off; a number of points that is not an estimate."""
    return None if measured is None or expected is None else round(measured.mean - expected, 2)


def _printed(value: float, nodes: int, wanted: int) -> float | None:
    """What the paper prints for one size says nothing about another."""
    return value if nodes == wanted else None


# Table 1


def _table_1(runs: Runs) -> list[Table]:
    sizes = [nodes for nodes in runs.sizes(R0, AGGREGATION, PLAIN) if nodes in published.TABLE_1]
    packets = tuple(
        (
            nodes,
            runs.mean("packets", R0, nodes, PLAIN),
            published.TABLE_1[nodes].aggregated,
            *(runs.mean("packets", profile, nodes, AGGREGATION) for profile in runs.profiles),
        )
        for nodes in sizes
    )
    columns = ("nodes", "without", "with, paper", *(f"with, {profile}" for profile in runs.profiles))
    return [
        Table("table-1", "Packets sent, with and without aggregation", columns, packets),
        _beside_paper(
            runs,
            "Reduction of packets by aggregation, %",
            "reduction_percent",
            {nodes: (row.reduction_percent, published.PROTOTYPE_R0[nodes].reduction_percent)
             for nodes, row in published.TABLE_1.items() if nodes in sizes},
        ),
        _beside_paper(
            runs,
            "Packets with more than one message, %",
            "aggregated_percent",
            {nodes: (row.aggregated_percent, published.PROTOTYPE_R0[nodes].aggregated_percent)
             for nodes, row in published.TABLE_1.items() if nodes in sizes},
        ),
    ]  # fmt: skip


def _beside_paper(runs: Runs, title: str, measure: str, printed: dict[int, tuple[float, float]]) -> Table:
    """One measure over the sizes, beside what the paper prints and what the prototype had."""
    rows = []
    for nodes, (paper, prototype) in printed.items():
        row: list[Cell] = [nodes, paper, prototype]
        for profile in runs.profiles:
            found = runs.mean(measure, profile, nodes, AGGREGATION)
            row += [found, _minus(found, paper)]
        rows.append(tuple(row))
    heads = [head for profile in runs.profiles for head in (profile, f"{profile} − paper")]
    return Table("table-1", title, ("nodes", "paper", "prototype R0", *heads), tuple(rows))


# Tables 2 and 3, Figure 6: one size


class _Line(NamedTuple):
    """One row of a table for one group size: its name, its measure, and what the paper prints."""

    name: str
    measure: str
    printed: float | None


def _lines(runs: Runs, nodes: int, wanted: int, lines: Sequence[_Line], mode: str) -> list[list[Cell]]:
    """What is printed and each profile's estimate, for each line."""
    return [
        [
            None if line.printed is None else _printed(line.printed, nodes, wanted),
            *(runs.mean(line.measure, profile, nodes, mode) for profile in runs.profiles),
        ]
        for line in lines
    ]


def _heads(runs: Runs, *groups: str) -> tuple[str, ...]:
    return tuple(f"{group}{who}" for group in groups for who in ("paper", *runs.profiles))


def _table_2(runs: Runs) -> list[Table]:
    nodes = runs.at_size(R0, published.TABLES_NODES, AGGREGATION)
    if nodes is None:
        return []
    keys = {name: name if name.isdigit() else "more" for name in published.TABLE_2}
    every = [_Line(name, f"packets_of_{keys[name]}", both[0]) for name, both in published.TABLE_2.items()]
    several = [
        _Line(name, f"aggregated_of_{keys[name]}", both[1]) for name, both in published.TABLE_2.items()
    ]
    wanted = published.TABLES_NODES
    cells = zip(
        (line.name for line in every),
        _lines(runs, nodes, wanted, every, AGGREGATION),
        _lines(runs, nodes, wanted, several, AGGREGATION),
        strict=True,
    )
    rows = [(name, *left, *right) for name, left, right in cells]
    (largest,) = _lines(runs, nodes, wanted, [_Line("", "largest_packet", 15)], AGGREGATION)
    rows.append(("largest packet", *largest, *(None for _ in largest)))
    title = f"Messages per packet, {nodes} nodes: % of all packets, and of those with several messages"
    columns = ("messages", *_heads(runs, "all: ", "several: "))
    return [Table("table-2", title, columns, tuple(rows), text.TABLE_2_NOTE)]


def _table_3(runs: Runs) -> list[Table]:
    nodes = runs.at_size(R0, published.TABLES_NODES, AGGREGATION, PLAIN)
    if nodes is None:
        return []
    halves = []
    for mode, percents in published.TABLE_3.items():
        lines = [
            _Line(name, f"bytes_above_{low}", percent)
            for low, name, percent in zip((0, 100, 200, 300, 400), published.BYTES, percents, strict=True)
        ]
        above = published.ABOVE_1400_PERCENT if mode == AGGREGATION else None
        lines.append(_Line("of these above 1400", "bytes_over_1400", above))
        halves.append(_lines(runs, nodes, published.TABLES_NODES, lines, mode))
    names = (*published.BYTES, "of these above 1400")
    rows = tuple((name, *left, *right) for name, left, right in zip(names, *halves, strict=True))
    columns = ("bytes of a packet", *_heads(runs, "with: ", "without: "))
    title = f"Packets by size, {nodes} nodes, % with and without aggregation"
    return [Table("table-3", title, columns, rows, text.TABLE_3_NOTE)]


def _figure_6(runs: Runs) -> list[Table]:
    nodes = runs.at_size(R0, published.TABLES_NODES, AGGREGATION)
    if nodes is None:
        return []
    starts = {"0": 0, "1 to 4": 1, "5 to 9": 5}
    lines = [
        _Line(f"{name} dependencies, %", f"dependencies_from_{starts[name]}", percent)
        for name, percent in published.DEPENDENCIES.items()
    ]
    lines.append(_Line("more than 12, %", "dependencies_over_12", published.ABOVE_12_DEPENDENCIES_PERCENT))
    lines.append(_Line("most of any message", "dependencies_max", published.DEPENDENCIES_MAX))
    cells = _lines(runs, nodes, published.TABLES_NODES, lines, AGGREGATION)
    rows = tuple((line.name, *row) for line, row in zip(lines, cells, strict=True))
    title = f"Dependencies of messages, {nodes} nodes, with aggregation"
    return [Table("figure-6", title, ("messages with", *_heads(runs, "")), rows, text.FIGURE_6_NOTE)]


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
    columns = (
        "nodes",
        "tree per source",
        "tree per source, aggregating",
        "one fixed tree",
        "one tree later by, %",
    )
    return [Table("figure-1", "Mean reception latency under R0, u.t.", columns, rows, text.FIGURE_1_NOTE)]


def _figure_7(runs: Runs, profile: str) -> list[Table]:
    latencies, waits = [], []
    for nodes in runs.sizes(profile, AGGREGATION, PLAIN):
        faster = -published.FASTER_AT_1024_PERCENT if nodes == 1024 else None
        printed = {"reception_ut": published.RECEPTION_CHANGE_PERCENT.get(nodes), "delivery_ut": faster}
        row: list[Cell] = [nodes]
        for measure, paper in printed.items():
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
                published.HELD_LONGER_PERCENT.get(nodes),
                *_both(runs, "queued_ut", profile, nodes),
                runs.change("queued_ut", profile, nodes, AGGREGATION, PLAIN),
                published.QUEUEING_AT_1024_PERCENT if nodes == 1024 else None,
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
        rows.append((nodes, copies, *changes, published.PAIR_HELD_PERCENT.get(nodes)))
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
    columns = (
        "nodes",
        "runs",
        "aggregated, many trees",
        "one tree",
        "change, %",
        "delayed, many trees",
        "one tree",
        "change, %",
    )
    title = f"Aggregated and delayed messages a run, under {profile}"
    return Table("figure-11", title, columns, tuple(rows))


# Figures 9 and 10: one size


def _figure_9(runs: Runs) -> list[Table]:
    nodes = runs.at_size(R0, published.NODES_NODES, AGGREGATION, PLAIN)
    if nodes is None:
        return []
    rows = []
    for mode in (AGGREGATION, PLAIN):
        lines = [
            _Line(
                "nodes that never buffer over 50", "nodes_buffering_at_most_50", published.AT_MOST_50[mode]
            ),
            _Line(
                "nodes that never buffer over 250",
                "nodes_buffering_at_most_250",
                1024 - published.ABOVE_250[mode],
            ),
            _Line("most that a node buffers", "buffered_max", None),
        ]
        cells = _lines(runs, nodes, published.NODES_NODES, lines, mode)
        which = "with aggregation" if mode == AGGREGATION else "without"
        rows += [(line.name, which, *row) for line, row in zip(lines, cells, strict=True)]
    rows.sort(key=lambda row: str(row[0]), reverse=True)
    title = f"Buffered messages, {nodes} nodes"
    return [
        Table("figure-9", title, ("what", "aggregation", *_heads(runs, "")), tuple(rows), text.FIGURE_9_NOTE)
    ]


def _figure_10(runs: Runs) -> list[Table]:
    nodes = runs.at_size(R0, published.NODES_NODES, AGGREGATION, FIVE)
    if nodes is None:
        return []
    fifty = [
        _Line(
            "50 bytes: nodes with 7 to 11, %", "largest_7_to_11_percent", published.LARGEST_50_BYTES_PERCENT
        ),
        _Line("50 bytes: largest of all", "largest_max", published.LARGEST_50_BYTES_MAX),
    ]
    five = [
        _Line("5 bytes: nodes with 8 to 12, %", "largest_8_to_12_percent", published.LARGEST_5_BYTES_PERCENT),
        _Line("5 bytes: largest of all", "largest_max", None),
    ]
    rows = []
    for lines, mode in ((fifty, AGGREGATION), (five, FIVE)):
        cells = _lines(runs, nodes, published.NODES_NODES, lines, mode)
        rows += [(line.name, *row) for line, row in zip(lines, cells, strict=True)]
    title = f"Messages in a node's largest packet, {nodes} nodes"
    return [Table("figure-10", title, ("what", *_heads(runs, "")), tuple(rows))]


# The page's first table


def headline(runs: Runs) -> Table:
    """The paper's main claims beside what was measured."""
    large = max(runs.sizes(R0, AGGREGATION, PLAIN), default=0)
    middle = runs.at_size(R0, published.TABLES_NODES, AGGREGATION) or large
    row = published.TABLE_1.get(large)

    def faster(profile: str) -> Estimate | None:
        found = runs.change("delivery_ut", profile, large, PLAIN, AGGREGATION)
        return None if found is None else Estimate(-found.mean, found.half, found.count)

    def means(measure: str, nodes: int) -> list[Estimate | None]:
        return [runs.mean(measure, profile, nodes, AGGREGATION) for profile in runs.profiles]

    wanted = published.TABLES_NODES
    alone = _printed(published.TABLE_2["1"][0], middle, wanted)
    free = _printed(published.DEPENDENCIES["0"], middle, wanted)
    rows = (
        (
            f"packets saved, {large} nodes, %",
            row and row.reduction_percent,
            *means("reduction_percent", large),
        ),
        (
            f"packets with several messages, {large} nodes, %",
            row and row.aggregated_percent,
            *means("aggregated_percent", large),
        ),
        (
            f"delivery faster with aggregation, {large} nodes, %",
            _printed(published.FASTER_AT_1024_PERCENT, large, 1024),
            *(faster(profile) for profile in runs.profiles),
        ),
        (f"packets of one message, {middle} nodes, %", alone, *means("packets_of_1", middle)),
        (f"messages without dependencies, {middle} nodes, %", free, *means("dependencies_from_0", middle)),
    )
    title = "The paper at a glance: means over the runs, with 95 % intervals"
    return Table("glance", title, ("what", *_heads(runs, "")), rows)
