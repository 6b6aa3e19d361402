"""The tables of the study of opportunistic networks: the paper's beside ours, then those beyond the paper."""

from __future__ import annotations

from whence.mobility.published import SCENARIOS
from whence.studies import oppnet_published as published
from whence.studies.base import Cell, Label, Table
from whence.studies.estimate import Estimate
from whence.studies.oppnet_advice import SHARES_PERCENT
from whence.studies.oppnet_data import DATA_SETS
from whence.studies.oppnet_measures import lifetimes, mean, minutes, value
from whence.studies.oppnet_published import NAMES, WALKERS
from whence.studies.results import Results

COUNTS_NOTE = (
    "Codes as printed, means over the seeds; a cell with an interval is ours, 95 %. "
    "Received: first copies from others. The ratio is that of totals, a node's own messages included. "
    "What neither was co-delivered nor expired was still pending when its node left."
)
DELAYS_NOTE = (
    "All in seconds. tdelay: from broadcast to reception; ltcy: from reception to co-delivery; "
    "codlvdelay: both. Least and greatest are means over the seeds of each run's least and greatest."
)
PLAN_NOTE = (
    "The original traces are not available. These plans are generated, one for each seed, and their "
    "generators were fitted to this table (docs/oppnet-scenarios.md)."
)
MODES_NOTE = (
    "The same plans, broadcasts and exchanges under both modes. Violations: messages out of causal order, "
    "counted by the verifier in the runs that keep their deliveries (the first seed). Barrier: entries in "
    "a message."
)
SKEW_NOTE = (
    "Walkers whose clocks are off by a constant, drawn for each between minus and plus so many seconds. "
    "Safe mode is told the largest difference of two clocks (ε = twice that). Every run is judged by the "
    "verifier."
)
TRACES_NOTE = (
    "Every node broadcasts every 20 minutes, the exchange is that of the other runs. A contact that the "
    "trace has seen in one scan only has no length, and nothing can be sent in it. But for Cairns, all nodes "
    "are there from the beginning and broadcast at the same moments, so messages expire together, which is "
    "what flaw F8 of the printed codes needs to break order with right clocks (docs/barrier.md)."
)
ADVICE_NOTE = (
    "Pairs of a message and another node that is in the network when it is broadcast. Reachable: those "
    "that deliver it if messages live as long as the longest stay of a node. The lifetimes are the "
    "smallest with which so many percent of the reachable pairs are delivered, by bisection to 2 %, in "
    "safe mode."
)


def headline(results: Results) -> Table:
    """What a reader in a hurry should see: one line for each experiment of the paper."""
    rows: list[tuple[Cell, ...]] = []
    for plan, columns in published.PRINTED.items():
        for lifetime in lifetimes(results, plan):
            printed = columns.get(lifetime)
            if printed is None:
                continue
            rows.append(
                (
                    NAMES[plan],
                    minutes(lifetime),
                    printed.receives,
                    mean(results, "receives", plan, lifetime),
                    f"{printed.ratio_percent:g}",
                    mean(results, "ratio_percent", plan, lifetime),
                    mean(results, "barrier_mean", plan, lifetime),
                    mean(results, "barrier_mean", plan, lifetime, "safe"),
                )
            )
    columns_ = (
        "scenario", "lifetime", "receives, paper", "ours", "ratio %, paper", "ours", "barrier, printed",
        "safe",
    )  # fmt: skip
    return Table("glance", "At a glance", columns_, tuple(rows))


def tables(results: Results) -> list[Table]:
    """All tables, in the order of the paper."""
    made = []
    for plan in published.PRINTED:
        if lifetimes(results, plan):
            made += [_plan(results, plan), _counts(results, plan), _delays(results, plan)]
    made += [_modes(results), _skew(results), _traces(results), _advice(results)]
    return [table for table in made if table.rows]


def _plan(results: Results, plan: str) -> Table:
    rows: list[tuple[Cell, ...]] = []
    first = lifetimes(results, plan)[0]
    for at, figure in enumerate(SCENARIOS[plan]):
        ours = mean(results, f"plan_{at}", plan, first)
        off = None if ours is None else 100 * (ours.mean / figure.published - 1)
        rows.append((figure.name, figure.published, ours, off, figure.excepted))
    columns = ("statistic", "published", "ours", "difference, %", "not demanded, because")
    title = f"{published.PLAN_TABLE[plan]}: {NAMES[plan]}, the plans"
    return Table(f"plan-{plan}", title, columns, tuple(rows), PLAN_NOTE)


def _counts(results: Results, plan: str) -> Table:
    """A row for each number: side by side they would not fit on a screen."""
    rows: list[tuple[Cell, ...]] = []
    for lifetime in lifetimes(results, plan):
        printed = published.PRINTED[plan].get(lifetime)
        if printed is None:
            continue
        for what, paper, measure in (
            ("broadcast", published.BROADCASTS[plan], "broadcasts"),
            ("received", printed.receives, "receives"),
            ("co-delivered", printed.deliveries, "co_deliveries"),
            ("co-delivery ratio, %", printed.ratio_percent, "ratio_percent"),
            ("expired", printed.expiries, "expiries"),
            ("expiry ratio, %", printed.expiry_percent, "expiry_percent"),
        ):
            if paper is None:  # without a lifetime nothing expires
                continue
            ours = mean(results, measure, plan, lifetime)
            off = None if ours is None or not paper else 100 * (ours.mean / paper - 1)
            rows.append((minutes(lifetime), what, paper, ours, off))
    columns = ("lifetime", "messages", "published", "ours", "difference, %")
    title = f"{published.COUNTS_TABLE[plan]}: {NAMES[plan]}, messages"
    return Table(f"counts-{plan}", title, columns, tuple(rows), COUNTS_NOTE)


