"""Plans domains for a system from its traffic: the paper's future work (paper 004, section 7).

An acyclic domain graph is a tree of servers and domains. A message that passes through a domain makes one hop
in it, and a hop costs alpha + s^2: a constant for the transfer, and the clock of a domain of s servers. So

    cost = sum over domains of (messages through it) x (alpha + size^2), per message

and since every message through a domain crosses exactly two of the domain's edges in the tree, half the sum
of what crosses its edges is what passes through it. With s^2 alone the best plan is two servers per domain
and one router that sees every message; alpha and a cap on the share of all messages that one router may
forward prevent that.

The plan is found by simulated annealing over such trees, with the counter-based draws of `core.rng` and in
whole numbers, so that one seed gives one plan on every machine.
"""

from __future__ import annotations

from typing import NamedTuple

from whence.core.message import NodeId
from whence.core.rng import exp, purpose, stream, uniform
from whence.errors import MisuseError
from whence.overlay.domain_graph import Groups, bus, domain_graph, flat, root_size
from whence.overlay.domain_tree import Cost, DomainTree, TrafficMatrix

__all__ = ["Cost", "DomainPlan", "TrafficMatrix", "evaluate", "plan"]

ALPHA = 50  # a hop costs as much as the clock of a domain of 7 servers: flat at n = 40 is then 1650
ROUTER_CAP = 0.5  # of all messages, at most, through one router
STEPS = 8_000  # of each start
STARTS = 4

_ANNEAL = purpose("plan domains")


def evaluate(traffic: TrafficMatrix, groups: Groups, alpha: int = ALPHA) -> Cost:
    """The cost of any acyclic arrangement of the traffic's servers."""
    graph = domain_graph(groups)
    if graph.servers != traffic.servers:
        raise MisuseError("domains", "they are not of the servers of the traffic", "Place every server once")
    return DomainTree.of(graph, traffic, alpha).cost()


class DomainPlan(NamedTuple):
    """Proposed domains beside the two that the paper compares."""

    groups: Groups
    planned: Cost
    flat: Cost
    bus: Cost  # of sqrt(n) servers, in the order of names
    greedy_bus: Cost  # of sqrt(n) servers, those together that send each other most
    alpha: int
    router_cap: float

    @property
    def keeps_cap(self) -> bool:
        """Whether no router forwards more than it may; with some traffic no arrangement does."""
        return self.planned.router_load <= self.router_cap


def plan(
    traffic: TrafficMatrix,
    *,
    alpha: int = ALPHA,
    router_cap: float = ROUTER_CAP,
    steps: int = STEPS,
    starts: int = STARTS,
    seed: int = 1,
) -> DomainPlan:
    """Propose domains: the best of a few annealings, from the bus by name and from the bus by traffic."""
    if not 0.0 < router_cap <= 1.0 or alpha < 0 or steps < 0:
        raise MisuseError(
            "plan", "a parameter is out of range", "Use 0 < router cap <= 1, alpha >= 0, steps >= 0"
        )
    buses = [bus(traffic.servers), bus(greedy_order(traffic))]
    found = [
        _anneal(traffic, buses[start % 2], alpha, router_cap, steps, stream(seed, _ANNEAL, start))
        for start in range(max(starts, 1))
    ]
    best = min(found)[1]
    return DomainPlan(
        groups=best,
        planned=evaluate(traffic, best, alpha),
        flat=evaluate(traffic, flat(traffic.servers), alpha),
        bus=evaluate(traffic, buses[0], alpha),
        greedy_bus=evaluate(traffic, buses[1], alpha),
        alpha=alpha,
        router_cap=router_cap,
    )


def greedy_order(traffic: TrafficMatrix) -> list[NodeId]:
    """The servers in groups of sqrt(n): the busiest one left, and those that it exchanges most with."""
    left, order = set(range(len(traffic.servers))), []
    size = root_size(len(traffic.servers))
    while left:
        first = min(left, key=lambda v: (-int(traffic.of_server[v]), v))
        group = [first]
        left.remove(first)
        while left and len(group) < size:
            to_group = traffic.between[group].sum(axis=0)
            nearest = min(left, key=lambda v: (-int(to_group[v]), v))
            group.append(nearest)
            left.remove(nearest)
        order += group
    return [traffic.servers[v] for v in order]


def _anneal(
    traffic: TrafficMatrix, start: Groups, alpha: int, router_cap: float, steps: int, key: int
) -> tuple[int, Groups]:
    """Draw a change, keep it if it is better, or with a chance that falls as it cools down; the best seen."""
    tree = DomainTree.of(domain_graph(start), traffic, alpha)
    cap = int(router_cap * traffic.total)
    now = tree.score(cap)
    best, best_groups = now, tree.groups()
    hot = now / 20
    for step in range(steps):
        undo = tree.change(stream(key, _ANNEAL, step))
        if undo is None:
            continue
        score = tree.score(cap)
        heat = hot * exp(-7.0 * step / steps)
        if score <= now or uniform(stream(key, step), 0) < exp((now - score) / max(heat, 1e-9)):
            now = score
            if score < best:
                best, best_groups = score, tree.groups()
        else:
            tree.parent, tree.home = undo
    return best, best_groups
