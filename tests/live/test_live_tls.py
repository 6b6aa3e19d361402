"""Groups under TLS: everything works as in plain text, wherever the nodes are, and keys can be exchanged."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import whence
from support.keyring import issue, keys_for
from support.living import Mesh, eventually, free_ports, live_group, loopback, quick_limits, take
from whence.errors import CertificateError, KeysError, KeysRequiredError, ParameterError
from whence.live import authority
from whence.live.tls import key_files
from whence.session.addresses import Address


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return keys_for(tmp_path / "keys", "alice", "bob", "carol")


def ssl_objects(group: whence.Group) -> list[Any]:
    return [
        link.channel._transport.get_extra_info("ssl_object")  # type: ignore[union-attr]  # a test's look inside
        for link in group._node.links.values()
    ]


@pytest.mark.parametrize("protocol", ["vector", "fifo", "vcube", "barrier", "tdca"])
def test_a_group_under_tls_delivers_everything(keys: Path, protocol: str) -> None:
    async def main() -> None:
        options = {"transport": "tcp"} if protocol == "tdca" else {}
        if protocol in ("tdca", "barrier"):
            options["lifetime"] = 60
        async with live_group("alice", "bob", "carol", keys=keys, protocol=protocol, **options) as groups:
            for group in groups:
                for number in range(50):
                    await group.broadcast(b"%d" % number)
            for group in groups:
                got = await take(group, 150)
                for name in ("alice", "bob", "carol"):
                    assert [m.payload for m in got if m.origin == name] == [b"%d" % n for n in range(50)]
                assert group.stats().peer_errors == {}
                for secured in ssl_objects(group):
                    assert secured.version() == "TLSv1.3"
                    assert secured.getpeercert()["subjectAltName"][0][0] == "URI"

    asyncio.run(main())


def test_a_long_message_and_the_last_words_pass(keys: Path) -> None:
    async def main() -> None:
        payload = bytes(range(256)) * 4000  # many TLS records
        async with live_group("alice", "bob", keys=keys) as [alice, bob]:
            await alice.broadcast(payload)
            assert (await take(bob, 1))[0].payload == payload
            for _ in range(20):
                await alice.broadcast(payload)
            await alice.leave()  # waits until bob has it all, and bob learns that it left
            assert len(await take(bob, 20)) == 20
            await eventually(lambda: bob.stats().links["alice"].state == "left")
            assert bob.stats().peer_errors == {}

    asyncio.run(main())


def test_links_resume_after_cuts_under_tls(keys: Path) -> None:
    async def main() -> None:
        async with Mesh(["alice", "bob"]) as mesh:
            [proxy] = mesh.proxies.values()
            async with mesh.joined(keys=keys) as [alice, bob]:
                for number in range(200):
                    await alice.broadcast(b"a%d" % number)
                    await bob.broadcast(b"b%d" % number)
                    if number % 20 == 7:
                        await alice.wait_connected(10)
                        proxy.cut()
                    await asyncio.sleep(0.001)
                for group in (alice, bob):
                    got = [m.payload for m in await take(group, 400)]
                    for who in b"ab":
                        assert [each for each in got if each[0] == who] == [
                            b"%c%d" % (who, n) for n in range(200)
                        ]
                assert bob.stats().reconnects >= 5

    asyncio.run(main())


def test_processes_without_a_list_of_members_speak_tls(keys: Path) -> None:
    async def main() -> None:
        ports = free_ports(3)

        def joining(index: int, contact: int | None) -> Any:
            return whence.join(
                "room", node=["alice", "bob", "carol"][index], listen=f"127.0.0.1:{ports[index]}",
                contact=None if contact is None else f"127.0.0.1:{ports[contact]}", protocol="prc",
                limits=quick_limits(leave_timeout_s=2.0), shuffle_s=0.2, keys=keys,
            )  # fmt: skip

        async with joining(0, None) as alice, joining(1, 0) as bob, joining(2, 1) as carol:
            await eventually(lambda: len(alice._node.links) == 2)
            await alice.broadcast(b"hello")
            for group in (bob, carol):
                assert (await take(group, 1))[0].payload == b"hello"
                assert all(each.version() == "TLSv1.3" for each in ssl_objects(group))

    asyncio.run(main())


def test_durable_nodes_come_back_under_tls(keys: Path, tmp_path: Path) -> None:
    async def main() -> None:
        peers = loopback(["alice", "bob"])

        def joining(name: str) -> Any:
            return whence.join(
                "room", node=name, peers=peers, protocol="matrix", store=tmp_path / f"{name}.db", keys=keys,
                limits=quick_limits(),
            )  # fmt: skip

        async with joining("alice") as alice, joining("bob") as bob:
            await alice.send("bob", b"one")
            assert (await take(bob, 1))[0].payload == b"one"
        async with joining("alice") as alice:
            await alice.send("bob", b"two")
        async with joining("alice") as alice, joining("bob") as bob:
            await bob.send("alice", b"three")
            # Bob had not said that he was done with the first.
            assert [m.payload for m in await take(bob, 2)] == [b"one", b"two"]
            assert (await take(alice, 1))[0].payload == b"three"
            assert alice.stats().peer_errors == bob.stats().peer_errors == {}
            assert all(each.version() == "TLSv1.3" for each in ssl_objects(alice))

    asyncio.run(main())


# What `join` demands

BEYOND = {"alice": "127.0.0.1:7001", "bob": "192.0.2.7:7001"}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"peers": BEYOND}, "192.0.2.7:7001"),
        ({"peers": BEYOND, "protocol": "tdca", "lifetime": 1}, "192.0.2.7:7001"),
        ({"peers": {"alice": "127.0.0.1:7001"}, "listen": "0.0.0.0:7001"}, "0.0.0.0:7001"),
        ({"peers": {"alice": "[2001:db8::1]:7001"}}, "[2001:db8::1]:7001"),
        ({"peers": {"alice": "host.example:7001"}}, "host.example:7001"),
        ({"listen": "192.0.2.7:7001", "protocol": "prc"}, "192.0.2.7:7001"),
        ({"listen": "127.0.0.1:1", "contact": "192.0.2.7:7001", "protocol": "prc"}, "contact 192.0.2.7:7001"),
    ],
)
def test_plain_text_beyond_this_machine_must_be_asked_for(options: dict[str, Any], named: str) -> None:
    with pytest.raises(KeysRequiredError) as caught:
        whence.join("room", node="alice", **options)
    assert named in caught.value.what
    assert "plaintext=True" in caught.value.fix
    assert ("whence keys init room" in caught.value.fix) == (options.get("protocol") != "tdca")
    whence.join("room", node="alice", plaintext=True, **options)


def test_with_keys_any_address_will_do(keys: Path) -> None:
    whence.join("room", node="alice", peers=BEYOND, keys=keys, protocol="vector")
    whence.join("room", node="alice", listen="192.0.2.7:1", protocol="prc", keys=str(keys))


def test_contradictions_are_refused(keys: Path) -> None:
    with pytest.raises(ParameterError, match="keys were given as well"):
        whence.join("room", node="alice", peers=BEYOND, keys=keys, plaintext=True, protocol="vector")
    with pytest.raises(ParameterError, match="datagrams cannot be secured"):
        whence.join("room", node="alice", peers=BEYOND, keys=keys, protocol="tdca")
    with pytest.raises(ParameterError, match="neither True nor False"):
        whence.join("room", node="alice", peers=BEYOND, plaintext="no", protocol="vector")  # type: ignore[arg-type]  # on purpose


def test_which_addresses_are_of_this_machine() -> None:
    for host in ("127.0.0.1", "127.8.9.10", "::1", "localhost", "LocalHost.", "a.localhost"):
        assert Address(host, 1).is_loopback, host
    for host in (
        "0.0.0.0",
        "::",
        "10.0.0.1",
        "fe80::1%eth0",
        "localhost.example",
        "127.0.0.1.example",
        "127.1",
    ):
        assert not Address(host, 1).is_loopback, host


def test_a_peers_gossip_does_not_lead_into_the_open() -> None:
    """A loopback process without keys is told of an address elsewhere: it does not go there."""

    async def main() -> None:
        [port] = free_ports(1)
        async with whence.join(
            "room", node="alice", listen=f"127.0.0.1:{port}", protocol="prc", limits=quick_limits()
        ) as alice:
            node: Any = alice._node
            tasks = len(node._tasks)
            node.membership.dial("bob", Address("192.0.2.7", 7001))
            assert "no keys" in alice.events()[-1].detail
            assert len(node._tasks) == tasks
            await asyncio.sleep(0)

    asyncio.run(main())


# Keys that are no good


def spoil(keys: Path, what: str) -> None:
    files = key_files(keys, "alice")
    if what == "missing":
        files.key.unlink()
    elif what == "no authority":
        files.authority.unlink()
    elif what == "garbage":
        files.certificate.write_text("-----BEGIN CERTIFICATE-----\nhello\n-----END CERTIFICATE-----\n")
    elif what == "empty authority":
        files.authority.write_text("")
    elif what == "another's key":
        shutil.copy(key_files(keys, "bob").key, files.key)
    elif what == "another's files":
        for mine, other in zip(files[1:], key_files(keys, "bob")[1:], strict=True):
            shutil.copy(other, mine)
    elif what == "foreign":
        other = keys_for(keys.parent / "other", "alice")
        shutil.copy(other / "ca.pem", files.authority)
    elif what == "expired":
        issue(keys, "alice", "room", "alice", timedelta(minutes=-1))
    elif what == "another group":
        issue(keys, "alice", "kitchen", "alice")
    elif what == "encrypted":
        from cryptography.hazmat.primitives import serialization

        key = serialization.load_pem_private_key(files.key.read_bytes(), None)
        files.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(b"secret"),
            )
        )


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("missing", "No such file"),
        ("no authority", "No such file"),
        ("garbage", "not a PEM file"),
        ("empty authority", "not a PEM file"),
        ("another's key", "key of another certificate"),
        ("another's files", "it is for node 'bob' of group 'room'"),
        ("foreign", "certificate"),
        ("expired", "expired"),
        ("another group", "of group 'kitchen'"),
        ("encrypted", "it is encrypted"),
    ],
)
def test_keys_that_are_no_good_are_refused_when_joining(keys: Path, what: str, words: str) -> None:
    whence.join("room", node="alice", peers=loopback(["alice"]), keys=keys, protocol="vector")
    spoil(keys, what)
    with pytest.raises(KeysError, match=words) as caught:
        whence.join("room", node="alice", peers=loopback(["alice"]), keys=keys, protocol="vector")
    assert str(keys) in caught.value.what


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(KeysError, match="No such file"):
        whence.join(
            "room", node="alice", peers=loopback(["alice"]), keys=tmp_path / "nowhere", protocol="vector"
        )


# Exchange of keys


def renew(keys: Path, node: str) -> None:
    """As an operator does it: make new ones elsewhere, then move them over the old ones."""
    files = key_files(keys, node)
    for path in files[1:]:
        path.rename(path.with_suffix(path.suffix + ".old"))
    authority.add_nodes(keys, [node])


def serials(group: whence.Group) -> set[Any]:
    return {each.getpeercert()["serialNumber"] for each in ssl_objects(group)}


def test_new_keys_are_used_without_a_restart(keys: Path) -> None:
    async def main() -> None:
        async with Mesh(["alice", "bob"]) as mesh:
            [proxy] = mesh.proxies.values()
            async with mesh.joined(keys=keys) as [alice, bob]:
                await alice.wait_connected(10)
                await bob.wait_connected(10)
                before = serials(alice), serials(bob)
                renew(keys, "alice")
                renew(keys, "bob")
                proxy.cut()
                await eventually(lambda: bob.stats().links["alice"].state != "connected")
                await alice.broadcast(b"with new keys")
                assert (await take(bob, 1))[0].payload == b"with new keys"
                assert serials(alice) != before[0]
                assert serials(bob) != before[1]
                (keys / "alice.pem").write_text("half writt")  # what cannot be used is not used
                proxy.cut()
                await eventually(lambda: bob.stats().links["alice"].state != "connected")
                await alice.broadcast(b"with the keys that it had")
                assert (await take(bob, 1))[0].payload == b"with the keys that it had"

    asyncio.run(main())


def test_a_connection_ends_when_its_certificate_expires(keys: Path) -> None:
    async def main() -> None:
        issue(keys, "alice", "room", "alice", timedelta(seconds=2.5))
        limits = quick_limits(leave_timeout_s=0.3)
        async with live_group("alice", "bob", keys=keys, limits=limits) as [alice, bob]:
            await alice.broadcast(b"in time")
            await take(bob, 1)
            await eventually(lambda: bob.stats().peer_errors.get("CertificateError", 0) >= 2)
            found = [event.error for event in bob.events() if isinstance(event.error, CertificateError)]
            assert found[0].reason == "its certificate has expired"
            assert "expired" in found[1].reason  # and so it is not let in again
            renew(keys, "alice")
            await alice.wait_connected(20)
            await alice.broadcast(b"again")
            assert (await take(bob, 1))[0].payload == b"again"

    asyncio.run(main())


def test_both_authorities_are_trusted_while_they_are_exchanged(tmp_path: Path) -> None:
    async def main() -> None:
        old, new = keys_for(tmp_path / "old", "alice", "bob"), keys_for(tmp_path / "new", "alice", "bob")
        both = (old / "ca.pem").read_text() + (new / "ca.pem").read_text()
        for folder in (old, new):
            (folder / "ca.pem").write_text(both)
        peers = loopback(["alice", "bob"])
        async with (
            whence.join(
                "room", node="alice", peers=peers, keys=old, limits=quick_limits(), protocol="vector"
            ) as alice,
            whence.join(
                "room", node="bob", peers=peers, keys=new, limits=quick_limits(), protocol="vector"
            ) as bob,
        ):
            await alice.broadcast(b"across")
            assert (await take(bob, 1))[0].payload == b"across"

    asyncio.run(main())


def test_the_contexts_allow_nothing_older(keys: Path) -> None:
    from support.keyring import make_keys

    made = make_keys(keys, "alice")
    for server_side in (True, False):
        context = made.context(server_side=server_side)
        assert context.minimum_version is ssl.TLSVersion.TLSv1_3
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert len(context.get_ca_certs()) == 1  # and none of the system's
