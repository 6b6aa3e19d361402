"""The VCube core: what it refuses, what it costs, its links and its state."""

from __future__ import annotations

import json
from itertools import pairwise

import msgspec
import pytest

from support.vcube_cores import cube, drive, message
from whence.core.effects import Reason, Send
from whence.core.sizes import FRAME_BYTES
from whence.errors import InvariantError, MisuseError, ParameterError
from whence.protocols import registry
from whence.protocols.vcube.core import VCube
from whence.protocols.vcube.wire import SIZE_MODELS, VCubePacket, packet_sizes, split


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (message(9, 1), Reason.UNKNOWN_ORIGIN),
        (message(-1, 1), Reason.UNKNOWN_ORIGIN),
        (message(0, 0), Reason.MALFORMED),
        (message(0, -3), Reason.MALFORMED),
        (message(0, 1, (1,)), Reason.MALFORMED),
        (message(0, 1, (7, 1)), Reason.MALFORMED),
        (message(0, 1, (-1, 1)), Reason.MALFORMED),
        (message(0, 1, (2, 0)), Reason.MALFORMED),
        (message(0, 1, (3, 1, 2, 1)), Reason.MALFORMED),
        (message(0, 2, (0, 1)), Reason.MALFORMED),  # the own predecessor is implied
        (message(0, 1, (1, 1)), Reason.IMPOSSIBLE),
        (message(1, 1), Reason.FORGED),
        (message(0, 2**60), Reason.TOO_FAR_AHEAD),
        (message(0, 1, (2, 2**60)), Reason.TOO_FAR_AHEAD),
    ],
)
@pytest.mark.parametrize("tree", ["source", "single"])
def test_what_no_correct_sender_makes_is_discarded_and_the_rest_of_the_packet_is_not(bad, reason, tree):
    net = cube(4, tree=tree)
    net.receive("1", "0", VCubePacket((bad, message(2, 1))))
    assert [discard.reason for discard in net.discards] == [reason]
    assert net.ids("1") == ["2:1"]
    assert net.cores["1"].explain() == []
    net.cores["1"].check()


def test_an_empty_packet_and_a_stranger():
    net = cube(4)
    net.receive("1", "0", VCubePacket(()))
    net.cores["1"].link_down("0", 1)
    net.receive("1", "0", VCubePacket((message(0, 1),)))
    assert [discard.reason for discard in net.discards] == [Reason.MALFORMED, Reason.NOT_A_NEIGHBOUR]
    assert net.cores["1"].message_of(VCubePacket(())) is None


def test_duplicates_inside_one_packet_and_beyond_a_hole():
    net = cube(2)
    net.receive("1", "0", VCubePacket((message(0, 3), message(0, 3), message(0, 1), message(0, 1))))
    net.receive("1", "0", VCubePacket((message(0, 3), message(0, 2))))
    assert [discard.reason for discard in net.discards] == [Reason.DUPLICATE] * 3
    assert net.ids("1") == ["0:1", "0:2", "0:3"]
    assert (net.cores["1"].received, net.cores["1"].early) == ([3, 0], {})


def test_explain_names_what_is_missing():
    net = cube(4)
    net.receive("1", "0", VCubePacket((message(0, 3, (2, 1)),)))
    (waiting,) = net.cores["1"].explain()
    assert (str(waiting.id), [str(id_) for id_ in waiting.missing]) == ("0:3", ["0:1", "0:2", "2:1"])
    net.receive("1", "0", VCubePacket((message(0, 1, (3, 1)),)))
    missing = {str(each.id): [str(id_) for id_ in each.missing] for each in net.cores["1"].explain()}
    assert missing == {"0:1": ["3:1"], "0:3": ["0:2", "2:1"]}
    for other in (message(2, 1), message(0, 2)):
        net.receive("1", "0", VCubePacket((other,)))
    missing = {str(each.id): [str(id_) for id_ in each.missing] for each in net.cores["1"].explain()}
    # All that 0:2 and 0:3 wait for is here and waits itself: the obstacle is named.
    assert missing == {"0:1": ["3:1"], "0:2": ["0:1"], "0:3": ["0:2"]}


def test_messages_released_together_are_delivered_in_order_of_arrival():
    net = cube(8)
    after_0 = (0, 1)
    waiting = [message(6, 2), message(3, 1, after_0), message(2, 1, after_0), message(6, 1, after_0)]
    for each in (*waiting, message(4, 1, (2, 1)), message(0, 1)):
        net.receive("7", "6", VCubePacket((each,)))
    # What 0:1 releases, as it came; then what the first of those releases, and so on.
    assert net.ids("7") == ["0:1", "3:1", "2:1", "6:1", "4:1", "6:2"]