def _delays(results: Results, plan: str) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for lifetime in lifetimes(results, plan):
        printed = published.PRINTED[plan].get(lifetime)
        if printed is None:
            continue
        for name, what, paper in (
            ("tdelay", "delay", printed.delay),
            ("ltcy", "latency", printed.latency),
            ("codlvdelay", "age", printed.age),
        ):
            cells: list[Cell] = []
            for part, number in zip(("min", "max", "mean", "sd"), paper, strict=True):
                ours = mean(results, f"{what}_{part}_s", plan, lifetime)
                # Extremes without their intervals: the table is as wide as a screen.
                cells += [number, value(ours) if part in ("min", "max") else ours]
            rows.append((minutes(lifetime), name, *cells))
    names = ("least", "greatest", "mean", "sd")
    columns = ("lifetime", "what", *(column for name in names for column in (f"{name}, paper", "ours")))
    title = f"{published.DELAYS_TABLE[plan]}: {NAMES[plan]}, delays"
    return Table(f"delays-{plan}", title, columns, tuple(rows), DELAYS_NOTE)


def violations(results: Results, **labels: Label) -> int | None:
    """Messages out of causal order in the judged runs with these labels; None if there are none."""
    rows = [row for row in results.select(**labels) if row.judged]
    return int(sum(row.measures.get("causal") or 0 for row in rows)) if rows else None


def _modes(results: Results) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for plan in published.PRINTED:
        for lifetime in lifetimes(results, plan):
            for mode in ("published", "safe"):
                cells: list[Cell] = [
                    mean(results, measure, plan, lifetime, mode)
                    for measure in (
                        "ratio_percent",
                        "expiries",
                        "latency_mean_s",
                        "barrier_mean",
                        "barrier_max",
                    )
                ]
                found = violations(results, part="main", plan=plan, lifetime=lifetime, mode=mode)
                rows.append((NAMES[plan], minutes(lifetime), mode, *cells, found))
    columns = (
        "scenario", "lifetime", "mode", "co-delivered, %", "expiries", "latency, s", "barrier, mean",
        "barrier, largest", "violations",
    )  # fmt: skip
    return Table(
        "modes", "The codes as printed and the safe ones, side by side", columns, tuple(rows), MODES_NOTE
    )


def _skew(results: Results) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for lifetime in lifetimes(results, WALKERS, "skew"):
        for skew_s in (5, 30):
            for mode in ("published", "safe"):
                where: dict[str, Label] = {
                    "part": "skew", "lifetime": lifetime, "skew_s": skew_s, "mode": mode,
                }  # fmt: skip
                cells: list[Estimate | None] = [
                    results.estimate(measure, **where)
                    for measure in ("causal", "ratio_percent", "expiries", "barrier_mean")
                ]
                if cells[1] is not None:
                    prototype = published.SKEW_VIOLATIONS[skew_s] if mode == "published" else "0"
                    rows.append((minutes(lifetime), f"± {skew_s} s", mode, prototype, *cells))
    columns = (
        "lifetime", "clocks", "mode", "violations, our specification", "violations in a run",
        "co-delivered, %", "expiries", "barrier, mean",
    )  # fmt: skip
    return Table("skew", "Walkers with wrong clocks", columns, tuple(rows), SKEW_NOTE)


def _traces(results: Results) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for plan in (name for name in DATA_SETS if name in results.values("plan")):
        for lifetime in lifetimes(results, plan, "trace"):
            for mode in ("published", "safe"):
                where: dict[str, Label] = {
                    "part": "trace", "plan": plan, "lifetime": lifetime, "mode": mode,
                }  # fmt: skip
                cells = [
                    results.estimate(measure, **where)
                    for measure in (
                        "broadcasts",
                        "receives",
                        "ratio_percent",
                        "expiries",
                        "delay_mean_s",
                        "latency_mean_s",
                        "barrier_mean",
                    )
                ]
                if cells[0] is not None:
                    rows.append((plan, minutes(lifetime), mode, *cells, violations(results, **where)))
    columns = (
        "trace", "lifetime", "mode", "broadcasts", "receives", "co-delivered, %", "expiries", "delay, s",
        "latency, s", "barrier, mean", "violations",
    )  # fmt: skip
    return Table("traces", "Real contacts", columns, tuple(rows), TRACES_NOTE)


def _advice(results: Results) -> Table:
    rows: list[tuple[Cell, ...]] = []
    plans = list(dict.fromkeys(str(row.labels["plan"]) for row in results.select(part="advice")))
    for plan in plans:
        where: dict[str, Label] = {"part": "advice", "plan": plan}
        cells = [results.estimate(f"lifetime_{percent}_min", **where) for percent in SHARES_PERCENT]
        rows.append(
            (
                NAMES.get(plan, plan),
                results.estimate("possible_percent", **where),
                results.estimate("longest_min", **where),
                *cells,
            )
        )
    columns = (
        "plan", "reachable pairs, %", "longest stay, min",
        *(f"{percent} % of these: lifetime, min" for percent in SHARES_PERCENT),
    )  # fmt: skip
    title = "The smallest lifetime that delivers a wanted share"
    return Table("advice", title, columns, tuple(rows), ADVICE_NOTE + _not_advised(results, plans))


def _not_advised(results: Results, advised: list[str]) -> str:
    """Which plans of the page have no line in the table, and why."""
    missing = [NAMES.get(plan, plan) for plan in map(str, results.values("plan")) if plan not in advised]
    if not missing:
        return ""
    return (
        f" Not looked for at this scale: {', '.join(missing)}. Each takes some twenty runs of a whole plan; "
        "the scale “paper” has them all."
    )
