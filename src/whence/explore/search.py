"""Visit every schedule of a world, breadth first, so that the first finding has the shortest schedule.

    report = explore(world)                   # or explore(world, make=MyCore)
    report.complete, report.states, report.findings

Three reductions, each of which can be switched off:

- `symmetry`: states that differ by names alone are one (`explore/symmetry.py`). Schedules keep their length.
- `order`: steps at different nodes commute. Where some nodes have something to receive on every link over
  which something may still come from the others, nothing that these do can give them another first step:
  exploring the moves of the former alone reaches every local state and every order of deliveries that the
  whole would (a persistent set, for FIFO links and once no fault is left to spend). A state all of whose
  chosen successors were met in this depth or before is expanded whole, so that no cycle puts a move off
  forever. Schedules may then be longer than need be, so a search that finds something is repeated without
  this reduction, for the shortest schedule. A protocol whose steps close links is explored without it.
- `stale`: a packet whose receipt changes nothing is taken from its link at once (`explore/expand.py`). Such
  receipts are moves of no level; what is found is looked for again without this reduction too.

A state from which no schedule ends (something is always in flight, and comes back to where it was) is a
livelock, which is looked for once everything has been visited.

States are known by a 64-bit digest: the chance that one of n states is taken for another, and something is
missed, is below n^2 / 2^65, which the report states. With `exact=True` each state that is taken for a known
one is compared with it, and the search begins anew with other digests should they differ.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whence.explore.expand import RETRIED, Expander, How, Places, Successors, instead
from whence.explore.machine import Make, SameDigest
from whence.explore.parts import Rows
from whence.explore.schedule import path, shown
from whence.explore.snapshot import Snapshot, Tables, forget, source_of, taken_up
from whence.explore.state import Counterexample, Flaw
from whence.explore.visited import DigestRun, Shelf, Stack, Visited
from whence.explore.world import World, checked

STATES_MAX = 100_000_000
CHUNK = 40_000  # states that are expanded at once


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
    stale: bool
    counterexample: Counterexample | None
    seconds: float
    missed_chance: float
    never: tuple[str, ...] = ()  # lines and changes of the world that no schedule came to


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
    stale: bool = True
    exact: bool = False
    states_max: int = STATES_MAX
    depth_max: int | None = None
    kinds: frozenset[str] | None = None  # the findings that count; None: all
    progress: Callable[[SearchProgress], None] | None = None
    folder: Path | None = None  # where arrays are kept, and a search that is stopped can go on
    save_every_s: float = 60.0  # of CPU time


def explore(world: World, options: Options | None = None, make: Make | None = None) -> Report:
    """Explore every schedule of `world`, or until something is found. `make` gives cores of one's own.

    With `options.folder` a search goes on where it was stopped; the folder is emptied when it has ended.
    """
    world = checked(world)
    options = options or Options()
    how = How(options.symmetry, options.order, options.stale, options.kinds)
    if options.folder is not None:
        how = taken_up(options.folder, world, how, options.exact, make)
    report = _searched(world, options, make, how)
    found = report.counterexample
    if found is not None and (report.order or report.stale):
        plain = options._replace(depth_max=len(found.moves) + 1, folder=None)
        again = _searched(world, plain, make, how._replace(order=False, stale=False))
        found = found._replace(shortest=False) if again.counterexample is None else again.counterexample
        report = report._replace(counterexample=found, seconds=report.seconds + again.seconds)
    if report.why_not is None:
        forget(options.folder)
    return report


def _searched(world: World, options: Options, make: Make | None, how: How) -> Report:
    try:
        return WorldSearch(world, options, make, how).run()
    except tuple(RETRIED) as error:
        how = instead(how, type(error))
    forget(options.folder)
    return _searched(world, options, make, how)


class WorldSearch:
    """One search. States have numbers, in the order in which they are met."""

    def __init__(self, world: World, options: Options, make: Make | None, how: How) -> None:
        self._expander = Expander(world, how, make)
        self._layout, self.rules = self._expander.layout, self._expander.rules
        self._options = options
        self._how = how
        self._shelf = shelf = Shelf(options.folder)
        self._source = "" if options.folder is None else source_of(self.rules.machine.core(0))
        self._visited = Visited(shelf)
        # By state: its digest, the state before it, its row (if exact), whether nothing must happen any more.
        self._digests, self._parents, self._rows, self._finals = (Stack(shelf) for _ in range(4))
        self._edges = Stack(shelf)  # moves: from which state to which
        self._goes_back = False  # a move leads to a state that was met as early, or earlier
        self._spent_s = 0.0  # before this process
        self._began_s = time.process_time()
        self._saved_s = self._began_s

    @property
    def states(self) -> int:
        """How many states were met."""
        return len(self._digests)

    def run(self) -> Report:
        """Search, level by level, from where an earlier process has stopped, or from the first state."""
        saved = None if self._options.folder is None else Snapshot.read(self._options.folder)
        if saved is not None:
            return self._levels(self._resume(saved), saved.depth)
        rows, flaws = self._expander.first()
        _, frontier = self._met(rows, np.zeros(1, np.intp))
        if flaws:
            return self._report(0, Counterexample(flaws[0], (), True), None)
        return self._levels([frontier], 0)

    def _levels(self, frontier: list[Rows], depth: int) -> Report:
        options = self._options
        while frontier:
            waiting = sum(map(len, frontier))
            if options.progress is not None:
                options.progress(SearchProgress(depth, self.states, waiting, self._seconds()))
            if depth == options.depth_max:
                return self._report(depth, None, f"schedules longer than {depth} moves are not explored")
            self._save(frontier, depth)
            following, bad = self._level(frontier)
            if bad is not None:
                found = shown(self._expander, self._digests_to(bad))
                return self._report(depth, Counterexample(*found, not self._expander.is_reduced), None)
            if self.states > options.states_max:
                return self._report(depth, None, f"there are more than {options.states_max:,} states")
            frontier = following
            depth += bool(frontier)
        return self._report(depth, self._livelock(), None)

    def _seconds(self) -> float:
        return self._spent_s + time.process_time() - self._began_s

    def _report(self, depth: int, found: Counterexample | None, why_not: str | None) -> Report:
        return Report(
            states=self.states,
            steps=len(self._edges),
            depth=depth,
            finals=sum(int(each.sum()) for each in self._finals.blocks),
            complete=found is None and why_not is None,
            why_not=why_not,
            symmetry=len(self._layout.names),
            order=self._expander.order,
            stale=self._expander.drops,
            counterexample=found,
            seconds=self._seconds(),
            missed_chance=0.0 if self._options.exact else self.states**2 / 2.0**65,
            never=self._never() if found is None and why_not is None else (),
        )

    def _never(self) -> tuple[str, ...]:
        """What the world has and no schedule came to: `after` that is never so, a command that is refused."""
        worlds, world = self._layout.worlds.content, self.rules.world
        said = [any(each[5][at] >= 0 for each in worlds) for at in range(len(world.say))]
        changes = max(each[1] for each in worlds)
        lines = [f"say[{at}]" for at, is_said in enumerate(said) if not is_said]
        return (*lines, *(f"change[{at}]" for at in range(changes, len(world.change))))

    # To go on another time

    def _save(self, frontier: list[Rows], depth: int) -> None:
        """Write down where the search is, now and then."""
        options = self._options
        if options.folder is None or time.process_time() - self._saved_s < options.save_every_s:
            return
        name = self._shelf.name
        stacks = [self._digests, self._parents, self._rows, self._finals, self._edges]
        snapshot = Snapshot(
            world=self.rules.world,
            how=self._how,
            exact=options.exact,
            depth=depth,
            goes_back=self._goes_back,
            seconds=self._seconds(),
            frontier=[name(self._shelf.keep(rows)) for rows in frontier],
            runs=[(name(run.digests), name(run.numbers)) for run in self._visited.runs],
            stacks=[[name(block) for block in stack.blocks] for stack in stacks],
            tables=Tables.of(self._expander),
            parts=self._layout.contents(),
            source=self._source,
        )
        snapshot.write(options.folder)
        self._shelf.forget_all_but(snapshot.files())
        self._saved_s = time.process_time()

    def _resume(self, saved: Snapshot) -> list[Rows]:
        """Take over what was written down; the frontier."""
        again = self._shelf.again
        self._shelf.forget_all_but(saved.files())
        saved.tables.into(self._expander)
        self._layout.fill(saved.parts)
        self._visited = Visited(self._shelf, [DigestRun(again(one), again(two)) for one, two in saved.runs])
        stacks = [Stack(self._shelf, [again(name) for name in names]) for names in saved.stacks]
        self._digests, self._parents, self._rows, self._finals, self._edges = stacks
        self._goes_back = saved.goes_back
        self._spent_s = saved.seconds
        return [again(name) for name in saved.frontier]

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
                needed = self._expander.needed(rows, survey)
                found = self._expander.successors(rows, survey, needed)
                targets = self._integrate(found, begin, end, following)
                rest = self._expander.put_off(found.parents, targets >= end, needed)
                if found.bad is None and rest.any():
                    found = self._expander.successors(rows, survey, rest)
                    self._integrate(found, begin, end, following)
                bad = None if found.bad is None else begin + found.bad
            begin += len(rows)
        return following, bad

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
        if ends_well.all() or not self._expander.counted([finding]):
            return None
        moves = path(self._expander, self._digests_to(int(np.argmin(ends_well)))).moves
        return Counterexample(finding, moves, not self._expander.is_reduced)

    def _digests_to(self, at: int) -> list[int]:
        """The digests of the states on the way to that of number `at`, without the first."""
        chain: list[int] = []
        while at:
            chain.append(int(self._digests[at]))
            at = int(self._parents[at])
        return chain[::-1]


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
