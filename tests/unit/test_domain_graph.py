"""Domains and how they hang together: descriptions, cycles, routes, organisations."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from whence.errors import DomainGraphError
from whence.overlay.domain_graph import (
    bus,
    daisy,
    domain_graph,
    from_description,
    organised,
    read_domains,
    root_size,
    to_toml,
    tree,
)

PAPER = [["s1", "s2", "s3"], ["s4", "s5"], ["s6", "s7", "s8"], ["s3", "s6"], ["s1", "s4"]]  # figure 2
NAMES = [f"n{at:03d}" for at in range(150)]


def test_figure_2_routes_as_the_paper_says() -> None:
    graph = domain_graph(PAPER, list("ABCDE"))
    assert [(graph.names[domain], hop) for domain, hop in graph.path("s1", "s8")] == [
        ("A", "s3"),
        ("D", "s6"),
        ("C", "s8"),
    ]
    assert graph.routers == ("s1", "s3", "s4", "s6")


def test_every_route_is_a_shortest_path() -> None:
    for groups in (PAPER, bus(NAMES[:30]), daisy(NAMES[:30]), tree(NAMES[:31], 4)):
        graph = domain_graph(groups)
        for source in graph.servers:
            far = {source: 0}
            frontier = [source]
            for server in frontier:
                near = {other for at in graph.domains_of[server] for other in graph.groups[at]}
                for other in sorted(near - set(far)):
                    far[other] = far[server] + 1
                    frontier.append(other)
            assert {to: len(graph.path(source, to)) for to in graph.servers} == far


@pytest.mark.parametrize(
    ("groups", "names", "cycle"),
    [
        ([["a", "b"], ["b", "c"], ["c", "a"]], ["X", "Y", "Z"], {"a", "b", "c", "X", "Y", "Z"}),
        ([["a", "b", "x"], ["a", "b", "y"]], ["X", "Y"], {"a", "b", "X", "Y"}),  # two servers in common
        ([["a", "b", "c"], ["a", "b"]], ["X", "Y"], {"a", "b", "X", "Y"}),  # one inside the other
        (
            [["r", "a"], ["a", "b"], ["b", "c"], ["c", "d"], ["d", "b"]],
            list("VWXYZ"),
            set("bcdXYZ"),
        ),
    ],
)
def test_a_cycle_is_refused_by_name(groups: list[list[str]], names: list[str], cycle: set[str]) -> None:
    with pytest.raises(DomainGraphError) as refused:
        domain_graph(groups, names)
    told = refused.value.reason.removeprefix("they form a cycle: ").split(" - ")
    assert told[0] == told[-1]
    assert set(told) == cycle
    # Servers and domains take turns, and each named server is in the domains beside it.
    where = dict(zip(names, groups, strict=True))
    for one, other in pairwise(told):
        server, domain = (one, other) if other in where else (other, one)
        assert server in where[domain]


def test_several_domains_may_share_one_router() -> None:
    graph = domain_graph([["r", "a"], ["r", "b"], ["r", "c"]])
    assert graph.routers == ("r",)
    assert [hop for _, hop in graph.path("a", "c")] == ["r", "c"]


@pytest.mark.parametrize(
    ("description", "reason"),
    [
        ({}, "has none"),
        ({"domains": [{"servers": "a"}]}, "not a list of names"),
        ({"domains": [{"servers": ["a"], "colour": 1}]}, "not a known field"),
        ({"domains": [{"servers": []}]}, "empty"),
        ({"domains": [{"servers": ["a", "a"]}]}, "twice"),
        ({"domains": [{"servers": ["a"]}, {"servers": ["b"]}]}, "no path leads from 'a' to 'b'"),
        ({"domains": [{"name": "X", "servers": ["a", "b"]}, {"name": "X", "servers": ["b"]}]}, "same name"),
    ],
)
def test_a_bad_description_is_refused(description: dict[str, object], reason: str) -> None:
    with pytest.raises(DomainGraphError, match=reason):
        from_description(description)


def test_a_description_is_read_and_written(tmp_path: Path) -> None:
    file = tmp_path / "system.toml"
    file.write_text(to_toml(domain_graph(PAPER, ["A", "B", 'C"', "D", "E\\"])))
    graph = read_domains(file)
    assert graph.groups == tuple(map(tuple, PAPER))
    assert graph.names == ("A", "B", 'C"', "D", "E\\")
    file.write_text("domains = [")
    with pytest.raises(DomainGraphError, match="not valid TOML"):
        read_domains(file)
    with pytest.raises(DomainGraphError, match="No such file"):
        read_domains(tmp_path / "absent.toml")


@pytest.mark.parametrize("kind", ["flat", "bus", "daisy", "tree"])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 10, 16, 17, 40, 144, 150])
def test_organisations_place_every_server_and_have_no_cycle(kind: str, count: int) -> None:
    graph = domain_graph(organised(kind, NAMES[:count]))
    assert graph.servers == tuple(NAMES[:count])


def test_a_square_bus_has_sqrt_n_domains_of_sqrt_n_servers_and_three_hops() -> None:
    for root in (4, 6, 12):
        graph = domain_graph(bus(NAMES[: root * root]))
        assert {len(group) for group in graph.groups} == {root}
        assert len(graph.groups) == root + 1
        assert len(graph.path(NAMES[1], NAMES[root * root - 1])) == 3
    assert [root_size(count) for count in (1, 2, 3, 10, 40, 144, 150)] == [1, 1, 2, 3, 6, 12, 12]


def test_a_tree_has_as_many_servers_as_section_6_2_says() -> None:
    size, branches, depth = 4, 2, 3
    count = 1 + (size - 1) * (branches ** (depth + 1) - 1) // (branches - 1)
    groups = tree(NAMES[:count], size, branches)
    assert len(groups) == branches ** (depth + 1) - 1
    assert all(len(group) == size for group in groups)
