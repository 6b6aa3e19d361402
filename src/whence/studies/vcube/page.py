"""What the page of the VCube study says whatever comes out: captions, notes, how the paper is read.

Nothing here states what was measured: `vcube_findings.py` does, from the runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from whence.studies.base import Cell, Figure, Panel, Series, Table
from whence.studies.estimate import Estimate
from whence.studies.results import Results
from whence.studies.vcube import claims as published
from whence.studies.vcube.claims import AGGREGATION, FIVE, KINDS, PLAIN, R0, SINGLE
from whence.studies.vcube.measures import BUFFER_EDGES, DEPENDENCY_EDGES, LARGEST_MAX, Runs
from whence.studies.vcube.measures import WINDOW_PARTS as PARTS

TABLE_1_CAPTION = (
    "Without aggregation a run sends exactly N (N − 1) packets. The paper's own column of reductions jumps "
    "between 128 and 256 nodes. R1 is fitted to this table, R0 is not."
)
TABLE_2_CAPTION = "Packets by the number of messages in them, on a logarithmic scale."
TABLE_2_NOTE = (
    "Accepted for R0: ± 3 points on one message, ± 1 on the others, a largest packet of 11 to 16 messages."
)
TABLE_3_CAPTION = (
    "The paper's two column headings are swapped: its text says that 8.45 % of the packets with aggregation "
    "are larger than all packets without, which is 3.91 % + 4.54 % of the column headed “No Aggr.”."
)
TABLE_3_NOTE = (
    "By the paper's account: 20 bytes, and for each message 50 + 4 (dependencies + 1). No packet has exactly "
    "100 bytes. Accepted for R0: ± 10 points."
)
FIGURE_1_CAPTION = (
    "One fixed tree against one tree per source. Every message passes the root of the fixed tree, which "
    "sends log2 N copies of it, one per u.t.: N log2 N exceeds the 500 u.t. of the window from 128 nodes on, "
    "and the root's queue grows as long as nodes broadcast. The paper shows the shape only, from another "
    "publication, and prints no numbers."
)
FIGURE_1_NOTE = "Right: the window in which nodes broadcast, cut into ten parts."
FIGURE_6_CAPTION = (
    "Messages by what they depend on: of how many other nodes the sender had delivered a message when it "
    "broadcast. The paper prints three points."
)
FIGURE_6_NOTE = "Accepted for R0: 27 ± 5 % without dependencies, at most 40 to 70."
FIGURE_7_CAPTION = (
    "From the broadcast to the arrival (reception) and to the delivery at another node. Aggregation keeps a "
    "message back only while the child could not deliver it anyway. In the largest group queues dominate, "
    "and fewer packets queue less."
)
FIGURE_7_CHANGE = (
    "The same latencies with aggregation against those without, seed by seed. The paper prints two points of "
    "the left plot and one of the right; up to 512 nodes it has delivery within 3.2 % either way."
)
FIGURE_7_NOTE = (
    "Means over messages and nodes. Held: from arrival to delivery. Queue: mean wait of a packet for its "
    "transmission. The paper prints the growth of reception latency from 8 to 1024 nodes as 2.1 (with) and "
    "2.2 (without): not reproduced, these cannot be ratios of latencies."
)
FIGURE_8_CAPTION = (
    "Only the messages that arrive in packets of two, beside the same messages at the same nodes in the same "
    "runs without aggregation."
)
FIGURE_8_NOTE = (
    "Changes against being sent alone, where the runs have 30 such copies or more. The paper has reception "
    "up to 13.6 % later, delivery the same but for 1024 nodes, and no aggregation at 8 nodes. No tolerance "
    "is set for this figure."
)
FIGURE_9_CAPTION = (
    "How many nodes never buffer more than so many messages at a time. Demanded is only that more nodes stay "
    "at or below 50 with aggregation. The paper's long tail (24 and 212 nodes that buffer more than 250) is "
    "not reproduced by any reading of the network."
)
FIGURE_9_NOTE = (
    "A message is buffered if it is not delivered in the step in which it arrives. The paper prints “less "
    "than 25 % of the nodes” at or below 50 without aggregation: 256 is that bound."
)
FIGURE_10_CAPTION = (
    "Nodes by the largest packet that they ever sent. Smaller messages leave room for more of them in 1500 "
    "bytes. The paper prints the shares of two ranges: see the table."
)
FIGURE_11_CAPTION = (
    "Messages in packets with several, and messages that are delivered later than they arrive: one tree per "
    "source against a single tree. In one tree all messages take the same way, and only the spread of delays "
    "puts them out of order."
)
FIGURE_11_NOTE = (
    "The paper: at least 86 % fewer aggregated (at 32 nodes) and 84 % fewer delayed (at 128). In groups of "
    "16 and 32 a run has few such messages, so that the scale “paper” repeats them 300 times for this figure "
    "under R0. Nothing is demanded where all runs of a point have fewer than 1,000 of them together."
)

READING_COLUMNS = ("what", "the paper prints", "R0", "R1 (fitted)", "because")
READING = (
    (
        "broadcast times",
        "Poisson, λ = 1000 u.t.",
        "uniform in [0, 500) u.t.",
        "uniform in [0, 550) u.t.",
        "the printed distribution contradicts Figure 6; the authors' sibling simulator draws uniformly",
    ),
    (
        "propagation (tpp)",
        "normal, 100 ± 25 u.t.",
        "normal, 100 ± 25 u.t.",
        "normal, 100 ± 35.4 u.t.",
        "drawn for each packet, a negative draw again; links are not FIFO",
    ),
    ("transmission (tt)", "1 u.t.", "1 u.t. a copy", "as R0", "one FIFO sending queue per node (tq)"),
    (
        "processing (tpc)",
        "1 u.t.",
        "1 u.t. after arrival",
        "as R0",
        "a constant delay; packets do not wait for each other",
    ),
    (
        "size of a packet",
        "header + k (clock + message)",
        "20 + Σ (50 + 4 (dependencies + 1)) bytes",
        "as R0",
        "Birman's compression: what changed since the node's last broadcast, and its own entry",
    ),
    ("MTU", "1500 bytes", "1500 bytes", "as R0", "what does not fit goes into a further packet"),
    (
        "children",
        "1 < s ≤ h",
        "s = 1 … h, in this order",
        "as R0",
        "as printed, Algorithm 1 leaves nodes out",
    ),
)

RESIDUAL_COLUMNS = ("what", "paper", "here", "why")
WHY_REDUCTION = (
    "Aggregation needs messages out of order, so it grows with the spread of delays: R1's is √2 times the "
    "printed one. No reading follows the paper's jump from 15.4 % to 24.5 % between 128 and 256 nodes."
)
WHY_DEPENDENCIES = (
    "Messages with more dependencies make larger packets (Table 3). No uniform window has both of the "
    "paper's shares: a narrower one lowers this share and raises that of messages without dependencies."
)
WHY_GROWTH = (
    "Not reproduced. They cannot be ratios of mean latencies: the mean number of hops alone grows by 2.9, "
    "from 1.7 to 5.0."
)
WHY_QUEUE = (
    "Near saturation a little more traffic makes far longer queues: without aggregation a node sends 1023 "
    "copies, and has little more than the window and the time of the last messages for them."
)
WHY_RECEPTION = (
    "Kept back for a shorter time: what a message waits for comes soon after it. Not demanded; delivery, "
    "which matters, agrees."
)
WHY_PAIRS = (
    "In a packet of two the first message comes with what it waited for here, so that it is nearly always "
    "delivered at once. Not demanded."
)
WHY_TAIL = (
    "Not reproduced by any reading. A tail would need nodes that fall far behind the others; nothing in the "
    "paper's section 5 makes nodes differ."
)
WHY_SINGLE = (
    "The paper does not say how a message gets to the root. Here the source sends it straight there, over "
    "one link."
)
WHY_FEW = (
    "A run of so small a group has only a few delayed messages (see the table), and 30 runs, the paper's "
    "number, can miss the accepted 80 % by chance: this figure takes 300 runs at 16 and 32 nodes."
)


# What the runs of the VCube study showed, in sentences and residuals made from the data.


MINUS = "−"  # as whence.report.format writes it


def findings(runs: Runs, results: Results) -> list[str]:
    """The sentences at the top of the page; one that lacks its data is left out."""
    made = [_packets(runs), _delivery(runs), _residual(runs), _lost(runs), _verified(results)]
    return [sentence for sentence in made if sentence]


def _packets(runs: Runs) -> str:
    sizes = [nodes for nodes in runs.sizes(R0, AGGREGATION) if nodes in published.TABLE_1]
    if not sizes:
        return ""
    small, large = sizes[0], sizes[-1]
    low, high = (runs.mean("reduction_percent", R0, nodes, AGGREGATION) for nodes in (small, large))
    if low is None or high is None:
        return ""
    return (
        f"Aggregation saves {low.mean:.1f} % of the packets in a group of {small} and {high.mean:.1f} % in "
        f"one of {large} under R0; the paper has {published.TABLE_1[small].reduction_percent:.1f} % and "
        f"{published.TABLE_1[large].reduction_percent:.1f} %."
    )


def _delivery(runs: Runs) -> str:
    changes = {
        nodes: found.mean
        for nodes in runs.sizes(R0, AGGREGATION, PLAIN)
        if (found := runs.change("delivery_ut", R0, nodes, PLAIN, AGGREGATION)) is not None
    }
    small = {nodes: change for nodes, change in changes.items() if nodes <= 512}
    if not small:
        return ""
    most = max(abs(change) for change in small.values())
    said = (
        f"It costs no delivery time: up to {max(small)} nodes messages are delivered within {most:.1f} % of "
        f"the time without aggregation (paper: {published.DELIVERY_WITHIN_PERCENT} %)"
    )
    if 1024 in changes:
        said += (
            f", and at 1024 nodes {-changes[1024]:.1f} % sooner (paper: "
            f"{published.FASTER_AT_1024_PERCENT} %), because fewer packets queue"
        )
    return said + "."


def _residual(runs: Runs) -> str:
    parts = []
    for profile in runs.profiles:
        off = _off(runs, profile)
        if off:
            worst = max(off, key=lambda nodes: abs(off[nodes]))
            parts.append(f"{abs(off[worst]):.1f} points ({worst} nodes) under {profile}")
    if not parts:
        return ""
    return (
        f"The largest difference from the paper's reduction is {' and '.join(parts)}. R1 is fitted to the "
        "paper's tables (σ = 35.4 u.t., window 550 u.t.): that it comes near to them is no evidence for it."
    )


def _off(runs: Runs, profile: str) -> dict[int, float]:
    """The reduction less the paper's, by size."""
    return {
        nodes: found.mean - row.reduction_percent
        for nodes, row in published.TABLE_1.items()
        if (found := runs.mean("reduction_percent", profile, nodes, AGGREGATION)) is not None
    }


