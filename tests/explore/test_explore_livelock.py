"""A core that goes on for ever and gets nowhere is found."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from whence.core.effects import Discard, Effects, Send
from whence.core.message import NodeId, Packet
from whence.explore.search import Options, explore
from whence.explore.world import FaultBudget, Line, World
from whence.protocols.baselines.reliable import Reliable


class Echo(Reliable):
    """Sends everything back: two nodes throw a packet to and fro."""

    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        effects = super().receive(peer, packet, now_us)
        return [*effects, Send((peer,), packet)]


class ThrowsBack(Reliable):
    """Sends back what it has delivered already."""

    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        effects = super().receive(peer, packet, now_us)
        known = any(isinstance(each, Discard) for each in effects)
        return [*effects, Send((peer,), packet)] if known else effects


WORLD = World(protocol="reliable", nodes=2, params={"relay": False}, say=[Line(node="n0")])


def echo(me: NodeId, members: Iterable[NodeId]) -> Echo:
    return Echo(me, members, relay=False)


def test_a_livelock_is_found() -> None:
    for options in (Options(), Options(order=False), Options(symmetry=False, order=False)):
        report = explore(WORLD, options, echo)
        assert report.counterexample is not None
        assert report.counterexample.finding.kind == "livelock"
        # Once the message is said, it never ends; and it has to be said.
        assert report.counterexample.moves == ()


def test_a_livelock_that_a_fault_brings_about_is_found() -> None:
    """Only a copy that comes a second time is thrown back."""
    world = msgspec.structs.replace(WORLD, budget=FaultBudget(duplicates=1))
    report = explore(world, Options(), lambda me, members: ThrowsBack(me, members, relay=False))
    assert report.counterexample is not None
    assert report.counterexample.finding.kind == "livelock"
    assert [move[0] for move in report.counterexample.moves] == ["say", "double"]


def test_who_gets_somewhere_is_not_in_a_livelock() -> None:
    report = explore(WORLD)
    assert report.complete
    assert report.finals == 1
