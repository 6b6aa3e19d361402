"""Which nodes of a scenario are linked, and what holds on links that an override changes."""

from __future__ import annotations

from whence.core.rng import purpose, stream
from whence.overlay import graphs, hypercube
from whence.overlay.graphs import Graph
from whence.sim.links_planned import meetings, plan_of
from whence.sim.model import (
    Contacts,
    Full,
    Grid,
    Hypercube,
    Link,
    Overlay,
    Override,
    Random,
    Ring,
    Scenario,
    node_names,
)
from whence.sim.selection import scenario_error, select

_TOPOLOGY = purpose("topology")


def make_graph(scenario: Scenario) -> Graph:
    """Who is linked to whom, at any time."""
    match scenario.topology:
        case Full():
            return graphs.full(scenario.nodes)
        case Ring():
            return graphs.ring(scenario.nodes)
        case Grid(columns=columns):
            return graphs.grid(scenario.nodes, columns)
        case Hypercube(rooted=rooted):
            return hypercube.complete(scenario.nodes).links(root=0 if rooted else None)
        case Random(degree=degree):
            return graphs.random_regular(scenario.nodes, degree, stream(scenario.seed, _TOPOLOGY))
        case Contacts() | Overlay():  # no link of an overlay is known before
            return meetings(plan_of(scenario), scenario.nodes)


def link_specs(scenario: Scenario, graph: Graph) -> dict[tuple[int, int], Link]:
    """The links that an override changes, with what holds on them; a later override wins."""
    specs: dict[tuple[int, int], Link] = {}
    names = node_names(scenario.nodes)
    for at, override in enumerate(scenario.overrides):
        where = f"overrides[{at}]"
        sources = select(override.from_nodes, names, f"{where}.from_nodes", scenario.seed)
        targets = select(override.to_nodes, names, f"{where}.to_nodes", scenario.seed)
        wanted = {(one, other) for one in sources for other in set(targets) & set(graph[one])}
        if override.both_ways:
            wanted |= {(other, one) for one, other in wanted}
        if not wanted:
            raise scenario_error(where, "no link of the topology matches it", "Name nodes that are linked")
        for pair in sorted(wanted):
            specs[pair] = _overridden(specs.get(pair, scenario.link), override)
    return specs


def _overridden(link: Link, override: Override) -> Link:
    values = {name: getattr(link, name) for name in link.__struct_fields__}
    for name in values:
        value = getattr(override, name)
        if value is not None:
            values[name] = value
    return Link(**values)
