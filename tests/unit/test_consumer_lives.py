"""A consumer whose servers begin later lives: what waits goes on waiting for what it misses then."""

from __future__ import annotations

import pytest

from whence.core.effects import Deliver, Effects, Missed, Send, Tell
from whence.core.group import LATER_LIVES, LIFE_BITS
from whence.core.lives import BEGIN, CUT_OFF, OVER, WELCOME, RolledBack
from whence.core.message import Message, NodeId, Packet
from whence.protocols import registry
from whence.protocols.domains.clock import ListedClock
from whence.protocols.domains.consumer import Consumer
from whence.protocols.domains.matrix import Matrix, MatrixPacket

BASE = 1000
FIRST, SECOND = (
    LATER_LIVES + (5 << LIFE_BITS),
    LATER_LIVES + (9 << LIFE_BITS),
)  # lives of two copies of a store


class Handed(list[tuple[int, Packet]]):
    """What was handed on, with the place that it came from."""

    def __call__(self, source: int, packet: Packet) -> None:
        self.append((source, packet))


def test_what_waited_for_a_life_and_for_a_message_is_handed_on_after_both() -> None:
    consumer, handed = Consumer(ListedClock(4, 3)), Handed()
    consumer.accept(0, 1, (1, 3, BASE, 2, 3, 1), ("from a",), 0, handed)
    consumer.hear_life(1, BASE, 0, handed)
    assert handed == []
    assert consumer.broken_rule() is None
    consumer.accept(2, 1, (), ("from c",), 0, handed)
    assert handed == [(2, ("from c",)), (0, ("from a",))]
    assert (len(consumer.held), consumer.holdback.waiters) == (0, {})


def test_what_an_earlier_life_sent_and_lost_is_told_and_not_waited_for() -> None:
    consumer, handed = Consumer(ListedClock(3, 2)), Handed()
    consumer.accept(0, 1, (), ("first",), 0, handed)
    consumer.accept(1, 1, (0, 2, 3), ("after the third",), 0, handed)
    consumer.hear_life(0, BASE, 3, handed)  # others have told it that it had sent three
    assert handed == [(0, ("first",)), (1, ("after the third",))]
    assert consumer.skipped == [(0, 2, 3)]
    consumer.accept(0, BASE + 1, (), ("later",), 0, handed)
    assert handed[-1] == (0, ("later",))
    assert (len(consumer.held), consumer.marks) == (0, {})


def test_what_is_held_of_two_lives_is_handed_on_in_order() -> None:
    consumer, handed = Consumer(ListedClock(3, 2)), Handed()
    consumer.accept(0, 1, (1, 2, 1), ("one",), 0, handed)
    consumer.hear_life(0, BASE, 1, handed)
    consumer.accept(0, BASE + 1, (), ("two",), 0, handed)
    consumer.hear_life(0, 2 * BASE, BASE + 1, handed)
    consumer.accept(0, 2 * BASE + 1, (), ("three",), 0, handed)
    kept = Consumer(ListedClock(3, 2))
    kept.restore(consumer.save(), lambda *fields: tuple(fields))
    for each in (consumer, kept):
        handed.clear()
        each.accept(1, 1, (), ("it",), 0, handed)
        each.begin_lives(handed)  # as the server does after every message
        assert handed == [(1, ("it",)), (0, ("one",)), (0, ("two",)), (0, ("three",))]
        assert (each.skipped, each.marks, len(each.held)) == ([], {}, 0)


def test_what_a_retired_server_sent_and_nobody_brings_is_told() -> None:
    c = Matrix("c", "abc")
    for peer in "ab":
        c.link_up(peer, 0)
    assert c.receive("b", MatrixPacket(1, 1, 1, (0, 2, 2), b"after two of a"), 0) == []
    effects = c.link_down("a", 0)
    assert effects == [Deliver(Message("b", 1, b"after two of a")), Missed("a>c", 1, 2, OVER)]


def test_a_server_that_comes_back_gets_no_message_that_says_too_little() -> None:
    """A set of updates means what it says only after those before it, which another life has not."""
    b = Matrix("b", "abcd")
    for peer in "acd":
        b.link_up(peer, 0)
    b.receive("d", MatrixPacket(3, 1, 1, (3, 0, 1), b"d had sent to a"), 0)
    b.send("a", b"tells a of that", 0)
    b.send("a", b"tells nothing new", 0)
    [cut] = b.command(WELCOME, ("a", "1"), 0)  # the second was not acknowledged
    assert (cut.packet.number, cut.packet.sent) == (0, 2)
    [sent] = b.send("a", b"tells all", 0)
    assert sent.packet.stamp == (3, 0, 1)


def test_what_was_sent_while_a_server_was_away_is_for_its_next_life() -> None:
    b = Matrix("b", "abcd")
    for peer in "acd":
        b.link_up(peer, 0)
    b.receive("d", MatrixPacket(3, 1, 1, (3, 0, 1), b"d had sent to a"), 0)
    b.send("a", b"tells a of that", 0)
    b.command(CUT_OFF, ("a",), 0)
    [whole] = b.send("a", b"tells all", 0)
    assert whole.packet.stamp == (3, 0, 1)
    b.send("a", b"tells what is new", 0)
    again = Matrix("b", "abcd")
    again.restore(b.save())
    for each in (b, again):
        [cut] = each.command(WELCOME, ("a", "3"), 0)
        assert cut.packet.sent == 1


