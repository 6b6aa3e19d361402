"""Static graphs: which nodes are linked in a full mesh, a ring, a grid, a random regular graph.

Nodes are 0 .. count - 1. A graph is a list of sorted tuples of neighbours, symmetric and without
loops; every graph that is made here is connected, and the same on every machine for the same seed.
"""

from __future__ import annotations

from math import isqrt
from typing import TypeAlias

from whence.core.rng import below, purpose, shuffled, stream
from whence.errors import ParameterError

Graph: TypeAlias = list[tuple[int, ...]]

_PAIRING = purpose("graph pairing")
_RING_ORDER = purpose("graph ring order")
_ATTEMPTS_MAX = 10_000  # a random pairing fails with chance well below 0.99; this never runs out


def full(count: int) -> Graph:
    """Every node linked to every other."""
    return [tuple(other for other in range(count) if other != node) for node in range(count)]


def ring(count: int) -> Graph:
    """Each node linked to the next, the last to the first."""
    return _ring_of(list(range(count)))


def grid(count: int, columns: int | None = None) -> Graph:
    """Rows of `columns` nodes (by default as square as it goes), each linked to the four around it.

    The last row may be shorter; it is still linked to the row above it.
    """
    width = max(isqrt(count), 1) if columns is None else columns
    if width < 1:
        raise ParameterError("columns", f"a grid of {width} columns has no room", "Use 1 or more")
    edges = []
    for node in range(count):
        if (node + 1) % width and node + 1 < count:
            edges.append((node, node + 1))
        if node + width < count:
            edges.append((node, node + width))
    return _from_edges(count, edges)


def grid_hops(count: int, one: int, other: int) -> int:
    """Steps from one place to another on the grid of `count` nodes that is as square as it goes."""
    width = max(isqrt(count), 1)
    return abs(one // width - other // width) + abs(one % width - other % width)


def random_regular(count: int, degree: int, seed: int) -> Graph:
    """A connected random graph in which every node has `degree` neighbours."""
    problem = regular_problem(count, degree)
    if problem is not None:
        raise ParameterError("degree", problem, "Choose another degree or another number of nodes")
    if degree == 2:  # connected and 2-regular is a ring: draw the order of it
        return _ring_of(shuffled(stream(seed, _RING_ORDER), count))
    if degree > (count - 1) // 2:
        # Dense: pairing would fail again and again; what is left out is a sparse regular graph.
        # Degree >= count / 2 is connected whatever is left out (Dirac 1952).
        absent = _sparse_regular(count, count - 1 - degree, seed, must_connect=False)
        return [
            tuple(other for other in range(count) if other != node and other not in absent[node])
            for node in range(count)
        ]
    return _sparse_regular(count, degree, seed, must_connect=True)


def regular_problem(count: int, degree: int) -> str | None:
    """Why there is no connected regular graph of that size and degree; None if there is."""
    if degree >= count:
        return f"{count} nodes have at most {count - 1} neighbours each, not {degree}"
    if degree < 2 and count > degree + 1:
        return f"{count} nodes with {degree} neighbours each cannot be connected"
    if count * degree % 2:
        return f"{count} nodes x {degree} neighbours is odd, and every link has two ends"
    return None


def is_connected(graph: Graph) -> bool:
    """Whether every node can be reached from node 0."""
    if not graph:
        return True
    seen = {0}
    frontier = [0]
    while frontier:
        for other in graph[frontier.pop()]:
            if other not in seen:
                seen.add(other)
                frontier.append(other)
    return len(seen) == len(graph)


def _sparse_regular(count: int, degree: int, seed: int, *, must_connect: bool) -> Graph:
    for attempt in range(_ATTEMPTS_MAX):
        edges = _pairing(count, degree, stream(seed, _PAIRING, count, degree, attempt))
        if edges is not None:
            graph = _from_edges(count, edges)
            if not must_connect or is_connected(graph):
                return graph
    raise ParameterError(
        "degree", f"no connected graph of {count} nodes with degree {degree} was found", "Use a larger degree"
    )


def _pairing(count: int, degree: int, key: int) -> list[tuple[int, int]] | None:
    """Join free link ends at random (Steger and Wormald 1999); None when the rest cannot be joined."""
    ends = [node for node in range(count) for _ in range(degree)]
    joined: set[tuple[int, int]] = set()
    draws = 0
    failures = 0
    while ends:
        first = below(key, draws, len(ends))
        second = below(key, draws + 1, len(ends))
        draws += 2
        edge = (min(ends[first], ends[second]), max(ends[first], ends[second]))
        if edge[0] == edge[1] or edge in joined:
            failures += 1
            if failures > 50 + 4 * degree and not _joinable(ends, joined):
                return None
            continue
        failures = 0
        joined.add(edge)
        for at in sorted((first, second), reverse=True):
            ends[at] = ends[-1]
            ends.pop()
    return sorted(joined)


def _joinable(ends: list[int], joined: set[tuple[int, int]]) -> bool:
    """Whether two free ends are left that may still be joined."""
    free = sorted(set(ends))
    return any((low, high) not in joined for at, low in enumerate(free) for high in free[at + 1 :])


def _ring_of(order: list[int]) -> Graph:
    count = len(order)
    edges = [(order[at], order[(at + 1) % count]) for at in range(count)]
    return _from_edges(count, edges)


def _from_edges(count: int, edges: list[tuple[int, int]]) -> Graph:
    neighbours: list[set[int]] = [set() for _ in range(count)]
    for one, other in edges:
        if one != other:  # a ring of one node
            neighbours[one].add(other)
            neighbours[other].add(one)
    return [tuple(sorted(each)) for each in neighbours]
