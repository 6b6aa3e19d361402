"""Plans domains for a system from its traffic: the paper's future work (paper 004, section 7).

An acyclic domain graph is a tree of servers and domains. A message that passes through a domain makes one hop
in it, and a hop costs alpha + s^2: a constant for the transfer, and the clock of a domain of s servers. So

    cost = sum over domains of (messages through it) x (alpha + size^2), per message

and since every message through a domain crosses exactly two of the domain's edges in the tree, half the sum
of what crosses its edges is what passes through it. With s^2 alone the best plan is two servers per domain
and one router that sees every message; alpha and a cap on the share of all messages that one router may
forward prevent that. One domain of all has no router, so every cap can be kept, and is.

The plan is found by simulated annealing over such trees, with the counter-based draws of `core.rng` and in
whole numbers, so that one seed gives one plan on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from whence.core.message import NodeId
from whence.core.rng import below, exp, purpose, stream, uniform
from whence.errors import MisuseError, missing_extra
from whence.overlay.domain_graph import DomainGraph, Groups, bus, domain_graph, flat, root_size

try:
    import numpy as np
except ImportError as error:
    raise missing_extra("planning domains", "numpy", "trace") from error

ALPHA = 50  # a hop costs as much as the clock of a domain of 7 servers: flat at n = 40 is then 1650
ROUTER_CAP = 0.5  # of all messages, at most, through one router
STEPS = 8_000  # of each start
STARTS = 4

_ANNEAL = purpose("plan domains")

TOTAL_MAX = 1 << 50
OVERLOAD = 20  # price of a message above the cap of a router, in hops ...
HOP_MIN = 50  # ... that cost at least this, or a cap would count for nothing where hops are free
_SWAP, _MOVE, _HANG, _SPLIT, _MERGE = range(5)


class Cost(NamedTuple):
    """The cost of an arrangement under some traffic."""

    per_message: float  # hops x (alpha + s^2)
    hops: float  # on average
    largest_domain: int
    router_load: float  # the largest share of all messages that one server forwards
    busiest_router: NodeId | None


class TrafficMatrix:
    """How many messages each server sends to each other one; a message to oneself costs nothing."""

    def __init__(self, counts: Mapping[tuple[NodeId, NodeId], int], servers: Sequence[NodeId] = ()) -> None:
        names = {name for pair in counts for name in pair} | set(servers)
        self.servers = tuple(sorted(names))
        index = {name: at for at, name in enumerate(self.servers)}
        self.between = np.zeros((len(names), len(names)), dtype=np.int64)  # symmetric: both directions
        for (source, to), count in counts.items():
            if source != to:
                self.between[index[source], index[to]] += count
                self.between[index[to], index[source]] += count
        self.of_server = self.between.sum(axis=1)
        self.of_each: list[int] = self.of_server.tolist()  # plain numbers, one by one
        self.total = sum(self.of_each) // 2
        # Sums of whole numbers below 2^53 are exact as floats, in any order, and float products are fast.
        self.between_float = self.between.astype(np.float64)
        if self.total > TOTAL_MAX:
            raise MisuseError(
                "traffic", f"more than {TOTAL_MAX} messages", "Divide all counts by the same number"
            )
        if len(self.servers) < 2 or self.total == 0:
            raise MisuseError("traffic", "there are no messages between servers", "Record a run with some")


class DomainTree:
    """Servers 0 .. n-1 and domains 0 .. d-1, as a rooted tree: its cost under a traffic, and changes.

    root        a domain without a parent
    parent[d]   the server that domain d hangs on
    home[v]     the domain in which server v was placed

    All sums are of whole numbers, and exact.
    """

    def __init__(self, traffic: TrafficMatrix, alpha: int, parent: list[int], home: list[int]) -> None:
        self.traffic = traffic
        self.alpha = alpha
        self.parent = parent  # of each domain: the server that it hangs on, -1 for the root
        self.home = home  # of each server
        self._cuts: dict[int, int] = {}  # of sets of servers, as bits: messages between it and the others

    @classmethod
    def of(cls, graph: DomainGraph, traffic: TrafficMatrix, alpha: int) -> DomainTree:
        """The tree of a domain graph, rooted at its first domain."""
        index = {name: at for at, name in enumerate(traffic.servers)}
        parent, home = [-1] * len(graph.groups), [-1] * len(index)
        queue, seen = [0], {0}
        while queue:
            domain = queue.pop()
            for server in graph.groups[domain]:
                if index[server] != parent[domain]:
                    home[index[server]] = domain
                    for other in graph.domains_of[server]:
                        if other not in seen:
                            seen.add(other)
                            parent[other] = index[server]
                            queue.append(other)
        return cls(traffic, alpha, parent, home)

    def groups(self) -> Groups:
        """As lists of names; the router that a domain hangs on comes first."""
        servers = self.traffic.servers
        found = []
        for domain, above in enumerate(self.parent):
            members = [servers[v] for v, place in enumerate(self.home) if place == domain]
            found.append(tuple(([servers[above]] if above >= 0 else []) + members))
        return tuple(found)

    # Cost

    def _crossing(self) -> tuple[list[int], list[int]]:
        """For each server, messages that cross the edge to its home; for each domain, to its parent."""
        inside, hanging = [0] * len(self.parent), [0] * len(self.home)  # sets of servers, as bits
        for v, domain in enumerate(self.home):
            inside[domain] |= 1 << v
        for domain in reversed(self._order()):
            above = self.parent[domain]
            if above >= 0:
                hanging[above] |= inside[domain]
                inside[self.home[above]] |= inside[domain]
        of_router = {v: 1 << v | below for v, below in enumerate(hanging) if below}
        self._count_cuts({one for one in (*inside, *of_router.values()) if one not in self._cuts})
        to_home = list(self.traffic.of_each)  # all that a server without domains below it sends and gets
        for v, servers in of_router.items():
            to_home[v] = self._cuts[servers]
        return to_home, [self._cuts[servers] for servers in inside]

    def _count_cuts(self, wanted: Set[int]) -> None:
        """Count what crosses the edge above each of these sets: a change leaves most sets as they were."""
        if wanted:
            n = len(self.home)
            packed = b"".join(servers.to_bytes((n + 7) // 8, "little") for servers in wanted)
            bits = np.frombuffer(packed, np.uint8).reshape(len(wanted), -1)
            rows = np.unpackbits(bits, axis=1, count=n, bitorder="little").astype(np.float64)
            within = ((rows @ self.traffic.between_float) * rows).sum(axis=1)
            cuts = (rows @ self.traffic.of_server - within).astype(np.int64)
            self._cuts.update(zip(wanted, cuts.tolist(), strict=True))

    def _order(self) -> list[int]:
        """Domains from the root down."""
        below: list[list[int]] = [[] for _ in self.parent]
        order = []
        for domain, above in enumerate(self.parent):
            if above >= 0:
                below[self.home[above]].append(domain)
            else:
                order.append(domain)
        for domain in order:  # grows while it is walked
            order += below[domain]
        return order

    def _measure(self) -> tuple[list[int], list[int], list[int]]:
        """Of each domain the size and twice the messages through it; of each server what it forwards."""
        to_home, to_parent = self._crossing()
        sizes, twice, at_server = [0] * len(self.parent), to_parent.copy(), to_home.copy()
        for domain, to in zip(self.home, to_home, strict=True):
            sizes[domain] += 1
            twice[domain] += to
        for domain, above in enumerate(self.parent):
            if above >= 0:
                sizes[domain] += 1
                at_server[above] += to_parent[domain]
        forwarded = [(at - own) // 2 for at, own in zip(at_server, self.traffic.of_each, strict=True)]
        return sizes, twice, forwarded

    def _doubled(self, sizes: list[int], twice: list[int]) -> int:
        """Twice the cost of all messages."""
        return sum(both * (self.alpha + size * size) for size, both in zip(sizes, twice, strict=True))

    def score(self, cap: int) -> tuple[bool, int]:
        """Whether a router has load above the cap; twice the cost of all messages, and a price for such load.

        The smaller the better: the price leads a search back below the cap, and nothing is bought with it.
        """
        sizes, twice, forwarded = self._measure()
        over = sum(load - cap for load in forwarded if load > cap)
        price = OVERLOAD * max(self.alpha, HOP_MIN)
        return over > 0, self._doubled(sizes, twice) + 2 * price * over

    def cost(self) -> Cost:
        """The cost in words."""
        sizes, twice, forwarded = self._measure()
        total = self.traffic.total
        load = max(forwarded)
        busiest = forwarded.index(load)
        return Cost(
            per_message=self._doubled(sizes, twice) / (2 * total),
            hops=sum(twice) / (2 * total),
            largest_domain=max(sizes),
            router_load=load / total,
            busiest_router=self.traffic.servers[busiest] if load else None,
        )

    # Changes

    def change(self, key: int) -> tuple[list[int], list[int]] | None:
        """Make one drawn change; returns what to put back, or None if the draw was impossible."""
        before = list(self.parent), list(self.home)
        kind = (_SWAP, _SWAP, _MOVE, _MOVE, _HANG, _SPLIT, _MERGE)[below(key, 0, 7)]
        v, w = below(key, 1, len(self.home)), below(key, 2, len(self.home))
        domain = below(key, 3, len(self.parent))
        if kind == _SWAP:
            done = self._swap(v, w)
        elif kind == _MOVE:
            done = self._move(v, domain)
        elif kind == _HANG:
            done = self._hang(domain, v)
        elif kind == _SPLIT:
            done = self._split(domain, key)
        else:
            done = self._merge(domain)
        if not done:
            self.parent, self.home = before
            return None
        return before

    def _swap(self, v: int, w: int) -> bool:
        """Two servers change places, routers included."""
        if v == w:
            return False
        self.home[v], self.home[w] = self.home[w], self.home[v]
        self.parent = [w if above == v else v if above == w else above for above in self.parent]
        return True

    def _hangs_below(self, domain: int, server: int) -> bool:
        """Whether a domain is in the subtree of a server."""
        while self.parent[domain] >= 0:
            if self.parent[domain] == server:
                return True
            domain = self.home[self.parent[domain]]
        return False

    def _size(self, domain: int) -> int:
        return self.home.count(domain) + (self.parent[domain] >= 0)

    def _move(self, v: int, domain: int) -> bool:
        """A server goes to another domain, with all that hangs on it; a domain left with one is dropped."""
        old = self.home[v]
        if domain == old or self._hangs_below(domain, v):
            return False
        self.home[v] = domain
        return self._size(old) >= 2 or self._dissolve(old)

    def _dissolve(self, domain: int) -> bool:
        """Drop a domain whose only server is the one that it hangs on; the root stays."""
        if self.parent[domain] < 0:
            return False
        if self.home.count(domain):
            return False
        self._drop(domain)
        return True

    def _drop(self, domain: int) -> None:
        """Forget an empty domain: the last one takes its number."""
        last = len(self.parent) - 1
        self.parent[domain] = self.parent[last]
        self.parent.pop()
        self.home = [domain if place == last else place for place in self.home]

    def _hang(self, domain: int, v: int) -> bool:
        """A domain hangs on another server."""
        if self.parent[domain] < 0 or self.parent[domain] == v:
            return False
        at = self.home[v]
        while at != domain and self.parent[at] >= 0:
            at = self.home[self.parent[at]]
        if at == domain:  # the server is below the domain
            return False
        self.parent[domain] = v
        return True

    def _split(self, domain: int, key: int) -> bool:
        """Some servers of a domain form a new one, which hangs on another server of it."""
        members = [v for v, place in enumerate(self.home) if place == domain]
        if len(members) < 3:
            return False
        router = members[below(key, 4, len(members))]
        movers = [v for at, v in enumerate(members) if v != router and below(key, 5 + at, 2)]
        if not movers or len(movers) > len(members) - 2:
            return False
        self.parent.append(router)
        for v in movers:
            self.home[v] = len(self.parent) - 1
        return True

    def _merge(self, domain: int) -> bool:
        """The servers of a domain go to the one above it."""
        if self.parent[domain] < 0:
            return False
        above = self.home[self.parent[domain]]
        self.home = [above if place == domain else place for place in self.home]
        self._drop(domain)
        return True


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


def plan(
    traffic: TrafficMatrix,
    *,
    alpha: int = ALPHA,
    router_cap: float = ROUTER_CAP,
    steps: int = STEPS,
    starts: int = STARTS,
    seed: int = 1,
) -> DomainPlan:
    """Propose domains: the best of a few annealings, from the bus by name and from the bus by traffic.

    No router forwards more than the cap: where no annealing met such domains, all servers are in one.
    """
    if not 0.0 < router_cap <= 1.0 or alpha < 0 or steps < 0:
        raise MisuseError(
            "plan", "a parameter is out of range", "Use 0 < router cap <= 1, alpha >= 0, steps >= 0"
        )
    buses, one = [bus(traffic.servers), bus(greedy_order(traffic))], flat(traffic.servers)
    cap = int(router_cap * traffic.total)
    found = [
        _anneal(traffic, buses[start % 2], alpha, cap, steps, stream(seed, _ANNEAL, start))
        for start in range(max(starts, 1))
    ]
    found.append((DomainTree.of(domain_graph(one), traffic, alpha).score(cap), one))
    best = min(found)[1]
    return DomainPlan(
        groups=best,
        planned=evaluate(traffic, best, alpha),
        flat=evaluate(traffic, one, alpha),
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
    traffic: TrafficMatrix, start: Groups, alpha: int, cap: int, steps: int, key: int
) -> tuple[tuple[bool, int], Groups]:
    """Draw a change, keep it if it is better, or with a chance that falls as it cools down; the best seen."""
    tree = DomainTree.of(domain_graph(start), traffic, alpha)
    best = tree.score(cap)
    now, best_groups = best[1], tree.groups()
    hot = now / 20
    for step in range(steps):
        undo = tree.change(stream(key, _ANNEAL, step))
        if undo is None:
            continue
        found = tree.score(cap)
        score = found[1]
        heat = hot * exp(-7.0 * step / steps)
        if score <= now or uniform(stream(key, step), 0) < exp((now - score) / max(heat, 1e-9)):
            now = score
            if found < best:
                best, best_groups = found, tree.groups()
        else:
            tree.parent, tree.home = undo
    return best, best_groups
