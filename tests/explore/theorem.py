"""Theorem 1 of paper 004 by exploration: order everywhere just when the domains form no cycle.

Every arrangement of servers in domains, up to isomorphism, none inside another. Without a cycle every script
of three messages is explored (up to the renamings that leave the arrangement as it is), each message at any
moment: a script in which some wait for others has fewer schedules of the same kind. With a cycle one script
of the shapes in which a message could overtake one that it follows has to break the order.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import combinations, permutations, product
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


def overtaking(servers: int) -> Iterator[list[Line]]:
    """Three messages to or from three servers: s, x and d. The first shape is that of the paper's proof."""
    for s, x, d in permutations([f"n{each}" for each in range(servers)], 3):
        yield [Line(node=s, to=d), Line(node=s, to=x), Line(node=x, to=d, after=[1])]
        yield [Line(node=s, to=d), Line(node=s, to=d), Line(node=x, to=d)]
        yield [Line(node=s, to=x), Line(node=s, to=d), Line(node=s, to=d)]
        yield [Line(node=s, to=x), Line(node=x, to=d), Line(node=s, to=d)]


def every_script(groups: Groups, servers: int) -> Iterator[list[Line]]:
    """Every script of three messages, once: lines of different nodes have no order between them."""
    names = range(servers)
    same = [
        by
        for by in permutations(names)
        if {tuple(sorted(by[each] for each in group)) for group in groups} == set(groups)
    ]
    seen: set[tuple[tuple[int, int], ...]] = set()
    for sent in product(permutations(names, 2), repeat=3):
        # By sender, each sender's messages in their order: a stable sort.
        form = min(tuple(sorted(((by[s], by[d]) for s, d in sent), key=lambda pair: pair[0])) for by in same)
        if form not in seen:
            seen.add(form)
            yield [Line(node=f"n{s}", to=f"n{d}") for s, d in form]


class Held(NamedTuple):
    """How often the theorem was held to."""

    acyclic: int  # arrangements without a cycle: no schedule of any script breaks the order
    cyclic: int  # with one: some schedule of some script does
    scripts: int
    explored: int  # states
    seconds: float


def hold(servers: int) -> Held:
    """Explore every arrangement of so many servers."""
    return summed(hold_one(groups, servers) for groups in arrangements(servers))


def summed(parts: Iterable[Held]) -> Held:
    """What several arrangements have in all."""
    return Held(*map(sum, zip(*parts, strict=True)))


def hold_one(groups: Groups, servers: int) -> Held:
    """Explore one arrangement."""
    explored = tried = 0
    began = time.process_time()
    has_cycle = domain_graph(named(groups), allow_cycles=True).cycle() is not None
    is_broken = False
    for say in overtaking(servers) if has_cycle else every_script(groups, servers):
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
    return Held(int(not has_cycle), int(has_cycle), tried, explored, time.process_time() - began)
