"""The page of the VCube study: what the paper prints beside R0 and R1.

Captions and notes say what holds whatever comes out; sentences, tables and figures are made from the runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from whence.studies.base import Cell, Figure, Panel, Series, Table
from whence.studies.claims import printed
from whence.studies.cuts import X, drawable, points
from whence.studies.estimate import Estimate
from whence.studies.results import Results
from whence.studies.vcube.claims import (
    AGGREGATION,
    BYTES,
    CLAIMS,
    DELIVERY_WITHIN_PERCENT,
    FIVE,
    NODES_NODES,
    PLAIN,
    SINGLE,
    TABLES_NODES,
    WITH,
)
from whence.studies.vcube.measures import BUFFER_EDGES, DEPENDENCY_EDGES, LARGEST_MAX, Runs
from whence.studies.vcube.measures import WINDOW_PARTS as PARTS

R0 = "R0"
MESSAGES = {"1": "1", "2": "2", "3": "3", "4": "4", "5": "5", "more": "6 to 15"}  # Table 2
_PRINTED = printed(CLAIMS)


def _paper(name: str) -> float | None:
    """What the paper prints, by the id of the claim."""
    return _PRINTED.get(f"000-{name}")


def _printed(name: str) -> float:
    """The same of a number that is there."""
    return _PRINTED[f"000-{name}"]


def _table_sizes(runs: Runs, *modes: str) -> list[int]:
    """The sizes of Table 1 that were run."""
    return [nodes for nodes in runs.sizes(R0, *modes) if _paper(f"table-1-reduction-{nodes}") is not None]


# Captions and notes


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
    ("broadcast times", "Poisson, λ = 1000 u.t.", "uniform in [0, 500) u.t.", "uniform in [0, 550) u.t.",
     "the printed distribution contradicts Figure 6; the authors' sibling simulator draws uniformly"),
    ("propagation (tpp)", "normal, 100 ± 25 u.t.", "normal, 100 ± 25 u.t.", "normal, 100 ± 35.4 u.t.",
     "drawn for each packet, a negative draw again; links are not FIFO"),
    ("transmission (tt)", "1 u.t.", "1 u.t. a copy", "as R0", "one FIFO sending queue per node (tq)"),
    ("processing (tpc)", "1 u.t.", "1 u.t. after arrival", "as R0",
     "a constant delay; packets do not wait for each other"),
    ("size of a packet", "header + k (clock + message)", "20 + Σ (50 + 4 (dependencies + 1)) bytes", "as R0",
     "Birman's compression: what changed since the node's last broadcast, and its own entry"),
    ("MTU", "1500 bytes", "1500 bytes", "as R0", "what does not fit goes into a further packet"),
    ("children", "1 < s ≤ h", "s = 1 … h, in this order", "as R0",
     "as printed, Algorithm 1 leaves nodes out"),
)  # fmt: skip

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


# Sentences from the runs


MINUS = "−"  # as whence.report.format writes it


def findings(runs: Runs, results: Results) -> list[str]:
    """The sentences at the top of the page; one that lacks its data is left out."""
    made = [_packets(runs), _delivery(runs), _residual(runs), _lost(runs), _verified(results)]
    return [sentence for sentence in made if sentence]


def _packets(runs: Runs) -> str:
    sizes = _table_sizes(runs, AGGREGATION)
    if not sizes:
        return ""
    small, large = sizes[0], sizes[-1]
    low, high = (runs.mean("reduction_percent", R0, nodes, AGGREGATION) for nodes in (small, large))
    if low is None or high is None:
        return ""
    return (
        f"Aggregation saves {low.mean:.1f} % of the packets in a group of {small} and {high.mean:.1f} % in "
        f"one of {large} under R0; the paper has {_printed(f'table-1-reduction-{small}'):.1f} % and "
        f"{_printed(f'table-1-reduction-{large}'):.1f} %."
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
        f"the time without aggregation (paper: {DELIVERY_WITHIN_PERCENT} %)"
    )
    if 1024 in changes:
        said += (
            f", and at 1024 nodes {-changes[1024]:.1f} % sooner (paper: "
            f"{_printed('figure-7-delivery-1024')} %), because fewer packets queue"
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
        nodes: found.mean - _printed(f"table-1-reduction-{nodes}")
        for nodes in _table_sizes(runs, AGGREGATION)
        if (found := runs.mean("reduction_percent", profile, nodes, AGGREGATION)) is not None
    }


def _lost(runs: Runs) -> str:
    if NODES_NODES not in runs.sizes(R0, AGGREGATION, PLAIN):
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
    kinds = ("causal", "duplicate", "created", "fifo", "missing", "malformed")
    found = sum(results.total(kind) for kind in kinds)
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
    growth, tail = (
        " and ".join(f"{_printed(f'{name}-{mode}')}" for mode in (AGGREGATION, PLAIN))
        for name in ("figure-7-growth", "figure-9-over-250")
    )

    def change(measure: str, nodes: int, before: str, after: str) -> str:
        return _each(runs, lambda profile: _changed(runs, profile, measure, nodes, before, after))

    rows: list[tuple[Cell, ...]] = [
        ("Table 1: reduction", "3.3 to 28.8 %",
         _each(runs, lambda profile: _spread(runs, profile)), WHY_REDUCTION),
        ("Figure 6: messages with more than 12 dependencies", f"{_printed('figure-6-over-12'):g} %",
         _each(runs, lambda profile: _share(runs, profile)), WHY_DEPENDENCIES),
        ("Figure 7: growth of reception latency from 8 to 1024 nodes, with and without aggregation", growth,
         _each(runs, lambda profile: _growth(runs, profile)), WHY_GROWTH),
        ("Figure 7: reception with aggregation at 256 nodes",
         f"{_signed(_printed('figure-7-reception-256'))} %",
         change("reception_ut", 256, PLAIN, AGGREGATION), WHY_RECEPTION),
        ("Figure 7: queueing without aggregation at 1024 nodes",
         f"{_signed(_printed('figure-7-queue-1024'))} %",
         change("queued_ut", 1024, AGGREGATION, PLAIN), WHY_QUEUE),
        ("Figure 8: time held at 64 nodes, in packets of two",
         f"{_signed(_printed('figure-8-held-64'), 0)} %",
         _each(runs, lambda profile: _held(runs, profile)), WHY_PAIRS),
        ("Figure 9: nodes that ever buffer more than 250, with and without aggregation", tail,
         _each(runs, lambda profile: _tail(runs, profile)), WHY_TAIL),
        ("Figure 11: aggregated messages in a single tree of 32 nodes",
         f"{_signed(-_printed('figure-11-aggregated'), 0)} %",
         change("aggregated_messages", 32, AGGREGATION, SINGLE), WHY_SINGLE),
        ("Figure 11: delayed messages in a single tree of 16 nodes",
         f"{_signed(-_printed('figure-11-delayed'), 0)} %", _repeated(runs), WHY_FEW),
    ]  # fmt: skip
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
    found = runs.mean("dependencies_over_12", profile, TABLES_NODES, AGGREGATION)
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
    nodes = NODES_NODES
    kept = [runs.mean("nodes_buffering_at_most_250", profile, nodes, mode) for mode in (AGGREGATION, PLAIN)]
    return " and ".join(f"{nodes - found.mean:.0f}" for found in kept if found)


# The paper's tables, and tables for its figures


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


# Table 1


def _table_1(runs: Runs) -> list[Table]:
    sizes = _table_sizes(runs, AGGREGATION, PLAIN)
    packets = tuple(
        (
            nodes,
            runs.mean("packets", R0, nodes, PLAIN),
            _paper(f"table-1-aggregated-packets-{nodes}"),
            *(runs.mean("packets", profile, nodes, AGGREGATION) for profile in runs.profiles),
        )
        for nodes in sizes
    )
    columns = ("nodes", "without", "with, paper", *(f"with, {profile}" for profile in runs.profiles))
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
        paper, prototype = (_paper(f"{where}-{name}-{nodes}") for where in ("table-1", "prototype"))
        row: list[Cell] = [nodes, paper, prototype]
        for profile in runs.profiles:
            found = runs.mean(measure, profile, nodes, AGGREGATION)
            row += [found, _minus(found, paper)]
        rows.append(tuple(row))
    heads = [head for profile in runs.profiles for head in (profile, f"{profile} − paper")]
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
            _paper(line.claim) if nodes == wanted else None,
            *(runs.mean(line.measure, profile, nodes, mode) for profile in runs.profiles),
        ]
        for line in lines
    ]


def _heads(runs: Runs, *groups: str) -> tuple[str, ...]:
    return tuple(f"{group}{who}" for group in groups for who in ("paper", *runs.profiles))


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
    return [Table("table-2", title, columns, tuple(rows), TABLE_2_NOTE)]


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
    return [Table("table-3", title, columns, rows, TABLE_3_NOTE)]


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
    trees = ("tree per source", "tree per source, aggregating", "one fixed tree")
    columns = ("nodes", *trees, "one tree later by, %")
    return [Table("figure-1", "Mean reception latency under R0, u.t.", columns, rows, FIGURE_1_NOTE)]


def _figure_7(runs: Runs, profile: str) -> list[Table]:
    latencies, waits = [], []
    for nodes in runs.sizes(profile, AGGREGATION, PLAIN):
        row: list[Cell] = [nodes]
        for measure, paper in (
            ("reception_ut", _paper(f"figure-7-reception-{nodes}")),
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
                _paper(f"figure-7-held-{nodes}"),
                *_both(runs, "queued_ut", profile, nodes),
                runs.change("queued_ut", profile, nodes, AGGREGATION, PLAIN),
                _paper(f"figure-7-queue-{nodes}"),
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
    paper = _paper(f"figure-7-delivery-{nodes}")
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
        rows.append((nodes, copies, *changes, _paper(f"figure-8-held-{nodes}")))
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
                "nodes that never buffer over 50", "nodes_buffering_at_most_50", f"figure-9-at-most-50-{mode}"
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
    return [Table("figure-9", title, ("what", "aggregation", *_heads(runs, "")), tuple(rows), FIGURE_9_NOTE)]


def _at_most_250(mode: str) -> float:
    """All nodes but the tail that is printed."""
    return NODES_NODES - _printed(f"figure-9-over-250-{mode}")


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


# The page's first table


def headline(runs: Runs) -> Table:
    """The paper's main claims beside what was measured."""
    large = max(runs.sizes(R0, AGGREGATION, PLAIN), default=0)
    middle = runs.at_size(R0, TABLES_NODES, AGGREGATION) or large
    faster = []
    for profile in runs.profiles:
        found = runs.change("delivery_ut", profile, large, PLAIN, AGGREGATION)
        faster.append(None if found is None else Estimate(-found.mean, found.half, found.count))

    def line(name: str, nodes: int, measure: str, claim: str) -> tuple[Cell, ...]:
        means = (runs.mean(measure, profile, nodes, AGGREGATION) for profile in runs.profiles)
        return (f"{name}, {nodes} nodes, %", _paper(claim), *means)

    alone, free = ("table-2-all-1", "figure-6-0") if middle == TABLES_NODES else ("", "")
    rows = (
        line("packets saved", large, "reduction_percent", f"table-1-reduction-{large}"),
        line("packets with several messages", large, "aggregated_percent", f"table-1-several-{large}"),
        (
            f"delivery faster with aggregation, {large} nodes, %",
            _paper(f"figure-7-delivery-{large}"),
            *faster,
        ),
        line("packets of one message", middle, "packets_of_1", alone),
        line("messages without dependencies", middle, "dependencies_from_0", free),
    )
    title = "The paper at a glance: means over the runs, with 95 % intervals"
    return Table("glance", title, ("what", *_heads(runs, "")), rows)


