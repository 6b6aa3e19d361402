"""The durable server alone: records, recovery, snapshots, numbers on links."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from session.pairs import Nothing
from whence.core.effects import CancelTimer, Effects, SetTimer
from whence.core.message import Message, MessageId, Together
from whence.core.protocol import Protocol
from whence.errors import DataError, FrameError, InvariantError, MisuseError
from whence.protocols.baselines.vector import Vector, VectorPacket
from whence.protocols.domains.matrix import Matrix, MatrixPacket
from whence.protocols.vcube.core import VCube
from whence.session.addresses import Address
from whence.session.durable import DurableServer
from whence.session.links import Link
from whence.session.records import (
    RECORDS,
    Arrived,
    Buried,
    Commanded,
    Done,
    Dropped,
    Fired,
    Linked,
    Met,
    Output,
    Passed,
    Reacted,
    RecordCodec,
    Restarted,
    Retired,
    Revived,
    Said,
    Submitted,
    Taken,
)
from whence.session.wire import HEADER, FrameReader, FrameType, Unopened, packets_frame

NAMES = "abc"


class Timers(Nothing):
    """Remembers what is set."""

    def __init__(self) -> None:
        self.at_us: dict[str, int] = {}

    def __contains__(self, key: str) -> bool:
        return key in self.at_us

    def set(self, key: str, at_us: int) -> None:
        self.at_us[key] = at_us

    def cancel(self, key: str) -> None:
        self.at_us.pop(key, None)


class Server(DurableServer):
    """Shows its links."""

    def __init__(self, core: Protocol, timers: Timers, now_us: Callable[[], int]) -> None:
        peers = [name for name in core.members if name != core.me]
        self.links = {name: Link(name, Address("h", 1), dials=core.me < name) for name in peers}
        super().__init__(core, self.links, timers, Nothing(), now_us)


def made(core: Protocol, timers: Timers | None = None, now_us: Callable[[], int] = lambda: 5) -> Server:
    return Server(core, timers or Timers(), now_us)


def server(me: str = "b") -> Server:
    there = made(Matrix(me, NAMES))
    for record in there.links_up():
        there.apply(record)
    return there


def packets_for(there: str, source: Server) -> list[Any]:
    """What waits for a peer."""
    reader = FrameReader(source.core.packet_type, 1 << 20)
    return reader.feed(b"".join(map(packets_frame, source.links[there].out.unacknowledged_packets())))


def packets(count: int) -> list[MatrixPacket]:
    here = server("a")
    for at in range(count):
        here.apply(Submitted(1, "b", b"%d" % at))
    return packets_for("b", here)


def payloads(there: DurableServer) -> list[bytes]:
    return [message[2] for message in there.inbox]


def test_a_packet_is_acknowledged_with_its_record_and_again_without() -> None:
    there = server()
    link = there.links["a"]
    record = there.arrival(link, packets(1))
    assert record == Arrived(5, "a", 1, tuple(packets(1)))
    assert link.incoming.received == 0  # it is not on the disk
    there.apply(record, 100)
    assert (link.incoming.received, link.incoming.told, link.incoming.untold_bytes) == (1, 0, 100)
    assert payloads(there) == [b"0"]
    link.incoming.ack()
    there.apply(record)  # another connection brings it again, and it waits for its acknowledgement
    assert (link.incoming.received, link.incoming.told) == (1, 0)
    assert payloads(there) == [b"0"]
    there.check()


def test_a_reaction_is_one_record_with_its_outputs() -> None:
    there = server()
    there.apply(Arrived(5, "a", 1, tuple(packets(2))))
    assert there.hand_out().payload == b"0"
    there.apply(Reacted(6, b"x", (Output("a", b"re 0"), Output("c", b"too"))))
    assert (there.agent_state, there.reactions, there.done, there.hand) == (b"x", 1, 1, {})
    assert payloads(there) == [b"1"]
    assert [len(packets_for(peer, there)) for peer in "ac"] == [1, 1]
    there.check()


def test_a_reaction_that_cannot_be_written_has_not_happened() -> None:
    there = server()
    there.apply(Arrived(5, "a", 1, tuple(packets(3))))
    before = there.save()
    for _ in range(2):
        there.hand_out()
    there.check()
    there.take_all_back()
    assert payloads(there) == [b"0", b"1", b"2"]
    assert there.unread_bytes == 3
    assert there.save() == before


def test_what_is_not_acknowledged_is_outstanding() -> None:
    here = server("a")
    for to in "bcb":
        here.apply(Submitted(1, to, b""))
    assert [len(packets_for(peer, here)) for peer in "bc"] == [2, 1]
    here.links["b"].out.take(10)
    here.links["b"].out.acknowledge(1)
    restored = made(Matrix("a", NAMES))
    restored.recover(msgspec.msgpack.decode(msgspec.msgpack.encode(here.save())), [])
    for each in (here, restored):
        assert [len(packets_for(peer, each)) for peer in "bc"] == [1, 1]
    restored.links["b"].out.resume(2)  # the peer's HELLO: it has both
    assert restored.links["b"].out.unacknowledged == 0


def test_packets_that_come_again_count_once_and_a_gap_is_refused() -> None:
    there = server()
    all_ = packets(5)
    for first, last in ((1, 2), (2, 4), (1, 3), (4, 4)):
        there.apply(Arrived(2, "a", first, tuple(all_[first - 1 : last])))
        there.check()
    assert there.links["a"].incoming.received == 4
    assert payloads(there) == [b"0", b"1", b"2", b"3"]
    with pytest.raises(InvariantError, match="packets of a are missing"):
        there.apply(Arrived(2, "a", 6, tuple(all_[4:])))


def test_arrivals_are_numbered_as_their_connection_began() -> None:
    there = server()
    link = there.links["a"]
    all_ = packets(4)
    first = there.arrival(link, all_[:2])
    second = there.arrival(link, all_[2:3])
    assert (first.seq, second.seq, link.arrived) == (1, 3, 3)
    there.apply(first)
    link.begin()  # cut: the new connection goes on after what has happened here
    assert there.arrival(link, all_[2:]).seq == 3


def test_replay_and_snapshot_give_the_same_server() -> None:
    there = server()
    records = [
        *made(Matrix("b", NAMES)).links_up(),
        Arrived(5, "a", 1, tuple(packets(2))),
        Submitted(6, "c", b"y"),
        Submitted(6, "nobody", b"refused, then as now"),
        Reacted(7, b"x", (Output("a", b"re"),)),
        Met("a", 77),
        Done((MessageId("a", 2),)),
    ]
    for record in records[2:]:
        if record != records[4]:
            there.apply(record)
    replayed = made(Matrix("b", NAMES))
    replayed.recover(None, records)
    assert replayed.save() == there.save()
    assert replayed.links["a"].peer_session == 77
    restored = made(Matrix("b", NAMES))
    restored.recover(msgspec.msgpack.decode(msgspec.msgpack.encode(there.save())), [])
    assert restored.save() == there.save()
    assert restored.links_up() == []
    half = made(Matrix("b", NAMES))
    half.recover(None, records[:3])
    rest = made(Matrix("b", NAMES))
    rest.recover(half.save(), records[3:])
    assert rest.save() == there.save()


@pytest.mark.parametrize("core", [Vector, VCube])
def test_a_broadcasting_core_is_as_durable(core: Any) -> None:
    here, there = made(core("a", "ab")), made(core("b", "ab"))
    for each in (here, there):
        for record in each.links_up():
            each.apply(record)
    assert here.apply(Submitted(1, None, b"x")) == ("a", 1)
    there.apply(there.arrival(there.links["a"], packets_for("b", here)))
    assert payloads(there) == [b"x"]
    restored = made(core("a", "ab"))
    restored.recover(msgspec.msgpack.decode(msgspec.msgpack.encode(here.save())), [])
    assert packets_for("b", restored) == packets_for("b", here)


def test_a_log_out_of_order_is_refused() -> None:
    for record in (Reacted(1, b"", ()), Taken(1), Done((MessageId("a", 1),))):
        with pytest.raises(InvariantError, match="not delivered"):
            server().recover(None, [record])


def test_the_time_never_goes_back() -> None:
    now_us = [100]
    there = made(Matrix("b", NAMES), now_us=lambda: now_us[0])
    assert there.now_us() == 100
    there.apply(Submitted(300, "a", b""))
    assert there.now_us() == 300
    restored = made(Matrix("b", NAMES), now_us=lambda: now_us[0])
    restored.recover(there.save(), [])
    assert restored.now_us() == 300
    now_us[0] = 400
    assert restored.now_us() == 400


class Ticking(Matrix):
    """Sets a timer with each message, and another one when that expires."""

    def send(self, to: str, payload: bytes, now_us: int) -> Effects:
        return [*super().send(to, payload, now_us), SetTimer("tick", now_us + 10)]

    def timer(self, key: str, now_us: int) -> Effects:
        if key == "tick":
            return [SetTimer("tock", now_us + 20), CancelTimer("never set")]
        return [CancelTimer("tock"), SetTimer("tack", now_us)]


def test_timers_are_state_and_expire_by_records() -> None:
    timers = Timers()
    here = made(Ticking("a", NAMES), timers)
    records = [*here.links_up(), Submitted(1, "b", b"x"), Fired(10, "tick"), Submitted(12, "b", b"x")]
    for record in records[:-2]:
        here.apply(record)
    assert here.due == timers.at_us == {"tick": 11}
    here.apply(records[-2])  # written before it was due, and so it has not expired
    assert here.due == {"tick": 11}
    here.apply(records[-1])
    assert here.due == timers.at_us == {"tick": 22}
    late = Timers()
    again = made(Ticking("a", NAMES), late)
    again.recover(None, [*records, Fired(22, "tick")])
    assert (again.due, late.at_us) == ({"tock": 42}, {})
    again.set_timers(not_before_us=50)
    assert late.at_us == {"tock": 50}
    again.set_timers()
    assert late.at_us == {"tock": 50}  # it is set
    again.apply(Fired(55, "tock"))
    assert (again.due, late.at_us) == ({"tack": 55}, {"tack": 55})


def test_records_survive_the_disk_and_damaged_ones_are_refused() -> None:
    codec = RecordCodec(MatrixPacket)
    packet = MatrixPacket(0, 1, 1, (0, 2, 1), b"x")
    records = [
        Arrived(5, "a", 1, (packet, packet)),
        Taken(7),
        Done((MessageId("a", 3), MessageId("c", 1))),
        Said(1, [b"y", b"z"]),
        Passed(8),
        Submitted(1, None, b"y"),
        Submitted(1, "b", b"y", 9, b"key"),
        Reacted(2, b"state", (Output("a", b"z"), Output("c", b""))),
        Linked(3, "c", False),
        Fired(4, "key"),
        Met("a", 1 << 62, 5),
        Commanded(6, "welcome", ("a", "3")),
        Restarted(7, "a", 1 << 61, 4, True),
        Retired(8, "c", 9),
        Buried(17, 3, "it failed"),
        Revived(18, MessageId("a", 3)),
        Dropped(19, MessageId("b", 4)),
    ]
    assert {type(record) for record in records} == set(RECORDS.values())
    for record in records:
        read = codec.decode(codec.encode(record))
        assert read == record
        assert type(read) is type(record)
    assert type(codec.decode(codec.encode(records[0])).packets[0]) is MatrixPacket
    assert codec.decode_batch(codec.encode_batch(records)) == records
    good = codec.encode(records[0])
    for bad in (b"", good[:-1], good[1:], b"\x91\x63", b"\xc0", codec.encode(records[1])[:-1] + b"\xa1x"):
        with pytest.raises(DataError, match="durable log"):
            codec.decode(bad)


def test_the_numbers_of_records_are_those_of_written_stores() -> None:
    assert {number: kind.__name__ for number, kind in RECORDS.items()} == {
        3: "Submitted", 4: "Reacted", 5: "Linked", 6: "Fired", 7: "Arrived", 8: "Taken", 9: "Met",
        10: "Done", 11: "Commanded", 12: "Restarted", 13: "Retired", 14: "Said", 15: "Passed", 16: "Arrived",
        20: "Buried", 21: "Revived", 22: "Dropped",
    }  # fmt: skip
    codec = RecordCodec(MatrixPacket)
    packet = MatrixPacket(0, 1, 1, (0, 2, 1), b"x")
    assert codec.encode(
        Arrived(5, "a", 1, (packet,))
    ).hex() == "950705a161019195000101930002 01c40178".replace(" ", "")
    assert codec.encode(Submitted(1, None, b"y")).hex() == "960301c0c40179c0c0"
    assert codec.decode(bytes.fromhex("950301c0c40179c0")) == Submitted(1, None, b"y")  # as it was once


def vector(me: str = "a") -> Server:
    there = made(Vector(me, NAMES, relay=False))
    for record in there.links_up():
        there.apply(record)
    return there


def restarted(there: Server, records: list[Any]) -> Server:
    """What the disk says, alone."""
    again = made(Vector(there.core.me, NAMES, relay=False))
    again.recover(None, records)
    again.check()
    return again


def test_what_is_said_together_is_said_one_by_one() -> None:
    together, alone = vector(), vector()
    said = together.say(Said(9, [b"x", b"y", "no bytes", b"z"]))  # type: ignore[list-item]
    ids = [alone.apply(Submitted(9, None, payload)) for payload in (b"x", b"y", b"z")]
    assert [each for each in said if isinstance(each, MessageId)] == ids
    assert isinstance(said[2], MisuseError)
    assert together.save() == alone.save()


def frames_of(source: Server) -> bytes:
    """What 40 messages are on the wire, in frames of one packet and of many."""
    source.say(Said(1, [b"%d" % at for at in range(40)]))
    encoded = source.links["a"].out.unacknowledged_packets()
    frames = packets_frame(encoded[0]) + packets_frame(b"".join(encoded[1:20]), 19)
    return frames + packets_frame(b"".join(encoded[20:25]), 5) + packets_frame(b"".join(encoded[25:]), 15)


def unopened_of(frames: bytes, *, keeps_encoded: bool = False) -> Unopened:
    packets = FrameReader(VectorPacket, 1 << 20, keeps_encoded=keeps_encoded, opens=False).feed(frames)
    assert isinstance(packets, Unopened)
    return packets


def test_packets_are_written_as_they_came_and_opened_when_they_happen() -> None:
    frames = frames_of(vector("b"))
    plain = FrameReader(VectorPacket, 1 << 20).feed(frames)
    kept = unopened_of(frames)
    assert len(kept) == len(plain) == 40
    assert kept.open() == plain
    together = unopened_of(frames, keeps_encoded=True).open()
    assert isinstance(together, Together)
    assert together.again()[0]() == together == plain
    codec = RecordCodec(VectorPacket)
    record = vector().arrival(Link("b", Address("h", 1), dials=True), kept)
    [again] = codec.decode_batch(codec.encode_batch([record]))
    assert isinstance(again, Arrived)
    assert isinstance(again.packets, Unopened)
    assert again._replace(packets=again.packets.open()) == record._replace(packets=plain)


def test_what_cannot_be_opened_has_not_arrived_nor_what_follows_it_on_its_connection() -> None:
    frames = frames_of(vector("b"))
    good = unopened_of(frames)
    bad = unopened_of(packets_frame(b"\x94\x01\x29\x90\xa1x"))  # its payload is text
    here, link = vector(), Link("b", Address("h", 1), dials=True)
    records = [here.arrival(link, each) for each in (good, bad, good)]
    link.arrived = 40  # the peer connects anew, and is told that 40 are here
    records += [here.arrival(link, each) for each in (bad, good)]
    last = vector("b")
    frames_of(last)
    last.links["a"].out.take(40)
    last.apply(Submitted(2, None, b"40"))
    link.arrived = 40
    records.append(here.arrival(link, unopened_of(packets_frame(*last.links["a"].out.pending))))
    here.apply(records[0])
    before = here.save()
    for record in records[1:-1]:
        if len(record.packets) == 1:
            with pytest.raises(FrameError):
                here.apply(record)
        else:
            here.apply(record)
        assert here.save() == {**before, "last_us": 5, "unreadable": ["b"]}
        later = vector()  # a snapshot may come between what cannot be read and what follows it
        later.recover(here.save(), [records[2]])
        assert payloads(later) == payloads(here)
    kept = here.save()
    here.apply(records[-1])
    assert here.links["b"].incoming.received == 41
    assert payloads(here) == [b"%d" % at for at in range(41)]
    codec = RecordCodec(VectorPacket)
    again = vector()
    again.recover(None, codec.decode_batch(codec.encode_batch([*vector().links_up(), *records])))
    assert payloads(again) == payloads(here)
    last_part = vector()
    last_part.recover(kept, records[-1:])
    assert payloads(last_part) == payloads(here)
    assert "unreadable" not in last_part.save()
    with pytest.raises(InvariantError, match="missing in its log"):
        again.apply(records[2]._replace(seq=99))


@pytest.mark.parametrize("body", [b"", b"\x01", b"\xdc\x00", b"\xdd\xff\xff\xff\xff", b"\x92\x01"])
def test_a_body_that_cannot_be_an_array_is_refused_at_the_door(body: bytes) -> None:
    reader = FrameReader(VectorPacket, 1 << 20, opens=False)
    assert len(reader.feed(HEADER.pack(1 + len(body), FrameType.BATCH) + body)) == 0
    assert isinstance(reader.error, FrameError)


def read(there: Server, last: Message | None) -> Message:
    """As a loop does (live/group.py): it passes `last`, or names it, and takes the next."""
    if last is not None and there.lent is last:
        there.lent = None
        there.passed += 1
    return there.lend()


def test_a_loop_passes_messages_without_naming_them() -> None:
    there = vector()
    log: list[Any] = [*made(there.core).links_up(), Said(1, [b"%d" % at for at in range(6)])]
    there.apply(log[-1])
    last = None
    for _ in range(4):
        last = read(there, last)
    assert (there.passed, there.hand, there.in_hand) == (3, {}, 4)
    assert payloads(restarted(there, log)) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    log.append(Passed(2))  # what was cut when two were passed
    there.apply(log[-1])
    assert (there.passed, there.done) == (1, 2)
    there.check()
    assert payloads(restarted(there, log)) == [b"2", b"3", b"4", b"5"]


def test_a_snapshot_has_what_loops_passed_and_the_log_goes_on_after_it() -> None:
    there = vector()
    there.apply(Said(1, [b"%d" % at for at in range(6)]))
    last = read(there, None)
    last = read(there, last)
    passed, state = there.passed, there.save()
    last = read(there, last)  # while the snapshot is written
    there.kept(passed)
    assert (there.passed, there.done) == (1, 1)
    there.apply(Passed(1))
    again = made(Vector("a", NAMES, relay=False))
    again.recover(state, [Passed(1)])
    assert payloads(again) == [b"2", b"3", b"4", b"5"]
    assert [message.payload for message in there.undone()] == [b"2", b"3", b"4", b"5"]
    again.check()
    there.check()


def test_a_loop_names_messages_after_others_were_put_back_in_another_order() -> None:
    there = vector()
    log: list[Any] = [*made(there.core).links_up(), Said(1, [b"0", b"1", b"2"])]
    there.apply(log[-1])
    for message in [there.hand_out(), there.hand_out()]:
        there.take_back(message.id)
    last = read(there, None)
    assert (last.payload, there.lent) == (b"1", None)  # "the oldest" would be 0 after a crash
    assert there.has_handed_out(last.id)
    log.append(Done((last.id,)))
    there.apply(log[-1])
    assert payloads(there) == payloads(restarted(there, log)) == [b"0", b"2"]
    while there.inbox:
        last = there.lend()
    assert last is not there.lent
    there.apply(Done(tuple(there.hand)))
    there.apply(Said(2, [b"3"]))
    assert read(there, None) is there.lent  # nothing is left of that order


def test_a_snapshot_has_messages_in_the_order_of_delivery_whatever_readers_put_back() -> None:
    there = vector()
    log: list[Any] = [*made(there.core).links_up(), Said(1, [b"0", b"1", b"2", b"3"])]
    there.apply(log[-1])
    first, second, _ = [there.hand_out() for _ in range(3)]
    for message in (first, second):
        there.take_back(message.id)
    assert there.hand_out() == second
    assert [message.payload for message in there.undone()] == [b"0", b"1", b"2", b"3"]
    log.append(Done((second.id,)))
    there.apply(log[-1])
    assert (
        [message.payload for message in there.undone()]
        == payloads(restarted(there, log))
        == [b"0", b"2", b"3"]
    )


@pytest.mark.parametrize("seed", range(60))
def test_readers_of_every_kind_and_a_crash_agree_on_what_is_done(seed: int) -> None:
    """Loops, tasks that receive and say done or put back, in any mixture: the log gives what is not done."""
    rng = random.Random(seed)
    there = vector()
    log: list[Any] = [*made(there.core).links_up()]
    loops: list[Message | None] = [None] * rng.choice([1, 1, 2])
    named: set[MessageId] = set()
    said: list[MessageId] = []
    passed: list[MessageId] = []
    for step in range(80):
        kind = rng.choice(["say", "loop", "loop", "loop", "receive", "done", "again", "commit"])
        if kind == "say":
            log.append(Said(step, [b"%d.%d" % (step, at) for at in range(rng.randrange(1, 4))]))
            there.apply(log[-1])
        elif kind == "loop" and there.inbox:
            at = rng.randrange(len(loops))
            last = loops[at]
            if last is not None and there.lent is not last and there.has_handed_out(last.id):
                if last.id not in said:
                    said.append(last.id)
                named.discard(last.id)
            if last is not None and there.lent is last:
                passed.append(last.id)
            loops[at] = read(there, last)
        elif kind == "receive" and there.inbox:
            named.add(there.hand_out().id)
        elif kind in ("done", "again") and named:
            id_ = rng.choice(sorted(named))
            assert there.has_handed_out(id_)
            named.discard(id_)
            if kind == "done":
                said.append(id_)
            else:
                there.take_back(id_)
        elif kind == "commit":
            for record in (Passed(there.passed), Done(tuple(said))):
                log.append(record)
                there.apply(record)
            said, passed = [], []
        there.check()
        waiting = [message.id for message in there.undone()]
        undone = [message.id for message in restarted(there, log).undone()]
        assert len(undone) == len(waiting) + len(passed)
        assert undone == sorted(undone), "whatever was put back: the order of delivery"
        assert [id_ for id_ in undone if id_ not in passed] == [id_ for id_ in waiting if id_ not in passed]
        assert set(passed) <= set(undone)
