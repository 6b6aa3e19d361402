"""Point-to-point protocols between live nodes: `group.send`, links of the domains only, refusals."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import whence
from support.living import in_a_loop, live_group, loopback, quick_limits, take
from whence.errors import MisuseError, WhenceError
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
