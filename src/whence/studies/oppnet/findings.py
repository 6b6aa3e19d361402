"""What the study of opportunistic networks found, in sentences made from the runs."""

from __future__ import annotations

from whence.studies.oppnet import data as oppnet_data
from whence.studies.oppnet.advice import SHARES_PERCENT
from whence.studies.oppnet.claims import BUSES, MODES, NAMES, WALKERS, minutes, paper
from whence.studies.oppnet.measures import lifetimes, main_rows, mean
from whence.studies.oppnet.page import PLANS, region, violations
from whence.studies.results import Label, Results


def findings(results: Results) -> list[str]:
    """The sentences on top of the page."""
    told = []
    for plan in PLANS:
        told += _beside_paper(results, plan)
    told += [*_about_region(results), *_swapped(results), *_waits(results)]
    told += [*_modes(results), *_skew(results), *_churn(results), *_advice(results)]
    present = {str(row.labels["plan"]) for row in results.select(part="trace")}
    return [*told, *_traces(results, present), *oppnet_data.skipped({*present, *oppnet_data.find()})]


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
        f"s, and {over.mean:.0f} % over five minutes: 58 and 42 look swapped."
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
            sizes = counted["watched_delivered"]
            return [
                f"Among {counted['watched_entered'][-1]:,} walkers that come and go, the co-delivered "
                f"registry of those watched has at most {min(sizes):,} to {max(sizes):,} entries with "
                f"{minutes(lifetime)}, and does not grow with the hours."
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
