"""The figures of the study of opportunistic networks: 4 to 6, 9 to 11, and those beyond the paper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from whence.studies.base import Figure, Panel, Series
from whence.studies.estimate import Estimate, estimate
from whence.studies.oppnet_measures import LATENCY_EDGES_S, REGISTRIES, lifetimes, main_rows, mean, minutes
from whence.studies.oppnet_published import BUSES, NAMES, WALKERS
from whence.studies.results import Results, Row

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
    "Five hours of walkers who come and go. Every five minutes one who stays that long is watched: the "
    "most entries that its co-delivered registry has while it is there, beside the number of walkers that "
    "have entered by then. A registry that never forgot could grow as that number does; with lifetimes it "
    "stays level."
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
        _cloud(results, "figure-4", "Figure 4", BUSES, (0, 20)),
        _distributions(results, "figure-5", "Figure 5", BUSES, 60),
        _registries(results, "figure-6", "Figure 6", BUSES, (0, 20), DAY_CAPTION),
        _cloud(results, "figure-9", "Figure 9", WALKERS, (5, 20)),
        _distributions(results, "figure-10", "Figure 10", WALKERS, 90),
        _registries(results, "figure-11", "Figure 11", WALKERS, (5, 20), STAY_CAPTION),
        _churn(results),
        _churn_all(results),
        _barriers(results),
        *_advice(results),
    ]
    return [figure for figure in made if figure.panels and all(panel.series for panel in figure.panels)]


def _first(results: Results, plan: str, lifetime: int, mode: str = "published") -> Row | None:
    rows = main_rows(results, plan, lifetime, mode)
    return rows[0] if rows and rows[0].counted else None


def _series(label: str, x: Iterable[float], y: Iterable[float]) -> Series:
    points = list(zip(x, y, strict=True))
    return Series(
        label, tuple(at for at, _ in points), tuple(Estimate(value, None, 1) for _, value in points)
    )


def _cloud(results: Results, name: str, number: str, plan: str, wanted: Sequence[int]) -> Figure:
    panels = []
    for lifetime in wanted:
        row = _first(results, plan, lifetime)
        if row is None or "by_delay_us" not in row.counted:
            continue
        series = []
        for part, label in (("max", "greatest"), ("99", "99th percentile"), ("mean", "mean")):
            points = [
                (delay_us / 6e7, latency_us / 1e6)
                for delay_us, latency_us in zip(
                    row.counted["by_delay_us"], row.counted[f"latency_{part}_by_delay"], strict=True
                )
                if latency_us > 0
            ]
            if points:
                series.append(_series(label, *zip(*points, strict=True)))
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
        delays.append(_series(minutes(lifetime), *zip(*shown, strict=True)))
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
            _series(label, x, _thinned(row.counted[f"shown_{registry}"]))
            for registry, label in REGISTRIES.items()
        )
        panels.append(Panel(f"lifetime {minutes(lifetime)}", f"time {what}, {unit}", "entries", series))
    return Figure(name, f"{number}: {NAMES[plan]}, registries of one node", caption, tuple(panels))


def _churn(results: Results) -> Figure:
    panels = []
    for mode in ("published", "safe"):
        series: list[Series] = []
        for lifetime in lifetimes(results, WALKERS):
            row = _first(results, WALKERS, lifetime, mode)
            if row is None or not row.counted.get("watched_entry_us"):
                continue
            x = [time_us / 3.6e9 for time_us in row.counted["watched_entry_us"]]
            if not series:
                series.append(_series("entered so far", x, row.counted["watched_entered"]))
            series.append(_series(f"lifetime {minutes(lifetime)}", x, row.counted["watched_delivered"]))
        title = "codes as printed" if mode == "published" else "safe"
        panels.append(Panel(title, "entered at, h", "entries (walkers)", tuple(series)))
    title = "Figure 11, for five hours: registries stay bounded under churn"
    return Figure("churn", title, CHURN_CAPTION, tuple(panels))


def _churn_all(results: Results) -> Figure:
    panels = []
    found = lifetimes(results, WALKERS)
    for mode in ("published", "safe"):
        row = _first(results, WALKERS, found[0], mode) if found else None
        if row is None or not row.counted.get("watched_entry_us"):
            continue
        x = [time_us / 3.6e9 for time_us in row.counted["watched_entry_us"]]
        series = tuple(
            _series(label, x, row.counted[f"watched_{registry}"]) for registry, label in REGISTRIES.items()
        )
        title = "codes as printed" if mode == "published" else "safe"
        panels.append(Panel(f"{title}, {minutes(found[0])}", "entered at, h", "entries", series))
    title = "Figure 11, for five hours: all registries"
    return Figure("churn-all", title, CHURN_ALL_CAPTION, tuple(panels))


def _barriers(results: Results) -> Figure:
    panels = []
    for plan in (BUSES, WALKERS):
        series = []
        for mode in ("published", "safe"):
            points = [
                (minutes(lifetime), found)
                for lifetime in lifetimes(results, plan)
                if (found := mean(results, "barrier_mean", plan, lifetime, mode)) is not None
            ]
            if points:
                series.append(
                    Series(mode, tuple(at for at, _ in points), tuple(found for _, found in points))
                )
        panels.append(Panel(NAMES[plan], "lifetime", "entries", tuple(series)))
    return Figure("barriers", "Barriers as printed and pruned", BARRIER_CAPTION, tuple(panels))


def _advice(results: Results) -> list[Figure]:
    panels = []
    for plan in dict.fromkeys(str(row.labels["plan"]) for row in results.select(part="advice")):
        counted = results.select(part="advice", plan=plan)[0].counted
        if not counted:
            continue
        possible = max(counted["pairs_possible"], 1)
        points = [
            (lifetime_us / 6e7, 100 * reached / possible)
            for lifetime_us, reached in zip(counted["tried_us"], counted["tried_reached"], strict=True)
        ]
        series = _series("delivered", *zip(*points, strict=True))
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
