"""Groups over datagrams: eight processes with a fifth of everything lost, and what the transport promises."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import whence
from live.udp_member import UdpMember, run_members
from support.living import eventually, in_its_life, live_group, loopback, quick_limits, take
from whence.errors import HandshakeError, ParameterError, PayloadTooLargeError, PeerError, PlatformError
from whence.live.linkfaults import FaultyRoute
from whence.session.datagrams import batches, payload_room_bytes
from whence.sim.replay import replay
from whence.trace.reader import open_trace
from whence.verify.run import verify_trace

NAMES = [f"n{index}" for index in range(8)]
FAULTS: dict[str, Any] = {"loss": 0.2, "duplicate": 0.1, "reorder": 0.2, "reorder_s": 0.03, "seed": 7}
LONG_S = 20.0
SHORT_S = 0.5  # where something is lost for good, what follows waits until its own time is over


def exchange(trace: Path, protocol: str, **more: Any) -> list[dict[str, Any]]:
    peers = loopback(NAMES)
    members = [
        UdpMember(node=name, peers=peers, trace=str(trace), protocol=protocol, **more) for name in NAMES
    ]
    return asyncio.run(run_members(members))


@pytest.mark.parametrize("protocol", ["odca", "tdca"])
def test_eight_processes_keep_order_and_deadlines_while_a_fifth_is_lost(
    tmp_path: Path, protocol: str
) -> None:
    results = exchange(tmp_path, protocol, faults=FAULTS)

    def total(what: str) -> int:
        return sum(result[what] for result in results)

    assert total("lost") > 0.1 * total("packets_sent") / 2  # packets share datagrams, so it is not exact
    assert total("duplicates") > 0
    assert not any(result["peer_errors"] for result in results)

    [report] = verify_trace(tmp_path)
    assert report.promises.timely
    assert report.ok, report
    assert (report.counts.causal, report.counts.duplicate, report.counts.late) == (0, 0, 0)
    assert report.broadcasts == total("broadcasts") >= 8 * 60
    # The application was told of every end of a message, and of no other.
    assert report.deliveries == total("messages") == total("deliveries")
    assert report.expiries == total("expired") == total("expiries") > 0
    # How much arrives in half a second depends on the machine; far more than one's own does.
    assert report.deliveries > 2 * report.broadcasts

    replayed = replay(tmp_path)
    assert replayed.ok, replayed.mismatches[:5]
    assert not replayed.unexplained_count
    assert replayed.effects > report.deliveries


def test_a_pair_that_asks_for_what_it_misses(tmp_path: Path) -> None:
    """With loss and long deadlines ODCA's questions are answered, and what was lost is delivered."""

    async def main() -> None:
        faults = whence.LinkFaults(loss=0.3, seed=5)
        params = {"copies": 1, "pulls": 100, "retry_us": 10_000}
        async with live_group("a", "b", protocol="odca", faults=faults, trace=tmp_path, **params) as [a, b]:
            for _ in range(100):
                await a.broadcast(b"", deadline=LONG_S)
                await asyncio.sleep(0.002)
            while b.stats().deliveries < 100:  # whatever is lost at the end is missed by the next one
                await a.broadcast(b"", deadline=LONG_S)
                await asyncio.sleep(0.01)
            assert a.stats().dropped["injected loss"] > 10
            assert b.stats().packets_sent > 0  # its questions

    asyncio.run(main())
    [report] = verify_trace(tmp_path)
    assert report.ok, report


# The transport


def test_the_protocol_decides_the_transport_unless_it_is_named() -> None:
    peers = loopback(["a", "b"])

    def chosen(protocol: str, transport: str | None = None) -> str:
        joining = whence.join("room", node="a", peers=peers, protocol=protocol, transport=transport)
        return joining._settings.transport

    assert [chosen("odca"), chosen("tdca"), chosen("vector")] == ["udp", "udp", "tcp"]
    assert [chosen("odca", "tcp"), chosen("vector", "tcp")] == ["tcp", "tcp"]
    with pytest.raises(ParameterError, match="'vector' needs links that lose nothing") as caught:
        chosen("vector", "udp")
    assert "odca, tdca" in caught.value.fix
    with pytest.raises(ParameterError, match="'carrier pigeon'"):
        chosen("odca", "carrier pigeon")


