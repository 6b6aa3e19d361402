"""What the runs of the VCube study showed: sentences, where numbers differ, and how each reading fares."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

from whence.studies.base import Cell, Table
from whence.studies.results import Estimate, Results
from whence.studies.vcube import words
from whence.studies.vcube.claims import (
    AGGREGATION,
    DELIVERY_WITHIN_PERCENT,
    NODES_NODES,
    PAPER,
    PLAIN,
    SINGLE,
    TABLES_NODES,
    WHICH,
    in_paper,
    printed_number,
)
from whence.studies.vcube.runs import Runs
from whence.studies.verdicts import Judged, Verdict, judge

R0 = "R0"
MINUS = "−"  # as whence.report.format writes it
# What a reading should have all of: the beginnings of the ids of its claims, in percent.
ARTEFACTS = {
    "Table 1: reduction": "000-table-1-reduction-",
    "Table 1: packets with several messages": "000-table-1-several-",
    "Table 2: % of all packets": "000-table-2-all-",
    "Table 3, with aggregation": "000-table-3-aggregation-",
    "Table 3, without": "000-table-3-plain-",
    "Figure 6: shares": "000-figure-6-",
    "Figure 10, 50 bytes": "000-figure-10-50-bytes",
}


def table_sizes(runs: Runs, *modes: str) -> list[int]:
    """The sizes of Table 1 that were run."""
    return [nodes for nodes in runs.sizes(R0, *modes) if in_paper(f"table-1-reduction-{nodes}") is not None]


def findings(results: Results) -> list[str]:
    """The sentences at the top of the page; one that lacks its data is left out."""
    runs = Runs(results)
    made = [_packets(runs), _delivery(runs), _residual(runs), _lost(runs), _verified(results)]
    return [sentence for sentence in made if sentence]


def _packets(runs: Runs) -> str:
    sizes = table_sizes(runs, AGGREGATION)
    if not sizes:
        return ""
    small, large = sizes[0], sizes[-1]
    low, high = (runs.mean("reduction_percent", R0, nodes, AGGREGATION) for nodes in (small, large))
    if low is None or high is None:
        return ""
    return (
        f"Aggregation saves {low.mean:.1f} % of the packets in a group of {small} and {high.mean:.1f} % in "
        f"one of {large} under R0; the paper has {printed_number(f'table-1-reduction-{small}'):.1f} % and "
        f"{printed_number(f'table-1-reduction-{large}'):.1f} %."
    )


def _delivery(runs: Runs) -> str:
    changes = {
        nodes: found
        for nodes in runs.sizes(R0, AGGREGATION, PLAIN)
        if (found := runs.change("delivery_ut", R0, nodes, PLAIN, AGGREGATION)) is not None
    }
    small = {nodes: change for nodes, change in changes.items() if nodes <= 512}
    if not small:
        return ""
    most = max(abs(change.mean) for change in small.values())
    said = (
        f"Up to {max(small)} nodes messages are delivered within {most:.1f} % of the time without "
        f"aggregation (paper: {DELIVERY_WITHIN_PERCENT} %)"
    )
    if 1024 in changes:
        said += (
            f", and at 1024 nodes {_sooner(changes[1024])} (paper: "
            f"{printed_number('figure-7-delivery-1024')} % sooner)"
        )
    return said + "."


def _sooner(change: Estimate) -> str:
    if change.half is not None and abs(change.mean) <= change.half:
        return f"{abs(change.mean):.1f} % off, which is inside its interval"
    return f"{abs(change.mean):.1f} % {'sooner' if change.mean < 0 else 'later'}"


def _residual(runs: Runs) -> str:
    parts = []
    for profile in runs.main:
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
        nodes: found.mean - printed_number(f"table-1-reduction-{nodes}")
        for nodes in table_sizes(runs, AGGREGATION)
        if (found := runs.mean("reduction_percent", profile, nodes, AGGREGATION)) is not None
    }


def _lost(runs: Runs) -> str:
    """Figure 9's tail, under the readings that were run in a group of its size."""
    there = [name for name in runs.profiles if NODES_NODES in runs.sizes(name, AGGREGATION, PLAIN)]
    tails = {name: _over_250(runs, name) for name in there}
    if not tails:
        return ""
    theirs = [printed_number(f"figure-9-over-250-{WHICH[mode]}") for mode in (AGGREGATION, PLAIN)]
    found = "; ".join(
        f"{name} {' and '.join(f'{over:.0f}' for over in tail)}" for name, tail in tails.items()
    )
    said = (
        f"Of {NODES_NODES} nodes so many buffer over 250 messages, with aggregation and without: {found}; "
        f"the paper has {theirs[0]:.0f} and {theirs[1]:.0f}"
    )
    is_short = all(2 * ours < its for tail in tails.values() for ours, its in zip(tail, theirs, strict=False))
    return f"{said}: none of these readings has half of that long tail." if is_short else f"{said}."


