"""Visit every schedule of a world, breadth first, so that the first finding has the shortest schedule.

    report = explore(world)                   # or explore(world, make=MyCore)
    report.complete, report.states, report.findings

Two reductions, each of which can be switched off:

- `symmetry`: states that differ by names alone are one (`explore/symmetry.py`). Schedules keep their length.
- `order`: steps at different nodes commute. Where a node has something to receive on every link over which
  something may still come, nothing that the others do can give it another first step: exploring its moves
  alone reaches every local state and every order of deliveries that the whole would (a persistent set, for
  FIFO links and once no fault is left to spend). A state all of whose chosen successors are known is
  expanded whole, so that no cycle puts a move off forever. Schedules may then be longer than need be,
  so a search that finds something is repeated without this reduction, for the shortest schedule.

A state from which no schedule ends (something is always in flight, and comes back to where it was) is a
livelock, which is looked for once everything has been visited.

States are known by a 64-bit digest (`exact=True` keeps them whole): the chance that one of n states is
taken for another, and something is missed, is below n^2 / 2^65, which the report states.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from hashlib import blake2b
from marshal import dumps
from typing import NamedTuple

from whence.explore.machine import UP, Make
from whence.explore.state import Flaw, Move, Rules, State
from whence.explore.symmetry import NotSymmetric, Symmetry
from whence.explore.world import World, checked

STATES_MAX = 20_000_000
_MARSHAL = 2  # the last version without references: equal states give equal bytes


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


def _searched(world: World, options: Options, make: Make | None) -> Report:
    try:
        return WorldSearch(world, options, make).run()
    except NotSymmetric:
        return WorldSearch(world, options._replace(symmetry=False), make).run()


class WorldSearch:
    """One search. States have numbers, in the order in which they are met."""

    def __init__(self, world: World, options: Options, make: Make | None = None) -> None:
        self.rules = Rules(world, make)
        self._symmetry = Symmetry(self.rules) if options.symmetry else None
        if self._symmetry is not None and len(self._symmetry.renamings) == 1:
            self._symmetry = None
        self._order = options.order and world.links == "fifo"
        self._options = options
        self._visited: dict[int | bytes, int] = {}
        self._parents = array("I")
        self._chosen = array("H")  # the place of the move among the parent's
        self._targets = array("I")  # the states one move away, of each state in turn
        self._ends = array("Q")  # by state: where its part of `_targets` ends
        self._is_final = bytearray()
        self._steps = 0

    def run(self) -> Report:
        """Search, level by level."""
        began = time.process_time()
        options = self._options
        first, every = self.rules.first()
        if self._symmetry is not None:
            self._symmetry.begin(first, first)
        found = self._counting(every)
        self._number(first, 0, 0)
        if found:
            return self._report(0, Counterexample(found[0], (), True), None)
        frontier, depth = [first], 0
        while frontier:
            if options.progress is not None:
                seconds = time.process_time() - began
                options.progress(SearchProgress(depth, len(self._visited), len(frontier), seconds))
            if depth == options.depth_max:
                return self._report(depth, None, f"schedules longer than {depth} moves are not explored")
            following, bad = self._expand(frontier)
            if bad is not None:
                at, move, finding = bad
                moves = self._schedule(at, move)
                return self._report(depth, Counterexample(finding, moves, not self._order), None)
            if len(self._visited) > options.states_max:
                return self._report(depth, None, f"there are more than {options.states_max:,} states")
            frontier = following
            depth += bool(frontier)
        return self._report(depth, self._livelock(), None)

    def _report(self, depth: int, found: Counterexample | None, why_not: str | None) -> Report:
        states = len(self._visited)
        return Report(
            states=states,
            steps=self._steps,
            depth=depth,
            finals=sum(self._is_final),
            complete=found is None and why_not is None,
            why_not=why_not,
            symmetry=1 if self._symmetry is None else len(self._symmetry.renamings),
            order=self._order,
            counterexample=found,
            seconds=0.0,
            missed_chance=0.0 if self._options.exact else states * states / 2.0**65,
        )

    def _counting(self, found: list[Flaw]) -> list[Flaw]:
        kinds = self._options.kinds
        return found if kinds is None else [each for each in found if each.kind in kinds]

    def _number(self, state: State, parent: int, choice: int) -> tuple[int, bool]:
        """The number of a state, and whether it is new."""
        content: int | bytes = dumps(tuple(state), _MARSHAL)
        if not self._options.exact:
            content = int.from_bytes(blake2b(content, digest_size=8).digest(), "big")  # type: ignore[arg-type]
        new = len(self._visited)
        number = self._visited.setdefault(content, new)
        if number != new:
            return number, False
        self._parents.append(parent)
        self._chosen.append(choice)
        return number, True

    # One level

    def _expand(self, frontier: list[State]) -> tuple[list[State], tuple[int, Move | None, Flaw] | None]:
        """The new states one move away; or the first finding: the state's number, the move, what it is."""
        following: list[State] = []
        rules = self.rules
        for state in frontier:
            at = len(self._is_final)
            moves = rules.moves(state)
            final = all(map(rules.is_optional, moves))
            self._is_final.append(final)
            if final:
                found = self._counting(rules.judge_final(state))
                if found:
                    return following, (at, None, found[0])
            few = self._enough(state, moves) if self._order else None
            fresh = len(following)
            for which, move in enumerate(moves):
                if few is not None and (len(move) < 2 or move[1] != few):
                    continue
                bad = self._visit(state, move, at, which, following)
                if bad is not None:
                    return following, (at, move, bad)
            if few is not None and fresh == len(following):  # else a cycle could put the others off forever
                for which, move in enumerate(moves):
                    bad = self._visit(state, move, at, which, following)
                    if bad is not None:
                        return following, (at, move, bad)
            self._ends.append(len(self._targets))
            if len(self._visited) > self._options.states_max:
                break
        return following, None

    def _visit(self, state: State, move: Move, at: int, which: int, following: list[State]) -> Flaw | None:
        self._steps += 1
        after, found = self.rules.apply(state, move)
        if found and (found := self._counting(found)):
            return found[0]
        symmetry = self._symmetry
        if symmetry is not None:
            for taken in self.rules.taken:
                symmetry.learn(*taken)
            after, _ = symmetry.canonical(after)
        number, is_new = self._number(after, at, which)
        self._targets.append(number)
        if is_new:
            following.append(after)
        return None

    def _enough(self, state: State, moves: list[Move]) -> int | None:
        """A node whose moves alone suffice here, if there is one (see the module)."""
        rules, nodes = self.rules, self.rules.nodes
        if any(state.left) or state.changed < len(rules.world.change):
            return None
        for node in range(nodes):
            if rules.machine.status(state.locals[node]) != UP:
                continue
            if all(
                state.flight[peer * nodes + node] or not state.links >> (peer * nodes + node) & 1
                for peer in range(nodes)
                if peer != node
            ) and any(len(move) > 1 and move[1] == node for move in moves):
                return node
        return None

    # After the last level

    def _livelock(self) -> Counterexample | None:
        """The first state from which no schedule ever ends, if there is one.

        States are numbered by depth, so that going backwards through them settles most in one pass.
        """
        ends_well = bytearray(self._is_final)
        changed = True
        while changed:
            changed = False
            for state in range(len(ends_well) - 1, -1, -1):
                if not ends_well[state]:
                    begin = self._ends[state - 1] if state else 0
                    if any(ends_well[each] for each in self._targets[begin : self._ends[state]]):
                        ends_well[state] = changed = True
        stuck = ends_well.find(0)
        finding = Flaw("livelock", "from here on something always goes on, and nothing ever ends")
        if stuck < 0 or not self._counting([finding]):
            return None
        return Counterexample(finding, self._schedule(stuck, None), not self._order)

    # Back to the beginning

    def _schedule(self, at: int, last: Move | None) -> tuple[Move, ...]:
        """The moves from the first state to that of number `at`, and the last one."""
        choices: list[int] = []
        while at:
            choices.append(self._chosen[at])
            at = self._parents[at]
        state, _ = self.rules.first()
        names = tuple(range(self.rules.nodes))  # canonical name -> actual name
        schedule: list[Move] = []
        for choice in reversed(choices):
            move = self.rules.moves(state)[choice]
            schedule.append(self._actual(move, names))
            state, _ = self.rules.apply(state, move)
            if self._symmetry is not None:
                state, by = self._symmetry.canonical(state)
                names = tuple(names[by.index(node)] for node in range(self.rules.nodes))
        if last is not None:
            schedule.append(self._actual(last, names))
        return tuple(schedule)

    def _actual(self, move: Move, names: tuple[int, ...]) -> Move:
        return move if self._symmetry is None else self._symmetry.renamed_move(move, names)
