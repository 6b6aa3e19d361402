"""TDCA and ODCA step by step: stamps, reasons, timers, buffer, pulls, and what a peer may not do."""

from __future__ import annotations

import pytest

from support.net import Net
from whence.core.effects import Deliver, Discard, Reason, Send, SetTimer
from whence.core.message import MessageId
from whence.errors import MisuseError, ParameterError
from whence.protocols import registry
from whence.protocols.deadline.odca import Odca
from whence.protocols.deadline.published import PublishedOdca, PublishedTdca
from whence.protocols.deadline.tdca import Tdca
from whence.protocols.deadline.wire import MESSAGE, REPLY, SOLICITATION, DeadlineMessage, DeadlinePacket

PLAIN = {"margin_us": 0, "deadlines": False}


def packet(origin=0, number=1, stamp=1, deadline_us=1_000, after=(0, 0), left=(), kind=MESSAGE):
    message = DeadlineMessage(origin, number, stamp, deadline_us, tuple(after), tuple(left), b"x")
    return DeadlinePacket(kind, (message,), (), (), ())


def core(make=Tdca, **params):
    made = make("b", ["a", "b"], **params)
    made.link_up("a", 0)
    return made


# Stamps: a hybrid logical clock


def stamps(net: Net, node: str) -> list[int]:
    sent = [one.messages[0] for one in net.packets(node) if one.messages]
    return list(dict.fromkeys(message.stamp for message in sent))


def test_stamps_follow_the_clock_and_never_stand_still():
    net = Net(Tdca, "ab", **PLAIN)
    for time_us in (5, 5, 5, 100):
        net.pass_time(time_us)
        net.broadcast("a")
    assert stamps(net, "a") == [5, 6, 7, 100]


def test_stamps_rise_along_causality_though_a_clock_is_behind():
    net = Net(Tdca, "abc", **PLAIN)
    net.offsets_us |= {"a": 5_000, "b": -300}
    net.pass_time(1_000)
    net.broadcast("a")
    net.move("b", sender="a")
    net.pass_time(2_000)
    net.broadcast("b")
    assert stamps(net, "a") == [6_000]
    assert stamps(net, "b") == [6_001]
    net.pass_time(900_000)
    net.broadcast("b")
    assert stamps(net, "b") == [6_001, 899_700]  # the clock has caught up


def test_a_stamp_far_ahead_is_refused():
    made = core()
    assert made.receive("a", packet(stamp=10**12), 5) == [
        Discard(MessageId("a", 1), "a", Reason.TOO_FAR_AHEAD)
    ]
    assert made.greatest_stamp == 0


# Ends and their reasons


def test_every_end_has_its_reason():
    net = Net(Tdca, "abc", **PLAIN)
    net.broadcast("a", 100_000)
    net.broadcast("a", 300_000)
    net.broadcast("a", 50_000)
    net.move("c", "a:2", "a")
    net.pass_time(200_000)
    net.move("c", "a:3", "a", keep=True)  # comes too late
    assert net.ends("c") == ["a:3 expired"]
    net.move("c", "a:3", "a")
    assert [each.reason for each in net.discarded["c"]] == [Reason.DUPLICATE]
    net.pass_time(400_000)
    assert net.ids("c") == ["a:2"]  # its time came before a:1 did
    net.broadcast("b", 1_000_000)
    net.move("c", sender="b")
    net.move("c", "a:1", "a")
    assert net.ends("c") == ["a:3 expired", "a:1 expired"]
    net.broadcast("a", 1_000_000)
    net.broadcast("a", 100_000)
    net.move("c", "a:5", "a")
    net.pass_time(600_000)
    net.move("c", "a:4", "a")
    assert net.ends("c")[-1] == "a:4 overtaken"


def test_a_message_without_predecessors_comes_through_at_once():
    effects = core().receive("a", packet(), 5)
    assert effects == [Deliver(effects[0].message)]


