"""Theorem 1 of paper 004 by exploration: order everywhere just when the domains form no cycle.

Every arrangement of servers in domains, up to isomorphism, none inside another; three messages: s says one to
d and one to x, and x, which has it, one to d: the shape in which three messages can break the order.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, permutations

import pytest

from whence.explore.search import explore
from whence.explore.world import Line, World
from whence.overlay.domain_graph import domain_graph

Groups = tuple[tuple[int, ...], ...]


def arrangements(servers: int) -> Iterator[Groups]:
    """Every connected arrangement of so many servers, once."""
    names = range(servers)
    pools = [group for size in range(2, servers + 1) for group in combinations(names, size)]
    seen: set[Groups] = set()

    def grow(chosen: Groups, begin: int) -> Iterator[Groups]:
        if chosen and is_connected(chosen, servers):
            form = min(
                tuple(sorted(tuple(sorted(by[each] for each in group)) for group in chosen))
                for by in permutations(names)
            )
            if form not in seen:
                seen.add(form)
                yield form
        for at in range(begin, len(pools)):
            new = set(pools[at])
            if not any(new <= set(old) or set(old) <= new for old in chosen):
                yield from grow((*chosen, pools[at]), at + 1)

    yield from grow((), 0)


def is_connected(groups: Groups, servers: int) -> bool:
    reached = {0}
    for _ in groups:
        for group in groups:
            if reached & set(group):
                reached |= set(group)
    return len(reached) == servers


def named(groups: Groups) -> list[list[str]]:
    return [[f"n{each}" for each in group] for group in groups]


def violations(groups: Groups, servers: int, *, all_: bool) -> int:
    """In how many of the scripts some schedule breaks the order."""
    found = 0
    for s, x, d in permutations(range(servers), 3):
        say = [
            Line(node=f"n{s}", to=f"n{d}"),
            Line(node=f"n{s}", to=f"n{x}"),
            Line(node=f"n{x}", to=f"n{d}", after=[1]),
        ]
        params = {"domains": named(groups), "unsafe_cycles": True}
        report = explore(World(protocol="domains", nodes=servers, links="any", params=params, say=say))
        if report.counterexample is not None:
            assert report.counterexample.finding.kind == "causal"
            found += 1
            if not all_:
                return found
        else:
            assert report.complete
    return found


def hold(servers: int) -> tuple[int, int]:
    """How many arrangements have no cycle, how many have one; each is as the theorem says."""
    acyclic = cyclic = 0
    for groups in arrangements(servers):
        if domain_graph(named(groups), allow_cycles=True).cycle() is None:
            acyclic += 1
            assert violations(groups, servers, all_=True) == 0, groups
        else:
            cyclic += 1
            assert violations(groups, servers, all_=False) > 0, groups
    return acyclic, cyclic


@pytest.mark.parametrize("servers", [3, 4])
def test_theorem_1(servers: int) -> None:
    acyclic, cyclic = hold(servers)
    assert acyclic
    assert cyclic


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_theorem_1_with_five_servers() -> None:
    acyclic, cyclic = hold(5)
    assert acyclic
    assert cyclic
