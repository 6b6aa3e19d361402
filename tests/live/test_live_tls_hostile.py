"""Forged senders, foreign and expired certificates, plain text against TLS: refused, named, and counted.

Under TLS 1.3 a client ends its handshake before the server has looked at its certificate, and only then reads
the end of the connection: the refusal is asserted where it is made, at the server.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes

import whence
from live.raw_peer import RawPeer
from support.keyring import client_context, issue, keys_for
from support.living import eventually, free_ports, live_group, loopback, quick_limits, take
from whence.errors import CertificateError, HandshakeError, PeerError, WhenceError
from whence.live import authority
from whence.live.tls import key_files
from whence.protocols.baselines.vector import VectorPacket
from whence.session.wire import FrameReader, Refusal, data_frame

FORGED = data_frame(VectorPacket(0, 1, (), b"forged"))


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return keys_for(tmp_path / "keys", "alice", "bob", "carol")


@asynccontextmanager
async def carol_with_alice(keys: Path) -> AsyncIterator[tuple[whence.Group, whence.Group, dict[str, str]]]:
    """Two honest members; bob's keys are in the hands of the test."""
    peers = loopback(["alice", "bob", "carol"])
    limits = quick_limits(leave_timeout_s=0.3)
    async with live_group("alice", "carol", peers=peers, connected=False, limits=limits, keys=keys) as [
        alice,
        carol,
    ]:
        await eventually(lambda: carol.stats().links["alice"].state == "connected")
        yield alice, carol, peers
        await alice.broadcast(b"undisturbed")
        [message] = await take(carol, 1)
        assert (message.origin, message.payload) == ("alice", b"undisturbed")
        assert carol.stats().reconnects == 0
        assert carol.stats().discards == {}


def errors_at(group: whence.Group) -> list[WhenceError]:
    return [event.error for event in group.events() if event.error is not None]


async def dial(peer: RawPeer, then: bytes = FORGED) -> Refusal | None:
    """Go as far as the other side lets us; answers its refusal, or None if it just hung up."""
    try:
        answer = await peer._open()
        if isinstance(answer, Refusal):
            return answer
        await peer.send(then)
        await peer.closed()
    except (AssertionError, ConnectionError, ssl.SSLError):
        return None  # closed before it was greeted
    raise AssertionError("it was let in")


async def cut_off(alice: whence.Group, carol: whence.Group) -> None:
    """Break the connection, as a network does, and let none be made until `dial` of the transport is back."""

    async def unreachable(_: Any) -> Any:
        raise OSError("unreachable")

    await eventually(lambda: alice.stats().links["carol"].state == "connected")  # carol was first to know
    alice._node.transport.dial = unreachable  # type: ignore[method-assign,union-attr]
    alice._node.links["carol"].channel.abort()  # type: ignore[union-attr]
    await eventually(lambda: carol.stats().links["alice"].state != "connected")


@pytest.mark.parametrize("connected", [True, False])
def test_a_forged_sender_is_refused(keys: Path, connected: bool) -> None:
    """A valid certificate of bob, and a HELLO that says "alice", whether alice is there or not."""

    async def main() -> None:
        async with carol_with_alice(keys) as (alice, carol, peers):
            if not connected:
                await cut_off(alice, carol)
            forger = RawPeer("alice", peers, carol, session=alice._node.identity.session)
            forger.context = client_context(keys, "bob")
            refusal = await dial(forger)
            assert refusal is not None
            assert refusal.code == "handshake"
            [error] = errors_at(carol)
            assert type(error) is CertificateError
            assert isinstance(error, HandshakeError)
            assert "it says that it is 'alice'" in error.reason
            assert "its certificate is for 'bob'" in error.reason
            assert carol.stats().peer_errors == {"CertificateError": 1}
            if not connected:
                assert carol.stats().links["alice"].state != "connected"  # nor has she been since
                del alice._node.transport.dial  # type: ignore[union-attr]  # the network is whole again
                await eventually(lambda: carol.stats().links["alice"].state == "connected")
                carol._node.links["alice"].connections = 1  # it did come back once, and honestly

    asyncio.run(main())


def test_another_group_of_the_same_authority_is_refused(keys: Path) -> None:
    async def main() -> None:
        async with carol_with_alice(keys) as (_, carol, peers):
            issue(keys, "bob", "kitchen", "bob")
            forger = RawPeer("bob", peers, carol, session=7)
            forger.context = client_context(keys, "bob")
            assert (refusal := await dial(forger)) is None or refusal.reason == "this connection is refused"
            [error] = errors_at(carol)
            assert type(error) is CertificateError
            assert "its certificate is for group 'kitchen'" in error.reason

    asyncio.run(main())