def test_a_child_without_a_link_gets_its_messages_when_the_link_is_there():
    core = VCube("a", "abcd")
    core.link_up("b", 0)
    effects = core.broadcast(b"1", 1) + core.broadcast(b"2", 2)
    assert [effect.to for effect in effects if isinstance(effect, Send)] == [("b",), ("b",)]
    state = core.save()
    core = VCube("a", "abcd")
    core.restore(state)
    (sent,) = core.link_up("c", 3)
    assert isinstance(sent, Send)
    assert (sent.to, [each.number for each in sent.packet[0]]) == (("c",), [1, 2])
    assert core.link_up("d", 4) == []  # no child of a
    assert core.link_down("c", 5) == []
    assert [effect.to for effect in core.broadcast(b"3", 6) if isinstance(effect, Send)] == [("b",)]


def test_children_that_get_the_same_packet_are_named_in_one_effect():
    core = VCube("a", "abcdefgh")
    for name in "bcdefgh":
        core.link_up(name, 0)
    (sent, _) = core.broadcast(b"", 1)
    assert isinstance(sent, Send)
    assert sent.to == ("b", "c", "e")


@pytest.mark.parametrize(
    "params",
    [{"aggregate": 1}, {"tree": "oak"}, {"mtu_bytes": -1}, {"mtu_bytes": True}, {"size_model": "guess"}],
)
def test_bad_parameters_are_named(params):
    with pytest.raises(ParameterError, match=next(iter(params))):
        registry.make("vcube", "a", "ab", params)


def test_our_own_misuse_raises():
    with pytest.raises(ParameterError, match="'z'"):
        VCube("z", "ab")
    with pytest.raises(MisuseError, match="itself"):
        VCube("a", "ab").link_up("a", 0)
    with pytest.raises(MisuseError, match="not bytes"):
        VCube("a", "ab").broadcast("text", 0)  # type: ignore[arg-type]  # the mistake under test


def test_check_finds_a_broken_state():
    net = cube(8)
    drive(net, 1)
    core = net.cores["1"]
    core.check()
    core.received[3] -= 1
    with pytest.raises(InvariantError, match="delivered is received"):
        core.check()


# The wire


def packets_of_a_run() -> list[VCubePacket]:
    net = cube(16)
    drive(net, 3, replies=True)
    return [flight.packet for flight in net.sent]


def test_sizes_are_those_of_the_real_frame():
    decoder = msgspec.msgpack.Decoder(VCube.packet_type)
    packets = packets_of_a_run()
    assert max(len(packet.messages) for packet in packets) > 3
    large = [message(at % 300, 10**at, tuple(range(40)), bytes(70 * 4**at)) for at in range(9)]
    for packet in [*packets, VCubePacket(tuple(large)), VCubePacket((large[0],) * 70_000)]:
        encoded = msgspec.msgpack.encode(packet)
        assert decoder.decode(encoded) == packet
        sizes = packet_sizes(packet)
        assert sizes.total_bytes == FRAME_BYTES + len(encoded)
        payload_bytes = sum(len(each.payload) for each in packet.messages)
        assert sizes.control_bytes == sizes.total_bytes - payload_bytes


def test_split_packets_fit_the_mtu_on_the_wire():
    messages = [message(at, 1, tuple(range(at % 7 * 2)), bytes(at)) for at in range(1, 120)]
    packets = split(messages, SIZE_MODELS["wire"], 500)
    assert len(packets) > 10
    assert all(packet_sizes(packet).total_bytes <= 500 for packet in packets)
    assert [each for packet in packets for each in packet.messages] == messages
    for one, other in pairwise(packets):  # and none could have taken one more
        assert packet_sizes(VCubePacket((*one.messages, other.messages[0]))).total_bytes > 500


def test_state_is_plain_data_and_survives_every_step():
    net = cube(7)
    for node in "03560":
        net.broadcast(node)
        net.arrive(len(net.flying) // 2)
        for each in net.names:
            json.dumps(net.cores[each].save(), default=bytes.hex)
            net.restart(each)
    net.settle()
    assert net.problems() == set()


def test_entries_count_clocks_and_what_waits():
    net = cube(4)
    assert net.cores["1"].entries() == 8
    net.receive("1", "0", VCubePacket((message(0, 2, (2, 1)),)))
    assert net.cores["1"].entries() == 8 + 1 + 2  # beyond a hole; pending, with one dependency
