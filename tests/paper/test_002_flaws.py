"""The nine flaws of paper 002's Figure 8: put back each fails as described; corrected, the same run is right.

A flaw is put back into the corrected core as a subclass that does what the figure prints, and, where that
shows it, the whole figure (`mode = "published"`) runs the same schedule.
"""

from __future__ import annotations

import pytest

from support.deadline_worlds import judge
from support.net import Net
from whence.core.effects import Deliver, Effects, Expire, Reason
from whence.core.message import Message, MessageId
from whence.protocols.deadline.odca import Odca
from whence.protocols.deadline.published import PublishedOdca, PublishedTdca
from whence.protocols.deadline.tdca import QueuedMessage, Tdca
from whence.protocols.deadline.wire import REPLY, SOLICITATION, DeadlineMessage
from whence.sim.files import from_dict

PLAIN = {"margin_us": 0, "deadlines": False}  # as the paper has it


def window(**more: object) -> dict[str, object]:
    return {**PLAIN, "pull": "window", "copies": 1, **more}


# 1. The sender's own entry is a clock value, so a gap in one sender's messages cannot be seen.


class GapUnseen(Tdca):
    def _ready(self, entry: QueuedMessage) -> bool:
        after = entry.message.after
        others = [at for at in range(len(after)) if at != entry.message.origin]
        return all(after[at] <= self.frontier[at] for at in others)

    def check(self) -> None:
        """The flaw breaks the invariants, which is not the point here."""


@pytest.mark.parametrize(
    ("make", "params", "expected"),
    [
        (Tdca, PLAIN, ["a:1", "a:2"]),
        (GapUnseen, PLAIN, ["a:2"]),
        (PublishedTdca, {}, ["a:2"]),
    ],
)
def test_flaw_1_reordering_becomes_loss(make, params, expected):
    net = Net(make, "ac", **params)
    net.pass_time(10_000)
    net.broadcast("a")
    net.pass_time(20_000)
    net.broadcast("a")
    net.move("c", "a:2", "a")
    net.pass_time(30_000)
    net.move("c", "a:1", "a")
    assert net.ids("c") == expected


# 2. SOLICIT-RECV's strict "for all i" answers nothing.


def solicited(make, **params):
    """b delivers a's message and answers it; c gets the answer alone and asks b."""
    net = Net(make, **params)
    net.pass_time(10_000)
    net.broadcast("a")
    net.move("b", sender="a")
    net.pass_time(20_000)
    net.broadcast("b")
    net.move("c", sender="b")
    assert [packet.kind for packet in net.packets("c", "b")] == [SOLICITATION]
    net.move("b", sender="c")
    return net, net.packets("b", "c")


def test_flaw_2_a_strict_comparison_answers_nothing():
    net, replies = solicited(Odca, **window())
    assert [packet.kind for packet in replies] == [REPLY]
    net.move("c", sender="b")
    assert net.ids("c") == ["a:1", "b:1"]
    assert solicited(PublishedOdca)[1] == []
    assert len(solicited(PublishedOdca, strict=False)[1]) == 1


SCENARIO = {
    "nodes": 6,
    "protocol": "odca",
    "link": {"delay": {"kind": "normal", "mean_us": 100_000, "deviation_us": 30_000}, "loss": 0.05},
    "workloads": [
        {"kind": "poisson", "interval_us": 100_000, "lifetime": {"kind": "exponential", "mean_us": 500_000}}
    ],
    "stop": {"duration_us": 2_500_000},
}


def run(make, seed=1, **params):
    return judge(from_dict({**SCENARIO, "seed": seed}), make, **params)


def test_flaw_2_strictly_between_is_nobody_in_whole_runs():
    for seed in (1, 2, 3):
        cores = run(PublishedOdca, seed).cores
        assert sum(core.solicitations for core in cores) > 50
        assert sum(core.replies for core in cores) == 0
        cores = run(PublishedOdca, seed, strict=False).cores
        assert sum(core.replies for core in cores) > 20


# 3. B-SEND does not store the sender's own messages.


class OwnNotStored(Odca):
    def _keep(self, message: DeadlineMessage) -> None:
        if message.origin != self.my_index:
            super()._keep(message)


@pytest.mark.parametrize("pull", ["window", "exact"])
@pytest.mark.parametrize(("make", "expected"), [(Odca, ["a:1", "a:2"]), (OwnNotStored, [])])
def test_flaw_3_a_lost_message_can_be_had_from_its_sender(make, expected, pull):
    net = Net(make, "ac", **window(pull=pull))
    net.broadcast("a")
    net.lose(net.find("c", "a:1", "a"))
    net.pass_time(10_000)
    net.broadcast("a")
    net.move("c", "a:2", "a")
    net.move("a", sender="c")
    if expected:
        net.move("c", "a:1", "a")
    assert net.ids("c") == expected
    assert not net.flying


# 4. RPY-RECV queues replies unchecked, and nothing purges stale entries.


