"""Spray: peer sampling with partial views whose size grows with the logarithm of the group.

Source        Nédelec, Tanke, Frey, Molli, Mostéfaoui, "An adaptive peer-sampling protocol for building
              networks of browsers" (2018), as paper 003 uses it (section 3).

A view is a **multiset** of arcs: a process may be named twice, and the number of arcs in the system
changes only when processes come and go. This module decides who names whom; whether a link can be used is
for the protocol to say (`is_safe`). A pair is linked, in both directions, while at least one arc of
either names the other: a host opens the link when the pair's first arc appears and closes it when its
last one has gone (`Pairs`).

    join        the joiner names its contact; the contact has every process that it names name the joiner
                (`introductions`), itself if it names no other
    shuffle     the process gives half of its arcs over safe links to the one that it named first, among them
                that arc itself, turned round; it is given half of the partner's. The process that gives an
                arc away is the mediator: it is linked to both, so control goes two hops (paper 003, section
                2.5). The authors' program rounds otherwise: who begins gives half of the others, rounded up
                (`by_authors`), which with few arcs is one less
    departure   an arc to a lost process is replaced by a second arc to another, with chance 1 - 1/size of the
                view (`lost`), whether it crashed or left. A join brings one arc, and one for each arc of its
                contact; a departure takes the arcs of the lost process, and on average one of those to it. So
                the two balance, and views follow the logarithm of the group up and down
    leave       as many arcs go, but who leaves in good order tells each neighbour of a successor, which is
                named instead of a second arc to another (`left`; the successor is ours, not Spray's)
    short life  that balance needs processes that have shuffled: who goes at once has one arc of its own, and
                would leave behind those with which others were asked to name it. So an arc that came with a
                join (`welcome`) and has not moved since goes with the joiner, and is not replaced (ours)

Draws are counter-based (core/rng.py), so that the kernel draws the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from whence.core.rng import below

Name = TypeVar("Name", int, str)


class Spray(Generic[Name]):
    """The view of one process: the names in `arcs`, the oldest first."""

    __slots__ = ("arcs", "me", "newcomers")

    def __init__(self, me: Name) -> None:
        self.me: Name = me
        self.arcs: list[Name] = []
        self.newcomers: dict[Name, int] = {}  # arcs that came with a join and have not moved since

    def introductions(self, is_safe: Callable[[Name], bool]) -> list[Name]:
        """The processes to name a joiner that asked us: one for every arc over a safe link; else us."""
        return [name for name in self.arcs if is_safe(name)] if self.arcs else [self.me]

    def partner(self, is_safe: Callable[[Name], bool]) -> Name | None:
        """With whom to shuffle: the process behind the oldest arc over a safe link."""
        return next((name for name in self.arcs if is_safe(name)), None)

    def give(
        self,
        partner: Name,
        is_safe: Callable[[Name], bool],
        key: int,
        *,
        begins: bool,
        by_authors: bool = False,
    ) -> list[tuple[Name, Name]]:
        """Take half of the arcs over safe links out of the view, as (named here, named there).

        They differ for arcs to the partner itself, which come back as arcs to us. The one that `begins`
        gives the arc to its partner first of all.
        """
        eligible = [at for at, name in enumerate(self.arcs) if is_safe(name)]
        count = len(eligible) // 2 if by_authors and begins else (len(eligible) + 1) // 2
        chosen: list[int] = []
        if begins:
            first = next(at for at in eligible if self.arcs[at] == partner)
            eligible.remove(first)
            chosen.append(first)
        while len(chosen) < count:
            place = below(key, len(chosen), len(eligible))
            chosen.append(eligible[place])
            eligible[place] = eligible[-1]
            eligible.pop()
        given = [(self.arcs[at], self.me if self.arcs[at] == partner else self.arcs[at]) for at in chosen]
        for at in chosen:
            self.newcomers.pop(self.arcs[at], None)
        gone = set(chosen)
        self.arcs = [name for at, name in enumerate(self.arcs) if at not in gone]
        return given

    def take(self, names: Iterable[Name]) -> None:
        """Add arcs, as the newest."""
        self.arcs.extend(names)

    def welcome(self, joiner: Name) -> None:
        """Add the arc to a joiner for which its contact has asked."""
        self.arcs.append(joiner)
        self.newcomers[joiner] = self.newcomers.get(joiner, 0) + 1

    def lost(self, name: Name, key: int) -> list[Name]:
        """Drop all arcs to a process that is gone; returns the arcs that stand in for them.

        Each is replaced by a further arc to another process with chance 1 - 1/size, as Spray does it, but for
        those that came with its join.
        """
        size = len(self.arcs)
        gone = self.arcs.count(name) - self.newcomers.pop(name, 0)
        self.arcs = [other for other in self.arcs if other != name]
        others = list(self.arcs)
        stand_ins = [
            others[below(key, 2 * at + 1, len(others))]
            for at in range(gone)
            if others and below(key, 2 * at, size) != 0
        ]
        self.arcs.extend(stand_ins)
        return stand_ins

    def left(self, name: Name, successor: Name, key: int) -> None:
        """Drop all arcs to a process that left in good order, and name its `successor`.

        The view is as long as after `lost`, or a leave would take fewer arcs than a join brings, and views
        would grow without end. So the successor is one of the stand-ins; where there is none, it takes the
        place of another arc, of a second one to the same process if there is any.
        """
        gone = self.arcs.count(name)
        stand_ins = self.lost(name, key)
        if stand_ins:
            self.arcs.pop()
        elif successor in self.arcs:
            return
        elif self.arcs:
            places = range(len(self.arcs))
            double = [at for at in places if self.arcs.count(self.arcs[at]) > 1]
            self.arcs.pop((double or places)[below(key, 2 * gone, len(double or places))])
        self.arcs.append(successor)


class Pairs(Generic[Name]):
    """How many arcs join each pair, in either direction: links open on 0 -> 1 and close on 1 -> 0."""

    def __init__(self) -> None:
        self.arcs: dict[tuple[Name, Name], int] = {}

    def add(self, one: Name, other: Name) -> None:
        """One more arc between the two."""
        pair = (min(one, other), max(one, other))
        self.arcs[pair] = self.arcs.get(pair, 0) + 1

    def remove(self, one: Name, other: Name) -> None:
        """One arc less."""
        pair = (min(one, other), max(one, other))
        left = self.arcs[pair] - 1
        if left:
            self.arcs[pair] = left
        else:
            del self.arcs[pair]

    def joined(self, one: Name, other: Name) -> bool:
        """Whether any arc joins the two."""
        return (min(one, other), max(one, other)) in self.arcs


def pair_of(one: int, other: int) -> tuple[int, int]:
    """Two processes as one key, whichever of them is named first."""
    return (one, other) if one < other else (other, one)