@pytest.mark.parametrize(
    ("faults", "field"),
    [
        ({"loss": 1.5}, "loss"),
        ({"duplicate": -0.1}, "duplicate"),
        ({"reorder": "often"}, "reorder"),
        ({"reorder_s": 0}, "reorder_s"),
        ({"seed": 0.5}, "seed"),
    ],
)
def test_faults_are_checked(faults: dict[str, Any], field: str) -> None:
    with pytest.raises(ParameterError, match=field):
        whence.join(
            "room", node="a", peers=loopback(["a"]), protocol="odca", faults=whence.LinkFaults(**faults)
        )


def test_faults_are_for_datagrams_only() -> None:
    with pytest.raises(ParameterError, match="only datagrams"):
        whence.join(
            "room", node="a", peers=loopback(["a"]), protocol="vector", faults=whence.LinkFaults(loss=0.1)
        )


def test_faults_depend_on_the_seed_and_the_pair_alone() -> None:
    def drawn(seed: int, sender: int = 0, receiver: int = 1) -> list[list[float]]:
        faults = whence.LinkFaults(loss=0.2, duplicate=0.3, reorder=0.1, reorder_s=0.5, seed=seed)
        route = FaultyRoute(faults, sender, receiver)
        return [route.copies() for _ in range(5000)]

    first = drawn(1)
    assert first == drawn(1)
    assert first != drawn(2)
    assert first != drawn(1, 1, 0)
    assert abs(first.count([]) / 5000 - 0.2) < 0.02
    arrived = [copies for copies in first if copies]
    assert abs(sum(len(copies) == 2 for copies in arrived) / len(arrived) - 0.3) < 0.03
    assert abs(sum(0.5 in copies for copies in arrived) / len(arrived) - 0.1) < 0.02


def test_packets_share_datagrams_but_copies_do_not() -> None:
    assert batches([], 10) == []
    assert batches([b"aaaa", b"bbbb", b"cccc"], 8) == [b"aaaabbbb", b"cccc"]
    assert batches([b"a" * 20, b"bb", b"cc"], 8) == [b"a" * 20, b"bbcc"]  # too long: alone
    assert batches([b"aa", b"aa", b"bb", b"bb"], 8) == [b"aa", b"aabb", b"bb"]


def test_a_message_that_fits_into_no_datagram_is_refused_and_the_largest_arrives() -> None:
    async def main() -> None:
        async with live_group("a", "b", protocol="odca") as [a, b]:
            room_bytes = payload_room_bytes(2)
            with pytest.raises(PayloadTooLargeError, match=f"more than the {room_bytes} that fit into one"):
                await a.broadcast(bytes(room_bytes + 1), deadline=LONG_S)
            await a.broadcast(bytes(room_bytes), deadline=LONG_S)
            [message] = await take(b, 1)
            assert (in_its_life(message.number), len(message.payload)) == (1, room_bytes)
            assert a.stats().dropped == {}
        limits = quick_limits(max_payload_bytes=100)
        async with live_group("a", protocol="odca", limits=limits) as [a]:
            with pytest.raises(PayloadTooLargeError, match="the group's limit of 100"):
                await a.broadcast(bytes(101), deadline=LONG_S)

    asyncio.run(main())