def test_delivery_at_the_deadline_is_in_time_and_later_is_not():
    assert isinstance(core().receive("a", packet(deadline_us=1_000), 1_000)[0], Deliver)
    assert core().receive("a", packet(deadline_us=1_000), 1_001)[0].reason == Reason.EXPIRED
    late = core(clock_error_us=10).receive("a", packet(deadline_us=1_000), 991)
    assert late[0].reason == Reason.EXPIRED


def test_predecessors_deadlines_end_the_wait():
    """c waits for a:1, which nobody brings; with deadlines it learns when that has become worthless."""
    for deadlines, delivered_us in ((False, 900_000), (True, 100_001)):
        net = Net(Tdca, "abc", margin_us=0, deadlines=deadlines)
        net.broadcast("a", 100_000)
        net.move("b", sender="a")
        net.broadcast("b", 900_000)
        net.pass_time(20_000)
        net.move("c", sender="b")
        net.pass_time(1_000_000)
        assert net.delivered_us["c", ("b", 1)] == delivered_us


def test_explain_names_what_is_missing():
    net = Net(Tdca, "abc", **PLAIN)
    net.broadcast("a")
    net.broadcast("a")
    net.move("b", "a:1", "a")
    net.broadcast("b")
    net.pass_time(7)
    net.move("c", "a:2", "a")
    net.move("c", sender="b")
    first, second = net.cores["c"].explain()
    assert (str(first.id), first.since_us, list(map(str, first.missing))) == ("a:2", 7, ["a:1"])
    assert (str(second.id), list(map(str, second.missing))) == ("b:1", ["a:1"])


# Timers


def test_one_timer_serves_all_and_is_cancelled_when_nothing_is_due():
    made = core(**PLAIN)
    set_timer = made.receive("a", packet(number=2, stamp=2, after=(1, 0), deadline_us=900), 5)
    assert set_timer == [SetTimer("due", 900)]
    earlier = made.receive("a", packet(number=3, stamp=3, after=(2, 0), deadline_us=500), 6)
    assert earlier == [SetTimer("due", 500)]
    done = made.receive("a", packet(), 7)
    assert [type(effect).__name__ for effect in done] == ["Deliver", "Deliver", "Deliver", "CancelTimer"]


def test_the_margin_makes_up_for_a_host_whose_timers_are_late():
    made = core(margin_us=100, deadlines=False)
    assert made.receive("a", packet(number=2, stamp=2, after=(1, 0), deadline_us=900), 5) == [
        SetTimer("due", 800)
    ]
    assert isinstance(made.timer("due", 880)[0], Deliver)


# The buffer


def test_the_store_gives_way_to_what_waits_and_the_rest_is_refused():
    net = Net(Odca, "ab", copies=1, buffer_bytes=2, **PLAIN)
    for _ in range(4):
        net.broadcast("a")
    assert sum(map(len, net.cores["a"].store)) == 2  # each payload has one byte
    net.move("b", "a:4", "a")
    net.move("b", "a:3", "a")
    net.move("b", "a:2", "a", keep=True)
    assert [each.reason for each in net.discarded["b"]] == [Reason.NO_ROOM]
    net.move("b", "a:1", "a")
    net.move("b", "a:2", "a")
    assert net.ids("b") == ["a:1", "a:2", "a:3", "a:4"]
    net.cores["b"].check()


def test_tdca_keeps_nothing():
    net = Net(Tdca, "ab")
    net.broadcast("a")
    assert net.cores["a"].used_bytes == 0


# Pulls


def test_an_exact_pull_names_what_is_missing_asks_once_and_then_others():
    net = Net(Odca, "abcd", copies=1, retry_us=1_000, pulls=3, **PLAIN)
    net.broadcast("a")
    for to in "bd":
        net.move(to, sender="a")
    net.broadcast("b")
    net.broadcast("b")
    net.move("c", "b:1", "b")
    net.move("c", "b:2", "b")
    asked = [(fly.to, fly.packet.wants) for fly in net.flying if fly.sender == "c"]
    assert asked == [("b", (0, 1))]  # not a second time for b:2
    net.pass_time(10_000)
    asked = [(fly.to, fly.packet.wants) for fly in net.flying if fly.sender == "c"]
    assert asked == [("b", (0, 1)), ("a", (0, 1)), ("b", (0, 1))]
    net.move("a", sender="c")
    net.move("c", sender="a")
    assert net.ids("c") == ["a:1", "b:1", "b:2"]


