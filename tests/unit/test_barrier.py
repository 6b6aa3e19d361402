"""The barrier protocol over links: pruned barriers, timers, late joiners, parameters."""

from __future__ import annotations

import pytest

from support.net import Net
from whence.core.effects import Deliver, Discard, Expire, Reason, Send
from whence.core.message import MessageId
from whence.errors import MisuseError, ParameterError
from whence.protocols import registry
from whence.protocols.barrier.broadcast import Barrier
from whence.protocols.barrier.wire import BarrierEntry, BarrierPacket


def net(nodes: str = "abc", links: list[tuple[str, str]] | None = None, **params: object) -> Net:
    return Net("barrier", nodes, links, start_us=1_000, check=True, **params)


def barrier(core: object) -> list[str]:
    assert isinstance(core, Barrier)
    return [f"{source}:{number}" for source in core.order.past for number in core.order.past[source]]  # type: ignore[attr-defined]  # of SafeOrder


def test_a_reply_waits_for_the_question() -> None:
    world = net()
    world.broadcast("a")
    world.move("b", sender="a")
    world.broadcast("b")
    world.flying = [fly for fly in world.flying if fly[1] == "c"][::-1]
    world.arrive(0)
    assert world.ids("c") == []
    [waiting] = world.cores["c"].explain()
    assert (waiting.id, waiting.missing) == (MessageId("b", 1), (MessageId("a", 1),))
    world.settle()
    assert world.ids("c") == ["a:1", "b:1"]


def test_a_barrier_names_immediate_predecessors_only() -> None:
    world = net()
    for node in "abcabc":
        world.broadcast(node)
        world.settle()
    assert all(barrier(core) == ["c:2"] for core in world.cores.values())
    world.broadcast("a")
    world.broadcast("b")
    world.settle()
    assert sorted(barrier(world.cores["c"])) == ["a:3", "b:3"]


def test_everything_arrives_over_a_line_of_links() -> None:
    world = net("abcd", [("a", "b"), ("b", "c"), ("c", "d")])
    for node in "adbcda":
        world.broadcast(node)
    world.settle()
    assert len({frozenset(world.ids(node)) for node in "abcd"}) == 1
    assert all(len(world.ids(node)) == 6 for node in "abcd")
    assert world.report().ok


def test_without_relay_only_the_origin_sends() -> None:
    world = net("abc", [("a", "b"), ("b", "c")], relay=False)
    world.broadcast("a")
    world.settle()
    assert world.ids("c") == []


def test_a_lifetime_for_the_group_and_for_a_message() -> None:
    world = net(lifetime_us=100)
    core = world.cores["a"]
    world.broadcast("a")
    assert core.last_lifetime_us == 100
    world.broadcast("a", 7)
    assert core.last_lifetime_us == 7
    world.pass_time(world.now_us + 8)
    world.settle()
    assert world.ids("b") == ["a:1"]
    assert world.expired == [("b", MessageId("a", 2)), ("c", MessageId("a", 2))]
    assert {discard.reason for discard in world.discards} == {Reason.DUPLICATE}


def test_a_late_first_arrival_is_an_outcome_once() -> None:
    world = net(late_us=1_000)
    taken, late = world.broadcast("a", 50), world.broadcast("a", 50)
    world.move("b", taken, sender="a", keep=True)
    world.pass_time(world.now_us + 51)
    for _ in range(2):
        for id_ in (taken, late):
            world.move("b", id_, sender="a", keep=True)
    world.restart("b")
    world.move("b", late, sender="a")
    assert world.expired == [("b", late)]
    assert world.ids("b") == ["a:1"]
    # Both copies of the one that was delivered in time, and two more of the late one
    assert [discard.reason for discard in world.discards] == [Reason.EXPIRED] * 4


def test_what_is_skipped_is_known_from_what_was_delivered_though_a_newer_number_was() -> None:
    world = net()
    skipped, newer = world.broadcast("a", 5), world.broadcast("a", 500)
    world.move("b", newer, sender="a")
    world.pass_time(world.now_us + 6)  # B gives up waiting for the first
    assert world.ids("b") == [str(newer)]
    world.move("b", skipped, sender="a")
    assert world.expired == [("b", skipped)]