def test_a_burst_travels_in_few_datagrams(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with live_group("a", "b", protocol="tdca") as [a, b]:
            sent: list[int] = []
            outlet = a._node.transport._outlet
            put = outlet.put
            monkeypatch.setattr(outlet, "put", lambda data, to: (sent.append(len(data)), put(data, to)))
            for number in range(100):
                await a.broadcast(b"%d" % number, deadline=LONG_S)
            await take(b, 100)
            assert len(sent) < 10
            assert max(sent) <= a._node.limits.datagram_bytes

    asyncio.run(main())


# Life


def test_peers_that_come_late_are_met_and_leaving_is_told() -> None:
    async def main() -> None:
        peers = loopback(["a", "b"])
        limits = quick_limits()
        async with whence.join("room", node="a", peers=peers, protocol="odca", limits=limits) as a:
            with pytest.raises(PeerError, match=r"not connected after 0\.1 s: b at"):
                await a.wait_connected(0.1)
            await a.broadcast(b"into the void", deadline=LONG_S)  # a link exists from the start
            assert a.stats().links["b"].state == "disconnected"
            async with whence.join("room", node="b", peers=peers, protocol="odca", limits=limits) as b:
                await asyncio.gather(a.wait_connected(10), b.wait_connected(10))
                assert a.stats().links["b"].state == "connected"
                await b.broadcast(b"hello", deadline=LONG_S)
                assert [each.payload for each in await take(a, 2)] == [b"into the void", b"hello"]
            await eventually(lambda: a.stats().links["b"].state == "left")
            assert [event.kind for event in a.events() if event.peer == "b"] == ["connected", "left"]

    asyncio.run(main())


def test_good_bye_is_repeated_until_it_is_heard() -> None:
    async def main() -> None:
        faults = whence.LinkFaults(loss=0.4, seed=1)
        for _ in range(2):
            async with live_group("a", "b", "c", protocol="odca", faults=faults) as groups:
                await groups[0].leave()
                for group in groups[1:]:
                    assert group.stats().links["a"].state == "left"

    asyncio.run(main())


def test_a_silent_peer_is_noticed_and_a_heartbeat_keeps_a_quiet_one() -> None:
    async def main() -> None:
        limits = quick_limits(heartbeat_s=0.1, silence_s=0.5)
        async with live_group("a", "b", protocol="odca", limits=limits) as [a, b]:
            await asyncio.sleep(1.2)
            assert a.stats().links["b"].state == "connected"
            assert a.stats().reconnects == 0
            b._node.transport.close()  # as if it had died
            await eventually(lambda: a.stats().links["b"].state == "disconnected")
            await a.broadcast(b"alone", deadline=LONG_S)  # nobody waits for a datagram
            await a.leave()

    asyncio.run(main())


def test_a_node_that_restarts_without_its_state_is_taken_back_when_the_earlier_one_is_silent() -> None:
    async def main() -> None:
        peers = loopback(["a", "b"])
        limits = quick_limits(heartbeat_s=0.1, silence_s=0.3)
        async with live_group("a", "b", peers=peers, protocol="odca", limits=limits) as [a, b]:
            b._node.transport.close()
            async with whence.join("room", node="b", peers=peers, protocol="odca", limits=limits) as again:
                await eventually(lambda: any(event.kind == "returned" for event in a.events()))
                await again.wait_connected(10)
                await a.broadcast(b"goes on", deadline=LONG_S)
                assert (await take(again, 1))[0].payload == b"goes on"
                await again.broadcast(b"as another life", deadline=LONG_S)
                assert [each.payload for each in await take(a, 2)] == [b"goes on", b"as another life"]
            b._node.failed = True

    asyncio.run(main())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"copies": 1}, "parameter 'copies'"),
        ({"protocol": "tdca"}, "the protocol ('tdca'"),
        ({"limits": quick_limits(max_payload_bytes=99)}, "max_payload_bytes (99"),
    ],
)
def test_a_misconfigured_peer_is_refused_and_both_are_told(change: dict[str, Any], words: str) -> None:
    async def main() -> None:
        peers = loopback(["a", "b"])
        options = {"protocol": "odca", "limits": quick_limits()}
        async with (
            whence.join("room", node="a", peers=peers, **options) as a,
            whence.join("room", node="b", peers=peers, **{**options, **change}) as b,
        ):
            await b.broadcast(b"from afar", deadline=LONG_S)
            for group in (a, b):
                with pytest.raises(HandshakeError) as caught:
                    await group.wait_connected(0.7)
                assert "disagrees" in str(caught.value)
                assert words.partition(" (")[0] in str(caught.value)
                assert group.stats().peer_errors["HandshakeError"] > 0
            assert any(words in event.detail for event in a.events())
            assert a.stats().packets_received == 0

    asyncio.run(main())