def test_whoever_holds_a_message_back_can_still_give_it_away():
    net = Net(Odca, "abc", copies=1, **PLAIN)
    net.broadcast("a")
    net.broadcast("a")
    net.lose(net.find("b", "a:1", "a"))
    net.move("b", "a:2", "a")
    effects = net.cores["b"].receive("c", DeadlinePacket(SOLICITATION, (), (), (), (0, 2)), 9)
    assert [message.number for message in effects[0].packet.messages] == [2]
    assert effects[0].packet.kind == REPLY


def test_copies_and_replies_cost_what_they_say():
    made = Odca("a", ["a", "b", "c"], copies=3)
    made.link_up("b", 0)
    made.link_up("c", 0)
    sent = [effect for effect in made.broadcast(b"x", 5) if isinstance(effect, Send)]
    assert [effect.to for effect in sent] == [("b", "c")] * 3
    for _ in range(9):
        made.broadcast(bytes(1_000), 6)
    asked = DeadlinePacket(SOLICITATION, (), (0, 0, 0), (10, 0, 0), ())
    for limit, packets in ((0, 1), (3_000, 5), (1, 10)):
        made.reply_bytes = limit
        replies = made.receive("b", asked, 7)
        assert len(replies) == packets
        assert [number for reply in replies for _, number, *_ in reply.packet.messages] == list(range(1, 11))


# Misuse and bad peers


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("tdca", {"mode": "sober"}),
        ("tdca", {"copies": 0}),
        ("tdca", {"deadlines": 1}),
        ("odca", {"pull": "push"}),
        ("odca", {"retry_us": -1}),
        ("odca", {"pulls": True}),
        ("odca", {"mode": "published", "strict": 0}),
    ],
)
def test_parameters_that_cannot_be_meant(name, params):
    with pytest.raises(ParameterError, match=next(reversed(params))):
        registry.make(name, "a", ["a", "b"], params)


@pytest.mark.parametrize("lifetime_us", [0, -5, 3_600_000_001, True, 0.5])
def test_lifetimes_that_are_none(lifetime_us):
    for made in (Tdca("a", ["a"]), PublishedTdca("a", ["a"])):
        with pytest.raises(MisuseError, match="lifetime"):
            made.broadcast_within(b"", lifetime_us, 5)
        assert made.last == 0


def test_modes():
    assert type(registry.make("tdca", "a", ["a"])) is Tdca
    assert type(registry.make("odca", "a", ["a"], {"mode": "published"})) is PublishedOdca


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (packet(origin=9), Reason.UNKNOWN_ORIGIN),
        (packet(number=0), Reason.MALFORMED),
        (packet(after=(0,)), Reason.MALFORMED),
        (packet(after=(5, 0)), Reason.MALFORMED),
        (packet(left=(1,)), Reason.MALFORMED),
        (packet(after=(0, 1)), Reason.IMPOSSIBLE),
        (packet(origin=1, after=(0, 0)), Reason.FORGED),
        (packet(deadline_us=10**12), Reason.TOO_FAR_AHEAD),
        (packet(kind=7), Reason.MALFORMED),
        (DeadlinePacket(MESSAGE, (), (), (), ()), Reason.MALFORMED),
        (DeadlinePacket(SOLICITATION, (), (1,), (1,), ()), Reason.MALFORMED),
        (DeadlinePacket(SOLICITATION, (), (), (), (1,)), Reason.MALFORMED),
    ],
)
def test_what_a_peer_may_not_send(bad, reason):
    made = core(Odca)
    before = made.save()
    assert [effect.reason for effect in made.receive("a", bad, 5)] == [reason]
    assert made.save() == before