def test_ids_are_kept_for_late_us_after_the_deadline_and_no_longer() -> None:
    world = net(late_us=100)
    core = world.cores["b"]
    late = world.broadcast("a", 10)
    world.pass_time(world.now_us + 110)
    world.move("b", late, sender="a", keep=True)  # late by 100
    assert world.expired == [("b", late)]
    world.pass_time(world.now_us + 1)
    world.move("b", late, sender="a")  # forgotten, but known to be too old to say so again
    assert world.expired == [("b", late)]
    assert len(core.seen) == 0
    assert world.discarded["b"][-1].reason is Reason.EXPIRED


def test_a_late_joiner_is_not_told_of_its_past() -> None:
    core = registry.make("barrier", "c", [])
    core.link_up("b", 0)
    core.receive("b", BarrierPacket("b", 0, None, (BarrierEntry("a", 2, 50),), b""), 10)
    in_past, after = (BarrierPacket("a", number, 50, (), b"") for number in (2, 3))
    assert Discard(MessageId("a", 2), "b", Reason.EXPIRED) in core.receive("b", in_past, 60)
    assert Expire(MessageId("a", 3), Reason.EXPIRED) in core.receive("b", after, 60)
    again = registry.make("barrier", "c", [])
    again.restore(core.save())
    assert again.receive("b", in_past, 60) == [Discard(MessageId("a", 2), "b", Reason.EXPIRED)]


def test_what_waits_is_released_when_the_obstacle_dies_and_ends_when_it_dies_itself() -> None:
    world = net()
    first = world.broadcast("a", 50)
    world.move("b", first)
    long, short = world.broadcast("b", 100), world.broadcast("b", 20)
    world.move("c", long)
    world.move("c", short)
    assert world.ids("c") == []
    world.pass_time(1_021)
    assert world.expired == [("c", short)]
    world.pass_time(1_051)
    assert world.ids("c") == ["b:1"]


# Late joiners


def joined(world: Net, joiner: str, neighbour: str) -> None:
    world.link(neighbour, joiner)


def test_a_joiner_starts_where_its_first_neighbour_is() -> None:
    world = net("abj", [("a", "b")])
    for node in "abab":
        world.broadcast(node)
        world.settle()
    joined(world, "j", "b")
    world.settle()
    assert world.ids("j") == []  # the past is not given to it
    world.broadcast("a")
    world.settle()
    world.broadcast("j")
    world.settle()
    assert world.ids("j") == ["a:3", "j:1"]
    assert world.ids("a")[-2:] == ["a:3", "j:1"]


def test_a_joiner_is_given_what_its_neighbour_holds_back() -> None:
    world = net("abj", [("a", "b")])
    first, second = world.broadcast("a"), world.broadcast("a")
    world.move("b", second)
    joined(world, "j", "b")
    while any(flight.to == "j" for flight in world.flying):
        world.move("j")
    assert [waiting.id for waiting in world.cores["j"].explain()] == [second]
    world.move("b", first)
    world.settle()
    assert world.ids("j") == ["a:1", "a:2"]


def test_a_node_with_a_past_of_its_own_ignores_the_past_of_others() -> None:
    world = net("abj", [("a", "b")])
    world.broadcast("a")
    world.settle()
    world.broadcast("j")
    joined(world, "j", "b")
    world.settle()
    second = world.broadcast("a")
    world.settle()
    [waiting] = world.cores["j"].explain()
    assert (waiting.id, waiting.missing) == (second, (MessageId("a", 1),))


def test_a_joiner_over_reordering_links_drops_what_turns_out_to_be_past() -> None:
    core = registry.make("barrier", "j", [])
    core.link_up("b", 0)
    late = BarrierPacket("a", 2, None, (BarrierEntry("a", 1, None),), b"")
    after = BarrierPacket("a", 3, None, (BarrierEntry("a", 2, None),), b"")
    assert core.receive("b", late, 0) == []
    assert core.receive("b", after, 0) == []
    effects = core.receive("b", BarrierPacket("b", 0, None, (BarrierEntry("a", 2, None),), b""), 0)
    assert effects == [Discard(MessageId("a", 2), "b", Reason.DUPLICATE), Deliver(effects[1].message)]  # type: ignore[union-attr]  # checked by being equal
    assert core.message_of(BarrierPacket("b", 0, None, (), b"")) is None
    core.check()


def test_published_mode_sends_no_past() -> None:
    core = registry.make("barrier", "a", [], {"mode": "published"})
    core.broadcast(b"", 0)
    assert core.link_up("b", 0) == []


# Memory