def foreign(keys: Path) -> ssl.SSLContext:
    other = keys_for(keys.parent / "other", "bob")
    return client_context(other, "bob", trusts=keys)


def expired(keys: Path) -> ssl.SSLContext:
    issue(keys, "bob", "room", "bob", timedelta(minutes=-1))
    return client_context(keys, "bob")


def without(keys: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(keys / "ca.pem")
    return context


def older(keys: Path) -> ssl.SSLContext:
    context = client_context(keys, "bob")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


def self_made(keys: Path) -> ssl.SSLContext:
    """It names itself rightly, and vouches for itself."""
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    made = authority.certify("room", "bob", key.public_key(), key, None, timedelta(days=1))
    files = key_files(keys, "bob")
    for path in files[1:]:
        path.unlink()
    authority._write_pair(files.certificate, files.key, made, key)
    return client_context(keys, "bob")


@pytest.mark.parametrize(
    ("context", "kind", "words"),
    [
        (foreign, CertificateError, "its certificate is refused"),
        (expired, CertificateError, "expired"),
        (without, CertificateError, "it shows no certificate"),
        (self_made, CertificateError, "its certificate is refused"),
        (older, HandshakeError, "it does not speak TLS 1.3"),
    ],
)
def test_a_bad_certificate_is_refused_at_the_server(
    keys: Path, context: Callable[[Path], ssl.SSLContext], kind: type[WhenceError], words: str
) -> None:
    async def main() -> None:
        async with carol_with_alice(keys) as (_, carol, peers):
            stranger = RawPeer("bob", peers, carol, session=7)
            stranger.context = context(keys)
            assert await dial(stranger) is None
            await eventually(lambda: bool(errors_at(carol)))
            [error] = errors_at(carol)
            assert type(error) is kind
            assert words in error.reason
            assert carol.stats().links["bob"].state != "connected"
            assert not carol._node.peering.strangers

    asyncio.run(main())


def test_plain_text_is_refused_by_a_node_with_keys(keys: Path) -> None:
    async def main() -> None:
        async with carol_with_alice(keys) as (_, carol, peers):
            stranger = RawPeer("bob", peers, carol, session=7)
            assert await dial(stranger) is None
            [error] = errors_at(carol)
            assert type(error) is HandshakeError
            assert "it does not speak TLS 1.3" in error.reason

    asyncio.run(main())


def test_tls_is_refused_by_a_node_in_plain_text(keys: Path) -> None:
    async def main() -> None:
        peers = loopback(["alice", "bob"])
        limits = quick_limits(leave_timeout_s=0.2)
        async with live_group("bob", peers=peers, connected=False, limits=limits) as [bob]:
            stranger = RawPeer("alice", peers, bob, session=7)
            stranger.context = client_context(keys, "alice")
            assert await dial(stranger) is None
            [error] = errors_at(bob)
            assert type(error) is HandshakeError
            assert "it begins with TLS, and this node speaks plain text" in error.reason

    asyncio.run(main())


@pytest.mark.parametrize("with_keys", ["alice", "bob"])
def test_two_nodes_of_which_one_has_keys_say_so(keys: Path, with_keys: str) -> None:
    async def main() -> None:
        peers = loopback(["alice", "bob"])
        limits = quick_limits(leave_timeout_s=0.2)
        joins = [
            whence.join(
                "room",
                node=name,
                peers=peers,
                limits=limits,
                keys=keys if name == with_keys else None,
                protocol="vector",
            )
            for name in ("alice", "bob")
        ]
        async with joins[0] as alice, joins[1] as bob:
            await eventually(lambda: bool(errors_at(bob)))
            assert {type(error) for error in errors_at(bob)} == {HandshakeError}
            with pytest.raises(PeerError) as caught:
                await alice.wait_connected(0.5)
            problem = alice._node.links["bob"].last_error
            assert str(problem) in caught.value.reason
            if with_keys == "alice":
                assert type(problem) is HandshakeError
                assert "it does not speak TLS 1.3" in str(problem)
            else:
                assert "if it has keys, this node needs keys too" in str(problem)

    asyncio.run(main())


def test_nodes_of_two_authorities_refuse_each_other(keys: Path, tmp_path: Path) -> None:
    async def main() -> None:
        peers = loopback(["alice", "bob"])
        limits = quick_limits(leave_timeout_s=0.2)
        other = keys_for(tmp_path / "other", "alice")
        async with (
            whence.join(
                "room", node="alice", peers=peers, limits=limits, keys=other, protocol="vector"
            ) as alice,
            whence.join("room", node="bob", peers=peers, limits=limits, keys=keys, protocol="vector") as bob,
        ):
            await eventually(lambda: bool(errors_at(alice)))
            assert {type(error) for error in errors_at(alice)} == {CertificateError}
            with pytest.raises(CertificateError, match="its certificate is refused"):
                await alice.wait_connected(0.2)
            assert bob.stats().links["alice"].state != "connected"

    asyncio.run(main())


def test_an_impostor_at_a_peers_address_is_told_nothing(keys: Path) -> None:
    """Alice dials bob, and finds somebody with carol's certificate there: she does not even say HELLO."""

    async def main() -> None:
        peers = loopback(["alice", "bob", "carol"])
        heard = bytearray()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        files = key_files(keys, "carol")
        context.load_cert_chain(files.certificate, files.key)

        async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heard.extend(await reader.read())
            writer.close()

        server = await asyncio.start_server(listen, *peers["bob"].split(":"), ssl=context)
        limits = quick_limits(leave_timeout_s=0.2)
        async with live_group("alice", peers=peers, connected=False, limits=limits, keys=keys) as [alice]:
            await eventually(lambda: alice.stats().peer_errors.get("CertificateError", 0) >= 1)
            error = next(each for each in errors_at(alice) if isinstance(each, CertificateError))
            assert "'bob' was dialled, and its certificate is for 'carol'" in error.reason
        server.close()
        frames = FrameReader(VectorPacket, 1 << 20)
        # The refusal is all that it may hear; it says whom we expected, which the dialling said already.
        assert not heard or isinstance(frames.greeting(bytes(heard)), Refusal)

    asyncio.run(main())


def test_a_forged_sender_is_refused_where_there_is_no_list_of_members(keys: Path) -> None:
    async def main() -> None:
        ports = free_ports(2)
        limits = quick_limits(leave_timeout_s=0.5, connect_timeout_s=5.0, handshake_timeout_s=5.0)

        def joining(name: str, port: int, contact: int | None, folder: Path) -> Any:
            return whence.join(
                "room", node=name, listen=f"127.0.0.1:{port}", protocol="prc", limits=limits, keys=folder,
                contact=None if contact is None else f"127.0.0.1:{contact}",
            )  # fmt: skip

        async with joining("alice", ports[0], None, keys) as alice:
            forger = joining("bob", ports[1], ports[0], keys)
            object.__setattr__(forger._settings, "node", "mallory")  # after its keys were checked
            object.__setattr__(forger._settings, "addresses", {"mallory": forger._settings.addresses["bob"]})
            with pytest.raises(PeerError, match="this connection is refused"):
                async with forger:
                    pass
            assert type(errors_at(alice)[0]) is CertificateError
            assert "it says that it is 'mallory'" in errors_at(alice)[0].reason
            # An honest one of another authority is refused as well.
            other = keys_for(keys.parent / "other", "bob")
            with pytest.raises(PeerError):
                async with joining("bob", ports[1], ports[0], other):
                    pass
            async with joining("bob", ports[1], ports[0], keys) as bob:
                await bob.broadcast(b"honest")
                assert (await take(alice, 1))[0].payload == b"honest"

    asyncio.run(main())


def test_a_nodes_certificate_makes_no_members(keys: Path) -> None:
    """Bob signs a certificate for mallory with his own key: he is no authority."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    files = key_files(keys, "bob")
    bob_key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    assert isinstance(bob_key, ec.EllipticCurvePrivateKey)
    bob = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    key = ec.generate_private_key(ec.SECP256R1())
    made = authority.certify("room", "alice", key.public_key(), bob_key, bob, timedelta(days=1))
    assert made.signature_hash_algorithm is not None
    assert isinstance(made.signature_hash_algorithm, hashes.SHA256)
    alice = key_files(keys, "alice")
    for path in alice[1:]:
        path.unlink()
    authority._write_pair(alice.certificate, alice.key, made, key)
    chain = alice.certificate.read_bytes() + files.certificate.read_bytes()
    alice.certificate.write_bytes(chain)

    async def main() -> None:
        peers = loopback(["alice", "carol"])
        limits = quick_limits(leave_timeout_s=0.2)
        async with live_group("carol", peers=peers, connected=False, limits=limits, keys=keys) as [carol]:
            forger = RawPeer("alice", peers, carol, session=7)
            forger.context = client_context(keys, "alice")
            assert await dial(forger) is None
            await eventually(lambda: bool(errors_at(carol)))
            assert [type(error) for error in errors_at(carol)] == [CertificateError]

    asyncio.run(main())