class Unchecked(Odca):
    def receive(self, peer, packet, now_us):
        if packet[0] != REPLY:
            return super().receive(peer, packet, now_us)
        effects: Effects = []
        for message in packet[1]:
            if message[:2] not in self.queue:
                self._hold(QueuedMessage(message, now_us), now_us, effects)
        self._drain(now_us, effects)
        self._arm(effects)
        return effects

    def _keep(self, message: DeadlineMessage) -> None:
        if message.number not in self.store[message.origin]:
            super()._keep(message)


@pytest.mark.parametrize(("make", "copies"), [(Odca, 1), (Unchecked, 2)])
def test_flaw_4_a_reply_with_what_is_delivered_is_a_duplicate(make, copies):
    net = Net(make, "abc", **window())
    net.broadcast("a", 500_000)
    net.move("b", sender="a")
    net.broadcast("b", 400_000)
    net.pass_time(10_000)
    net.move("c", sender="b")  # c asks b for a:1
    net.move("c", sender="a")  # and a:1 comes by itself
    assert net.ids("c") == ["a:1", "b:1"]
    net.move("b", sender="c")
    net.move("c", "a:1", "b")
    net.pass_time(2_000_000)
    assert net.ids("c").count("a:1") == copies
    if make is Odca:
        assert [str(each.reason) for each in net.discarded["c"]] == ["duplicate"]


def test_flaw_4_whole_runs_of_the_figure_are_wrong_in_every_way():
    wrong: dict[str, int] = {}
    for seed in range(1, 6):
        for kind, count in run(PublishedOdca, seed, strict=False).wrong.items():
            wrong[kind] = wrong.get(kind, 0) + count
        assert run(Odca, seed, **window()).wrong == {}
    assert wrong.keys() >= {"duplicate", "causal", "late"}, wrong


# 5. One pass over the queue: what a forced delivery unblocks is passed by, and what follows it goes first.


class OnePass(Tdca):
    def _force(self, entry: QueuedMessage, now_us: int, effects: Effects) -> None:
        held = self._drain
        self._drain = lambda *_: None  # type: ignore[method-assign]  # the flaw: no second look
        super()._force(entry, now_us, effects)
        self._drain = held  # type: ignore[method-assign]  # and as it was


def forced(make, **params):
    """c misses d:1. b:1 follows it and is forced; a:1 and a:2 wait behind d:1 as well."""
    net = Net(make, "abcd", **params)
    net.pass_time(10_000)
    net.broadcast("d")
    net.lose(net.find("c", sender="d"))
    net.move("a", sender="d")
    net.move("b", sender="d")
    net.pass_time(20_000)
    net.broadcast("a", 400_000)
    net.pass_time(25_000)
    net.broadcast("b", 100_000)
    net.pass_time(30_000)
    net.broadcast("a", 300_000)
    for sender, message in (("a", "a:1"), ("b", "b:1"), ("a", "a:2")):
        net.move("c", message, sender)
    assert net.ids("c") == []
    net.pass_time(125_999)
    at_the_deadline = list(net.ids("c"))
    net.pass_time(1_000_000)
    return at_the_deadline, net.ids("c")


def test_flaw_5_what_a_forced_delivery_unblocks_goes_first():
    assert forced(Tdca, **PLAIN) == (["b:1", "a:1", "a:2"], ["b:1", "a:1", "a:2"])
    assert forced(OnePass, **PLAIN)[0] == ["b:1"]
    figure = forced(PublishedTdca)[1]
    assert figure.index("a:2") < figure.index("a:1"), "the figure delivers them in the wrong order"


def test_flaw_5_the_figure_breaks_order_without_any_reply():
    assert any("causal" in run(PublishedTdca, seed).wrong for seed in range(1, 9))
    assert all(run(Tdca, seed, **PLAIN).wrong == {} for seed in range(1, 9))


# 6. `deadline = now` is an equality on a clock.


class Equal(Tdca):
    def _force(self, entry: QueuedMessage, now_us: int, effects: Effects) -> None:
        if now_us == entry.message.deadline_us:
            super()._force(entry, now_us, effects)


def timer_a_little_late(make, late_us, **params):
    net = Net(make, "ac", **params)
    net.pass_time(1_000)
    net.broadcast("a")
    net.lose(net.find("c", sender="a"))
    net.pass_time(2_000)
    net.broadcast("a", 100_000)
    net.move("c", sender="a")
    when_us = min(at_us for (node, _), at_us in net.timers.items() if node == "c")
    net.pass_time(when_us - 1)
    net.now_us = when_us + late_us
    net.pass_time(net.now_us)
    net.pass_time(2_000_000)
    return net


def test_flaw_6_a_timer_that_fires_a_little_late_still_counts():
    params = {"margin_us": 5_000, "deadlines": False}
    assert timer_a_little_late(Tdca, 3_000, **params).ids("c") == ["a:2"]
    assert timer_a_little_late(Equal, 3_000, **params).ids("c") == []
    assert timer_a_little_late(Equal, 0, margin_us=0, deadlines=False).ids("c") == ["a:2"]
    assert timer_a_little_late(Tdca, 5_001, **params).ends("c") == ["a:2 expired"]  # too late is too late