def _lost(runs: Runs) -> str:
    if published.NODES_NODES not in runs.sizes(R0, AGGREGATION, PLAIN):
        return ""
    return (
        "Not reproduced, as explained below: Figure 9's long tail of nodes that buffer more than 250 "
        "messages, and Figure 7's growth factors 2.1 and 2.2."
    )


def _verified(results: Results) -> str:
    rows = [row for row in results.rows if row.judged]
    if not rows:
        return ""
    deliveries = sum(int(row.verdict["deliveries"]) for row in rows)
    found = sum(results.total(kind) for kind in KINDS)
    largest = max(int(row.labels["nodes"]) for row in rows)
    full = results.column("spark_differs")
    return (
        f"The verifier judged {len(rows)} runs of up to {largest} nodes with {deliveries:,} deliveries and "
        f"found {found:,.0f} violations. What Spark measures from {len(full)} full traces differs in "
        f"{sum(full):,.0f} numbers from what the kernel counted."
    )


# Residuals


def residuals(runs: Runs) -> Table:
    """Where the runs differ from the paper, by how much, and why."""
    rows: list[tuple[Cell, ...]] = [
        (
            "Table 1: reduction",
            "3.3 to 28.8 %",
            _each(runs, lambda profile: _spread(runs, profile)),
            WHY_REDUCTION,
        ),
        (
            "Figure 6: messages with more than 12 dependencies",
            f"{published.ABOVE_12_DEPENDENCIES_PERCENT:g} %",
            _each(runs, lambda profile: _share(runs, profile)),
            WHY_DEPENDENCIES,
        ),
        (
            "Figure 7: growth of reception latency from 8 to 1024 nodes, with and without aggregation",
            f"{published.GROWTH[AGGREGATION]} and {published.GROWTH[PLAIN]}",
            _each(runs, lambda profile: _growth(runs, profile)),
            WHY_GROWTH,
        ),
        (
            "Figure 7: reception with aggregation at 256 nodes",
            f"{_signed(published.RECEPTION_CHANGE_PERCENT[256])} %",
            _each(runs, lambda profile: _changed(runs, profile, "reception_ut", 256, PLAIN, AGGREGATION)),
            WHY_RECEPTION,
        ),
        (
            "Figure 7: queueing without aggregation at 1024 nodes",
            f"{_signed(published.QUEUEING_AT_1024_PERCENT)} %",
            _each(runs, lambda profile: _changed(runs, profile, "queued_ut", 1024, AGGREGATION, PLAIN)),
            WHY_QUEUE,
        ),
        (
            "Figure 8: time held at 64 nodes, in packets of two",
            f"{_signed(published.PAIR_HELD_PERCENT[64], 0)} %",
            _each(runs, lambda profile: _held(runs, profile)),
            WHY_PAIRS,
        ),
        (
            "Figure 9: nodes that ever buffer more than 250, with and without aggregation",
            f"{published.ABOVE_250[AGGREGATION]} and {published.ABOVE_250[PLAIN]}",
            _each(runs, lambda profile: _tail(runs, profile)),
            WHY_TAIL,
        ),
        (
            "Figure 11: aggregated messages in a single tree of 32 nodes",
            f"{_signed(-published.SINGLE_AGGREGATES_LESS_PERCENT, 0)} %",
            _each(
                runs, lambda profile: _changed(runs, profile, "aggregated_messages", 32, AGGREGATION, SINGLE)
            ),
            WHY_SINGLE,
        ),
        (
            "Figure 11: delayed messages in a single tree of 16 nodes",
            f"{_signed(-published.SINGLE_DELAYS_LESS_PERCENT, 0)} %",
            _repeated(runs),
            WHY_FEW,
        ),
    ]
    shown = tuple(row for row in rows if row[2])
    return Table("residuals", "Where the numbers differ, and why", RESIDUAL_COLUMNS, shown)


