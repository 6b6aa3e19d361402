"""Shapes of systems that change: seats and places are given once, and what changes its way is found."""

from __future__ import annotations

import random

import pytest

from whence.core.effects import Deliver, Effects, Send
from whence.core.lives import SHAPE
from whence.core.message import Message, NodeId, Packet
from whence.errors import DomainGraphError, MisuseError
from whence.overlay.domain_graph import domain_graph
from whence.overlay.shape import Shape, cannot_follow, first_shape, next_shape, rerouted, shape_of
from whence.protocols.domains.domains import Domains

TWO = {"left": ["a", "b", "c"], "right": ["c", "d", "e"]}


def shaped(domains: dict[str, list[str]], old: Shape | None = None) -> Shape:
    graph = domain_graph(domains.values(), list(domains))
    return first_shape(graph) if old is None else next_shape(old, graph)


def test_seats_and_places_only_grow() -> None:
    first = shaped(TWO)
    assert first.seats == tuple("abcde")
    wider = shaped({"left": ["c", "b", "a", "B"], "right": ["c", "d", "e"], "far": ["B", "z"]}, first)
    assert (wider.number, wider.seats) == (2, (*"abcde", "B", "z"))
    assert wider.domains[0].places == (*"abc", "B")
    assert shaped({"left": ["B", "c", "b", "a"], "right": ["c", "d", "e"], "far": ["B", "z"]}, wider) is wider
    narrower = shaped({"left": ["a", "c", "B"], "right": ["c", "d", "e"]}, wider)
    assert narrower.servers == tuple("Bacde")
    assert narrower.domains[0].left == ("b",)
    assert narrower.domains[2].servers == ()
    again = shaped({"left": ["a", "b", "c", "B"], "right": ["c", "d", "e"]}, narrower)
    assert again.domains[0] == wider.domains[0]
    assert shape_of(again.text()) == shape_of(again.plain()) == again
    with pytest.raises(DomainGraphError, match="the shape of a system"):
        shape_of({"seats": 3})


def test_a_store_compares_its_own_domains_alone() -> None:
    first = shaped(TWO)
    wider = shaped({**TWO, "right": ["c", "d", "e", "f"]}, first)
    assert cannot_follow(first, wider, "a") is None
    assert cannot_follow(first, wider, "d") is None
    assert "knows change 2" in (cannot_follow(wider, first, "a") or "")
    other = shaped({"left": ["a", "b", "c"], "right": ["c", "d", "f"]})
    assert "in this order" in (cannot_follow(first, other, "a") or "")
    moved = shaped({"left": ["a", "c"], "right": ["b", "c", "d", "e"]})
    assert "its domain 'left'" in (cannot_follow(first, moved, "a") or "")
    assert "its domain 'right'" in (cannot_follow(first, moved, "e") or "")


def test_what_is_reached_over_another_way_is_found() -> None:
    first = shaped(TWO)
    assert rerouted(first, shaped({**TWO, "far": ["e", "g"]}, first)) == frozenset()
    assert rerouted(first, shaped({"left": ["a", "c"], "right": ["c", "d", "e"]}, first)) == {"b"}
    # d is the router now, and c is in one domain: every way between the two sides changes.
    turned = shaped({"left": ["a", "b", "c", "d"], "right": ["d", "e"]}, first)
    assert rerouted(first, turned) == set("abcde")


class Net:
    """Cores of a system, and what is under way between them."""

    def __init__(self, shape: Shape, stamps: str) -> None:
        self.stamps = stamps
        self.cores: dict[NodeId, Domains] = {}
        self.flight: list[tuple[NodeId, NodeId, Packet]] = []
        self.got: dict[NodeId, list[Message]] = {}
        for server in shape.servers:
            self.add(server, shape)

    def add(self, server: NodeId, shape: Shape) -> None:
        core = Domains(server, (), domains=shape.plain(), stamps=self.stamps)
        self.cores[server] = core
        self.got[server] = []
        for peer in core.linked:
            self.carry_out(server, core.link_up(peer, 0))
            if peer in self.cores and server not in self.cores[peer].neighbours:
                self.carry_out(peer, self.cores[peer].link_up(server, 0))

    def carry_out(self, at: NodeId, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self.flight += [(at, to, effect.packet) for to in effect.to]
            elif isinstance(effect, Deliver):
                self.got[at].append(effect.message)
            else:
                raise AssertionError(effect)

    def send(self, source: NodeId, to: NodeId, payload: bytes) -> None:
        self.carry_out(source, self.cores[source].send(to, payload, 0))

    def arrive(self, at: int) -> None:
        source, to, packet = self.flight.pop(at)
        self.carry_out(to, self.cores[to].receive(source, packet, 0))
        self.cores[to].check()

    def reshape(self, shape: Shape, order: list[NodeId]) -> None:
        for server in order:
            core = self.cores[server]
            self.carry_out(server, core.command(SHAPE, (shape.text(),), 0))
            saved = Domains(server, (), domains=first_shape(shape.graph()).plain(), stamps=self.stamps)
            saved.restore(core.save())  # as after a crash
            assert saved.save() == core.save()
            self.cores[server] = saved


@pytest.mark.parametrize("stamps", ["updates", "updates-scan", "full"])
@pytest.mark.parametrize("seed", range(20))
def test_what_is_under_way_keeps_its_order_when_servers_and_domains_are_added(seed: int, stamps: str) -> None:
    """A token goes round: whoever has it sends to all, then passes it on, so all messages are one chain."""
    draw = random.Random(f"{seed} {stamps}")
    shape = shaped(TWO)
    net = Net(shape, stamps)
    chain = 0
    holder = "a"
    domains = {name: [*group] for name, group in TWO.items()}
    for round_ in range(12):
        if round_ in (3, 6, 9):
            new = f"n{round_}"
            if draw.random() < 0.5:
                domains[draw.choice(list(domains))].append(new)
            else:
                domains[f"d{round_}"] = [draw.choice(list(net.cores)), new]
            shape = shaped(domains, shape)
            assert not rerouted(net.cores["a"].shape, shape)
            net.reshape(shape, draw.sample(list(net.cores), len(net.cores)))
            net.add(new, shape)
        others = [each for each in net.cores if each != holder]
        for to in draw.sample(others, draw.randint(1, 3)):
            chain += 1
            net.send(holder, to, b"%d" % chain)
        following = draw.choice(others)
        chain += 1
        net.send(holder, following, b"%d" % chain)
        token = b"%d" % chain
        while not any(message.payload == token for message in net.got[following]):
            net.arrive(draw.randrange(len(net.flight)))
        holder = following
    while net.flight:
        net.arrive(draw.randrange(len(net.flight)))
    assert sum(map(len, net.got.values())) == chain
    for server, got in net.got.items():
        numbers = [int(message.payload) for message in got]
        assert numbers == sorted(numbers), server
        assert not net.cores[server].waiting


def test_a_server_that_is_gone_cannot_be_sent_to() -> None:
    first = shaped(TWO)
    core = Domains("a", (), domains=first.plain())
    core.command(SHAPE, (shaped({"left": ["a", "c"], "right": ["c", "d", "e"]}, first).text(),), 0)
    assert core.linked == {"c"}
    with pytest.raises(MisuseError, match="not in the system any more"):
        core.send("b", b"x", 0)
