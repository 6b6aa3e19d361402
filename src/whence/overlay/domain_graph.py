"""Domains of causality and how they hang together (paper 004, sections 4 and 5).

A domain is a group of servers; a server in several domains is a router. Order inside every domain gives order
everywhere just when the domains form no cycle (theorem 1). The test here is on the graph whose nodes are
servers *and* domains, with an edge where a server is in a domain: it must be a tree. That is the paper's
condition, save for a domain inside another one, which "does not occur in practice" (section 4.2) and is
refused with the rest.

    paper                       here
    routing table               DomainGraph.routes(server): destination -> Route(domain, hop)
    causal router-server        DomainGraph.routers
    bus, daisy, tree (fig. 10)  bus, daisy, tree

The figure of the daisy is not in our copy: it is read as a chain of domains, neighbours sharing one server.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import isqrt
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from whence.core.message import NodeId
from whence.errors import DomainGraphError
from whence.toml import read_toml

Groups: TypeAlias = tuple[tuple[NodeId, ...], ...]

DOMAIN_MAX = 10_000  # servers in all domains together: a description, not a directory


class Route(NamedTuple):
    """Where a message goes next: to `hop`, in the domain of that index."""

    domain: int
    hop: NodeId


class DomainGraph:
    """A checked arrangement of servers in domains. Make one with `domain_graph`."""

    def __init__(self, groups: Groups, names: tuple[str, ...]) -> None:
        self.groups = groups
        self.names = names
        self.servers: tuple[NodeId, ...] = tuple(sorted({server for group in groups for server in group}))
        self.domains_of: dict[NodeId, tuple[int, ...]] = {
            server: tuple(at for at, group in enumerate(groups) if server in group) for server in self.servers
        }
        self._routes: dict[NodeId, dict[NodeId, Route]] = {}

    @property
    def routers(self) -> tuple[NodeId, ...]:
        """The servers in more than one domain, sorted."""
        return tuple(server for server in self.servers if len(self.domains_of[server]) > 1)

    def routes(self, source: NodeId) -> dict[NodeId, Route]:
        """The routing table of one server, by shortest paths; ties go to the first domain and name."""
        if source not in self._routes:
            self._routes[source] = self._search(source)
        return self._routes[source]

    def _search(self, source: NodeId) -> dict[NodeId, Route]:
        table: dict[NodeId, Route] = {}
        seen_domains: set[int] = set()
        queue: deque[NodeId] = deque([source])
        while queue:
            server = queue.popleft()
            for domain in self.domains_of[server]:
                if domain in seen_domains:
                    continue
                seen_domains.add(domain)
                for other in sorted(self.groups[domain]):
                    if other != source and other not in table:
                        table[other] = table[server] if server in table else Route(domain, other)
                        queue.append(other)
        return table

    def path(self, source: NodeId, to: NodeId) -> list[Route]:
        """The hops of a message from `source` to `to`."""
        hops, at = [], source
        while at != to:
            hops.append(self.routes(at)[to])
            at = hops[-1].hop
        return hops

    # rule 004 theorem 1: domains must form no cycle
    def cycle(self) -> list[str] | None:
        """A cycle as alternating names of servers and domains, back to the first; None without one."""
        parent: dict[tuple[str, int | str], tuple[str, int | str] | None] = {}
        for start in self.servers:
            if ("server", start) in parent:
                continue
            parent["server", start] = None
            stack: list[tuple[str, int | str]] = [("server", start)]
            while stack:
                node = stack.pop()
                for other in self._beside(node):
                    if other == parent[node]:
                        continue
                    if other in parent:
                        return self._cycle_names(node, other, parent)
                    parent[other] = node
                    stack.append(other)
        return None

    def _beside(self, node: tuple[str, int | str]) -> list[tuple[str, int | str]]:
        kind, which = node
        if kind == "server":
            return [("domain", at) for at in self.domains_of[str(which)]]
        return [("server", server) for server in self.groups[int(which)]]

    def _cycle_names(self, one: Any, other: Any, parent: Mapping[Any, Any]) -> list[str]:
        """The two ends of an edge that is not in the search tree: up from both to where they meet."""
        up: list[Any] = []
        at = one
        while at is not None:
            up.append(at)
            at = parent[at]
        down = [other]
        while down[-1] not in up:
            down.append(parent[down[-1]])
        ring = [*up[: up.index(down[-1]) + 1], *reversed(down[:-1])]
        if ring[0][0] == "domain":
            ring = [*ring[1:], ring[0]]
        names = [which if kind == "server" else self.names[which] for kind, which in ring]
        return [*names, names[0]]

    def unreachable(self) -> tuple[NodeId, NodeId] | None:
        """Two servers without a path between them; None if all are connected."""
        reached = {self.servers[0], *self.routes(self.servers[0])}
        lost = [server for server in self.servers if server not in reached]
        return (self.servers[0], lost[0]) if lost else None


def domain_graph(
    groups: Iterable[Iterable[NodeId]], names: Sequence[str] | None = None, *, allow_cycles: bool = False
) -> DomainGraph:
    """Check an arrangement and make its graph; `allow_cycles` is for showing what a cycle does."""
    plain = tuple(tuple(group) for group in groups)
    named = tuple(names) if names is not None else tuple(f"domain {at + 1}" for at in range(len(plain)))
    return _made(plain, named, allow_cycles)


@lru_cache(maxsize=64)
def _made(groups: Groups, names: tuple[str, ...], allow_cycles: bool) -> DomainGraph:
    """Cached: every server of a simulated system asks for the same graph."""
    if not groups:
        raise DomainGraphError("domains", "there are none", "Describe at least one domain")
    if len(set(names)) < len(names) or len(names) != len(groups):
        raise DomainGraphError("domains", "two have the same name", "Give each domain another name")
    if sum(map(len, groups)) > DOMAIN_MAX:
        raise DomainGraphError(
            "domains", f"they have more than {DOMAIN_MAX} places", "Describe fewer servers"
        )
    for name, group in zip(names, groups, strict=True):
        if len(set(group)) < len(group) or not group:
            raise DomainGraphError(name, "it is empty or names a server twice", "Name each server once")
    graph = DomainGraph(groups, names)
    lost = graph.unreachable()
    if lost is not None:
        raise DomainGraphError(
            "domains",
            f"no path leads from {lost[0]!r} to {lost[1]!r}",
            "Put a router into both their domains",
        )
    cycle = None if allow_cycles else graph.cycle()
    if cycle is not None:
        raise DomainGraphError(
            "domains",
            f"they form a cycle: {' - '.join(cycle)}",
            "Take one of these servers out of one of these domains: causal order needs an acyclic graph",
        )
    return graph


# Descriptions


def read_domains(path: Path) -> DomainGraph:
    """The domains of a system's description: `[[domains]]` tables with `name` and `servers`, in TOML."""
    data = read_toml(path, "a description", DomainGraphError)
    try:
        return from_description(data)
    except DomainGraphError as error:
        raise DomainGraphError(f"{path}: {error.what}", error.reason, error.fix) from error


