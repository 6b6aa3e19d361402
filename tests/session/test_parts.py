"""Parts of a group that was split, without I/O: what each process knows of it, and compares."""

from __future__ import annotations

import random
from itertools import pairwise

from whence.session.addresses import Address
from whence.session.overlay_wire import Oldest
from whence.session.parts import COUNT_S, LOST_MAX, SETTLED_S, Lost, Part, Seen

PATIENCE_S = 5.0
HERE = Address("127.0.0.1", 1)


class Ring:
    """Processes with links, on which every word arrives at once."""

    def __init__(self, born: dict[str, int], links: list[tuple[str, str]]) -> None:
        self.now_s = 0.0
        self.parts = {name: Part(name, us, PATIENCE_S, 0.0) for name, us in born.items()}
        self.parts[min(born, key=born.__getitem__)].founded(0.0)
        self.links = set(links)
        self.words = 0

    def tell(self, name: str) -> None:
        for one, other in sorted(self.links):
            if name in (one, other):
                peer = other if name == one else one
                self.words += 1
                if self.parts[peer].hear(self.parts[name].word(self.now_s), self.now_s):
                    self.tell(peer)

    def run(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s += COUNT_S
            for name, part in self.parts.items():
                if part.tick(self.now_s):
                    self.tell(name)

    def seen(self, one: str, other: str) -> Seen | None:
        return self.parts[one].judge(self.parts[other].word(self.now_s), self.now_s)


def ring() -> Ring:
    return Ring({"a": 40, "b": 10, "c": 30, "d": 20}, [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")])


def test_all_of_a_part_know_its_oldest_process() -> None:
    group = ring()
    group.run(10)
    assert {part.oldest for part in group.parts.values()} == {(10, "b")}
    assert all(group.seen(one, other) is Seen.SAME for one in "abcd" for other in "abcd")


def test_nothing_is_concluded_before_both_are_settled() -> None:
    group = ring()
    assert group.seen("a", "b") is None
    group.run(SETTLED_S - COUNT_S)
    assert group.seen("a", "c") is None


def test_a_split_is_seen_from_both_parts_and_the_younger_gives_way() -> None:
    group = ring()
    group.run(10)
    group.links -= {("b", "c"), ("a", "d")}
    group.run(PATIENCE_S + SETTLED_S + 2 * COUNT_S)
    assert group.parts["c"].oldest == group.parts["d"].oldest == (20, "d")
    assert group.seen("a", "d") is Seen.YOUNGER
    assert group.seen("d", "a") is Seen.OLDER
    assert group.seen("c", "d") is Seen.SAME


def test_an_oldest_process_that_is_gone_is_not_believed_again() -> None:
    group = ring()
    group.run(10)
    stale = group.parts["c"].word(group.now_s)
    group.links -= {("a", "b"), ("b", "c")}
    group.run(PATIENCE_S + SETTLED_S + 2 * COUNT_S)
    assert {group.parts[name].oldest for name in "acd"} == {(20, "d")}
    assert not group.parts["a"].hear(stale, group.now_s)
    assert group.parts["a"].oldest == (20, "d")


def test_whoever_was_let_in_and_has_heard_nothing_yet_is_not_compared() -> None:
    group = ring()
    group.run(10)
    group.parts["e"] = Part("e", 99, PATIENCE_S, group.now_s)
    group.run(PATIENCE_S)
    assert group.seen("e", "a") is group.seen("a", "e") is None
    group.run(2 * SETTLED_S)
    assert group.seen("e", "a") is Seen.OLDER


def test_whoever_joins_takes_over_what_its_neighbour_has_known_for_long() -> None:
    group = ring()
    group.run(10)
    group.parts["e"] = Part("e", 99, PATIENCE_S, group.now_s)
    group.links.add(("d", "e"))
    group.run(COUNT_S)
    assert group.seen("e", "a") is Seen.SAME


def test_whoever_joins_holds_an_old_process_for_gone_when_the_others_do() -> None:
    group = ring()
    group.run(10)
    group.links -= {("a", "b"), ("b", "c")}
    group.run(PATIENCE_S - 2 * COUNT_S)
    group.parts["e"] = Part("e", 99, PATIENCE_S, group.now_s)
    group.links.add(("d", "e"))
    group.run(COUNT_S)  # nothing is new, and it is told all the same
    assert group.parts["e"].oldest == (10, "b")
    for _ in range(20):
        group.run(COUNT_S)
        assert group.seen("e", "a") in (None, Seen.SAME)
    assert group.seen("e", "a") is Seen.SAME
    assert group.parts["e"].oldest == (20, "d")


def test_a_neighbour_that_counts_without_end_is_passed_on_twice_a_second_at_most() -> None:
    part = Part("a", 50, PATIENCE_S, 0.0)
    told = sum(part.hear(Oldest(10, "x", count, 0, False), count / 1000) for count in range(10_000))
    assert told <= 2 * 10 / COUNT_S + 1


def test_lost_processes_are_called_less_and_less_often_and_never_given_up() -> None:
    lost, calls = Lost(), []
    lost.add("x", HERE, 0.0)
    for second in range(1, 1000):
        calls += [second for _ in lost.due((), float(second))]
    pauses = [later - earlier for earlier, later in pairwise(calls)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (1, 15)
    assert max(pause for pause, at in zip(pauses, calls, strict=False) if at < 100) <= 11
    lost.found("x")
    assert not lost.due((), 2000.0)


def test_only_so_many_are_looked_for_and_nobody_that_is_linked() -> None:
    lost = Lost()
    for number in range(3 * LOST_MAX):
        lost.add(f"p{number}", HERE, random.Random(number).random())
    assert len(lost.due((), 10.0)) == LOST_MAX
    assert lost.due([f"p{number}" for number in range(3 * LOST_MAX)], 100.0) == []