def test_flaw_6_the_figure_never_delivers_what_it_did_not_look_at_in_that_very_tick():
    for late_us, expected in ((0, ["a:2"]), (1_000, [])):
        net = Net(PublishedTdca, "abc")
        net.pass_time(1_000)
        net.broadcast("b")
        net.lose(net.find("c", sender="b"))
        net.move("a", sender="b")
        net.pass_time(2_000)
        net.broadcast("a", 100_000)
        net.move("c", sender="a")
        net.pass_time(101_999)
        net.now_us = 102_000 + late_us
        net.pass_time(1_000_000)
        assert net.ids("c") == [message.replace("2", "1") for message in expected]


# 7. The first branch of CHECK-MSGS does not check the deadline.


class NoLook(Tdca):
    def _pass_time(self, now_us: int, effects: Effects) -> None:
        """Nothing is due: everything is left to the first branch."""

    def _is_late(self, message: DeadlineMessage, now_us: int) -> bool:
        return message[:2] not in self.queue and message.number == 1 and super()._is_late(message, now_us)


@pytest.mark.parametrize(("make", "params"), [(Tdca, PLAIN), (NoLook, PLAIN), (PublishedTdca, {})])
def test_flaw_7_nothing_is_delivered_late(make, params):
    net = Net(make, "abc", **params)
    net.pass_time(1_000)
    net.broadcast("b", 900_000)
    net.move("a", sender="b")
    net.broadcast("a", 900_000)
    net.move("c", sender="a")
    net.pass_time(2_000)
    net.broadcast("a", 100_000)
    net.move("c", sender="a")
    net.now_us = 300_000  # the host was busy: no timer has fired
    net.move("c", sender="b")
    if make is Tdca:
        assert net.ids("c") == ["b:1", "a:1"]
        assert net.ends("c") == ["a:2 expired"]
    else:
        assert net.ids("c") == ["b:1", "a:1", "a:2"]
        assert net.delivered_us["c", ("a", 2)] > 102_000


# 8. An expired arrival is forgotten, so successors wait for it.


class Forgetful(Tdca):
    def _expire(self, message: DeadlineMessage, effects: Effects) -> None:
        id_ = MessageId(self.members[message.origin], message.number)
        effects.append(Expire(id_, Reason.EXPIRED))


@pytest.mark.parametrize(("make", "delivered_us"), [(Tdca, 60_000), (Forgetful, 510_000)])
def test_flaw_8_nobody_waits_for_what_came_too_late(make, delivered_us):
    net = Net(make, "ac", **PLAIN)
    net.broadcast("a", 20_000)
    net.pass_time(10_000)
    net.broadcast("a", 500_000)
    net.pass_time(50_000)
    net.move("c", "a:1", "a")
    net.pass_time(60_000)
    net.move("c", "a:2", "a")
    net.pass_time(1_000_000)
    assert net.ends("c") == ["a:1 expired"]
    assert net.delivered_us["c", ("a", 2)] == delivered_us


# 9. Two sends in one tick share a stamp, and drift larger than the delay breaks the stamp order.


class ClockAsStamp(Tdca):
    def broadcast_within(self, payload: bytes, lifetime_us: int, now_us: int) -> Effects:
        self.greatest_stamp = now_us - 1
        return super().broadcast_within(payload, lifetime_us, now_us)


def answered(make, offset_us):
    """a answers b, and c both; d misses c:1, which all follow, and all wait for the deadline of c:2."""
    net = Net(make, "abcd", **PLAIN)
    net.offsets_us["b"] = offset_us
    net.pass_time(5_000)
    net.broadcast("c")
    net.move("a", sender="c")
    net.move("b", sender="c")
    net.pass_time(50_000)
    net.broadcast("b", 1_000_000)
    net.move("a", sender="b")
    net.broadcast("a", 1_000_000)
    net.move("c", sender="b")
    net.move("c", sender="a")
    net.pass_time(100_000)
    net.broadcast("c", 200_000)
    net.lose(net.find("d", "c:1", "c"))
    for sender in "cab":
        net.move("d", sender=sender)
    net.pass_time(2_000_000)
    return net


@pytest.mark.parametrize("offset_us", [0, 40_000], ids=["one tick", "drift"])
def test_flaw_9_stamps_rise_along_causality(offset_us):
    net = answered(Tdca, offset_us)
    assert net.ids("d") == ["b:1", "a:1", "c:2"]
    net = answered(ClockAsStamp, offset_us)
    assert net.ids("d") == ["a:1", "c:2"]
    assert "b:1 overtaken" in net.ends("d")


def test_flaw_9_two_sends_in_one_tick_are_told_apart():
    stamps = []
    core = Tdca("a", ["a", "b"])
    core.link_up("b", 0)
    for _ in range(3):
        sent = core.broadcast(b"", 7)
        assert isinstance(sent[0], Deliver)
        assert isinstance(sent[0].message, Message)
        stamps.append(sent[1].packet.messages[0].stamp)
    assert stamps == [7, 8, 9]