def from_description(data: Mapping[str, Any]) -> DomainGraph:
    """As `read_domains`, from plain data; what else a description says (addresses, ...) is not looked at."""
    tables = data.get("domains")
    fix = "Write [[domains]] tables with name = '...' and servers = ['...', ...]"
    if not isinstance(tables, list) or not tables:
        raise DomainGraphError("domains", "the description has none", fix)
    groups: list[list[str]] = []
    names: list[str] = []
    for at, table in enumerate(tables):
        servers = table.get("servers") if isinstance(table, dict) else None
        if not isinstance(servers, list) or not all(isinstance(server, str) and server for server in servers):
            raise DomainGraphError(f"domains[{at}].servers", "it is not a list of names", fix)
        name = table.get("name", f"domain {at + 1}")
        unknown = sorted(set(table) - {"name", "servers"})
        if unknown or not isinstance(name, str):
            raise DomainGraphError(
                f"domains[{at}].{(unknown or ['name'])[0]}", "it is not a known field", fix
            )
        groups.append(servers)
        names.append(name)
    return domain_graph(groups, names)


def to_toml(graph: DomainGraph) -> str:
    """The description that `read_domains` reads back."""
    quoted = [
        (_quoted(name), ", ".join(map(_quoted, group)))
        for name, group in zip(graph.names, graph.groups, strict=True)
    ]
    return "\n".join(f"[[domains]]\nname = {name}\nservers = [{servers}]\n" for name, servers in quoted)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


# Organisations (figure 10)


def root_size(count: int) -> int:
    """The square root of a number of servers, rounded: the paper's size of a domain."""
    return max((isqrt(4 * count) + 1) // 2, 1)


def flat(servers: Sequence[NodeId]) -> Groups:
    """One domain: the system without domains."""
    return (tuple(servers),)


def bus(servers: Sequence[NodeId], size: int = 0) -> Groups:
    """Domains of `size` servers (0: the square root); the first of each is also in the one in the middle."""
    size = size or root_size(len(servers))
    leaves = tuple(tuple(servers[at : at + size]) for at in range(0, len(servers), size))
    if len(leaves) == 1:
        return leaves
    routers = tuple(leaf[0] for leaf in leaves)
    return (routers, *(leaf for leaf in leaves if len(leaf) > 1))


def daisy(servers: Sequence[NodeId], size: int = 0) -> Groups:
    """A chain of domains of `size` servers; the last server of each is the first of the next."""
    size = max(size or root_size(len(servers)), 2)
    if len(servers) <= size:
        return flat(servers)
    return tuple(tuple(servers[at : at + size]) for at in range(0, len(servers) - 1, size - 1))


def tree(servers: Sequence[NodeId], size: int = 0, branches: int = 2) -> Groups:
    """Domains of `size` servers, with up to `branches` domains below each, which hang on one server each.

    Section 6.2: k branches, depth d and s servers per domain make 1 + (s-1)(k^(d+1) - 1)/(k-1) servers.
    """
    size = max(size or root_size(len(servers)), 2)
    groups = [tuple(servers[:size])]
    at, place = size, 0
    while at < len(servers):
        parent = groups[place // branches]
        # The first server of a domain is the one that it hangs on; its own children hang on its last ones.
        router = parent[-1 - (place % branches) % (len(parent) - 1)]
        groups.append((router, *servers[at : at + size - 1]))
        at += size - 1
        place += 1
    return tuple(groups)


ORGANISATIONS = {"flat": lambda servers, size: flat(servers), "bus": bus, "daisy": daisy, "tree": tree}


def organised(kind: str, servers: Sequence[NodeId], size: int = 0) -> Groups:
    """The domains of an organisation by its name."""
    maker = ORGANISATIONS.get(kind)
    if maker is None:
        raise DomainGraphError(
            f"organisation {kind!r}", "there is none of that name", f"Use {', '.join(ORGANISATIONS)}"
        )
    return maker(servers, size)