# The paper's figures, and one for each of its tables


def figures(runs: Runs) -> list[Figure]:
    """All figures of the page, in the order of the paper; one without a point is left out."""
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
        for profile in runs.profiles
    ]


# The tables


def _plot_table_1(runs: Runs) -> Figure:
    shown = _table_sizes(runs, AGGREGATION)
    panels = []
    for title, measure, name in (
        ("fewer packets with aggregation", "reduction_percent", "reduction"),
        ("packets with more than one message", "aggregated_percent", "several"),
    ):
        paper = points("paper", ((nodes, _paper(f"table-1-{name}-{nodes}")) for nodes in shown))
        ours = [_over_sizes(runs, profile, measure, profile, AGGREGATION) for profile in runs.profiles]
        panels.append(Panel(title, "nodes", "% of packets", (paper, *ours), x_log2=True))
    return Figure("table-1", "Table 1: packets", TABLE_1_CAPTION, tuple(panels))


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
        paper = points("paper", ((names[key], _paper(f"table-2-{name}-{key}")) for key in shown))
        series = (paper, *_by_profile(runs, measures, nodes, AGGREGATION))
        panels.append(Panel(f"{title}, {nodes} nodes", "messages per packet", "%", series, y_log=True))
    return Figure("table-2", "Table 2: messages per packet", TABLE_2_CAPTION, tuple(panels))