def _each(runs: Runs, tell: Callable[[str], str]) -> str:
    """What each profile has to say; those that were not run there say nothing."""
    said = ((profile, tell(profile)) for profile in runs.profiles)
    return "; ".join(f"{profile} {what}" for profile, what in said if what)


def _signed(value: float, digits: int = 1) -> str:
    return f"{value:+.{digits}f}".replace("-", MINUS)


def _spread(runs: Runs, profile: str) -> str:
    off = _off(runs, profile)
    return f"{_signed(min(off.values()))} to {_signed(max(off.values()))} points" if off else ""


def _share(runs: Runs, profile: str) -> str:
    found = runs.mean("dependencies_over_12", profile, published.TABLES_NODES, AGGREGATION)
    return f"{found.mean:.0f} %" if found else ""


def _growth(runs: Runs, profile: str) -> str:
    parts = []
    for mode in (AGGREGATION, PLAIN):
        small, large = (runs.mean("reception_ut", profile, nodes, mode) for nodes in (8, 1024))
        if small and large:
            parts.append(f"{large.mean / small.mean:.1f}")
    return " and ".join(parts)


def _changed(runs: Runs, profile: str, measure: str, nodes: int, before: str, after: str) -> str:
    found = runs.change(measure, profile, nodes, before, after, more=True)
    return f"{_signed(found.mean)} %" if found else ""