def _over_250(runs: Runs, profile: str) -> list[float]:
    kept = (
        runs.mean("nodes_buffering_at_most_250", profile, NODES_NODES, mode) for mode in (AGGREGATION, PLAIN)
    )
    return [NODES_NODES - found.mean for found in kept if found]


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
        " and ".join(f"{printed_number(f'{name}-{WHICH[mode]}'):g}" for mode in (AGGREGATION, PLAIN))
        for name in ("figure-7-growth", "figure-9-over-250")
    )

    def change(measure: str, nodes: int, before: str, after: str) -> str:
        return _each(runs, lambda profile: _changed(runs, profile, measure, nodes, before, after))

    rows: list[tuple[Cell, ...]] = [
        ("Table 1: reduction", "3.3 to 28.8 %",
         _each(runs, lambda profile: _spread(runs, profile)), words.WHY_REDUCTION),
        ("Figure 6: messages with more than 12 dependencies", f"{printed_number('figure-6-over-12'):g} %",
         _each(runs, lambda profile: _share(runs, profile)), words.WHY_DEPENDENCIES),
        ("Figure 7: growth of reception latency from 8 to 1024 nodes, with and without aggregation", growth,
         _each(runs, lambda profile: _growth(runs, profile)), words.WHY_GROWTH),
        ("Figure 7: reception with aggregation at 256 nodes",
         f"{_signed(printed_number('figure-7-reception-256'))} %",
         change("reception_ut", 256, PLAIN, AGGREGATION), words.WHY_RECEPTION),
        ("Figure 7: queueing without aggregation at 1024 nodes",
         f"{_signed(printed_number('figure-7-queue'))} %",
         change("queued_ut", 1024, AGGREGATION, PLAIN), words.WHY_QUEUE),
        ("Figure 8: time held at 64 nodes, in packets of two",
         f"{_signed(printed_number('figure-8-held-64'), 0)} %",
         _each(runs, lambda profile: _held(runs, profile)), words.WHY_PAIRS),
        ("Figure 9: nodes that ever buffer more than 250, with and without aggregation", tail,
         _each(runs, lambda profile: _tail(runs, profile)), words.WHY_TAIL),
        ("Figure 11: aggregated messages in a single tree of 32 nodes",
         f"{_signed(-printed_number('figure-11-aggregated'), 0)} %",
         change("aggregated_messages", 32, AGGREGATION, SINGLE), words.WHY_SINGLE),
        ("Figure 11: delayed messages in a single tree of 16 nodes",
         f"{_signed(-printed_number('figure-11-delayed'), 0)} %", _repeated(runs), words.WHY_FEW),
    ]  # fmt: skip
    shown = tuple(row for row in rows if row[2])
    return Table("residuals", "Where the numbers differ, and why", words.RESIDUAL_COLUMNS, shown)


def _each(runs: Runs, tell: Callable[[str], str]) -> str:
    """What each profile has to say; those that were not run there say nothing."""
    said = ((profile, tell(profile)) for profile in runs.main)
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
    return " and ".join(f"{over:.0f}" for over in _over_250(runs, profile))


# Readings


def readings(results: Results) -> list[Table]:
    """How far each reading is off each table and figure, and how many of its numbers agree or are near."""
    judged = [one for one in judge(PAPER, results) if one.claim.is_printed]
    names = [str(name) for name in results.values("profile")]
    rows = []
    for artefact, prefix in ARTEFACTS.items():
        found = [one for one in judged if one.claim.id.startswith(prefix) and one.claim.unit == "%"]
        fares = {name: _fares(found, name) for name in names}
        known = {name: fare[0] for name, fare in fares.items() if fare is not None}
        best = min(known, key=lambda name: known[name]) if len(known) > 1 else None
        cells = [
            "–" if fare is None else f"{fare[0]:.1f} ({fare[1]} of {fare[2]})" for fare in fares.values()
        ]
        if known:
            rows.append((artefact, *cells, best or "–"))
    return [
        Table("readings", words.READINGS_TITLE, ("what", *names, "nearest"), tuple(rows), words.READINGS_NOTE)
    ]


def _fares(judged: list[Judged], reading: str) -> tuple[float, int, int] | None:
    """Root mean square of the differences in points; how many agree or are near; of how many."""
    under = [one if reading == R0 else dict(one.others).get(reading) for one in judged]
    found = [one for one in under if one is not None and one.difference is not None]
    if not found:
        return None
    good = sum(one.verdict in (Verdict.AGREES, Verdict.NEAR, Verdict.FITTED) for one in found)
    off = [one.difference for one in found if one.difference is not None]
    return sqrt(sum(value * value for value in off) / len(off)), good, len(found)
