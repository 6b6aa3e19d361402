"""The order of one key's rows, case by case."""

from __future__ import annotations

from typing import Any

import pytest

from support.rows import run
from whence.order import Arrival, CausalOrder, Ending, IdMemory, OnceReader


def row(id_: str | None, at_us: int = 0, *needs: str, lifetime_us: int = 100, **told: int) -> Arrival:
    return Arrival(id_, at_us, lifetime_us, dict.fromkeys(needs) | told, id_)


def brief(endings: list[Ending]) -> list[tuple[Any, ...]]:
    return [(end.payload, end.outcome, end.missing, end.position) for end in endings]


def test_predecessors_first() -> None:
    endings = run([row("c", 0, "b"), row("b", 1, "a"), row("a", 2), row("d", 3, "a", "c")])
    assert brief(endings) == [
        ("a", "in order", [], 1),
        ("b", "waited", [], 2),
        ("c", "waited", [], 3),
        ("d", "in order", [], 4),
    ]


@pytest.mark.parametrize(("policy", "position"), [("emit", 1), ("drop", None)])
def test_a_missing_predecessor_and_the_policy(policy: str, position: int | None) -> None:
    order = CausalOrder(policy, remember_us=1000)
    assert order.offer(row("b", 0, "a")) == []
    assert order.next_deadline_us == 100
    assert order.advance(100) == []  # the deadline itself is still in time
    assert brief(order.advance(101)) == [("b", "predecessor expired", ["a"], position)]
    assert order.next_deadline_us is None
    # What came too late is told from what came twice.
    outcomes = [end.outcome for id_ in "aab" for end in order.offer(row(id_, 150))]
    assert outcomes == (
        ["late", "duplicate", "duplicate"] if policy == "emit" else ["in order", "duplicate", "duplicate"]
    )


def test_who_waits_longer_goes_on_when_the_predecessor_is_given_up() -> None:
    order = CausalOrder("drop", remember_us=1000)
    order.offer(row("b", 0, "a"))
    order.offer(row("c", 50, "a"))  # it names the same lost row, and has more time
    order.offer(row("d", 60, "b"))
    assert brief(order.advance(101)) == [
        ("b", "predecessor expired", ["a"], None),
        ("c", "predecessor expired", ["a"], 1),
        ("d", "predecessor expired", ["b", "a"], 2),
    ]
    assert brief(order.offer(row("a", 110))) == [("a", "late", [], None)]


def test_one_lost_row_does_not_stall_the_stream() -> None:
    """A chain of rows, 10 us apart, whose second is lost: only those that cannot know are dropped."""
    chain = [row(f"r{at}", 10 * at, *([f"r{at - 1}"] if at else [])) for at in range(100)]
    endings = run([each for each in chain if each.id != "r1"], "drop")
    assert [end.payload for end in endings if end.position is None] == ["r2"]
    assert [end.payload for end in endings if end.position] == ["r0", *(f"r{at}" for at in range(3, 100))]


def test_deadlines_in_order_of_deadline_however_far_time_jumps() -> None:
    """The release at 50 saves b from its deadline at 80, although nobody looks before 1000."""
    order = CausalOrder("drop", remember_us=1000)
    order.offer(row("b", 0, lifetime_us=80, a=50))
    assert brief(order.advance(1000)) == [("b", "predecessor expired", ["a"], 1)]


def test_what_is_released_at_its_own_deadline_is_dead() -> None:
    order = CausalOrder("drop", remember_us=1000)
    order.offer(row("b", 0, lifetime_us=50, a=50))
    assert brief(order.advance(1000)) == [("b", "predecessor expired", ["a"], None)]


def test_f5_told_deadlines() -> None:
    """m1 (deadline 100) -> m2 (6) -> m3 (103): m2's entry carries the largest deadline of its past."""
    order = CausalOrder("drop", remember_us=1000)
    assert order.offer(row("m3", 0, lifetime_us=103, m2=100)) == []
    assert order.advance(50) == []
    assert brief(order.offer(row("m1", 50, lifetime_us=50))) == [("m1", "in order", [], 1)]
    assert brief(order.advance(101)) == [("m3", "predecessor expired", ["m2"], 2)]


