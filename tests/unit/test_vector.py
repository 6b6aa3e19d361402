"""The vector baseline: causal order, the sender's delta, the index of held messages."""

import pytest

from support.cores import Bench
from whence.core.effects import Reason
from whence.errors import InvariantError
from whence.protocols.baselines.vector import VectorPacket


def chain(bench: Bench) -> None:
    """a broadcasts; b delivers that and answers; nothing has reached c."""
    bench.broadcast("a")
    bench.arrive_from_to("a", "b")
    bench.broadcast("b")


def test_delays_an_answer_until_its_question():
    bench = Bench("vector", "abc", relay=False)
    chain(bench)
    bench.arrive_from_to("b", "c")
    assert bench.ids("c") == []
    (waiting,) = bench.cores["c"].explain()
    assert (str(waiting.id), [str(m) for m in waiting.missing]) == ("b:1", ["a:1"])
    bench.settle()
    assert bench.ids("c") == ["a:1", "b:1"]
    assert bench.cores["c"].explain() == []


def test_transitivity_through_a_message_that_c_has_not():
    bench = Bench("vector", "abcd", relay=False)
    chain(bench)
    bench.arrive_from_to("b", "d")
    bench.arrive_from_to("a", "d")
    bench.broadcast("d")
    bench.arrive_from_to("d", "c")
    bench.arrive_from_to("a", "c")
    assert bench.ids("c") == ["a:1"]
    bench.arrive_from_to("b", "c")
    assert bench.ids("c") == ["a:1", "b:1", "d:1"]


def test_delta_carries_only_what_changed_since_the_last_broadcast():
    bench = Bench("vector", "abc", relay=False)
    chain(bench)
    bench.broadcast("b")
    bench.broadcast("a")
    bench.arrive_from_to("a", "c")  # a:1
    bench.arrive_from_to("a", "b")  # a:2
    bench.broadcast("b")
    packets = [packet for sender, to, packet in bench.flying if (sender, to) == ("b", "c")]
    assert [packet.after for packet in packets] == [(0, 1), (), (0, 2)]


def test_delta_is_relative_to_a_message_not_to_the_previous_packet():
    """b's second message has an empty delta; arriving first it must still wait for b:1 and so for a:1."""
    bench = Bench("vector", "abc", relay=False)
    chain(bench)
    bench.broadcast("b")
    to_c = [at for at, fly in enumerate(bench.flying) if fly[:2] == ("b", "c")]
    bench.arrive(to_c[1])
    bench.arrive(to_c[0])
    assert bench.ids("c") == []
    bench.settle()
    assert bench.ids("c") == ["a:1", "b:1", "b:2"]


def test_one_delivery_releases_a_whole_chain_in_order():
    bench = Bench("vector", "ab", relay=False)
    for _ in range(200):
        bench.broadcast("a")
    for _ in range(200):
        bench.arrive(-1)
    assert bench.ids("b") == [f"a:{n}" for n in range(1, 201)]


def test_messages_released_together_keep_their_order_of_arrival():
    bench = Bench("vector", "abcd", relay=False)
    bench.broadcast("a")
    for node in "bc":
        bench.arrive_from_to("a", node)
        bench.broadcast(node)
    bench.arrive_from_to("c", "d")
    bench.arrive_from_to("b", "d")
    bench.arrive_from_to("a", "d")
    assert bench.ids("d") == ["a:1", "c:1", "b:1"]


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
    bench = Bench("vector", "abc")
    bench.receive("b", "a", packet)
    assert [d.reason for d in bench.discarded["b"]] == [reason]
    assert bench.cores["b"].explain() == []
    assert bench.flying == []  # and it is not passed on


def test_a_stranger_is_not_heard():
    bench = Bench("vector", "abc", links=[("a", "b")])
    bench.receive("a", "c", VectorPacket(2, 1, (), b""))
    assert [d.reason for d in bench.discarded["a"]] == [Reason.NOT_A_NEIGHBOUR]


def test_a_link_that_went_down_is_used_no_more():
    bench = Bench("vector", "abc")
    bench.cores["a"].link_down("b", 1)
    bench.broadcast("a")
    assert [to for _, to, _ in bench.flying] == ["c"]


def test_check_finds_a_message_that_is_held_without_need():
    bench = Bench("vector", "ab")
    core = bench.cores["b"]
    core.check()
    core.held[0, 1] = (VectorPacket(0, 1, (), b""), 0)
    with pytest.raises(InvariantError, match="without an obstacle"):
        core.check()


def test_without_relay_nobody_speaks_in_anothers_name():
    packet = VectorPacket(0, 1, (), b"")  # of a
    for relay, reasons in ((True, []), (False, [Reason.FORGED])):
        bench = Bench("vector", "abc", relay=relay)
        bench.receive("b", "c", packet)
        assert [each.reason for each in bench.discarded["b"]] == reasons
        bench.receive("b", "a", packet)
        assert bench.ids("b") == ["a:1"]
