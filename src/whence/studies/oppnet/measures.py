"""The measures of the study of opportunistic networks: from a run to its counts, and what follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np

from whence.kernels.oppnet.kernel import Outcome, Settings, Spread, record, run_plan, since_entry
from whence.mobility.published import SCENARIOS
from whence.overlay.contact_statistics import statistics
from whence.overlay.contacts import ContactPlan
from whence.sim.cores import core_params
from whence.sim.distributions import Constant
from whence.sim.faults import plan_faults
from whence.sim.files import checked, run_id
from whence.sim.links_planned import plan_of
from whence.sim.model import Contacts, Periodic, Scenario
from whence.sim.promises import promises_made
from whence.sim.run import open_writer
from whence.studies.estimate import Estimate, estimate
from whence.studies.oppnet.advice import SHARES_PERCENT, smallest_lifetimes
from whence.studies.oppnet.claims import MODES, REGISTRIES, WALKERS
from whence.studies.results import Derived, Label, Results, Row
from whence.trace.measures import Measured, Value, write_measures
from whence.trace.schema import Kind, Level, Manifest, Recorder

LATENCY_EDGES_S = tuple(range(0, 91, 3))  # Figures 5b and 10b are cut at 60 and 90 s
PARTS_OF_A_SPREAD = ("min", "max", "mean", "sd")


def derive(counted: Mapping[str, Any]) -> dict[str, float | None]:
    """The numbers of one run."""
    if "pairs_possible" in counted:
        return _derive_advice(counted)
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
    for registry in REGISTRIES:
        sizes = counted.get(f"watched_{registry}")
        if sizes:
            found[f"largest_{registry}"] = max(sizes)
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


def derived(results: Results) -> Iterator[Derived]:
    """The statistics of each plan once, whatever ran on it, and how registries grow within a run."""
    for plan in dict.fromkeys(str(row.labels["plan"]) for row in results.select(part="main")):
        for row in main_rows(results, plan, lifetimes(results, plan)[0]):
            statistics = {name: row.measures[name] for name in row.measures if name.startswith("plan_")}
            yield Derived({"part": "plan", "plan": plan, "seed": row.labels["seed"]}, statistics)
    for lifetime in lifetimes(results, WALKERS):
        for mode in MODES:
            rows = [row for row in main_rows(results, WALKERS, lifetime, mode) if row.counted]
            for registry in REGISTRIES:
                sizes = rows[0].counted.get(f"watched_{registry}") if rows else None
                if sizes and len(sizes) >= WATCHED_MIN:
                    labels: dict[str, Label] = {
                        "part": "registries", "plan": WALKERS, "lifetime": lifetime, "mode": mode,
                        "registry": registry,
                    }  # fmt: skip
                    yield Derived(labels, {f"growth_{registry}": _growth(sizes)})


def _growth(sizes: list[int]) -> float | None:
    """The mean of the last third over that of the second: what has settled by then stays level."""
    third = len(sizes) // 3
    early, late = sizes[third : 2 * third], sizes[2 * third :]
    return (sum(late) / len(late)) / (sum(early) / len(early)) if any(early) else None


# How the study of opportunistic networks simulates a run: in the kernel, counting what its tables need.
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


DELAY_PARTS = 40  # of Figures 4 and 9, along the axis of the delay
SAMPLE_US = {"walkers": 5_000_000, "buses": 60_000_000}
# Figure 11 shows a walker who enters at 1h49' and stays for 5'. Ours is the one who is most like it.
SHOWN_ENTRY_US, SHOWN_STAY_US = 6_540_000_000, 300_000_000
LONG_US, EARLY_US = 60_000_000, 1_800_000_000  # waits that are looked at by themselves
WATCH_EVERY_US = 300_000_000  # one of the walkers who enter in such a time is watched


def simulate_to(scenario: Scenario, folder: Path, level: Level | None = None) -> Manifest:
    """Run a scenario of the study and write its trace and its counts."""
    scenario = checked(scenario)
    plan = cast(ContactPlan, plan_of(scenario))
    shown, watched, sample_us = _watch(scenario, plan)
    broadcasts = broadcasts_of(scenario, plan)
    outcome = run_plan(plan, settings_of(scenario), broadcasts, watch=watched, sample_us=sample_us)
    counts = {
        **_counts(outcome),
        **_waits(outcome, plan),
        **_registries(outcome, plan, shown),
        **_statistics(scenario, plan),
    }
    return _write(scenario, folder, level, counts, broadcasts, outcome)


def advice(scenario: Scenario, folder: Path, level: Level | None = None) -> Manifest:
    """Look for the smallest lifetimes in the scenario's plan and write them; no run leaves a trace."""
    scenario = checked(scenario)
    plan = cast(ContactPlan, plan_of(scenario))
    broadcasts = broadcasts_of(scenario, plan)
    counts = smallest_lifetimes(plan, settings_of(scenario), broadcasts)
    return _write(scenario, folder, level, counts, broadcasts, None)


