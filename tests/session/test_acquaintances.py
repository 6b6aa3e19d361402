"""Whom a node without a list of members dials, and what it forgets."""

from __future__ import annotations

import random

from whence.session.acquaintances import (
    DIALS_MAX,
    KNOWN_MAX,
    LAST_RESORT_S,
    MESH_MAX,
    Acquaintance,
    Acquaintances,
)
from whence.session.addresses import Address

HERE = Address("127.0.0.1", 1)


def at(port: int) -> Address:
    return Address("127.0.0.1", port)


def fresh(me: str = "m") -> Acquaintances:
    return Acquaintances(me, HERE, 0.05, 5.0, random.Random(1))


def names(found: list[Acquaintance]) -> list[str | None]:
    return [each.name for each in found]


def test_the_smaller_name_dials_at_once_and_the_larger_after_a_moment() -> None:
    known = fresh()
    known.heard_of([("z", at(2)), ("a", at(3)), ("m", at(4))], 0.0)
    assert names(known.due(0.0, (), (), 0)) == ["z"]
    assert sorted(map(str, names(known.due(1.0, (), (), 0)))) == ["a", "z"]
    assert names(known.due(1.0, ("z",), (), 1)) == ["a"]


def test_a_contact_gets_its_name_when_it_is_met() -> None:
    known = fresh()
    known.add_contact(None, at(2), 0.0)
    known.add_contact(None, HERE, 0.0)  # a list of contacts for all: our own address is in it
    [contact] = known.due(0.0, (), (), 0)
    assert known.due(0.0, (), [contact], 0) == []
    assert known.missing(()) == [contact]
    known.met("c", at(9), contact)
    assert known.missing(("c",)) == []
    assert known.due(0.0, ("c",), (), 1) == []
    known.lost("c", 5.0, left=True, dialled=False)  # it may come back at the same address
    assert [each.address for each in known.due(9.0, (), (), 0)] == [at(2)]


def test_what_does_not_answer_is_asked_less_and_less_often_but_never_given_up() -> None:
    known = fresh()
    known.heard_of([("z", at(2))], 0.0)
    now_s, gaps = 0.0, []
    for _ in range(40):
        [each] = known.due(now_s, (), (), 0)
        known.failed(each, now_s)
        gaps.append(each.due_s - now_s)
        now_s = each.due_s
    assert gaps[0] <= 0.1
    assert max(gaps[:10]) <= 5.0
    assert LAST_RESORT_S / 2 <= gaps[-1] <= LAST_RESORT_S
    assert known.next_s(()) == now_s


def test_one_that_said_good_bye_is_forgotten_and_one_that_vanished_is_not() -> None:
    known = fresh()
    known.met("y", at(2), None)
    known.met("z", at(3), None)
    known.lost("y", 1.0, left=True, dialled=False)
    known.lost("z", 1.0, left=False, dialled=False)
    assert names(known.due(10.0, (), (), 0)) == ["z"]


def test_whoever_dialled_a_link_that_broke_dials_again_at_once() -> None:
    known = fresh()
    known.met("a", at(2), None)
    known.lost("a", 1.0, left=False, dialled=False)
    assert known.due(1.1, (), (), 0) == []
    known.lost("a", 1.0, left=False, dialled=True)
    assert names(known.due(1.1, (), (), 0)) == ["a"]


def test_what_a_node_says_of_itself_counts_more_than_hearsay() -> None:
    known = fresh()
    known.heard_of([("z", at(2))], 0.0)
    known.met("z", at(3), None)
    known.heard_of([("z", at(4))], 0.0)
    known.lost("z", 0.0, left=False, dialled=False)
    assert [each.address for each in known.due(10.0, (), (), 0)] == [at(3)]


def test_up_to_64_nodes_are_a_full_mesh() -> None:
    known = fresh()
    known.heard_of([(f"n{number:03}", at(100 + number)) for number in range(MESH_MAX - 1)], 0.0)
    assert len(known.due(2.0, (), (), 0)) == MESH_MAX - 1 == 63


def test_a_large_group_is_no_full_mesh() -> None:
    known = fresh()
    many = [(f"n{number:03}", at(100 + number)) for number in range(3 * MESH_MAX)]
    known.heard_of(many, 0.0)
    assert len(known.due(2.0, (), (), 0)) == DIALS_MAX
    linked = [name for name, _ in many[:DIALS_MAX]]
    assert known.due(2.0, linked, (), DIALS_MAX) == []
    assert len(known.due(2.0, linked[1:], (), DIALS_MAX - 1)) == 1
    assert len(known.due(2.0, linked, (), 0)) == DIALS_MAX  # those came to us


def test_a_liar_cannot_fill_the_memory_nor_push_out_what_works() -> None:
    known = fresh()
    known.add_contact("z", at(2), 0.0)
    known.met("y", at(3), None)
    known.heard_of([(f"liar{number}", at(4)) for number in range(2 * KNOWN_MAX)], 0.0)
    assert len(known) == KNOWN_MAX
    assert {"y", "z"} <= set(known.names)
    for each in known.due(2.0, (), (), 0)[:3]:
        known.failed(each, 2.0)
    known.heard_of([("x", at(5))], 3.0)  # there is room for those that never answered
    assert "x" in known.names
