"""The paper's figures, and one for each of its tables, from the runs: plain data, drawn by the report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from whence.studies import vcube_published as published
from whence.studies import vcube_text as text
from whence.studies.base import Figure, Panel, Series
from whence.studies.estimate import Estimate
from whence.studies.vcube_expect import AGGREGATION, FIVE, PLAIN, R0, SINGLE
from whence.studies.vcube_measures import BUFFER_EDGES, DEPENDENCY_EDGES, LARGEST_MAX
from whence.studies.vcube_measures import WINDOW_PARTS as PARTS
from whence.studies.vcube_runs import Runs

X = float | str


def figures(runs: Runs) -> list[Figure]:
    """All figures of the page, in the order of the paper; one without a point is left out."""
    made = [
        _table_1(runs),
        _table_2(runs),
        _table_3(runs),
        _figure_1(runs),
        _figure_6(runs),
        _figure_7(runs),
        _figure_7_change(runs),
        _figure_8(runs),
        _figure_9(runs),
        _figure_10(runs),
        _figure_11(runs),
    ]
    shown = (_drawable(figure) for figure in made)
    return [figure for figure in shown if figure.panels]


def _drawable(figure: Figure) -> Figure:
    panels = [
        Panel(
            panel.title,
            panel.x_label,
            panel.y_label,
            tuple(series for series in panel.series if series.x),
            panel.x_log2,
            panel.y_log,
        )
        for panel in figure.panels
    ]
    return Figure(figure.name, figure.title, figure.caption, tuple(panel for panel in panels if panel.series))


def _series(label: str, points: Iterable[tuple[X, Estimate | None]]) -> Series:
    found = [(x, y) for x, y in points if y is not None]
    return Series(label, tuple(x for x, _ in found), tuple(y for _, y in found))


def _paper(label: str, points: Iterable[tuple[X, float | None]], *, joined: bool = True) -> Series:
    """What the paper prints; not joined if it prints a few points of many."""
    made = _series(label, ((x, None if y is None else Estimate(y, None, 1)) for x, y in points))
    return replace(made, joined=joined)


def _over_sizes(
    runs: Runs, label: str, measure: str, profile: str, mode: str, *, more: bool = False
) -> Series:
    sizes = runs.sizes(profile, mode)
    return _series(label, ((nodes, runs.mean(measure, profile, nodes, mode, more=more)) for nodes in sizes))


def _by_profile(runs: Runs, measures: Sequence[tuple[X, str]], nodes: int | None, mode: str) -> list[Series]:
    """One series for each profile: several measures of one group size."""
    if nodes is None:
        return []
    return [
        _series(profile, ((x, runs.mean(measure, profile, nodes, mode)) for x, measure in measures))
        for profile in runs.profiles
    ]


# The tables


def _table_1(runs: Runs) -> Figure:
    shown = [nodes for nodes in runs.sizes(R0, AGGREGATION) if nodes in published.TABLE_1]
    panels = []
    for title, measure, place in (
        ("fewer packets with aggregation", "reduction_percent", 2),
        ("packets with more than one message", "aggregated_percent", 3),
    ):
        paper = _paper("paper", ((nodes, published.TABLE_1[nodes][place]) for nodes in shown))
        ours = [_over_sizes(runs, profile, measure, profile, AGGREGATION) for profile in runs.profiles]
        panels.append(Panel(title, "nodes", "% of packets", (paper, *ours), x_log2=True))
    return Figure("table-1", "Table 1: packets", text.TABLE_1_CAPTION, tuple(panels))


def _table_2(runs: Runs) -> Figure:
    nodes = runs.at_size(R0, published.TABLES_NODES, AGGREGATION)
    is_printed = nodes == published.TABLES_NODES
    panels = []
    for title, prefix, place in (
        ("all packets", "packets", 0),
        ("packets with several messages", "aggregated", 1),
    ):
        names = [name for name in published.TABLE_2 if published.TABLE_2[name][place] is not None]
        measures: list[tuple[X, str]] = [
            (_short(name), f"{prefix}_of_{name if name.isdigit() else 'more'}") for name in names
        ]
        printed = ((_short(name), published.TABLE_2[name][place]) for name in names if is_printed)
        series = (_paper("paper", printed), *_by_profile(runs, measures, nodes, AGGREGATION))
        panels.append(Panel(f"{title}, {nodes} nodes", "messages per packet", "%", series, y_log=True))
    return Figure("table-2", "Table 2: messages per packet", text.TABLE_2_CAPTION, tuple(panels))


def _short(name: str) -> str:
    return name if name.isdigit() else "> 5"


def _table_3(runs: Runs) -> Figure:
    nodes = runs.at_size(R0, published.TABLES_NODES, AGGREGATION, PLAIN)
    is_printed = nodes == published.TABLES_NODES
    names = ("< 100", "100–200", "200–300", "300–400", "> 400")
    measures: list[tuple[X, str]] = [
        (name, f"bytes_above_{low}") for name, low in zip(names, (0, 100, 200, 300, 400), strict=True)
    ]
    panels = []
    for mode, title in ((AGGREGATION, "with aggregation"), (PLAIN, "without")):
        printed = zip(names, published.TABLE_3[mode], strict=True) if is_printed else ()
        series = (_paper("paper", printed), *_by_profile(runs, measures, nodes, mode))
        panels.append(Panel(f"{title}, {nodes} nodes", "bytes of a packet", "% of packets", series))
    return Figure("table-3", "Table 3: sizes of packets", text.TABLE_3_CAPTION, tuple(panels))


# The figures


def _figure_1(runs: Runs) -> Figure:
    trees = (
        ("one fixed tree", SINGLE),
        ("tree per source", PLAIN),
        ("tree per source, aggregating", AGGREGATION),
    )
    growing = tuple(_over_sizes(runs, label, "reception_ut", R0, mode) for label, mode in trees)
    nodes = runs.at_size(R0, published.NODES_NODES, AGGREGATION, PLAIN, SINGLE)
    within = tuple(
        _series(
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
        text.FIGURE_1_CAPTION,
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


def _figure_6(runs: Runs) -> Figure:
    nodes = runs.at_size(R0, published.TABLES_NODES, AGGREGATION, PLAIN)
    lows = (0, *(edge + 1 for edge in DEPENDENCY_EDGES[:-1]))
    measures: list[tuple[X, str]] = [(low, f"dependencies_from_{low}") for low in lows]
    printed = zip((0, 1, 5), published.DEPENDENCIES.values(), strict=True)
    panels = []
    for mode, title in ((AGGREGATION, "with aggregation"), (PLAIN, "without")):
        is_printed = mode == AGGREGATION and nodes == published.TABLES_NODES
        paper = _paper("paper", printed if is_printed else (), joined=False)
        series = (paper, *_by_profile(runs, measures, nodes, mode))
        panels.append(
            Panel(f"{title}, {nodes} nodes", "dependencies: 0, 1–4, 5–9, 10–14 …", "% of messages", series)
        )
    return Figure("figure-6", "Figure 6: dependencies of messages", text.FIGURE_6_CAPTION, tuple(panels))


def _figure_7(runs: Runs) -> Figure:
    panels = []
    for profile in runs.profiles:
        series = tuple(
            _over_sizes(runs, f"{what}, {word}", f"{what}_ut", profile, mode)
            for what in ("reception", "delivery")
            for mode, word in ((AGGREGATION, "aggregating"), (PLAIN, "plain"))
        )
        panels.append(Panel(profile, "nodes", "latency, u.t.", series, x_log2=True))
    return Figure("figure-7", "Figure 7: latencies", text.FIGURE_7_CAPTION, tuple(panels))


def _figure_7_change(runs: Runs) -> Figure:
    """What the paper's plot of absolute latencies hides, and its text tells."""
    printed = {
        "reception": published.RECEPTION_CHANGE_PERCENT,
        "delivery": {1024: -published.FASTER_AT_1024_PERCENT},
    }
    panels = []
    for what, known in printed.items():
        ours = [
            _series(
                profile,
                (
                    (nodes, runs.change(f"{what}_ut", profile, nodes, PLAIN, AGGREGATION))
                    for nodes in runs.sizes(profile, AGGREGATION, PLAIN)
                ),
            )
            for profile in runs.profiles
        ]
        run = runs.sizes(R0, AGGREGATION, PLAIN)
        points = ((nodes, percent) for nodes, percent in known.items() if nodes in run)
        paper = _paper("paper", points, joined=False)
        panels.append(
            Panel(f"{what} latency", "nodes", "change by aggregation, %", (paper, *ours), x_log2=True)
        )
    return Figure(
        "figure-7-change", "Figure 7: what aggregation changes", text.FIGURE_7_CHANGE, tuple(panels)
    )


