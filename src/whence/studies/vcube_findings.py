"""What the runs of the VCube study showed, in sentences and residuals made from the data."""

from __future__ import annotations

from collections.abc import Callable

from whence.studies import vcube_published as published
from whence.studies import vcube_text as text
from whence.studies.base import Cell, Table
from whence.studies.results import Results
from whence.studies.vcube_expect import AGGREGATION, KINDS, PLAIN, R0, SINGLE
from whence.studies.vcube_runs import Runs

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
            text.WHY_REDUCTION,
        ),
        (
            "Figure 6: messages with more than 12 dependencies",
            f"{published.ABOVE_12_DEPENDENCIES_PERCENT:g} %",
            _each(runs, lambda profile: _share(runs, profile)),
            text.WHY_DEPENDENCIES,
        ),
        (
            "Figure 7: growth of reception latency from 8 to 1024 nodes, with and without aggregation",
            f"{published.GROWTH[AGGREGATION]} and {published.GROWTH[PLAIN]}",
            _each(runs, lambda profile: _growth(runs, profile)),
            text.WHY_GROWTH,
        ),
        (
            "Figure 7: reception with aggregation at 256 nodes",
            f"{_signed(published.RECEPTION_CHANGE_PERCENT[256])} %",
            _each(runs, lambda profile: _changed(runs, profile, "reception_ut", 256, PLAIN, AGGREGATION)),
            text.WHY_RECEPTION,
        ),
        (
            "Figure 7: queueing without aggregation at 1024 nodes",
            f"{_signed(published.QUEUEING_AT_1024_PERCENT)} %",
            _each(runs, lambda profile: _changed(runs, profile, "queued_ut", 1024, AGGREGATION, PLAIN)),
            text.WHY_QUEUE,
        ),
        (
            "Figure 8: time held at 64 nodes, in packets of two",
            f"{_signed(published.PAIR_HELD_PERCENT[64], 0)} %",
            _each(runs, lambda profile: _held(runs, profile)),
            text.WHY_PAIRS,
        ),
        (
            "Figure 9: nodes that ever buffer more than 250, with and without aggregation",
            f"{published.ABOVE_250[AGGREGATION]} and {published.ABOVE_250[PLAIN]}",
            _each(runs, lambda profile: _tail(runs, profile)),
            text.WHY_TAIL,
        ),
        (
            "Figure 11: aggregated messages in a single tree of 32 nodes",
            f"{_signed(-published.SINGLE_AGGREGATES_LESS_PERCENT, 0)} %",
            _each(
                runs, lambda profile: _changed(runs, profile, "aggregated_messages", 32, AGGREGATION, SINGLE)
            ),
            text.WHY_SINGLE,
        ),
        (
            "Figure 11: delayed messages in a single tree of 16 nodes",
            f"{_signed(-published.SINGLE_DELAYS_LESS_PERCENT, 0)} %",
            _repeated(runs),
            text.WHY_FEW,
        ),
    ]
    shown = tuple(row for row in rows if row[2])
    return Table("residuals", "Where the numbers differ, and why", text.RESIDUAL_COLUMNS, shown)


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
