"""The store-carry-forward layer: caches, contacts, finite rate, and what is cut."""

from __future__ import annotations

import pytest

from support.net import Net
from whence.core.effects import Reason
from whence.core.message import MessageId
from whence.errors import ParameterError
from whence.protocols import registry
from whence.protocols.barrier.carry import Cache
from whence.protocols.barrier.oppnet import DATA, HAVE, Oppnet, OppnetPacket
from whence.protocols.barrier.wire import BarrierPacket

GAP_US = 100


def net(*links: tuple[str, str], nodes: str = "abc", **params: object) -> Net:
    given = {"gap_us": GAP_US, "setup_max_us": 0, "seed": 7, **params}
    return Net("oppnet", nodes, links, start_us=1_000, check=True, **given)


def run(world: Net, until_us: int) -> None:
    """Everything in flight arrives at once; timers come due in order."""
    while True:
        world.settle()
        due_us = min(world.timers.values(), default=until_us + 1)
        if due_us > until_us:
            world.pass_time(until_us)
            return
        world.pass_time(due_us)


def core(world: Net, node: str) -> Oppnet:
    found = world.cores[node]
    assert isinstance(found, Oppnet)
    return found


def test_a_message_is_carried_to_a_node_that_its_origin_never_meets() -> None:
    world = net(("a", "b"))
    world.broadcast("a")
    run(world, 2_000)
    world.cut("a", "b")
    world.link("b", "c")
    run(world, 4_000)
    assert world.ids("c") == ["a:1"]


def test_one_message_per_gap_and_direction_in_an_order_that_is_not_the_order_of_broadcast() -> None:
    world = net()
    for _ in range(20):
        world.broadcast("a")
    world.link("a", "b")
    start_us = world.now_us
    run(world, start_us + 10 * GAP_US)
    carried = list(core(world, "b").cache.messages)
    assert len(carried) == 10
    assert carried != sorted(carried)
    run(world, start_us + 20 * GAP_US)
    assert world.ids("b") == [f"a:{number}" for number in range(1, 21)]
    assert list(core(world, "b").cache.messages) != sorted(core(world, "b").cache.messages)


def test_the_order_depends_on_the_seed_and_on_nothing_else() -> None:
    orders = []
    for seed in (7, 7, 8):
        world = net(seed=seed)
        for _ in range(20):
            world.broadcast("a")
        world.link("a", "b")
        run(world, 5_000)
        orders.append(list(core(world, "b").cache.messages))
    assert orders[0] == orders[1] != orders[2]


def test_set_up_takes_a_drawn_time_and_the_smaller_name_begins() -> None:
    world = net(setup_max_us=10_000)
    world.link("b", "a")
    assert set(world.timers) == {("a", "wake")}
    assert 1_000 <= world.timers["a", "wake"] <= 11_000


def test_a_cut_contact_loses_what_is_in_flight_and_goes_on_next_time() -> None:
    world = net(("a", "b"))
    world.broadcast("a")
    while not any(flight.packet[0] == DATA for flight in world.flying):
        if world.flying:
            world.arrive(0)
        else:
            world.pass_time(world.now_us + GAP_US)
    world.cut("a", "b")
    run(world, 5_000)
    assert world.ids("b") == []
    world.link("a", "b")
    run(world, 9_000)
    assert world.ids("b") == ["a:1"]


def test_a_new_message_is_pushed_during_a_contact_and_nobody_gets_it_twice() -> None:
    world = net(("a", "b"), ("b", "c"), ("a", "c"))
    run(world, 2_000)
    world.broadcast("b")
    world.pass_time(world.now_us + 3 * GAP_US)
    run(world, 5_000)
    assert world.ids("a") == world.ids("c") == ["b:1"]
    assert world.discards == []


def test_what_is_dead_is_neither_kept_nor_sent() -> None:
    world = net(("a", "b"), lifetime_us=50)
    world.broadcast("a")
    run(world, 5_000)
    assert world.ids("b") == []
    world.broadcast("b", 40)
    world.pass_time(world.now_us + 41)
    world.link("b", "c")
    assert len(core(world, "b").cache) == 0


def test_what_first_comes_late_is_an_outcome_once_and_copies_are_not() -> None:
    """A cut off message is late by the reader's clock; one that came in time is a copy, though purged."""
    for mode, outcomes in (("safe", ["a:1"]), ("published", [])):
        world = net(("a", "b"), ("b", "c"), lifetime_us=500, mode=mode)
        receiver, now_us = core(world, "b"), world.clock("b")
        late, in_time = (BarrierPacket("a", number, now_us + 500, (), b"x") for number in (1, 2))
        world.carry_out("b", receiver.receive("a", OppnetPacket(DATA, (), (in_time,)), now_us))
        assert world.ids("b") == ["a:2"]
        for peer, each in (("a", late), ("c", late), ("c", in_time)):
            world.carry_out("b", receiver.receive(peer, OppnetPacket(DATA, (), (each,)), now_us + 501))
        assert [str(id_) for _, id_ in world.expired] == outcomes, mode
        discarded = [str(each.id) for each in world.discards if each.reason is Reason.EXPIRED]
        assert discarded == ["a:1"] * (2 - len(outcomes)) + ["a:2"]
        assert len(core(world, "b").cache) == 0