def test_an_address_in_use_and_an_unknown_host_have_typed_errors() -> None:
    async def main() -> None:
        peers = loopback(["a", "b"])
        async with live_group("a", peers=peers, connected=False, protocol="odca"):
            with pytest.raises(PlatformError, match="in use"):
                async with live_group("a", peers=peers, connected=False, protocol="odca"):
                    pass
        elsewhere = {**peers, "b": "no-such-host.invalid:1"}
        with pytest.raises(PlatformError, match="cannot be looked up"):
            async with live_group("a", peers=elsewhere, connected=False, protocol="odca", plaintext=True):
                pass

    asyncio.run(main())


def test_ipv6() -> None:
    async def main() -> None:
        ports = [address.rpartition(":")[2] for address in loopback(["a", "b"]).values()]
        peers = {"a": f"[::1]:{ports[0]}", "b": f"[::1]:{ports[1]}"}
        async with live_group("a", "b", peers=peers, protocol="odca") as [a, b]:
            await a.broadcast(b"six", deadline=LONG_S)
            assert [each.payload for each in await take(b, 1)] == [b"six"]

    asyncio.run(main())


# Bounds


def test_a_reader_that_does_not_read_costs_bounded_memory() -> None:
    async def main() -> None:
        limits = quick_limits(unread_messages=50)
        async with live_group("a", "b", protocol="tdca", limits=limits) as [a, b]:
            a_reads = asyncio.create_task(_read_all(a))
            for _ in range(500):
                await a.broadcast(b"x", deadline=SHORT_S)
                await asyncio.sleep(0)
            await eventually(lambda: b.stats().dropped.get("unread", 0) > 0)
            assert b.unread <= 50 + 100  # one datagram may pass the limit
            calling = asyncio.create_task(_go_on(a))
            while (await take(b, 1))[0].payload != b"and on it goes":
                pass
            calling.cancel()
            await a.leave()
            await a_reads

    asyncio.run(main())


async def _go_on(group: whence.Group) -> None:
    while True:
        await group.broadcast(b"and on it goes", deadline=SHORT_S)
        await asyncio.sleep(0.05)


async def _read_all(group: whence.Group) -> None:
    async for _ in group:
        pass


def test_a_socket_that_takes_nothing_drops_the_oldest_and_broadcasts_wait() -> None:
    async def main() -> None:
        limits = quick_limits(queue_messages=20)
        async with live_group("a", "b", protocol="tdca", limits=limits) as [a, b]:
            outlet = a._node.transport._outlet
            outlet.writable = False
            link = a._node.links["b"]
            for _ in range(20):
                await a.broadcast(b"kept", deadline=LONG_S)
            waiting = asyncio.create_task(a.broadcast(b"waits", deadline=LONG_S))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            assert link.out.unacknowledged == 20
            link.out.pending[:0] = [b"sent for others"] * 30  # a core's own packets do not wait
            link.flush(1, may_ack=True, ack_now=True)
            assert a.stats().dropped == {"send queue full": 30}
            assert link.out.unacknowledged == 20
            outlet.writable = True
            a._node.wake()
            assert in_its_life((await asyncio.wait_for(waiting, 10)).number) == 21
            assert [in_its_life(each.number) for each in await take(b, 21)] == list(range(1, 22))

    asyncio.run(main())


def test_the_trace_says_how_the_run_was_made(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_group("a", protocol="odca", trace=tmp_path):
            pass

    asyncio.run(main())
    [manifest] = open_trace(tmp_path).manifests
    assert manifest.parameters["transport"] == "udp"


def test_a_run_with_solicitations_replays(tmp_path: Path) -> None:
    async def main() -> None:
        options: dict[str, Any] = {"protocol": "odca", "faults": whence.LinkFaults(**FAULTS), "copies": 1}
        async with live_group(*NAMES[:5], trace=tmp_path, **options) as groups:

            async def talk(group: whence.Group) -> None:
                for _ in range(60):
                    await group.broadcast(bytes(20), deadline=0.3)
                    await asyncio.sleep(0.005)

            await asyncio.gather(*map(talk, groups))
            await asyncio.sleep(0.4)

    asyncio.run(main())
    [report] = verify_trace(tmp_path)
    assert report.ok, report
    replayed = replay(tmp_path)
    assert replayed.ok, replayed.mismatches[:5]