def test_what_a_life_sent_that_another_has_overtaken_is_told_once() -> None:
    """A store was copied, and both go on: the one that began later is heard first."""
    c = Matrix("c", "abc")
    c.link_up("a", 0)
    c.receive("a", MatrixPacket(0, 1, 1, (), b"before"), 0)
    assert c.receive("a", MatrixPacket(0, -2 * BASE, 1, (), b""), 0) == []
    late = MatrixPacket(0, BASE + 1, BASE + 1, (), b"of the other")
    told = Missed("a>c", 2, BASE + 1, OVER)  # whatever it sent before that is not given here either
    kept = Matrix("c", "abc")
    kept.restore(c.save())
    for each in (c, kept):
        assert told in each.receive("a", late, 0)
        assert told not in each.receive("a", late, 0)


def sent_to(peer: NodeId, effects: Effects) -> list[Packet]:
    return [effect.packet for effect in effects if isinstance(effect, Send) and peer in effect.to]


def got(effects: Effects) -> list[bytes]:
    return [effect.message.payload for effect in effects if isinstance(effect, Deliver)]


@pytest.mark.parametrize("tells", ["c", "a"])
@pytest.mark.parametrize("spoken", [0, 2])
@pytest.mark.parametrize("protocol", ["matrix", "domains"])
def test_a_server_that_hears_of_a_copy_of_its_store_begins_beyond_it_at_once(
    protocol: str, spoken: int, tells: NodeId
) -> None:
    """a never met the copy: it must not wait for what only the copy has sent, or might have.

    It is c that met the copy and tells b, or, where c is gone, a, which waits for that.
    """
    params = {"domains": [["a", "b", "c"]]} if protocol == "domains" else {}
    a, b, c, copy = (registry.make(protocol, name, "abc", params) for name in ("a", "b", "c", "b"))
    for core in (a, b, c, copy):
        for peer in "abc".replace(core.me, ""):
            core.link_up(peer, 0)

    def give(core: object, peer: NodeId, packets: list[Packet]) -> Effects:
        return [effect for packet in packets for effect in core.receive(peer, packet, 0)]  # type: ignore[attr-defined]

    begun = b.command(BEGIN, (str(FIRST),), 0)
    give(a, "b", sent_to("a", begun))
    give(c, "b", sent_to("c", begun))
    give(c, "b", sent_to("c", copy.command(BEGIN, (str(SECOND),), 0)))  # the copy meets c alone
    for _ in range(spoken):
        copy.send("a", b"lost with the copy", 0)
    give(c, "b", sent_to("c", copy.send("c", b"of the copy", 0)))
    held = give(a, "c", sent_to("a", c.send("a", b"of c", 0)))
    assert got(held) == [], "c knows that b may have sent to a before"

    told = sent_to("b", held if tells == "a" else c.command(WELCOME, ("b", "0"), 0))
    effects = give(b, tells, told)
    assert not give(copy, "a", sent_to("b", held)), "the copy itself is not surprised"
    assert [each for each in effects if isinstance(each, Tell) and isinstance(each.news, RolledBack)]
    effects += b.send("a", b"of b", 0)
    [*_, last] = sent_to("a", effects)
    assert last.number > SECOND + (1 << LIFE_BITS)  # type: ignore[attr-defined] # no number of the copy's life
    at_a = give(a, "b", sent_to("a", effects))
    assert got(at_a) == [b"of c", b"of b"]
    assert not a.explain()
    missed = [each for each in at_a if isinstance(each, Missed)]
    assert bool(missed) == bool(spoken), "what the copy sent and lost is told, and nothing else"


@pytest.mark.parametrize("hears", ["a cut", "a life"])
def test_what_a_life_sent_while_a_copy_was_heard_is_told_though_none_of_it_comes(hears: str) -> None:
    """a had retired c, which met the copy meanwhile: what a sent then was never meant for c's queue."""
    a, copy, c = Matrix("a", "abc"), Matrix("a", "abc"), Matrix("c", "abc")
    for core, peer in ((a, "c"), (copy, "c"), (c, "a")):
        core.link_up(peer, 0)
    for packet in sent_to("c", a.command(BEGIN, (str(FIRST),), 0)):
        c.receive("a", packet, 0)
    for packet in sent_to("c", copy.command(BEGIN, (str(SECOND),), 0)):
        c.receive("a", packet, 0)
    a.send("c", b"lost", 0)
    a.send("c", b"lost too", 0)
    verb = (WELCOME, ("c", "0")) if hears == "a cut" else (BEGIN, (str(SECOND + (1 << LIFE_BITS)),))
    effects = [effect for packet in sent_to("c", a.command(*verb, 0)) for effect in c.receive("a", packet, 0)]
    assert effects == [Missed("a>c", FIRST + 1, FIRST + 2, OVER)]
