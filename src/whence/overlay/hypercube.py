"""VCube: a virtual hypercube in which every node is the root of a spanning tree.

Source: "Causal aggregation broadcast" on VCube, sections 2 and 4.2. Node i groups the others into
clusters c(i, 1), c(i, 2), ...; cluster s has 2^(s-1) nodes, in a fixed order. In the tree of a
source, i passes on to the first node of each of its clusters 1 .. h, where h is i's height there.

    paper                here
    c_{i,s}              cluster_nodes(i, s)
    FirstChild(i, s)     first_child(i, s); Cube.first(i, s) over the nodes that are there
    Cluster(i, j)        cluster(i, j)
    Children(r, h)       children(i, r, h); Cube.children(i, source)
    height h' of i       height(i, source, d); Cube.height(i, source)

The first half of the module is the complete cube of 2^d nodes, as printed (with `1 <= s` in line 3
of Algorithm 1: the paper's `1 < s` leaves every first cluster out) and in closed form. The second
half is our generalisation to any set of nodes: numbers without a node are treated as the paper
treats faulty nodes, so the first node *that is there* stands for its cluster (section 2).

Levels: children are also numbered from 0. The child at level k is the one in cluster k + 1, and it
is the same node in the tree of every source.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from whence.errors import ParameterError


def dimension(count: int) -> int:
    """The d of the smallest cube that has `count` nodes."""
    return (count - 1).bit_length()


# The complete cube, as the paper defines it


# rule 000 section 2: the clusters of a node, c(i, s)
def cluster_nodes(i: int, s: int) -> tuple[int, ...]:
    """c_{i,s}, in order (section 2): i xor 2^(s-1), then that node's clusters 1 .. s-1."""
    first = i ^ 1 << (s - 1)
    found = [first]
    for k in range(1, s):
        found += cluster_nodes(first, k)
    return tuple(found)


def first_child(i: int, s: int) -> int:
    """FirstChild(i, s): the first node of c_{i,s}."""
    return i ^ 1 << (s - 1)


def cluster(i: int, j: int) -> int:
    """Cluster(i, j): the s for which j is in c_{i,s}; symmetric."""
    return (i ^ j).bit_length()


# rule 000 Algorithm 1: the children of i in a cluster; line 3 must be `1 <= s`
def children(i: int, r: int, h: int) -> tuple[int, ...]:
    """Children(r, h) as called by i: Algorithm 1, with `1 <= s` in line 3."""
    if i == r:
        return tuple(first_child(i, s) for s in range(1, h + 1))
    s = cluster(r, i)
    return children(i, first_child(r, s), s - 1)


def height(i: int, source: int, d: int) -> int:
    """The height of i in the tree of `source`, in closed form: the trailing zeros of i xor source.

    The path from the source corrects the differing bits from the highest to the lowest; the last one
    is the lowest, and i stands one below it.
    """
    differing = i ^ source
    return (differing & -differing).bit_length() - 1 if differing else d


# Any set of nodes


class Cube:
    """The trees over the nodes that are there."""

    def __init__(self, nodes: Iterable[int]) -> None:
        self.nodes = tuple(sorted(set(nodes)))
        if not self.nodes or self.nodes[0] < 0:
            raise ParameterError("nodes", f"{self.nodes} is not a set of nodes", "Give numbers from 0 on")
        self.d = dimension(self.nodes[-1] + 1)
        # _blocks[s] are the aligned blocks of 2^s numbers that have a node: a cluster is such a block.
        self._blocks = [frozenset(node >> s for node in self.nodes) for s in range(self.d + 1)]
        self._first: dict[tuple[int, int], int | None] = {}

    # rule 000 section 4.2: the first fault-free node of a cluster
    def first(self, i: int, s: int) -> int | None:
        """The first node of c_{i,s} that is there; None if the cluster is empty."""
        key = (i, s)
        if key not in self._first:
            self._first[key] = self._search(i, s)
        return self._first[key]

    def _search(self, i: int, s: int) -> int | None:
        # The order of c_{i,s} is i xor y for y = 2^(s-1), 2^(s-1) + 1, ...: so flip bit s-1 of i and
        # then, from the next bit down, flip only where everything with i's own bit is missing.
        block = i >> (s - 1) ^ 1
        if block not in self._blocks[s - 1]:
            return None
        for bit in range(s - 2, -1, -1):
            block = block << 1 | (i >> bit & 1)
            if block not in self._blocks[bit]:
                block ^= 1
        return block

    def height(self, i: int, source: int) -> int:
        """The height of i in the tree of `source`: it passes on to its clusters 1 .. height.

        Both must be there. Each step goes to the one child whose cluster has i in it, as in the
        recursion of Algorithm 1.
        """
        at, h = source, self.d
        while at != i:
            s = cluster(at, i)
            step = self.first(at, s)
            if step is None:
                raise ParameterError(f"node {i}", "it is not in the cube", "Name one of Cube.nodes")
            at, h = step, s - 1
        return h

    def children(self, i: int, source: int) -> tuple[int, ...]:
        """To whom i passes the messages of `source`, by ascending cluster."""
        found = (self.first(i, s) for s in range(1, self.height(i, source) + 1))
        return tuple(child for child in found if child is not None)

    def links(self, root: int | None = None) -> list[tuple[int, ...]]:
        """For each number up to the last node the sorted numbers that it may have to talk to.

        With `root`, every node is linked to it as well: the single tree of section 5.5.
        """
        pairs = {(i, self.first(i, s)) for i in self.nodes for s in range(1, self.d + 1)}
        if root is not None:
            pairs |= {(i, root) for i in self.nodes}
        linked: list[set[int]] = [set() for _ in range(self.nodes[-1] + 1)]
        for one, other in pairs:
            if other is not None and one != other:
                linked[one].add(other)
                linked[other].add(one)
        return [tuple(sorted(each)) for each in linked]


class View:
    """One node's place in all trees: all that forwarding needs to know.

    A view never changes; when the set of nodes does, the protocol is given another view. With
    `root`, the messages of all sources travel over the one tree of that node.
    """

    __slots__ = ("children", "cube", "heights", "me", "root")

    def __init__(self, cube: Cube, me: int, root: int | None = None) -> None:
        self.cube = cube
        self.me = me
        self.root = root
        # The child at each level; None where the cluster is empty.
        self.children = tuple(cube.first(me, s) for s in range(1, cube.d + 1))
        # My height in the tree of each source, 0 for numbers without a node. As bytes: one per
        # source, and as fast to read as a list.
        heights = bytearray(cube.nodes[-1] + 1)
        for source in cube.nodes:
            heights[source] = cube.height(me, source if root is None else root)
        self.heights = bytes(heights)


@lru_cache(maxsize=64)
def complete(count: int) -> Cube:
    """The cube of nodes 0 .. count - 1; shared, because all nodes of a process have the same one."""
    return Cube(range(count))