def _figure_8(runs: Runs) -> Figure:
    panels = []
    for profile in runs.profiles:
        sizes = runs.paired_sizes(profile)
        series = tuple(
            _series(
                f"{what}, {word}",
                ((nodes, runs.mean(f"{prefix}_{what}_ut", profile, nodes, AGGREGATION)) for nodes in sizes),
            )
            for what in ("reception", "delivery")
            for prefix, word in (("pair", "in packets of two"), ("pair_plain", "alone"))
        )
        panels.append(Panel(profile, "nodes", "latency, u.t.", series, x_log2=True))
    return Figure("figure-8", "Figure 8: aggregated messages", text.FIGURE_8_CAPTION, tuple(panels))


def _figure_9(runs: Runs) -> Figure:
    nodes = runs.at_size(R0, published.NODES_NODES, AGGREGATION, PLAIN)
    is_printed = nodes == published.NODES_NODES
    measures: list[tuple[X, str]] = [(edge, f"nodes_buffering_at_most_{edge}") for edge in BUFFER_EDGES]
    panels = []
    for profile in runs.profiles:
        series = []
        for mode, word in ((AGGREGATION, "aggregating"), (PLAIN, "plain")):
            if nodes is not None:
                found = ((x, runs.mean(measure, profile, nodes, mode)) for x, measure in measures)
                series.append(_series(word, found))
        if any(one.x for one in series) and is_printed:
            for mode, word in ((AGGREGATION, "aggregating"), (PLAIN, "plain")):
                points = ((50, published.AT_MOST_50[mode]), (250, 1024 - published.ABOVE_250[mode]))
                series.append(_paper(f"paper, {word}", points, joined=False))
        panels.append(
            Panel(
                f"{profile}, {nodes} nodes",
                "messages buffered at a time, at most",
                "nodes",
                tuple(series),
            )
        )
    return Figure("figure-9", "Figure 9: buffered messages", text.FIGURE_9_CAPTION, tuple(panels))


