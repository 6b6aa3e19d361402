"""Noise, silence and damage at nodes under TLS: bounded, counted, and nothing is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import whence
from support.keyring import keys_for
from support.living import Mesh, eventually, live_group, loopback, quick_limits, send_raw, take
from whence.errors import FrameError, PeerError, WhenceError


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return keys_for(tmp_path / "keys", "alice", "bob")


def errors_at(group: whence.Group) -> list[WhenceError]:
    return [event.error for event in group.events() if event.error is not None]


def test_silent_strangers_at_a_node_with_keys_are_bounded_and_counted(keys: Path) -> None:
    async def main() -> None:
        peers = loopback(["alice", "bob"])
        limits = quick_limits(handshake_timeout_s=3.0)
        async with live_group("alice", "bob", peers=peers, limits=limits, keys=keys) as [alice, bob]:
            host, _, port = peers["bob"].rpartition(":")
            crowd = [await asyncio.open_connection(host, int(port)) for _ in range(300)]
            await eventually(
                lambda: sum("too many connections" in event.detail for event in bob.events()) >= 20
            )
            assert len(bob._node.peering.strangers) <= 260
            await alice.broadcast(b"through the crowd")
            assert (await take(bob, 1))[0].payload == b"through the crowd"
            await eventually(lambda: not bob._node.peering.strangers)
            assert bob.stats().peer_errors == {"HandshakeError": 300}  # each once, in one way or the other
            for _, writer in crowd:
                writer.transport.abort()

    asyncio.run(main())


@pytest.mark.parametrize(
    "noise", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00" + bytes(600), b"\x80\x80"]
)
def test_noise_at_a_node_with_keys(keys: Path, noise: bytes) -> None:
    async def main() -> None:
        peers = loopback(["alice", "bob"])
        limits = quick_limits(handshake_timeout_s=3.0)
        async with live_group("alice", "bob", peers=peers, limits=limits, keys=keys) as [alice, bob]:
            await send_raw(peers["bob"], noise)
            await eventually(lambda: bool(errors_at(bob)))
            assert len(errors_at(bob)) == 1
            assert isinstance(errors_at(bob)[0], PeerError)
            await alice.broadcast(b"undisturbed")
            assert (await take(bob, 1))[0].payload == b"undisturbed"

    asyncio.run(main())


def test_a_damaged_or_repeated_tls_record_ends_the_connection_and_nothing_else(keys: Path) -> None:
    async def main() -> None:
        async with Mesh(["alice", "bob"]) as mesh:
            [proxy] = mesh.proxies.values()
            async with mesh.joined(keys=keys) as [alice, bob]:
                await alice.wait_connected(10)
                await bob.wait_connected(10)

                def twice(data: bytes) -> bytes:
                    proxy.damage = None
                    return data + data

                def flipped(data: bytes) -> bytes:
                    proxy.damage = None
                    return data[:-1] + bytes([data[-1] ^ 1])

                for number in range(6):
                    await alice.wait_connected(10)
                    await bob.wait_connected(10)
                    before = len(errors_at(alice)) + len(errors_at(bob))
                    proxy.damage = twice if number % 2 else flipped
                    await alice.broadcast(b"%d" % number)
                    assert (await take(bob, 1))[0].payload == b"%d" % number
                    await eventually(lambda n=before: len(errors_at(alice)) + len(errors_at(bob)) > n)
                await alice.broadcast(b"the end")
                assert (await take(bob, 1))[0].payload == b"the end"
                assert bob.stats().deliveries == 7
                assert bob.stats().discards == {}  # not even the core has seen anything twice
                found = errors_at(alice) + errors_at(bob)
                assert {type(error) for error in found} == {FrameError}
                assert all("damaged, forged or replayed" in error.reason for error in found)

    asyncio.run(main())
