"""Faults: what a scenario says becomes a plan before the run begins.

Nothing that happens in a run changes the plan, so the network can tell, when a packet is sent,
every obstacle that it will meet: no event is needed for a partition's beginning or end.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from whence.core.message import NodeId
from whence.core.rng import below, bits, purpose, shuffled, stream
from whence.sim.distributions import sampler
from whence.sim.links_planned import plan_of
from whence.sim.model import (
    Crash,
    Partition,
    RandomCrashes,
    RandomPartitions,
    Scenario,
    Skew,
    Slow,
    node_names,
)
from whence.sim.selection import scenario_error, select

NEVER_US = 1 << 62  # the end of what does not end

_CRASH = purpose("crash")
_SPLIT = purpose("split")
_PARTITION = purpose("partition")
_SKEW = purpose("skew")
_PLACEMENTS_MAX = 1_000  # attempts to place one drawn crash where the node is up


class Windows:
    """Times at which something is so: disjoint intervals [start, stop), in order."""

    __slots__ = ("starts", "stops")

    def __init__(self, intervals: Iterable[tuple[int, int]] = ()) -> None:
        self.starts: list[int] = []
        self.stops: list[int] = []
        for start, stop in sorted(intervals):
            if self.stops and start <= self.stops[-1]:
                self.stops[-1] = max(self.stops[-1], stop)
            else:
                self.starts.append(start)
                self.stops.append(stop)

    def __bool__(self) -> bool:
        return bool(self.starts)

    def end_of(self, first_us: int, last_us: int) -> int | None:
        """The end of the first interval that meets [first_us, last_us]; None if there is none."""
        at = bisect_right(self.stops, first_us)
        if at < len(self.starts) and self.starts[at] <= last_us:
            return self.stops[at]
        return None


class Outage(NamedTuple):
    """A node is down in [at_us, restart_us)."""

    at_us: int
    node: int
    restart_us: int  # NEVER_US: it does not come back


class Split(NamedTuple):
    """In [start_us, stop_us) nothing passes between nodes of different groups."""

    start_us: int
    stop_us: int
    group: list[int]  # of each node


class Slowness(NamedTuple):
    """In [start_us, stop_us) a time t becomes factor x t + extra_us."""

    start_us: int
    stop_us: int
    factor: float
    extra_us: int


class FaultyClock(NamedTuple):
    """A node's own clock: off by `offset_us` at true time 0, and `drift_ppm` too fast. Never below 0."""

    offset_us: int
    drift_ppm: int

    def local(self, true_us: int) -> int:
        """What the clock shows."""
        return max(true_us + self.offset_us + true_us * self.drift_ppm // 1_000_000, 0)

    def true(self, local_us: int) -> int:
        """The first true time at which the clock shows `local_us` or more."""
        if local_us <= self.local(0):
            return 0
        # Rounding moves the answer by less than two either way; start below it and step up.
        guess = (local_us - self.offset_us) * 1_000_000 // (1_000_000 + self.drift_ppm) - 2
        guess = max(guess, 0)
        while self.local(guess) < local_us:
            guess += 1
        return guess


@dataclass
class FaultPlan:
    """All faults of one run."""

    outages: list[Outage] = field(default_factory=list)
    splits: list[Split] = field(default_factory=list)
    slow: dict[int, list[Slowness]] = field(default_factory=dict)
    clocks: dict[int, FaultyClock] = field(default_factory=dict)
    # With a contact plan: for each pair that ever meets, the times in between.
    apart: dict[tuple[int, int], list[tuple[int, int]]] = field(default_factory=dict)

    def down(self, node: int) -> Windows:
        """When a node is down."""
        return Windows((each.at_us, each.restart_us) for each in self.outages if each.node == node)

    def separated(self, one: int, other: int) -> Windows:
        """When nothing passes between two nodes."""
        splits = [
            (split.start_us, split.stop_us) for split in self.splits if split.group[one] != split.group[other]
        ]
        return Windows(splits + self.apart.get((min(one, other), max(one, other)), []))


def plan_faults(scenario: Scenario) -> FaultPlan:
    """Draw what is to be drawn and refuse what cannot be."""
    plan = FaultPlan()
    names = node_names(scenario.nodes)
    drawn_crashes: list[tuple[int, RandomCrashes]] = []
    for at, fault in enumerate(scenario.faults):
        where = f"faults[{at}]"
        match fault:
            case Partition():
                plan.splits.append(_split(fault, names, where, scenario.seed, at))
            case RandomPartitions():
                plan.splits += _drawn_splits(fault, scenario, where, at)
            case Crash():
                _plan_crash(plan, fault, names, where, scenario.seed)
            case RandomCrashes():
                drawn_crashes.append((at, fault))  # after the fixed ones, so that these keep their times
            case Slow():
                _check_interval(fault.start_us, fault.stop_us, where)
                if fault.factor == 1.0 and fault.extra_us == 0:
                    raise scenario_error(where, "it slows nothing", "Set factor above 1 or extra_us above 0")
                for node in select(fault.nodes, names, f"{where}.nodes", scenario.seed):
                    stop_us = NEVER_US if fault.stop_us is None else fault.stop_us
                    slowness = Slowness(fault.start_us, stop_us, fault.factor, fault.extra_us)
                    plan.slow.setdefault(node, []).append(slowness)
            case Skew():
                _plan_skew(plan, fault, names, where, scenario.seed, at)
    for at, crashes in drawn_crashes:
        _plan_drawn_crashes(plan, crashes, names, f"faults[{at}]", scenario.seed, at)
    _plan_contacts(plan, scenario)
    plan.outages.sort()
    return plan


def clocks_of(scenario: Scenario) -> dict[int, FaultyClock]:
    """The clocks that are wrong, as in `plan_faults`, without the contacts of a plan, which take a while."""
    plan = FaultPlan()
    names = node_names(scenario.nodes)
    for at, fault in enumerate(scenario.faults):
        if isinstance(fault, Skew):
            _plan_skew(plan, fault, names, f"faults[{at}]", scenario.seed, at)
    return plan.clocks


def _plan_contacts(plan: FaultPlan, scenario: Scenario) -> None:
    """A node that is away is down; nothing passes between two that are not in contact."""
    contacts = plan_of(scenario)
    if contacts is None:
        return
    stays: list[list[tuple[int, int]]] = [[] for _ in range(scenario.nodes)]
    for node, start_us, stop_us in contacts.presence:
        stays[node].append((start_us, stop_us))
    crashed = {outage.node for outage in plan.outages}
    for node, intervals in enumerate(stays):
        gone = _between(intervals, contacts.stop_us)
        if gone and node in crashed:
            raise scenario_error(
                "faults", f"n{node} is crashed, and the contact plan takes it away", "Use one of the two"
            )
        plan.outages += [Outage(at_us, node, back_us) for at_us, back_us in gone]
    met: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for a, b, start_us, stop_us in contacts.contacts:
        if start_us < stop_us:
            met.setdefault((a, b), []).append((start_us, stop_us))
    plan.apart = {pair: _between(intervals, None) for pair, intervals in met.items()}


def _between(intervals: list[tuple[int, int]], end_us: int | None) -> list[tuple[int, int]]:
    """The gaps before, between and after ordered intervals; none after one that lasts to the plan's end."""
    gaps, last_us = [], 0
    for start_us, stop_us in intervals:
        if start_us > last_us:
            gaps.append((last_us, start_us))
        last_us = stop_us
    if last_us != end_us:
        gaps.append((last_us, NEVER_US))
    return gaps


def _check_interval(start_us: int, stop_us: int | None, where: str, name: str = "stop_us") -> None:
    if stop_us is not None and stop_us <= start_us:
        raise scenario_error(
            f"{where}.{name}", f"{stop_us} is not after {start_us}, where it begins", "Let it end later"
        )


# Partitions


def _split(fault: Partition, names: list[NodeId], where: str, seed: int, entity: int) -> Split:
    _check_interval(fault.start_us, fault.stop_us, where)
    stop_us = NEVER_US if fault.stop_us is None else fault.stop_us
    if fault.groups is None:
        key = stream(seed, _SPLIT, entity)
        return Split(fault.start_us, stop_us, _drawn_groups(len(names), fault.parts, key, f"{where}.parts"))
    group = [-1] * len(names)
    for number, members in enumerate(fault.groups):
        for node in select(members, names, f"{where}.groups[{number}]", seed):
            if group[node] >= 0:
                raise scenario_error(
                    f"{where}.groups", f"{names[node]} is in two groups", "Put each node into one group"
                )
            group[node] = number
    if len(set(group)) < 2:
        raise scenario_error(
            f"{where}.groups", "they separate nobody", "Leave some nodes out, or add a group"
        )
    return Split(fault.start_us, stop_us, group)


def _drawn_groups(count: int, parts: int, key: int, field_name: str) -> list[int]:
    """A random assignment of nodes to parts, none of them empty."""
    if parts > count:
        raise scenario_error(field_name, f"{count} nodes cannot form {parts} parts", f"Use at most {count}")
    cuts = sorted(shuffled(bits(key, 0), count - 1)[: parts - 1])
    group = [0] * count
    for place, node in enumerate(shuffled(bits(key, 1), count)):
        group[node] = sum(cut < place for cut in cuts)
    return group


def _drawn_splits(fault: RandomPartitions, scenario: Scenario, where: str, entity: int) -> list[Split]:
    _check_interval(fault.start_us, fault.stop_us, where)
    draw = sampler(fault.lasting)
    splits = []
    for number in range(fault.count):
        key = stream(scenario.seed, _PARTITION, entity, number)
        start_us = fault.start_us + below(key, 0, fault.stop_us - fault.start_us)
        stop_us = start_us + max(draw(key, 1), 1)
        group = _drawn_groups(scenario.nodes, fault.parts, bits(key, 2), f"{where}.parts")
        splits.append(Split(start_us, stop_us, group))
    return splits


# Crashes


def _plan_crash(plan: FaultPlan, fault: Crash, names: list[NodeId], where: str, seed: int) -> None:
    _check_interval(fault.at_us, fault.restart_us, where, "restart_us")
    restart_us = NEVER_US if fault.restart_us is None else fault.restart_us
    for node in select(fault.nodes, names, f"{where}.nodes", seed):
        if _is_down(plan, node, fault.at_us, restart_us):
            raise scenario_error(
                f"{where}.at_us",
                f"{names[node]} is to crash while it is down from another crash",
                "Let it restart before it crashes again",
            )
        plan.outages.append(Outage(fault.at_us, node, restart_us))


def _plan_drawn_crashes(
    plan: FaultPlan, fault: RandomCrashes, names: list[NodeId], where: str, seed: int, entity: int
) -> None:
    _check_interval(fault.start_us, fault.stop_us, where)
    victims = select(fault.nodes, names, f"{where}.nodes", seed)
    draw = sampler(fault.lasting)
    for number in range(fault.count):
        key = stream(seed, _CRASH, entity, number)
        for attempt in range(_PLACEMENTS_MAX):
            node = victims[below(key, 3 * attempt, len(victims))]
            at_us = fault.start_us + below(key, 3 * attempt + 1, fault.stop_us - fault.start_us)
            restart_us = at_us + max(draw(key, 3 * attempt + 2), 1)
            if not _is_down(plan, node, at_us, restart_us):
                plan.outages.append(Outage(at_us, node, restart_us))
                break
        else:
            raise scenario_error(
                f"{where}.count",
                f"{fault.count} crashes that do not overlap find no place between {fault.start_us} and "
                f"{fault.stop_us}",
                "Use fewer, shorter ones, more nodes or more time",
            )


def _is_down(plan: FaultPlan, node: int, at_us: int, restart_us: int) -> bool:
    """Whether a planned outage of the node meets [at_us, restart_us]: two may not even touch."""
    return any(
        outage.node == node and outage.at_us <= restart_us and at_us <= outage.restart_us
        for outage in plan.outages
    )


# Clocks


def _plan_skew(plan: FaultPlan, fault: Skew, names: list[NodeId], where: str, seed: int, entity: int) -> None:
    if fault.offset_us == 0 and fault.drift_ppm == 0 and not fault.offsets_us:
        raise scenario_error(where, "the clock is right", "Set offset_us or drift_ppm")
    nodes = select(fault.nodes, names, f"{where}.nodes", seed)
    given = fault.offsets_us
    if given is not None and (fault.offset_us or fault.drawn or len(given) != len(nodes)):
        raise scenario_error(
            f"{where}.offsets_us",
            f"it has {len(given)} offsets for {len(nodes)} nodes, or others are given as well",
            "Give one for each node, and neither offset_us nor drawn",
        )
    for place, node in enumerate(nodes):
        if node in plan.clocks:
            raise scenario_error(
                f"{where}.nodes", f"another fault sets the clock of {names[node]}", "Set each clock once"
            )
        offset_us, drift_ppm = fault.offset_us, fault.drift_ppm
        if given is not None:
            offset_us = given[place]
        if fault.drawn:
            key = stream(seed, _SKEW, entity, node)
            offset_us = below(key, 0, 2 * abs(offset_us) + 1) - abs(offset_us)
            drift_ppm = below(key, 1, 2 * abs(drift_ppm) + 1) - abs(drift_ppm)
        plan.clocks[node] = FaultyClock(offset_us, drift_ppm)
