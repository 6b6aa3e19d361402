"""Theorem 1 of paper 004 by exploration: order everywhere just when the domains form no cycle.

Every arrangement of servers in domains, up to isomorphism, none inside another, and scripts of three messages
in which a message could overtake one that it follows, with every choice of the servers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import combinations, permutations
from typing import NamedTuple

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


def scripts(servers: int) -> Iterator[list[Line]]:
    """Three messages to or from three servers: s, x and d. The first shape is that of the paper's proof."""
    for s, x, d in permutations([f"n{each}" for each in range(servers)], 3):
        yield [Line(node=s, to=d), Line(node=s, to=x), Line(node=x, to=d, after=[1])]
        yield [Line(node=s, to=d), Line(node=s, to=d), Line(node=x, to=d)]
        yield [Line(node=s, to=x), Line(node=s, to=d), Line(node=s, to=d)]
        yield [Line(node=s, to=x), Line(node=x, to=d), Line(node=s, to=d)]


class Held(NamedTuple):
    """How often the theorem was held to."""

    acyclic: int  # arrangements without a cycle: no schedule of any script breaks the order
    cyclic: int  # with one: some schedule of some script does
    scripts: int
    explored: int  # states
    seconds: float


def hold(servers: int) -> Held:
    """Explore every arrangement of so many servers."""
    acyclic = cyclic = explored = tried = 0
    began = time.process_time()
    for groups in arrangements(servers):
        has_cycle = domain_graph(named(groups), allow_cycles=True).cycle() is not None
        cyclic += has_cycle
        acyclic += not has_cycle
        is_broken = False
        for say in scripts(servers):
            params = {"domains": named(groups), "unsafe_cycles": True}
            report = explore(World(protocol="domains", nodes=servers, links="any", params=params, say=say))
            explored += report.states
            tried += 1
            if report.counterexample is not None:
                assert report.counterexample.finding.kind == "causal"
                is_broken = True
                break
            assert report.complete
        assert is_broken == has_cycle, groups
    return Held(acyclic, cyclic, tried, explored, time.process_time() - began)
