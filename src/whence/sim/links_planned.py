"""Contact plans as a scenario's topology: where a plan comes from, who meets whom, and when links change.

The plan's nodes become the simulator's by their place: the first is n0, and so on. While a node is away it is
down, as after a crash that loses nothing: its timers wait, and what it would broadcast is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from whence.errors import WhenceError
from whence.overlay.contacts import ContactPlan, make_plan
from whence.overlay.graphs import Graph
from whence.sim.model import Contacts, Scenario
from whence.sim.selection import scenario_error

_PLANS_KEPT = 4  # a run asks for its plan several times; a large plan takes seconds to make


def plan_of(scenario: Scenario) -> ContactPlan | None:
    """The contact plan of a scenario; None if its links are always up."""
    topology = scenario.topology
    if not isinstance(topology, Contacts):
        return None
    seed = scenario.seed if topology.seed is None else topology.seed
    plan = _made(msgspec.json.encode(topology), seed)
    if len(plan.nodes) != scenario.nodes:
        raise scenario_error(
            "nodes",
            f"the contact plan has {len(plan.nodes)}, not {scenario.nodes}",
            "Set nodes to that number",
        )
    return plan


@lru_cache(maxsize=_PLANS_KEPT)
def _made(encoded: bytes, seed: int) -> ContactPlan:
    topology = msgspec.json.decode(encoded, type=Contacts)
    sources = [topology.file is not None, topology.generator is not None, topology.rows is not None]
    if sum(sources) != 1:
        raise scenario_error(
            "topology", f"it names {sum(sources)} sources of contacts", "Set one of: file, generator, rows"
        )
    try:
        if topology.rows is not None:
            names = {node for row in topology.rows for node in row[:2]}
            names |= {row[0] for row in topology.presence or ()}
            nodes = [str(node) for node in range(max(names, default=-1) + 1)]
            return make_plan(nodes, topology.rows, topology.presence)
        if topology.file is not None:
            return _read(topology.file, topology.format)
        return _generated(str(topology.generator), topology.options, seed)
    except WhenceError as error:
        raise scenario_error(f"topology ({error.what})", error.reason, error.fix) from error


def _read(file: str, format_: str) -> ContactPlan:
    from whence.mobility.sources import read_contacts

    return read_contacts(Path(file), format_).plan


def _generated(name: str, options: dict[str, Any], seed: int) -> ContactPlan:
    from whence.mobility.buses import BusCity, bus_plan
    from whence.mobility.walkers import WalkerCity, walker_plan

    known = sorted(each.name for each in fields(WalkerCity if name == "walkers" else BusCity))
    for option in options:
        if option not in known:
            raise scenario_error(
                f"topology.options.{option}", "there is none of that name", f"Choose from: {', '.join(known)}"
            )
    try:
        if name == "walkers":
            return walker_plan(seed, msgspec.convert(options, WalkerCity))
        return bus_plan(seed, msgspec.convert(options, BusCity))
    except msgspec.ValidationError as error:
        raise scenario_error("topology.options", str(error), "Give numbers") from error


def meetings(plan: ContactPlan | None, nodes: int) -> Graph:
    """For each node all that it ever meets, ascending."""
    graph: list[set[int]] = [set() for _ in range(nodes)]
    for a, b, start_us, stop_us in () if plan is None else plan.contacts:
        if start_us < stop_us:
            graph[a].add(b)
            graph[b].add(a)
    return [tuple(sorted(others)) for others in graph]


def changes(plan: ContactPlan) -> Iterator[tuple[bool, int, int, int]]:
    """Yield (is up, time_us, node, other node) for both ends; instants are left out: nothing can be sent."""
    for a, b, start_us, stop_us in plan.contacts:
        if start_us < stop_us:
            for node, other in ((a, b), (b, a)):
                yield True, start_us, node, other
                yield False, stop_us, node, other
