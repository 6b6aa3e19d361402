"""Contact plans: order, joining, checks, digest, statistics."""

from __future__ import annotations

import random

import pytest

from whence.errors import ContactPlanError
from whence.overlay.contact_statistics import spread, statistics
from whence.overlay.contacts import ChangeKind, Contact, Presence, make_plan

S = 1_000_000
NAMES = ["ann", "bob", "eve"]


def test_contacts_are_put_in_order_and_joined() -> None:
    rows = [(2, 1, 50, 60), (1, 0, 5, 9), (0, 1, 8, 12), (1, 0, 12, 20), (0, 1, 22, 22), (0, 2, 5, 6)]
    plan = make_plan(NAMES, rows)
    assert list(plan.contacts) == [(0, 1, 5, 20), (0, 2, 5, 6), (0, 1, 22, 22), (1, 2, 50, 60)]
    assert plan.joined == 2
    assert plan.contacts[0] == Contact(a=0, b=1, start_us=5, stop_us=20)
    assert plan.contacts[-1].stop_us == plan.stop_us == 60
    assert list(plan.contacts.start_us) == [5, 5, 22, 50]
    assert list(plan.presence) == [Presence(node, 0, 60) for node in range(3)]


def test_an_instant_at_the_end_is_within_the_plan() -> None:
    plan = make_plan(NAMES, [(0, 1, 7, 7)])
    assert plan.stop_us == 8
    with pytest.raises(ContactPlanError, match="is away then"):
        make_plan(NAMES, [(0, 1, 7, 7)], stop_us=7)


@pytest.mark.parametrize(
    ("contacts", "presence", "stop_us", "reason"),
    [
        ([(0, 3, 1, 2)], None, None, "no node 3"),
        ([(-1, 1, 1, 2)], None, None, "no node -1"),
        ([(1, 1, 1, 2)], None, None, "meets itself"),
        ([(0, 1, 2, 1)], None, None, "lasts from 2 to 1"),
        ([(0, 1, -1, 1)], None, None, "lasts from -1"),
        ([(0, 1, 1, 9)], None, 5, "ends at 5"),
        ([(0, 1, 1, 2**63)], None, None, "lasts from 1"),
        ([(0, 1, 1, 9)], [(0, 0, 9), (1, 0, 5), (1, 6, 9)], None, "'bob' is away"),
        ([(0, 1, 1, 9)], [(0, 0, 9)], None, "'bob' is away"),
        ([], [(0, 4, 4)], None, "no time at all"),
    ],
)
def test_impossible_plans_are_refused(contacts, presence, stop_us, reason) -> None:
    with pytest.raises(ContactPlanError, match=reason):
        make_plan(NAMES, contacts, presence, stop_us)


@pytest.mark.parametrize("names", [["a", "a"], ["a", ""], ["a", 3]])
def test_names_must_tell_nodes_apart(names) -> None:
    with pytest.raises(ContactPlanError, match="name"):
        make_plan(names, [])


def test_presence_that_touches_is_joined() -> None:
    plan = make_plan(NAMES, [(0, 1, 3, 8)], [(0, 0, 5), (1, 2, 9), (0, 5, 9), (2, 1, 2)])
    assert list(plan.presence) == [(0, 0, 9), (2, 1, 2), (1, 2, 9)]


def test_the_digest_knows_every_part() -> None:
    rows = [(0, 1, 5, 9)]
    plan = make_plan(NAMES, rows)
    assert plan == make_plan(NAMES, reversed(rows))
    assert hash(plan) == hash(make_plan(NAMES, rows))
    others = [
        make_plan(["ann", "bob", "joe"], rows), make_plan(NAMES, [(0, 1, 5, 8)], stop_us=9),
        make_plan(NAMES, rows, stop_us=10), make_plan(NAMES, rows, [(0, 0, 9), (1, 0, 9)]),
        make_plan(["annb", "ob", "eve"], rows),
    ]  # fmt: skip
    assert len({plan.sha256, *(other.sha256 for other in others)}) == 6
    # Written down once: the digest is the same on every machine.
    assert plan.sha256.startswith("eadb98cf1c75")


def test_changes_never_link_a_node_that_is_away() -> None:
    draw = random.Random(5)
    presence = [(node, low, low + 40) for node in range(3) for low in (0, 50)]
    contacts = []
    for _ in range(60):
        a, b = draw.sample(range(3), 2)
        start = draw.randrange(90)
        room = (40 if start < 40 else 90) - start
        if start not in range(40, 50):
            contacts.append((a, b, start, start + draw.randrange(min(room, 6) + 1)))
    contacts = [row for row in contacts if row[2] not in (40, 90)]
    plan = make_plan(NAMES, contacts, presence)
    here: set[int] = set()
    up: set[tuple[int, int]] = set()
    before = 0
    for at_us, kind, a, b in plan.changes():
        assert at_us >= before
        before = at_us
        if kind is ChangeKind.ENTER:
            here.add(a)
        elif kind is ChangeKind.LEAVE:
            here.remove(a)
            assert not any(a in pair for pair in up)
        elif kind is ChangeKind.UP:
            assert {a, b} <= here
            assert (a, b) not in up
            up.add((a, b))
        else:
            up.remove((a, b))
    assert not up
    assert not here


def test_lasting_makes_instants_last_as_long_as_both_stay() -> None:
    presence = [(0, 0, 100), (1, 0, 30), (2, 0, 100)]
    plan = make_plan(NAMES, [(0, 1, 25, 25), (0, 2, 10, 10), (0, 2, 15, 40)], presence).lasting(20)
    assert list(plan.contacts) == [(0, 2, 10, 40), (0, 1, 25, 30)]


def test_between_cuts_and_moves() -> None:
    plan = make_plan(NAMES, [(0, 1, 5, 15), (1, 2, 12, 12), (0, 2, 30, 40)], stop_us=50).between(10, 30)
    assert list(plan.contacts) == [(0, 1, 0, 5), (1, 2, 2, 2)]
    assert list(plan.presence) == [(node, 0, 20) for node in range(3)]
    with pytest.raises(ContactPlanError):
        plan.between(5, 5)


def test_statistics_by_hand() -> None:
    rows = [(0, 1, 0, 10 * S), (0, 1, 30 * S, 50 * S), (1, 2, 40 * S, 40 * S)]
    found = statistics(make_plan(NAMES, rows, [(0, 0, 60 * S), (1, 0, 60 * S), (2, 35 * S, 55 * S)]))
    assert (found.nodes, found.present_max, found.contacts, found.instants, found.pairs) == (3, 3, 3, 1, 2)
    assert (found.contact_s.least, found.contact_s.greatest, found.contact_s.mean) == (0, 20, 10)
    assert found.contact_s.deviation == pytest.approx((200 / 3) ** 0.5)
    assert (found.gap_s.count, found.gap_s.mean) == (1, 20)
    assert (found.stay_s.least, found.stay_s.greatest) == (20, 60)
    assert found.contacts_per_node.mean == 2
    assert found.neighbours_mean == pytest.approx(60 / 140)


def test_an_empty_plan_has_statistics() -> None:
    found = statistics(make_plan([], []))
    assert (found.nodes, found.contacts, found.contact_s, found.stay_s, found.neighbours_mean) == (
        0,
        0,
        None,
        None,
        0,
    )


def test_a_spread_of_numbers_that_floats_cannot_hold() -> None:
    found = spread([2**62, 2**62 + 2])
    assert found is not None
    assert found.deviation == 1.0