def _held(runs: Runs, profile: str) -> str:
    found = runs.within(profile, 64, AGGREGATION, "pair_plain_held_ut", "pair_held_ut")
    return f"{_signed(found.mean)} %" if found else ""


def _repeated(runs: Runs) -> str:
    """Under R0, whose group of 16 is run more often for this figure: all runs, and the paper's number."""
    count, every = (len(runs.rows(R0, 16, SINGLE, more=more)) for more in (False, True))
    alone = runs.change("delayed_messages", R0, 16, AGGREGATION, SINGLE)
    full = runs.change("delayed_messages", R0, 16, AGGREGATION, SINGLE, more=True)
    if alone is None or full is None or count == every:
        return ""
    return f"R0 {_signed(full.mean)} % in {every} runs; the first {count} alone {_signed(alone.mean)} %"


def _tail(runs: Runs, profile: str) -> str:
    nodes = published.NODES_NODES
    kept = [runs.mean("nodes_buffering_at_most_250", profile, nodes, mode) for mode in (AGGREGATION, PLAIN)]
    return " and ".join(f"{nodes - found.mean:.0f}" for found in kept if found)


# The paper's tables, and tables for its figures: what is printed beside R0 and R1.


def tables(runs: Runs) -> list[Table]:
    """All tables of the page; each has the name of the section it stands in."""
    made = [
        *_table_1(runs),
        *_table_2(runs),
        *_table_3(runs),
        *_figure_1(runs),
        *_figure_6(runs),
        *_noted([table for profile in runs.profiles for table in _figure_7(runs, profile)], FIGURE_7_NOTE),
        *_noted([_figure_8(runs, profile) for profile in runs.profiles], FIGURE_8_NOTE),
        *_figure_9(runs),
        *_figure_10(runs),
        *_noted([_figure_11(runs, profile) for profile in runs.profiles], FIGURE_11_NOTE),
        residuals(runs),
        Table("reading", "How the paper is read", READING_COLUMNS, READING),
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
    return [Table("table-2", title, columns, tuple(rows), TABLE_2_NOTE)]


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
    return [Table("table-3", title, columns, rows, TABLE_3_NOTE)]


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
    return [Table("figure-6", title, ("messages with", *_heads(runs, "")), rows, FIGURE_6_NOTE)]


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
    return [Table("figure-1", "Mean reception latency under R0, u.t.", columns, rows, FIGURE_1_NOTE)]


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
    return [Table("figure-9", title, ("what", "aggregation", *_heads(runs, "")), tuple(rows), FIGURE_9_NOTE)]


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


# The paper's figures, and one for each of its tables, from the runs: plain data, drawn by the report.


X = float | str


def figures(runs: Runs) -> list[Figure]:
    """All figures of the page, in the order of the paper; one without a point is left out."""
    made = [
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


def _plot_table_1(runs: Runs) -> Figure:
    shown = [nodes for nodes in runs.sizes(R0, AGGREGATION) if nodes in published.TABLE_1]
    panels = []
    for title, measure, place in (
        ("fewer packets with aggregation", "reduction_percent", 2),
        ("packets with more than one message", "aggregated_percent", 3),
    ):
        paper = _paper("paper", ((nodes, published.TABLE_1[nodes][place]) for nodes in shown))
        ours = [_over_sizes(runs, profile, measure, profile, AGGREGATION) for profile in runs.profiles]
        panels.append(Panel(title, "nodes", "% of packets", (paper, *ours), x_log2=True))
    return Figure("table-1", "Table 1: packets", TABLE_1_CAPTION, tuple(panels))


def _plot_table_2(runs: Runs) -> Figure:
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
    return Figure("table-2", "Table 2: messages per packet", TABLE_2_CAPTION, tuple(panels))


def _short(name: str) -> str:
    return name if name.isdigit() else "> 5"


def _plot_table_3(runs: Runs) -> Figure:
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
    return Figure("table-3", "Table 3: sizes of packets", TABLE_3_CAPTION, tuple(panels))


# The figures


def _plot_figure_1(runs: Runs) -> Figure:
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
        FIGURE_1_CAPTION,
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
    return Figure("figure-6", "Figure 6: dependencies of messages", FIGURE_6_CAPTION, tuple(panels))


def _plot_figure_7(runs: Runs) -> Figure:
    panels = []
    for profile in runs.profiles:
        series = tuple(
            _over_sizes(runs, f"{what}, {word}", f"{what}_ut", profile, mode)
            for what in ("reception", "delivery")
            for mode, word in ((AGGREGATION, "aggregating"), (PLAIN, "plain"))
        )
        panels.append(Panel(profile, "nodes", "latency, u.t.", series, x_log2=True))
    return Figure("figure-7", "Figure 7: latencies", FIGURE_7_CAPTION, tuple(panels))


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
    return Figure("figure-7-change", "Figure 7: what aggregation changes", FIGURE_7_CHANGE, tuple(panels))


def _plot_figure_8(runs: Runs) -> Figure:
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
    return Figure("figure-8", "Figure 8: aggregated messages", FIGURE_8_CAPTION, tuple(panels))


def _plot_figure_9(runs: Runs) -> Figure:
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
    return Figure("figure-9", "Figure 9: buffered messages", FIGURE_9_CAPTION, tuple(panels))


def _plot_figure_10(runs: Runs) -> Figure:
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
    return Figure("figure-10", "Figure 10: who aggregates", FIGURE_10_CAPTION, panels)


def _plot_figure_11(runs: Runs) -> Figure:
    panels = []
    for profile in runs.profiles:
        series = tuple(
            _over_sizes(runs, f"{word}, {trees}", f"{word}_messages", profile, mode, more=True)
            for word in ("aggregated", "delayed")
            for mode, trees in ((AGGREGATION, "many trees"), (SINGLE, "one tree"))
        )
        panels.append(Panel(profile, "nodes", "messages in a run", series, x_log2=True, y_log=True))
    return Figure("figure-11", "Figure 11: one tree aggregates little", FIGURE_11_CAPTION, tuple(panels))