def _figure_10(runs: Runs) -> Figure:
    nodes = runs.at_size(R0, published.NODES_NODES, AGGREGATION, FIVE)
    measures: list[tuple[X, str]] = [
        (messages, f"largest_{messages}_percent") for messages in range(1, LARGEST_MAX + 1)
    ]
    shown = [profile for profile in runs.profiles if nodes in runs.sizes(profile, FIVE)]
    panels = tuple(
        Panel(
            f"{title}, {nodes} nodes, {' and '.join(shown)}",
            "messages in a node's largest packet",
            "% of nodes",
            tuple(_by_profile(runs, measures, nodes, mode)),
        )
        for mode, title in ((AGGREGATION, "messages of 50 bytes"), (FIVE, "messages of 5 bytes"))
    )
    return Figure("figure-10", "Figure 10: who aggregates", text.FIGURE_10_CAPTION, panels)


def _figure_11(runs: Runs) -> Figure:
    panels = []
    for profile in runs.profiles:
        series = tuple(
            _over_sizes(runs, f"{word}, {trees}", f"{word}_messages", profile, mode, more=True)
            for word in ("aggregated", "delayed")
            for mode, trees in ((AGGREGATION, "many trees"), (SINGLE, "one tree"))
        )
        panels.append(Panel(profile, "nodes", "messages in a run", series, x_log2=True, y_log=True))
    return Figure("figure-11", "Figure 11: one tree aggregates little", text.FIGURE_11_CAPTION, tuple(panels))
