"""The FIFO baseline: each origin's order, exactly once, and nothing more."""

from support.net import Net
from whence.core.effects import Deliver, Reason
from whence.protocols.baselines.fifo import FifoPacket


def test_keeps_each_origins_order_when_copies_overtake():
    net = Net("fifo", "ab")
    for _ in range(3):
        net.broadcast("a")
    for _ in range(3):
        net.arrive(-1)  # newest first
    assert net.ids("b") == ["a:1", "a:2", "a:3"]


def test_does_not_keep_causal_order():
    net = Net("fifo", "abc", relay=False)
    net.broadcast("a")
    net.move("b", sender="a")
    net.broadcast("b")
    net.move("c", sender="b")
    net.settle()
    assert net.ids("c") == ["b:1", "a:1"]


def test_flooding_reaches_everybody_over_a_line_and_stops():
    net = Net("fifo", "abcd", pairs=[("a", "b"), ("b", "c"), ("c", "d")])
    got: list[bytes] = []
    net.after = lambda node, effects: got.extend(
        each.message.payload for each in effects if node == "d" and isinstance(each, Deliver)
    )
    net.broadcast("a", payload=b"x")
    net.settle()
    assert all(net.ids(node) == ["a:1"] for node in "abcd")
    assert got == [b"x"]


def test_flooding_survives_an_origin_that_reached_only_one_neighbour():
    net = Net("fifo", "abc")
    net.broadcast("a")
    net.flying = [fly for fly in net.flying if fly[1] == "b"]  # the copy to c is lost in the crash
    net.settle()
    assert net.ids("c") == ["a:1"]


def test_without_relay_only_the_origin_sends():
    net = Net("fifo", "abc", relay=False)
    net.broadcast("a")
    assert len(net.flying) == 2
    net.settle()
    assert net.ids("b") == net.ids("c") == ["a:1"]


def test_second_copies_are_discarded_with_their_reason():
    net = Net("fifo", "ab", relay=False)
    net.broadcast("a")
    net.broadcast("a")
    net.arrive(1, keep=True)  # a:2 is held
    net.arrive(1)  # again, while it is held
    net.arrive(0, keep=True)
    net.arrive(0)  # again, after its delivery
    assert net.ids("b") == ["a:1", "a:2"]
    assert [(str(d.id), d.reason) for d in net.discarded["b"]] == [
        ("a:2", Reason.DUPLICATE),
        ("a:1", Reason.DUPLICATE),
    ]


def test_explain_names_the_gap():
    net = Net("fifo", "ab", step_us=1)
    for _ in range(3):
        net.broadcast("a")
    net.arrive(2)
    waiting = net.cores["b"].explain()
    assert [(str(w.id), [str(m) for m in w.missing]) for w in waiting] == [("a:3", ["a:1", "a:2"])]
    assert waiting[0].since_us == net.now_us
    assert net.cores["b"].entries() == 3  # two counters and one held message


def test_entries_do_not_grow_with_the_past():
    net = Net("fifo", "ab")
    for _ in range(50):
        net.broadcast("a")
        net.settle()
    assert net.cores["b"].entries() == 2


def test_packets_name_members_by_their_place_in_the_sorted_group():
    net = Net("fifo", ["zoe", "amy"])
    net.broadcast("zoe", payload=b"!")
    assert [flight[:3] for flight in net.flying] == [("zoe", "amy", FifoPacket(1, 1, b"!"))]


def test_without_relay_nobody_speaks_in_anothers_name():
    packet = FifoPacket(0, 1, b"")  # of a
    for relay, reasons in ((True, []), (False, [Reason.FORGED])):
        net = Net("fifo", "abc", relay=relay)
        net.receive("b", "c", packet)
        assert [each.reason for each in net.discarded["b"]] == reasons
        net.receive("b", "a", packet)
        assert net.ids("b") == ["a:1"]
