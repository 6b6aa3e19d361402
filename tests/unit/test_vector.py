"""The vector baseline: causal order, the sender's delta, the index of held messages."""

import pytest

from support.net import Net
from whence.core.effects import Reason
from whence.errors import InvariantError
from whence.protocols.baselines.vector import VectorPacket


def chain(net: Net) -> None:
    """a broadcasts; b delivers that and answers; nothing has reached c."""
    net.broadcast("a")
    net.move("b", sender="a")
    net.broadcast("b")


def test_delays_an_answer_until_its_question():
    net = Net("vector", "abc", relay=False)
    chain(net)
    net.move("c", sender="b")
    assert net.ids("c") == []
    (waiting,) = net.cores["c"].explain()
    assert (str(waiting.id), [str(m) for m in waiting.missing]) == ("b:1", ["a:1"])
    net.settle()
    assert net.ids("c") == ["a:1", "b:1"]
    assert net.cores["c"].explain() == []


def test_transitivity_through_a_message_that_c_has_not():
    net = Net("vector", "abcd", relay=False)
    chain(net)
    net.move("d", sender="b")
    net.move("d", sender="a")
    net.broadcast("d")
    net.move("c", sender="d")
    net.move("c", sender="a")
    assert net.ids("c") == ["a:1"]
    net.move("c", sender="b")
    assert net.ids("c") == ["a:1", "b:1", "d:1"]


def test_delta_carries_only_what_changed_since_the_last_broadcast():
    net = Net("vector", "abc", relay=False)
    chain(net)
    net.broadcast("b")
    net.broadcast("a")
    net.move("c", sender="a")  # a:1
    net.move("b", sender="a")  # a:2
    net.broadcast("b")
    packets = net.packets("b", "c")
    assert [packet.after for packet in packets] == [(0, 1), (), (0, 2)]


def test_delta_is_relative_to_a_message_not_to_the_previous_packet():
    """b's second message has an empty delta; arriving first it must still wait for b:1 and so for a:1."""
    net = Net("vector", "abc", relay=False)
    chain(net)
    net.broadcast("b")
    to_c = [at for at, fly in enumerate(net.flying) if fly[:2] == ("b", "c")]
    net.arrive(to_c[1])
    net.arrive(to_c[0])
    assert net.ids("c") == []
    net.settle()
    assert net.ids("c") == ["a:1", "b:1", "b:2"]


def test_one_delivery_releases_a_whole_chain_in_order():
    net = Net("vector", "ab", relay=False)
    for _ in range(200):
        net.broadcast("a")
    for _ in range(200):
        net.arrive(-1)
    assert net.ids("b") == [f"a:{n}" for n in range(1, 201)]


def test_messages_released_together_keep_their_order_of_arrival():
    net = Net("vector", "abcd", relay=False)
    net.broadcast("a")
    for node in "bc":
        net.move(node, sender="a")
        net.broadcast(node)
    net.move("d", sender="c")
    net.move("d", sender="b")
    net.move("d", sender="a")
    assert net.ids("d") == ["a:1", "c:1", "b:1"]


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (VectorPacket(9, 1, (), b""), Reason.UNKNOWN_ORIGIN),
        (VectorPacket(-1, 1, (), b""), Reason.UNKNOWN_ORIGIN),
        (VectorPacket(0, 0, (), b""), Reason.MALFORMED),
        (VectorPacket(0, 1, (1,), b""), Reason.MALFORMED),
        (VectorPacket(0, 1, (7, 1), b""), Reason.MALFORMED),
        (VectorPacket(0, 1, (-1, 1), b""), Reason.MALFORMED),
        (VectorPacket(0, 1, (2, 0), b""), Reason.MALFORMED),
        (VectorPacket(0, 1, (2, 1, 0, 1), b""), Reason.MALFORMED),
        (VectorPacket(0, 1, (1, 1), b""), Reason.IMPOSSIBLE),
        (VectorPacket(1, 1, (), b""), Reason.FORGED),
        (VectorPacket(0, 2**60, (), b""), Reason.TOO_FAR_AHEAD),
        (VectorPacket(0, 1, (2, 2**60), b""), Reason.TOO_FAR_AHEAD),
    ],
)
def test_what_no_correct_sender_makes_is_discarded_at_the_door(packet, reason):
    net = Net("vector", "abc")
    net.receive("b", "a", packet)
    assert [d.reason for d in net.discarded["b"]] == [reason]
    assert net.cores["b"].explain() == []
    assert net.flying == []  # and it is not passed on


def test_a_stranger_is_not_heard():
    net = Net("vector", "abc", pairs=[("a", "b")])
    net.receive("a", "c", VectorPacket(2, 1, (), b""))
    assert [d.reason for d in net.discarded["a"]] == [Reason.NOT_A_NEIGHBOUR]


def test_a_link_that_went_down_is_used_no_more():
    net = Net("vector", "abc")
    net.cores["a"].link_down("b", 1)
    net.broadcast("a")
    assert [flight.to for flight in net.flying] == ["c"]


def test_check_finds_a_message_that_is_held_without_need():
    net = Net("vector", "ab")
    core = net.cores["b"]
    core.check()
    core.held[0, 1] = (VectorPacket(0, 1, (), b""), 0)
    with pytest.raises(InvariantError, match="without an obstacle"):
        core.check()


def test_without_relay_nobody_speaks_in_anothers_name():
    packet = VectorPacket(0, 1, (), b"")  # of a
    for relay, reasons in ((True, []), (False, [Reason.FORGED])):
        net = Net("vector", "abc", relay=relay)
        net.receive("b", "c", packet)
        assert [each.reason for each in net.discarded["b"]] == reasons
        net.receive("b", "a", packet)
        assert net.ids("b") == ["a:1"]