@pytest.mark.parametrize("horizon_us", [0, 103])
def test_f5_through_a_dropped_row(horizon_us: int) -> None:
    """m2 came and was dropped: m3 inherits its need of m1. How long depends on the largest lifetime."""
    order = CausalOrder("drop", remember_us=1000, horizon_us=horizon_us)
    order.offer(row("m2", 0, "m1", lifetime_us=6))
    order.offer(row("m3", 1, "m2", lifetime_us=102))
    assert brief(order.advance(7))[0] == ("m2", "predecessor expired", ["m1"], None)
    outcomes = [end.payload for end in order.offer(row("m1", 50)) if end.position]
    assert outcomes == (["m1", "m3"] if horizon_us else [])


def test_emit_gives_out_what_waits_in_the_past_first() -> None:
    order = CausalOrder("emit", remember_us=1000)
    order.offer(row("x", 0, "lost", lifetime_us=500))
    order.offer(row("m", 1, "x", lifetime_us=10))
    assert brief(order.advance(12)) == [
        ("x", "predecessor expired", ["lost"], 1),
        ("m", "waited", [], 2),
    ]
    assert brief(order.offer(row("lost", 13))) == [("lost", "late", [], None)]


def test_what_a_late_row_needed_is_late_too() -> None:
    """c went without b; then b comes and says that it needs a: a stands before c, so it is late as well."""
    endings = run([row("c", 0, "b"), row("b", 200, "a"), row("a", 201)])
    assert brief(endings) == [
        ("c", "predecessor expired", ["b"], 1),
        ("b", "late", [], None),
        ("a", "late", [], None),
    ]


@pytest.mark.parametrize("policy", ["emit", "drop"])
def test_circles_end(policy: str) -> None:
    endings = run([row("a", 0, "b"), row("b", 1, "a"), row("c", 2, "c")], policy)
    assert {end.payload for end in endings} == {"a", "b", "c"}
    assert brief(endings)[0] == ("c", "in order", [], 1)  # who names itself is taken not to


def test_ids_are_forgotten_and_no_id_is_no_duplicate() -> None:
    order = CausalOrder("emit", remember_us=50)
    order.offer(row("a", 0))
    assert order.forgotten_us == 150
    assert order.offer(row("a", 150))[0].outcome == "duplicate"
    assert order.offer(row("a", 151))[0].outcome == "in order"
    assert [end.outcome for end in order.offer(row(None, 151)) + order.offer(row(None, 151))] == [
        "in order"
    ] * 2


def test_by_default_ids_are_known_for_the_largest_lifetime_so_far() -> None:
    order = CausalOrder("emit")
    order.offer(Arrival("a", 0, 10, {}, "a"))
    assert order.forgotten_us == 20
    order.offer(Arrival("b", 1, 100, {}, "b"))
    assert order.forgotten_us == 201
    again = CausalOrder("emit", saved=order.save())
    assert [again.offer(Arrival("b", us, 10, {}, "b"))[0].outcome for us in (201, 202)] == [
        "duplicate",
        "in order",
    ]


def test_a_long_chain_needs_no_recursion() -> None:
    chain = [row(f"r{at}", 0, f"r{at + 1}") for at in range(5000)]
    for policy in ("emit", "drop"):
        order = CausalOrder(policy, remember_us=1000)
        assert not [end for each in chain for end in order.offer(each)]
        assert len(order.end()) == 5000


def test_vector_clocks_know_the_whole_past() -> None:
    """b:1 has seen a:2. a:2 is lost, a:1 comes late: the clock tells that it stands before b:1."""
    order = CausalOrder("emit", remember_us=1000, vector=True)
    order.offer(row("b:1", 0, "a:2"))
    assert brief(order.advance(101)) == [("b:1", "predecessor expired", ["a:2"], 1)]
    assert order.offer(row("a:1", 110))[0].outcome == "late"
    assert order.offer(row("a:3", 110, "a:2"))[0].position == 2
    waiting = CausalOrder("drop", remember_us=1000, vector=True)
    waiting.offer(row("a:2", 0, "a:1", lifetime_us=500))
    waiting.offer(row("b:1", 0, lifetime_us=400, **{"a:3": 50}))
    assert waiting.advance(51) == []  # a:3 is given up, but a:2 is here and stands before b:1
    assert [end.payload for end in waiting.offer(row("a:1", 60))] == ["a:1", "a:2", "b:1"]


