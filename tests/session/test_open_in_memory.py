"""Links of a group without a list of members, in memory: calls from both ends, contacts, ends."""

from __future__ import annotations

import pytest

from session.pairs import End, World, refusals
from whence.protocols import registry
from whence.session.addresses import Address
from whence.session.admission import LINKS_MAX, Accept, Open, Refuse
from whence.session.handshake import GoneError, Identity, RefusedForNowError
from whence.session.links import Link, LinkState

WHERE = Address("127.0.0.1", 1)


def node(world: World, name: str, group: str = "room") -> End:
    """A node without neighbours."""
    identity = Identity(group, "prc", {}, (name,), 1 << 20, name, ord(name), listed=False)
    return End(world, identity, Open, registry.make("prc", name, [name], {"links": "dynamic"}), [])


def call(one: End, other: str) -> Link:
    """The link that a call is to become."""
    link = one.peering.admission.calls[other] = Link(other, WHERE, dials=True)
    return link


def test_a_contact_is_called_without_its_name_and_gets_it_with_the_answer() -> None:
    world = World()
    a, b = node(world, "a"), node(world, "b")
    link = Link("b", WHERE, dials=True)
    assert link.peer == b.identity.node  # stands for: whichever node listens there
    world.connect(b, a, link)
    world.carry()
    assert link.peer == "a"
    assert b.events == ["up a", "met a in 97"]
    assert a.events == ["up b", "met b in 98"]
    assert b.links["a"] is link
    assert not a.links["b"].dials


def test_of_two_calls_the_one_of_the_smaller_name_counts() -> None:
    for first in ("a", "b"):
        world = World()
        a, b = node(world, "a"), node(world, "b")
        ends = {"a": a, "b": b}
        for name in sorted("ab", reverse=first == "b"):
            other = "b" if name == "a" else "a"
            world.connect(ends[name], ends[other], call(ends[name], other))
        world.carry(7)
        assert a.links["b"].dials
        assert not b.links["a"].dials
        assert a.events == ["up b", "met b in 98"]
        assert b.events == ["up a", "met a in 97"]
        assert not a.peering.admission.calls
        assert not b.peering.admission.calls
        assert refusals(a) == refusals(b) == []  # part of the game


def test_a_node_that_dials_again_replaces_its_link_and_ours_is_not_replaced() -> None:
    world = World()
    a, b = node(world, "a"), node(world, "b")
    world.connect(a, b, call(a, "b"))
    world.carry()
    old = b.links["a"]
    a.links.clear()  # it has lost the connection, and forgotten the link
    world.connect(a, b, call(a, "b"))
    world.carry()
    assert b.events[-3:] == ["gone a", "up a", "met a in 97"]
    assert b.links["a"] is not old
    assert old.state is LinkState.GIVEN_UP
    world.connect(b, a, call(b, "a"))
    world.carry()
    assert "there is a link to it already" in a.journal.events[-1].detail
    assert b.events[-1] == "met a in 97"


def test_a_link_ends_with_its_connection() -> None:
    world = World()
    a, b = node(world, "a"), node(world, "b")
    wires = world.connect(a, b, call(a, "b"))
    world.carry()
    link = a.links["b"]
    world.cut(wires)
    assert a.events[-1] == "gone b"
    assert b.events[-1] == "gone a"
    assert not link.alive
    assert a.links == b.links == {}


def test_an_answer_that_comes_too_late_finds_no_one() -> None:
    world = World()
    a, b = node(world, "a"), node(world, "b")
    link = call(a, "b")
    world.connect(a, b, link)
    del a.peering.admission.calls["b"]
    world.carry()
    assert "it is not waited for any more" in a.journal.events[-1].detail
    assert not refusals(a), "it is nobody's fault"
    assert a.links == b.links == {}


@pytest.mark.parametrize("parting", [False, True])
def test_judgements_change_nothing(parting: bool) -> None:
    world = World()
    a, b = node(world, "a"), node(world, "b")
    admission = b.peering.admission
    hello = a.identity.hello(Link("b", WHERE, dials=True))
    verdicts = [admission.judge(hello, None, 0.0, parting=parting) for _ in range(2)]
    assert b.links == admission.calls == {}
    for verdict in verdicts:
        if parting:
            assert isinstance(verdict, Refuse)
            assert isinstance(verdict.error, GoneError)
        else:
            assert isinstance(verdict, Accept)
            assert verdict.link.peer == "a"
            assert verdict.link.channel is None


def test_there_are_bounds_and_other_groups() -> None:
    world = World()
    a, b = node(world, "a"), node(world, "b")
    b.links.update({f"n{number}": Link("n", WHERE, dials=False) for number in range(LINKS_MAX)})
    verdict = b.peering.admission.judge(a.identity.hello(Link("b", WHERE, True)), None, 0.0, parting=False)
    assert isinstance(verdict, Refuse)
    assert isinstance(verdict.error, RefusedForNowError)
    c = node(world, "c", group="kitchen")
    world.connect(c, a, call(c, "a"))
    world.carry()
    assert "the group" in refusals(a)[0]
    twin = node(world, "a")
    world.connect(twin, a, call(twin, "a"))
    world.carry()
    assert "another process takes part under this name" in refusals(a)[1]