def _plot_table_3(runs: Runs) -> Figure:
    nodes = runs.at_size(R0, TABLES_NODES, AGGREGATION, PLAIN)
    names = dict(zip(BYTES, ("< 100", "100–200", "200–300", "300–400", "> 400"), strict=True))
    measures: list[tuple[X, str]] = [(name, f"bytes_above_{low}") for low, name in names.items()]
    panels = []
    for mode in (AGGREGATION, PLAIN):
        shown = names if nodes == TABLES_NODES else {}
        paper = points("paper", ((name, _paper(f"table-3-{mode}-{low}")) for low, name in shown.items()))
        series = (paper, *_by_profile(runs, measures, nodes, mode))
        panels.append(Panel(f"{WITH[mode]}, {nodes} nodes", "bytes of a packet", "% of packets", series))
    return Figure("table-3", "Table 3: sizes of packets", TABLE_3_CAPTION, tuple(panels))


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
    nodes = runs.at_size(R0, TABLES_NODES, AGGREGATION, PLAIN)
    lows = (0, *(edge + 1 for edge in DEPENDENCY_EDGES[:-1]))
    measures: list[tuple[X, str]] = [(low, f"dependencies_from_{low}") for low in lows]
    known = {0: "figure-6-0", 1: "figure-6-1-4", 5: "figure-6-5-9"}
    panels = []
    for mode in (AGGREGATION, PLAIN):
        shown = known if mode == AGGREGATION and nodes == TABLES_NODES else {}
        paper = points("paper", ((low, _paper(claim)) for low, claim in shown.items()), joined=False)
        series = (paper, *_by_profile(runs, measures, nodes, mode))
        title = f"{WITH[mode]}, {nodes} nodes"
        panels.append(Panel(title, "dependencies: 0, 1–4, 5–9, 10–14 …", "% of messages", series))
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
    shown = runs.sizes(R0, AGGREGATION, PLAIN)
    known = {
        "reception": [(nodes, _paper(f"figure-7-reception-{nodes}")) for nodes in shown],
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
            for profile in runs.profiles
        ]
        paper = points("paper", changes, joined=False)
        panels.append(
            Panel(f"{what} latency", "nodes", "change by aggregation, %", (paper, *ours), x_log2=True)
        )
    return Figure("figure-7-change", "Figure 7: what aggregation changes", FIGURE_7_CHANGE, tuple(panels))


