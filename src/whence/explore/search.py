"""Visit every schedule of a world, breadth first, so that the first finding has the shortest schedule.

    report = explore(world)                   # or explore(world, make=MyCore)
    report.complete, report.states, report.findings

Two reductions, each of which can be switched off:

- `symmetry`: states that differ by names alone are one (`explore/symmetry.py`). Schedules keep their length.
- `order`: steps at different nodes commute. Where some nodes have something to receive on every link over
  which something may still come from the others, nothing that these do can give them another first step:
  exploring the moves of the former alone reaches every local state and every order of deliveries that the
  whole would (a persistent set, for FIFO links and once no fault is left to spend). A state all of whose
  chosen successors were met in this depth or before is expanded whole, so that no cycle puts a move off
  forever. Schedules may then be longer than need be, so a search that finds something is repeated without
  this reduction, for the shortest schedule. A protocol whose steps close links is explored without it.

A state from which no schedule ends (something is always in flight, and comes back to where it was) is a
livelock, which is looked for once everything has been visited.

States are known by a 64-bit digest: the chance that one of n states is taken for another, and something is
missed, is below n^2 / 2^65, which the report states. With `exact=True` each state that is taken for a known
one is compared with it, and the search begins anew with other digests should they differ.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whence.explore.expand import Expander, NotCommuting, Places, Successors, Survey
from whence.explore.machine import Make, SameDigest
from whence.explore.parts import Flags, Layout, Rows
from whence.explore.state import Flaw, Move, Rules, State
from whence.explore.symmetry import Names, NotSymmetric, Renaming, Symmetry
from whence.explore.visited import Shelf, Stack, Visited
from whence.explore.world import World, checked

STATES_MAX = 100_000_000
CHUNK = 40_000  # states that are expanded at once


class Counterexample(NamedTuple):
    """What was found, and the moves that lead to it."""

    finding: Flaw
    moves: tuple[Move, ...]
    shortest: bool  # no schedule with fewer moves has a finding


class Report(NamedTuple):
    """What an exploration saw."""

    states: int
    steps: int  # moves tried
    depth: int  # the longest schedule
    finals: int  # states in which nothing must happen any more
    complete: bool  # every schedule was explored
    why_not: str | None
    symmetry: int  # how many renamings were used; 1: none
    order: bool
    counterexample: Counterexample | None
    seconds: float
    missed_chance: float


class SearchProgress(NamedTuple):
    """How far a search is."""

    depth: int
    states: int
    frontier: int
    seconds: float


class Options(NamedTuple):
    """How to search; the module says what the reductions are."""

    symmetry: bool = True
    order: bool = True
    exact: bool = False
    states_max: int = STATES_MAX
    depth_max: int | None = None
    kinds: frozenset[str] | None = None  # the findings that count; None: all
    progress: Callable[[SearchProgress], None] | None = None


def explore(world: World, options: Options | None = None, make: Make | None = None) -> Report:
    """Explore every schedule of `world`, or until something is found. `make` gives cores of one's own."""
    world = checked(world)
    options = options or Options()
    began = time.process_time()
    report = _searched(world, options, make)
    found = report.counterexample
    if found is not None and report.order:
        plain = options._replace(order=False, depth_max=len(found.moves) + 1)
        again = _searched(world, plain, make).counterexample
        found = found._replace(shortest=False) if again is None else again
        report = report._replace(counterexample=found)
    return report._replace(seconds=time.process_time() - began)


def _searched(world: World, options: Options, make: Make | None, salt: int = 0) -> Report:
    try:
        return WorldSearch(world, options, make, salt).run()
    except NotSymmetric:
        return _searched(world, options._replace(symmetry=False), make, salt)
    except NotCommuting:
        return _searched(world, options._replace(order=False), make, salt)
    except SameDigest:
        return _searched(world, options, make, salt + 1)


