"""The worked example of paper 002, Figures 3 to 7: p, q, r and s, and m1, m2, m3 that follow each other.

m1 is p's, m2 is q's after m1, m3 is s's after both. p, q and s get all in order; r gets m3 first. What
becomes of m1 and m2 there is what the approaches differ in.
"""

from __future__ import annotations

import pytest

from support.net import Net
from whence.core.effects import Reason
from whence.core.message import MessageId
from whence.protocols.deadline.odca import Odca
from whence.protocols.deadline.tdca import Tdca
from whence.protocols.deadline.wire import REPLY, SOLICITATION

M1, M2, M3 = "p:1", "q:1", "s:1"
PLAIN = {"margin_us": 0, "deadlines": False}  # as the paper has it
LIFETIMES_US = {"p": 900_000, "q": 800_000, "s": 300_000}  # m3 has the earliest deadline


def example(make, lifetimes_us=None, **params):
    """p, q and s have delivered all three; r has m3, and nothing else."""
    net = Net(make, "pqrs", **params)
    for sender, others in (("p", "qs"), ("q", "ps"), ("s", "pq")):
        net.pass_time(net.now_us + 10_000)
        net.broadcast(sender, lifetime_us=(lifetimes_us or {}).get(sender))
        for other in others:
            net.move(other, f"{sender}:1", sender)
    for name in "pqs":
        assert net.ids(name) == [M1, M2, M3]
    net.move("r", M3, "s")
    return net


def test_figure_3_the_delaying_approach_waits_for_the_predecessors():
    net = example("vector", relay=False)
    assert net.ids("r") == []
    net.move("r", M2, "q")
    assert net.ids("r") == []
    net.move("r", M1, "p")
    assert net.ids("r") == [M1, M2, M3]


def test_figure_4_at_its_deadline_m3_is_delivered_and_its_predecessors_are_dropped():
    net = example(Tdca, LIFETIMES_US, **PLAIN)
    assert net.ids("r") == []
    deadline_us = net.deadlines[MessageId("s", 1)]
    net.pass_time(deadline_us)
    assert net.ids("r") == [M3]
    assert net.delivered_us["r", MessageId("s", 1)] == deadline_us
    net.pass_time(deadline_us + 1_000)
    for message, sender in ((M1, "p"), (M2, "q")):
        net.move("r", message, sender)  # before their own deadlines
    assert net.ids("r") == [M3]
    assert net.late == 0
    assert {why for (node, _), why in net.why.items() if node == "r"} == {Reason.OVERTAKEN}


@pytest.mark.parametrize("lost", ["", "m1", "m1 and m2"])
@pytest.mark.parametrize("pull", ["window", "exact"])
def test_figures_5_to_7_the_sender_of_m3_is_asked_and_has_kept_both(pull, lost):
    """Figure 7 is the same with m1, or both, lost on the way to r."""
    net = example(Odca, LIFETIMES_US, **PLAIN, pull=pull, copies=1, reply_bytes=0)
    for name, message, sender in (("m1", M1, "p"), ("m2", M2, "q")):
        if name in lost:
            net.lose(net.find("r", message, sender))
    assert [packet.kind for packet in net.packets("r", "s")] == [SOLICITATION]
    net.move("s", sender="r")
    replies = [packet for packet in net.packets("s", "r") if packet.kind == REPLY]
    assert len(replies) == 1
    assert [(each.origin, each.number) for each in replies[0].messages] == [(0, 1), (1, 1)]
    net.move("r", sender="s")
    assert net.ids("r") == [M1, M2, M3]
    assert net.now_us < net.deadlines[MessageId("s", 1)]
    while net.flying:  # what was only slow comes twice, and is told apart
        net.arrive(0)
    assert net.ids("r") == [M1, M2, M3]


def test_garbage_is_collected_by_deadlines_alone_and_costs_no_packet():
    net = example(Odca, LIFETIMES_US, **PLAIN, pull="exact", copies=1, reply_bytes=0)
    s = net.cores["s"]
    kept = [len(held) for held in s.store]
    assert sum(kept) == 3
    sent = len(net.sent)
    last_us = max(net.deadlines.values())
    net.pass_time(last_us + 1)
    net.broadcast("s")  # any step after the deadlines
    assert [number for held in s.store for number in held] == [2]
    collected = [flight for flight in net.sent[sent:] if flight.sender == "s" and flight.packet.kind != 0]
    assert collected == []
