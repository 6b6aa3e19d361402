"""Paper 003, section 2.2: link memory in static systems (Algorithm 1, Figure 1), and its limit (Figure 2)."""

from __future__ import annotations

import pytest

from support.net import Net
from support.running import simulate
from whence.core.effects import Deliver, Discard, Reason, Send
from whence.errors import MisuseError
from whence.protocols.prc.link_memory import LinkMemory
from whence.sim.files import from_dict
from whence.trace.memory import MemoryTrace
from whence.trace.schema import PromisesMade
from whence.verify.run import verify_table

LINE = [("a", "b"), ("a", "c")]


def test_figure_1_a_message_leaves_nothing_behind():
    net = Net("link_memory", "abc", pairs=LINE)
    net.broadcast("b")
    assert net.cores["b"].expected == {("b", 1): {"a"}}  # 1a: B awaits a copy from A
    net.move("a", sender="b")
    assert net.cores["a"].expected == {("b", 1): {"c"}}  # 1b: A expects one from C
    net.move("b", sender="a")
    net.move("c", sender="a")
    assert net.cores["b"].entries() == net.cores["c"].entries() == 0  # 1c
    net.move("a", sender="c")
    assert net.cores["a"].entries() == 0  # 1d: completely removed from the system
    assert all(net.ids(node) == ["b:1"] for node in "abc")
    assert not net.flying


def test_a_process_forwards_to_the_sender_too():
    core = LinkMemory("a", "ab")
    core.link_up("b", 0)
    effects = core.receive("b", ("b", 1, b"x"), 1)
    assert [type(each) for each in effects] == [Send, Deliver]
    assert effects[0].to == ("b",)


def test_only_the_expected_copies_are_ignored():
    net = Net("link_memory", "abc")
    net.broadcast("a")
    net.settle()
    assert all(net.ids(node) == ["a:1"] for node in "abc")
    assert all(core.entries() == 0 for core in net.cores.values())
    # What figure 2 is about: a copy over a link that already carried it would be taken for new.
    net.receive("b", "c", ("a", 1, b""))
    assert net.ids("b") == ["a:1", "a:1"]


def test_links_cannot_be_added_once_messages_pass():
    core = LinkMemory("a", "abc")
    core.link_up("b", 0)
    core.broadcast(b"", 1)
    with pytest.raises(MisuseError, match="prc"):
        core.link_up("c", 2)


def test_a_removed_link_is_not_waited_for():
    net = Net("link_memory", "abc")
    net.broadcast("a")
    net.cores["a"].link_down("b", 5)
    assert net.cores["a"].expected == {("a", 1): {"c"}}
    (discard,) = net.cores["a"].receive("b", ("a", 1, b""), 6)
    assert isinstance(discard, Discard)
    assert discard.reason is Reason.NOT_A_NEIGHBOUR


def test_own_messages_after_their_first_echo():
    net = Net("link_memory", "abc", own_after_echo=True)
    net.broadcast("a")
    net.broadcast("a")
    assert net.ids("a") == []
    assert [str(each.id) for each in net.cores["a"].explain()] == ["a:1", "a:2"]
    net.move("b", sender="a")
    net.move("a", sender="b")
    assert net.ids("a") == ["a:1"]
    net.settle()
    assert net.ids("a") == ["a:1", "a:2"]
    assert net.cores["a"].explain() == []


@pytest.mark.parametrize("protocol", ["link_memory", "prc"])
def test_static_simulations_keep_every_promise_and_end_empty(protocol):
    for seed in range(3):
        described = from_dict(
            {
                "nodes": 8,
                "protocol": protocol,
                "seed": seed,
                "topology": {"kind": "random", "degree": 3},
                "link": {"delay": {"kind": "exponential", "mean_us": 20_000}, "fifo": True},
                "workloads": [
                    {"kind": "poisson", "interval_us": 30_000, "count": 6},
                    {"kind": "replies", "probability": 0.5, "depth": 3, "count": 6},
                ],
                "stop": {"duration_us": 300_000},
                "record": {"sample_every_us": 50_000},
            }
        )
        trace = MemoryTrace()
        result = simulate(described, trace, check=True)
        promises = PromisesMade(complete=True)
        report = verify_table(trace.table("x"), promises, [f"n{at}" for at in range(8)])
        assert report.ok, report.findings
        assert result.undelivered == 0