def _plot_figure_8(runs: Runs) -> Figure:
    panels = []
    for profile in runs.profiles:
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
    return Figure("figure-8", "Figure 8: aggregated messages", FIGURE_8_CAPTION, tuple(panels))


def _plot_figure_9(runs: Runs) -> Figure:
    nodes = runs.at_size(R0, NODES_NODES, AGGREGATION, PLAIN)
    measures: list[tuple[X, str]] = [(edge, f"nodes_buffering_at_most_{edge}") for edge in BUFFER_EDGES]
    panels = []
    for profile in runs.profiles:
        series = []
        for mode, word in ((AGGREGATION, "aggregating"), (PLAIN, "plain")):
            if nodes is not None:
                found = ((x, runs.mean(measure, profile, nodes, mode)) for x, measure in measures)
                series.append(points(word, found))
        if any(one.x for one in series) and nodes == NODES_NODES:
            for mode, word in ((AGGREGATION, "aggregating"), (PLAIN, "plain")):
                known = ((50, _paper(f"figure-9-at-most-50-{mode}")), (250, _at_most_250(mode)))
                series.append(points(f"paper, {word}", known, joined=False))
        title = f"{profile}, {nodes} nodes"
        panels.append(Panel(title, "messages buffered at a time, at most", "nodes", tuple(series)))
    return Figure("figure-9", "Figure 9: buffered messages", FIGURE_9_CAPTION, tuple(panels))


def _plot_figure_10(runs: Runs) -> Figure:
    nodes = runs.at_size(R0, NODES_NODES, AGGREGATION, FIVE)
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
