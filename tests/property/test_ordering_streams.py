"""What holds for every stream of rows, whatever is lost, doubled or delayed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from support.rows import run, stream
from whence.order import Arrival, CausalOrder, Ending

POLICIES = ("emit", "drop")
SEEDS = range(150)


def inversions(arrivals: Sequence[Arrival], policy: Any) -> list[tuple[str, str]]:
    """Pairs (before, after) that stand the wrong way round, by a closure over the rows.

    Only what had been said by the time the second of them was given out can be held against the order: a
    link between the two that comes even later could not be known.
    """
    order = CausalOrder(policy, remember_us=10_000)
    said: set[str] = set()
    named_by: dict[str, set[str]] = {}  # row -> the rows that name it
    placed: list[str] = []
    wrong: list[tuple[str, str]] = []

    def judge(endings: list[Ending]) -> None:
        for ending in endings:
            if ending.position is not None:
                later = future(named_by, ending.payload)
                wrong.extend((ending.payload, each) for each in placed if each in later)
                placed.append(ending.payload)

    for row in arrivals:
        judge(order.advance(row.at_us))
        if row.payload not in said:
            said.add(row.payload)
            for need in row.needs:
                named_by.setdefault(need, set()).add(row.payload)
        judge(order.offer(row))
    judge(order.end())
    return wrong


def future(named_by: Mapping[str, set[str]], id_: str) -> set[str]:
    """All that stands behind a row."""
    todo, found = list(named_by.get(id_, ())), set()
    while todo:
        each = todo.pop()
        if each not in found:
            found.add(each)
            todo += named_by.get(each, ())
    return found


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("told", [False, True])
def test_every_row_ends_once_and_none_the_wrong_way_round(policy: str, mixed: bool, told: bool) -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        arrivals = stream(seed, mixed=mixed, told=told, delay_us=180)
        endings = run(arrivals, policy)
        assert Counter(end.payload for end in endings) == Counter(row.payload for row in arrivals)
        assert [end.position for end in endings if end.position] == list(
            range(1, 1 + sum(end.position is not None for end in endings))
        )
        assert inversions(arrivals, policy) == []
        placed: set[str] = set()
        for end in endings:
            assert not placed & set(end.missing)
            assert (end.outcome == "predecessor expired") == bool(end.missing)
            if end.position is not None:
                needs = {need for row in arrivals if row.id == end.payload for need in row.needs}
                assert needs <= placed | set(end.missing)
                placed.add(end.payload)
        seen.update(end.outcome for end in endings)
    assert min(seen.values()) > 10  # each outcome was tried, and often
    assert len(seen) == 5


@pytest.mark.parametrize("policy", POLICIES)
def test_a_stream_without_loss_and_long_lives_is_only_sorted(policy: str) -> None:
    for seed in SEEDS:
        arrivals = stream(seed, lifetime_us=10_000, loss=0, twice=0)
        endings = run(arrivals, policy)
        assert {end.outcome for end in endings} <= {"in order", "waited"}
        assert inversions(arrivals, policy) == []


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("told", [False, True])
def test_batches_and_restarts_make_no_difference(policy: str, told: bool) -> None:
    """Cut the stream anywhere, save and restore, tell the time in between: the endings are the same."""
    for seed in SEEDS:
        draw = random.Random(f"cuts {seed}")
        arrivals = stream(seed, mixed=True, told=told)
        whole = run(arrivals, policy, remember_us=120)
        order = CausalOrder(policy, remember_us=120)
        endings = []
        for row in arrivals:
            if draw.random() < 0.3:
                order = CausalOrder(policy, remember_us=120, saved=order.save())
            if draw.random() < 0.3:
                endings += order.advance(row.at_us - draw.randrange(3))
            endings += order.offer(row)
        assert endings + order.end() == whole


def test_state_is_bounded_by_the_lifetime() -> None:
    """Ten times the rows, the same state."""
    sizes = []
    for rows in (500, 5000):
        order, largest = CausalOrder("emit", remember_us=100), 0
        for row in stream(7, rows):
            order.offer(row)
            largest = max(largest, len(order.save()))
        sizes.append(largest)
    assert sizes[1] < 1.5 * sizes[0]