def test_registries_forget_who_has_left() -> None:
    world = net("ab", lifetime_us=50, skew_us=5, late_us=20)
    core = world.cores["b"]
    assert isinstance(core, Barrier)
    for at in range(200):
        packet = BarrierPacket(f"x{at}", 1, world.now_us + 50, (), b"")
        world.carry_out("b", core.receive("a", packet, world.now_us))
        world.pass_time(world.now_us + 10)
    assert len(world.ids("b")) == 200
    assert core.order.entries() < 20
    assert len(core.seen) < 10  # those that lived in the last 70 us


def test_waiting_for_what_never_comes_leaves_nothing_behind() -> None:
    world = net("ab")
    core = world.cores["b"]
    assert isinstance(core, Barrier)
    for at in range(200):
        now_us = world.now_us
        entries = (BarrierEntry("lost", at + 1, now_us + 30), BarrierEntry(f"y{at}", 1, now_us + 20))
        packet = BarrierPacket(f"x{at}", 1, now_us + 50, entries, b"")
        world.carry_out("b", core.receive("a", packet, now_us))
        world.pass_time(now_us + 10)
    world.pass_time(world.now_us + 200)
    world.carry_out("b", core.receive("a", BarrierPacket("z", 1, None, (), b""), world.now_us))
    assert len(world.ids("b")) == 201
    order = core.order
    indexes = [order._waiters, order._dying, order._obstacles, order._fading, order._forgettable]  # type: ignore[attr-defined]  # of SafeOrder
    assert [len(each) for each in indexes] == [0, 0, 0, 0, 0]


# Misuse


@pytest.mark.parametrize(
    "params",
    [{"mode": "quick"}, {"lifetime_us": 0}, {"lifetime_us": 1.5}, {"lifetime_us": True}, {"skew_us": -1},
     {"skew_us": 5, "mode": "published"}],
)  # fmt: skip
def test_impossible_parameters_are_refused(params: dict[str, object]) -> None:
    with pytest.raises(ParameterError, match=next(iter(params))):
        registry.make("barrier", "a", [], params)


def test_published_mode_has_lifetimes_for_all_or_for_none() -> None:
    core = registry.make("barrier", "a", [], {"mode": "published"})
    with pytest.raises(ParameterError, match="all messages or for none"):
        core.broadcast_within(b"", 5, 0)
    with pytest.raises(ParameterError, match="lifetime"):
        registry.make("barrier", "a", []).broadcast_within(b"", 0, 0)
    with pytest.raises(MisuseError, match="bytes"):
        registry.make("barrier", "a", []).broadcast_within("x", 5, 0)  # type: ignore[arg-type]  # the mistake
    assert core.last == 0


def test_forged_and_impossible_packets_end_here() -> None:
    core = registry.make("barrier", "a", [], {"late_us": 5})
    core.link_up("b", 0)
    reasons = {
        BarrierPacket("a", 1, None, (), b""): Reason.FORGED,
        BarrierPacket("b", 1, None, (BarrierEntry("a", 1, None),), b""): Reason.IMPOSSIBLE,
        BarrierPacket("b", 2, None, (BarrierEntry("b", 2, None),), b""): Reason.MALFORMED,
        BarrierPacket(
            "b", 2, None, (BarrierEntry("c", 2, None), BarrierEntry("c", 1, None)), b""
        ): Reason.MALFORMED,
        BarrierPacket("", 1, None, (), b""): Reason.MALFORMED,
        BarrierPacket("b", 1, 3, (), b""): Reason.EXPIRED,  # too long ago to say whether it came before
    }
    for packet, reason in reasons.items():
        [discard] = core.receive("b", packet, 10)
        assert isinstance(discard, Discard)
        assert discard.reason is reason, packet
    [send] = [each for each in core.broadcast(b"", 11) if isinstance(each, Send)]
    assert send.to == ("b",)


def test_what_is_delivered_and_forgotten_is_not_explained_as_missing() -> None:
    """Found by hypothesis: c:1 is over, so its delivery is forgotten, while a:2, which names it, waits."""
    net = Net("barrier", "abc", check=True, skew_us=20)
    net.broadcast("a", None)
    net.flying.clear()
    net.broadcast("c", 1)
    for _ in range(2):
        net.arrive(0)
    net.flying.clear()
    net.broadcast("a", None)
    net.arrive(0)
    assert net.delivered["b"] == [MessageId("c", 1)]
    net.pass_time(net.now_us + 60)
    net.broadcast("b", None)
    assert [(each.id, each.missing) for each in net.cores["b"].explain()] == [
        (MessageId("a", 2), (MessageId("a", 1),))
    ]