def test_old_numbers_of_a_clock_are_known_without_memory() -> None:
    order = CausalOrder("emit", remember_us=10, vector=True)
    order.offer(row("a:1", 0))
    assert order.offer(row("b:1", 5000, "a:1"))[0].outcome == "in order"
    assert order.offer(row("a:1", 5001))[0].outcome == "late"


class CountedId(str):
    """An id that counts how often it is compared: a search through a list of them shows."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedId.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


@pytest.mark.parametrize("policy", ["emit", "drop"])
@pytest.mark.parametrize("comes", [True, False])
def test_one_row_with_thousands_of_needs_is_linear(policy: str, comes: bool) -> None:
    CountedId.compared = 0
    ids = [CountedId(f"x{number}") for number in range(2_000)]
    order = CausalOrder(policy, remember_us=10**12)
    order.offer(Arrival("wide", 0, 10**6, dict.fromkeys(ids, 10**5), None))
    endings = [ending for id_ in ids if comes for ending in order.offer(Arrival(id_, 1, 10**6, {}, None))]
    endings += order.end()
    compared = CountedId.compared
    assert set(endings[-1].missing) == (set() if comes else set(ids))
    assert compared < 60 * len(
        ids
    )  # needs of one deadline are sorted by id; a search would be 1,000 for each


def test_thousands_of_origins_without_their_first_are_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    splits = 0

    def split(id_: str) -> tuple[str, int]:
        nonlocal splits
        splits += 1
        origin, _, number = id_.rpartition(":")
        return origin, int(number)

    monkeypatch.setattr("whence.order._split", split)
    order = CausalOrder("emit", vector=True)
    for at in range(1_000):
        order.offer(Arrival(f"o{at}:2", at, 10**6, {f"o{at}:1": None}, at))
    assert [ending.payload for ending in order.end()] == list(range(1_000))
    assert splits < 20 * 1_000


def test_ids_that_are_remembered_are_not_gone_through_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every 4,096 rows there was a search through all that is known: 1,000,000 ids cost a row 244 of them."""
    visited, forget = 0, IdMemory.forget

    def counted(memory: IdMemory) -> None:
        nonlocal visited
        visited += len(memory.state.placed)
        forget(memory)

    monkeypatch.setattr(IdMemory, "forget", counted)
    order = CausalOrder("emit", remember_us=10**12)
    for at in range(60_000):
        order.offer(Arrival(f"r{at}", at, 10, {}, None))
    assert order.remembered == 60_000
    assert visited < 2 * 60_000


def test_a_long_stream_keeps_no_more_than_twice_what_it_remembers() -> None:
    order = CausalOrder("emit", remember_us=5_000)
    most = 0
    for at in range(60_000):
        order.offer(Arrival(f"r{at}", at, 10, {}, None))
        most = max(most, order.remembered)
    assert most < 2 * 5_010 + 4_096 + 4_096


def test_what_is_missing_is_named_once() -> None:
    order = CausalOrder("drop", remember_us=1_000)
    order.offer(Arrival("b", 0, 10, {"a": 20}, None))
    order.offer(Arrival("c", 0, 15, {"b": None, "a": 20}, None))
    assert [ending.missing for ending in order.end()] == [["a"], ["b", "a"]]


def test_records_that_were_written_again_are_not_new() -> None:
    """Batch 1 was written in part, and again; each partition of the stream and of the topic counts alone."""
    written = ["0.0.0", "0.1.0", "1.0.0", "1.0.1", "1.0.0", "1.0.1", "1.0.2", "1.1.0", "2.0.0", "1.0.2"]
    reader = OnceReader()
    assert [id_ for id_ in written if reader.is_new(id_, 7)] == [
        "0.0.0", "0.1.0", "1.0.0", "1.0.1", "1.0.2", "1.1.0", "2.0.0"
    ]  # fmt: skip
    assert reader.is_new("0.0.0", 8)
