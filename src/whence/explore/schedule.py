"""From the digests of the states on the way back to the moves between them, in the names of the world."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from whence.explore.expand import Expander
from whence.explore.state import Flaw, Move, State
from whence.explore.symmetry import Renaming


class Path(NamedTuple):
    """Moves, and where they lead."""

    moves: tuple[Move, ...]
    state: State  # by the names that make its digest least
    names: Renaming  # from these to those of the world


def shown(expander: Expander, digests: Iterable[int]) -> tuple[Flaw, tuple[Move, ...]]:
    """What is wrong in the last of these states, or with a move from it, and the moves that show it."""
    moves, state, names = path(expander, digests)
    rules = expander.rules
    possible = rules.moves(state)
    if all(map(rules.is_optional, possible)):
        wrong = expander.counted(rules.judge_final(state))
        if wrong:
            return _renamed(expander, wrong[0], moves), moves
    for move in possible:
        wrong = expander.counted(rules.apply(state, move)[1])
        if wrong:
            moves = (*moves, _actual(expander, move, names))
            return _renamed(expander, wrong[0], moves), moves
    raise AssertionError("what the tables found, the rules find too")


def _renamed(expander: Expander, flaw: Flaw, moves: tuple[Move, ...]) -> Flaw:
    """The flaw in the names of its schedule."""
    if expander.symmetry is None:
        return flaw
    state, flaws = expander.rules.first()
    for move in moves:
        state, flaws = expander.rules.apply(state, move)
    found = expander.counted(flaws) or expander.counted(expander.rules.judge_final(state))
    return next(each for each in found if each.kind == flaw.kind)


def path(expander: Expander, digests: Iterable[int]) -> Path:
    """The moves from the first state by way of these."""
    state, _ = expander.rules.first()
    names = tuple(range(expander.rules.nodes))
    moves, state = expander.settled(state)
    for digest in digests:
        way, state, by = _towards(expander, state, digest)
        moves += [_actual(expander, move, names) for move in way]
        names = tuple(names[by.index(node)] for node in range(expander.rules.nodes))
    return Path(tuple(moves), state, names)


def _towards(expander: Expander, state: State, digest: int) -> tuple[list[Move], State, Renaming]:
    """The moves to the state of a digest (one, and receipts that change nothing), that state, its names."""
    layout = expander.layout
    for move in expander.rules.moves(state):
        copies, after = expander.settled(expander.apply(state, move)[0])
        rows = np.array([layout.row(after)], np.uint32)
        digests, which = layout.canonical(rows)
        if int(digests[0]) == digest:
            row = layout.renamed(rows, which)[0].tolist()
            return [move, *copies], layout.state(row), layout.names[which[0]].renaming
    raise AssertionError("a state has a move that leads to it")


def _actual(expander: Expander, move: Move, names: Renaming) -> Move:
    return move if expander.symmetry is None else expander.symmetry.renamed_move(move, names)
