"""The page of the study of opportunistic networks: the paper's tables and figures beside ours, and beyond."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whence.mobility.published import SCENARIOS
from whence.studies.base import Cell, Figure, Panel, Series, Table
from whence.studies.cuts import points
from whence.studies.oppnet.advice import SHARES_PERCENT
from whence.studies.oppnet.claims import (
    BUSES,
    COUNTS_TABLE,
    DELAYS_TABLE,
    MODES,
    NAMES,
    PLAN_TABLE,
    PRINTED,
    REGISTRIES,
    SKEW_VIOLATIONS,
    WALKERS,
    minutes,
    paper,
)
from whence.studies.oppnet.data import DATA_SETS, find, skipped
from whence.studies.oppnet.measures import (
    LATENCY_EDGES_S,
    N777,
    lifetimes,
    main_rows,
    mean,
    region_factor,
    region_worst,
    value,
)
from whence.studies.results import Estimate, Label, Results, Row, estimate

PLANS = (BUSES, WALKERS)


def _printed_lifetimes(results: Results, plan: str) -> list[int]:
    """The lifetimes of the paper that were run, longest first."""
    return [at for at in lifetimes(results, plan) if paper(plan, "receives", at) is not None]


# Tables: the paper's beside ours, then those beyond the paper


COUNTS_NOTE = (
    "Codes as printed, means over the seeds; a cell with an interval is ours, 95 %. "
    "Received: first copies from others. The ratio is that of totals, a node's own messages included. "
    "What neither was co-delivered nor expired was still pending when its node left."
)
DELAYS_NOTE = (
    "All in seconds. tdelay: from broadcast to reception; ltcy: from reception to co-delivery; "
    "codlvdelay: both. Greatest: the mean over the seeds of each run's greatest. The least, which the paper "
    "prints, are parameters here (a hop, a timer), so that the median stands in their place."
)
PLAN_NOTE = (
    "The original traces are not available. These plans are generated, one for each seed, and their "
    "generators were fitted to this table (docs/oppnet-scenarios.md)."
)
REGION_FACTOR = 1.5  # of the worst mean latency, by which a way to exchange is said to agree
REGION_NOTE = (
    "The paper prints neither how many messages pass at a contact nor how long it takes to begin. The codes "
    "as printed, one seed: mean latency, receives, mean delay and the co-delivered share against what is "
    "printed, the worst over the lifetimes that were run. Agrees: latency within a factor of 1.5, receives "
    "within 10 %, the share within a point; the delay is the plan's, whatever the exchange. The other "
    "tables use 8 messages a second and set-up times up to 5 s, which our specification found by a sweep of "
    "its own: a reading fitted to the latencies. One seed and few lifetimes tell little."
)
ALIKE_WORDS = {
    "published": "broadcast", "received": "received", "delivered": "co-delivered, own included",
    "sources": "co-delivered registry, most", "pending": "pending, most",
}  # fmt: skip
ALIKE_NOTE = (
    "N777 is one walker of one trace. Walkers alike stay 285 to 315 s. The place is where the printed number "
    "stands among theirs: 10 to 90 % is nothing special."
)
FIRST_NOTE = (
    "With the published stay times, broadcasts 20 s after entering and every minute come to more than the "
    "10,557 that the paper counts. 43 s gives these, and is used in all other runs of walkers: a reading."
)
CAPACITY_NOTE = (
    "Two hours of buses, lifetime 20′, safe mode, the cores, one run each. A full cache drops the oldest "
    "message that it need not keep."
)
STAYS_CAPTION = (
    "When nodes come and go, in the order of entering: all buses of the day, the first 140 walkers. Each "
    "node has two points. The plans are ours, generated to Tables I and IV."
)
MODES_MEASURES = ("ratio_percent", "expiries", "latency_mean_s", "barrier_mean", "barrier_max")
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
TRACES_MEASURES = (
    "broadcasts", "receives", "ratio_percent", "expiries", "delay_mean_s", "latency_mean_s", "barrier_mean",
)  # fmt: skip
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
    for plan in PLANS:
        for lifetime in _printed_lifetimes(results, plan):
            ratio = paper(plan, "ratio", lifetime)
            rows.append(
                (
                    NAMES[plan],
                    minutes(lifetime),
                    paper(plan, "receives", lifetime),
                    mean(results, "receives", plan, lifetime),
                    f"{ratio:g}",
                    mean(results, "ratio_percent", plan, lifetime),
                    mean(results, "barrier_mean", plan, lifetime),
                    mean(results, "barrier_mean", plan, lifetime, "safe"),
                )
            )
    columns = (
        "scenario", "lifetime", "receives, paper", "ours", "ratio %, paper", "ours", "barrier, printed",
        "safe",
    )  # fmt: skip
    return Table("glance", "At a glance", columns, tuple(rows))


def tables(results: Results) -> list[Table]:
    """All tables, in the order of the paper."""
    made = []
    for plan in PLANS:
        if lifetimes(results, plan):
            made += [_plan(results, plan), _counts(results, plan), _delays(results, plan)]
    made += [region(results, plan) for plan in PLANS]
    made += [_alike(results), _first_broadcast(results), _capacity(results)]
    made += [_modes_table(results), _skew_table(results), _traces_table(results), _advice_table(results)]
    return [table for table in made if table.rows]


def _plan(results: Results, plan: str) -> Table:
    rows: list[tuple[Cell, ...]] = []
    first = lifetimes(results, plan)[0]
    for at, figure in enumerate(SCENARIOS[plan]):
        ours = mean(results, f"plan_{at}", plan, first)
        off = None if ours is None else 100 * (ours.mean / figure.published - 1)
        rows.append((figure.name, figure.published, ours, off, figure.excepted))
    rows.append(("contact, 10th percentile, s", None, mean(results, "contact_low_s", plan, first), None,
                 "in place of the least, which is the step of the plan"))  # fmt: skip
    columns = ("statistic", "published", "ours", "difference, %", "to be said")
    title = f"{PLAN_TABLE[plan]}: {NAMES[plan]}, the plans"
    return Table(f"plan-{plan}", title, columns, tuple(rows), PLAN_NOTE)


def _counts(results: Results, plan: str) -> Table:
    """A row for each number: side by side they would not fit on a screen."""
    rows: list[tuple[Cell, ...]] = []
    for lifetime in _printed_lifetimes(results, plan):
        for what, name, measure in (
            ("broadcast", "broadcasts", "broadcasts"),
            ("received", "receives", "receives"),
            ("co-delivered", "deliveries", "co_deliveries"),
            ("co-delivery ratio, %", "ratio", "ratio_percent"),
            ("expired", "expiries", "expiries"),
            ("expiry ratio, %", "expiry-ratio", "expiry_percent"),
        ):
            theirs = paper(plan, name, lifetime)
            if theirs is None:  # without a lifetime nothing expires
                continue
            ours = mean(results, measure, plan, lifetime)
            off = None if ours is None or not theirs else 100 * (ours.mean / theirs - 1)
            rows.append((minutes(lifetime), what, theirs, ours, off))
    columns = ("lifetime", "messages", "published", "ours", "difference, %")
    title = f"{COUNTS_TABLE[plan]}: {NAMES[plan]}, messages"
    return Table(f"counts-{plan}", title, columns, tuple(rows), COUNTS_NOTE)


def _delays(results: Results, plan: str) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for lifetime in _printed_lifetimes(results, plan):
        for name, what in (("tdelay", "delay"), ("ltcy", "latency"), ("codlvdelay", "age")):
            cells: list[Cell] = []
            for part in ("max", "mean", "sd"):
                ours = mean(results, f"{what}_{part}_s", plan, lifetime)
                # Extremes without their intervals: the table is as wide as a screen.
                cells += [paper(plan, f"{what}-{part}", lifetime), value(ours) if part == "max" else ours]
            rows.append((minutes(lifetime), name, mean(results, f"{what}_50_s", plan, lifetime), *cells))
    names = ("greatest", "mean", "sd")
    columns = (
        "lifetime", "what", "median, ours",
        *(column for name in names for column in (f"{name}, paper", "ours")),
    )  # fmt: skip
    title = f"{DELAYS_TABLE[plan]}: {NAMES[plan]}, delays"
    return Table(f"delays-{plan}", title, columns, tuple(rows), DELAYS_NOTE)


def _axis(results: Results, label: str) -> list[Label]:
    return list(dict.fromkeys(row.labels[label] for row in results.select(part="region")))


def region(results: Results, plan: str) -> Table:
    """Which rates and set-up times agree with the means of Tables II and III, or V and VI."""
    rows: list[tuple[Cell, ...]] = []
    for rate in _axis(results, "rate"):
        for setup_s in _axis(results, "setup_s"):
            cells = region_worst(results, plan, rate, setup_s)
            latency, receives, _, points = cells
            if latency is not None:
                is_near = latency <= REGION_FACTOR and (receives or 1) <= 1.1 and abs(points or 0) <= 1
                shown = (None if cell is None else round(cell, 2) for cell in cells)
                rows.append((rate, setup_s, *shown, "agrees" if is_near else ""))
    columns = (
        "messages/s", "set-up up to, s", "latency, worst factor", "receives, worst factor",
        "delay, worst factor", "co-delivered, most off, points", "region",
    )  # fmt: skip
    title = f"What the exchange may have been: {NAMES[plan]}"
    return Table(f"region-{plan}", title, columns, tuple(rows), REGION_NOTE)


def _alike(results: Results) -> Table:
    """Node N777 beside walkers like it."""
    rows: list[tuple[Cell, ...]] = []
    for lifetime in lifetimes(results, WALKERS):
        for what in ("published", "received", "delivered", "sources", "pending"):
            ours = mean(results, f"alike_{what}", WALKERS, lifetime)
            theirs = N777.get((what, lifetime))
            if ours is not None and theirs is not None:
                place = mean(results, f"n777_{what}_place", WALKERS, lifetime)
                rows.append((minutes(lifetime), ALIKE_WORDS[what], theirs, ours, place))
    columns = ("lifetime", "of N777", "paper", "median of walkers alike", "place of the paper's, %")
    return Table("n777", "Node N777, and walkers like it", columns, tuple(rows), ALIKE_NOTE)


def _first_broadcast(results: Results) -> Table:
    printed_first = results.estimate("broadcasts", part="first")
    if printed_first is None:
        return Table("first", "The first broadcast of walkers", (), ())
    theirs = paper(WALKERS, "broadcasts", 20)
    main = mean(results, "broadcasts", WALKERS, 5)
    rows = (("20 s after entering, as printed", printed_first, theirs), ("43 s, fitted", main, theirs))
    columns = ("first broadcast", "broadcasts, ours", "paper")
    return Table("first", "The first broadcast of walkers", columns, rows, FIRST_NOTE)


def _capacity(results: Results) -> Table:
    rows = []
    for row in results.select(part="capacity"):
        limit = int(row.labels["capacity"])
        rows.append((limit or "none", row.measure("co_deliveries"), "yes" if row.ok else "no"))
    columns = ("messages in a cache, at most", "co-deliveries", "keeps every promise")
    return Table("capacity", "Caches that are too small", columns, tuple(rows), CAPACITY_NOTE)


def violations(results: Results, **labels: Label) -> int | None:
    """Messages out of causal order in the judged runs with these labels; None if there are none."""
    rows = [row for row in results.select(**labels) if row.judged]
    return int(sum(row.measures.get("causal") or 0 for row in rows)) if rows else None


def _modes_table(results: Results) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for plan in PLANS:
        for lifetime in lifetimes(results, plan):
            for mode in MODES:
                cells: list[Cell] = [mean(results, each, plan, lifetime, mode) for each in MODES_MEASURES]
                found = violations(results, part="main", plan=plan, lifetime=lifetime, mode=mode)
                rows.append((NAMES[plan], minutes(lifetime), mode, *cells, found))
    columns = (
        "scenario", "lifetime", "mode", "co-delivered, %", "expiries", "latency, s", "barrier, mean",
        "barrier, largest", "violations",
    )  # fmt: skip
    return Table(
        "modes", "The codes as printed and the safe ones, side by side", columns, tuple(rows), MODES_NOTE
    )


def _skew_table(results: Results) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for lifetime in lifetimes(results, WALKERS, "skew"):
        for skew_s in (5, 30):
            for mode in MODES:
                where: dict[str, Label] = {
                    "part": "skew", "lifetime": lifetime, "skew_s": skew_s, "mode": mode,
                }  # fmt: skip
                cells: list[Estimate | None] = [
                    results.estimate(measure, **where)
                    for measure in ("causal", "ratio_percent", "expiries", "barrier_mean")
                ]
                if cells[1] is not None:
                    prototype = SKEW_VIOLATIONS[skew_s] if mode == "published" else "0"
                    rows.append((minutes(lifetime), f"± {skew_s} s", mode, prototype, *cells))
    columns = (
        "lifetime", "clocks", "mode", "violations, our specification", "violations in a run",
        "co-delivered, %", "expiries", "barrier, mean",
    )  # fmt: skip
    return Table("skew", "Walkers with wrong clocks", columns, tuple(rows), SKEW_NOTE)


def _traces_table(results: Results) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for plan in (name for name in DATA_SETS if name in results.values("plan")):
        for lifetime in lifetimes(results, plan, "trace"):
            for mode in MODES:
                where: dict[str, Label] = {"part": "trace", "plan": plan, "lifetime": lifetime, "mode": mode}
                cells = [results.estimate(each, **where) for each in TRACES_MEASURES]
                if cells[0] is not None:
                    rows.append((plan, minutes(lifetime), mode, *cells, violations(results, **where)))
    columns = (
        "trace", "lifetime", "mode", "broadcasts", "receives", "co-delivered, %", "expiries", "delay, s",
        "latency, s", "barrier, mean", "violations",
    )  # fmt: skip
    return Table("traces", "Real contacts", columns, tuple(rows), TRACES_NOTE)


def _advice_table(results: Results) -> Table:
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


DELAY_MAX_MIN = 150.0  # of Figure 5: beyond are messages that wait for a bus that starts late
POINTS_MAX = 60  # of a line over time; more would hide each other

CLOUD_CAPTION = (
    "Of the messages that were received after so long: how long they then waited for their predecessors, "
    "in the mean, at the 99th percentile and at the most (first seed, codes as printed). The paper draws "
    "a point for each. What waited for no time at all is not on a logarithmic axis."
)
CDF_CAPTION = (
    "Cumulated distributions over all receptions, means over the seeds (codes as printed). The right "
    "panel is cut where the paper's is."
)
DAY_CAPTION = (
    "The registries of the bus with the longest day (codes as printed). Without a lifetime the "
    "co-delivered registry grows until every source has been heard of; with 20′ it forgets. The barrier "
    "registry falls to 1 at each broadcast."
)
STAY_CAPTION = (
    "The registries of one walker, who stays for about 5 minutes as the paper's N777 does, from the "
    "moment it enters (codes as printed)."
)
CHURN_CAPTION = (
    "Walkers who come and go. Every five minutes one who stays that long is watched: the "
    "most entries that its co-delivered registry has while it is there, beside the number of walkers that "
    "have entered by then. A registry that never forgot could grow as that number does."
)
CHURN_ALL_CAPTION = (
    "The same walkers with the longest lifetime: the most entries of each of the three registries."
)
BARRIER_CAPTION = (
    "Entries in a message's barrier, mean over messages. As printed a barrier names every source whose "
    "latest message was delivered since the sender's last broadcast, also those that others in it imply; "
    "safe mode leaves these out."
)
ADVICE_CAPTION = (
    "Which share of the reachable pairs is delivered with a lifetime (every run of the bisection is a "
    "point; first seed)."
)


def figures(results: Results) -> list[Figure]:
    """All that have data."""
    made = [
        _stays(results, "figure-3", "Figure 3", BUSES),
        _cloud(results, "figure-4", "Figure 4", BUSES, (0, 20)),
        _distributions(results, "figure-5", "Figure 5", BUSES, 60),
        _registries(results, "figure-6", "Figure 6", BUSES, (0, 20), DAY_CAPTION),
        _stays(results, "figure-8", "Figure 8", WALKERS),
        _cloud(results, "figure-9", "Figure 9", WALKERS, (5, 20)),
        _distributions(results, "figure-10", "Figure 10", WALKERS, 90),
        _registries(results, "figure-11", "Figure 11", WALKERS, (5, 20), STAY_CAPTION),
        _churn_plot(results),
        _churn_all(results),
        _barriers(results),
        _region_plot(results),
        *_advice_plot(results),
    ]
    return [figure for figure in made if figure.panels and all(panel.series for panel in figure.panels)]


def _first(results: Results, plan: str, lifetime: int, mode: str = "published") -> Row | None:
    rows = main_rows(results, plan, lifetime, mode)
    return rows[0] if rows and rows[0].counted else None


def _stays(results: Results, name: str, number: str, plan: str) -> Figure:
    """Running intervals: when each node comes and goes."""
    rows = [row for row in results.select(part="main", plan=plan, seed=1) if row.counted.get("stay_from_us")]
    if not rows:
        return Figure(name, number, STAYS_CAPTION, ())
    counted = rows[0].counted
    series = tuple(
        points(
            label,
            ((time_us / 3.6e9, at + 1) for at, time_us in enumerate(counted[key])),
            joined=False,
        )
        for label, key in (("enters", "stay_from_us"), ("leaves", "stay_to_us"))
    )
    panel = Panel(NAMES[plan], "time, h", "node, in the order of entering", series)
    return Figure(name, f"{number}: running intervals, {NAMES[plan]}", STAYS_CAPTION, (panel,))


def _region_plot(results: Results) -> Figure:
    panels = []
    for plan in PLANS:
        series = []
        for setup_s in _axis(results, "setup_s"):
            found = (
                (
                    rate,
                    region_factor(results, plan, "latency_mean_s", PRINTED[plan]["latency"], rate, setup_s),
                )
                for rate in _axis(results, "rate")
            )
            series.append(points(f"set-up up to {setup_s} s", ((float(x), y) for x, y in found)))
        shown = tuple(one for one in series if one.x)
        if shown:
            panels.append(Panel(NAMES[plan], "messages per second", "worst factor", shown, x_log2=True))
    return Figure("region", "Which exchange gives the printed latencies", REGION_NOTE, tuple(panels))


def _cloud(results: Results, name: str, number: str, plan: str, wanted: Sequence[int]) -> Figure:
    panels = []
    for lifetime in wanted:
        row = _first(results, plan, lifetime)
        if row is None or "by_delay_us" not in row.counted:
            continue
        series = []
        for part, label in (("max", "greatest"), ("99", "99th percentile"), ("mean", "mean")):
            found = [
                (delay_us / 6e7, latency_us / 1e6)
                for delay_us, latency_us in zip(
                    row.counted["by_delay_us"], row.counted[f"latency_{part}_by_delay"], strict=True
                )
                if latency_us > 0
            ]
            if found:
                series.append(points(label, found))
        title = f"lifetime {minutes(lifetime)}"
        panels.append(
            Panel(title, "transmission delay, min", "co-delivery latency, s", tuple(series), y_log=True)
        )
    title = f"{number}: {NAMES[plan]}, transmission delay and co-delivery latency"
    return Figure(name, title, CLOUD_CAPTION, tuple(panels))


def _distributions(results: Results, name: str, number: str, plan: str, cut_s: int) -> Figure:
    delays, latencies = [], []
    for lifetime in lifetimes(results, plan):
        rows = [row for row in main_rows(results, plan, lifetime) if row.counted.get("delay_percentiles")]
        if not rows:
            continue
        percents = range(0, 101, 4)
        x = [
            sum(row.counted["delay_percentiles"][percent] for row in rows) / len(rows) / 6e7
            for percent in percents
        ]
        shown = [(at, percent) for at, percent in zip(x, percents, strict=True) if at <= DELAY_MAX_MIN]
        delays.append(points(minutes(lifetime), shown))
        edges = [at for at, edge_s in enumerate(LATENCY_EDGES_S) if edge_s <= cut_s]
        shares = [
            estimate([100 * row.counted["latency_within"][at] / row.counted["latency"][0] for row in rows])
            for at in edges
        ]
        latencies.append(
            Series(minutes(lifetime), tuple(float(LATENCY_EDGES_S[at]) for at in edges), tuple(shares))
        )
    panels = (
        Panel("transmission delay", "delay, min", "received within, %", tuple(delays)),
        Panel("co-delivery latency", "latency, s", "co-delivered within, %", tuple(latencies)),
    )
    return Figure(name, f"{number}: {NAMES[plan]}, distributions", CDF_CAPTION, panels)


def _thinned(values: Sequence[Any]) -> list[Any]:
    step = -(-len(values) // POINTS_MAX)
    return list(values[::step])


def _registries(
    results: Results, name: str, number: str, plan: str, wanted: Sequence[int], caption: str
) -> Figure:
    unit, unit_us, what = (
        ("h", 3.6e9, "since it starts") if plan == BUSES else ("min", 6e7, "since it enters")
    )
    panels = []
    for lifetime in wanted:
        row = _first(results, plan, lifetime)
        if row is None or not row.counted.get("shown_us"):
            continue
        x = [time_us / unit_us for time_us in _thinned(row.counted["shown_us"])]
        series = tuple(
            points(label, zip(x, _thinned(row.counted[f"shown_{registry}"]), strict=True))
            for registry, label in REGISTRIES.items()
        )
        panels.append(Panel(f"lifetime {minutes(lifetime)}", f"time {what}, {unit}", "entries", series))
    return Figure(name, f"{number}: {NAMES[plan]}, registries of one node", caption, tuple(panels))


def _churn_plot(results: Results) -> Figure:
    panels = []
    for mode in MODES:
        series: list[Series] = []
        for lifetime in lifetimes(results, WALKERS):
            row = _first(results, WALKERS, lifetime, mode)
            if row is None or not row.counted.get("watched_entry_us"):
                continue
            x = [time_us / 3.6e9 for time_us in row.counted["watched_entry_us"]]
            if not series:
                series.append(points("entered so far", zip(x, row.counted["watched_entered"], strict=True)))
            watched = zip(x, row.counted["watched_delivered"], strict=True)
            series.append(points(f"lifetime {minutes(lifetime)}", watched))
        title = "codes as printed" if mode == "published" else "safe"
        panels.append(Panel(title, "entered at, h", "entries (walkers)", tuple(series)))
    title = "Figure 11, over the whole run: registries under churn"
    return Figure("churn", title, CHURN_CAPTION, tuple(panels))


def _churn_all(results: Results) -> Figure:
    panels = []
    found = lifetimes(results, WALKERS)
    for mode in MODES:
        row = _first(results, WALKERS, found[0], mode) if found else None
        if row is None or not row.counted.get("watched_entry_us"):
            continue
        x = [time_us / 3.6e9 for time_us in row.counted["watched_entry_us"]]
        series = tuple(
            points(label, zip(x, row.counted[f"watched_{registry}"], strict=True))
            for registry, label in REGISTRIES.items()
        )
        title = "codes as printed" if mode == "published" else "safe"
        panels.append(Panel(f"{title}, {minutes(found[0])}", "entered at, h", "entries", series))
    title = "Figure 11, over the whole run: all registries"
    return Figure("churn-all", title, CHURN_ALL_CAPTION, tuple(panels))


def _barriers(results: Results) -> Figure:
    panels = []
    for plan in PLANS:
        series = []
        for mode in MODES:
            found = points(
                mode,
                (
                    (minutes(lifetime), mean(results, "barrier_mean", plan, lifetime, mode))
                    for lifetime in lifetimes(results, plan)
                ),
                joined=False,
            )
            if found.x:
                series.append(found)
        panels.append(Panel(NAMES[plan], "lifetime", "entries", tuple(series)))
    return Figure("barriers", "Barriers as printed and pruned", BARRIER_CAPTION, tuple(panels))


def _advice_plot(results: Results) -> list[Figure]:
    panels = []
    for plan in dict.fromkeys(str(row.labels["plan"]) for row in results.select(part="advice")):
        counted = results.select(part="advice", plan=plan)[0].counted
        if not counted:
            continue
        possible = max(counted["pairs_possible"], 1)
        tried = [
            (lifetime_us / 6e7, 100 * reached / possible)
            for lifetime_us, reached in zip(counted["tried_us"], counted["tried_reached"], strict=True)
        ]
        series = points("delivered", tried)
        panels.append(Panel(NAMES.get(plan, plan), "lifetime, min", "of the reachable pairs, %", (series,)))
    return [
        Figure(
            f"advice-{at // 2 + 1}",
            "Lifetime and delivered share",
            ADVICE_CAPTION,
            tuple(panels[at : at + 2]),
        )
        for at in range(0, len(panels), 2)
    ]


# Findings: what the runs showed, in sentences


def findings(results: Results) -> list[str]:
    """The sentences on top of the page."""
    told = []
    for plan in PLANS:
        told += _beside_paper(results, plan)
    told += [*_about_region(results), *_swapped(results), *_waits(results)]
    told += [*_modes(results), *_skew(results), *_churn(results), *_advice(results)]
    present = {str(row.labels["plan"]) for row in results.select(part="trace")}
    return [*told, *_traces(results, present), *skipped({*present, *find()})]


def _beside_paper(results: Results, plan: str) -> list[str]:
    off, slow = [], []
    for lifetime in lifetimes(results, plan):
        received, waited = (paper(plan, name, lifetime) for name in ("receives", "latency-mean"))
        receives, latency = (
            mean(results, measure, plan, lifetime) for measure in ("receives", "latency_mean_s")
        )
        if received and waited and receives and latency:
            off.append(100 * (receives.mean / received - 1))
            slow.append(f"{latency.mean:.2g} s for {waited:g} s ({minutes(lifetime)})")
    if not off:
        return []
    return [
        f"{NAMES[plan][0].upper()}{NAMES[plan][1:]}: receives are {min(off):+.1f} to {max(off):+.1f} % "
        f"off the paper's. Co-delivery latency, ours for the paper's: {', '.join(slow)}."
    ]


def _about_region(results: Results) -> list[str]:
    """Which ways to exchange agree with the printed latencies."""
    told = []
    for plan in PLANS:
        table = region(results, plan)
        agree = [f"{row[0]}/s with set-up up to {row[1]} s" for row in table.rows if row[-1]]
        if table.rows:
            told.append(
                f"{NAMES[plan][0].upper()}{NAMES[plan][1:]}: of {len(table.rows)} ways to exchange at a "
                f"contact, {len(agree)} agree with the paper"
                + (f" ({', '.join(agree)})" if agree else "")
                + ": one seed, so that it tells little."
            )
    return told


def _swapped(results: Results) -> list[str]:
    """The sentence about five minutes, which contradicts the table beside it."""
    over = mean(results, "delay_over_5_min_percent", WALKERS, 10)
    spread = [mean(results, f"delay_{part}_s", WALKERS, 10) for part in ("mean", "sd")]
    if over is None or spread[0] is None or spread[1] is None:
        return []
    return [
        "The paper says that 58 % of the walkers' transmissions take over five minutes with 10′, and prints "
        f"a mean of 263 s with a deviation of 175 s. Ours have {spread[0].mean:.0f} and {spread[1].mean:.0f} "
        f"s, and {over.mean:.0f} % over five minutes"
        + (": 58 and 42 look swapped." if abs(over.mean - 42) < abs(over.mean - 58) else ".")
    ]


def _waits(results: Results) -> list[str]:
    """Why the mean latency of buses falls so much between two lifetimes."""
    parts = []
    for lifetime in (0, 120, 60):
        long, share, early = (
            mean(results, f"latency_{what}_percent", BUSES, lifetime)
            for what in ("long", "long_share", "early_share")
        )
        if long and share and early:
            parts.append(
                f"{minutes(lifetime)}: {long.mean:.2g} % and {share.mean:.0f} %, {early.mean:.0f} % early"
            )
    if not parts:
        return []
    return [
        "Means of the buses' latency hang on few messages. Receptions that wait for over a minute, their "
        "share of all waiting, and the share that falls into a bus's first half hour, in which it takes over "
        f"what the others carry: {'; '.join(parts)}."
    ]


def _modes(results: Results) -> list[str]:
    told = []
    for plan in PLANS:
        found = lifetimes(results, plan)
        if not found:
            continue
        ours, theirs = (mean(results, "barrier_mean", plan, found[0], mode) for mode in ("safe", "published"))
        expired, spared = (
            [row.measure("expiries") for at in found for row in main_rows(results, plan, at, mode) if at]
            for mode in MODES
        )
        safe = violations(results, part="main", plan=plan, mode="safe")
        printed = violations(results, part="main", plan=plan, mode="published")
        if ours and theirs:
            told.append(
                f"{NAMES[plan][0].upper()}{NAMES[plan][1:]}, lifetime {minutes(found[0])}: a message carries "
                f"{theirs.mean:.1f} entries as printed and {ours.mean:.1f} in safe mode. With lifetimes, as "
                f"printed at most {max(expired, default=0):,.0f} expire in a run, in safe mode "
                f"{max(spared, default=0):,.0f}. The verifier found {printed} violations as printed and "
                f"{safe} in safe mode, with right clocks."
            )
    return told


def _skew(results: Results) -> list[str]:
    parts = []
    for lifetime in lifetimes(results, WALKERS, "skew"):
        for skew_s in (5, 30):
            where: dict[str, Label] = {"part": "skew", "lifetime": lifetime, "skew_s": skew_s}
            theirs = results.estimate("causal", **where, mode="published")
            if theirs is not None:
                parts.append(f"{theirs.mean:,.1f} with ± {skew_s} s and {minutes(lifetime)}")
    if not parts:
        return []
    ours = violations(results, part="skew", mode="safe")
    return [
        "Section V-A says that wrong clocks cannot break order. Violations in a run of the codes as printed: "
        f"{', '.join(parts)}; our specification's prototype had 4 to 5 (± 5 s) and about 200 (± 30 s). "
        f"In safe mode, told the largest difference: {ours}."
    ]


def _churn(results: Results) -> list[str]:
    for lifetime in lifetimes(results, WALKERS):
        rows = [
            row for row in main_rows(results, WALKERS, lifetime, "safe") if "watched_delivered" in row.counted
        ]
        if rows and rows[0].counted["watched_delivered"]:
            counted = rows[0].counted
            sizes, growth = counted["watched_delivered"], rows[0].measures.get("growth_delivered")
            level = f"; the last third of them has {growth:.2f} times what the second has" if growth else ""
            return [
                f"Among {counted['watched_entered'][-1]:,} walkers that come and go, the co-delivered "
                f"registry of those watched has at most {min(sizes):,} to {max(sizes):,} entries with "
                f"{minutes(lifetime)}{level}."
            ]
    return []


def _advice(results: Results) -> list[str]:
    told = []
    for plan in dict.fromkeys(str(row.labels["plan"]) for row in results.select(part="advice")):
        where: dict[str, Label] = {"part": "advice", "plan": plan}
        found = [results.estimate(f"lifetime_{percent}_min", **where) for percent in SHARES_PERCENT]
        if all(found):
            times = ", ".join(
                f"{_minutes(each.mean)} for {percent} %"
                for each, percent in zip(found, SHARES_PERCENT, strict=True)
                if each
            )
            told.append(f"{NAMES.get(plan, plan)}: {times}")
    return [f"The smallest lifetime for a share of what can be delivered: {'; '.join(told)}."] if told else []


def _minutes(value: float) -> str:
    return (
        f"{value / 60:.1f} h" if value >= 120 else f"{value:.0f} min" if value >= 10 else f"{value:.1f} min"
    )


def _traces(results: Results, present: set[str]) -> list[str]:
    if not present:
        return []
    rows = results.select(part="trace", mode="published")
    ratios = [row.measure("ratio_percent") for row in rows]
    ours = violations(results, part="trace", mode="safe")
    return [
        f"On {len(present)} real traces {min(ratios):.2f} to {max(ratios):.2f} % of what is received is "
        f"co-delivered as printed; safe mode has {ours} violations and "
        f"{results.maximum('expiries', part='trace', mode='safe') or 0:.0f} expiries there."
    ]
