"""The FIFO baseline: each origin's order, exactly once, and nothing more."""

from support.cores import Bench
from whence.core.effects import Reason
from whence.protocols.baselines.fifo import FifoPacket


def test_keeps_each_origins_order_when_copies_overtake():
    bench = Bench("fifo", "ab")
    for _ in range(3):
        bench.broadcast("a")
    for _ in range(3):
        bench.arrive(-1)  # newest first
    assert bench.ids("b") == ["a:1", "a:2", "a:3"]


def test_does_not_keep_causal_order():
    bench = Bench("fifo", "abc", relay=False)
    bench.broadcast("a")
    bench.arrive_from_to("a", "b")
    bench.broadcast("b")
    bench.arrive_from_to("b", "c")
    bench.settle()
    assert bench.ids("c") == ["b:1", "a:1"]


def test_flooding_reaches_everybody_over_a_line_and_stops():
    bench = Bench("fifo", "abcd", links=[("a", "b"), ("b", "c"), ("c", "d")])
    bench.broadcast("a", b"x")
    bench.settle()
    assert all(bench.ids(node) == ["a:1"] for node in "abcd")
    assert bench.delivered["d"][0].payload == b"x"


def test_flooding_survives_an_origin_that_reached_only_one_neighbour():
    bench = Bench("fifo", "abc")
    bench.broadcast("a")
    bench.flying = [fly for fly in bench.flying if fly[1] == "b"]  # the copy to c is lost in the crash
    bench.settle()
    assert bench.ids("c") == ["a:1"]


def test_without_relay_only_the_origin_sends():
    bench = Bench("fifo", "abc", relay=False)
    bench.broadcast("a")
    assert len(bench.flying) == 2
    bench.settle()
    assert bench.ids("b") == bench.ids("c") == ["a:1"]


def test_second_copies_are_discarded_with_their_reason():
    bench = Bench("fifo", "ab", relay=False)
    bench.broadcast("a")
    bench.broadcast("a")
    bench.arrive(1, keep=True)  # a:2 is held
    bench.arrive(1)  # again, while it is held
    bench.arrive(0, keep=True)
    bench.arrive(0)  # again, after its delivery
    assert bench.ids("b") == ["a:1", "a:2"]
    assert [(str(d.id), d.reason) for d in bench.discarded["b"]] == [
        ("a:2", Reason.DUPLICATE),
        ("a:1", Reason.DUPLICATE),
    ]


def test_explain_names_the_gap():
    bench = Bench("fifo", "ab")
    for _ in range(3):
        bench.broadcast("a")
    bench.arrive(2)
    waiting = bench.cores["b"].explain()
    assert [(str(w.id), [str(m) for m in w.missing]) for w in waiting] == [("a:3", ["a:1", "a:2"])]
    assert waiting[0].since_us == bench.now_us
    assert bench.cores["b"].entries() == 3  # two counters and one held message


def test_entries_do_not_grow_with_the_past():
    bench = Bench("fifo", "ab")
    for _ in range(50):
        bench.broadcast("a")
        bench.settle()
    assert bench.cores["b"].entries() == 2


def test_packets_name_members_by_their_place_in_the_sorted_group():
    bench = Bench("fifo", ["zoe", "amy"])
    bench.broadcast("zoe", b"!")
    assert bench.flying == [("zoe", "amy", FifoPacket(1, 1, b"!"))]


def test_without_relay_nobody_speaks_in_anothers_name():
    packet = FifoPacket(0, 1, b"")  # of a
    for relay, reasons in ((True, []), (False, [Reason.FORGED])):
        bench = Bench("fifo", "abc", relay=relay)
        bench.receive("b", "c", packet)
        assert [each.reason for each in bench.discarded["b"]] == reasons
        bench.receive("b", "a", packet)
        assert bench.ids("b") == ["a:1"]
