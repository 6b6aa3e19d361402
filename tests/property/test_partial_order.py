"""The order that messages' names give is the happened-before of the run, whole."""

from __future__ import annotations

from itertools import combinations

import msgspec
import pytest

from whence.core.message import MessageId
from whence.core.partial_order import PartialOrder, Relation
from whence.errors import MisuseError, ParameterError
from whence.sim.engine import Engine
from whence.studies.prc.grid import changing
from whence.trace.schema import Kind

SCENARIO = changing(
    nodes=9,
    duration_us=4_000_000,
    joins_us=500_000,
    delays=[(0, 20_000), (3_000_000, 90_000)],
    shuffle_every_us=300_000,
    shuffle_stop_us=3_000_000,
    broadcast_start_us=200_000,  # some join while others broadcast
    broadcast_stop_us=3_000_000,
    broadcast_every_us=23_000,
)


class Deliveries:
    """What was broadcast and delivered, in the order of the run."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, Kind, MessageId]] = []

    def event(
        self, node: str, time_us: int, kind: Kind, origin: str | None = None, number: int = 0, *_: object
    ) -> None:
        if kind in (Kind.BROADCAST, Kind.DELIVER):
            self.rows.append((node, kind, MessageId(origin or "", number)))


def judged(seed: int) -> tuple[dict[str, PartialOrder], dict[MessageId, set[MessageId]], list[int]]:
    """The processes' orders, and beside them the past of every message by its definition."""
    recorder = Deliveries()
    Engine(msgspec.structs.replace(SCENARIO, seed=seed), None, recorder).run()
    orders: dict[str, PartialOrder] = {}
    names: dict[MessageId, tuple[MessageId, ...]] = {}
    past: dict[MessageId, set[MessageId]] = {}
    known: dict[str, set[MessageId]] = {}
    for node, kind, message in recorder.rows:
        order = orders.setdefault(node, PartialOrder(node))
        if kind is Kind.BROADCAST:
            names[message] = order.name_past()
            past[message] = set(known.get(node, set()))
        else:
            after = order.delivered(message, names[message])
            assert after <= past[message]
        known.setdefault(node, set()).update({message}, past[message])
    return orders, past, [len(each) for each in names.values()]


@pytest.mark.parametrize("seed", range(3))
def test_relations_are_those_of_happened_before(seed: int) -> None:
    orders, past, _ = judged(seed)
    messages = sorted(past)[::3]
    found = set()
    for one, other in combinations(messages, 2):
        expected = Relation.CONCURRENT
        if one in past[other]:
            expected = Relation.BEFORE
        elif other in past[one]:
            expected = Relation.AFTER
        for order in orders.values():
            if one in order._after and other in order._after:
                assert order.relation(one, other) is expected
        found.add(expected)
    assert len(found) == 3


def test_a_message_names_no_more_than_it_must() -> None:
    """No name of a message precedes another of its names."""
    recorder_orders, past, _ = judged(5)
    for order in recorder_orders.values():
        for message, after in order._after.items():
            foreign = [each for each in after if each.origin != message.origin]
            assert not any(one in past[other] for one in foreign for other in foreign)


def test_what_is_kept_is_bounded_and_what_is_gone_is_refused() -> None:
    order = PartialOrder("a", keep=3)
    for number in range(1, 6):
        order.delivered(MessageId("b", number), ())
    assert order.relation(MessageId("b", 3), MessageId("b", 5)) is Relation.BEFORE
    assert order.relation(MessageId("b", 5), MessageId("b", 5)) is Relation.SAME
    assert order.entries() == 1
    with pytest.raises(MisuseError, match="b:2"):
        order.relation(MessageId("b", 2), MessageId("b", 5))
    with pytest.raises(ParameterError, match="keep"):
        PartialOrder("a", keep=0)


def test_a_broadcast_that_failed_leaves_its_names_for_the_next() -> None:
    order = PartialOrder("a")
    order.delivered(MessageId("b", 1), ())
    order.take_back(order.name_past())
    assert order.name_past() == (("b", 1),)
    assert order.name_past() == ()


def test_a_message_that_names_itself_does_no_harm() -> None:
    order = PartialOrder("a")
    assert order.delivered(MessageId("b", 1), [MessageId("b", 1), MessageId("c", 4)]) == {("c", 4)}
    assert order.relation(MessageId("b", 1), MessageId("b", 1)) is Relation.SAME
