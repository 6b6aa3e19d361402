"""The measures of the study of opportunistic networks: from a run to its counts, and what follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, cast

import numpy as np

from whence.errors import MisuseError
from whence.kernels.oppnet.kernel import OppnetDetail, TimeSpread, broadcasts_of, settings_of
from whence.lab.run import run, save_measures
from whence.mobility.published import SCENARIOS
from whence.overlay.contact_statistics import statistics
from whence.overlay.contacts import ContactPlan
from whence.sim.links_planned import plan_of
from whence.sim.model import Contacts, Scenario
from whence.sim.outcome import Outcome
from whence.studies.oppnet.advice import SHARES_PERCENT, smallest_lifetimes
from whence.studies.oppnet.claims import MODES, PRINTED, REGISTRIES, WALKERS
from whence.studies.results import Derived, Estimate, Label, Results, Row, estimate, farthest
from whence.trace.measures import Value
from whence.trace.schema import Level

LATENCY_EDGES_S = tuple(range(0, 91, 3))  # Figures 5b and 10b are cut at 60 and 90 s
PARTS_OF_A_SPREAD = ("min", "max", "mean", "sd")


def derive(row: Row) -> dict[str, float | None]:
    """The numbers of one run."""
    counted = row.counted
    if not counted:
        return {}
    if "pairs_possible" in counted:
        return _derive_advice(counted)
    if "delay" not in counted:  # of cores, whose caches are limited
        return {"co_deliveries": counted["deliveries"], "broadcasts": counted["broadcasts"]}
    receives, expiries = counted["receives"], counted["expiries"]
    messages = counted["broadcasts"]
    found: dict[str, float | None] = {
        "broadcasts": messages,
        "receives": receives,
        "co_deliveries": counted["deliveries"],
        "ratio_percent": 100 * counted["deliveries"] / max(messages + receives, 1),
        "expiries": expiries,
        "expiry_percent": 100 * expiries / max(receives, 1),
        "waiting": counted["waiting"],
        "barrier_mean": counted["barrier_entries"] / max(messages, 1),
        "barrier_max": counted["barrier_max"],
        "duplicates": counted["duplicates"],
    }
    for what in ("delay", "latency", "age"):
        for part, value_us in zip(PARTS_OF_A_SPREAD, counted[what][1:], strict=True):
            found[f"{what}_{part}_s"] = value_us / 1e6
        for percent, value_us in enumerate(counted.get(f"{what}_percentiles", ())):
            if percent in (42, 50, 80, 88, 90, 92, 95, 99):  # what section VI has sentences about
                found[f"{what}_{percent}_s"] = value_us / 1e6
    waited_us = counted["latency"][0] * counted["latency"][3]
    if waited_us and "latency_long" in counted:  # traces of an older release have none
        count, sum_us = counted["latency_long"]
        found["latency_long_percent"] = 100 * count / counted["latency"][0]
        found["latency_long_share_percent"] = 100 * sum_us / waited_us
        found["latency_early_share_percent"] = 100 * counted["latency_early"] / waited_us
    for at, thousandths in enumerate(counted.get("plan", ())):
        found[f"plan_{at}"] = thousandths / 1000
    found |= _shares(row) | _shown(counted) | _alike(counted, int(row.labels["lifetime"]))
    for registry in REGISTRIES:
        sizes = counted.get(f"watched_{registry}")
        if sizes:
            found[f"largest_{registry}"] = max(sizes)
            if len(sizes) >= WATCHED_MIN:
                found[f"growth_{registry}"] = _growth(sizes)
    return found


def _shares(row: Row) -> dict[str, float | None]:
    """What section VI says in words."""
    counted, lifetime_s = row.counted, 60 * int(row.labels["lifetime"])
    nodes = int(row.parameters["nodes"]) if row.parameters else 0
    waited, travelled = counted["latency"][3], counted["delay"][3]
    return {
        "latency_share_percent": 100 * waited / travelled if travelled else None,
        "age_over_lifetime_s": counted["age"][2] / 1e6 - lifetime_s if lifetime_s else None,
        "barrier_over_hosts": counted["barrier_max"] - (nodes - 1),
        "delay_over_5_min_percent": _over(counted.get("delay_percentiles", ()), 300_000_000),
        "plan_end_s": row.parameters["stop"]["duration_us"] / 1e6 if row.parameters else None,
        "contact_low_s": counted["contact_low_us"] / 1e6 if "contact_low_us" in counted else None,
    }


def _over(percentiles: Sequence[int], limit_us: int) -> float | None:
    """How many percent are over a limit, between two percentiles."""
    for percent, (low, high) in enumerate(pairwise(percentiles)):
        if low <= limit_us < high:
            return 100 - percent - (limit_us - low) / (high - low)
    return None


def _shown(counted: Mapping[str, Any]) -> dict[str, float | None]:
    """Figures 6 and 11: the registries of the node that is shown."""
    if not counted.get("shown_us"):
        return {}
    delivered, pending = counted["shown_delivered"], counted["shown_pending"]
    peak = pending.index(max(pending))
    return {
        "shown_barrier_max": max(counted["shown_barrier"]),
        "shown_pending_max": max(pending),
        "shown_pending_peak_s": counted["shown_us"][peak] / 1e6,
        "shown_delivered_max": max(delivered),
        "shown_delivered_growth": delivered[-1] - delivered[len(delivered) // 2],
        "shown_delivered_falls": sum(after < before for before, after in pairwise(delivered)),
    }


def _alike(counted: Mapping[str, Any], lifetime: int) -> dict[str, float | None]:
    """Walkers that stay as long as N777: medians, and the place of what it printed among them, in percent."""
    found: dict[str, float | None] = {}
    for name, values in counted.items():
        if name.startswith("alike_") and values:
            what = name.removeprefix("alike_")
            found[f"alike_{what}"] = median(values)
            wanted = N777.get((what, lifetime))
            if wanted is not None:
                below = sum(value < wanted for value in values) + sum(value == wanted for value in values) / 2
                found[f"n777_{what}_place"] = 100 * below / len(values)
    return found


def _derive_advice(counted: Mapping[str, Any]) -> dict[str, float | None]:
    possible = counted["pairs_possible"]
    found: dict[str, float | None] = {
        "possible_percent": 100 * possible / max(counted["pairs"], 1),
        "longest_min": counted["longest_us"] / 6e7,
        "runs_made": len(counted["tried_us"]),
    }
    for percent in SHARES_PERCENT:
        found[f"lifetime_{percent}_min"] = counted[f"lifetime_{percent}_us"] / 6e7
        found[f"share_{percent}_percent"] = 100 * counted[f"reached_{percent}"] / max(possible, 1)
    return found


def lifetimes(results: Results, plan: str, part: str = "main") -> list[int]:
    """The lifetimes that were run with a plan, longest first, none before all."""
    found = {int(row.labels["lifetime"]) for row in results.select(part=part, plan=plan)}
    return sorted(found, key=lambda lifetime: -lifetime if lifetime else float("-inf"))


def main_rows(results: Results, plan: str, lifetime: int, mode: str = "published") -> list[Row]:
    """The runs of one experiment, one per seed."""
    return results.select(part="main", plan=plan, lifetime=lifetime, mode=mode)


def mean(
    results: Results, measure: str, plan: str, lifetime: int, mode: str = "published"
) -> Estimate | None:
    """Mean and interval over the seeds of one experiment."""
    values = [
        value
        for row in main_rows(results, plan, lifetime, mode)
        if (value := row.measures.get(measure)) is not None
    ]
    return estimate(values) if values else None


def value(found: Estimate | None) -> float | None:
    """The mean alone."""
    return None if found is None else found.mean


WATCHED_MIN = 12  # nodes: of fewer, a third is chance
# Node N777 of section VI-B: what is printed of it, with lifetimes of so many minutes.
N777 = {
    ("published", 5): 5, ("published", 20): 5, ("received", 5): 269, ("delivered", 5): 274,
    ("received", 20): 760, ("delivered", 20): 764, ("pending", 20): 400, ("sources", 20): 150,
}  # fmt: skip
ALIKE_US = (285_000_000, 315_000_000)  # a stay of about five minutes


def derived(results: Results) -> Iterator[Derived]:
    """The statistics of each plan once, whatever ran on it, and how registries grow within a run."""
    for plan in dict.fromkeys(str(row.labels["plan"]) for row in results.select(part="main")):
        for row in main_rows(results, plan, lifetimes(results, plan)[0]):
            statistics = {name: row.measures[name] for name in row.measures if name.startswith("plan_")}
            yield Derived({"part": "plan", "plan": plan, "seed": row.labels["seed"]}, statistics)
    yield from _n777(results)
    for lifetime in lifetimes(results, WALKERS):
        for mode in MODES:
            for registry in REGISTRIES:
                growth = mean(results, f"growth_{registry}", WALKERS, lifetime, mode)
                if growth is not None:
                    labels: dict[str, Label] = {
                        "part": "registries", "plan": WALKERS, "lifetime": lifetime, "mode": mode,
                        "registry": registry,
                    }  # fmt: skip
                    yield Derived(labels, {f"growth_{registry}": growth.mean})


def _n777(results: Results) -> Iterator[Derived]:
    """The place of what is printed of N777 among walkers like it, those of all plans together.

    Without an interval: the band in which it is nothing special is as wide as it is.
    """
    for lifetime in lifetimes(results, WALKERS):
        names = [f"n777_{what}_place" for what, minutes in N777 if minutes == lifetime]
        found = {name: value(mean(results, name, WALKERS, lifetime)) for name in names}
        there = {name: place for name, place in found.items() if place is not None}
        if there:
            runs = len(main_rows(results, WALKERS, lifetime))
            yield Derived({"part": "n777", "plan": WALKERS, "lifetime": lifetime}, there, runs)


def region_factor(
    results: Results, plan: str, measure: str, printed: Mapping[int, float], rate: Label, setup_s: Label
) -> float | None:
    """By which factor a mean is off what is printed, the worst of all lifetimes, under one exchange."""
    worst = None
    for row in results.select(part="region", plan=plan, rate=rate, setup_s=setup_s):
        ours, theirs = row.measures.get(measure), printed.get(int(row.labels["lifetime"]))
        if ours and theirs:
            worst = max(worst or 1.0, ours / theirs, theirs / ours)
    return worst


def region_worst(results: Results, plan: str, rate: Label, setup_s: Label) -> list[float | None]:
    """Of one exchange, the farthest of all lifetimes: factors of latency, receives, delay; points."""
    printed = PRINTED[plan]["ratio"]
    points = [
        row.measure("ratio_percent") - printed[lifetime]
        for row in results.select(part="region", plan=plan, rate=rate, setup_s=setup_s)
        if (lifetime := int(row.labels["lifetime"])) in printed and row.measures.get("ratio_percent")
    ]
    factors = (
        region_factor(results, plan, measure, PRINTED[plan][name], rate, setup_s)
        for name, measure in (
            ("latency", "latency_mean_s"),
            ("receives", "receives"),
            ("delay", "delay_mean_s"),
        )
    )
    return [*factors, farthest(points, 0)]


def _growth(sizes: list[int]) -> float | None:
    """The mean of the last third over that of the second: what has settled by then stays level."""
    third = len(sizes) // 3
    early, late = sizes[third : 2 * third], sizes[2 * third :]
    return (sum(late) / len(late)) / (sum(early) / len(early)) if any(early) else None


# How a run is made and counted: in the kernel.
#
#     delay, latency, age     count, min, max, mean and standard deviation in microseconds (Tables III, VI)
#     *_percentiles           Figures 5 and 10: 0 % to 100 % in steps of 1 %
#     latency_within          how many latencies are at most each of `LATENCY_EDGES_S`
#     latency_long            how many are over a minute, and their sum
#     latency_early           the sum of those of messages received in a node's first half hour
#     latency_*_by_delay      Figures 4 and 9: the latency of what was received after so long, as a mean, as
#                             the 99th percentile and as a maximum
#     shown_*                 Figures 6 and 11: the registries of one node over time
#     watched_*               the same of walkers throughout the run: the largest of each
#     plan                    Tables I and IV, in thousandths
#
# Spark's workers import this module.


STAYS_SHOWN = 140  # of Figure 8; Figure 3 has all 60
DELAY_PARTS = 40  # of Figures 4 and 9, along the axis of the delay
SAMPLE_US = {"walkers": 5_000_000, "buses": 60_000_000}
# Figure 11 shows a walker who enters at 1h49' and stays for 5'. Ours is the one who is most like it.
SHOWN_ENTRY_US, SHOWN_STAY_US = 6_540_000_000, 300_000_000
LONG_US, EARLY_US = 60_000_000, 1_800_000_000  # waits that are looked at by themselves
WATCH_EVERY_US = 300_000_000  # one of the walkers who enter in such a time is watched


def run_point(scenario: Scenario, folder: Path, level: Level | None = None) -> Outcome:
    """Run a scenario of the study and write its trace and its counts."""
    _, watched, sample_us = _watch(scenario, _plan(scenario))
    keep = {"registries": (watched, sample_us)} if watched else {}
    return run(scenario, folder, level=level, kernel="always", keep=keep, measure=measure)


def advise(scenario: Scenario, folder: Path, level: Level | None = None) -> None:
    """Look for the smallest lifetimes that deliver a wanted share: a search over runs, without a trace."""
    plan = _plan(scenario)
    counts = smallest_lifetimes(plan, settings_of(scenario), broadcasts_of(scenario, plan)[:, :2])
    folder.mkdir(parents=True)
    save_measures(folder, scenario, counts, f"{__name__}.{advise.__name__}")


def run_cores(scenario: Scenario, folder: Path, level: Level | None = None) -> Outcome:
    """Run with caches that may be too small, which the kernel does not know."""
    return run(scenario, folder, level=level, kernel="never", measure=core_counts)


def core_counts(outcome: Outcome) -> dict[str, Value]:
    """Return what was broadcast and delivered."""
    return {"broadcasts": outcome.broadcasts, "deliveries": outcome.deliveries}


def measure(outcome: Outcome) -> dict[str, Value]:
    """Return the counts of a run."""
    scenario, detail = outcome.scenario, outcome.detail
    if detail is None:
        raise MisuseError("study oppnet", f"no kernel ran it: {outcome.why}", "Run what a kernel can run")
    plan = _plan(scenario)
    shown, _, _ = _watch(scenario, plan)
    return {
        **_counts(detail),
        **_waits(detail, plan),
        **_registries(detail, plan, shown),
        **_statistics(scenario, plan),
        **_like_n777(scenario, detail, plan),
    }


def _plan(scenario: Scenario) -> ContactPlan:
    return cast(ContactPlan, plan_of(scenario))


# Counting


def _counts(detail: OppnetDetail) -> dict[str, Value]:
    found = detail.measures()
    delay_us, latency_us = detail.delay_us, detail.latency_us
    counts: dict[str, Value] = {
        "broadcasts": found.broadcasts,
        "receives": found.receives,
        "deliveries": found.deliveries,
        "expiries": found.expiries,
        "waiting": found.waiting,
        "barrier_entries": int(detail.barrier_entries.sum()),
        "barrier_max": found.barrier_max,
        "sent": detail.sent,
        "lost": detail.lost,
        "duplicates": detail.duplicates,
        "too_late": detail.too_late,
        "delay": _spread(found.delay),
        "latency": _spread(found.latency),
        "age": _spread(found.age),
        "delay_percentiles": _percentiles(delay_us),
        "latency_percentiles": _percentiles(latency_us),
        "latency_within": [int((latency_us <= edge_s * 1_000_000).sum()) for edge_s in LATENCY_EDGES_S],
    }
    return counts | _by_delay(detail)


def _waits(detail: OppnetDetail, plan: ContactPlan) -> dict[str, Value]:
    """Where the waiting is: a mean may hang on a few."""
    given = ~detail.is_own & (detail.delivered_us >= 0)
    latency_us = detail.latency_us
    long = latency_us > LONG_US
    entry_us = np.full(len(plan.nodes), plan.stop_us, dtype=np.int64)
    for stay in plan.presence:
        entry_us[stay.node] = min(entry_us[stay.node], stay.start_us)
    early = detail.received_us[given] - entry_us[detail.node[given]] < EARLY_US
    return {
        "latency_long": [int(long.sum()), int(latency_us[long].sum())],
        "latency_early": int(latency_us[early].sum()),
    }


def _spread(found: TimeSpread) -> list[int]:
    return [found.count, found.min_us, found.max_us, round(found.mean_us), round(found.deviation_us)]


def _percentiles(values_us: Any) -> list[int]:
    if not len(values_us):
        return []
    found: list[int] = np.percentile(values_us, np.arange(101)).round().astype(np.int64).tolist()
    return found


def _by_delay(detail: OppnetDetail) -> dict[str, Value]:
    """Figures 4 and 9: the cloud of points as three lines."""
    given = ~detail.is_own & (detail.delivered_us >= 0)
    delay_us = (detail.received_us - detail.broadcast_us[detail.message])[given]
    latency_us = detail.latency_us
    if not len(delay_us):
        return {}
    width_us = int(delay_us.max()) // DELAY_PARTS + 1
    part = delay_us // width_us
    starts = np.searchsorted(part[order := np.argsort(part, kind="stable")], np.arange(DELAY_PARTS + 1))
    ordered = latency_us[order]
    parts = [
        (at, ordered[low:high]) for at, (low, high) in enumerate(pairwise(starts.tolist())) if high > low
    ]
    return {
        "by_delay_us": [at * width_us + width_us // 2 for at, _ in parts],
        "latency_mean_by_delay": [round(float(each.mean())) for _, each in parts],
        "latency_99_by_delay": [round(float(np.percentile(each, 99))) for _, each in parts],
        "latency_max_by_delay": [int(each.max()) for _, each in parts],
    }


# Registries


def _watch(scenario: Scenario, plan: ContactPlan) -> tuple[int, list[int], int]:
    """The node that is shown, all nodes that are watched, and how often: in the first run of each point."""
    generator = cast(Contacts, scenario.topology).generator
    if generator is None or scenario.seed != 1 or scenario.faults:
        return -1, [], 0
    stays = sorted(plan.presence, key=lambda stay: stay.start_us)
    if generator == "buses":
        shown = max(stays, key=lambda stay: stay.stop_us - stay.start_us).node
        return shown, [shown], SAMPLE_US[generator]
    shown = min(
        stays,
        key=lambda stay: (
            10 * abs(stay.stop_us - stay.start_us - SHOWN_STAY_US) + abs(stay.start_us - SHOWN_ENTRY_US)
        ),
    ).node
    chosen: dict[int, int] = {}
    alike = [stay.node for stay in stays if ALIKE_US[0] <= stay.stop_us - stay.start_us <= ALIKE_US[1]]
    for stay in stays:
        if stay.stop_us - stay.start_us >= SHOWN_STAY_US:
            chosen.setdefault(stay.start_us // WATCH_EVERY_US, stay.node)
    return shown, sorted({shown, *chosen.values(), *alike}), SAMPLE_US[generator]


def _registries(detail: OppnetDetail, plan: ContactPlan, shown: int) -> dict[str, Value]:
    """Of the samples those that were taken while the node was there."""
    if shown < 0:
        return {}
    stays = {stay.node: stay for stay in plan.presence}
    counts: dict[str, Value] = {}
    entries: list[list[int]] = []
    for node in np.unique(detail.registries[:, 0]).tolist():
        rows = detail.registries[detail.registries[:, 0] == node]
        stay = stays[node]
        rows = rows[(rows[:, 1] >= stay.start_us) & (rows[:, 1] < stay.stop_us)]
        if not len(rows):
            continue
        entered = sum(each.start_us <= stay.stop_us for each in plan.presence)
        entries.append([stay.start_us, entered, *rows[:, 2:].max(axis=0).tolist()])
        if node == shown:
            counts |= {
                "shown_us": (rows[:, 1] - stay.start_us).tolist(),
                "shown_barrier": rows[:, 2].tolist(),
                "shown_delivered": rows[:, 3].tolist(),
                "shown_pending": rows[:, 4].tolist(),
                "shown_entry_us": stay.start_us,
            }
    entries.sort()
    for at, name in enumerate(("entry_us", "entered", "barrier", "delivered", "pending")):
        counts[f"watched_{name}"] = [entry[at] for entry in entries]
    return counts


def _like_n777(scenario: Scenario, detail: OppnetDetail, plan: ContactPlan) -> dict[str, Value]:
    """What each walker that stays about five minutes published, received and co-delivered."""
    if cast(Contacts, scenario.topology).generator != "walkers":
        return {}
    alike = [
        stay.node for stay in plan.presence if ALIKE_US[0] <= stay.stop_us - stay.start_us <= ALIKE_US[1]
    ]
    nodes, own = len(plan.nodes), detail.is_own
    counts: dict[str, Value] = {}
    for name, chosen in (
        ("published", own),
        ("received", ~own),
        ("delivered", own | (detail.delivered_us >= 0)),
    ):
        each = np.bincount(detail.node[chosen], minlength=nodes)
        counts[f"alike_{name}"] = each[alike].tolist()
    for column, name in ((3, "sources"), (4, "pending")):
        most = {}
        for node in np.unique(detail.registries[:, 0]).tolist() if len(detail.registries) else ():
            most[node] = int(detail.registries[detail.registries[:, 0] == node][:, column].max())
        counts[f"alike_{name}"] = [most[node] for node in alike if node in most]
    return counts


def _statistics(scenario: Scenario, plan: ContactPlan) -> dict[str, Value]:
    generator = cast(Contacts, scenario.topology).generator
    if generator is None:
        return {}
    found = statistics(plan)
    lengths_us = [contact.stop_us - contact.start_us for contact in plan.contacts]
    counts: dict[str, Value] = {
        "plan": [round(1000 * figure.of(found)) for figure in SCENARIOS[generator]],
        "contact_low_us": int(np.percentile(lengths_us, 10)),
    }
    if scenario.seed == 1:
        stays = sorted(plan.presence, key=lambda stay: stay.start_us)[:STAYS_SHOWN]
        counts |= {
            "stay_from_us": [stay.start_us for stay in stays],
            "stay_to_us": [stay.stop_us for stay in stays],
        }
    return counts