def _write(
    scenario: Scenario, folder: Path, level: Level | None, counts: dict[str, Value], broadcasts: Any,
    outcome: Outcome | None,
) -> Manifest:  # fmt: skip
    level = scenario.record.as_level() if level is None else level
    with open_writer(scenario, folder, level) as writer:
        if outcome is not None and level > Level.MEASURES:
            record(outcome, writer)
        else:
            _record_broadcasts(writer, broadcasts, scenario)
        write_measures(
            folder,
            Measured(run=run_id(scenario), protocol=scenario.protocol, counted_by=__name__, measures=counts),
        )
        return writer.close(promises=promises_made(scenario, complete=False))


def broadcasts_of(scenario: Scenario, plan: ContactPlan) -> Any:
    """The rows of the one workload that every scenario of the study has."""
    load = cast(Periodic, scenario.workloads[0])
    return since_entry(plan, load.start_us, load.interval_us)


def settings_of(scenario: Scenario) -> Settings:
    """Return the kernel's settings."""
    clocks = plan_faults(scenario).clocks if scenario.faults else {}
    return Settings(
        **core_params(scenario),
        delay_us=cast(Constant, scenario.link.delay).value_us,
        offsets_us=tuple(clocks[node].offset_us for node in range(scenario.nodes)) if clocks else (),
    )


def _record_broadcasts(writer: Recorder, broadcasts: Any, scenario: Scenario) -> None:
    from whence.sim.model import node_names

    names = node_names(scenario.nodes)
    numbers = [0] * scenario.nodes
    for time_us, node in broadcasts.tolist():
        numbers[node] += 1
        writer.event(names[node], time_us, Kind.BROADCAST, names[node], numbers[node])


# Counting


def _counts(outcome: Outcome) -> dict[str, Value]:
    found = outcome.measures()
    delay_us, latency_us = outcome.delay_us, outcome.latency_us
    counts: dict[str, Value] = {
        "broadcasts": found.broadcasts,
        "receives": found.receives,
        "deliveries": found.deliveries,
        "expiries": found.expiries,
        "waiting": found.waiting,
        "barrier_entries": int(outcome.barrier_entries.sum()),
        "barrier_max": found.barrier_max,
        "sent": outcome.sent,
        "lost": outcome.lost,
        "duplicates": outcome.duplicates,
        "too_late": outcome.too_late,
        "delay": _spread(found.delay),
        "latency": _spread(found.latency),
        "age": _spread(found.age),
        "delay_percentiles": _percentiles(delay_us),
        "latency_percentiles": _percentiles(latency_us),
        "latency_within": [int((latency_us <= edge_s * 1_000_000).sum()) for edge_s in LATENCY_EDGES_S],
    }
    return counts | _by_delay(outcome)


def _waits(outcome: Outcome, plan: ContactPlan) -> dict[str, Value]:
    """Where the waiting is: a mean may hang on a few."""
    given = ~outcome.is_own & (outcome.delivered_us >= 0)
    latency_us = outcome.latency_us
    long = latency_us > LONG_US
    entry_us = np.full(len(plan.nodes), plan.stop_us, dtype=np.int64)
    for stay in plan.presence:
        entry_us[stay.node] = min(entry_us[stay.node], stay.start_us)
    early = outcome.received_us[given] - entry_us[outcome.node[given]] < EARLY_US
    return {
        "latency_long": [int(long.sum()), int(latency_us[long].sum())],
        "latency_early": int(latency_us[early].sum()),
    }


def _spread(found: Spread) -> list[int]:
    return [found.count, found.min_us, found.max_us, round(found.mean_us), round(found.deviation_us)]


def _percentiles(values_us: Any) -> list[int]:
    if not len(values_us):
        return []
    found: list[int] = np.percentile(values_us, np.arange(101)).round().astype(np.int64).tolist()
    return found


def _by_delay(outcome: Outcome) -> dict[str, Value]:
    """Figures 4 and 9: the cloud of points as three lines."""
    given = ~outcome.is_own & (outcome.delivered_us >= 0)
    delay_us = (outcome.received_us - outcome.broadcast_us[outcome.message])[given]
    latency_us = outcome.latency_us
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
    for stay in stays:
        if stay.stop_us - stay.start_us >= SHOWN_STAY_US:
            chosen.setdefault(stay.start_us // WATCH_EVERY_US, stay.node)
    return shown, sorted({shown, *chosen.values()}), SAMPLE_US[generator]


def _registries(outcome: Outcome, plan: ContactPlan, shown: int) -> dict[str, Value]:
    """Of the samples those that were taken while the node was there."""
    if shown < 0:
        return {}
    stays = {stay.node: stay for stay in plan.presence}
    counts: dict[str, Value] = {}
    entries: list[list[int]] = []
    for node in np.unique(outcome.registries[:, 0]).tolist():
        rows = outcome.registries[outcome.registries[:, 0] == node]
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


def _statistics(scenario: Scenario, plan: ContactPlan) -> dict[str, Value]:
    generator = cast(Contacts, scenario.topology).generator
    if generator is None:
        return {}
    found = statistics(plan)
    return {"plan": [round(1000 * figure.of(found)) for figure in SCENARIOS[generator]]}
