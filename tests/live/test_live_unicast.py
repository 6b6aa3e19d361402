"""Point-to-point protocols between live nodes: `group.send`, links of the domains only, refusals."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import whence
from support.living import Mesh, eventually, finish, in_a_loop, live_group, loopback, quick_limits, take
from whence.errors import MisuseError, NoRoomError, WhenceError
from whence.overlay.domain_graph import domain_graph
from whence.overlay.shape import Shape, first_shape, next_shape
from whence.verify.run import verify_trace

CHAIN = [["a", "b", "c"], ["c", "d", "e"]]


@in_a_loop
async def test_messages_cross_a_router_in_order() -> None:
    async with live_group("a", "b", "c", "d", "e", protocol="domains", domains=CHAIN) as groups:
        a, _, c, d, e = groups
        for number in range(200):
            await a.send("e", b"%d" % number)
            await a.send("d", b"to d %d" % number)
        assert [message.payload for message in await take(e, 200)] == [b"%d" % each for each in range(200)]
        assert len(await take(d, 200)) == 200
        assert c.unread == 0
        assert c.stats().held_messages == 0
        assert sorted(a.stats().links) == ["b", "c"]
        assert sorted(c.stats().links) == ["a", "b", "d", "e"]
        assert a.members == ("a", "b", "c", "d", "e")


@pytest.mark.parametrize("protocol", ["matrix", "domains"])
@in_a_loop
async def test_a_triangle_keeps_causal_order(protocol: str, tmp_path: Path) -> None:
    options = {"stamps": "full"} if protocol == "matrix" else {}
    async with live_group("a", "b", "c", protocol=protocol, trace=tmp_path, **options) as groups:
        a, b, c = groups

        async def pass_on(count: int) -> None:
            for _ in range(count):
                message = await b.receive()
                await b.send("c", b"after " + message.payload)

        relay = asyncio.create_task(pass_on(100))
        for number in range(100):
            await a.send("c", b"%d" % number)
            await a.send("b", b"%d" % number)
        got = [message.payload for message in await take(c, 200)]
        await relay
        for number in range(100):
            assert got.index(b"%d" % number) < got.index(b"after %d" % number)
    [report] = verify_trace(tmp_path)
    assert report.ok
    assert report.deliveries == 300


@in_a_loop
async def test_misuse_is_refused_by_name() -> None:
    async with live_group("a", "b", protocol="matrix") as (a, _):
        with pytest.raises(MisuseError, match="its messages go to one node each"):
            await a.broadcast(b"x")
        with pytest.raises(MisuseError, match=r"'z'.*not a member"):
            await a.send("z", b"x")
        await a.send("a", b"to myself")
        assert (await a.receive()).payload == b"to myself"
    async with live_group("a", "b") as (a, _):
        with pytest.raises(MisuseError, match="its messages go to everybody"):
            await a.send("b", b"x")


@in_a_loop
async def test_a_member_without_a_link_is_refused() -> None:
    peers = loopback("abcde")
    other = [["a", "b", "c", "d"], ["d", "e"]]
    options: dict[str, Any] = {
        "peers": peers, "protocol": "domains", "limits": quick_limits(leave_timeout_s=0.1)
    }  # fmt: skip
    with pytest.raises(WhenceError, match="this connection is refused"):
        async with (
            whence.join("room", node="a", domains=CHAIN, **options) as a,
            whence.join("room", node="b", domains=other, **options),
        ):
            await a.wait_connected(1)


TWO_HOPS = [["a", "c"], ["c", "e"]]


@in_a_loop
async def test_a_router_whose_full_queue_is_acknowledged_says_so() -> None:
    """M3: an acknowledgement is all that comes then, so nothing else made the router look at its queues."""
    async with (
        Mesh("ace") as mesh,
        mesh.joined(protocol="domains", domains=TWO_HOPS, limits=quick_limits(queue_messages=8)) as members,
    ):
        a, c, e = members
        for each in members:
            await each.wait_connected(10)
        to_e = mesh.proxies["c", "e"]
        await a.send("e", b"first")
        await take(e, 1)
        await eventually(lambda: c.stats().links["e"].unacknowledged_messages == 0)
        to_e.held.clear()
        sent = 0
        while not c.full:
            await a.send("e", b"%d" % sent, timeout=10)
            sent += 1
            await eventually(lambda: a.stats().links["c"].unacknowledged_messages == 0)
        await eventually(lambda: a.full == ["e"])
        await asyncio.sleep(0.2)  # all that was said of it has arrived: nothing but e will wake c
        to_e.held.set()
        await a.send("e", b"more", timeout=10)
        found = [message.payload for message in await take(e, sent + 1)]
        assert found == [*(b"%d" % each for each in range(sent)), b"more"]


@pytest.mark.parametrize("emptied", ["while it is cut", "after it is back"])
@in_a_loop
async def test_a_sender_that_was_cut_off_is_told_anew(emptied: str) -> None:
    """What a router said on a connection counts for that one; on the next it says what is true then."""
    limits = quick_limits(queue_messages=8, leave_timeout_s=0.1)
    async with (
        Mesh("ace") as mesh,
        mesh.joined(protocol="domains", domains=TWO_HOPS, limits=limits) as (a, c, e),
    ):
        for each in (a, c, e):
            await each.wait_connected(10)
        to_c, to_e = mesh.proxies["a", "c"], mesh.proxies["c", "e"]
        to_e.held.clear()
        sent = await fill(a, "e", 0.2)
        assert a.full == ["e"]
        to_c.open = False
        to_c.cut()
        await eventually(lambda: a.stats().links["c"].state != "connected")
        if emptied == "while it is cut":
            to_e.held.set()
            await eventually(lambda: not c.full)
        to_c.open = True
        await eventually(lambda: a.stats().links["c"].state == "connected")
        if emptied == "after it is back":
            sent += await fill(a, "e", 0.2)
            assert a.full == ["e"]
            to_e.held.set()
        await a.send("e", b"more", timeout=10)
        found = [message.payload for message in await take(e, sent + 1)]
        assert len(found) == sent + 1
        assert found[-1] == b"more"


def shapes(*domains: list[list[str]]) -> list[Shape]:
    """The shapes of a system of one domain after another."""
    graphs = [domain_graph(groups, ["one"]) for groups in domains]
    found = [first_shape(graphs[0])]
    for graph in graphs[1:]:
        found.append(next_shape(found[-1], graph))
    return found


@pytest.mark.parametrize("stamps", ["updates", "updates-scan", "full"])
@in_a_loop
async def test_what_is_sent_to_a_server_that_comes_back_waits_for_it(stamps: str, tmp_path: Path) -> None:
    """M4: what a server sent before it met the new life of one that had gone was of use to the old life only.

    It counted as delivered where the new life began, and was lost.
    """
    with_b, without_b, back = shapes([["a", "b", "c"]], [["a", "c"]], [["a", "b", "c"]])
    peers = loopback("abc")

    def joining(node: str, shape: Shape, life: int = 1) -> Any:
        return whence.join(
            "room",
            node=node,
            peers=peers,
            protocol="domains",
            domains=shape.plain(),
            stamps=stamps,
            store=tmp_path / f"{node}{life}.store",
            limits=quick_limits(leave_timeout_s=0.1),
        )

    async with joining("a", with_b) as a, joining("b", with_b) as b, joining("c", with_b) as c:
        await c.send("b", b"from c")
        await a.send("b", b"from a")
        await finish(b, 2)
    async with joining("a", without_b) as a:
        await a.send("c", b"parked")
    async with joining("a", back) as a:
        for number in range(5):  # a has not met b, and has not waited for it for long
            await a.send("b", b"%d" % number)
        async with joining("b", back, life=2) as b:
            found = [message.payload for message in await finish(b, 5)]
            assert found == [b"%d" % number for number in range(5)]


async def fill(a: whence.Group, to: str, timeout_s: float = 2.0) -> int:
    """Send until there is no room; returns how many were accepted."""
    for sent in range(1000):
        try:
            await a.send(to, b"%d" % sent, timeout=timeout_s)
        except NoRoomError:
            return sent
    raise AssertionError("1000 messages were accepted")


@in_a_loop
async def test_a_router_that_has_just_started_is_not_filled() -> None:
    """What it sets aside until it knows which life it is was acknowledged, and in no queue that has a limit.

    At a limit of 8 it had hundreds after half a second: too many for one peer, which it gave up.
    """
    peers = loopback("ace")
    options: dict[str, Any] = {"protocol": "domains", "domains": TWO_HOPS}
    options["limits"] = quick_limits(queue_messages=8, leave_timeout_s=0.1)
    async with (
        whence.join("room", node="a", peers=peers, **options) as a,
        whence.join("room", node="c", peers=peers, **options) as c,
    ):
        sent = await fill(a, "e")  # e is not there
        assert 8 <= sent <= 16
        queued = [each.stats().links[to].unacknowledged_messages for each, to in ((a, "c"), (c, "e"))]
        assert sum(queued) == sent
        assert c.full == a.full == ["e"]
        async with whence.join("room", node="e", peers=peers, **options) as e:
            assert [message.payload for message in await take(e, sent)] == [b"%d" % at for at in range(sent)]
            await a.send("e", b"more", timeout=10)
            assert (await take(e, 1))[0].payload == b"more"


@in_a_loop
async def test_a_server_that_does_not_read_fills_no_router() -> None:
    limits = quick_limits(queue_messages=8, unread_messages=8, leave_timeout_s=0.1)
    async with live_group("a", "c", "e", protocol="domains", domains=TWO_HOPS, limits=limits) as (a, c, e):
        sent = await fill(a, "e")
        assert sent <= 8 + 8 + 8  # unread at e when it says so; what c had, and a had, under way by then
        assert c.stats().links["e"].unacknowledged_messages == 0
        assert [message.payload for message in await take(e, sent)] == [b"%d" % at for at in range(sent)]
        await a.send("e", b"more", timeout=10)
        assert (await take(e, 1))[0].payload == b"more"


@in_a_loop
async def test_a_router_holds_one_queue_for_each_server_behind_it() -> None:
    """Of all that send at once, through a router before it, too, and whatever they were told when."""
    limits = quick_limits(queue_messages=8, leave_timeout_s=0.1)
    domains = [["a", "b", "r"], ["r", "c"], ["c", "d"], ["c", "e"]]
    async with AsyncExitStack() as stack:
        peers = loopback("abcder")
        senders = [
            await stack.enter_async_context(
                whence.join(
                    "room", node=name, peers=peers, protocol="domains", domains=domains, limits=limits
                )
            )
            for name in "abcdr"
        ]
        sent = await asyncio.gather(*(fill(each, "e") for each in senders))
        c, r = senders[2], senders[4]
        most = {"c": len(senders), "r": len("abr")}
        assert 8 <= c.stats().links["e"].unacknowledged_messages <= 8 * most["c"]
        assert r.stats().links["c"].unacknowledged_messages <= 8 * most["r"]
        assert sum(sent) <= 8 * len(senders) * 2
        e = await stack.enter_async_context(
            whence.join("room", node="e", peers=peers, protocol="domains", domains=domains, limits=limits)
        )
        got = await take(e, sum(sent))
        for name, count in zip("abcdr", sent, strict=True):
            mine = [message.payload for message in got if message.origin == name]
            assert mine == [b"%d" % at for at in range(count)]
