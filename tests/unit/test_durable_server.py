"""The durable server by itself: records, replay, snapshots, numbers on links."""

from __future__ import annotations

import msgspec
import pytest

from whence.core.message import Message
from whence.errors import DataError, MisuseError
from whence.protocols.baselines.vector import Vector
from whence.protocols.domains.matrix import Matrix, MatrixPacket
from whence.protocols.vcube.core import VCube
from whence.session.durable import DurableServer
from whence.session.records import (
    Acknowledge,
    Acknowledged,
    Fired,
    Linked,
    Output,
    Reacted,
    Received,
    RecordCodec,
    Sent,
    Transmit,
)


def echo(state: bytes, message: Message) -> tuple[bytes, list[Output]]:
    return state + message.payload, [Output(message.origin, b"re " + message.payload)]


def server(me: str = "b", agent=echo) -> DurableServer:
    made = DurableServer(Matrix(me, "abc"), agent)
    for peer in sorted({"a", "b", "c"} - {me}):
        made.link(peer, True, 0)
    return made


def first_packet() -> Transmit:
    (release,) = server("a").send("b", b"x", 1).releases
    assert isinstance(release, Transmit)
    return release


def test_a_packet_is_acknowledged_with_its_record_and_again_without() -> None:
    there, packet = server(), first_packet().packet
    step = there.receive("a", 1, packet, 5)
    assert step.record == Received(5, "a", 1, packet)
    assert step.releases == [Acknowledge("a", 1)]
    assert [message.payload for message in there.queue_in] == [b"x"]
    again = there.receive("a", 1, packet, 6)
    assert (again.record, again.releases) == (None, [Acknowledge("a", 1)])
    assert len(there.queue_in) == 1


def test_a_reaction_is_one_record_with_its_outputs() -> None:
    there = server()
    there.receive("a", 1, first_packet().packet, 5)
    step = there.react(6)
    assert step is not None
    assert step.record == Reacted(6, b"x", (Output("a", b"re x"),))
    assert [type(release) for release in step.releases] == [Transmit]
    assert (there.agent_state, list(there.queue_in), there.react(7)) == (b"x", [], None)


def test_what_is_not_acknowledged_is_outstanding() -> None:
    here = server("a")
    sent = [here.send(to, b"", 1).releases[0] for to in "bcb"]
    assert here.outstanding() == [sent[0], sent[2], sent[1]]
    assert here.acknowledged("b", 1).record is not None
    assert here.acknowledged("b", 1).record is None  # a second answer changes nothing
    assert here.outstanding() == [sent[2], sent[1]]


def test_packets_may_come_in_any_order() -> None:
    there = server()
    here = server("a")
    packets = [here.send("b", b"%d" % at, 1).releases[0] for at in range(4)]
    for at in (2, 0, 3, 1):
        assert there.receive("a", packets[at].seq, packets[at].packet, 2).record is not None
        there.check()
    assert there.taken["a"] == 4
    assert not there.taken_beyond["a"]
    assert [message.payload for message in there.queue_in] == [b"0", b"1", b"2", b"3"]


def test_replay_and_snapshot_give_the_same_server() -> None:
    there, records = server(), []
    for step in (there.receive("a", 1, first_packet().packet, 5), there.send("c", b"y", 6), there.react(7)):
        assert step is not None
        records.append(step.record)
    replayed = server()
    replayed.replay(records)
    assert replayed.save() == there.save()
    restored = DurableServer(Matrix("b", "abc"), echo)
    restored.restore(msgspec.msgpack.decode(msgspec.msgpack.encode(there.save())))
    assert restored.save() == there.save()
    assert restored.outstanding() == there.outstanding()


@pytest.mark.parametrize("core", [Vector, VCube])
def test_a_broadcasting_core_is_as_durable(core) -> None:
    here, there = DurableServer(core("a", "ab")), DurableServer(core("b", "ab"))
    for made, peer in ((here, "b"), (there, "a")):
        made.link(peer, True, 0)
    step = here.send(None, b"x", 1)
    assert step.record == Sent(1, None, b"x")
    transmit = step.releases[0]
    there.receive("a", transmit.seq, transmit.packet, 2)
    assert [message.payload for message in there.queue_in] == [b"x"]
    restored = DurableServer(core("a", "ab"))
    restored.restore(msgspec.msgpack.decode(msgspec.msgpack.encode(here.save())))
    assert restored.outstanding() == here.outstanding()


def test_a_log_out_of_order_is_refused() -> None:
    with pytest.raises(MisuseError, match="QueueIN is empty"):
        server().replay([Reacted(1, b"", ())])


def test_records_survive_the_disk_and_damaged_ones_are_refused() -> None:
    codec = RecordCodec(MatrixPacket)
    records = [
        Received(5, "a", 1, MatrixPacket(0, 1, 1, (0, 2, 1), b"x")),
        Acknowledged("a", 7),
        Sent(1, None, b"y"),
        Sent(1, "b", b"y"),
        Reacted(2, b"state", (Output("a", b"z"), Output("c", b""))),
        Linked(3, "c", False),
        Fired(4, "key"),
    ]
    for record in records:
        read = codec.decode(codec.encode(record))
        assert read == record
        assert type(read) is type(record)
    assert type(codec.decode(codec.encode(records[0])).packet) is MatrixPacket
    good = codec.encode(records[0])
    for bad in (b"", good[:-1], good[1:], b"\x91\x63", b"\xc0", codec.encode(records[1])[:-1] + b"\xa1x"):
        with pytest.raises(DataError, match="durable log"):
            codec.decode(bad)
