"""A consumer whose servers begin later lives: what waits goes on waiting for what it misses then."""

from __future__ import annotations

from whence.core.message import Packet
from whence.protocols.domains.clock import ListedClock
from whence.protocols.domains.consumer import Consumer

BASE = 1000


def test_what_waited_for_a_life_and_for_a_message_is_handed_on_after_both() -> None:
    consumer, handed = Consumer(ListedClock(4, 3)), list[Packet]()
    consumer.accept(0, 1, (1, 3, BASE, 2, 3, 1), ("from a",), 0, handed.append)
    consumer.hear_life(1, BASE, 0, handed.append)
    assert handed == []
    assert consumer.broken_rule() is None
    consumer.accept(2, 1, (), ("from c",), 0, handed.append)
    assert handed == [("from c",), ("from a",)]
    assert (len(consumer.held), consumer.holdback.waiters) == (0, {})
