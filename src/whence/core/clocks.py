"""Logical clocks and their encodings."""

from __future__ import annotations

from itertools import chain
from typing import TypeAlias

# Flat pairs (index, count, index, count, ...), indices ascending: one array on the wire, not many.
Delta: TypeAlias = tuple[int, ...]


class DeltaClock:
    """A vector clock that knows which of its entries changed since it was last sent.

    `counts[i]` is how many messages of member i have been delivered here. A sender need not repeat
    what its previous message already said, because no node delivers a message before the same
    sender's previous one: a node that tests a message has all that the previous one required.
    """

    __slots__ = ("changed", "counts")

    def __init__(self, size: int) -> None:
        self.counts = [0] * size
        self.changed: dict[int, int] = {}

    def advance(self, index: int, count: int) -> None:
        """Entry `index` has grown to `count`; the next delta will say so."""
        self.counts[index] = count
        self.changed[index] = count

    def take_delta(self) -> Delta:
        """The entries that changed since the last call, as flat pairs."""
        delta = tuple(chain.from_iterable(sorted(self.changed.items())))
        self.changed.clear()
        return delta

    def missing(self, delta: Delta) -> list[tuple[int, int]]:
        """The pairs of `delta` that this clock has not reached."""
        counts = self.counts
        return [
            (delta[at], delta[at + 1]) for at in range(0, len(delta), 2) if counts[delta[at]] < delta[at + 1]
        ]
