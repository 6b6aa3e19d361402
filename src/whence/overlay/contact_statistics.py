"""Figures about a contact plan: what papers print in a table before they use one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt

from whence.overlay.contacts import ContactPlan


@dataclass(frozen=True)
class PlanSpread:
    """Least, greatest, mean and standard deviation (of the population) of `count` numbers."""

    count: int
    least: float
    greatest: float
    mean: float
    deviation: float


@dataclass(frozen=True)
class PlanStatistics:
    """Figures about a plan; times in seconds. A spread is None where there is nothing to count."""

    nodes: int
    present_max: int  # nodes that are there at the same time
    duration_s: float
    contacts: int
    instants: int  # contacts of no length
    pairs: int  # pairs of nodes that meet at least once
    stay_s: PlanSpread | None  # per node: the time it is present
    contact_s: PlanSpread | None  # per contact: how long it lasts
    gap_s: PlanSpread | None  # per pair: from the end of a contact to the start of the next
    contacts_per_node: PlanSpread | None
    neighbours_mean: float  # linked neighbours of a node, averaged over the time it is present


def spread(values: Iterable[int], unit: int = 1) -> PlanSpread | None:
    """The spread of whole numbers, divided by `unit`; sums are exact, so order does not matter."""
    count = total = squares = 0
    least = greatest = None
    for value in values:
        count += 1
        total += value
        squares += value * value
        least = value if least is None or value < least else least
        greatest = value if greatest is None or value > greatest else greatest
    if least is None or greatest is None:
        return None
    deviation = sqrt((squares * count - total * total) / (count * count))
    return PlanSpread(count, least / unit, greatest / unit, total / count / unit, deviation / unit)


def statistics(plan: ContactPlan) -> PlanStatistics:
    """Count everything once."""
    second = 1_000_000
    stays = [0] * len(plan.nodes)
    for node, start_us, stop_us in plan.presence:
        stays[node] += stop_us - start_us
    lengths, gaps = [], []
    met = [0] * len(plan.nodes)
    last: dict[tuple[int, int], int] = {}
    for a, b, start_us, stop_us in plan.contacts:
        lengths.append(stop_us - start_us)
        met[a] += 1
        met[b] += 1
        before = last.get((a, b))
        if before is not None:
            gaps.append(start_us - before)
        last[a, b] = stop_us
    present_us = sum(stays)
    return PlanStatistics(
        nodes=len(plan.nodes),
        present_max=_present_max(plan),
        duration_s=plan.stop_us / second,
        contacts=len(plan.contacts),
        instants=lengths.count(0),
        pairs=len(last),
        stay_s=spread((stay for stay in stays if stay), second),
        contact_s=spread(lengths, second),
        gap_s=spread(gaps, second),
        contacts_per_node=spread(met),
        neighbours_mean=2 * sum(lengths) / present_us if present_us else 0.0,
    )


def _present_max(plan: ContactPlan) -> int:
    steps = [(start_us, 1) for start_us in plan.presence.start_us]
    steps += [(stop_us, -1) for stop_us in plan.presence.stop_us]
    present = most = 0
    for _, step in sorted(steps):  # at one instant those who leave come first
        present += step
        most = max(most, present)
    return most