def test_what_is_later_than_can_be_known_is_no_outcome() -> None:
    world = net(("a", "b"), lifetime_us=500, late_us=50)
    receiver, now_us = core(world, "b"), world.clock("b")
    for number, after_us in ((1, 550), (2, 551)):
        message = BarrierPacket("a", number, now_us + 500, (), b"x")
        world.carry_out("b", receiver.receive("a", OppnetPacket(DATA, (), (message,)), now_us + after_us))
    assert [str(id_) for _, id_ in world.expired] == ["a:1"]
    assert [str(each.id) for each in world.discards] == ["a:2"]
    receiver.link_down("a", now_us + 552)
    assert receiver.entries() == 0  # nothing is remembered for ever


def packet(number: int, deadline_us: int | None = None) -> BarrierPacket:
    return BarrierPacket("x", number, deadline_us, (), b"")


def test_a_full_cache_drops_what_it_has_carried_longest_but_nothing_that_is_pinned() -> None:
    cache = Cache(3)
    pinned = {("x", 1)}
    dropped = [cache.add(packet(number), pinned.__contains__) for number in range(1, 6)]
    assert dropped == [[], [], [], [("x", 2)], [("x", 3)]]
    assert list(cache.messages) == [("x", 1), ("x", 4), ("x", 5)]
    pinned |= {("x", 4), ("x", 5)}
    assert cache.add(packet(6), pinned.__contains__) == [("x", 6)]


def test_the_cache_is_purged_at_deadlines() -> None:
    cache = Cache(0)
    for number, deadline_us in enumerate((30, 10, 20, None), 1):
        cache.add(packet(number, deadline_us), lambda key: False)
    cache.purge(20)
    assert sorted(cache.messages) == [("x", 1), ("x", 3), ("x", 4)]
    cache.purge(1_000)
    assert sorted(cache.messages) == [("x", 4)]


def test_f10_a_pending_message_survives_a_full_cache_and_is_delivered() -> None:
    """Published mode loses it: the cache forgets what the order still needs."""
    for mode, expected in (("published", []), ("safe", ["b:1"])):
        world = net(mode=mode, capacity=2, nodes="abcde")
        m1 = world.broadcast("a")
        world.link("a", "b")
        run(world, 2_000)
        world.cut("a", "b")
        world.broadcast("b")
        core(world, "b").cache.messages.pop(m1)  # so that C gets only b:1, which depends on a:1
        world.link("b", "c")
        run(world, 4_000)
        world.cut("b", "c")
        assert [str(each.id) for each in world.cores["c"].explain()] == ["b:1"]
        for _ in range(4):
            world.broadcast("c")
        world.link("a", "c")
        run(world, 6_000)
        assert [id_ for id_ in world.ids("c") if id_ == "b:1"] == expected, mode
        assert "a:1" in world.ids("c")


def test_a_cache_full_of_pinned_messages_refuses_what_would_be_pinned_too() -> None:
    world = net(capacity=2, nodes="abc")
    first = world.broadcast("a")
    for _ in range(3):
        world.broadcast("a")
    packets = []
    maker = registry.make("oppnet", "a", [], {})
    for _ in range(4):
        maker.broadcast(b"xxx", 1_000)
    assert isinstance(maker, Oppnet)
    packets = list(maker.cache.messages.values())
    world.link("b", "c")
    receiver = core(world, "c")
    taken: list[Reason | None] = []
    for each in (packets[1], packets[2], packets[3], packets[0]):
        before = len(world.discards)
        world.carry_out("c", receiver.receive("b", OppnetPacket(DATA, (), (each,)), world.clock("c")))
        taken.append(world.discarded["c"][-1].reason if len(world.discards) > before else None)
    assert taken == [None, None, Reason.TOO_FAR_AHEAD, None]
    assert world.ids("c") == ["a:1", "a:2", "a:3"]
    assert first == MessageId("a", 1)


def test_a_stranger_and_nonsense_are_discarded() -> None:
    world = net(("a", "b"))
    receiver = core(world, "a")
    now_us = world.clock("a")
    [discard] = receiver.receive("c", OppnetPacket(HAVE, (), ()), now_us)
    assert discard.reason is Reason.NOT_A_NEIGHBOUR  # type: ignore[union-attr]  # it is a Discard
    for nonsense in ((9, (), ()), (DATA, (), ()), (HAVE, (("", 1),), ()), (HAVE, (("x", 0),), ())):
        effects = receiver.receive("b", OppnetPacket(*nonsense), now_us)
        assert effects[-1].reason is Reason.MALFORMED  # type: ignore[union-attr]  # it is a Discard


@pytest.mark.parametrize(
    "params", [{"gap_us": 0}, {"capacity": -1}, {"late_us": -1}, {"mode": "fast"}, {"lifetime_us": 0}]
)
def test_impossible_parameters_are_refused(params: dict[str, object]) -> None:
    with pytest.raises(ParameterError, match=next(iter(params))):
        registry.make("oppnet", "a", [], params)
