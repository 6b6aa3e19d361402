"""The planner against brute force: every acyclic arrangement of a few servers, and none is better."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations

import pytest

from whence.errors import DomainGraphError
from whence.overlay.domain_graph import Groups, domain_graph
from whence.overlay.planner import ALPHA, ROUTER_CAP, DomainTree, TrafficMatrix, plan
from whence.sim.model import node_names


def arrangements(servers: list[str]) -> Iterator[Groups]:
    """Every acyclic set of domains that holds all servers: a tree of servers and domains."""
    subsets = [group for size in range(2, len(servers) + 1) for group in combinations(servers, size)]
    for count in range(1, len(servers)):
        for groups in combinations(subsets, count):
            if sum(len(group) - 1 for group in groups) != len(servers) - 1:
                continue
            if {server for group in groups for server in group} != set(servers):
                continue
            try:
                domain_graph(groups)
            except DomainGraphError:
                continue
            yield groups


def drawn(servers: list[str], seed: int) -> TrafficMatrix:
    draw = random.Random(seed)
    return TrafficMatrix({(a, b): draw.choice((0, 1, 5, 40)) + 1 for a in servers for b in servers if a != b})


@pytest.mark.parametrize(
    ("count", "matrices", "possible"),
    [
        (4, 12, 29),
        (5, 3, 311),
        pytest.param(5, 12, 311, marks=pytest.mark.slow),
        pytest.param(6, 3, 4447, marks=pytest.mark.slow),
    ],
)
def test_no_arrangement_is_better_than_the_plan(count: int, matrices: int, possible: int) -> None:
    servers = node_names(count)
    every = list(arrangements(servers))
    assert len(every) == possible  # hypertrees on labelled vertices
    for seed in range(matrices):
        traffic = drawn(servers, seed)
        cap = int(ROUTER_CAP * traffic.total)

        def score(groups: Groups, traffic: TrafficMatrix = traffic, cap: int = cap) -> tuple[bool, int]:
            return DomainTree.of(domain_graph(groups), traffic, ALPHA).score(cap)

        assert score(plan(traffic, steps=2_000).groups) == min(map(score, every))
