"""Paper 003, section 2.2: link memory in static systems (Algorithm 1, Figure 1), and its limit (Figure 2)."""

from __future__ import annotations

import pytest

from support.cores import Bench
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
    bench = Bench("link_memory", "abc", links=LINE)
    bench.broadcast("b")
    assert bench.cores["b"].expected == {("b", 1): {"a"}}  # 1a: B awaits a copy from A
    bench.arrive_from_to("b", "a")
    assert bench.cores["a"].expected == {("b", 1): {"c"}}  # 1b: A expects one from C
    bench.arrive_from_to("a", "b")
    bench.arrive_from_to("a", "c")
    assert bench.cores["b"].entries() == bench.cores["c"].entries() == 0  # 1c
    bench.arrive_from_to("c", "a")
    assert bench.cores["a"].entries() == 0  # 1d: completely removed from the system
    assert all(bench.ids(node) == ["b:1"] for node in "abc")
    assert not bench.flying


def test_a_process_forwards_to_the_sender_too():
    core = LinkMemory("a", "ab")
    core.link_up("b", 0)
    effects = core.receive("b", ("b", 1, b"x"), 1)
    assert [type(each) for each in effects] == [Send, Deliver]
    assert effects[0].to == ("b",)


def test_only_the_expected_copies_are_ignored():
    bench = Bench("link_memory", "abc")
    bench.broadcast("a")
    bench.settle()
    assert all(bench.ids(node) == ["a:1"] for node in "abc")
    assert all(core.entries() == 0 for core in bench.cores.values())
    # What figure 2 is about: a copy over a link that already carried it would be taken for new.
    bench.receive("b", "c", ("a", 1, b""))
    assert bench.ids("b") == ["a:1", "a:1"]


def test_links_cannot_be_added_once_messages_pass():
    core = LinkMemory("a", "abc")
    core.link_up("b", 0)
    core.broadcast(b"", 1)
    with pytest.raises(MisuseError, match="prc"):
        core.link_up("c", 2)


def test_a_removed_link_is_not_waited_for():
    bench = Bench("link_memory", "abc")
    bench.broadcast("a")
    bench.cores["a"].link_down("b", 5)
    assert bench.cores["a"].expected == {("a", 1): {"c"}}
    (discard,) = bench.cores["a"].receive("b", ("a", 1, b""), 6)
    assert isinstance(discard, Discard)
    assert discard.reason is Reason.NOT_A_NEIGHBOUR


def test_own_messages_after_their_first_echo():
    bench = Bench("link_memory", "abc", own_after_echo=True)
    bench.broadcast("a")
    bench.broadcast("a")
    assert bench.ids("a") == []
    assert [str(each.id) for each in bench.cores["a"].explain()] == ["a:1", "a:2"]
    bench.arrive_from_to("a", "b")
    bench.arrive_from_to("b", "a")
    assert bench.ids("a") == ["a:1"]
    bench.settle()
    assert bench.ids("a") == ["a:1", "a:2"]
    assert bench.cores["a"].explain() == []


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
