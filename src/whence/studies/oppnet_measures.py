"""What the study of opportunistic networks computes from the counts of one run, and how it asks for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whence.studies.estimate import Estimate, estimate
from whence.studies.oppnet_advice import SHARES_PERCENT
from whence.studies.results import Results, Row

ADVICE = "oppnet-advice"  # the name of the scenarios of which the smallest lifetime is looked for
LATENCY_EDGES_S = tuple(range(0, 91, 3))  # Figures 5b and 10b are cut at 60 and 90 s
REGISTRIES = {"barrier": "causal barrier", "delivered": "co-delivered", "pending": "pending"}
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


def minutes(lifetime: object) -> str:
    """A lifetime as the paper writes it."""
    return "none" if lifetime == 0 else f"{lifetime}′"


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
