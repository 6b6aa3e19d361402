"""What a node has, in eight bytes: a 16-ary tree of hashes over the newest number of every stream.

Two nodes whose roots are equal have the same. Where they differ and streams are many, the nodes of the tree
that differ are told level by level, and at its leaves the streams themselves (rule R15). A node's hash is
the sum of those of its streams, so a stream that grew changes one number per level; the tree is brought up
to date when a session begins, and deliveries pay nothing for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

from whence.core.lives import Stream
from whence.core.rng import GOLDEN, MASK, mix64

FANOUT = 16
FLAT_MAX = 256  # streams that are told as they are
LEAF_STREAMS = 8  # a leaf has about that many at most
DEPTH_MAX = 5
HASH_BYTES = 7  # of a child, on the wire


def depth_for(streams: int) -> int:
    """Levels below the root for that many streams; 0: no tree."""
    if streams <= FLAT_MAX:
        return 0
    depth = 1
    while FANOUT**depth * LEAF_STREAMS < streams and depth < DEPTH_MAX:
        depth += 1
    return depth


class Place:
    """Where a stream stands in every tree: its hash, whose first digits are its path."""

    @staticmethod
    def of(stream: Stream) -> int:
        """Return 64 bits."""
        return int.from_bytes(blake2b(stream.encode(), digest_size=8).digest())


class Summary:
    """The hashes of one state, and how to come from one to the next."""

    def __init__(self) -> None:
        self._places: list[int] = []
        self._counts: list[int] = []  # the state that `root` and `_levels` describe
        self.root = 0
        self.streams = 0  # with anything in them
        self._depth = 0
        self._levels: list[list[int]] = []  # of each level below the root, the sums of its nodes

    def add(self, stream: Stream) -> None:
        """One stream more, with nothing in it."""
        self._places.append(Place.of(stream))
        self._counts.append(0)

    def update(self, counts: Sequence[int]) -> None:
        """Describe `counts`, by index of the stream."""
        mine = self._counts
        if mine == counts:
            return
        for at, count in enumerate(counts):
            if count != mine[at]:
                place = self._places[at]
                change = _leaf(place, count) - _leaf(place, mine[at])
                self.root = (self.root + change) & MASK
                self.streams += (count > 0) - (mine[at] > 0)
                for depth, level in enumerate(self._levels, 1):
                    node = place >> (64 - 4 * depth)
                    level[node] = (level[node] + change) & MASK
                mine[at] = count

    def freeze(self, depth: int) -> list[list[int]]:
        """The tree of that depth as it is now; later updates do not change it."""
        if depth != self._depth:
            self._depth = depth
            self._levels = [[0] * FANOUT**each for each in range(1, depth + 1)]
            for place, count in zip(self._places, self._counts, strict=True):
                if count:
                    leaf = _leaf(place, count)
                    for level_depth, level in enumerate(self._levels, 1):
                        node = place >> (64 - 4 * level_depth)
                        level[node] = (level[node] + leaf) & MASK
        return [list(level) for level in self._levels]

    def members(self, depth: int, leaves: Iterable[int]) -> list[int]:
        """Indices of the streams in these leaves."""
        wanted = set(leaves)
        shift = 64 - 4 * depth
        return [at for at, place in enumerate(self._places) if place >> shift in wanted]


def _leaf(place: int, count: int) -> int:
    return mix64((place + count * GOLDEN) & MASK) if count else 0


def children(level: Sequence[int], nodes: Iterable[int]) -> bytes:
    """The hashes of the children of these nodes, which `level` has."""
    shift = 64 - 8 * HASH_BYTES
    return b"".join(
        (level[child] >> shift).to_bytes(HASH_BYTES)
        for node in nodes
        for child in range(node * FANOUT, (node + 1) * FANOUT)
    )


def differing(level: Sequence[int], nodes: Sequence[int], theirs: bytes) -> list[int] | None:
    """The children of these nodes whose hashes differ; None if that is not what was told."""
    if len(theirs) != len(nodes) * FANOUT * HASH_BYTES:
        return None
    shift = 64 - 8 * HASH_BYTES
    found = []
    at = 0
    for node in nodes:
        for child in range(node * FANOUT, (node + 1) * FANOUT):
            if int.from_bytes(theirs[at : at + HASH_BYTES]) != level[child] >> shift:
                found.append(child)
            at += HASH_BYTES
    return found
