"""The application's view: join, broadcast, iterate, leave; and what a mistake looks like."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import whence
from support.living import eventually, live_group, loopback, quick_limits, take
from whence.errors import (
    GroupClosedError,
    MisuseError,
    ParameterError,
    PayloadTooLargeError,
    PeerError,
    PlatformError,
    TraceError,
    UnknownProtocolError,
)
from whence.sim.replay import replay
from whence.verify.run import verify_trace


def test_two_nodes_talk() -> None:
    async def main() -> None:
        async with live_group("alice", "bob") as [alice, bob]:
            assert await alice.broadcast(b"hello") == whence.MessageId("alice", 1)
            assert await take(bob, 1) == [whence.Message("alice", 1, b"hello")]
            assert await bob.broadcast(b"hi") == ("bob", 1)
            assert [message.payload for message in await take(alice, 2)] == [b"hello", b"hi"]
            assert (await take(bob, 1))[0].id == ("bob", 1)
            assert (alice.name, alice.node, alice.members) == ("room", "alice", ("alice", "bob"))

    asyncio.run(main())


@pytest.mark.parametrize("protocol", ["vector", "fifo"])
@pytest.mark.parametrize("relay", [True, False])
def test_everybody_delivers_everything(protocol: str, relay: bool) -> None:
    async def main() -> None:
        async with live_group("a", "b", "c", protocol=protocol, relay=relay) as groups:
            for number in range(50):
                for group in groups:
                    await group.broadcast(f"{group.node}{number}".encode())
            for group in groups:
                messages = await take(group, 150)
                for origin in "abc":
                    numbers = [message.number for message in messages if message.origin == origin]
                    assert numbers == list(range(1, 51))
                stats = group.stats()
                assert (stats.broadcasts, stats.deliveries, stats.unread_messages) == (50, 150, 0)
                assert group.explain() == []
                # A relay's copy comes from both others, and one of the two is the second.
                await eventually(
                    lambda group=group: group.stats().packets_received == (200 if relay else 100)
                )
                assert sum(group.stats().discards.values()) == (100 if relay else 0)

    asyncio.run(main())


def test_iteration_ends_when_the_group_is_left_and_then_everything_is_closed() -> None:
    async def main() -> None:
        async with live_group("alice", "bob") as [alice, bob]:
            heard: list[bytes] = []

            async def listen() -> None:
                async for message in bob:
                    heard.append(message.payload)

            listener = asyncio.create_task(listen())
            for number in range(5):
                await alice.broadcast(b"%d" % number)
            await eventually(lambda: len(heard) == 5)
            await bob.leave()
            await asyncio.wait_for(listener, 5)
            assert heard == [b"0", b"1", b"2", b"3", b"4"]
            with pytest.raises(GroupClosedError, match="it was left"):
                await bob.broadcast(b"too late")
            with pytest.raises(GroupClosedError):
                await bob.receive()
            with pytest.raises(GroupClosedError):
                await bob.wait_connected(1)
            await bob.leave()  # again: nothing happens

    asyncio.run(main())


def test_messages_that_were_delivered_can_be_read_after_leaving() -> None:
    async def main() -> None:
        async with live_group("alice") as [alice]:
            await alice.broadcast(b"one")
            await alice.broadcast(b"two")
            await alice.leave()
            assert [message.payload async for message in alice] == [b"one", b"two"]

    asyncio.run(main())


def test_who_starts_late_misses_nothing() -> None:
    async def main() -> None:
        peers = loopback(["alice", "bob"])
        async with whence.join(
            "room", node="alice", peers=peers, limits=quick_limits(), protocol="vector"
        ) as alice:
            for number in range(100):
                await alice.broadcast(b"%d" % number)
            await asyncio.sleep(0.05)
            async with whence.join(
                "room", node="bob", peers=peers, limits=quick_limits(), protocol="vector"
            ) as bob:
                assert [m.payload for m in await take(bob, 100)] == [b"%d" % n for n in range(100)]

    asyncio.run(main())


def test_several_tasks_may_read_and_each_message_goes_to_one() -> None:
    async def main() -> None:
        async with live_group("alice", "bob") as [alice, bob]:
            got: list[int] = []

            async def read() -> None:
                async for message in bob:
                    got.append(message.number)
                    await asyncio.sleep(0)

            readers = [asyncio.create_task(read()) for _ in range(3)]
            for _ in range(60):
                await alice.broadcast(b"x")
            await eventually(lambda: len(got) == 60)
            await bob.leave()
            await asyncio.gather(*readers)
            assert sorted(got) == list(range(1, 61))

    asyncio.run(main())


def test_a_cancelled_read_loses_no_message() -> None:
    async def main() -> None:
        async with live_group("alice", "bob") as [alice, bob]:
            for number in range(20):
                reading = asyncio.create_task(bob.receive())
                await asyncio.sleep(0)
                if number % 2:
                    await alice.broadcast(b"x")
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
                if not reading.cancelled():
                    await alice.broadcast(b"x")  # it had its message before it was cancelled
            await alice.broadcast(b"last")
            while (await take(bob, 1))[0].payload != b"last":
                pass
            assert bob.stats().deliveries == alice.stats().broadcasts

    asyncio.run(main())


def test_payload_mistakes_are_refused_and_change_nothing() -> None:
    async def main() -> None:
        async with live_group("alice", "bob", limits=quick_limits(max_payload_bytes=100)) as [alice, bob]:
            with pytest.raises(PayloadTooLargeError, match="101 bytes"):
                await alice.broadcast(b"x" * 101)
            for wrong in ("text", 5, None, bytearray(b"x")):
                with pytest.raises(MisuseError):
                    await alice.broadcast(wrong)
            await alice.broadcast(b"x" * 100)
            assert (await take(bob, 1))[0] == ("alice", 1, b"x" * 100)

    asyncio.run(main())


def test_a_missing_peer_is_named_when_the_time_is_over() -> None:
    async def main() -> None:
        async with live_group("alice", "bob", connected=False, peers=loopback(["alice", "bob", "carol"])) as [
            alice,
            _,
        ]:
            with pytest.raises(PeerError, match="carol at 127"):
                await alice.wait_connected(0.3)
            assert alice.stats().links["carol"].state == "disconnected"

    asyncio.run(main())


WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "not a peer": ({"node": "zoe"}, ParameterError, "not among the peers"),
    "no port": ({"peers": {"alice": "localhost"}}, ParameterError, "no host and port"),
    "port 0": ({"peers": {"alice": "localhost:0"}}, ParameterError, "port between"),
    "port in words": ({"peers": {"alice": "localhost:http"}}, ParameterError, "port between"),
    "bare IPv6": ({"peers": {"alice": "::1:7000"}}, ParameterError, "too many colons"),
    "not text": ({"peers": {"alice": 7000}}, ParameterError, "not a string"),
    "peers a list": ({"peers": ["alice"]}, ParameterError, "not among the peers"),
    "one address twice": (
        {"peers": {"alice": "localhost:7000", "bob": "localhost:7000"}},
        ParameterError,
        "share one address",
    ),
    "empty name": ({"peers": {"alice": "localhost:7000", "": "localhost:7001"}}, ParameterError, "1 to 255"),
    "bad listen": ({"listen": "everywhere"}, ParameterError, "listen"),
    "unknown protocol": ({"protocol": "vectr"}, UnknownProtocolError, "vector"),
    "unknown parameter": ({"relays": False}, ParameterError, "relay"),
    "wrong parameter": ({"relay": "yes"}, ParameterError, "true, false or"),
    "wrong limit": ({"limits": whence.Limits(queue_messages=0)}, ParameterError, "queue_messages"),
    "silence": ({"limits": whence.Limits(silence_s=1.0)}, ParameterError, "silence_s"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_configuration_is_a_typed_error_at_once(name: str) -> None:
    changes, kind, words = WRONG[name]
    peers = {"alice": "127.0.0.1:7001", "bob": "[::1]:7002"}
    right: dict[str, Any] = {"node": "alice", "peers": peers, "protocol": "vector"}
    whence.join("room", **right)
    with pytest.raises(kind, match=words):
        whence.join("room", **{**right, **changes})
    with pytest.raises(ParameterError, match="group name"):
        whence.join("", **right)


def test_a_port_in_use_is_named_with_a_fix() -> None:
    async def main() -> None:
        peers = loopback(["alice"])
        host, port = peers["alice"].split(":")
        with socket.socket() as taken:
            taken.bind((host, int(port)))
            taken.listen()
            with pytest.raises(PlatformError, match=f"port {port} on 127.0.0.1: it is in use") as caught:
                async with whence.join("room", node="alice", peers=peers, protocol="vector"):
                    pass
            assert "another port" in caught.value.fix

    asyncio.run(main())


def test_a_live_trace_verifies_and_replays(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_group("alice", "bob", "carol", trace=tmp_path) as groups:
            for number in range(30):
                await groups[number % 3].broadcast(b"say %d" % number)
                await take(groups[(number + 1) % 3], 1)
            for group in groups:
                await eventually(lambda group=group: group.stats().deliveries == 30)

    asyncio.run(main())
    [report] = verify_trace(tmp_path, complete=True)
    assert report.ok, report
    assert (report.broadcasts, report.deliveries) == (30, 90)
    replayed = replay(tmp_path)
    assert replayed.ok, replayed.mismatches
    assert replayed.unexplained_count == 0


def test_a_trace_that_is_there_is_not_overwritten_and_the_port_is_given_back(tmp_path: Path) -> None:
    async def main() -> None:
        peers = loopback(["alice"])
        async with whence.join("room", node="alice", peers=peers, trace=tmp_path, protocol="vector") as group:
            await group.broadcast(b"precious")
        with pytest.raises(TraceError, match="already there"):
            async with whence.join("room", node="alice", peers=peers, trace=tmp_path, protocol="vector"):
                pass
        async with whence.join("room", node="alice", peers=peers, trace=tmp_path / "new", protocol="vector"):
            pass

    asyncio.run(main())


def test_importing_the_package_loads_next_to_nothing() -> None:
    heavy = ["asyncio", "msgspec", "pyspark", "numba", "pyarrow", "numpy", "typer", "rich"]
    code = f"""if True:
        import sys, whence
        print([name for name in {heavy} if name in sys.modules])
        whence.join, whence.Stats
        print([name for name in ['pyspark', 'numba', 'pyarrow', 'numpy', 'pandas'] if name in sys.modules])
        print(whence.__version__, sorted(set(whence.__all__) - set(dir(whence))))
    """
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = result.stdout.splitlines()
    assert lines[:2] == ["[]", "[]"]
    assert lines[2].endswith("[]")
    with pytest.raises(AttributeError, match="no attribute 'jion'"):
        whence.jion  # noqa: B018 - looking it up is the test


def test_the_clock_of_a_live_core_never_goes_back_and_joining_twice_is_refused() -> None:
    async def main() -> None:
        peers = loopback(["alice"])
        joining = whence.join("room", node="alice", peers=peers, protocol="vector")
        async with joining as group:
            clock = group._node.clock
            times = [clock.now_us() for _ in range(1000)]
            assert times == sorted(times)
        with pytest.raises(MisuseError, match="entered before"):
            await joining.__aenter__()

    asyncio.run(main())