class WorldSearch:
    """One search. States have numbers, in the order in which they are met."""

    def __init__(self, world: World, options: Options, make: Make | None = None, salt: int = 0) -> None:
        self.rules = Rules(world, make, salt)
        symmetry = Symmetry(self.rules) if options.symmetry else None
        self._symmetry = symmetry if symmetry is not None and len(symmetry.names) > 1 else None
        nobody = Names(tuple(range(world.nodes)), {}, self.rules.any_order)
        self._layout = Layout(self.rules, self._symmetry.names if self._symmetry else [nobody])
        self._order = options.order and world.links == "fifo"
        self._expander = Expander(self.rules, self._layout, self._symmetry, self._counting, self._order)
        self._options = options
        self._shelf = Shelf()
        self._visited = Visited(self._shelf)
        # By state: its digest, the state before it, its row (if exact), whether nothing must happen any more.
        self._digests, self._parents = Stack(self._shelf), Stack(self._shelf)
        self._rows, self._finals = Stack(self._shelf), Stack(self._shelf)
        self._edges = Stack(self._shelf)  # moves: from which state to which
        self._goes_back = False  # a move leads to a state that was met as early, or earlier
        self._began = 0.0

    @property
    def states(self) -> int:
        """How many states were met."""
        return len(self._digests)

    def run(self) -> Report:
        """Search, level by level."""
        self._began = time.process_time()
        first, flaws = self.rules.first()
        if self._symmetry is not None:
            self._symmetry.begin(first, first)
        rows = np.array([self._layout.row(first)], np.uint32)
        _, frontier = self._met(rows, np.zeros(1, np.intp))
        if self._counting(flaws):
            return self._report(0, Counterexample(self._counting(flaws)[0], (), True), None)
        return self._levels([frontier], 0)

    def _levels(self, frontier: list[Rows], depth: int) -> Report:
        options = self._options
        while frontier:
            waiting = sum(map(len, frontier))
            if options.progress is not None:
                seconds = time.process_time() - self._began
                options.progress(SearchProgress(depth, self.states, waiting, seconds))
            if depth == options.depth_max:
                return self._report(depth, None, f"schedules longer than {depth} moves are not explored")
            following, bad = self._level(frontier)
            if bad is not None:
                return self._report(depth, Counterexample(*self._story(bad), not self._order), None)
            if self.states > options.states_max:
                return self._report(depth, None, f"there are more than {options.states_max:,} states")
            frontier = following
            depth += bool(frontier)
        return self._report(depth, self._livelock(), None)

    def _report(self, depth: int, found: Counterexample | None, why_not: str | None) -> Report:
        return Report(
            states=self.states,
            steps=len(self._edges),
            depth=depth,
            finals=sum(int(each.sum()) for each in self._finals.blocks),
            complete=found is None and why_not is None,
            why_not=why_not,
            symmetry=len(self._layout.names),
            order=self._order,
            counterexample=found,
            seconds=0.0,
            missed_chance=0.0 if self._options.exact else self.states**2 / 2.0**65,
        )

    def _counting(self, found: list[Flaw]) -> list[Flaw]:
        kinds = self._options.kinds
        return found if kinds is None else [each for each in found if each.kind in kinds]

    # One level

    def _level(self, frontier: list[Rows]) -> tuple[list[Rows], int | None]:
        """The new states one move away; or the number of a state where something is found.

        What is wrong with a final state of this level has a shorter schedule than what is wrong with a move.
        """
        following: list[Rows] = []
        bad: int | None = None
        end = self.states
        begin = end - sum(map(len, frontier))
        for rows in _pieces(frontier):
            survey = self._expander.survey(rows)
            self._finals.add(survey.finals)
            wrong = self._expander.misjudged(rows, survey.finals)
            if wrong is not None:
                return [], begin + wrong
            if bad is None and self.states <= self._options.states_max:
                needed = self._needed(rows, survey)
                found = self._expander.successors(rows, survey, needed)
                targets = self._integrate(found, begin, end, following)
                rest = self._put_off(found.parents, targets >= end, needed)
                if found.bad is None and rest.any():
                    found = self._expander.successors(rows, survey, rest)
                    self._integrate(found, begin, end, following)
                bad = None if found.bad is None else begin + found.bad
            begin += len(rows)
        return following, bad

    def _needed(self, rows: Rows, survey: Survey) -> Flags:
        if self._order:
            return self._expander.enough(rows, survey)
        return np.ones((len(rows), self.rules.nodes), np.bool_)

    def _put_off(self, parents: Places, is_new: Flags, needed: Flags) -> Flags:
        """The nodes that were left out in states with no new successor: a cycle could put them off."""
        stale: Flags = np.logical_not(needed.all(axis=1))
        stale[parents[is_new]] = False
        rest: Flags = ~needed & stale[:, None]
        return rest

    def _integrate(self, found: Successors, begin: int, end: int, following: list[Rows]) -> NDArray[np.int64]:
        """Number the states that were found; `end` is the first number of the next level."""
        parents = begin + found.parents
        targets, fresh = self._met(found.rows, parents)
        if len(targets):
            self._edges.add(np.stack([parents, targets], axis=1).astype(np.uint32))
            self._goes_back |= bool((targets < end).any())
        if len(fresh):
            following.append(self._shelf.keep(fresh))
        return targets

    def _met(self, rows: Rows, parents: Places) -> tuple[NDArray[np.int64], Rows]:
        """The numbers of states, and those that are new, by the names that count."""
        digests, names = self._layout.canonical(rows)
        distinct, first, inverse = np.unique(digests, return_index=True, return_inverse=True)
        numbers = self._visited.find(distinct)
        new = numbers < 0
        numbers[new] = np.arange(self.states, self.states + new.sum())
        chosen = first[new]
        fresh = self._layout.renamed(rows[chosen], names[chosen])
        self._visited.add(distinct[new], self.states)
        self._digests.add(distinct[new])
        self._parents.add(parents[chosen].astype(np.uint32))
        targets: NDArray[np.int64] = numbers[inverse]
        if self._options.exact:
            self._rows.add(fresh)
            if (self._rows.take(targets) != self._layout.renamed(rows, names)).any():
                raise SameDigest
        return targets, fresh

    # After the last level

    def _livelock(self) -> Counterexample | None:
        """The first state from which no schedule ever ends, if there is one.

        Where every move leads to a later level, every schedule ends. States are numbered by depth, so that
        going backwards through the moves settles most in one pass.
        """
        if not self._goes_back:
            return None
        ends_well = np.concatenate(self._finals.blocks)
        before = -1
        while before != (before := int(ends_well.sum())):
            for block in reversed(self._edges.blocks):
                ends_well[block[ends_well[block[:, 1]], 0]] = True
        finding = Flaw("livelock", "from here on something always goes on, and nothing ever ends")
        if ends_well.all() or not self._counting([finding]):
            return None
        moves, _ = self._path(int(np.argmin(ends_well)))
        return Counterexample(finding, moves, not self._order)

    # Back to the beginning

    def _story(self, at: int) -> tuple[Flaw, tuple[Move, ...]]:
        """What is wrong in the state of number `at`, or with a move from it, and the moves that show it."""
        moves, (state, names) = self._path(at)
        possible = self.rules.moves(state)
        if all(map(self.rules.is_optional, possible)):
            wrong = self._counting(self.rules.judge_final(state))
            if wrong:
                return self._rewritten(wrong[0], moves), moves
        for move in possible:
            wrong = self._counting(self.rules.apply(state, move)[1])
            if wrong:
                moves = (*moves, self._actual(move, names))
                return self._rewritten(wrong[0], moves), moves
        raise AssertionError("what the tables found, the rules find too")

    def _rewritten(self, flaw: Flaw, moves: tuple[Move, ...]) -> Flaw:
        """The flaw in the names of its schedule."""
        if self._symmetry is None:
            return flaw
        state, flaws = self.rules.first()
        for move in moves:
            state, flaws = self.rules.apply(state, move)
        found = self._counting(flaws) or self._counting(self.rules.judge_final(state))
        return next(each for each in found if each.kind == flaw.kind)

    def _path(self, at: int) -> tuple[tuple[Move, ...], tuple[State, Renaming]]:
        """The moves from the first state to that of number `at`; that state, and how its names are meant."""
        chain: list[int] = []
        while at:
            chain.append(at)
            at = int(self._parents[at])
        state, _ = self.rules.first()
        names = tuple(range(self.rules.nodes))  # canonical name -> actual name
        schedule: list[Move] = []
        for number in reversed(chain):
            move, state, by = self._towards(state, self._digests[number])
            schedule.append(self._actual(move, names))
            names = tuple(names[by.index(node)] for node in range(self.rules.nodes))
        return tuple(schedule), (state, names)

    def _towards(self, state: State, digest: np.uint64) -> tuple[Move, State, Renaming]:
        """The move to the state of a digest, that state, and the renaming that makes it so."""
        for move in self.rules.moves(state):
            after, _ = self._expander.apply(state, move)
            rows = np.array([self._layout.row(after)], np.uint32)
            digests, which = self._layout.canonical(rows)
            if digests[0] == digest:
                row = self._layout.renamed(rows, which)[0].tolist()
                return move, self._layout.state(row), self._layout.names[which[0]].renaming
        raise AssertionError("a state has a move that leads to it")

    def _actual(self, move: Move, names: Renaming) -> Move:
        return move if self._symmetry is None else self._symmetry.renamed_move(move, names)


def _pieces(frontier: list[Rows]) -> Iterator[Rows]:
    """A frontier in pieces of about one size."""
    waiting: list[Rows] = []
    for rows in frontier:
        for at in range(0, len(rows), CHUNK):
            waiting.append(np.asarray(rows[at : at + CHUNK]))
            if sum(map(len, waiting)) >= CHUNK:
                yield np.concatenate(waiting)
                waiting = []
    if waiting:
        yield np.concatenate(waiting)
