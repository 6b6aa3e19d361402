"""Lives of the baselines and of barrier: two copies of one store never give two messages one number."""

from __future__ import annotations

import pytest

from whence.core.effects import Deliver, Effects, Missed, Send
from whence.core.group import LATER_LIVES, LIFE_BITS, is_base
from whence.core.lives import BEGIN, OVER, WELCOME
from whence.core.message import NodeId, Packet
from whence.protocols import registry
from whence.protocols.baselines.flooding import Flooding

MEMBERS = ("a", "b", "c")
FIRST, SECOND = (
    LATER_LIVES + (5 << LIFE_BITS),
    LATER_LIVES + (9 << LIFE_BITS),
)  # where the lives of two copies of b's store begin


def member(protocol: str, me: NodeId) -> Flooding:
    core = registry.make(protocol, me, MEMBERS, {"relay": "need"})
    assert isinstance(core, Flooding)
    for peer in MEMBERS:
        if peer != me:
            core.link_up(peer, 0)
    return core


def sent_to(peer: NodeId, effects: Effects) -> list[Packet]:
    return [effect.packet for effect in effects if isinstance(effect, Send) and peer in effect.to]


def given(core: Flooding, peer: NodeId, packets: list[Packet]) -> None:
    for packet in packets:
        core.receive(peer, packet, 0)


@pytest.mark.parametrize("spoken", [0, 2])
@pytest.mark.parametrize("protocol", ["fifo", "vector"])
def test_a_node_that_hears_of_a_copy_that_went_further_begins_beyond_it(protocol: str, spoken: int) -> None:
    a, b, c, copy = (member(protocol, name) for name in ("a", "b", "c", "b"))
    begun = b.command(BEGIN, (str(FIRST),), 0)
    given(a, "b", sent_to("a", begun))
    given(c, "b", sent_to("c", begun))
    # The copy meets c alone.
    given(c, "b", sent_to("c", copy.command(BEGIN, (str(SECOND),), 0)))
    said = [sent_to("c", copy.broadcast(b"of the copy", 0)) for _ in range(spoken)]
    for packets in said:
        given(c, "b", packets)
    # c welcomes b: what it has of b is the copy's, and a gets what c keeps of it.
    welcome = c.command(WELCOME, ("b", "0"), 0)
    given(a, "c", sent_to("a", welcome))
    effects: Effects = []
    for packet in sent_to("b", welcome):
        effects += b.receive("c", packet, 0)
    effects += b.broadcast(b"of b", 0)
    numbers = [packet[1] for packet in sent_to("a", effects) if packet[1] > 0]
    assert numbers, "b says what it broadcasts"
    assert min(numbers) > SECOND + spoken, "no number of the copy is used again"
    assert is_base(min(numbers) - 1), "it begins a life of its own"
    given(a, "b", sent_to("a", effects))
    assert not list(a.explain()), "whoever never met the copy follows b all the same"


@pytest.mark.parametrize("spoken", [1, 3])
def test_a_node_of_barrier_that_hears_of_a_copy_begins_beyond_what_that_may_have_said(spoken: int) -> None:
    b, c, copy = (registry.make("barrier", name, MEMBERS, {}) for name in ("b", "c", "b"))
    for core, peer in ((b, "c"), (c, "b"), (copy, "c")):
        core.link_up(peer, 0)
    b.command(BEGIN, (str(FIRST),), 0)
    copy.command(BEGIN, (str(SECOND),), 0)
    said = [sent_to("c", copy.broadcast(b"of the copy", 0)) for _ in range(spoken)]
    for packet in said[0]:  # the others are still on their way, or went to somebody else
        c.receive("b", packet, 0)
    for packet in sent_to("b", c.command(WELCOME, ("b", "0"), 0)):
        b.receive("c", packet, 0)
    [mine] = sent_to("c", b.broadcast(b"of b", 0))
    assert mine[1] not in {packets[0][1] for packets in said}
    assert is_base(mine[1] - 1), "it begins a life of its own"
    b.check()


@pytest.mark.parametrize("comes", ["a cut", "the next message"])
@pytest.mark.parametrize("protocol", ["fifo", "vector", "barrier"])
def test_what_a_life_said_while_a_copy_was_heard_is_told(protocol: str, comes: str) -> None:
    """b had retired c, which met a copy of b's store meanwhile: what b said then is not queued for c."""
    b, copy, c = (registry.make(protocol, name, MEMBERS, {}) for name in "bbc")
    for core, peer in ((b, "c"), (copy, "c"), (c, "b")):
        core.link_up(peer, 0)

    def hear(effects: Effects) -> Effects:
        return [effect for packet in sent_to("c", effects) for effect in c.receive("b", packet, 0)]

    hear(b.command(BEGIN, (str(FIRST),), 0))
    hear(b.broadcast(b"heard", 0))
    hear(copy.command(BEGIN, (str(SECOND),), 0))
    hear(copy.broadcast(b"of the copy", 0))
    b.broadcast(b"lost", 0)
    b.broadcast(b"lost too", 0)
    if comes == "a cut":
        told, last = hear(b.command(WELCOME, ("c", "0"), 0)), FIRST + 3
    else:
        told, last = hear(b.broadcast(b"too late", 0)), FIRST + 4
    assert [each for each in told if isinstance(each, Missed)] == [Missed("b", FIRST + 2, last, OVER)]


@pytest.mark.parametrize("first", ["what names it", "the later life"])
@pytest.mark.parametrize("protocol", ["vector", "barrier"])
def test_what_a_message_names_of_a_life_that_another_has_overtaken_is_told(protocol: str, first: str) -> None:
    """b's last words reached a alone, and b began again with an old copy of its store."""
    a, b, copy, c = (registry.make(protocol, name, MEMBERS, {}) for name in "abbc")
    for core, peers in ((a, "bc"), (b, "ac"), (copy, "ac"), (c, "ab")):
        for peer in peers:
            core.link_up(peer, 0)

    def hear(peer: NodeId, effects: Effects) -> Effects:
        return [effect for packet in sent_to("c", effects) for effect in c.receive(peer, packet, 0)]

    for effects in (b.command(BEGIN, (str(FIRST),), 0), b.broadcast(b"heard", 0)):
        hear("b", effects)
        for packet in sent_to("a", effects):
            a.receive("b", packet, 0)
    copy.restore(b.save())
    for packet in sent_to("a", b.broadcast(b"last words", 0)):
        a.receive("b", packet, 0)
    follows = a.broadcast(b"after the last words", 0)
    later = [*copy.command(BEGIN, (str(SECOND),), 0), *copy.broadcast(b"of another life", 0)]
    order = [("a", follows), ("b", later)] if first == "what names it" else [("b", later), ("a", follows)]
    told = [effect for peer, effects in order for effect in hear(peer, effects)]
    [at] = [at for at, each in enumerate(told) if isinstance(each, Missed)]
    assert told[at] == Missed("b", FIRST + 2, FIRST + 2, OVER)
    delivered = {each.message.payload: at for at, each in enumerate(told) if isinstance(each, Deliver)}
    assert delivered.keys() == {b"after the last words", b"of another life"}
    assert at < delivered[b"after the last words"]
