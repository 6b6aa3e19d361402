"""Who is there: one node's view of the group, and what it means for tests, trees and tallies.

A view is one counter per member, VCube's own (Duarte, Bona and Ruoso, "VCube: a provably scalable
distributed diagnosis algorithm", 2014): even while the member is fault-free, odd when it is faulty
or absent, and a larger one is newer. `counter >> 1` is the member's life: founders are in life 0,
and a member that comes back does so in a new one. Two views are merged by taking the larger of each
counter, so news may arrive in any order, twice, or by any way.

A life is named by the time at which it began, not counted: so even two parts of a group that was split
never call two lives of a member by one name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from whence.core.group import LIFE_BITS
from whence.overlay.hypercube import Cube, cluster


class Roster:
    """The view, and everything that follows from it. Only `merge` changes it."""

    def __init__(self, size: int, me: int) -> None:
        self.me = me
        self.stamps = (0,) * size
        self.sealed = (0,) * size  # the last view of which it was known here that all in it had it
        self._rebuild()

    # rule 000 section 2: who tests whom
    def _rebuild(self) -> None:
        me, stamps = self.me, self.stamps
        self.present = tuple(at for at, stamp in enumerate(stamps) if not stamp & 1)
        self.gone = tuple(at for at, stamp in enumerate(stamps) if stamp & 1)
        self.cube = cube = Cube({*self.present, me})
        # Section 2, as VCube states it: i tests j iff i is the first fault-free node of the cluster
        # of j that i is in. So every node has one tester in each of its clusters that is not empty.
        others = [other for other in cube.nodes if other != me]
        self.testees = tuple(at for at in others if cube.first(at, cluster(at, me)) == me)
        firsts = {cube.first(me, s) for s in range(1, cube.d + 1)} - {None}
        self.partners = tuple(at for at in others if at in firsts or at in self.testees)
        # The tallies go up and down the tree of the first node that is there.
        root = cube.nodes[0]
        self.parent = None if me == root else _parent(cube, me, root)
        self.kids = cube.children(me, root)

    def is_present(self, member: int) -> bool:
        """Whether the node is a member, as far as this node knows."""
        return not self.stamps[member] & 1

    def life(self, member: int) -> int:
        """The member's newest life."""
        return self.stamps[member] >> 1

    def base(self, member: int) -> int:
        """The numbers of the member's newest life begin after this one."""
        return self.stamps[member] >> 1 << LIFE_BITS

    def merge(self, stamps: Sequence[int]) -> list[tuple[int, int]]:
        """Take in another view; returns whose counter grew, each with the old counter."""
        before = self.stamps
        if before == stamps:
            return []
        changed = [(at, old) for at, (old, new) in enumerate(zip(before, stamps, strict=True)) if new > old]
        if changed:
            self.stamps = tuple(map(max, before, stamps))
            self._rebuild()
        return changed

    def without(self, members: Iterable[int]) -> tuple[int, ...]:
        """The view in which these members are gone."""
        gone = set(members)
        return tuple(stamp | 1 if at in gone else stamp for at, stamp in enumerate(self.stamps))

    def with_life(self, member: int, life: int) -> tuple[int, ...]:
        """The view in which a member is there in a new life."""
        return (*self.stamps[:member], 2 * life, *self.stamps[member + 1 :])

    # rule 000 ours 1: two parts of a group that both went on
    def has_split(self, sealed: Sequence[int]) -> bool:
        """Whether the group was split, and both parts have gone on.

        A node's views grow, and all who are in a sealed view had it: so two sealed views neither of
        which is the older have no member in common.
        """
        if self.sealed == sealed:
            return False
        pairs = list(zip(self.sealed, sealed, strict=True))
        return any(mine < theirs for mine, theirs in pairs) and any(mine > theirs for mine, theirs in pairs)

    def yields_to(self, stamps: Sequence[int], sealed: Sequence[int]) -> bool:
        """Which of two parts that hold each other for gone stops: is it ours?

        The one that has not gone on yet; if both have, or neither, the smaller.
        """
        if self.has_split(sealed):
            return _weight(sealed) > _weight(self.sealed)
        if self.sealed != tuple(sealed):
            return any(map(int.__lt__, self.sealed, sealed))
        return _weight(stamps) > _weight(self.stamps)


def _weight(stamps: Sequence[int]) -> tuple[int, int]:
    """Large for a large part; two that have no member in common are never equal."""
    present = [at for at, stamp in enumerate(stamps) if not stamp & 1]
    return len(present), -min(present, default=0)


def _parent(cube: Cube, i: int, root: int) -> int:
    """Who passes the messages of `root` to i."""
    at = root
    while True:
        step = cube.first(at, cluster(at, i))
        assert step is not None, "i is in the cluster that is searched"
        if step == i:
            return at
        at = step
