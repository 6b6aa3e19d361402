"""Discovery by multicast: what a beacon yields, and what it must not."""

from __future__ import annotations

import asyncio

import msgspec

from support.living import eventually, in_a_loop
from whence.live.beacons import MULTICAST, Beacons, mark_of
from whence.session.addresses import Address

HERE = Address("127.0.0.1", 7001)


@in_a_loop
async def test_two_of_a_group_hear_each_other_and_no_one_else() -> None:
    heard: dict[str, list[tuple[str, Address]]] = {"a": [], "b": [], "other": []}

    def beacons(group: str, node: str, key: str) -> Beacons:
        return Beacons(group, node, HERE, lambda *found: heard[key].append(found))

    three = [beacons("room", "a", "a"), beacons("room", "b", "b"), beacons("hall", "c", "other")]
    for each in three:
        await each.open()
    tasks = [asyncio.create_task(each.keep_calling()) for each in three]
    await eventually(lambda: bool(heard["a"]) and bool(heard["b"]))
    for task in tasks:
        task.cancel()
    for each in three:
        each.close()
    assert {name for name, _ in heard["a"]} == {"b"}
    assert {name for name, _ in heard["b"]} == {"a"}
    assert heard["other"] == []
    assert heard["a"][0][1].port == 7001


def test_what_is_no_beacon_of_the_group_is_ignored() -> None:
    heard: list[object] = []
    mine = Beacons("room", "a", HERE, lambda *found: heard.append(found))
    good = ("whence-beacon", 1, mark_of("room"), "b", 7)
    bad: list[object] = [
        ("whence-beacon", 2, mark_of("room"), "b", 7),
        ("whence-beacon", 1, mark_of("hall"), "b", 7),
        ("whence-beacon", 1, mark_of("room"), "a", 7),
        ("whence-beacon", 1, mark_of("room"), "", 7),
        ("whence-beacon", 1, mark_of("room"), "b", 0),
        ("whence-beacon", 1, mark_of("room"), "b", 65536),
        ("whence-beacon", 1, mark_of("room"), "b" * 256, 7),
        ("whence-beacon", 1, mark_of("room")),
        "hello",
    ]
    for each in bad:
        mine.datagram_received(msgspec.msgpack.encode(each), ("10.0.0.1", 9))
    mine.datagram_received(b"\x91" * 2000, ("10.0.0.1", 9))
    mine.datagram_received(b"", ("10.0.0.1", 9))
    assert heard == []
    mine.datagram_received(msgspec.msgpack.encode(good), ("10.0.0.1", 9))
    assert heard == [("b", Address("10.0.0.1", 7))]
    assert MULTICAST.host.startswith("239.255.")
