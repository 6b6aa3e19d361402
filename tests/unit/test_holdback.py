"""What came too early waits under the first id that it misses, and leaves in order."""

from __future__ import annotations

from random import Random

import pytest

from whence.core.holdback import HoldBack, Key

Item = tuple[Key, frozenset[Key]]  # an id, and the ids that must come before it


class Receiver:
    """Delivers items in causal order with nothing but a hold-back."""

    def __init__(self) -> None:
        self.holdback: HoldBack[Item] = HoldBack()
        self.delivered: list[Key] = []

    def missing(self, item: Item) -> Key | None:
        return min(item[1] - set(self.delivered), default=None)

    def receive(self, key: Key, *needs: Key, now_us: int = 0) -> None:
        item = (key, frozenset(needs))
        missing = self.missing(item)
        if missing is not None:
            self.holdback.hold(key, item, now_us, missing)
            return
        self.delivered.append(key)
        for released, _ in self.holdback.release(key, self.missing):
            self.delivered.append(released)

    def broken_rule(self) -> str | None:
        return self.holdback.broken_rule(lambda key: key in self.delivered)


def test_a_message_waits_under_the_first_id_that_it_misses() -> None:
    receiver = Receiver()
    receiver.receive((0, 3), (0, 1), (0, 2), now_us=7)
    assert receiver.holdback.waiters == {(0, 1): [(0, 3)]}
    assert receiver.holdback.held[0, 3][1] == 7
    receiver.receive((0, 1))
    assert receiver.holdback.waiters == {(0, 2): [(0, 3)]}
    assert len(receiver.holdback) == 1
    receiver.receive((0, 2), (0, 1))
    assert receiver.delivered == [(0, 1), (0, 2), (0, 3)]
    assert not receiver.holdback.held
    assert not receiver.holdback.waiters


def test_what_waited_for_one_id_leaves_in_order_of_arrival_each_with_what_waited_for_it() -> None:
    receiver = Receiver()
    receiver.receive((2, 1), (0, 1))
    receiver.receive((1, 1), (0, 1))
    receiver.receive((3, 1), (2, 1))
    receiver.receive((0, 1))
    assert receiver.delivered == [(0, 1), (2, 1), (3, 1), (1, 1)]


def test_nothing_is_released_by_an_id_that_is_not_waited_for() -> None:
    receiver = Receiver()
    receiver.receive((1, 1), (0, 1))
    assert list(receiver.holdback.release((0, 2), receiver.missing)) == []
    assert list(receiver.holdback.held) == [(1, 1)]


@pytest.mark.parametrize("seed", range(30))
def test_any_order_of_arrival_gives_a_causal_order(seed: int) -> None:
    draw = Random(seed)
    needs: dict[Key, set[Key]] = {}
    for number in range(1, 13):
        for origin in range(3):
            known = sorted(needs)
            needs[origin, number] = {
                *draw.sample(known, min(len(known), 3)),
                *([(origin, number - 1)] if number > 1 else []),
            }
    receiver = Receiver()
    arrivals = list(needs)
    draw.shuffle(arrivals)
    for key in arrivals:
        receiver.receive(key, *needs[key])
        assert receiver.broken_rule() is None
    assert sorted(receiver.delivered) == sorted(needs)
    for at, key in enumerate(receiver.delivered):
        assert needs[key] <= set(receiver.delivered[:at])


def test_broken_rules_have_names() -> None:
    receiver = Receiver()
    receiver.receive((1, 1), (0, 1))
    assert receiver.broken_rule() is None
    receiver.holdback.held[1, 2] = (((1, 2), frozenset()), 0)
    assert receiver.broken_rule() == "each held message waits in exactly one place"
    del receiver.holdback.held[1, 2]
    receiver.delivered = [(0, 1)]
    assert receiver.broken_rule() == "(0, 1) is delivered and waited for"
    receiver.delivered = [(1, 1)]
    assert receiver.broken_rule() == "(1, 1) is held and delivered"


def test_waiters_go_through_plain_data() -> None:
    holdback: HoldBack[str] = HoldBack()
    holdback.hold((1, 2), "early", 5, (0, 1))
    holdback.hold((2, 1), "late", 6, (0, 1))
    saved = holdback.save_waiters()
    assert saved == [[[0, 1], [[1, 2], [2, 1]]]]
    again: HoldBack[str] = HoldBack()
    waiters = again.waiters
    again.restore_waiters(saved)
    assert again.waiters is waiters
    assert waiters == holdback.waiters
