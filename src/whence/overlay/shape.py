"""The shape of a system of servers that changes while it runs: who is where, and who ever was.

On the wire a server is the index of its seat, a domain an index, and inside a domain a server is a place.
Seats and places are given once: a change only adds some at the end, or marks some as left. So whatever is
queued or held somewhere keeps its meaning, and a server that comes back has the seat and places that it had.

    seat        a server's index among all that the system ever had
    place       a server's index among all that its domain ever had
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from whence.core.message import NodeId
from whence.errors import DomainGraphError
from whence.overlay.domain_graph import DomainGraph, domain_graph


@dataclass(frozen=True)
class DomainShape:
    """One domain: all places that it ever had, and whose place is empty now."""

    name: str
    places: tuple[NodeId, ...]
    left: tuple[NodeId, ...] = ()

    @property
    def servers(self) -> tuple[NodeId, ...]:
        """Who is in it now, in the order of their places."""
        return tuple(server for server in self.places if server not in self.left)


@dataclass(frozen=True)
class Shape:
    """All domains, and all seats. Compare `number`: a later shape has a larger one."""

    number: int
    seats: tuple[NodeId, ...]
    domains: tuple[DomainShape, ...]

    @property
    def servers(self) -> tuple[NodeId, ...]:
        """Who is in the system now, sorted."""
        return tuple(sorted({server for domain in self.domains for server in domain.servers}))

    def graph(self) -> DomainGraph:
        """The domains as they are now."""
        present = [domain for domain in self.domains if domain.servers]
        return domain_graph([domain.servers for domain in present], [domain.name for domain in present])

    def wire_index(self, name: str) -> int:
        """The index under which packets know a domain."""
        return next(at for at, domain in enumerate(self.domains) if domain.name == name)

    def neighbours(self, server: NodeId) -> frozenset[NodeId]:
        """Those that share a domain with a server."""
        mine = (domain.servers for domain in self.domains if server in domain.servers)
        return frozenset(each for servers in mine for each in servers) - {server}

    def of(self, server: NodeId) -> dict[int, DomainShape]:
        """The domains of a server, by their wire indices."""
        return {at: domain for at, domain in enumerate(self.domains) if server in domain.servers}

    def plain(self) -> dict[str, Any]:
        """As plain data, for parameters and stores: lists, because a manifest compares."""
        made: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return made

    def text(self) -> str:
        """As one word of text: commands in a trace are words."""
        return json.dumps(asdict(self), separators=(",", ":")).replace(" ", "\\u0020")


def shape_of(data: str | Mapping[str, Any]) -> Shape:
    """The shape that `plain` or `text` described; `DomainGraphError` for anything else."""
    try:
        plain = json.loads(data) if isinstance(data, str) else data
        domains = tuple(
            DomainShape(str(each["name"]), _names(each["places"]), _names(each.get("left", ())))
            for each in plain["domains"]
        )
        return Shape(int(plain["number"]), _names(plain["seats"]), domains)
    except (KeyError, TypeError, ValueError) as error:
        raise DomainGraphError(
            "the shape of a system", f"it cannot be read ({error})", "Give what `whence mom apply` wrote"
        ) from error


def _names(given: Any) -> tuple[NodeId, ...]:
    if not all(isinstance(name, str) for name in given):
        raise TypeError(f"{given!r} is no list of names")
    return tuple(given)


@lru_cache(maxsize=64)  # every server of a simulated system asks for the same
def first_shape(graph: DomainGraph) -> Shape:
    """The shape of a system that begins: seats and places are sorted."""
    domains = tuple(
        DomainShape(name, tuple(sorted(group))) for name, group in zip(graph.names, graph.groups, strict=True)
    )
    return Shape(1, graph.servers, domains)


def next_shape(old: Shape, graph: DomainGraph) -> Shape:
    """The shape after a change to `graph`; `old` itself if there is none. Domains are known by name."""
    now = dict(zip(graph.names, graph.groups, strict=True))
    domains = [_changed(domain, now.pop(domain.name, ())) for domain in old.domains]
    domains += [DomainShape(name, tuple(sorted(group))) for name, group in now.items()]
    seats = _extended(old.seats, graph.servers)
    if (seats, tuple(domains)) == (old.seats, old.domains):
        return old
    return Shape(old.number + 1, seats, tuple(domains))


def _changed(domain: DomainShape, group: tuple[NodeId, ...]) -> DomainShape:
    places = _extended(domain.places, group)
    return DomainShape(domain.name, places, tuple(place for place in places if place not in group))


def _extended(known: tuple[NodeId, ...], servers: Iterable[NodeId]) -> tuple[NodeId, ...]:
    return (*known, *sorted(set(servers) - set(known)))


def cannot_follow(old: Shape, new: Shape, server: NodeId) -> str | None:
    """Why a server that was in `old` cannot go on in `new`, as far as its own domains go; None if it can."""
    if new.number < old.number:
        return f"it knows change {old.number} of the system, and is given change {new.number}"
    if new.seats[: len(old.seats)] != old.seats:
        return (
            f"it knows the servers {', '.join(old.seats)} in this order, and is given {', '.join(new.seats)}"
        )
    for at, domain in old.of(server).items():
        now = new.domains[at] if at < len(new.domains) else None
        if now is None or (now.name, now.places[: len(domain.places)]) != (domain.name, domain.places):
            given = None if now is None else now.places
            return f"its domain {domain.name!r} has the places {domain.places}, and is given {given}"
    return None


def rerouted(old: Shape, new: Shape) -> frozenset[NodeId]:
    """The servers of `old` that `new` lacks, or that some server reaches over another way than before.

    What is on its way to these must have arrived before the change, or it could be overtaken or stranded.
    All others are reached over the same domains by all, before and after: order inside each domain keeps
    their order, as in a system that never changes (theorem 1).
    """
    before, after = old.graph(), new.graph()
    found = set(old.servers) - set(new.servers)
    for source in set(old.servers) & set(new.servers):
        ways, ways_after = before.routes(source), after.routes(source)
        for to in ways:
            if to not in found and (
                ways[to].hop != ways_after[to].hop
                or before.names[ways[to].domain] != after.names[ways_after[to].domain]
            ):
                found.add(to)
    return frozenset(found)
